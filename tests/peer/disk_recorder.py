"""Records what is written and synced below a directory, by SQLite and by Python, and makes what a power cut could leave.

Python's calls are watched in `os`; those of SQLite in the table of functions of its own virtual file system, so the very
library that the store uses is recorded. After each call the files are compared with what they were, sector by sector.

The disk that is modelled is one that keeps the rules and no more: sectors are written whole or not at all, in any order,
until their file is synced; a name appears, moves or vanishes for good when its directory is synced, and those of one
directory do so in order. Zeros stand where a file grew and its sectors were not written.
"""

from __future__ import annotations

import _sqlite3
import ctypes
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Image", "Moment", "Recorder", "sqlite_can_be_watched", "without_syncs"]

_FEW = 3  # sectors, of which all sets are tried
Image = Mapping[str, bytes | None]
"""The files of a directory, by relative path; None for a directory in it."""

_ROOT = 0


@dataclass(eq=False)
class _File:
    """One file: as it would survive a power cut, and what was written since."""

    sector_bytes: int
    now: bytes = b""
    synced: bytes = b""
    written: list[tuple[int, bytes]] = field(default_factory=list)  # where sectors begin, and what is in them
    sizes: list[int] = field(default_factory=list)

    def update(self, data: bytes) -> None:
        if data == self.now:
            return
        if len(data) != len(self.now):
            self.sizes.append(len(data))
        for start in range(0, len(data), self.sector_bytes):
            sector = data[start : start + self.sector_bytes]
            if sector != self.now[start : start + self.sector_bytes]:
                self.written.append((start, sector))
        self.now = data

    def sync(self) -> None:
        self.synced, self.written, self.sizes = self.now, [], []


_Names = Mapping[str, int | None]  # of one directory: the numbers of files and directories; None: gone


@dataclass(frozen=True)
class Moment:
    """An instant at which power may fail: what is safe, and what is not."""

    what: str  # the call that was made last
    promise: Any  # what the user of the disk had been promised
    safe: Mapping[int, _Names]  # by directory
    moves: tuple[tuple[int, _Names], ...]  # in order: the directory, and what its names became
    files: Mapping[int, tuple[bytes, tuple[tuple[int, bytes], ...], tuple[int, ...]]]  # synced, sectors, sizes

    def images(self, rng: np.random.Generator, n_samples: int) -> Iterator[Image]:
        """Yield what a power cut may leave: nothing unsynced, everything, all sets of few sectors, and samples."""
        yield self._image(lambda n: 0, lambda: False)
        yield self._image(lambda n: n, lambda: True)
        n_sectors = sum(len(sectors) for _, sectors, _ in self.files.values())
        if n_sectors <= _FEW:
            for choice in itertools.product((False, True), repeat=n_sectors):
                left = iter(choice)
                yield self._image(lambda n: n, lambda left=left: next(left, False))
        units = len(self.moves) + sum(len(sectors) + len(sizes) for _, sectors, sizes in self.files.values())
        for number in range(min(n_samples, 2**units - 2)):
            share = (0.5, 0.9, 0.1)[number % 3]
            yield self._image(lambda n: int(rng.integers(n + 1)), lambda p=share: bool(rng.random() < p))

    def _image(self, first: Callable[[int], int], persists: Callable[[], bool]) -> Image:
        """Choose how many changes of names persist in each directory, and which sectors."""
        image: dict[str, bytes | None] = {}
        left = [(_ROOT, "")]
        while left:
            directory, path = left.pop()
            moves = [names for of, names in self.moves if of == directory]
            entries = dict(self.safe.get(directory, {}))
            for names in moves[: first(len(moves))]:
                entries |= names
            for name, number in sorted(entries.items()):
                if number in self.files:
                    image[path + name] = self._content(number, first, persists)
                elif number is not None:
                    image[path + name] = None
                    left.append((number, f"{path}{name}/"))
        return image

    def _content(self, number: int, first: Callable[[int], int], persists: Callable[[], bool]) -> bytes:
        synced, sectors, sizes = self.files[number]
        lengths = (len(synced), *sizes)
        size = lengths[first(len(lengths) - 1)]
        data = bytearray(synced[:size].ljust(size, b"\0"))
        for start, content in sectors:
            if persists():
                data[start : start + len(content)] = content
        return bytes(data[:size].ljust(size, b"\0"))


