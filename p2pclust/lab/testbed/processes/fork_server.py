"""A process that imports the modules of peers once, and forks each peer of a local fleet.

A new interpreter spends a quarter of a second of processor time on imports, two seconds if the peer trains models, and
keeps the modules in its own memory. A fork starts with everything imported, in pages that it shares with other peers.

In:  on a Unix socket, a line with the path of a configuration, and three descriptors: the peer's input, output and log.
Out: on standard output, as JSON lines, ``{"pid": 7}`` for each peer in the order of the requests, and
``{"pid": 7, "code": 0}`` when one has ended; a negative code is a signal.

This process must never start a thread: a fork copies the locks of all threads, but only one thread. When the input ends,
the process ends; on Linux it is killed with its parent, and its peers with it.
"""

from __future__ import annotations

import contextlib
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

from p2pclust.lab.testbed.peer.attached import run_attached
from p2pclust.peer.main import die_with_parent

_MAX_REQUEST = 1 << 16
_MAX_DESCRIPTORS = 64
_STREAMS = 3  # input, output, log


class _Server:
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
        signal.signal(signal.SIGCHLD, lambda number, frame: None)  # the wake-up descriptor ends the wait

    def run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._woken:
                    self._woken.recv(4096)
                    with contextlib.suppress(ChildProcessError):  # no child is left
                        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                            _write({"pid": ended[0], "code": os.waitstatus_to_exitcode(ended[1])})
                elif not self._take():
                    return

    def _take(self) -> bool:
        data, descriptors, _, _ = socket.recv_fds(self._requests, _MAX_REQUEST, _MAX_DESCRIPTORS)
        self._descriptors += descriptors
        *paths, self._partial = (self._partial + data).split(b"\n")
        for path in paths:
            streams, self._descriptors = self._descriptors[:_STREAMS], self._descriptors[_STREAMS:]
            server, pid = os.getpid(), os.fork()
            if pid == 0:
                self._become(Path(os.fsdecode(path)), streams, server)
            for descriptor in streams:
                os.close(descriptor)
            _write({"pid": pid})
        return bool(data)

    def _become(self, config: Path, streams: list[int], server: int) -> NoReturn:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for ours in (self._selector, self._requests, self._woken, self._wake):
                ours.close()
            for place, descriptor in enumerate(streams):
                os.dup2(descriptor, place)
            for descriptor in (*streams, *self._descriptors):  # also those of requests not yet handled
                os.close(descriptor)
            die_with_parent()
            if os.getppid() == server:  # otherwise the server died before `die_with_parent`
                fields = json.loads(config.read_text())
                if sys.platform == "linux":  # show its name in lists of processes: all forks have one command line
                    ctypes.CDLL(None).prctl(15, str(fields.get("name", "")).encode()[:15])  # PR_SET_NAME
                code = run_attached(fields)
        except BaseException:  # noqa: BLE001 (written to the log; there is no caller)
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)


def _write(fields: dict[str, Any]) -> None:
    os.write(1, json.dumps(fields).encode() + b"\n")


def main() -> int:
    """Serve on the socket whose descriptor is the first argument; import the modules in the other arguments first."""
    die_with_parent()
    for module in sys.argv[2:]:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # a collection in a peer must not write to, and so copy, shared pages
    _Server(socket.socket(fileno=int(sys.argv[1]))).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
