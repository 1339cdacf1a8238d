"""Clusterings whose result is one set of centers, over peers that hold different rows."""
