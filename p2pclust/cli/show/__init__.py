"""What commands share: output, progress and summaries."""
