"""Links that a testbed shapes or breaks."""
