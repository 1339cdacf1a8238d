"""What a testbed does to a running peer: orders of the process that started it, and faults."""
