"""One module per paper and experiment; each table is one `Table`."""
