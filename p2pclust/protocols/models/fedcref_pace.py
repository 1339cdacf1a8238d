"""How long FedCRef trains a model: a rule that asks only how many rows there are.

An epoch of few rows is few gradient steps: twenty epochs of twenty rows in batches of 64 are twenty steps, and the models
have learned nothing yet. The rule makes batches smaller first and then epochs more, so that there are never fewer than
``LEAST_STEPS``. From ``MANY_ROWS`` rows on, such as the 500 a cluster of the paper's experiments, it changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

AUTO: Final = "auto"
"""In a job in the place of a number: what this rule says."""

MANY_ROWS: Final = 384
LEAST_STEPS: Final = 120
_EPOCHS: Final = 20
_LOCAL_EPOCHS: Final = 3
_LEAST_LOCAL_STEPS: Final = 8
# From so many rows on batches of so many.
_BATCHES: Final = ((MANY_ROWS, 64), (MANY_ROWS // 2, 32), (0, 16))


@dataclass(frozen=True, slots=True)
class Pace:
    """How a model is trained.

    - `batch`: rows of a minibatch.
    - `epochs`: of a model of one cluster of one peer.
    - `local_epochs`: of each peer in each round of FedAvg.
    """

    batch: int
    epochs: int
    local_epochs: int


def usual_pace(rows: float, batch: int | None = None) -> Pace:
    """Return how a model of so many rows is trained.

    - `batch`: if it is given; the epochs then follow from it.

    >>> usual_pace(500), usual_pace(24)
    (Pace(batch=64, epochs=20, local_epochs=3), Pace(batch=16, epochs=60, local_epochs=4))
    """
    size = next(of for least, of in _BATCHES if rows >= least) if batch is None else batch
    if rows >= MANY_ROWS:
        return Pace(size, _EPOCHS, _LOCAL_EPOCHS)
    steps = max(1, -(-int(rows) // size))
    return Pace(size, max(_EPOCHS, -(-LEAST_STEPS // steps)), max(_LOCAL_EPOCHS, -(-_LEAST_LOCAL_STEPS // steps)))
