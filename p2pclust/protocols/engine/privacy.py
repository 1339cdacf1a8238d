"""Privacy rules that several protocols share, and what a request for a private job becomes.

Only k-means over declared bounds can be differentially private, and nothing but its noisy rounds may ask a peer: ranges,
numbers of rows, an objective or centers that a peer proposes depend on single rows exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.errors import UsageError
from p2pclust.protocols.engine import checks
from p2pclust.protocols.engine.base import Abstain
from p2pclust.protocols.engine.job import Stage
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.reasons import HELD
from p2pclust.protocols.engine.registry import build
from p2pclust.tools.spelling import did_you_mean

#: A pick is revealed as the mean of so many nearest rows (careful seeding: the average of its 5 nearest neighbours).
NEIGHBOURS = 5
LEAST_ROWS = 3  # a peer with fewer rows proposes nothing: a mean of two is nearly a row
_ASKED_AS: Final = "llf-cm"
_STAGE: Final = "private-cm"
#: Of a private job. More rounds come closer to where k-means rests, and have more noise each: with a small epsilon that
#: costs more than it brings (benchmarks/private_cm.py).
_ROUNDS: Final = 16
_NOISY_ROUNDS: Final = 8


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


def size_gate(local: Local, n_clusters: int, *, starts: int = 1, more: int = 0, rounds: int = 1) -> None:
    """Abstain unless the peer holds more than C (F + 1) / F rows; with S starts side by side, S times as many.

    C centers (or sums) of F numbers and C weights are C (F + 1) equations; the rows are N F unknowns. With no more
    unknowns than equations they could be solved for; with fewer rows than clusters, local centers are rows. The rule is
    that of J. L. Corcuera Bárcena, F. Marcelloni, A. Renda, A. Bechini: A federated fuzzy c-means clustering algorithm,
    section 4.2.

    The paper counts the equations of one round. T rounds give up to T times as many, and rows of peers that pass its rule
    have been found from them; `rounds` above 1 counts so many.

    A contribution has `more` numbers beyond these. The reason begins with `HELD`, by which the engine counts it.
    """
    C, F = n_clusters, local.n_features
    equations = rounds * (starts * C * (F + 1) + more)
    # In whole numbers: N > C (F + 1) / F.
    if local.n_samples * F <= equations:
        product = f"{starts} C (F + 1)" if starts > 1 else "C (F + 1)"
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


def private_stages(
    n_clusters: int, privacy: Any, bounds: tuple[list[float], list[float]], scaling: str,
    init: str | list[list[float]] | None, max_rounds: int | None, parameters: Mapping[str, Any],
) -> tuple[Stage, ...]:  # fmt: skip
    """Return the stages of a private job.

    The declared bounds have a number for each feature, and an array of first centers is nested lists; `parameters` are
    what else the person gave. Raises UsageError with one line that says what cannot be private, why, and what would work.

    >>> box, promise = ([0.0], [8.0]), {"epsilon": 2, "delta": 1e-6}
    >>> [stage.protocol for stage in private_stages(2, promise, box, "none", "uniform", None, {})]
    ['range', 'none', 'seeding', 'private-cm']
    """
    promise, number = _promise(privacy), {"n_clusters": n_clusters}
    build(_ASKED_AS, {**number, **parameters})  # checks what a private job leaves out
    box = {"lo": bounds[0], "hi": bounds[1]}
    if max_rounds is None:
        max_rounds = _ROUNDS if promise["epsilon"] >= 1.0 else _NOISY_ROUNDS
    before = [Stage("range", box), Stage(scaling)]
    if isinstance(init, list):
        before.append(Stage("seeding", {**number, "init": "given", "centers": init}))
    elif init == "uniform":
        before.append(Stage("seeding", {**number, "init": "uniform"}))
    elif init is not None:  # without, the private stage spreads the first centers over the box
        raise UsageError(
            f"privacy: init = {init!r} looks at rows: leave init out, or choose 'uniform' or an array that does "
            "not come from the data"
        )
    return (*before, Stage(_STAGE, {**number, **promise, **box, "rounds": max_rounds}))


def _promise(privacy: Any) -> dict[str, float]:
    if not isinstance(privacy, Mapping) or not all(isinstance(name, str) for name in privacy):
        raise UsageError("privacy: expected { epsilon = 2, delta = 1e-6 }")
    for name in privacy:
        if name not in ("epsilon", "delta"):
            raise UsageError(f"privacy: unknown name {name[:60]!r}{did_you_mean(name[:60], ('epsilon', 'delta'))}")
    for name in ("epsilon", "delta"):
        if name not in privacy:
            raise UsageError(f"privacy: {name} is missing: expected for example {{ epsilon = 2, delta = 1e-6 }}")
    return {name: checks.real(f"privacy: {name}", privacy[name], above=0.0) for name in ("epsilon", "delta")}
