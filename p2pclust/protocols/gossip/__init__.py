"""Rounds without an aggregator: sums and averages that neighbours exchange."""
