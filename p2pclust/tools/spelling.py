"""Text for people: suggest the name that was probably meant, and take control characters out of text from elsewhere."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

# Comparing takes time that grows with the square of the length.
_COMPARED: Final = 100


def nearest(name: object, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known name that is most like an unknown one, or None; `cutoff` as in :func:`difflib.get_close_matches`."""
    near = difflib.get_close_matches(str(name)[:_COMPARED], list(known), n=1, cutoff=cutoff)
    return near[0] if near else None


def did_you_mean(name: object, known: Iterable[str], otherwise: str = "", cutoff: float = 0.6) -> str:
    """Return the hint that follows an unknown name in a message; `otherwise` if no known name is alike.

    Examples
    --------
    >>> f"unknown kind 'rign'{did_you_mean('rign', ['ring', 'star'])}"
    "unknown kind 'rign' (did you mean 'ring'?)"
    >>> did_you_mean("xyz", ["ring", "star"], ": expected ring, star")
    ': expected ring, star'
    """
    near = nearest(name, known, cutoff)
    return otherwise if near is None else f" (did you mean {near!r}?)"


def printable(text: str, keep: str = "") -> str:
    """Return text with a sign in place of each character that a terminal would obey instead of show.

    Examples
    --------
    >>> printable("p1\\x1b[2J says\\n\\u202edone")
    'p1�[2J says��done'
    >>> printable("two\\nlines\\a", keep="\\n")
    'two\\nlines�'
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in keep else "\N{REPLACEMENT CHARACTER}" for one in text)


def counted(number: int, many: str) -> str:
    """Write a number with its word.

    Examples
    --------
    >>> counted(1, "communities"), counted(0, "clusters")
    ('1 community', '0 clusters')
    """
    one = many.removesuffix("ies") + "y" if many.endswith("ies") else many.removesuffix("s")
    return f"{number} {one if number == 1 else many}"
