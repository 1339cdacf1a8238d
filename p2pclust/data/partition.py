"""Partition a data set: assign each row, or each column, to exactly one peer.

A partition is made before anything runs. It may look at labels and groups; the protocols never do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pclust.data.dataset import DataSet
from p2pclust.errors import UsageError

SCHEMES = ("iid", "dirichlet", "labels", "distance", "by-group", "by-file")
"""How rows can be split; columns are split by `split_columns`."""

Rows = NDArray[np.int64]

_DEALS = 10
_SWAPS = 5
_BY_GROUP = {"by-group": "groups", "by-file": "files"}
LOOKS_AT = {"dirichlet": "labels", "labels": "labels", **_BY_GROUP}
"""The schemes that look at something besides the rows, and what that is."""


def deal(
    data: DataSet,
    n_peers: int,
    scheme: str,
    rng: np.random.Generator,
    *,
    beta: float | None = None,
    labels_per_peer: int | None = None,
    locations: Sequence[Sequence[float]] | None = None,
) -> tuple[Rows, ...]:
    """Split a data set among peers: `split` with the labels, groups or rows that the scheme looks at.

    Examples
    --------
    >>> from p2pclust.data import load
    >>> [len(rows) for rows in deal(load("iris"), 3, "iid", np.random.default_rng(0))]
    [50, 50, 50]
    """
    looks_at, points = data.group if scheme in _BY_GROUP else data.y, data.X if scheme == "distance" else None
    return split(
        looks_at, data.n_rows, n_peers, scheme, rng, beta=beta, labels_per_peer=labels_per_peer, points=points,
        locations=locations,
    )  # fmt: skip


def split(
    y_or_group: NDArray[Any] | None,
    n_rows: int,
    n_peers: int,
    scheme: str,
    rng: np.random.Generator,
    *,
    beta: float | None = None,
    labels_per_peer: int | None = None,
    points: NDArray[np.float64] | None = None,
    locations: Sequence[Sequence[float]] | None = None,
) -> tuple[Rows, ...]:
    """Split rows among peers.

    Parameters
    ----------
    y_or_group : ndarray of shape (n_rows,) or None
        The labels for ``dirichlet`` and ``labels``, the groups for ``by-group``, the files for ``by-file``.
    n_rows, n_peers : int
        At least one row for every peer.
    scheme : {"iid", "dirichlet", "labels", "distance", "by-group", "by-file"}
        ``iid``: shuffled, sizes differ by one row at most. ``dirichlet``: each class is shared out by proportions
        drawn from Dirichlet(beta, ..., beta) [1]_. ``labels``: every peer holds exactly `labels_per_peer` classes, sizes
        as equal as the classes dealt to them allow. ``distance``: peers have locations and see what is near [2]_: see
        `nearby`. ``by-group``: whole groups, the largest first to the peer with the fewest rows. ``by-file``: the same
        with the files of a folder.
    rng : numpy.random.Generator
        The only source of chance. ``by-group`` and ``by-file`` draw nothing.
    beta : float
        For ``dirichlet`` and ``distance``: positive; the smaller, the more a peer's rows differ from the others'.
    labels_per_peer : int
        For ``labels``: at least 1 and fewer than there are classes.
    points : ndarray of shape (n_rows, n_features)
        For ``distance``: the rows.
    locations : sequence of sequence of float
        For ``distance``: one point for each peer; by default drawn uniformly in the box of the rows.

    Returns
    -------
    tuple of ndarray, int64
        The row indices of each peer, ascending. Every row is at exactly one peer; no peer is empty.

    Raises
    ------
    UsageError
        If the rows, classes or groups cannot be shared out so, or an option is missing or foreign to the scheme.

    Examples
    --------
    >>> import numpy as np
    >>> y = np.array([0, 0, 1, 1, 2, 2])
    >>> shares = split(y, 6, 3, "labels", np.random.default_rng(0), labels_per_peer=2)
    >>> [len(set(y[rows])) for rows in shares]
    [2, 2, 2]

    References
    ----------
    .. [1] T.-M. H. Hsu, H. Qi, M. Brown, "Measuring the effects of non-identical data distribution for federated
       visual classification", arXiv:1909.06335, 2019.
    .. [2] S. Garst, M. Reinders, "Federated k-means clustering", arXiv:2310.01195, 2023.
    """
    _check_arguments(y_or_group, n_rows, n_peers, scheme)
    option = _option(scheme, {"beta": beta, "labels_per_peer": labels_per_peer, "locations": locations})
    if scheme == "iid":
        owner = np.empty(n_rows, dtype=np.int64)
        owner[rng.permutation(n_rows)] = np.arange(n_rows) % n_peers
    elif scheme == "distance":
        owner = _distance(points, locations, n_rows, n_peers, option, rng)
    else:
        assert y_or_group is not None
        try:
            codes = np.unique(y_or_group, return_inverse=True)[1].astype(np.int64).reshape(-1)
        except TypeError:
            raise UsageError(
                f"partition {scheme!r}: {LOOKS_AT[scheme]} of different types: give all as text, or all as numbers"
            ) from None
        if scheme in _BY_GROUP:
            owner = _by_group(codes, n_peers, scheme)
        elif scheme == "dirichlet":
            owner = _dirichlet(codes, n_peers, option, rng)
        else:
            owner = _labels(codes, n_peers, int(option), rng)
    return tuple(np.flatnonzero(owner == peer).astype(np.int64) for peer in range(n_peers))


def nearby(points: NDArray[np.float64], locations: NDArray[np.float64], beta: float, rng: np.random.Generator) -> Rows:
    """Return the peer of each row if peers see what is near them: Eq. 2 of Garst and Reinders (2023).

    A peer at Euclidean distance d from a row sees it with probability 1 - exp(-beta / d). A row that several peers see
    goes to one of them, drawn at random; one that no peer sees goes to the nearest, as in its authors' code. Peers may be
    left without a row.

    >>> nearby(np.array([[0.0], [9.0]]), np.array([[8.0], [1.0]]), 1e-9, np.random.default_rng(0))
    array([1, 0])
    """
    distances = np.stack([np.sqrt(((points - location) ** 2).sum(axis=1)) for location in locations], axis=1)
    with np.errstate(divide="ignore"):
        seen = rng.random(distances.shape) < -np.expm1(-beta / distances)
    # The largest of independent uniform draws, among those who see the row, is each of them equally often.
    lots = np.where(seen, rng.random(distances.shape), -1.0)
    owner = np.where(seen.any(axis=1), lots.argmax(axis=1), distances.argmin(axis=1))
    return np.asarray(owner, dtype=np.int64)


def _check_arguments(y_or_group: NDArray[Any] | None, n_rows: int, n_peers: int, scheme: str) -> None:
    if scheme not in SCHEMES:
        raise UsageError(f"unknown partition scheme {scheme!r}: expected {', '.join(SCHEMES)}")
    if n_peers < 1:
        raise UsageError(f"partition: {n_peers} peers: expected at least 1")
    if n_rows < n_peers:
        raise UsageError(f"partition: {n_rows} rows for {n_peers} peers: every peer needs at least one row")
    if needed := LOOKS_AT.get(scheme):
        if y_or_group is None:
            raise UsageError(f"partition {scheme!r}: needs {needed}, and the data have none")
        if y_or_group.shape != (n_rows,):
            raise UsageError(f"partition {scheme!r}: {needed} of shape {y_or_group.shape} for {n_rows} rows")


def _option(scheme: str, given: dict[str, Any]) -> float:
    """Return the value of the scheme's own option, 0 if it has none."""
    own = {"dirichlet": "beta", "distance": "beta", "labels": "labels_per_peer"}.get(scheme)
    allowed = (own, "locations") if scheme == "distance" else (own,)
    foreign = next((name for name, value in given.items() if value is not None and name not in allowed), None)
    if foreign is not None:
        raise UsageError(f"partition {scheme!r}: has no option {foreign}")
    if own is None:
        return 0.0
    value, whole = given[own], own == "labels_per_peer"
    if value is None:
        raise UsageError(f"partition {scheme!r}: {own} is missing")
    kinds = (int, np.integer) if whole else (int, float, np.integer, np.floating)
    if isinstance(value, bool) or not isinstance(value, kinds) or not 0 < value < (2**31 if whole else 1e100):
        expected = "a whole number of at least 1" if whole else "a number of more than 0"
        raise UsageError(f"partition {scheme!r}: {own} = {value!r}: expected {expected}")
    return float(value)


