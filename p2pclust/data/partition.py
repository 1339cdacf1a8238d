"""Which peer holds which rows: partitions of a data set, each row at exactly one peer.

A partition is made once, before anything runs, by whoever holds all the data for an experiment. It may look at labels
and groups; the protocols never do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pclust.errors import UsageError

__all__ = ["SCHEMES", "split"]

SCHEMES = ("iid", "dirichlet", "labels", "by-group")

Rows = NDArray[np.int64]

_DEALS = 10


def split(
    y_or_group: NDArray[Any] | None,
    n_rows: int,
    n_peers: int,
    scheme: str,
    rng: np.random.Generator,
    *,
    beta: float | None = None,
    labels_per_peer: int | None = None,
) -> tuple[Rows, ...]:
    """Split rows among peers.

    Parameters
    ----------
    y_or_group : ndarray of shape (n_rows,) or None
        The labels for ``dirichlet`` and ``labels``, the groups for ``by-group``; not read by ``iid``.
    n_rows, n_peers : int
        At least one row for every peer.
    scheme : {"iid", "dirichlet", "labels", "by-group"}
        ``iid``: shuffled, sizes differ by one row at most. ``dirichlet``: each class is shared out by proportions
        drawn from Dirichlet(beta, ..., beta), as in Hsu et al. (2019). ``labels``: every peer holds exactly
        `labels_per_peer` classes, sizes as equal as the classes dealt to them allow. ``by-group``: whole
        groups, the largest first to the peer with the fewest rows.
    rng : numpy.random.Generator
        The only source of chance: the same generator state gives the same partition. ``by-group`` draws nothing.
    beta : float
        For ``dirichlet``: positive; the smaller, the more a peer's classes differ from its neighbours'.
    labels_per_peer : int
        For ``labels``: at least 1 and fewer than there are classes.

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
    """
    _check_arguments(y_or_group, n_rows, n_peers, scheme, beta=beta, labels_per_peer=labels_per_peer)
    if scheme == "iid":
        owner = np.empty(n_rows, dtype=np.int64)
        owner[rng.permutation(n_rows)] = np.arange(n_rows) % n_peers
        return _rows_of(owner, n_peers)
    assert y_or_group is not None
    names, codes = np.unique(y_or_group, return_inverse=True)
    codes = codes.astype(np.int64).reshape(-1)
    if scheme == "by-group":
        owner = _by_group(codes, len(names), n_peers)
    elif scheme == "dirichlet":
        assert beta is not None
        owner = _dirichlet(codes, len(names), n_peers, beta, rng)
    else:
        assert labels_per_peer is not None
        owner = _labels(codes, len(names), n_peers, labels_per_peer, rng)
    return _rows_of(owner, n_peers)


def _check_arguments(
    y_or_group: NDArray[Any] | None, n_rows: int, n_peers: int, scheme: str, **options: float | None
) -> None:
    if scheme not in SCHEMES:
        raise UsageError(f"unknown partition scheme {scheme!r}: expected {', '.join(SCHEMES)}")
    if n_peers < 1:
        raise UsageError(f"partition: {n_peers} peers: expected at least 1")
    if n_rows < n_peers:
        raise UsageError(f"partition: {n_rows} rows for {n_peers} peers: every peer needs at least one row")
    own = {"dirichlet": "beta", "labels": "labels_per_peer"}.get(scheme)
    for option, value in options.items():
        if option == own and value is None:
            raise UsageError(f"partition {scheme!r}: {option} is missing")
        if option != own and value is not None:
            raise UsageError(f"partition {scheme!r}: has no option {option}")
        if value is not None and not (value > 0 and np.isfinite(value)):
            raise UsageError(f"partition {scheme!r}: {option} = {value}: expected more than 0")
    if scheme != "iid":
        needed = "groups" if scheme == "by-group" else "labels"
        if y_or_group is None:
            raise UsageError(f"partition {scheme!r}: needs {needed}, and the data have none")
        if y_or_group.shape != (n_rows,):
            raise UsageError(f"partition {scheme!r}: {needed} of shape {y_or_group.shape} for {n_rows} rows")


def _rows_of(owner: Rows, n_peers: int) -> tuple[Rows, ...]:
    return tuple(np.flatnonzero(owner == peer).astype(np.int64) for peer in range(n_peers))


def _by_group(codes: Rows, n_groups: int, n_peers: int) -> Rows:
    """Return each row's peer, whole groups together; peers are numbered by their first group."""
    if n_groups < n_peers:
        raise UsageError(f"partition 'by-group': {n_groups} groups for {n_peers} peers: every peer needs a group")
    sizes = np.bincount(codes, minlength=n_groups)
    load = np.zeros(n_peers, dtype=np.int64)
    peer_of = np.empty(n_groups, dtype=np.int64)
    for group in np.argsort(-sizes, kind="stable"):
        peer_of[group] = load.argmin()
        load[peer_of[group]] += sizes[group]
    _, first = np.unique(peer_of, return_index=True)
    rank = np.argsort(np.argsort(first, kind="stable"), kind="stable")
    return np.asarray(rank[peer_of][codes], dtype=np.int64)


