"""Random fleets: each seed draws a world of its own, with any kinds of jobs and of faults."""
