"""Sums of the contributions to an additive stage: integers on a shared grid, so every order gives the same bits.

A number is held in several int64, its *limbs*, which are added independently: see ``fixed_point``.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import Additive
from p2pclust.protocols.engine.fixed_point import dequantise_all

#: A roster index, or several where their contributions were added up.
Peers = int | tuple[int, ...]


class Group(tuple[int, ...]):
    """Peers whose total counts as one contribution in a stage that looks at what single peers contribute."""

    __slots__ = ()


def added_up(
    contributions: Iterable[tuple[Peers, Contribution]], n_peers: int
) -> tuple[Contribution | None, tuple[int, ...]]:
    """Add up contributions of different peers to an additive stage, read one by one, in any order.

    Return the total, the same bits in whatever order and through whatever sums (None without any contribution), and the
    peers whose contributions are in it, in roster order.
    """
    total: dict[str, NDArray[np.int64]] = {}
    peers: dict[int, None] = {}
    for given, part in contributions:
        senders = given if isinstance(given, tuple) else (given,)
        if any(peer in peers or not 0 <= peer < n_peers for peer in senders):
            raise ValueError(f"contribution of peers {senders} after {list(peers)}: one counts twice, or is of no peer")
        peers.update(dict.fromkeys(senders))
        if not total:
            total = {name: np.array(limbs) for name, limbs in part.items()}
            continue
        for name, limbs in total.items():
            np.add(limbs, part[name], out=limbs)
    return (Arrays(total) if total else None), tuple(sorted(peers))


def floats_of(protocol: Additive, state: State, contribution: Contribution) -> Arrays:
    """Return the floats that the limbs of a contribution, or of a total, stand for."""
    limbs = {name: np.array(own) for name, own in contribution.items()}
    return Arrays(dequantise_all(limbs, protocol.units(state)))
