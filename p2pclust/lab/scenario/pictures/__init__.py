"""Pictures that only reports have: the time line, whose rows are where, the cost of a run, the association graph.

They use Matplotlib's objects only, without global state and without a window; each function returns a figure, or a figure
with a description of its parts. Matplotlib is in the extra ``plots``, so it is imported where it is needed. Pictures that
estimators draw too are in :mod:`p2pclust.lab.plots`.
"""
