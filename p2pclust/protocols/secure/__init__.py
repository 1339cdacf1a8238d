"""Secure sums: the pads that hide contributions, the lists of keys, and what told sums expose (docs/secure-sums.md)."""
