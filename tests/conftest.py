"""Shared by all tests: Hypothesis draws the same examples in every run, and has no deadline on a busy machine."""

from __future__ import annotations

import pytest
from hypothesis import settings

settings.register_profile("deterministic", derandomize=True, deadline=None)
settings.load_profile("deterministic")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer to regenerate the transcripts after a change that can be explained."""
    parser.addoption("--rewrite", action="store_true", help="write the transcripts anew")
