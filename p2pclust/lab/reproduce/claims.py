"""Claims about means, as most tables make them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from p2pclust.lab.reproduce.model import Claim, Findings


def about_means(
    found: Findings, what: str, rows: Sequence[str], measure: str, holds: Callable[..., bool],
    *, digits: int = 4, between: str = ", ",
) -> Claim:  # fmt: skip
    """Claim that `holds` is true of the means of these rows; undecided if one of them was not measured.

    Examples
    --------
    >>> found = Findings()
    >>> found.add(0, {"fkm": {"ari": 0.9}, "k-fed": {"ari": 0.5}})
    >>> about_means(found, "fkm above k-fed", ["fkm", "k-fed"], "ari", lambda a, b: a > b)
    Claim(what='fkm above k-fed', value='0.9000, 0.5000', held=True, always=False)
    """
    if not all(found.has(row, measure) for row in rows):
        return not_measured(what)
    means = [found.mean(row, measure) for row in rows]
    return Claim(what, between.join(f"{mean:.{digits}f}" for mean in means), holds(*means))


def rising(found: Findings, what: str, rows: Sequence[str], measure: str) -> Claim:
    """Claim that the means of rows rise strictly."""

    def holds(*means: float) -> bool:
        return all(a < b for a, b in pairwise(means))

    return about_means(found, what, rows, measure, holds, digits=3, between=" < ")


def not_measured(what: str, *, always: bool = False) -> Claim:
    """Return a claim that is undecided."""
    return Claim(what, "not measured", None, always)
