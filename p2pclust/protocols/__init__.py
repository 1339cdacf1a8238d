"""Federated algorithms as pure functions, one paper per file, and the engine that runs them round by round.

Names are imported when they are first used, so that a peer loads only what its job needs.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "Abstain": "base",
    "Clustering": "base",
    "Labelling": "base",
    "Protocol": "base",
    "Slot": "base",
    "Arrays": "arrays",
    "Contribution": "arrays",
    "State": "arrays",
    "Job": "job",
    "JobState": "job",
    "RoundRecord": "job",
    "Stage": "job",
    "Local": "local",
    "cluster_job": "compose",
    "pooled": "runner",
    "pooled_run": "runner",
    "replay": "runner",
    "run_in_process": "runner",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
