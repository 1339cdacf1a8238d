"""Pictures of a FedCRef run: who was found to be the same, how it went, what the models draw, what it cost to send.

Matplotlib's objects alone, no global state and no window; each function returns a figure. Matplotlib is in the extra
``plots``, so it is imported where it is needed.
"""
