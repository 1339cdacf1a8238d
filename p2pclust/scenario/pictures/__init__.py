"""Pictures of a run: the fleet and its faults, the rounds of a job, its result and its cost.

They use Matplotlib's objects only, without global state and without a window; each function returns a figure, or a figure
with a description of its parts. Matplotlib is in the extra ``plots``, so it is imported where it is needed.
"""
