"""Models of clusters that no other peer has: two for each, and each judges only the rows that it has not seen.

A model that has seen a row serves it better than one that has not. A single model of an isolated cluster would keep
the rows that it was trained on indefinitely, though a community may be what they belong to. So a peer trains two, each
on one half of its rows; a row's error under the cluster is that of the model that did not see it. The halves are drawn
once and stay the same: rows often come in some order, and every second row may be of one kind. The models are not sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering.autoencoders import ModelStack
from p2pclust.clustering.stacks import train
from p2pclust.protocols.engine import random_streams
from p2pclust.protocols.models.fedcref_note import Halves

if TYPE_CHECKING:
    from p2pclust.protocols.models.fedcref_peer import AtWork

_MAX_SEED: Final = 2**62


def generators(rng: np.random.Generator, count: int) -> list[np.random.Generator]:
    """Return so many generators, each of its own, that follow from this one."""
    return [np.random.Generator(np.random.PCG64(int(seed))) for seed in rng.integers(_MAX_SEED, size=count)]


def _sides(work: AtWork) -> NDArray[np.int64]:
    """Return for each row of the peer which half it is in, the same in all rounds of a job."""
    return random_streams.halving(work.agreed.stream, work.workspace.peer).permutation(work.local.n_samples) % 2


def train_halves(
    work: AtWork, known: Halves, rows: Mapping[int, NDArray[np.int64]], rng: np.random.Generator, *, epochs: int,
    batch: int, learning_rate: float,
) -> Halves:  # fmt: skip
    """Train the two models of each of these own clusters, on its rows, from the known ones or from random weights.

    Clusters whose training diverged are not among those returned.
    """
    names = [(q, half) for q in sorted(rows) for half in (0, 1)]
    if not names:
        return {}
    rngs = generators(rng, len(names))
    starts, parts, sides = [], [], _sides(work)
    for (q, half), own in zip(names, rngs, strict=True):
        before = work.decoded(known[q][half]) if q in known else None
        starts.append(ModelStack.random(work.architecture, [own]) if before is None else before)
        parts.append(work.X[rows[q][sides[rows[q]] == half]])
    trained = train(
        ModelStack.concatenate(starts), parts, rngs=rngs, epochs=epochs, batch=batch,
        learning_rate=learning_rate, device=work.job.device,
    )  # fmt: skip
    found = {}
    for number, q in enumerate(sorted(rows)):
        pair = trained[[2 * number, 2 * number + 1]]
        if pair.finite.all():
            one, other = (work.workspace.publish(data) for data in pair.encode(work.job.encoding))
            found[q] = (one, other)
    return found


def unseen_errors(work: AtWork, halves: Halves) -> NDArray[np.float64]:
    """Return each row's error under the model of each cluster that has not seen it, shape (n, clusters)."""
    found, sides = np.full((work.local.n_samples, len(halves)), np.inf), _sides(work)
    for column, q in enumerate(sorted(halves)):
        for half, digest in enumerate(halves[q]):
            judged = np.flatnonzero(sides != half)
            found[judged, column] = work.errors(work.X[judged], [digest])[:, 0]
    return found
