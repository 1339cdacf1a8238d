"""The result of a run: measured, compared, and checked against the expectations."""
