"""A fleet of real peer processes on this machine."""
