"""Commands that are printed for pasting into a shell: alone because every package that prints one needs it."""

from __future__ import annotations

import shlex
from pathlib import Path


def quoted(word: object) -> str:
    """Return a word of a command as a shell needs it; a path that begins with a dash must not be read as an option.

    Examples
    --------
    >>> print(quoted("fleet.toml"), quoted(Path("my data/Readings (May).csv")), quoted(Path("-x")), quoted("--all"))
    fleet.toml 'my data/Readings (May).csv' ./-x --all
    """
    text = str(word)
    return shlex.quote(f"./{text}" if isinstance(word, Path) and text.startswith("-") else text)


def command(*words: object) -> str:
    """Return a command of these words, such as ``p2pclust run 'my data/scenario.toml'``."""
    return " ".join(map(quoted, words))
