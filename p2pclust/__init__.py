"""p2pclust: every peer ends with the clustering that pooling all the data would have given."""
