"""Links that appear and vanish in time: a mobility trace, read from a file, checked, and written.

A file is CSV with a header, one change per line, in the order of time::

    seconds,from,to,link
    2.5,robot-1,robot-2,down
    4,robot-1,robot-3,up

A link has no direction: which end is called ``from`` does not matter. Seconds count from the moment at which the first job
is handed in; changes of one instant happen in the order of the lines. ``#`` at the beginning of a line makes it a comment.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from p2pclust.errors import UsageError
from p2pclust.overlay.overlay import Overlay, shown, unknown
from p2pclust.overlay.plans import plan_rows, write_bytes

_HEADER: Final = ["seconds", "from", "to", "link"]
_UP: Final = {"up": True, "down": False}


@dataclass(frozen=True)
class LinkChange:
    """One link that appears or vanishes."""

    seconds: float  # since the first job was handed in
    a: str  # one end; which is which does not matter
    b: str
    up: bool  # whether it appears

    def __str__(self) -> str:
        return f"link {self.a} - {self.b} {'up' if self.up else 'down'} at {self.seconds:g} s"


def read_trace(path: str | os.PathLike[str], overlay: Overlay) -> tuple[LinkChange, ...]:
    """Read a trace that begins with the links of an overlay.

    Parameters
    ----------
    path : path
    overlay : Overlay
        Whose peers it is about, and which links there are at its beginning.

    Returns
    -------
    tuple of LinkChange
        In the order of the file, which is that of time.

    Raises
    ------
    UsageError
        If the file cannot be read or is not a trace; names the file and the line. Refused are an unknown peer,
        a link from a peer to itself, a time that goes back, and a link that appears while it is there or vanishes while it
        is not.

    Examples
    --------
    >>> import tempfile
    >>> from p2pclust.overlay import Overlay
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "walk.csv"
    ...     _ = file.write_text("seconds,from,to,link\\n1.5,a,b,down\\n")
    ...     read_trace(file, Overlay(("a", "b"), [("a", "b")]))
    (LinkChange(seconds=1.5, a='a', b='b', up=False),)
    """
    file = Path(path)
    found: list[LinkChange] = []
    links, before = set(overlay.links), 0.0
    for line, row in plan_rows(file, _HEADER, "a trace of links"):
        try:
            change = _change(row, overlay.names)
            if change.seconds < before:
                raise UsageError(f"{change.seconds:g} s after {before:g} s: expected the order of time")
            pair = min(change.a, change.b), max(change.a, change.b)
            if change.up == (pair in links):
                state = "there already" if change.up else "not there"
                raise UsageError(f"link {shown(change.a)} - {shown(change.b)} is {state}: leave this line out")
        except UsageError as error:
            raise UsageError(f"{file}: line {line}: {error}") from None
        links ^= {pair}
        before = change.seconds
        found.append(change)
    return tuple(found)


def write_trace(changes: Iterable[LinkChange], path: str | os.PathLike[str]) -> None:
    """Write a trace to a file that :func:`read_trace` reads.

    Raises
    ------
    UsageError
        If the file cannot be written.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_HEADER)
    for change in changes:
        writer.writerow([f"{change.seconds:.12g}", change.a, change.b, "up" if change.up else "down"])
    write_bytes(Path(path), out.getvalue().encode())


def _change(row: Sequence[str], names: tuple[str, ...]) -> LinkChange:
    if len(row) != len(_HEADER):
        raise UsageError(f"{len(row)} value{'s' if len(row) != 1 else ''}: expected {','.join(_HEADER)}")
    text, a, b, link = row
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0):
        raise UsageError(f"seconds = {shown(text)}: expected a number from 0")
    for name in (a, b):
        if name not in names:
            raise UsageError(unknown(name, names))
    if a == b:
        raise UsageError(f"peer {shown(a)} is linked to itself: leave this line out")
    if link not in _UP:
        raise UsageError(f"link = {shown(link)}: expected up or down")
    return LinkChange(seconds, a, b, _UP[link])
