"""The number of clusters chosen by the fleet.

`trials` makes the jobs and runs them, `choice` makes a choice of their results, `plots` draws it.
"""
