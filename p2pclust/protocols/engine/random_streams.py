"""Random streams: every draw of a job follows from its seed, the peer and the round, never from global state.

A stream is named by its purpose and by numbers, so a round that is done again, by another aggregator or in a replay,
draws the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

MAX_SEED = 2**63 - 1

# The first number of a stream's name. Changing one changes the results of every job.
_OPENING, _DRAW, _PEER, _ORDER, _SPLIT, _COMBINE, _COLUMN, _DIRT, _HALVES, _LINKS, _GOSSIP, _POOLED, _ATTACK = range(13)


def _stream(purpose: int, seed: int, *name: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(entropy=seed, spawn_key=(purpose, *name)))


def opening(seed: int, stage: int) -> np.random.Generator:
    """Return the stream for opening a stage, the same on every peer."""
    return _stream(_OPENING, seed, stage)


def peer_round(seed: int, peer: int, round: int) -> np.random.Generator:
    """Return the stream of one peer in one round."""
    return _stream(_PEER, seed, peer, round)


def aggregating(drawn: int, step: int) -> np.random.Generator:
    """Return the stream of the aggregator in a step of a stage, the same for every aggregator.

    The number `drawn` comes from the stage's :func:`opening` stream and is kept in its state, so that ``combine`` needs
    only the state to draw.
    """
    return _stream(_COMBINE, drawn, step)


def halving(drawn: int, peer: int) -> np.random.Generator:
    """Return the stream that parts a peer's rows in two, the same in all rounds; `drawn` as for :func:`aggregating`."""
    return _stream(_HALVES, drawn, peer)


def splitting(seed: int) -> np.random.Generator:
    """Return the stream that splits one array over peers."""
    return _stream(_SPLIT, seed)


def dirt(seed: int, peer: int) -> np.random.Generator:
    """Return the stream that makes some of a peer's true labels wrong, for experiments that start from such labels."""
    return _stream(_DIRT, seed, peer)


def linking(seed: int) -> np.random.Generator:
    """Return the stream that draws an overlay."""
    return _stream(_LINKS, seed)


def gossiping(seed: int) -> np.random.Generator:
    """Return the stream that tries gossip on an overlay, to measure it."""
    return _stream(_GOSSIP, seed)


def attacking(seed: int, peer: int) -> np.random.Generator:
    """Return the stream of an attack on what one peer shows, to measure it."""
    return _stream(_ATTACK, seed, peer)


def pooled_start(seed: int, start: int) -> np.random.Generator:
    """Return the stream that draws first centers of a pooled run, to compare a job with."""
    return _stream(_POOLED, seed, start)


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
