"""A run or a fleet as it continues: its state from its events, and a page in the browser that shows it."""
