"""What the commands of the laboratory show on a terminal."""
