"""The pure half of a peer: step machines that take events and return effects, without I/O, clock or thread."""
