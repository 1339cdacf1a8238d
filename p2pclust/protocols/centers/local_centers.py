"""Centers drawn within the ranges, and local centers that peers sent: cluster them, and always end with C centers.

Local centers repeat (peers that hold the same cluster find the same center), and some may be withheld, so there can be
fewer distinct ones than clusters. The centers that are then missing are taken from a spare set.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from p2pclust.clustering import weighted_kmeans
from p2pclust.clustering.points import Floats
from p2pclust.errors import UsageError
from p2pclust.protocols.engine import random_streams
from p2pclust.protocols.engine.arrays import Contribution, State
from p2pclust.protocols.engine.local import LARGEST

_MAX_WEIGHT = 2.0**53  # no weight of a local center is larger: it is a number of rows, or less


def gathered(candidates: Floats, weights: Floats, spare: Floats, rng: np.random.Generator, *, n_init: int) -> Floats:
    """Cluster candidates by weighted k-means, from the best of `n_init` k-means++ seedings, into C centers.

    There are C spare centers, shape (C, F): centers come from them if there are fewer than C distinct candidates.
    """
    return filled(weighted_kmeans(candidates, weights, len(spare), rng, n_init=n_init).centers, spare)


def filled(centers: Floats, spare: Floats) -> Floats:
    """Add the spare centers that lie farthest from all others, one by one, until there are as many as spare ones.

    >>> filled(np.array([[0.0]]), np.array([[0.5], [9.0]])).tolist()
    [[0.0], [9.0]]
    """
    chosen = list(centers)
    while len(chosen) < len(spare):
        apart = np.min([((spare - center) ** 2).sum(axis=1) for center in chosen], axis=0)
        chosen.append(spare[int(np.argmax(apart))])
    return np.array(chosen)


def working_range(state: State) -> tuple[Floats, Floats]:
    """Return the smallest and largest value of each feature in working coordinates."""
    lo, hi = ((state[name] - state["origin"]) / state["scale"] for name in ("lo", "hi"))
    return lo, hi


def uniform(state: State, n_clusters: int, rng: np.random.Generator) -> Floats:
    """Draw centers uniformly within the ranges, in working coordinates, shape (n_clusters, F)."""
    lo, hi = working_range(state)
    return np.asarray(lo + rng.random((n_clusters, lo.size)) * (hi - lo), dtype=np.float64)


def started(state: State, starts: Sequence[Floats]) -> State:
    """Return the state with first centers; several sets of them stand side by side in ``starts``, shape (S, C, F)."""
    first = state.replace(centers=starts[0])
    return first if len(starts) == 1 else first.replace(starts=np.stack(starts))


def aligned(centers: Floats, previous: Floats) -> Floats:
    """Return the centers in the order of the previous ones that they are nearest to, the nearest pair first.

    k-means from fresh seeds numbers its clusters anew; so numbers keep their meaning, and moves can be measured.

    >>> aligned(np.array([[9.1], [0.2]]), np.array([[0.0], [9.0]])).tolist()
    [[0.2], [9.1]]
    """
    apart = np.stack([((centers - old) ** 2).sum(axis=1) for old in previous])
    moved = np.array(centers)
    for _ in range(len(previous)):
        old, new = np.unravel_index(int(np.argmin(apart)), apart.shape)
        moved[old] = centers[new]
        apart[old], apart[:, new] = np.inf, np.inf
    return moved


def unseeded(stage: str, state: State, n_clusters: int, rng: np.random.Generator) -> State:
    """Return the state in which a clustering opens that makes its own first centers.

    Until peers have ``proposed`` some, its centers are drawn uniformly within the ranges.
    """
    require_scaling(stage, state)
    state = state.replace(centers=uniform(state, n_clusters, rng), proposed=np.False_)
    return opened(state).replace(stream=drawn_stream(rng))


def opened(state: State) -> State:
    """Drop what only scaling and seeding needed, but for declared bounds: rows outside of these take no part."""
    if not ("declared" in state and state["declared"].all()):
        state = state.without("lo", "hi", "declared")
    return state.without("rows").replace(shifts=np.zeros(0), suppressed=np.int64(0))


def require_scaling(stage: str, state: State) -> None:
    """Raise UsageError if no range and scaling stages precede."""
    if "origin" not in state or "lo" not in state:
        raise UsageError(f"{stage}: put range and scaling stages before it")


def drawn_stream(rng: np.random.Generator) -> np.int64:
    """Draw the number ``stream`` of a state, which the aggregator's draws follow from."""
    return np.int64(rng.integers(random_streams.MAX_SEED))


def problem_with_centers(part: Contribution, *, most: int, weights: str = "", least: int = 0) -> str:
    """Return why the ``centers`` (k, F) of a contribution cannot be used, or an empty string.

    `weights` names the array that holds one weight per center, if any; no weight may be below `least`.
    """
    centers = part["centers"]
    if not 1 <= len(centers) <= most or np.abs(centers).max(initial=0.0) > LARGEST:
        return "failed: it sends no centers"
    if weights:
        values = part[weights]
        if values.shape != (len(centers),) or not ((values >= least) & (values <= _MAX_WEIGHT)).all():
            return f"failed: its {weights} are malformed"
    if "suppressed" in part and not 0 <= int(part["suppressed"]) <= most:
        return "failed: it suppressed an impossible number of clusters"
    return ""
