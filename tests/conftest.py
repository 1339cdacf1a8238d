"""Shared by all tests: Hypothesis draws the same examples in every run, and has no deadline on a busy machine."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("deterministic", derandomize=True, deadline=None)
settings.load_profile("deterministic")
