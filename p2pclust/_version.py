"""The version, in one place: both distributions take it from here, and a peer need not read metadata for it."""

__version__ = "0.1.0"