def _dirichlet(codes: Rows, n_classes: int, n_peers: int, beta: float, rng: np.random.Generator) -> Rows:
    """Return each row's peer, every class shared out by its own draw of proportions."""
    owner = np.empty(len(codes), dtype=np.int64)
    for label in range(n_classes):
        rows = rng.permutation(np.flatnonzero(codes == label))
        edges = np.rint(np.cumsum(rng.dirichlet(np.full(n_peers, beta))) * len(rows))
        # Row k of n goes to the first peer whose cumulated share exceeds it; rounding may leave the last edge below n.
        owner[rows] = np.minimum(np.searchsorted(edges, np.arange(len(rows)), side="right"), n_peers - 1)
    sizes = np.bincount(owner, minlength=n_peers)
    for peer in np.flatnonzero(sizes == 0):
        # A small beta easily leaves a peer with nothing. Drawing again until none is empty may take forever, so the
        # largest peer hands over one row.
        giver = int(sizes.argmax())
        row = rng.choice(np.flatnonzero(owner == giver))
        owner[row] = peer
        sizes[giver] -= 1
        sizes[peer] += 1
    return owner


def _labels(codes: Rows, n_classes: int, n_peers: int, labels_per_peer: int, rng: np.random.Generator) -> Rows:
    """Return each row's peer so that every peer holds exactly `labels_per_peer` classes."""
    if labels_per_peer >= n_classes:
        raise UsageError(
            f"partition 'labels': labels_per_peer = {labels_per_peer} with {n_classes} classes: expected fewer, "
            "so that no peer holds every class"
        )
    sizes = np.bincount(codes, minlength=n_classes).astype(np.int64)
    holders = _holders(sizes, n_peers, labels_per_peer)
    # Now and then a deal leaves a few peers alone with small or large classes, so the most even of several is kept.
    deals = [_dealt_counts(sizes, holders, n_peers, rng) for _ in range(_DEALS)]
    counts = min(deals, key=lambda deal: int(np.ptp(deal.sum(axis=0))))
    owner = np.empty(len(codes), dtype=np.int64)
    for label in range(n_classes):
        owner[rng.permutation(np.flatnonzero(codes == label))] = np.repeat(np.arange(n_peers), counts[label])
    return owner


def _holders(sizes: Rows, n_peers: int, labels_per_peer: int) -> Rows:
    """Return by how many peers each class is held: at least 1; large classes by more (D'Hondt's rule)."""
    n_slots = n_peers * labels_per_peer
    if n_slots < len(sizes):
        raise UsageError(
            f"partition 'labels': {n_peers} peers with {labels_per_peer} labels each hold at most {n_slots} of "
            f"{len(sizes)} classes, and every row needs a peer: raise labels_per_peer"
        )
    most = np.minimum(sizes, n_peers)
    if most.sum() < n_slots:
        raise UsageError(
            f"partition 'labels': the classes have too few rows for {n_peers} peers with {labels_per_peer} labels "
            "each: lower labels_per_peer"
        )
    holders = np.ones(len(sizes), dtype=np.int64)
    for _ in range(n_slots - len(sizes)):
        share = np.where(holders < most, sizes / holders, -1.0)
        holders[int(share.argmax())] += 1
    return holders


def _dealt_counts(sizes: Rows, holders: Rows, n_peers: int, rng: np.random.Generator) -> Rows:
    """Deal the classes to the peers, and return how many rows of each each gets, shape (n_classes, n_peers).

    A slot is one class at one peer. Slots lie class by class and are dealt round the peers like cards: a class has at
    most n_peers slots in a row, so no peer gets a class twice, and every peer gets equally many slots.
    """
    order = rng.permutation(len(sizes))
    slots = np.repeat(order, holders[order])
    held = np.zeros((len(sizes), n_peers), dtype=np.bool_)
    held[slots, rng.permutation(n_peers)[np.arange(len(slots)) % n_peers]] = True
    return _balanced_counts(held, sizes)


def _balanced_counts(held: NDArray[np.bool_], sizes: Rows) -> Rows:
    """Return how many rows of each class each peer gets, shape (n_classes, n_peers).

    Equal shares of a class would make the peers of small classes small. Iterative proportional fitting finds shares
    under which all peers are equally large, where the classes allow it at all; it ends on the classes' side, which
    must come out exactly.
    """
    n_peers = held.shape[1]
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
