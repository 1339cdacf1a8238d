"""Whether the result of a clustering is suspect, from what its last state has of it.

Pure functions of a final state. None of them proves that a result is wrong, and none can say that it is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering.blocks import in_block
from p2pclust.protocols.engine.arrays import State

_HARDLY: Final = 0.02  # of the mean mass of a cluster: with less, hardly any row belongs to a center
_NEARLY: Final = 0.1  # of the rows' root mean squared distance to their centers: nearer centers nearly coincide
_SPLIT: Final = (
    0.3  # a larger share of local centers, after each peer's first, in a common cluster means split clusters
)
_WORSE: Final = 0.01  # how much worse than the best start the next one is, if the best was found by one start only
#: How many times the narrowest range the widest may be, at least, in a job without scaling. A state knows ranges up to the
#: next power of two: what is reported differs by more than half of this.
_UNLIKE: Final = 64.0


def objective_of(state: State) -> float | None:
    """Return the objective that the peers added up, in squared working coordinates; None if no peer could."""
    if not all(name in state for name in ("objectives", "winner", "masses")) or not state["masses"].sum() > 0:
        return None
    return float(state["objectives"][int(state["winner"])])


def doubts(
    state: State, features: Sequence[str] = (), labels: Sequence[NDArray[np.int64]] = (), levels: Sequence[int] = ()
) -> tuple[str, ...]:
    """Return what is suspect about the result of a finished job, one sentence each.

    `features` are the names of the centers' columns, `levels` those of the job.

    Of a state with neither an objective that its peers added up, nor counts of their local centers, nor ranges, nothing is
    known but what `labels` show, the labels of each peer's rows.

    >>> from p2pclust.protocols.engine.arrays import Arrays
    >>> state = Arrays(centers=[[0.0], [9.0], [9.01]], masses=[60.0, 30.0, 0.5], objectives=[80.0], winner=0)
    >>> for doubt in doubts(state):
    ...     print(doubt)
    hardly any row belongs to center 2: ask for fewer clusters, or look for outliers
    centers 1 and 2 nearly coincide: ask for fewer clusters or other first centers, or look for outliers
    """
    found, objective = list(_of_ranges(state, features, levels)), objective_of(state)
    if objective is None:
        # Of a result of local centers, once each.
        further, merged = (int(state.get(name, 0)) for name in ("further", "merged"))
        if further >= 1 and merged > _SPLIT * further:
            found.append(
                f"peers split clusters, and the parts may stand in the place of others: {merged} of the {further} local "
                "centers beyond one per peer share a cluster with another of their peer; set n_local_clusters to the number "
                "of clusters that a peer holds (1 if it holds one)"
            )
        if (
            len(labels) and "centers" in state and "past_weights" not in state
        ):  # centers of rows of the past may be alone
            without = np.setdiff1d(np.arange(len(state["centers"])), np.concatenate(labels))
            if without.size:
                found.append(f"no row belongs to {_centers(without)}: ask for fewer clusters")
        return tuple(found)
    centers, masses, starts = state["centers"], state["masses"], np.sort(state["objectives"])
    empty = np.flatnonzero(masses < _HARDLY * masses.mean())
    if empty.size:
        lone, times = "", int(state.get("suppressed", 0))
        if times >= 1:
            lone = (
                f" (clusters of one row at a peer were sent as zeros, {times} in all rounds, so a lone row may be there: "
                "suppress_singletons = false counts it, and reveals it)"
            )
        found.append(f"hardly any row belongs to {_centers(empty)}: ask for fewer clusters, or look for outliers{lone}")
    # Centers that are chained by short steps are one group, named by one of its members.
    # Components of a mixture may have one mean and different covariances.
    spread = 0.0 if "covariances" in state else np.sqrt(max(objective, 0.0) / masses.sum())
    near, group = _NEARLY * spread, np.arange(len(centers))
    for one in range(len(centers) - 1):
        apart = np.sqrt(((centers[one + 1 :] - centers[one]) ** 2).sum(axis=1))
        for other in one + 1 + np.flatnonzero(apart < near):
            group[group == group[other]] = group[one]
    for name in dict.fromkeys(group.tolist()):
        together = np.flatnonzero(group == name)
        if together.size > 1:
            # One far row makes the spread so large that well separated centers look like one.
            found.append(
                f"{_centers(together, 'and')} nearly coincide: ask for fewer clusters or other first centers, or look for "
                "outliers"
            )
    if starts.size > 2 and starts[1] - starts[0] > _WORSE * abs(starts[0]):
        worse = 100 * (starts[1] - starts[0]) / abs(starts[0]) if starts[0] else np.inf
        found.append(
            f"one of {starts.size} starts came to the best objective, and the next one is {worse:.3g} % worse: a larger "
            "n_init may find a better one"
        )
    return tuple(found)


def _of_ranges(state: State, features: Sequence[str], levels: Sequence[int]) -> tuple[str, ...]:
    """Doubt distances that one column of numbers decides alone, because its range is so much wider than those of others."""
    if "unit" not in state or "scale" not in state or state["unit"].ndim != 1:
        return ()
    units, numbers = state["unit"], ~in_block(levels) if levels else np.ones(state["unit"].size, np.bool_)
    if (state["scale"][numbers] != 1.0).any():
        return ()
    if "covariances" in state and state["covariances"].shape[-1] > 1:
        return ()  # a mixture finds the width of each column
    # The unit of a constant column is 1, and all centers lie at its value, where its coordinates begin.
    vary = (units != 1.0) | (state["centers"] != 0.0).any(axis=0) if "centers" in state else units > 0.0
    varies = np.flatnonzero(vary & numbers)
    if varies.size < 2 or units[varies].max() < _UNLIKE * units[varies].min():
        return ()
    widest, narrowest = int(varies[np.argmax(units[varies])]), int(varies[np.argmin(units[varies])])
    names = features if len(features) == units.size else [f"column {number}" for number in range(units.size)]
    return (
        f"the range of {names[widest]} is about {units[widest] / units[narrowest]:.0f} times that of {names[narrowest]}, "
        "and without scaling the widest columns alone decide which center is nearest: set scaling to minmax or zscore, "
        "unless all columns have the same unit",
    )


def _centers(numbers: NDArray[np.intp], last: str = ",") -> str:
    """Name centers; the word `last` comes before the last of several."""
    if numbers.size == 1:
        return f"center {numbers[0]}"
    shown = [str(number) for number in numbers[:5]]
    if numbers.size > 5:
        return f"centers {', '.join(shown)} and {numbers.size - 5} more"
    return f"centers {', '.join(shown[:-1])}{', ' if last == ',' else f' {last} '}{shown[-1]}"
