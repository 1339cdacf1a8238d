"""Small helpers that several packages share: files, spelling, units, lazy imports, platforms."""
