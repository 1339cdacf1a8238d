"""One job without an aggregator at one peer."""
