"""Columns as people name them on a command line."""

from __future__ import annotations

from p2pclust.errors import UsageError

__all__ = ["column", "columns", "renamed_option"]


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


def renamed_option(old: str, old_value: str | None, new: str, value: str | None) -> str | None:
    """Return the value of an option that was called otherwise in the release before, with a warning.

    Raises
    ------
    UsageError
        If both are given.

    Examples
    --------
    >>> renamed_option("--missing", None, "--missing-values", "drop")
    'drop'
    """
    if old_value is None:
        return value
    if value is not None:
        raise UsageError(f"{old} is the former name of {new}: say {new} only")
    from p2pclust.scenario.file.fields import warn_of_name  # noqa: PLC0415 - imports pydantic

    warn_of_name("options", old, new)
    return old_value
