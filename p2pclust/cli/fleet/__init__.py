"""Commands for people who run peers."""
