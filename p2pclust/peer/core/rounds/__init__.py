"""One job with an aggregator at one peer: election, rounds, sums along a tree, and the end."""
