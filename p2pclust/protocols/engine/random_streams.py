"""Random streams: every draw of a job follows from its seed, the peer and the round, never from global state.

A stream is named by its purpose and by numbers, so a round that is done again, by another aggregator or in a replay,
draws the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

MAX_SEED = 2**63 - 1

# The first number of a stream's name. Changing one changes the results of every job.
_OPENING, _DRAW, _PEER, _ORDER, _SPLIT, _COMBINE, _COLUMN, _DIRT, _HALVES, _LINKS, _GOSSIP, _POOLED, _ATTACK = range(13)


def _stream(purpose: int, seed: int, *name: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(entropy=seed, spawn_key=(purpose, *name)))


opening = partial(_stream, _OPENING)  # the stream of (seed, stage) for opening a stage, the same on every peer
peer_round = partial(_stream, _PEER)  # the stream of (seed, peer, round) of one peer in one round
#: The stream of (drawn, step) of the aggregator in a step of a stage, the same for every aggregator. `drawn` comes from the
#: stage's :func:`opening` stream and is kept in its state, so that ``combine`` needs only the state to draw.
aggregating = partial(_stream, _COMBINE)
#: The stream of (drawn, peer) that parts a peer's rows in two, the same in all rounds; `drawn` as for :func:`aggregating`.
halving = partial(_stream, _HALVES)
splitting = partial(_stream, _SPLIT)  # the stream of (seed) that splits one array over peers
#: The stream of (seed, peer) that makes some of a peer's true labels wrong, for experiments that start from such.
dirt = partial(_stream, _DIRT)
linking = partial(_stream, _LINKS)  # the stream of (seed) that draws an overlay
gossiping = partial(_stream, _GOSSIP)  # the stream of (seed) that tries gossip on an overlay, to measure it
attacking = partial(_stream, _ATTACK)  # the stream of (seed, peer) of an attack on what one peer shows, to measure it
#: The stream of (seed, start) that draws first centers of a pooled run, to compare a job with.
pooled_start = partial(_stream, _POOLED)


def participants(seed: int, round: int, n_peers: int, participation: float) -> tuple[int, ...]:
    """Draw ``round(participation * n_peers)`` peers, at least one, without replacement, sorted.

    >>> participants(7, 0, 4, 1.0), len(participants(7, 0, 20, 0.25))
    ((0, 1, 2, 3), 5)
    """
    wanted = min(n_peers, max(1, int(np.rint(participation * n_peers))))
    if wanted == n_peers:
        return tuple(range(n_peers))
    drawn: NDArray[np.int64] = _stream(_DRAW, seed, round).choice(n_peers, size=wanted, replace=False)
    return tuple(sorted(int(peer) for peer in drawn))


def proposers(seed: int, n_peers: int) -> tuple[int, ...]:
    """Return the seed's permutation of the peers: the order in which they are asked where one is enough."""
    return tuple(int(peer) for peer in _stream(_ORDER, seed).permutation(n_peers))


def lazily(make: Callable[..., np.random.Generator], *name: int) -> np.random.Generator:
    """Return a stream that is made when something is drawn from it.

    Most contributions draw nothing, and making a generator takes as long as a tenth of a small one.

    >>> float(lazily(peer_round, 7, 0, 1).random()) == float(peer_round(7, 0, 1).random())
    True
    """
    return cast(np.random.Generator, _Lazy(make, name))


class _Lazy:
    def __init__(self, make: Callable[..., np.random.Generator], name: tuple[int, ...]) -> None:
        self._make = make
        self._name = name

    @cached_property
    def _stream(self) -> np.random.Generator:
        return self._make(*self._name)

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._stream, attribute)


def of_column(salt: bytes, values: NDArray[np.float64]) -> np.random.Generator:
    """Return the stream of one peer's column, from the job's salt: a peer without the column cannot draw from it."""
    digest = hashlib.blake2b(salt + values.tobytes(), digest_size=16).digest()
    return _stream(_COLUMN, int.from_bytes(digest, "little"))


def fresh_seed() -> int:
    """Return a random seed, for ``random_state=None``."""
    return int(np.random.SeedSequence().generate_state(1, np.uint64)[0]) & MAX_SEED
