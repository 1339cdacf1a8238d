"""Simulated fleets: the real cores in virtual time, everything drawn from one seed."""
