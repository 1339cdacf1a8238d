"""Which links the peers of a random run have, and how these change while it goes on.

They are drawn from streams of their own: a seed has the same fleet and the same faults on every kind of overlay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from p2pclust.errors import UsageError
from p2pclust.lab.simulation.swarms.plan import FAULTS_UNTIL_S, SwarmPlan

OVERLAYS: Final = ("sparse", "moving")
#: In the place of a neighbour: all links of a peer.
ALL_LINKS: Final = -1

Pairs = tuple[tuple[int, int], ...]


def neighbours_by(names: Sequence[str], links: Pairs) -> dict[str, tuple[str, ...]] | None:
    """Return each peer's neighbours; None without links, on a full mesh."""
    ends = [(names[a], names[b]) for a, b in links]
    both = [*ends, *((b, a) for a, b in ends)]
    return {name: tuple(sorted(b for a, b in both if a == name)) for name in names} if ends else None


def laid_out(plan: SwarmPlan, kind: str | None) -> SwarmPlan:
    """Give a plan the links of a kind of overlay: ``sparse``, ``moving``, or None for a full mesh.

    Raises
    ------
    UsageError
        If there is no such kind.
    """
    match kind:
        case None:
            return plan
        case "sparse":
            return on_sparse_overlay(plan)
        case "moving":
            return on_moving_overlay(plan)
        case _:
            raise UsageError(f"overlay {kind!r}: expected {' or '.join(OVERLAYS)}, or nothing for a full mesh")


def on_sparse_overlay(plan: SwarmPlan) -> SwarmPlan:
    """Draw links for a plan: a tree, or a ring, perhaps with more links; and whether all peers know all of them."""
    rng = np.random.default_rng([plan.seed, 11])
    links, known = connected(rng, plan.n_peers, _few), bool(rng.random() < 0.5)
    return replace(plan, links=links, known=known, collect=str(rng.choice(["star", "tree", "tree"])))


def _few(rng: np.random.Generator) -> int:
    return int(rng.choice([0, 0, 1, 2]))


def connected(rng: np.random.Generator, n: int, more: Callable[[np.random.Generator], int]) -> Pairs:
    """Draw a line, ring, star or tree, and some more links: as many as `more` draws, if they are new."""
    shape = str(rng.choice(["line", "ring", "star", "tree"]))
    above = {"star": [0] * n, "tree": [int(rng.integers(max(1, i))) for i in range(n)]}
    links = {(above[shape][i] if shape in above else i - 1, i): None for i in range(1, n)}
    if shape == "ring":
        links[0, n - 1] = None
    for _ in range(more(rng)):
        a, b = sorted(rng.choice(n, 2, replace=False).tolist())
        links[a, b] = None
    return tuple(sorted(links))


def on_moving_overlay(plan: SwarmPlan) -> SwarmPlan:
    """Draw links that change: single ones come and go, and some peers walk, from the range of one to that of another.

    In the end there are enough of them again: those of the beginning, or quite different ones.
    """
    sparse = on_sparse_overlay(plan)
    rng = np.random.default_rng([plan.seed, 13])
    n = max(plan.n_peers, int(rng.integers(5, 10)))
    links = connected(rng, n, _few)
    moves = []
    for at in rng.uniform(0.0, FAULTS_UNTIL_S, int(rng.integers(1, 12))).tolist():
        one, other = rng.choice(n, 2, replace=False).tolist()
        moves.append((at, one, other))
    for _ in range(int(rng.choice([0, 1, 1, 2]))):
        moves += _walk(rng, n)
    return replace(
        sparse,
        n_peers=n,
        links=links,
        moves=tuple(sorted(move for move in moves if move[0] < FAULTS_UNTIL_S)),
        last_links=links if rng.random() < 0.3 else connected(rng, n, _few),
    )


def _walk(rng: np.random.Generator, n: int) -> list[tuple[float, int, int]]:
    """One peer goes from neighbour to neighbour; between two it is out of range of all peers for a while, or not at all."""
    walker, at = int(rng.integers(n)), float(rng.uniform(0.0, 10.0))
    gap_s, stay_s = float(rng.choice([0.0, 0.0, 0.3, 3.0])), float(rng.choice([0.5, 2.0, 6.0]))
    moves = []
    while at < FAULTS_UNTIL_S:
        host = int((walker + rng.integers(1, n)) % n)
        moves += [(at, walker, ALL_LINKS), (at + gap_s, walker, host)]
        at += gap_s + stay_s
    return moves