def _by_group(codes: Rows, n_peers: int, scheme: str) -> Rows:
    """Return each row's peer, whole groups together; peers are numbered by their first group."""
    sizes = np.bincount(codes)
    n_groups = len(sizes)
    if n_groups < n_peers:
        what = _BY_GROUP[scheme]
        raise UsageError(
            f"partition {scheme!r}: {n_groups} {what} for {n_peers} peers: every peer needs a {what.removesuffix('s')}"
        )
    load = np.zeros(n_peers, dtype=np.int64)
    peer_of = np.empty(n_groups, dtype=np.int64)
    for group in np.argsort(-sizes, kind="stable"):
        peer_of[group] = load.argmin()
        load[peer_of[group]] += sizes[group]
    _, first = np.unique(peer_of, return_index=True)
    rank = np.argsort(np.argsort(first, kind="stable"), kind="stable")
    return np.asarray(rank[peer_of][codes], dtype=np.int64)


def _distance(
    points: NDArray[np.float64] | None,
    locations: Sequence[Sequence[float]] | None,
    n_rows: int,
    n_peers: int,
    beta: float,
    rng: np.random.Generator,
) -> Rows:
    """Return each row's peer, and refuse a partition in which some peer sees nothing."""
    if points is None or points.ndim != 2 or len(points) != n_rows:
        raise UsageError("partition 'distance': needs the rows themselves, as points")
    shape = (n_peers, points.shape[1])
    if locations is None:
        places = rng.uniform(points.min(axis=0), points.max(axis=0), size=shape)
    else:
        try:
            places = np.array(locations, dtype=np.float64)
        except (TypeError, ValueError):
            places = np.empty(0)
        if places.shape != shape or not np.isfinite(places).all():
            raise UsageError(
                f"partition 'distance': expected {n_peers} locations, one for each peer, of {shape[1]} coordinates each"
            )
    owner = nearby(points, places, beta, rng)
    alone = np.flatnonzero(np.bincount(owner, minlength=n_peers) == 0)
    if len(alone):
        raise UsageError(
            f"partition 'distance': peer {alone[0] + 1} of {n_peers} sees no row: raise beta, give locations nearer to "
            "the rows, or choose another seed"
        )
    return owner


