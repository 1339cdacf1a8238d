"""Pictures of a run: the fleet and what befell it, how a job went, what it found, what it cost.

Matplotlib's objects alone, no global state and no window; each function returns a figure, or a figure and what its parts
are. Matplotlib is in the extra ``plots``, so it is imported where it is needed.
"""
