"""Random runs: what a seed draws, the kinds of runs, and planted bugs."""
