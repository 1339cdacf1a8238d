"""Rows that points and sums give away: copies, rows that move alone or are alone, what two runs differ by, and few rows.

First centers that a peer proposes are means of a few of its rows, and a local center of one row is that row. If, between two
rounds, one cluster of a peer lost one row, another gained one, and no other changed its number of rows, then the row is the
difference of the sums of either cluster, which proves the reading. If a job runs again without one device, or when a device
has one row more, the sums differ by that. In the first round, with the same centers, the difference is exact.

A round of fuzzy c-means shows C weights and C x F sums, all of them functions of the peer's rows and of public centers. The
privacy gate counts these equations in one round; T rounds give up to T times as many. With more equations than unknowns,
nonlinear least squares from random starts finds the rows, their number tried out from the smallest that is possible. A try
that explains all that was shown has all rows; otherwise the best try counts, in which single rows may be right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from p2pclust.clustering import Points, blocks
from p2pclust.clustering.mixtures import Mixture, MixtureSums, mixture_sums
from p2pclust.lab.attacks.findings import Floats
from p2pclust.lab.attacks.sights import Sight, sums_of_clusters
from p2pclust.protocols.centers.mixture import mixture_of
from p2pclust.protocols.engine.arrays import Arrays, State

#: Two readings of one row, or two means, agree up to the rounding of the sums, as a share of the largest.
_AGREE = 1e-9
#: A number of rows is 1 up to the rounding of two sums.
_ALONE = 1e-6
#: Numbers of rows that follow from centers are whole up to the rounding of the centers.
_NEARLY_WHOLE = 1e-5


def proposed_rows(sights: Sequence[Sight]) -> Floats:
    """Return all centers that a peer sent, and its range if there is one feature, in the data's units, shape (n, F).

    A range shows the smallest and the largest value exactly: with one feature these are rows.
    """
    found: list[Floats] = []
    for sight in sights:
        if "centers" in sight.shown and "origin" in sight.state:
            found.append(sight.state["origin"] + sight.shown["centers"] * sight.state["scale"])
        if "lo" in sight.shown and sight.shown["lo"].size == 1:
            found.append(np.stack([sight.shown["lo"], sight.shown["hi"]]))
    return np.concatenate(found) if found else np.zeros((0, 0))


def rows_that_moved_alone(sights: Sequence[Sight]) -> Floats:
    """Return the rows that consecutive sums of the same peers give away, in the data's units, shape (n, F).

    Where sums of few rows are withheld, a row can also appear or vanish: then the totals over all clusters differ by it,
    which proves nothing by itself. `sights` are in the order of rounds; those without sums of crisp clusters are left out.

    Of three rows, that at 4 moves from the first cluster to the second.

    >>> from p2pclust.protocols.engine.arrays import Arrays
    >>> public = Arrays(origin=np.zeros(1), scale=np.ones(1), centers=np.zeros((2, 1)))
    >>> def seen(number, counts, sums):
    ...     return Sight((0,), number, 3, public, Arrays(counts=np.array(counts), sums=np.array(sums)))
    >>> rows_that_moved_alone([seen(0, [2.0, 1.0], [[5.0], [9.0]]), seen(1, [1.0, 2.0], [[1.0], [13.0]])])
    array([[4.]])
    """
    crisp = [(sight, found) for sight in sights if (found := sums_of_clusters(sight)) is not None and found[2]]
    rows: list[Floats] = []
    for (before, (counts, sums, _)), (after, (next_counts, next_sums, _)) in pairwise(crisp):
        if before.peers != after.peers or counts.ndim != next_counts.ndim:
            continue
        if counts.ndim == sums.ndim:
            rows += _read_by_column(counts, sums, next_counts, next_sums)
        elif counts.ndim > 1:
            if len(counts) == len(next_counts):  # the same starts still move
                each = zip(counts, sums, next_counts, next_sums, strict=True)
                rows += [row for start in each for row in _read(*start)]
        else:
            rows += _read(counts, sums, next_counts, next_sums)
    return np.array(rows) if rows else np.zeros((0, crisp[0][1][1].shape[-1] if crisp else 0))


def _read_by_column(counts: Floats, sums: Floats, next_counts: Floats, next_sums: Floats) -> list[Floats]:
    """Return what :func:`_read` finds in each column by itself, the other cells being unknown (NaN)."""
    if counts.shape != next_counts.shape or counts.ndim != 2:
        return []
    found = []
    for f in range(counts.shape[1]):
        column = slice(f, f + 1)
        for value in _read(counts[:, f], sums[:, column], next_counts[:, f], next_sums[:, column]):
            found.append(_cell(f, value.item(), counts.shape[1]))
    return found


def _cell(column: int, value: float, n_features: int) -> Floats:
    return np.where(np.arange(n_features) == column, value, np.nan)


def _read(counts: Floats, sums: Floats, next_counts: Floats, next_sums: Floats) -> list[Floats]:
    more = round(float(next_counts.sum() - counts.sum()))
    if abs(more) == 1:
        return [more * (next_sums.sum(axis=0) - sums.sum(axis=0))]
    if counts.shape != next_counts.shape:
        return []  # cells were split
    change = np.rint(next_counts - counts)
    if sorted(change[change != 0]) != [-1, 1]:
        return []
    gained, lost = change.argmax(), change.argmin()
    row, other = next_sums[gained] - sums[gained], sums[lost] - next_sums[lost]
    return [row] if np.abs(row - other).max() <= _AGREE * np.abs(sums).max() else []


def rows_from_centers(states: Sequence[tuple[int, State]]) -> Floats:
    """Return the rows that centers alone give away, which every peer has; in the data's units, shape (n, F).

    If exactly two centers moved between two rounds, because one row changed from one cluster to the other, then

        (a + 1) c_a' - a c_a  =  row  =  b c_b - (b - 1) c_b'

    for the numbers of rows a and b that the clusters had. With two features or more these are as many equations as unknown
    numbers; whole numbers as a solution prove the reading.
    `states` are in the order of rounds, each with the number of its stage.

    A cluster of (0, 0) and (2, 0) gets (4, 3) from a cluster of (4, 3), (8, 8) and (9, 4).

    >>> from p2pclust.protocols.engine.arrays import Arrays
    >>> def public(*centers):
    ...     return Arrays(origin=np.zeros(2), scale=np.ones(2), centers=np.array(centers))
    >>> rows_from_centers([(3, public([1.0, 0.0], [7.0, 5.0])), (3, public([2.0, 1.0], [8.5, 6.0]))])
    array([[4., 3.]])
    """
    found, features = [], 0
    for (stage, before), (next_stage, after) in pairwise(states):
        if stage != next_stage or not ("centers" in before and "centers" in after and "origin" in after):
            continue
        old, new = before["centers"], after["centers"]
        features = new.shape[1]
        if old.shape != new.shape or features < 2:
            continue
        moved = np.flatnonzero((old != new).any(axis=1))
        # The first cluster of each pair may have got a row from the second.
        for got, lost in (moved, moved[::-1]) if len(moved) == 2 else ():
            matrix = np.stack([new[got] - old[got], new[lost] - old[lost]], axis=1)
            rows, _, rank, _ = np.linalg.lstsq(matrix, new[lost] - new[got])
            whole = np.rint(rows)
            if rank == 2 and whole.min() >= 1 and np.abs(rows - whole).max() <= _NEARLY_WHOLE:
                found.append(after["origin"] + ((whole[0] + 1) * new[got] - whole[0] * old[got]) * after["scale"])
    return np.array(found) if found else np.zeros((0, features))


def differences(first: Sequence[Sight], second: Sequence[Sight]) -> list[Sight]:
    """Return, round by round, what the sums of clusters of the first run have more than those of the second, in data units.

    >>> public = Arrays(origin=np.zeros(1), scale=np.ones(1), centers=np.zeros((1, 1)))
    >>> def seen(counts, sums):
    ...     return Sight((0,), 0, 3, public, Arrays(counts=np.array(counts), sums=np.array(sums)))
    >>> rows_in_differences(differences([seen([3.0], [[9.0]])], [seen([2.0], [[5.0]])])).tolist()
    [[4.0]]
    """
    made = []
    shown = [[(sight, found) for sight in run if (found := sums_of_clusters(sight))] for run in (first, second)]
    for (one, (weights, sums, crisp)), (other, (lighter, less, _)) in zip(*shown, strict=False):
        if one.stage != other.stage or weights.shape != lighter.shape:
            break  # the runs are too far apart to be compared
        n_features = sums.shape[-1]
        public = Arrays(origin=np.zeros(n_features), scale=np.ones(n_features), centers=np.zeros((1, n_features)))
        name = "counts" if crisp else "weights"
        made.append(replace(one, state=public, shown=Arrays({name: weights - lighter, "sums": sums - less})))
    return made


def rows_in_differences(seen: Sequence[Sight]) -> Floats:
    """Return the rows that differences give away: clusters of one row, and rows that move alone; shape (n, F)."""
    found = [rows for rows in (single_rows(seen), rows_that_moved_alone(seen)) if len(rows)]
    return np.concatenate(found) if found else np.zeros((0, 0))


def single_rows(sights: Sequence[Sight]) -> Floats:
    """Return the rows of clusters that have exactly one, in the data's units, shape (n, F).

    The sum of a crisp cluster with one row is that row. In fuzzy sums every row has a part in every cluster: if all clusters
    have the same mean, that is the only row. Where missing cells are kept, a column that one row of a cluster has gives its
    cell; the other cells of such a find are NaN.
    """
    found, features = [], 0
    for sight in sights:
        shown = sums_of_clusters(sight)
        if "log_likelihoods" in sight.shown:
            found.append(_alone_in_components(sight))
        if shown is None:
            continue
        weights, sums, crisp = shown
        features = sums.shape[-1]
        if weights.ndim == sums.ndim:
            found.append(_single_cells(weights, sums, crisp))
        elif crisp:
            found.append(sums[np.abs(weights - 1.0) < _ALONE])
        elif (weights > _ALONE).all() and len(means := (sums / weights[..., np.newaxis]).reshape(-1, features)) > 1:
            alike = np.ptp(means, axis=0) <= _AGREE * np.abs(sums).max()
            found.append(means[:1] if alike.all() else means[:0])
    return np.concatenate(found) if found else np.zeros((0, features))


def _single_cells(weights: Floats, sums: Floats, crisp: bool) -> Floats:
    """Return the cells that are alone in their column of a cluster, each as a find (F,)."""
    found, n_features = [], sums.shape[-1]
    if crisp:
        alone = np.argwhere(np.abs(weights - 1.0) < _ALONE)
        found = [_cell(int(place[-1]), float(sums[tuple(place)]), n_features) for place in alone]
    else:
        for f in range(n_features):
            own = weights[..., f]
            if own.size > 1 and (own > _ALONE).all():
                means = sums[..., f] / own
                if np.ptp(means) <= _AGREE * np.abs(sums).max():
                    found.append(_cell(f, float(means.flat[0]), n_features))
    return np.array(found) if found else np.zeros((0, n_features))


def values_of_single_rows(sight: Sight, levels: tuple[int, ...], fuzzifier: float | None = None) -> int:
    """Return of how many rows a sight shows the value of a category, because no other row of its cluster has that value.

    Either the number of such rows was shown, or it is what the numbers of the other values leave of the cluster's rows. A
    cluster of one row is not counted: it shows all of a row. Zeros show nothing, because they may stand for rows held back.
    In fuzzy sums the memberships of one row add up to 1, of more rows to more (Minkowski's inequality).

    Of three rows in one cluster, two have the first of two values.

    >>> public = Arrays(origin=np.zeros(2), scale=np.ones(2), centers=np.zeros((1, 2)))
    >>> def seen(*numbers):
    ...     return Sight((0,), 0, 3, public, Arrays(counts=np.array([3.0]), sums=np.array([numbers])))
    >>> values_of_single_rows(seen(2.0, 1.0), (2,)), values_of_single_rows(seen(2.0, 0.0), (2,))
    (1, 1)
    >>> values_of_single_rows(seen(0.0, 0.0), (2,)), values_of_single_rows(seen(3.0, 0.0), (2,))
    (0, 0)
    """
    if (shown := sums_of_clusters(sight)) is None:
        return 0
    masses, sums, crisp = shown
    counts = np.where(sight.shown["sums"] == 0.0, 0.0, sums)
    found = 0
    for block in blocks.blocks(levels):
        known = counts[..., block]
        left = np.where((known > 0.0).any(axis=-1), masses - known.sum(axis=-1), 0.0)
        each = np.concatenate([known, left[..., np.newaxis]], axis=-1)
        if not crisp:  # over the clusters
            each = (np.maximum(each, 0.0) ** (1.0 / (fuzzifier or 1.0))).sum(axis=-2)
        alone = np.abs(each - 1.0) < _ALONE
        found += int(np.count_nonzero(alone[masses > 1.0 + _ALONE].any(axis=-1) if crisp else alone))
    return found


def _alone_in_components(sight: Sight) -> Floats:
    """Return the rows that are alone in a component of a mixture, in the data's units, shape (n, F).

    Of one row, the mass times the sum of squared differences is the square of the sum of the differences, however small its
    responsibility is.
    """
    masses, sums, squares = (np.asarray(sight.shown[name]) for name in ("masses", "sums", "squares"))
    means = sight.state["starts"] if "starts" in sight.state else sight.state["centers"][np.newaxis]
    F, P = sums.shape[-1], squares.shape[-1]
    if squares.shape[:2] != masses.shape or len(means) != len(masses):
        return np.zeros((0, F))  # of all components together, or of some starts only
    rows, columns = np.triu_indices(F)
    if P == rows.size > F:
        squares = squares[..., rows == columns]
    own = (sums**2).sum(axis=2, keepdims=True) if P == 1 else sums**2
    apart = np.abs(squares * masses[..., np.newaxis] - own).max(axis=2)
    alone = (masses > 0) & (apart <= _ALONE * own.max(axis=2)) & (own.max(axis=2) > 0)
    found = means[alone] + sums[alone] / masses[alone][:, np.newaxis]
    return np.asarray(sight.state["origin"] + found * sight.state["scale"])


#: A solution explains what was shown to so many digits of it.
_EXPLAINED = 1e-9
_TRIES_IN_TURN = 3
#: Peers with more are passed over: each try takes longer, and fewer of their rows come back.
_MOST_UNKNOWNS = 40


@dataclass(frozen=True)
class SeenFuzzySums:
    """What one peer showed over the rounds, in working coordinates: T rounds, C clusters, F features.

    Several starts side by side count as so many rounds.
    """

    centers: Floats  # (T, C, F)
    weights: Floats  # (T, C)
    sums: Floats  # (T, C, F)
    fuzzifier: float
    fewest: int  # rows that the peer holds at least
    low: Floats  # (F,): the box that all rows lie in
    high: Floats

    @property
    def most(self) -> int:
        """How many rows the peer holds at most: each weighs at least C**(1 - m) and at most 1 in a round."""
        T, C, F = self.centers.shape
        most = int(self.weights[0].sum() * C ** (self.fuzzifier - 1.0) + 1e-6)
        return min(most, int(T * C * (F + 1) // F))

    @property
    def shown(self) -> Floats:
        """Weights and sums side by side, shape (T, C, F + 1)."""
        return np.concatenate([self.weights[:, :, np.newaxis], self.sums], axis=2)

    def explained_by(self, rows: Floats) -> Floats:
        """Return what rows, shape (n, F), would have shown, shape (T, C, F + 1)."""
        apart = ((rows[np.newaxis, :, np.newaxis] - self.centers[:, np.newaxis]) ** 2).sum(axis=3) + 1e-300
        power = apart ** (-1.0 / (self.fuzzifier - 1.0))
        memberships = (power / power.sum(axis=2, keepdims=True)) ** self.fuzzifier
        sums = np.einsum("tnc,nf->tcf", memberships, rows)
        return np.concatenate([memberships.sum(axis=1)[:, :, np.newaxis], sums], axis=2)


def fuzzy_sums_in(sights: Sequence[Sight], fuzzifier: float) -> SeenFuzzySums | None:
    """Return what sights of one peer show of fuzzy c-means; None if they are too few or of another protocol."""
    rounds = [sight for sight in sights if {"weights", "sums"} <= set(sight.shown) and "centers" in sight.state]
    each: list[tuple[Floats, Floats, Floats]] = []  # centers, weights and sums of each start
    for sight in rounds:
        weights, sums = sight.shown["weights"], sight.shown["sums"]
        if weights.ndim == sums.ndim:
            return None  # per column: the equations are of single cells, and are not solved for here
        if weights.ndim == 1:
            each.append((sight.state["centers"], weights, sums))
        elif len(starts := sight.state["starts"]) == len(weights):  # none of several starts has converged
            each += zip(starts, weights, sums, strict=True)
    if len(each) < 2:
        return None
    centers, weights, sums = (np.array(parts) for parts in zip(*each, strict=True))
    low, high = _box(sights, rounds[-1].state, centers)
    # Memberships to the power m add up to between C**(1 - m) and 1 for a row.
    fewest = max(1, int(np.ceil(weights.sum(axis=1).max() - 1e-6)))
    return SeenFuzzySums(centers, weights, sums, fuzzifier, fewest, low, high)


def _box(sights: Sequence[Sight], public: State, centers: Floats) -> tuple[Floats, Floats]:
    """Return where rows lie, in working coordinates, shape (F,) each: where the tries begin."""
    if ranges := [sight.state for sight in sights if "lo" in sight.state]:
        low, high = ((ranges[-1][name] - public["origin"]) / public["scale"] for name in ("lo", "hi"))
    else:  # without a range, centers of many rounds show where rows lie
        low, high = centers.min(axis=(0, 1)), centers.max(axis=(0, 1))
        low, high = low - (high - low) / 2, high + (high - low) / 2
    return low, high


@dataclass(frozen=True)
class SeenMixtureSums:
    """What one peer showed of a mixture of one start over T rounds, in working coordinates."""

    mixtures: tuple[Mixture, ...]  # before each round's step
    shown: Floats  # (T, numbers of a round)
    n_rows: int  # responsibilities of a row add up to 1
    low: Floats
    high: Floats

    @property
    def fewest(self) -> int:
        return self.n_rows

    most = fewest

    def explained_by(self, rows: Floats) -> Floats:
        points = Points(rows, shift=np.zeros(rows.shape[1]))
        return np.stack([_in_one(mixture_sums(points, mixture)) for mixture in self.mixtures])


def _in_one(sums: MixtureSums) -> Floats:
    return np.concatenate([sums.masses, sums.sums.ravel(), sums.squares.ravel(), [sums.log_likelihood]])


def mixture_sums_in(sights: Sequence[Sight], covariance_type: str) -> SeenMixtureSums | None:
    """Return what sights of one peer show of a mixture; None if they are too few, or of several starts."""
    mixtures, shown = [], []
    for sight in sights:
        if "log_likelihoods" in sight.shown and sight.state["shares"].any() and sight.shown["masses"].shape[0] == 1:
            masses, sums, squares = (np.asarray(sight.shown[name])[0] for name in ("masses", "sums", "squares"))
            mixtures.append(mixture_of(sight.state, covariance_type))
            shown.append(_in_one(MixtureSums(masses, sums, squares, float(sight.shown["log_likelihoods"][0]))))
    if len(mixtures) < 2:
        return None
    low, high = _box(sights, sights[-1].state, np.stack([mixture.means for mixture in mixtures]))
    n_rows = max(round(float(row[: len(mixtures[0].shares)].sum())) for row in shown)
    return SeenMixtureSums(tuple(mixtures), np.stack(shown), n_rows, low, high)


def rows_solved_for(
    seen: SeenFuzzySums | SeenMixtureSums, rng: np.random.Generator, expired: Callable[[], bool]
) -> Floats:
    """Return the rows that best explain what a peer showed, shape (n, F), in working coordinates; none if it has too many.

    `rng` draws where the tries begin; `expired` says, after each try, whether to give up.
    """
    from scipy.optimize import least_squares  # noqa: PLC0415 - slow to import

    shown, scale = seen.shown, max(1.0, float(np.abs(seen.shown).max()))
    features = seen.low.size
    numbers = range(seen.fewest, min(seen.most, _MOST_UNKNOWNS // features) + 1)

    def unexplained(flat: Floats) -> Floats:
        return np.asarray((seen.explained_by(flat.reshape(-1, features)) - shown).ravel())

    best, least = np.zeros((0, features)), np.inf
    while numbers:
        for n_rows in numbers:
            for _ in range(_TRIES_IN_TURN):
                start = seen.low + rng.random((n_rows, features)) * (seen.high - seen.low)
                found = least_squares(unexplained, start.ravel(), max_nfev=200, xtol=1e-15, ftol=1e-15, gtol=1e-15)
                left = float(np.abs(found.fun).max()) / scale
                if left < least:
                    best, least = np.asarray(found.x.reshape(start.shape)), left
                if least < _EXPLAINED or expired():
                    return best
    return best
