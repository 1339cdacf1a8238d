"""A run or a fleet as it goes on: its state from its events, and a page in the browser that shows it."""
