"""What came of a run: measured, compared and judged by what was expected."""
