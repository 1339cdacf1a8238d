"""Clusterings over peers that hold different columns of the same rows."""
