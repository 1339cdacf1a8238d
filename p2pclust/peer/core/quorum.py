"""The arithmetic of majorities."""

from __future__ import annotations

from collections.abc import Iterable


def majority(n_peers: int) -> int:
    """Return how many of a fixed roster, dead or alive, are a majority.

    Examples
    --------
    >>> [majority(n) for n in (1, 2, 3, 4, 5)]
    [1, 2, 2, 3, 3]
    """
    return n_peers // 2 + 1


def has_majority(names: Iterable[str], roster: tuple[str, ...]) -> bool:
    """Return whether the names are a majority of the roster; a name counts once, and only if it is on the roster.

    Examples
    --------
    >>> has_majority(["a", "a", "z"], ("a", "b", "c")), has_majority(["a", "c"], ("a", "b", "c"))
    (False, True)
    """
    needed, different = majority(len(roster)), set(names)
    return len(different) >= needed and len(different & set(roster)) >= needed
