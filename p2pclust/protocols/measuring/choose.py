"""Choose the number of clusters: from a table of measures to a recommendation and its reason (docs/protocols/measure.md).

The elbow is the sharpest bend of the *logarithm* of the inertia: where one more cluster helped much, and the next one
helps little, each in proportion to what was left. The usual largest distance from the chord of the plain curve depends on
where the curve ends, and puts the elbow of fifteen clear clusters (s-set1, 2 to 20 clusters) at 6; the bend is at 15. Both
ends of the range cannot bend: begin at 1 to let 2 be found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from p2pclust.errors import UsageError
from p2pclust.protocols.measuring.measure import MeasuredIndices

MEASURES = ("soft Davies–Bouldin", "Xie–Beni", "simplified silhouette", "elbow")
BIC = "BIC"  # decides alone where there is one

_LARGEST = "{} is the largest number that was tried: try more."
_SAME = 1e-9  # values that differ by less, relatively, are the same; then the smaller number of clusters has it
_NOTHING = 1e-12  # an inertia below this share of the largest is rounding: every row lies on a center


@dataclass(frozen=True)
class Recommendation:
    """A number of clusters, and why."""

    clusters: int
    reason: str  # one or more sentences
    # For each of :data:`MEASURES`, of mixtures also BIC, the number at which it is best; None where it does not decide.
    votes: Mapping[str, int | None]
    agreed: bool  # whether more than half of the measures that decide are best there


def recommend(table: Sequence[MeasuredIndices]) -> Recommendation:
    """Return the number of clusters that most measures vote for; of mixtures the one with the smallest BIC.

    The table has one row for each number of clusters, in any order. Raises UsageError if it is empty, or repeats one.
    """
    rows = sorted(table, key=lambda row: row.clusters)
    tried = [row.clusters for row in rows]
    if not rows or len(set(tried)) < len(tried):
        raise UsageError(f"measures for {tried} clusters: expected one for each of some different numbers")
    if not max(row.inertia for row in rows) > 0.0:
        reason = f"All rows are equal, so there is nothing to divide: {tried[0]} is the smallest number that was tried."
        return Recommendation(tried[0], reason, dict.fromkeys(MEASURES), agreed=True)
    votes = {
        MEASURES[0]: _least(tried, [row.soft_davies_bouldin for row in rows]),
        MEASURES[1]: _least(tried, [row.xie_beni for row in rows]),
        # With one cluster the silhouette is zero by definition: that says nothing.
        MEASURES[2]: _least(tried, [-row.simplified_silhouette if row.clusters > 1 else np.inf for row in rows]),
        MEASURES[3]: elbow(tried, [row.inertia / row.rows for row in rows]),
    }
    bics = [row.bic for row in rows if row.bic is not None]
    if len(bics) == len(rows):
        chosen = _least(tried, bics) or tried[0]
        last = (
            f" {chosen} is the largest number that was tried: try more."
            if chosen == tried[-1] and len(rows) > 1
            else ""
        )
        return Recommendation(
            chosen, f"BIC is smallest at {chosen} clusters.{last}", votes | {BIC: chosen}, agreed=True
        )
    cast = Counter(vote for vote in votes.values() if vote is not None)
    if not cast:
        return Recommendation(tried[0], f"Nothing can be compared: {tried[0]} is the smallest tried.", votes, False)
    chosen = min(cast, key=lambda clusters: (-cast[clusters], clusters))
    agreed = 2 * cast[chosen] > cast.total()
    names = {clusters: [name for name, vote in votes.items() if vote == clusters] for clusters in sorted(cast)}
    for_it = names.pop(chosen)
    others = "; ".join(f"{_listed(named)} at {clusters}" for clusters, named in names.items())
    if agreed and not names:
        who = "All four measures" if len(for_it) == len(MEASURES) else _listed(for_it, capital=True)
        reason = f"{who} {'is' if len(for_it) == 1 else 'are'} best at {chosen} clusters."
    elif agreed:
        reason = f"{_listed(for_it, capital=True)} are best at {chosen} clusters; but {others}."
    else:
        rivals = any(cast[clusters] == cast[chosen] for clusters in names)
        how = f"{chosen} is the smallest of the numbers with most votes" if rivals else f"{chosen} has most votes"
        reason = f"The measures disagree: {_listed(for_it)} at {chosen} clusters; {others}. {how}."
    if chosen == tried[-1] and len(tried) > 1:
        reason += f" {_LARGEST.format(chosen)}"
    return Recommendation(chosen, reason, votes, agreed)


def elbow(clusters: Sequence[int], inertias: Sequence[float]) -> int | None:
    """Return where the logarithm of the inertia bends most, or None if it nowhere bends that way.

    Numbers of clusters ascend; the steps need not be 1. Inertias are of the same rows, or per row.
    """
    values = np.asarray(inertias, dtype=np.float64)
    if values.size < 3 or not values.max() > 0.0:
        return None
    logs = np.log(np.maximum(values, _NOTHING * values.max()))
    # Fuzzy c-means does not minimise the inertia, so it may rise; that is not a gain.
    gains = np.maximum(-np.diff(logs), 0.0) / np.diff(clusters)
    bends = gains[:-1] - gains[1:]
    # A curve that is straight but for rounding has no elbow.
    return None if not bends.max() > _SAME else int(clusters[1 + int(np.argmax(bends))])


def _least(clusters: Sequence[int], values: Sequence[float]) -> int | None:
    """Return the smallest number of clusters at which the value is least, or None if nothing is finite."""
    least = min(values)
    if not np.isfinite(least):
        return None
    return next(c for c, value in zip(clusters, values, strict=True) if value <= least + _SAME * abs(least))


def _listed(names: Sequence[str], *, capital: bool = False) -> str:
    text = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    return text[0].upper() + text[1:] if capital else text
