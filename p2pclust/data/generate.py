"""The generated data sets of the papers, and a stream; each a pure function of its options and its seed.

Where a paper says which peer holds which rows, ``group`` is that peer's number from 0: the partition ``by-group`` over
as many peers gives the paper's setting.

References
----------
.. [1] M. Stallmann, A. Wilbik, "Towards federated clustering: a federated fuzzy c-means algorithm (FFCM)",
   arXiv:2201.07316, 2022.
.. [2] S. Garst, M. Reinders, "Federated k-means clustering", arXiv:2310.01195, 2023; the peers' locations are those of
   its authors' code.
.. [3] P. Fränti, R. Mariescu-Istodor, C. Zhong, "XNN graph", 2016.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pclust.data.dataset import DataSet
from p2pclust.data.partition import nearby
from p2pclust.errors import DataError, UsageError
from p2pclust.tools.spelling import did_you_mean

PEER_LOCATIONS = (
    (6.996601158324054, 4.124745404114659),
    (-5.271066703849256, 7.157142451709259),
    (6.714794493537756, -9.174802677105856),
    (2.443515920603241, 8.331910708477391),
    (-9.606948592795872, 2.769673398722041),
)
"""The locations of the five peers of the Gaussian grid: drawn once by the paper's authors and used in all its figures."""

_GRID = np.array([(x, y) for x in (-7.5, -2.5, 2.5, 7.5) for y in (-7.5, -2.5, 2.5, 7.5)])

Matrix = NDArray[np.float64]

HABITS: dict[str, tuple[tuple[float, float, float], ...]] = {
    "out by day": ((7.0, 1.0, 0.5), (19.5, 1.8, 1.2)),
    "at home": ((8.0, 1.5, 0.4), (12.5, 1.5, 0.9), (18.5, 2.0, 0.7)),
    "charges by night": ((2.5, 1.8, 2.0), (19.0, 2.0, 0.6)),
    "solar roof": ((7.0, 1.0, 0.4), (12.5, 2.5, -1.6), (20.0, 1.8, 0.9)),
}
"""What rises above the 0.15 kWh of an hour in which nothing happens: the hour of its top, its width in hours, and kWh."""

ADMISSIONS: dict[str, tuple[tuple[tuple[float, float], ...], tuple[tuple[float, ...], ...]]] = {
    "birth": (((31, 5), (4, 1.5), (10, 6)), ((0.8, 0.15, 0.05), (0.96, 0.0, 0.02, 0.02), (1.0, 0.0))),
    "heart": (((70, 9), (8, 3), (8, 5)), ((0.3, 0.6, 0.1), (0.0, 0.85, 0.0, 0.15), (0.4, 0.6))),
    "accident": (((45, 18), (5, 3), (20, 12)), ((0.25, 0.7, 0.05), (0.0, 0.0, 0.92, 0.08), (0.4, 0.6))),
    "infection": (((66, 14), (9, 4), (120, 50)), ((0.5, 0.35, 0.15), (0.02, 0.04, 0.04, 0.9), (0.5, 0.5))),
}
"""The kinds of admissions: mean and standard deviation of each number, and the probabilities of each category's values.

Numbers: age in years, stay in days, C-reactive protein in mg/l. Categories, as indices: arrival (home, ambulance, transfer),
ward (maternity, cardiology, surgery, medicine), sex (female, male).
"""

_BASE_KWH = 0.15
_DAYS_OF_A_WEEK, _WORKING_DAYS = 7, 5


def generate(name: str, options: Mapping[str, Any]) -> DataSet:
    """Generate a data set by name; `options` are parameters of its generator, which has a default for each.

    >>> generate("g2", {"dimension": 4, "sd": 20}).X.shape
    (2048, 4)
    """
    make = GENERATORS[name]
    known = inspect.signature(make).parameters
    for option, value in options.items():
        if option not in known:
            meant = did_you_mean(option, known)
            has = ", ".join(f"{key} = {_shown(item.default)}" for key, item in known.items())
            raise UsageError(f"{name}: no option {option!r}{meant}; its options are {has}")
        if not _fits(value, known[option].default):
            kind = _KINDS[type(known[option].default)]
            raise UsageError(f"{name}: {option} = {value!r}: expected {kind}, as in {_shown(known[option].default)}")
    return make(**options)


_KINDS = {int: "a whole number", float: "a number", bool: "true or false", tuple: "a list of whole numbers"}


