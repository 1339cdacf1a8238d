"""Commands for experiments: scenarios, sweeps, data and tables of papers."""
