"""Text for people: suggest the name that was probably meant, and take control characters out of text from elsewhere."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

# Comparing takes time that grows with the square of the length.
_COMPARED: Final = 100


def nearest(name: object, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known name that is most like an unknown one, or None; `cutoff` as in :func:`difflib.get_close_matches`."""
    near = difflib.get_close_matches(str(name)[:_COMPARED], list(known), n=1, cutoff=cutoff)
    return near[0] if near else None


def did_you_mean(name: object, known: Iterable[str], otherwise: str = "", cutoff: float = 0.6) -> str:
    """Return the hint that follows an unknown name in a message; `otherwise` if no known name is alike.

    >>> f"unknown kind 'rign'{did_you_mean('rign', ['ring', 'star'])}"
    "unknown kind 'rign' (did you mean 'ring'?)"
    >>> did_you_mean("xyz", ["ring", "star"], ": expected ring, star")
    ': expected ring, star'
    """
    near = nearest(name, known, cutoff)
    return otherwise if near is None else f" (did you mean {near!r}?)"


def printable(text: str, keep: str = "") -> str:
    """Return text with a sign in place of each character that a terminal would obey instead of show.

    >>> printable("p1\\x1b[2J says\\n\\u202edone")
    'p1�[2J says��done'
    >>> printable("two\\nlines\\a", keep="\\n")
    'two\\nlines�'
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in keep else "\N{REPLACEMENT CHARACTER}" for one in text)


def first_few(words: Sequence[str], most: int) -> str:
    """Return the first of these words, and how many more there are.

    >>> first_few(["a", "b", "c"], 2), first_few(["a"], 2)
    ('a, b and 1 more', 'a')
    """
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")


def counted(number: int, many: str) -> str:
    """Write a number with its word.

    >>> counted(1, "communities"), counted(0, "clusters")
    ('1 community', '0 clusters')
    """
    one = many.removesuffix("ies") + "y" if many.endswith("ies") else many.removesuffix("s")
    return f"{number} {one if number == 1 else many}"


def quoted(word: object) -> str:
    """Return a word of a command as a shell needs it; a path that begins with a dash must not be read as an option.

    >>> print(quoted("fleet.toml"), quoted(Path("my data/Readings (May).csv")), quoted(Path("-x")), quoted("--all"))
    fleet.toml 'my data/Readings (May).csv' ./-x --all
    """
    text = str(word)
    return shlex.quote(f"./{text}" if isinstance(word, Path) and text.startswith("-") else text)


def command(*words: object) -> str:
    """Return a command of these words, such as ``p2pclust run 'my data/scenario.toml'``."""
    return " ".join(map(quoted, words))