def _fits(value: Any, default: Any) -> bool:
    """Return whether an option has the type of its default; a whole number is also a number."""
    if isinstance(default, tuple):
        return isinstance(value, list | tuple) and all(_fits(item, 0) for item in value)
    if isinstance(default, bool) or isinstance(value, bool):
        return isinstance(default, bool) and isinstance(value, bool)
    return isinstance(value, int if isinstance(default, int) else int | float)


def _shown(default: Any) -> str:
    if isinstance(default, tuple):
        return str(list(default))
    return str(default).lower() if isinstance(default, bool) else str(default)


def gaussians(
    n_rows: int = 2000, n_clusters: int = 5, n_features: int = 8, *, spread: float = 0.1, seed: int = 0
) -> DataSet:
    """Generate Gaussian clusters of equal sizes around centers drawn uniformly in the unit cube; rows are in random order.

    `spread` is the standard deviation in each direction.

    >>> gaussians(10, 2, 3).X.shape
    (10, 3)
    """
    if min(n_rows, n_clusters, n_features) < 1 or not spread >= 0 or seed < 0:
        raise DataError("gaussians: expected at least one row, cluster and feature, and no negative spread or seed")
    rng = np.random.default_rng(seed)
    centers = rng.uniform(size=(n_clusters, n_features))
    y = rng.permutation(np.arange(n_rows, dtype=np.int64) % n_clusters)
    return DataSet("gaussians", centers[y] + spread * rng.standard_normal((n_rows, n_features)), y)


def unequal_clusters(*, equal: bool = False, sigma: float = 0.5, seed: int = 0) -> DataSet:
    """Generate case 1 of [1]_: means (-2, -2), (0, 0), (2, 2); three peers.

    If `equal`, each has 333 rows of each cluster, otherwise the third peer 500, 500 and none. The paper does not give the
    standard deviation `sigma`; 0.5 reproduces its within and outside SSE.

    >>> data = unequal_clusters()
    >>> [int((data.group == peer).sum()) for peer in range(3)]
    [999, 999, 1000]
    """
    third = (333, 333, 333) if equal else (500, 500, 0)
    means = np.array([[-2.0, -2.0], [0.0, 0.0], [2.0, 2.0]])
    return _by_peer("unequal_clusters", means, sigma, [(333, 333, 333), (333, 333, 333), third], seed)


def hidden_clusters(*, sigma: float = 1.1, seed: int = 0) -> DataSet:
    """Generate case 2 of [1]_: two peers, with 900 rows of the first or of the second cluster, and 50 of each other.

    >>> hidden_clusters().X.shape
    (2000, 2)
    """
    means = np.array([[5.0, 0.0], [5.0, 10.0], [10.0, 10.0]])
    return _by_peer("hidden_clusters", means, sigma, [(900, 50, 50), (50, 900, 50)], seed)