def _dirichlet(codes: Rows, n_peers: int, beta: float, rng: np.random.Generator) -> Rows:
    """Return each row's peer, every class split by its own drawn proportions."""
    owner = np.empty(len(codes), dtype=np.int64)
    for label in range(int(codes.max()) + 1):
        rows = rng.permutation(np.flatnonzero(codes == label))
        edges = np.rint(np.cumsum(rng.dirichlet(np.full(n_peers, beta))) * len(rows))
        # Row k of n goes to the first peer whose cumulated share exceeds it; rounding may leave the last edge below n.
        owner[rows] = np.minimum(np.searchsorted(edges, np.arange(len(rows)), side="right"), n_peers - 1)
    sizes = np.bincount(owner, minlength=n_peers)
    for peer in np.flatnonzero(sizes == 0):
        # A small beta easily leaves a peer with nothing. Drawing again until none is empty may take forever, so the
        # largest peer hands over one row.
        giver = int(sizes.argmax())
        owner[rng.choice(np.flatnonzero(owner == giver))] = peer
        sizes[giver] -= 1
        sizes[peer] += 1
    return owner


def _labels(codes: Rows, n_peers: int, labels_per_peer: int, rng: np.random.Generator) -> Rows:
    """Return each row's peer so that every peer holds exactly `labels_per_peer` classes."""
    sizes = np.bincount(codes).astype(np.int64)
    n_classes = len(sizes)
    if labels_per_peer >= n_classes:
        raise UsageError(
            f"partition 'labels': labels_per_peer = {labels_per_peer} with {n_classes} classes: expected fewer, "
            "so that no peer holds every class"
        )
    n_slots, most = n_peers * labels_per_peer, np.minimum(sizes, n_peers)
    if n_slots < n_classes:
        raise UsageError(
            f"partition 'labels': {n_peers} peers with {labels_per_peer} labels each hold at most {n_slots} of "
            f"{n_classes} classes, and every row needs a peer: raise labels_per_peer"
        )
    if most.sum() < n_slots:
        raise UsageError(
            f"partition 'labels': the classes have too few rows for {n_peers} peers with {labels_per_peer} labels "
            "each: lower labels_per_peer"
        )
    # At least one peer holds each class, and more hold a large one, by D'Hondt's rule.
    holders = np.ones(n_classes, dtype=np.int64)
    for _ in range(n_slots - n_classes):
        share = np.where(holders < most, sizes / holders, -1.0)
        holders[int(share.argmax())] += 1
    # Now and then a deal leaves a few peers alone with small or large classes, so the most even of several is kept.
    deals = [_dealt_counts(sizes, holders, n_peers, rng) for _ in range(_DEALS)]
    counts = min(deals, key=lambda deal: int(np.ptp(deal.sum(axis=0))))
    owner = np.empty(len(codes), dtype=np.int64)
    for label in range(n_classes):
        owner[rng.permutation(np.flatnonzero(codes == label))] = np.repeat(np.arange(n_peers), counts[label])
    return owner


