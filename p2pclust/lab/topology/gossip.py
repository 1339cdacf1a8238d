"""Simulate how many rounds of gossip reach all peers of an overlay."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from p2pclust.lab.topology.matrices import hops, sparse
from p2pclust.overlay.overlay import Overlay

Ints = NDArray[np.int64]


def gossip_rounds(overlay: Overlay, rng: np.random.Generator, *, draws: int = 32, fanout: int = 3) -> Ints:
    """Return how many synchronous rounds of push gossip it takes until all peers are informed.

    One peer, drawn anew in each trial, is informed at first. In each round every informed peer sends to `fanout` of its
    neighbours, drawn without repetition, or to all of them if it has fewer.

    Parameters
    ----------
    overlay : Overlay
    rng : numpy.random.Generator
    draws : int
        Number of trials.
    fanout : int
        Number of neighbours that a peer sends to in a round.

    Returns
    -------
    ndarray of shape (draws,), int64

    Raises
    ------
    UsageError
        If the overlay is not connected: it would never end.

    Examples
    --------
    >>> import numpy as np
    >>> star = Overlay(tuple("abcd"), [("a", "b"), ("a", "c"), ("a", "d")])
    >>> sorted(set(gossip_rounds(star, np.random.default_rng(0)).tolist()))
    [1, 2]
    """
    overlay.require_connected()
    starts = rng.integers(overlay.n_peers, size=draws)
    if overlay.degrees.max() <= fanout:
        # Every peer sends to all its neighbours: the distances give the result without drawing.
        return np.asarray(hops(overlay)[starts].max(axis=1), dtype=np.int64)
    links = sparse(overlay, np.int64)
    first, neighbours = links.indptr.astype(np.int64), links.indices.astype(np.int64)
    knows = np.zeros((overlay.n_peers, draws), dtype=np.bool_)
    knows[starts, np.arange(draws)] = True
    rounds = np.zeros(draws, dtype=np.int64)
    while not knows.all():
        rounds += ~knows.all(axis=0)
        # A peer with no uninformed neighbour changes nothing, and draws nothing.
        peers, tries = np.nonzero(knows & (links @ (~knows).astype(np.int64) > 0))
        places = _chosen(overlay.degrees[peers], fanout, rng)
        senders, number = np.nonzero(places >= 0)
        knows[neighbours[first[peers[senders]] + places[senders, number]], tries[senders]] = True
    return rounds


def _chosen(degrees: Ints, fanout: int, rng: np.random.Generator) -> Ints:
    """Draw `fanout` different indices below each degree, shape (n, fanout); -1 beyond the degree."""
    chosen = np.full((len(degrees), fanout), -1, dtype=np.int64)
    for number in range(fanout):
        left = degrees - number
        place = (rng.random(len(degrees)) * left).astype(np.int64)
        # The index counts those not chosen yet: every earlier choice at or below it moves it up by one.
        for earlier in np.sort(chosen[:, :number], axis=1).T:
            place += place >= earlier
        chosen[:, number] = np.where(left > 0, place, -1)
    return chosen
