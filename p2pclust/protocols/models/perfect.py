"""FedCRef with perfect associations: the paper's upper bound, which looks at true labels by design.

Section 6.2 of the paper that :mod:`fedcref` names: peers are given the true associations of their clusters. Everything else
is mode "paper". For evaluation only: nothing else in this package reads true labels.

- What a cluster truly is: what most of its rows are, the lowest of equals; the paper does not say it of a mixed one.
- Each peer sends these classes in place of verdicts; no peer fetches models to try them. Two clusters of one peer are not
  linked, as everywhere, but a third may bring them into one component.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from p2pclust.errors import UsageError
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import Abstain
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.workspace import Wants, Workspace
from p2pclust.protocols.models.association import Association
from p2pclust.protocols.models.fedcref import FedCRefProtocol
from p2pclust.protocols.models.fedcref_agreed import Agreed
from p2pclust.protocols.models.fedcref_note import Note


class KnownLocal(Local):
    """A peer's data with the true class of each row, from 0 to 255, with the same meaning at every peer."""

    def __init__(self, X: ArrayLike, truth: ArrayLike, **more: Any) -> None:
        super().__init__(X, **more)
        self.truth: NDArray[np.int64] = np.asarray(truth, dtype=np.int64)
        if self.truth.shape != (self.n_samples,) or not ((self.truth >= 0) & (self.truth < 256)).all():
            raise ValueError(f"{self.n_samples} rows need as many classes from 0 to 255")


def majority(truth: NDArray[np.int64], labels: NDArray[np.int64], n_clusters: int) -> NDArray[np.int64]:
    """Return what most rows of each cluster are, shape (K,); the lowest class of equals, -1 for an empty cluster.

    >>> majority(np.array([7, 7, 3, 3, 3]), np.array([0, 0, 0, 1, 1]), 3).tolist()
    [7, 3, -1]
    """
    found = np.full(n_clusters, -1, dtype=np.int64)
    for q in range(n_clusters):
        own = truth[labels == q]
        if own.size:
            found[q] = np.bincount(own).argmax()
    return found


@dataclass(frozen=True)
class PerfectAssociations(FedCRefProtocol):
    """Mode "paper" with the associations that true labels give."""

    id: ClassVar[str] = "fedcref-perfect"

    mode: str = "paper"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mode != "paper":
            raise UsageError("fedcref-perfect: mode = 'paper' is the only one that it has")

    def _verdicts(self, agreed: Agreed) -> tuple[str, int]:
        return "classes", 1

    def associate(self, agreed: Agreed) -> Association:
        """Link all clusters of different peers that are of the same class."""
        clusters = agreed.clusters
        present = np.repeat(agreed.told, clusters.counts)
        classes = agreed.table[:, 0]
        linked = (classes[:, np.newaxis] == classes) & clusters.apart() & present & present[:, np.newaxis]
        return Association(clusters, np.argwhere(np.triu(linked, 1)), np.flatnonzero(~present).tolist())

    def wants(self, state: State, workspace: Workspace) -> Wants:
        if Agreed.of(state).phase == "verdicts":
            note = Note.of(workspace.note)
            return Wants(super().wants(state, workspace).fetches[: len(note.own_models) if note else 0])
        return super().wants(state, workspace)

    def contribute_with(
        self, state: State, local: Local, rng: np.random.Generator, workspace: Workspace
    ) -> Contribution:
        agreed = Agreed.of(state)
        if agreed.phase != "verdicts":
            return super().contribute_with(state, local, rng, workspace)
        if not isinstance(local, KnownLocal):
            raise Abstain("failed: fedcref-perfect needs true labels")
        peer, counts, note = workspace.peer, agreed.clusters.counts, Note.of(workspace.note)
        if peer >= len(counts) or not counts[peer] or note is None:
            raise Abstain("has no clusters in this iteration")
        classes = majority(local.truth, note.entered, counts[peer])
        return Arrays(classes=classes.astype(np.uint8)[:, np.newaxis])

    def problems_with_parts(self, state: State, contributions: Sequence[tuple[int, Contribution]]) -> Mapping[int, str]:
        agreed = Agreed.of(state)
        if agreed.phase != "verdicts":
            return super().problems_with_parts(state, contributions)
        counts = dict(enumerate(agreed.clusters.counts))
        others = [peer for peer, part in contributions if len(part["classes"]) != counts.get(peer)]
        return dict.fromkeys(others, "failed: not as many classes as clusters")
