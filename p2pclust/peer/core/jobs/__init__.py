"""All jobs at one peer: submission, documents, series, cancels, and what is forgotten when."""
