"""Secure sums: the pads that hide contributions, the lists of keys, and what revealed sums expose (docs/secure-sums.md)."""
