"""What changed from one batch of a stream to the next, from sums only.

Three numbers per batch, all from totals that the aggregator has anyway:

surprise
    The mean squared distance of the batch's rows to the centers as they were before the batch, over the same number of
    the batch before at its end. (The fuzzy objective over the total weight.) Above 1: the rows lie where no center is.
moved
    The root mean square move of a center in the batch, over the spread of the rows: the Frobenius norm of the centers'
    move over ``sqrt(C)`` times the root of the rows' mean squared distance to the centers plus that of the centers to
    their mean.
mass
    The total variation distance between the clusters' shares of the batch's weight and their shares of the weight of
    earlier batches (the latest of these counting most): how much of the weight would have to change its cluster.

The thresholds are plain numbers, in the names below. They are not a test of significance: batches of few rows differ by
chance, by about ``sqrt(C / rows)`` in mass.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pclust.protocols.engine.arrays import State

SURPRISING = 1.5  # from this on, rows lie notably farther from the centers than before
FAR = 0.25  # from this on, centers moved notably, in spreads of the rows
SHIFTED = 0.2  # from this on, the clusters' shares changed notably

UNKNOWN = np.float64(-1.0)  # in the state, a number that could not be computed, because nothing came before
_MOST = 1e6
_SURPRISE, _MOVED, _MASS, _ROUNDS, _SETTLED = range(5)  # the columns of the state's ``drift``


@dataclass(frozen=True)
class BatchDrift:
    """What one batch was like beside those before."""

    batch: int  # from 0
    surprise: float | None  # None where there was no batch before. At most 1e6.
    moved: float  # in spreads of the rows. From a first batch's seeds it says nothing about drift.
    mass: float | None  # 0 to 1
    rounds: int  # of the batch, those without contributions left out
    settled: bool  # whether the centers stood still, or else the batch used all its rounds

    @property
    def reasons(self) -> tuple[str, ...]:
        """What changed, in words, by :data:`SURPRISING`, :data:`FAR` and :data:`SHIFTED`; empty if nothing did.

        >>> BatchDrift(4, 1.2, 0.3, 0.01, 6, True).reasons
        ('centers moved by 0.3 of the spread of the rows',)
        """
        if self.surprise is None:
            return ()
        found = []
        if self.surprise >= SURPRISING:
            found.append(f"rows lay {self.surprise:.2g} times as far (squared) from the centers as before")
        if self.moved >= FAR:
            found.append(f"centers moved by {self.moved:.2g} of the spread of the rows")
        if self.mass is not None and self.mass >= SHIFTED:
            found.append(f"{self.mass:.0%} of the weight changed cluster")
        return tuple(found)

    @property
    def verdict(self) -> str:
        """One line for people.

        >>> BatchDrift(0, None, 1.4, None, 3, True).verdict, BatchDrift(1, 1.02, 0.01, 0.03, 2, True).verdict
        ('first: nothing to compare with', 'no drift')
        """
        if self.surprise is None:
            return "first: nothing to compare with"
        return f"drift: {'; '.join(self.reasons)}" if self.reasons else "no drift"

    def to_dict(self) -> dict[str, Any]:
        """Return all of it by name, the verdict too."""
        return asdict(self) | {"verdict": self.verdict}


def drift_report(state: State, *, first: int = 0) -> list[BatchDrift]:
    """Return one entry per batch that made a step, none for a state of another protocol than ``stream-fcm``.

    `first` is the number of the state's first batch.

    >>> from p2pclust.protocols.engine.arrays import Arrays
    >>> state = Arrays(drift=[[-1.0, 0.5, -1.0, 4.0, 1.0], [1.1, 0.02, 0.05, 2.0, 1.0]])
    >>> [(found.batch, found.surprise, found.verdict) for found in drift_report(state)]
    [(0, None, 'first: nothing to compare with'), (1, 1.1, 'no drift')]
    """
    return [
        BatchDrift(first + number, _known(surprise), moved, _known(mass), int(rounds), bool(settled))
        for number, (surprise, moved, mass, rounds, settled) in enumerate(state.get("drift", np.zeros((0, 5))).tolist())
    ]


def compared(
    state: State, centers: NDArray[np.float64], weights: NDArray[np.float64], cost: float, *, settled: bool
) -> NDArray[np.float64]:
    """Return the present batch's row of ``drift``, after a round of it.

    The round's contributions answered `state`. Their total weights are `weights` (C,), the mean squared distance of the
    batch's rows to the centers of `state` is `cost`, and `centers` (C, F) are those after the round.
    """
    row = np.empty(5)
    mine = state["drift"][int(state["batch"]) :]
    if len(mine):
        # Measured by the first round: later ones no longer see the centers of before.
        row[_SURPRISE], row[_ROUNDS] = mine[0, _SURPRISE], mine[0, _ROUNDS] + 1
    else:
        row[_SURPRISE], row[_ROUNDS] = _ratio(cost, float(state["cost"])), 1
    row[_MOVED] = _moved(state, centers, weights, cost)
    row[_MASS] = _mass(weights, state["past_weights"])
    row[_SETTLED] = settled
    return row


def is_first(state: State) -> bool:
    """Whether the only batch that made a step is one that nothing came before."""
    drift = state["drift"]
    return len(drift) == 1 and bool(drift[0, _SURPRISE] < 0)


def rounds_of(row: NDArray[np.float64]) -> int:
    """Return how many rounds of its batch a row of ``drift`` counts."""
    return int(row[_ROUNDS])


def _known(value: float) -> float | None:
    return value if value >= 0 else None


def _ratio(cost: float, before: float) -> float:
    if before < 0:
        return float(UNKNOWN)
    if cost <= before:  # 0 over 0 too: rows that all lie on centers, as before
        return cost / before if before > 0 else 1.0
    return min(cost / before, _MOST) if before > cost / _MOST else _MOST


def _moved(state: State, centers: NDArray[np.float64], weights: NDArray[np.float64], cost: float) -> float:
    move = float(np.sqrt(np.mean(np.sum((centers - state["opened"]) ** 2, axis=1))))
    total = weights.sum()
    apart = 0.0
    if total > 0:
        share = weights[:, np.newaxis] / total
        middle = np.sum(share * state["centers"], axis=0)
        apart = float(np.sum(share * (state["centers"] - middle) ** 2))
    spread = float(np.sqrt(cost + apart))
    return min(move / spread, _MOST) if spread > move / _MOST else (_MOST if move > 0 else 0.0)


def _mass(weights: NDArray[np.float64], past: NDArray[np.float64]) -> float:
    if not (weights.sum() > 0 and past.sum() > 0):
        return float(UNKNOWN)
    return float(np.abs(weights / weights.sum() - past / past.sum()).sum() / 2)
