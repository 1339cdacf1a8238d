"""Differential privacy: noise, what it promises, and the clustering that adds it."""
