"""What must always hold, watched from outside after every step."""
