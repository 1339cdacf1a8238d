"""A fleet of simulated peers in virtual time."""
