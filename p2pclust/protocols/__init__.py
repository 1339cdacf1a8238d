"""Federated algorithms as pure functions, one paper per file, and the engine that runs them round by round.

Names are imported when they are first used, so that a peer loads only what its job needs.
"""

from __future__ import annotations

from p2pclust.tools.lazy import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    engine__arrays="Arrays Contribution State",
    engine__base="Abstain Additive ByColumns Clustering Labelling Protocol Remembering Slot WithWorkspace",
    engine__compose="cluster_job",
    engine__job="Job JobState RoundRecord Stage",
    engine__local="Local",
    engine__runner="pooled pooled_run replay run_in_process",
)

__all__ = __dir__()  # noqa: PLE0605
