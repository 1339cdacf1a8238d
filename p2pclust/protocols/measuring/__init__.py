"""What may come after a clustering: its objective, how good it is, and how many clusters the data speak for."""
