"""Download a data set from its home: resume, check, convert, and move it into place.

Pooch downloads to a temporary name, checks, and moves. This module adds: a broken download is kept as ``.part`` and
resumed; a file without a known checksum is downloaded only on request, and its checksum is locked from then on. The file
of the data set appears last and complete, or not at all.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from p2pclust.data.catalogue import ENTRIES, Entry, Remote, canonical, find
from p2pclust.data.readers import write_npz
from p2pclust.data.registry import BUILT_IN, cache_dir
from p2pclust.data.table import unreadable
from p2pclust.errors import DataError, UsageError
from p2pclust.lab.data.convert import convert
from p2pclust.tools.files import expanded, regular
from p2pclust.tools.spelling import did_you_mean

_RESUMPTIONS = 5
_CHUNK = 1 << 14  # of a chunk that breaks off nothing is kept

OnProgress = Callable[[str, int, int | None], None]
"""Called with a file's name, the bytes that are there, and the bytes that there will be (None: not known)."""


@dataclass(frozen=True)
class Fetched:
    """Where a data set lies, and whether it had to be made."""

    name: str
    file: Path
    new: bool


def fetch(
    name: str,
    *,
    to: str | Path | None = None,
    given: str | Path | None = None,
    unverified: bool = False,
    on_progress: OnProgress | None = None,
) -> Fetched:
    """Download a data set, convert it, and store it as ``NAME.npz``.

    Raises UsageError if it cannot be downloaded, and DataError if a file has another checksum than it should have, or is
    not what the catalogue describes. What was stored before is as it was.

    `name` is that of the catalogue, in any spelling; `to` the folder, by default the cache directory: downloads are kept
    below it in ``downloads/``, which may be deleted. With `given`, the file that the home offers or the folder that holds
    several, nothing is downloaded. With `unverified` a file whose checksum is not known is downloaded too; every later
    download has to equal the first.
    """
    entry = find(name)
    if entry is None:
        if canonical(name) in BUILT_IN:
            raise UsageError(f"{name}: always there, nothing to fetch")
        meant = did_you_mean(canonical(name), ENTRIES)
        raise UsageError(f"unknown data set {name!r}{meant}: p2pclust data list shows all that can be fetched")
    folder = expanded(to) if to is not None else cache_dir()
    target = folder / f"{entry.name}.npz"
    if target.is_file():
        return Fetched(entry.name, target, new=False)
    if given is not None:
        files = _given(entry, expanded(given))
    elif not entry.files:
        raise UsageError(f"{entry.name}: {entry.by_hand}")
    else:
        downloads = folder / "downloads" / (entry.archive or entry.name)
        unknown = [remote.name for remote in entry.files if not _known(remote, downloads)]
        if unknown and not unverified:
            raise UsageError(
                f"{entry.name}: no checksum of {unknown[0]} is known, so a changed file would not be noticed: download "
                "it all the same with --unverified, or give a file that you trust with --from"
            )
        try:
            downloads.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"{downloads}: cannot be written ({error.strerror}): choose another folder") from error
        files = [_download(entry, remote, downloads, on_progress) for remote in entry.files]
    arrays = convert(entry, files)
    content: dict[str, NDArray[Any]] = {"X": arrays.X, "y": arrays.y}
    content |= {} if arrays.group is None else {"group": arrays.group}
    content |= {"features": np.array(arrays.features)} if arrays.features else {}
    write_npz(target, content)
    return Fetched(entry.name, target, new=True)


def _given(entry: Entry, given: Path) -> list[Path]:
    """Return the files of an entry from where a person put them, checked where a checksum is known."""
    if not given.exists():
        raise DataError(f"{given}: no such file or folder")
    try:
        regular(given)
    except OSError as error:
        raise DataError(unreadable(given, error)) from error
    if not entry.files:
        return [given]
    if not given.is_dir() and len(entry.files) > 1:
        names = ", ".join(remote.name for remote in entry.files)
        raise DataError(f"{given}: {entry.name} has several files: expected a folder with {names}")
    files = [given / remote.name if given.is_dir() else given for remote in entry.files]
    for remote, file in zip(entry.files, files, strict=True):
        if not file.is_file():
            raise DataError(f"{file}: no such file: {entry.name} needs it")
        found = _checksum(file, remote.checksum.partition(":")[0] or "sha256")
        if remote.checksum and found != remote.checksum:
            raise DataError(f"{file}: its checksum is {found}, expected {remote.checksum}: another or a damaged file")
    return files


def _checksum(file: Path, kind: str) -> str:
    with file.open("rb") as content:
        return f"{kind}:{hashlib.file_digest(content, kind).hexdigest()}"


def _known(remote: Remote, folder: Path) -> str:
    """Return a file's checksum: the catalogue's, else that of the first download, else an empty text."""
    record = folder / f"{remote.name}.checksum"  # of the first download
    return remote.checksum or (record.read_text(encoding="ascii").strip() if record.is_file() else "")