def absent_clusters(*, rows: Sequence[int] = (1000, 1000, 1000), sigma: float = 1.0, seed: int = 0) -> DataSet:
    """Generate case 3 of [1]_: each of three peers has two of four clusters.

    `rows` are even numbers, one for each peer, half of each of its clusters. The paper has (100, 1000, 100),
    (100, 1000, 1000), (1000, 100, 100) and (1000, 1000, 1000).

    >>> data = absent_clusters(rows=(100, 1000, 100))
    >>> sorted({(int(g), int(k)) for g, k in zip(data.group, data.y)})
    [(0, 0), (0, 1), (1, 1), (1, 2), (2, 2), (2, 3)]
    """
    if len(rows) != 3 or any(n < 2 or n % 2 for n in rows):
        raise DataError(f"absent_clusters: rows = {list(rows)}: expected three even numbers, one for each peer")
    means = np.array([[0.0, 0.0], [0.0, 10.0], [10.0, 10.0], [10.0, 0.0]])
    counts = [tuple(n // 2 if k in (peer, peer + 1) else 0 for k in range(4)) for peer, n in enumerate(rows)]
    return _by_peer("absent_clusters", means, sigma, counts, seed)


def g2(*, dimension: int = 2, sd: float = 10.0, rounded: bool = True, seed: int = 0) -> DataSet:
    """Generate a set like those of the G2 family [3]_: two Gaussians of 1024 rows around (500, ...) and (600, ...).

    The published sets have 2, 4, 8, ..., 1024 dimensions, the standard deviations 10, 20, ..., 100, and whole numbers.

    >>> g2(dimension=8, sd=30).X[:1024].mean().round()
    np.float64(500.0)
    """
    if dimension < 1:
        raise DataError(f"g2: dimension = {dimension}: expected at least 1")
    rng = np.random.default_rng(_seed("g2", seed, sd))
    y = np.repeat(np.arange(2, dtype=np.int64), 1024)
    X = 500.0 + 100.0 * y[:, None] + sd * rng.standard_normal((2048, dimension))
    return DataSet("g2", np.rint(X) if rounded else X, y)


def gaussian_grid(*, points: int = 50, noise: float = 1.0, beta: float = 0.1, seed: int = 0) -> DataSet:
    """Generate the grid of [2]_: sixteen Gaussians, 5 apart, seen by five peers.

    Which peer a row is at follows from `beta`, see `p2pclust.data.partition.nearby`; the rows are the same for every beta.
    Each cluster has `points` rows, with the standard deviation `noise`; the paper has 1 to 1.5.

    >>> data = gaussian_grid(points=50, beta=0.1)
    >>> data.X.shape, len(set(data.group.tolist()))
    ((800, 2), 5)
    """
    if points < 1:
        raise DataError(f"gaussian_grid: points = {points}: expected at least 1")
    if not beta > 0:
        raise DataError(f"gaussian_grid: beta = {beta}: expected more than 0")
    # Two streams, so that beta has no say in the rows.
    rows, sight = np.random.SeedSequence(_seed("gaussian_grid", seed, noise)).spawn(2)
    y = np.repeat(np.arange(16, dtype=np.int64), points)
    X = _GRID[y] + noise * np.random.default_rng(rows).standard_normal((len(y), 2))
    group = nearby(X, np.array(PEER_LOCATIONS), beta, np.random.default_rng(sight))
    return DataSet("gaussian_grid", X, y, group)


def uneven_grid(
    *, clusters: Sequence[int] = (16, 1, 3, 10, 7), points: int = 50, noise: float = 1.0, seed: int = 0
) -> DataSet:
    """Generate the split of Fig. 4 of [2]_: the sixteen Gaussians, and peers with very different numbers of them.

    Peer i has the first ``clusters[i]`` clusters. The `points` rows of a cluster are shared out evenly among its peers;
    those that are left over by this are not generated. `noise` is the standard deviation.

    >>> [int((uneven_grid().group == peer).sum()) for peer in range(5)]
    [473, 10, 34, 173, 98]
    """
    if not clusters or any(not 1 <= n <= 16 for n in clusters):
        raise DataError(f"uneven_grid: clusters = {list(clusters)}: expected 1 to 16 for each peer")
    if points < len(clusters):
        raise DataError(f"uneven_grid: points = {points}: expected at least {len(clusters)}, one for each peer")
    n_holders = [sum(k < n for n in clusters) for k in range(16)]
    counts = [tuple(points // n_holders[k] if k < n else 0 for k in range(16)) for n in clusters]
    return _by_peer("uneven_grid", _GRID, noise, counts, seed)


def moving_clusters(
    *, peers: int = 6, rows: int = 320, leap: float = 4.0, growth: float = 0.7, sigma: float = 1.0, seed: int = 0
) -> DataSet:
    """Generate a stream of `rows` rows for each peer, in the order of time, in which the clusters change.

    There are three, with equal chances. After half of a peer's rows the second one moves by `leap` in both directions, and
    after three quarters the third one's chance becomes `growth`.

    >>> data = moving_clusters(peers=2, rows=400)
    >>> [[int((data.y[peer * 400 + 300 :][:100] == k).sum() > 50) for k in range(3)] for peer in range(2)]
    [[0, 0, 1], [0, 0, 1]]
    """
    if min(peers, rows) < 1 or not 0 <= growth <= 1 or not abs(leap) < np.inf:
        raise DataError("moving_clusters: expected at least one peer and row, a finite leap, and a growth from 0 to 1")
    rng = np.random.default_rng(_seed("moving_clusters", seed, sigma))
    time = np.tile(np.arange(rows) / rows, peers)
    chance, rest = rng.random(peers * rows), np.where(time < 0.75, 2 / 3, 1 - growth) / 2
    y = (chance >= rest).astype(np.int64) + (chance >= 2 * rest)
    X = np.array([[0.0, 0.0], [8.0, 0.0], [0.0, 8.0]])[y] + sigma * rng.standard_normal((len(y), 2))
    X[(y == 1) & (time >= 0.5)] += leap
    return DataSet("moving_clusters", X, y, np.repeat(np.arange(peers, dtype=np.int64), rows))


def smart_meters(*, households: int = 24, days: int = 60, noise: float = 0.4, seed: int = 0) -> DataSet:
    """Generate the day curves of a street's smart meters: 24 features in kWh, negative where a roof feeds in.

    Real readings of households are personal data, and sets of them may hardly be passed on; these curves are made of the
    four `HABITS` that utilities distinguish, with the variation of real ones: large and small households, days that begin
    earlier or later, appliances that switch at random. A household that is out on working days is at home on the last two
    days of each week. ``y`` is the day's habit. `noise` is the standard deviation of the logarithm by which each hour
    differs from the habit.

    >>> data = smart_meters(households=4, days=7)
    >>> data.X.shape, data.feature_names[:2]
    ((28, 24), ('h00', 'h01'))
    """
    if min(households, days) < 1 or not 0 <= noise < np.inf or seed < 0:
        raise DataError("smart_meters: expected at least one household and day, and no negative noise or seed")
    rng = np.random.default_rng(seed)
    habit = rng.permutation(np.arange(households, dtype=np.int64) % len(HABITS))
    group, day = (index.ravel() for index in np.indices((households, days)))
    weekend = day % _DAYS_OF_A_WEEK >= _WORKING_DAYS
    y = np.where((habit[group] == 0) & weekend, 1, habit[group])
    size = np.exp(0.25 * rng.standard_normal(households))
    late = 0.7 * rng.standard_normal(len(y))
    hours = np.arange(24.0)
    X = np.full((len(y), 24), _BASE_KWH)
    for k, tops in enumerate(HABITS.values()):
        for hour, width, kwh in tops:
            X[y == k] += kwh * np.exp(-0.5 * ((hours - hour - late[y == k, None]) / width) ** 2)
    X *= size[group, None] * np.exp(noise * rng.standard_normal(X.shape))
    names = tuple(f"h{hour:02d}" for hour in range(24))
    return DataSet("smart_meters", X, y, group.astype(np.int64), feature_names=names)


def admissions(*, hospitals: int = 6, patients: int = 80, focus: float = 1.0, seed: int = 0) -> DataSet:
    """Generate admissions to hospitals, three numbers and three categories; see `ADMISSIONS`.

    Records of patients may not be passed on. ``y`` is the kind of admission, ``group`` the hospital. The smaller `focus`,
    the concentration of a Dirichlet distribution, the more a hospital has one kind only.

    >>> data = admissions(hospitals=2, patients=30)
    >>> data.X.shape, data.feature_names
    ((60, 6), ('age', 'stay', 'crp', 'arrival', 'ward', 'sex'))
    """
    if min(hospitals, patients) < 1 or not focus > 0 or seed < 0:
        raise DataError("admissions: expected at least one hospital and patient, a focus above 0, and no negative seed")
    rng = np.random.default_rng(seed)
    kinds = [rng.choice(4, patients, p=rng.dirichlet([focus] * 4)) for _ in range(hospitals)]
    y = np.concatenate(kinds).astype(np.int64)
    X = np.empty((len(y), 6))
    for k, (numbers, shares) in enumerate(ADMISSIONS.values()):
        own = y == k
        for column, (mean, deviation) in enumerate(numbers):
            X[own, column] = np.maximum(mean + deviation * rng.standard_normal(own.sum()), 0.0).round(1)
        for column, share in enumerate(shares, start=len(numbers)):
            X[own, column] = rng.choice(len(share), own.sum(), p=share)
    group = np.repeat(np.arange(hospitals, dtype=np.int64), patients)
    return DataSet("admissions", X, y, group, feature_names=("age", "stay", "crp", "arrival", "ward", "sex"))


def _by_peer(name: str, means: Matrix, sigma: float, counts: Sequence[Sequence[int]], seed: int) -> DataSet:
    """Draw ``counts[peer][k]`` rows around mean k for each peer; ``group`` is the peer."""
    rng = np.random.default_rng(_seed(name, seed, sigma))
    table = np.array(counts, dtype=np.int64)
    group, y = (np.repeat(index, table.ravel()) for index in np.indices(table.shape).reshape(2, -1))
    X = means[y] + sigma * rng.standard_normal((len(y), means.shape[1]))
    return DataSet(name, X, y.astype(np.int64), group.astype(np.int64))


def _seed(name: str, seed: int, sigma: float) -> int:
    """Check both, and return the seed."""
    if seed < 0 or not 0 <= sigma < np.inf:
        raise DataError(f"{name}: expected no negative seed or standard deviation")
    return seed


GENERATORS: dict[str, Callable[..., DataSet]] = {
    make.__name__: make
    for make in (
        absent_clusters, admissions, g2, gaussian_grid, gaussians, hidden_clusters, moving_clusters, smart_meters,
        unequal_clusters, uneven_grid,
    )
}  # fmt: skip
"""By the name under which a scenario or a command asks for them."""
