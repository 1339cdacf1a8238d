"""Smart meters of a street, generated: what each household draws from the grid in each hour of a day.

Real readings of households are personal data, and sets of them may hardly be passed on; these curves are made of the four
habits that utilities distinguish, with the variation of real ones: large and small households, days that begin
earlier or later, appliances that switch at random.
"""

from __future__ import annotations

import numpy as np

from p2pclust.data.dataset import DataSet
from p2pclust.errors import DataError

HABITS: dict[str, tuple[tuple[float, float, float], ...]] = {
    "out by day": ((7.0, 1.0, 0.5), (19.5, 1.8, 1.2)),
    "at home": ((8.0, 1.5, 0.4), (12.5, 1.5, 0.9), (18.5, 2.0, 0.7)),
    "charges by night": ((2.5, 1.8, 2.0), (19.0, 2.0, 0.6)),
    "solar roof": ((7.0, 1.0, 0.4), (12.5, 2.5, -1.6), (20.0, 1.8, 0.9)),
}
"""What rises above the 0.15 kWh of an hour in which nothing happens: the hour of its top, its width in hours, and kWh."""

_BASE_KWH = 0.15
_DAYS_OF_A_WEEK, _WORKING_DAYS = 7, 5


def smart_meters(*, households: int = 24, days: int = 60, noise: float = 0.4, seed: int = 0) -> DataSet:
    """Generate the day curves of a street's smart meters: 24 features in kWh, negative where a roof feeds in.

    Each household has one of the four `HABITS`, as evenly as can be. A household that is out on working days is at home on
    the last two days of each week, so it has days of two kinds. Rows are the days of each household in the order of time;
    ``y`` is the day's habit, ``group`` the household. `noise` is the standard deviation of the logarithm by which each hour
    differs from the habit.

    Raises
    ------
    DataError
        For a value that cannot be used.

    Examples
    --------
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
