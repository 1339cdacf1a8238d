"""The laboratory: experiments, simulated fleets, testbeds, scenarios and their pages, papers' tables, attacks.

It imports the product, and the product imports nothing of it: a device is installed without this folder."""