def _download(entry: Entry, remote: Remote, folder: Path, on_progress: OnProgress | None) -> Path:
    """Return one file of an entry, downloaded unless it is there already as it should be."""
    try:
        import pooch  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UsageError(f"{entry.name}: downloading needs pooch: pip install 'p2pclust[fetch]'") from error
    pooch.get_logger().setLevel("WARNING")  # what it would say is said here, in one line
    record, known = folder / f"{remote.name}.checksum", _known(remote, folder)
    problems = []
    for url in remote.urls:
        receive = _Resumed(folder / f"{remote.name}.part", safe=bool(known), name=remote.name, on_progress=on_progress)
        try:
            pooch.retrieve(url, known_hash=known or None, fname=remote.name, path=folder, downloader=receive)
        except _DownloadError as error:
            problems.append(f"{url}: {error}")
        except ValueError as error:  # Pooch's word for a checksum that does not match
            if "hash" not in str(error):
                raise
            got = re.search(r"but got ([0-9a-f]+)", str(error))
            recorded = "" if remote.checksum else f" as at the first download, see {record},"
            problems.append(
                f"{url}: wrong checksum: expected {known}{recorded} but got {got[1] if got else 'another'}: the download "
                "was thrown away"
            )
        except OSError as error:
            raise DataError(f"{folder}: cannot be written ({error.strerror}): choose another folder") from error
        else:
            if not known:
                record.write_text(_checksum(folder / remote.name, "sha256") + "\n", encoding="ascii")
            return folder / remote.name
    for left in (folder, folder.parent):
        if not any(left.iterdir()):  # nothing has come, so nothing is left behind
            left.rmdir()
    kind = DataError if any("wrong checksum" in problem for problem in problems) else UsageError
    raise kind(f"{entry.name}: {'; '.join(problems)}")


class _DownloadError(Exception):
    """A download that cannot be done now."""


class _Resumed:
    """Pooch's downloader over HTTP, which resumes a broken download.

    `part` is what was downloaded so far; its validator (ETag or date) is kept next to it. Without it, and without a
    checksum that detects that the file changed in between (`safe`), a download begins anew.
    """

    def __init__(self, part: Path, *, safe: bool, name: str, on_progress: OnProgress | None) -> None:
        self.part, self.safe, self.name, self.on_progress = part, safe, name, on_progress
        self.validator = part.with_name(f"{part.name}.validator")
        self.total: int | None = None
        self.answered = False
        self.file: BinaryIO

    def __call__(self, url: str, output_file: str, _pooch: Any) -> None:
        """Download, and hand the whole file over; Pooch checks it and moves it into place."""
        for _ in range(_RESUMPTIONS):
            before = self._size()
            try:
                self._receive(url)
            except _DownloadError:
                if self._size() == 0:
                    self.part.unlink(missing_ok=True)
                    self.validator.unlink(missing_ok=True)
                if self._size() <= before:  # no progress: asking again would not help
                    raise
            else:
                break
        else:
            raise _DownloadError(
                f"the connection breaks again and again; {self._size()} bytes are kept: run it again to resume"
            )
        self.part.replace(output_file)
        self.validator.unlink(missing_ok=True)

    def _size(self) -> int:
        return self.part.stat().st_size if self.part.is_file() else 0

    def _receive(self, url: str) -> None:
        import pooch  # noqa: PLC0415 - an extra
        import requests  # noqa: PLC0415 - Pooch's own

        self.answered = False
        with self.part.open("ab") as self.file:
            start = self.file.seek(0, os.SEEK_END)
            validator = self.validator.read_text(encoding="latin-1") if self.validator.is_file() else ""
            if start and not validator and not self.safe:
                start = self._begin_anew()
            headers = {"Accept-Encoding": "identity"}  # a part of a compressed stream would be of no use
            if start:
                headers["Range"] = f"bytes={start}-"
                if validator:
                    headers["If-Range"] = validator
            download = pooch.HTTPDownloader(chunk_size=_CHUNK, headers=headers, hooks={"response": self._answered})
            try:
                download(url, self, None)
            except requests.exceptions.HTTPError as error:
                answer: Any = error.response
                if start and answer.status_code == 416:  # what is here cannot be the beginning of that file
                    self._begin_anew()
                    raise _DownloadError("the file has changed since the download began: run it again") from error
                what = f"{answer.status_code} {answer.reason}".strip()
                raise _DownloadError(f"the server answered {what}") from error
            except requests.exceptions.ConnectionError as error:
                raise _DownloadError(self._broken(error)) from error
            except requests.exceptions.Timeout as error:
                raise _DownloadError(f"the server at {urlsplit(url).netloc} does not answer") from error
            except requests.exceptions.RequestException as error:
                raise _DownloadError(self._broken(error)) from error
            size = self.file.tell()
        if self.total is not None and size != self.total:
            raise _DownloadError(f"the connection broke after {size} of {self.total} bytes: run it again to resume")

    def _broken(self, error: Exception) -> str:
        if self.answered:
            return f"the connection broke after {self.file.tell()} bytes: run it again to resume"
        words = str(error).lower()
        unknown = "resol" in words or "getaddrinfo" in words or "name or service" in words
        return f"no connection{' (its address is not known here: is this machine offline?)' if unknown else ''}"

    def _begin_anew(self) -> int:
        self.file.seek(0)
        self.file.truncate()
        return 0

    def _answered(self, response: Any, *_args: Any, **_settings: Any) -> None:
        """Look at the head of an answer, before its content is written."""
        if response.status_code == 200:
            self._begin_anew()  # the server sends the whole file, not a range
        elif response.status_code != 206:
            return
        self.answered = True
        length = response.headers.get("Content-Length", "")
        self.total = self.file.tell() + int(length) if length.isdigit() else None
        validator = response.headers.get("ETag", "")
        if not validator or validator.startswith("W/"):  # a weak one does not promise the same bytes
            validator = response.headers.get("Last-Modified", "")
        self.validator.write_text(validator, encoding="latin-1")

    def write(self, chunk: bytes) -> None:
        self.file.write(chunk)
        if self.on_progress is not None:
            self.on_progress(self.name, self.file.tell(), self.total)

    def flush(self) -> None:
        """Pooch asks for it after each piece; the file is flushed when it is closed."""
