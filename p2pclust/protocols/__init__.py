"""Federated algorithms as pure functions, one paper per file, and the engine that runs them round by round.

Names are imported when they are first used, so that a peer loads only what its job needs.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "Abstain": "engine.base",
    "Additive": "engine.base",
    "ByColumns": "engine.base",
    "Clustering": "engine.base",
    "Labelling": "engine.base",
    "Protocol": "engine.base",
    "Remembering": "engine.base",
    "Slot": "engine.base",
    "WithWorkspace": "engine.base",
    "Arrays": "engine.arrays",
    "Contribution": "engine.arrays",
    "State": "engine.arrays",
    "Job": "engine.job",
    "JobState": "engine.job",
    "RoundRecord": "engine.job",
    "Stage": "engine.job",
    "Local": "engine.local",
    "cluster_job": "engine.compose",
    "pooled": "engine.runner",
    "pooled_run": "engine.runner",
    "replay": "engine.runner",
    "run_in_process": "engine.runner",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
