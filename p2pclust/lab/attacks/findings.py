"""What an attack found, and when a row counts as recovered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.protocols.engine.local import Local

Floats = NDArray[np.float64]

#: A row is recovered if each of its values is found to this share of the feature's range.
EXACTLY: Final = 1e-3


@dataclass(frozen=True)
class AttackResult:
    """What one attack brought to one kind of observer."""

    #: Who has what the attack needs: for example "aggregator" (single peers' contributions), "totals" (only their totals),
    #: "any peer" (the states, or models that all peers get).
    observer: str
    attack: str
    rows: int  # of all peers that were attacked
    recovered: int | None  # how many of these came back exactly; None if the attack does not look for rows
    seconds: float
    by_peer: Mapping[int, int]  # the rows that came back, by roster index; empty for totals
    #: Of membership inference: the probability that a row that was trained on looks more familiar to the model than one
    #: that was not. 0.5 is a guess.
    auc: float | None = None
    #: Of copies drawn from models: how near the nearest one is to a row that was trained on. The largest difference of any
    #: value counts, as a share of the feature's range.
    nearest: float | None = None
    control: float | None = None  # the same to rows that were not trained on

    @property
    def words(self) -> str:
        if self.auc is not None:
            return f"AUC {self.auc:.3f}"
        recovered = self.recovered or 0
        rows = f"{recovered:,} ({recovered / max(self.rows, 1):.1%})"
        if self.nearest is None:
            return rows
        other = "" if self.control is None else f" (a row not used: {self.control:.3f})"
        return f"{rows}, nearest {self.nearest:.3f}{other}"

    def to_dict(self, roster: Sequence[str]) -> dict[str, Any]:
        """Return plain values, with the names of peers."""
        plain = {"peers" if key == "by_peer" else key: value for key, value in asdict(self).items()}
        return plain | {"peers": {roster[peer]: rows for peer, rows in self.by_peer.items()}}


def recovered(found: Floats, rows: Floats, ranges: Floats) -> int:
    """Return how many rows, shape (n, F), have a find within `EXACTLY` of each feature's range.

    Of a row with missing cells (NaN) the cells that are there count, and of a find that has only some cells (the others are
    NaN) these; such a find is of one row.

    >>> recovered(np.array([[0.1], [0.1], [0.7]]), np.array([[0.1], [0.5]]), np.ones(1))
    1
    >>> recovered(np.array([[0.1, np.nan]]), np.array([[0.1, 0.2], [np.nan, 0.3]]), np.ones(2))
    1
    """
    if not found.size or not rows.size or rows.shape[1] != found.shape[1]:
        return 0
    hit = np.zeros(len(rows), dtype=bool)
    for one in found:
        apart = np.abs(rows - one) / ranges
        near = (np.nan_to_num(apart) <= EXACTLY).all(axis=1) & ~np.isnan(apart).all(axis=1)
        if np.isnan(one).any() and near.any():
            near = np.arange(len(rows)) == np.where(near, np.nansum(apart, axis=1), np.inf).argmin()
        hit |= near
    return int(hit.sum())


def ranges_of(locals: Iterable[Local]) -> Floats:
    """Return the range of each feature over all rows, shape (F,); 1 for one that does not vary."""
    usable = [local.X for local in locals if local.X.size and not local.problem_if(keeps_gaps=True)]
    # A peer with another number of columns takes no part.
    n_features = Counter(X.shape[1] for X in usable).most_common(1)[0][0] if usable else 1
    rows = np.concatenate([np.zeros((0, n_features)), *(X for X in usable if X.shape[1] == n_features)])
    low, high = (np.where(np.isnan(rows), end, rows) for end in (np.inf, -np.inf))
    ranges = high.max(axis=0) - low.min(axis=0) if len(rows) else np.ones(n_features)
    return np.where(ranges > 0, ranges, 1.0)
