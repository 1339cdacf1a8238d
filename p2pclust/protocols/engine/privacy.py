"""Privacy rules that several protocols share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from p2pclust.protocols.engine.base import Abstain
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.reasons import HELD

#: A pick is revealed as the mean of so many nearest rows (careful seeding: the average of its 5 nearest neighbours).
NEIGHBOURS = 5
LEAST_ROWS = 3  # a peer with fewer rows proposes nothing: a mean of two is nearly a row


def least_to_propose(local: Local) -> int:
    """Return the fewest rows of a peer that proposes means of several: half of them are averaged."""
    return max(LEAST_ROWS, 2 * local.min_cell)


def propose_gate(local: Local) -> None:
    """Abstain with so few rows that their means would be rows, or means of fewer rows than the device asks for."""
    if local.n_samples < least_to_propose(local):
        raise Abstain(f"{HELD}: too few rows to propose means of several: add rows, or take another init")


def blurred(
    X: NDArray[np.float64], pick: NDArray[np.float64], neighbours: int = NEIGHBOURS
) -> tuple[tuple[int, ...], NDArray[np.float64]]:
    """Return the rows nearest to a pick, and their mean, which may leave the peer in the pick's place.

    The pick is a row of X (n, F), and so one of its own neighbours. (The paper leaves that open.) With fewer than twice as
    many rows as `neighbours` half of them are averaged, rounded down, and at least two: a mean of 5 of 5 rows, asked for
    again and again, gives rows away. With 1 neighbour it is the pick itself.

    >>> rows, mean = blurred(np.array([[0.0], [1.0], [2.0], [9.0]]), np.array([1.0]))
    >>> rows, mean.tolist()
    ((0, 1), [0.5])
    """
    count = 1 if neighbours == 1 else min(neighbours, max(2, len(X) // 2))
    squares = ((X - pick) ** 2).sum(axis=1)
    # A stable sort settles ties by the order of the rows; the rows are added up in their own order.
    near = np.sort(np.argsort(squares, kind="stable")[:count])
    return tuple(near.tolist()), np.asarray(X[near].mean(axis=0), dtype=np.float64)


def gated_rounds(rule: bool | str, max_rounds: int) -> int:
    """Return the rounds whose equations :func:`size_gate` counts by the parameter `privacy_gate` of a clustering."""
    return max_rounds if rule == "job" else int(rule)


def size_gate(
    local: Local, n_clusters: int, *, starts: int = 1, more: int = 0, rounds: int = 1, keeps_gaps: bool = False
) -> None:  # fmt: skip
    """Abstain unless the peer holds more than C (F + 1) / F rows; with S starts side by side, S times as many.

    C centers (or sums) of F numbers and C weights are C (F + 1) equations; the rows are N F unknowns. With no more
    unknowns than equations they could be solved for; with fewer rows than clusters, local centers are rows. The rule is
    that of J. L. Corcuera Bárcena, F. Marcelloni, A. Renda, A. Bechini: A federated fuzzy c-means clustering algorithm,
    section 4.2.

    The paper counts the equations of one round. T rounds give up to T times as many, and rows of peers that pass its rule
    have been found from them; `rounds` above 1 counts so many. With 0 no peer is held.

    Of rows with categories F is the number of columns of the table, and a sum has B numbers, one for each value. A
    contribution has `more` numbers beyond these. The reason begins with `HELD`, by which the engine counts it.

    With missing cells, the rule holds in each column that any of the rows has: C sums and C weights are 2 C equations, and
    the cells that are there are the unknowns.
    """
    if not rounds:
        return
    C, F = n_clusters, len(local.levels) or local.n_features
    if keeps_gaps:
        least = rounds * (2 * starts * C + more)
        if ((local.observed > 0) & (local.observed <= least)).any():
            raise Abstain(
                f"{HELD}: some column has a number in {least} rows or fewer: add rows, leave that column out, ask for fewer "
                "clusters, or set privacy_gate = false (what it sends may then give its cells away)"
            )
        return
    equations = rounds * (starts * C * (local.n_features + 1) + more)
    # In whole numbers: N > C (F + 1) / F.
    if local.n_samples * F <= equations:
        columns = "B" if local.levels else "F"
        product = f"{starts} C ({columns} + 1)" if starts > 1 else f"C ({columns} + 1)"
        formula = f"({product} + {more}) / F" if more else f"{product} / F"
        formula = f"{rounds} rounds of {formula}" if rounds > 1 else formula
        # The argument rests on N being unknown, so the reason names the limit only.
        fewer = "clusters or starts (n_init)" if starts > 1 else "clusters"
        fewer = f"{fewer} or rounds" if rounds > 1 else fewer
        raise Abstain(
            f"{HELD}: {formula} = {equations / F:g} rows or fewer: add rows, ask for fewer {fewer}, or set privacy_gate = "
            "false (what it sends may then give its rows away)"
        )


def hold_small_clusters(sent: NDArray[np.bool_], least: int) -> None:
    """Abstain where none of a peer's clusters may be sent, because each holds fewer rows than `least`."""
    if not sent.any():
        raise Abstain(
            f"{HELD}: none of its clusters holds {least} rows or more: add rows, ask for fewer clusters, or set "
            "min_cluster_size = 1 (single rows may then be sent)"
        )
