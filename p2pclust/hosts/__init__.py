"""Fleets of an inventory: hosts, supervisors, and the client that asks running peers."""