def _dealt_counts(sizes: Rows, holders: Rows, n_peers: int, rng: np.random.Generator) -> Rows:
    """Deal the classes to the peers, and return how many rows of each each gets, shape (n_classes, n_peers)."""
    # A slot is one class at one peer. Slots are dealt class by class round the peers: a class has at most n_peers slots in a
    # row, so no peer gets it twice, and all get equally many. Where the laps fall together with the classes, though, the
    # same classes always meet at a peer, so pairs of slots are then swapped.
    order = rng.permutation(len(sizes))
    slots = np.repeat(order, holders[order])
    held = np.zeros((len(sizes), n_peers), dtype=np.bool_)
    held[slots, rng.permutation(n_peers)[np.arange(len(slots)) % n_peers]] = True
    # Pairs are not swapped where a peer would get a class twice.
    labels, peers = np.nonzero(held)
    # A few swaps for each slot are known to forget where a random matrix with fixed sums began.
    for one, other in rng.integers(len(labels), size=(_SWAPS * len(labels), 2)):
        if not held[labels[one], peers[other]] and not held[labels[other], peers[one]]:
            held[labels[[one, other]], peers[[one, other]]] = False
            peers[[one, other]] = peers[[other, one]]
            held[labels[[one, other]], peers[[one, other]]] = True
    # Iterative proportional fitting makes the peers as equal as can be; it ends on the classes' side, which must come out
    # exactly.
    shares = held * (sizes / held.sum(axis=1))[:, None]
    for _ in range(100):
        shares *= (sizes.sum() / n_peers) / shares.sum(axis=0)
        shares *= (sizes / shares.sum(axis=1))[:, None]
    counts = np.where(held, np.maximum(1, np.floor(shares)), 0).astype(np.int64)
    for label, size in enumerate(sizes):
        while (missing := int(size - counts[label].sum())) > 0:
            # The rows that rounding down left over go to what are now the smallest of the class's peers.
            order = np.flatnonzero(held[label])
            order = order[np.argsort(counts[:, order].sum(axis=0), kind="stable")]
            counts[label, order[:missing]] += 1
        for _ in range(-missing):
            counts[label, counts[label].argmax()] -= 1
    return counts


def split_columns(n_features: int, n_peers: int, widths: Sequence[int] | None = None) -> tuple[NDArray[np.int64], ...]:
    """Split columns among peers that all have all rows: a vertical partition.

    Parameters
    ----------
    n_features, n_peers : int
        At least one column for every peer.
    widths : sequence of int, optional
        How many columns each peer gets; by default as equal as can be, the first peers having the larger numbers.

    Returns
    -------
    tuple of ndarray, int64
        The column indices of each peer, in the order of the data set.

    Examples
    --------
    >>> [len(columns) for columns in split_columns(16, 3)]
    [6, 5, 5]
    >>> [columns.tolist() for columns in split_columns(4, 2, [1, 3])]
    [[0], [1, 2, 3]]
    """
    if n_peers < 1:
        raise UsageError(f"partition 'vertical': {n_peers} peers: expected at least 1")
    if n_features < n_peers:
        raise UsageError(
            f"partition 'vertical': {n_features} columns for {n_peers} peers: every peer needs at least one column"
        )
    if widths is None:
        return tuple(np.array_split(np.arange(n_features, dtype=np.int64), n_peers))
    if len(widths) != n_peers or any(width < 1 for width in widths) or sum(widths) != n_features:
        raise UsageError(
            f"partition 'vertical': widths {', '.join(map(str, widths))}: expected {n_peers} numbers of at least 1 with "
            f"the sum {n_features}, the number of columns"
        )
    return tuple(np.split(np.arange(n_features, dtype=np.int64), np.cumsum(widths)[:-1]))
