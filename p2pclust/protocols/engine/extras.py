"""What a job needs beyond the package itself, asked before anything starts.

A peer that lacks it abstains and says so; but a whole fleet on one machine would say the same once per peer, and fail.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from p2pclust.errors import UsageError
from p2pclust.protocols.engine.job import Job

__all__ = ["require_extras"]

_EXTRAS = {"torch": "models"}
"""Modules that are installed with an extra only, and its name."""


def require_extras(jobs: Sequence[Job]) -> None:
    """Refuse, in one line, jobs whose protocols import what is not installed here.

    Raises
    ------
    UsageError
        With the command that installs it.

    Examples
    --------
    >>> from p2pclust.protocols.engine.compose import cluster_job
    >>> require_extras([cluster_job("llf-fcm", n_clusters=3)])  # needs nothing
    """
    for job in jobs:
        for protocol in job.protocols:
            for module in protocol.imports:
                extra = _EXTRAS.get(module)
                if extra is not None and importlib.util.find_spec(module) is None:
                    raise UsageError(
                        f"{protocol.id} needs {module}, which is not installed: pip install 'p2pclust[{extra}]'"
                    )
