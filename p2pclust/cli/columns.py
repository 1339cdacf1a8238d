"""Columns as people name them on a command line."""

from __future__ import annotations

__all__ = ["column", "columns"]


def column(text: str | None) -> str | int | None:
    """Return a column's name, or its number if the text is one.

    Examples
    --------
    >>> column("site"), column("3")
    ('site', 3)
    """
    return int(text) if text is not None and text.isascii() and text.isdigit() else text


def columns(text: str | None) -> list[str | int] | None:
    """Return the columns of a list with commas.

    Examples
    --------
    >>> columns("w, 3")
    ['w', 3]
    """
    if text is None:
        return None
    return [column(part.strip()) or "" for part in text.split(",")]
