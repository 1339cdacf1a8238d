"""Scenarios: experiments described in one TOML file, checked before anything starts."""
