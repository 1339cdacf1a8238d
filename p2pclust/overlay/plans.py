"""Read and write the files of overlays, and CSV files of timed events, with a header, empty lines and comments."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from p2pclust.errors import UsageError
from p2pclust.tools.files import regular

_BYTES_MAX: Final = 64 * 2**20  # a full mesh of 1,000 peers takes about 30 MB of GraphML


def read_bytes(file: Path, what: str) -> bytes:
    """Return the content of a file that holds `what`, or raise UsageError if it cannot be read or is too large."""
    try:
        with regular(file).open("rb") as opened:
            content = opened.read(_BYTES_MAX + 1)
    except FileNotFoundError:
        raise UsageError(f"{file}: no such file") from None
    except OSError as error:
        raise UsageError(f"{file}: cannot be read ({error.strerror or error})") from error
    if len(content) > _BYTES_MAX:
        raise UsageError(f"{file}: larger than {_BYTES_MAX // 2**20} MB: expected {what}")
    return content


def write_bytes(file: Path, content: bytes) -> None:
    """Write a file, and its folder if that is missing, or raise UsageError."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    except OSError as error:
        raise UsageError(f"{file}: cannot be written ({error.strerror or error})") from error


def plan_rows(file: Path, header: Sequence[str], what: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of each data line, from 1, and its values without the blanks around them.

    The first line has to be `header`; `what` such a file holds ends the message about one that is too large.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as directory:
    ...     file = Path(directory) / "plan.csv"
    ...     _ = file.write_text("# two passes\\nship,from_s\\na, 1\\n\\nb,2\\n")
    ...     list(plan_rows(file, ["ship", "from_s"], "passes"))
    [(3, ['a', '1']), (5, ['b', '2'])]
    """
    try:
        lines = read_bytes(file, what).decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: not UTF-8 text (byte {error.start + 1})") from error
    headed = False
    for number, text in enumerate(lines, start=1):
        if not text.strip() or text.startswith("#"):
            continue
        row = [value.strip() for value in next(csv.reader([text]))]
        if headed:
            yield number, row
        elif row != list(header):
            raise UsageError(f"{file}: line {number}: expected the header {','.join(header)}")
        headed = True
    if not headed:
        raise UsageError(f"{file}: line 1: expected the header {','.join(header)}")