class Recorder:
    """Watches one directory. `promise` is what its user relies on; each moment keeps the one of its time."""

    def __init__(self, root: Path, sector_bytes: int = 512) -> None:
        self.root = root
        self._sector_bytes = sector_bytes
        self.moments: list[Moment] = []
        self.promise: Any = None
        self._files: dict[int, _File] = {}
        self._last = _ROOT
        self._by_inode: dict[int, int] = {}
        self._now: dict[int, dict[str, int]] = {}
        self._moves: list[tuple[int, _Names]] = []
        self._look()
        for file in self._files.values():  # what is there at the start is safe
            file.sync()
        self._safe: dict[int, dict[str, int | None]] = {number: dict(names) for number, names in self._now.items()}
        self._moves = []

    # -- what happens -----------------------------------------------------------------------------------------------

    def happened(self, what: str) -> None:
        """Something was written, named or promised."""
        self._look()
        files = {n: (file.synced, tuple(file.written), tuple(file.sizes)) for n, file in self._files.items()}
        safe = {number: dict(names) for number, names in self._safe.items()}
        self.moments.append(Moment(what, self.promise, safe, tuple(self._moves), files))

    def synced(self, path: str) -> None:
        """A file, or the names in a directory, are on the disk."""
        self._look()
        number = _ROOT if os.path.samefile(path, self.root) else self._by_inode[os.stat(path).st_ino]
        if number in self._files:
            self._files[number].sync()
        else:
            for of, names in self._moves:
                if of == number:
                    self._safe[number] = self._safe.get(number, {}) | names
            self._moves = [move for move in self._moves if move[0] != number]
        self.happened(f"sync {os.path.relpath(path, self.root)}")

    def _look(self) -> None:
        """Compare all files and names with what they were."""
        inodes: dict[int, int] = {}
        now: dict[int, dict[str, int]] = {}
        left = [(_ROOT, str(self.root))]
        while left:
            directory, folder = left.pop()
            names = now[directory] = {}
            for name in sorted(os.listdir(folder)):
                path = os.path.join(folder, name)
                inode = os.stat(path).st_ino
                number = names[name] = inodes[inode] = self._number(inode)
                if os.path.isdir(path):
                    left.append((number, path))
                    continue
                with open(path, "rb") as file:
                    self._files.setdefault(number, _File(self._sector_bytes)).update(file.read())
        for directory, names in now.items():
            before = self._now.get(directory, {})
            gone = dict.fromkeys(name for name in before if name not in names)
            changes = gone | {name: number for name, number in names.items() if before.get(name) != number}
            if changes:
                self._moves.append((directory, changes))
        self._by_inode, self._now = inodes, now  # the inode of a deleted file may be used again

    def _number(self, inode: int) -> int:
        if inode not in self._by_inode:
            self._last += 1
            self._by_inode[inode] = self._last
        return self._by_inode[inode]

    # -- watching -----------------------------------------------------------------------------------------------------

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record all calls of Python and of SQLite below the directory."""
        with _python(self), _sqlite(self):
            yield


_CHANGING = ("replace", "rename", "unlink", "remove", "mkdir", "ftruncate", "pwrite", "write")


@contextmanager
def _python(recorder: Recorder) -> Iterator[None]:
    originals = {name: getattr(os, name) for name in (*_CHANGING, "fsync", "fdatasync", "open")}

    def noted(name: str) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            result = originals[name](*args, **named)
            recorder.happened(name)
            return result

        return call

    def fsync(fd: int) -> None:
        path = os.readlink(f"/proc/self/fd/{fd}")
        if (path + "/").startswith(f"{recorder.root}/"):
            recorder.synced(path)
        else:
            originals["fsync"](fd)

    def opened(path: Any, flags: int, *args: Any, **named: Any) -> int:
        fd: int = originals["open"](path, flags, *args, **named)
        if flags & (os.O_CREAT | os.O_TRUNC):
            recorder.happened("open")
        return fd

    for name in _CHANGING:
        setattr(os, name, noted(name))
    os.fsync = os.fdatasync = fsync
    os.open = opened
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(os, name, original)


# -- SQLite: the table of functions of a virtual file system, https://sqlite.org/c3ref/vfs.html --------------------------

_FILE_METHODS = (
    "close", "read", "write", "truncate", "sync", "file_size", "lock", "unlock", "check_reserved_lock", "file_control",
    "sector_size", "device_characteristics", "shm_map", "shm_lock", "shm_barrier", "shm_unmap", "fetch", "unfetch",
)  # fmt: skip


class _Methods(ctypes.Structure):
    _fields_ = (("version", ctypes.c_int), *((name, ctypes.c_void_p) for name in _FILE_METHODS))


class _OpenFile(ctypes.Structure):
    _fields_ = (("methods", ctypes.POINTER(_Methods)),)


class _Vfs(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_int), ("size_of_file", ctypes.c_int), ("longest_path", ctypes.c_int),
        ("next", ctypes.c_void_p), ("name", ctypes.c_char_p), ("data", ctypes.c_void_p),
        *((name, ctypes.c_void_p) for name in (
            "open", "delete", "access", "full_path", "dl_open", "dl_error", "dl_sym", "dl_close", "randomness", "sleep",
            "time", "last_error", "time64", "set_call", "get_call", "next_call",
        )),
    )  # fmt: skip


_FILE, _INT, _INT64 = ctypes.POINTER(_OpenFile), ctypes.c_int, ctypes.c_int64
# SQLite keeps the address of a name, so it is passed on as it is.
_Open = ctypes.CFUNCTYPE(_INT, ctypes.c_void_p, ctypes.c_void_p, _FILE, _INT, ctypes.c_void_p)
_Delete = ctypes.CFUNCTYPE(_INT, ctypes.c_void_p, ctypes.c_char_p, _INT)
_Write = ctypes.CFUNCTYPE(_INT, _FILE, ctypes.c_void_p, _INT, _INT64)
_Truncate = ctypes.CFUNCTYPE(_INT, _FILE, _INT64)
_Sync = ctypes.CFUNCTYPE(_INT, _FILE, _INT)
_OpenDirectory = ctypes.CFUNCTYPE(_INT, ctypes.c_char_p, ctypes.c_void_p)
_SetCall = ctypes.CFUNCTYPE(_INT, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_GetCall = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)


def _library() -> ctypes.CDLL:
    """Return the library that `sqlite3` uses."""
    return ctypes.CDLL(_sqlite3.__file__)


def sqlite_can_be_watched() -> bool:
    """Return whether this Python loads SQLite as a library: some have it built in, without names."""
    return hasattr(_sqlite3, "__file__") and hasattr(_library(), "sqlite3_vfs_find")


def _address(function: Any) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value


class _Watch:
    """Functions in the place of SQLite's own: each calls the original, then the recorder."""

    def __init__(self, recorder: Recorder | None, vfs: _Vfs) -> None:
        self._recorder = recorder
        self._paths: dict[int | None, str] = {}
        self._tables: dict[int | None, tuple[_Methods, _Methods]] = {}  # by address: a copy of it, and ours
        self._directories: list[str] = []  # opened to be synced
        self._open, self._delete = _Open(vfs.open), _Delete(vfs.delete)
        get = _GetCall(vfs.get_call)
        self.directory_before = get(ctypes.addressof(vfs), b"openDirectory")
        self._open_directory = _OpenDirectory(self.directory_before)
        # Kept as long as SQLite may call them.
        self.callbacks = (_Open(self.opened), _Delete(self.deleted), _OpenDirectory(self.directory_opened))
        self._callbacks = (_Write(self.written), _Truncate(self.truncated), _Sync(self.synced))

    def opened(self, vfs: int, name: int | None, file: Any, flags: int, out: int) -> int:
        result = self._open(vfs, name, file, flags, out)
        if result == 0 and name:
            self._paths[_address(file)] = os.fsdecode(ctypes.string_at(name))
            before = file.contents.methods
            at = ctypes.addressof(before.contents)
            if at not in self._tables:
                original, ours = _Methods(), _Methods()
                for table in (original, ours):
                    ctypes.memmove(ctypes.addressof(table), at, ctypes.sizeof(_Methods))
                if self._recorder is None:
                    ours.sync = _address(self._callbacks[2])
                else:
                    ours.write, ours.truncate, ours.sync = map(_address, self._callbacks)
                self._tables[at] = self._tables[ctypes.addressof(ours)] = original, ours
            file.contents.methods = ctypes.pointer(self._tables[at][1])
            self._happened("open")
        return int(result)

    def _happened(self, what: str) -> None:
        if self._recorder is not None:
            self._recorder.happened(what)

    def _original(self, file: Any) -> _Methods:
        return self._tables[ctypes.addressof(file.contents.methods.contents)][0]

    def written(self, file: Any, data: int, size: int, start: int) -> int:
        result = _Write(self._original(file).write)(file, data, size, start)
        self._happened(f"write {os.path.basename(self._paths[_address(file)])} {start}+{size}")
        return int(result)

    def truncated(self, file: Any, size: int) -> int:
        result = _Truncate(self._original(file).truncate)(file, size)
        self._happened("truncate")
        return int(result)

    def synced(self, file: Any, flags: int) -> int:
        if self._recorder is None:
            return 0
        result = _Sync(self._original(file).sync)(file, flags)
        self._recorder.synced(self._paths[_address(file)])
        self._sync_directories()
        return int(result)

    def deleted(self, vfs: int, name: bytes, sync: int) -> int:
        result = self._delete(vfs, name, sync)
        self._happened("delete")
        self._sync_directories()
        return int(result)

    def directory_opened(self, path: bytes, out: int) -> int:
        """Note a directory: SQLite opens one to sync it only."""
        self._directories.append(os.path.dirname(os.fsdecode(path)))
        return int(self._open_directory(path, out))

    def _sync_directories(self) -> None:
        while self._directories:
            directory = self._directories.pop()
            if self._recorder is not None:
                self._recorder.synced(directory)


#: All that there ever were: a database that a failing test left open calls them when it is closed at last.
_WATCHES: list[_Watch] = []


@contextmanager
def _sqlite(recorder: Recorder | None) -> Iterator[None]:
    library = _library()
    library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
    vfs = library.sqlite3_vfs_find(None).contents
    watch = _Watch(recorder, vfs)
    _WATCHES.append(watch)
    before = vfs.open, vfs.delete
    set_call = _SetCall(vfs.set_call)
    vfs.open, vfs.delete = map(_address, watch.callbacks[:2])
    set_call(ctypes.addressof(vfs), b"openDirectory", _address(watch.callbacks[2]))
    try:
        yield
    finally:
        vfs.open, vfs.delete = before
        set_call(ctypes.addressof(vfs), b"openDirectory", watch.directory_before)


@contextmanager
def without_syncs() -> Iterator[None]:
    """Let nothing wait for the disk, to try many images in a short time. Files must be closed before the context ends."""
    fsync, fdatasync = os.fsync, os.fdatasync
    os.fsync = os.fdatasync = lambda fd: None
    try:
        with _sqlite(None):
            yield
    finally:
        os.fsync, os.fdatasync = fsync, fdatasync
