"""The peers of FedCRef's experiments: each sees some classes of a data set, and the same number of rows of each.

M. Nardi, L. Valerio, A. Passarella: Federated Clustering: An Unsupervised Cluster-Wise Training for Decentralized Data
Distributions (FedCRef), Sections 5.2 and 6.4. Unlike a partition (:mod:`partition`), a draw leaves rows out, and with an
overlap some rows are at several peers.

Readings, and why
-----------------
- A class cannot give rows indefinitely: 25 peers with 500 rows each of 2 to 5 of MNIST's 10 classes take more than half of
  them, and chance may ask for more of one class than there is. Classes are drawn among those that still have rows, and
  never so that a later peer would go short.
- "30 % of the samples in clusters from the same data distribution are shared among clients": of each class, that many of
  its rows are the same at all peers that see the class; the others are at one peer only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from p2pclust.errors import DataError, UsageError

Ints = NDArray[np.int64]


# Compared by identity, because it holds arrays.
@dataclass(frozen=True, eq=False)
class Drawn:
    """The rows of one peer."""

    rows: Ints  # shape (n,): row indices, shuffled: their order does not reveal their classes
    labels: Ints  # shape (n,): of each row, the index of its class in `classes`
    classes: NDArray[Any]  # shape (K,): the peer's classes, as they are called in the data, in ascending order


def draw_by_class(
    y: ArrayLike,
    n_peers: int,
    rng: np.random.Generator,
    *,
    rows_per_class: int = 500,
    classes_per_peer: tuple[int, int] | None = None,
    overlap: float = 0.0,
) -> tuple[Drawn, ...]:
    """Draw each peer's classes, and `rows_per_class` rows (S) of each; without overlap, no row is at two peers.

    `y` are the classes of all rows. Each number of classes within `classes_per_peer`, the fewest and the most, is equally
    likely; by default from 2 to half the classes of the data. `overlap` (O) is the share, in [0, 1], of a class's rows that
    is the same at all peers that see it, rounded to whole rows. Raises DataError if the classes have too few rows for
    what is asked, and UsageError if a number is out of range.

    >>> y = np.repeat(["a", "b", "c", "d"], 30)
    >>> peers = draw_by_class(y, 3, np.random.Generator(np.random.PCG64(0)), rows_per_class=10)
    >>> [len(peer.rows) for peer in peers]
    [20, 20, 20]
    >>> bool((peers[0].classes[peers[0].labels] == y[peers[0].rows]).all())
    True
    """
    given = np.asarray(y)
    if given.ndim != 1 or given.size == 0:
        raise UsageError(f"draw by class: labels of shape {given.shape}: expected one for each row")
    names, codes = np.unique(given, return_inverse=True)
    fewest, most = classes_per_peer or (2, len(names) // 2)
    if not 1 <= fewest <= most <= len(names):
        raise UsageError(
            f"draw by class: {fewest} to {most} classes per peer of {len(names)}: expected at least 1, in ascending order, "
            "and no more than there are"
        )
    if n_peers < 1 or rows_per_class < 1 or not 0.0 <= overlap <= 1.0:
        raise UsageError(
            f"draw by class: {n_peers} peers, {rows_per_class} rows per class, overlap {overlap:g}: expected at least 1, "
            "at least 1, and a share from 0 to 1"
        )
    common = round(overlap * rows_per_class)
    own = rows_per_class - common
    of_class = [rng.permutation(np.flatnonzero(codes == label)) for label in range(len(names))]
    sizes = np.array([len(rows) for rows in of_class], dtype=np.int64)
    # How many peers may see each class.
    places = np.where(sizes < rows_per_class, 0, (sizes - common) // own if own else n_peers)
    numbers = rng.integers(fewest, most + 1, size=n_peers)
    if not _enough(places, numbers):
        raise DataError(
            f"draw by class: {n_peers} peers see {numbers.sum()} classes in all, with {rows_per_class} rows of each; the "
            f"{len(names)} classes, of {sizes.min()} to {sizes.max()} rows, have enough for {places.sum()}: lower the "
            "number of peers or of rows per class"
        )
    seen = np.zeros(len(names), dtype=np.int64)
    peers = []
    for peer, number in enumerate(numbers):
        left = places - seen
        chosen = rng.choice(np.flatnonzero(left > 0), size=number, replace=False)
        if not _enough(left - np.isin(np.arange(len(left)), chosen), numbers[peer + 1 :]):
            # Taking the classes with the most places left always leaves enough for the following peers.
            chosen = np.argsort(-left, kind="stable")[:number]
        chosen = np.sort(chosen)
        parts = []
        for label in chosen:
            start = common + seen[label] * own
            parts.append(np.concatenate([of_class[label][:common], of_class[label][start : start + own]]))
        seen[chosen] += 1
        order = rng.permutation(number * rows_per_class)
        labels = np.repeat(np.arange(number, dtype=np.int64), rows_per_class)
        peers.append(Drawn(np.concatenate(parts).astype(np.int64)[order], labels[order], names[chosen]))
    return tuple(peers)


def _enough(places: Ints, numbers: Ints) -> bool:
    """Return whether each peer can get its number of different classes (the theorem of Gale and Ryser)."""
    demand = np.cumsum(np.sort(numbers)[::-1])
    return all(int(np.minimum(places, m).sum()) >= total for m, total in enumerate(demand.tolist(), start=1))
