"""Which peers there are, which are alive, and which are enrolled."""
