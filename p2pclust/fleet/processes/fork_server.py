"""A process that imports what peers need once, and forks every peer of a local fleet from itself.

A new interpreter spends a quarter of a second of processor time on imports, two seconds if the peer trains models, and
keeps all of it in memory of its own. A fork begins with everything imported, in pages that it shares with its siblings.

In:  on a Unix socket a line with the path of a configuration, and three descriptors: the peer's input, output and log.
Out: on standard output, as JSON lines, ``{"pid": 7}`` for each peer in the order of the requests, and
``{"pid": 7, "code": 0}`` when one has ended, a negative code being a signal.

Nothing here ever starts a thread: a fork would copy the locks of all threads, but only one of them. When the input ends,
so does this process; on Linux it is killed with its parent, and its peers with it.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

from p2pclust.peer.main import die_with_parent, run_peer

__all__ = ["main"]

_MAX_REQUEST = 1 << 16
_MAX_DESCRIPTORS = 64
_STREAMS = 3  # input, output, log


class _Server:
    """Takes requests, forks peers, and buries them."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._partial = b""
        self._descriptors: list[int] = []
        self._woken, self._wake = socket.socketpair()
        self._wake.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(requests, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        signal.set_wakeup_fd(self._wake.fileno())
        signal.signal(signal.SIGCHLD, lambda number, frame: None)  # it is the descriptor that wakes us

    def run(self) -> None:
        """Serve until nobody can ask for anything any more."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._woken:
                    self._woken.recv(4096)
                    _bury()
                elif not self._take():
                    return

    def _take(self) -> bool:
        data, descriptors, _, _ = socket.recv_fds(self._requests, _MAX_REQUEST, _MAX_DESCRIPTORS)
        self._descriptors += descriptors
        *paths, self._partial = (self._partial + data).split(b"\n")
        for path in paths:
            streams, self._descriptors = self._descriptors[:_STREAMS], self._descriptors[_STREAMS:]
            self._fork(Path(os.fsdecode(path)), streams)
        return bool(data)

    def _fork(self, config: Path, streams: list[int]) -> None:
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become(config, streams, server)
        for descriptor in streams:
            os.close(descriptor)
        _tell({"pid": pid})

    def _become(self, config: Path, streams: list[int], server: int) -> NoReturn:
        """Be the peer, in the child, to its end: whoever called this must never go on here."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for ours in (self._selector, self._requests, self._woken, self._wake):
                ours.close()
            for place, descriptor in enumerate(streams):
                os.dup2(descriptor, place)
            for descriptor in (*streams, *self._descriptors):  # those of the next ones too
                os.close(descriptor)
            die_with_parent()
            if os.getppid() == server:  # or it died before we could ask to die with it
                fields = json.loads(config.read_text())
                _show_name(str(fields.get("name", "")))
                code = run_peer(fields)
        except BaseException:  # noqa: BLE001 (told in the log, as an interpreter would; it has no caller)
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)


def _bury() -> None:
    """Take note of every peer that has ended."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:  # none is left
            return
        if pid == 0:
            return
        _tell({"pid": pid, "code": os.waitstatus_to_exitcode(status)})


def _tell(fields: dict[str, Any]) -> None:
    os.write(1, json.dumps(fields).encode() + b"\n")


def _show_name(name: str) -> None:
    """Let tools that list processes show the peer's name: all forks have the command line of this process."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(15, name.encode()[:15])  # PR_SET_NAME


def main() -> int:
    """Serve on the socket whose descriptor is the first argument; the others are modules to import beforehand."""
    die_with_parent()
    for module in sys.argv[2:]:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # a collection in a peer must not touch, and so copy, what all share
    _Server(socket.socket(fileno=int(sys.argv[1]))).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
