"""The number of clusters chosen by the fleet."""
