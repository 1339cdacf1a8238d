"""Control of a peer by the testbed that started it: JSON lines in on standard input, JSON lines out on standard output.

In:  {"do": "submit", "job": base64, ...} | {"do": "read", "what": ..., "key": ..., "file": path} | {"do": "counters"}
     | {"do": "link", "peer": name, "up": true} | {"do": "suffer", "number": of the request, ...} (see conditions.py)
     | {"do": "leave"}
Out: {"t": seconds, "verb": ..., ...} for everything that the core reports; what round_views.py adds; and the
answers, verbs "read", "counters" and "suffers".

What is read goes into the file, because it can have hundreds of megabytes: the "state" of a job or this peer's "note" on
it (the key is the job's id), or a "blob" (its digest in hex). The file is empty if that is not here.

When the input ends, the testbed is gone, and the peer leaves: no peer outlives it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from p2pclust.lab.testbed.peer.conditions import ImposedConditions
from p2pclust.lab.testbed.peer.round_views import RoundViews
from p2pclust.peer.core.events import Linked, Submit
from p2pclust.peer.core.treatment import Treatment
from p2pclust.peer.operate.device import max_rss_mb
from p2pclust.peer.shell.logs import plain
from p2pclust.peer.shell.shell import Shell

_MAX_BUFFERED = 8 * 1024 * 1024


class JsonLines:
    """Writes lines to a descriptor without blocking the loop; if the reader stops reading, old lines are dropped."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[bytes] = deque()
        self._buffered = 0
        os.set_blocking(fd, False)

    def write(self, fields: Mapping[str, Any]) -> None:
        """Write one object; at once if the pipe has room, so that a report before a fault gets out."""
        self._waiting.append(json.dumps(fields, default=plain).encode() + b"\n")
        self._buffered += len(self._waiting[-1])
        while self._buffered > _MAX_BUFFERED and len(self._waiting) > 1:
            self._buffered -= len(self._waiting.popleft())
        self._flush()

    def _flush(self) -> None:
        try:
            while self._waiting:
                written = os.write(self._fd, self._waiting[0])
                self._buffered -= written
                if written == len(self._waiting[0]):
                    self._waiting.popleft()
                else:
                    self._waiting[0] = self._waiting[0][written:]
            self._loop.remove_writer(self._fd)
        except BlockingIOError:
            self._loop.add_writer(self._fd, self._flush)
        except BrokenPipeError:
            self._waiting.clear()  # the reader is gone; the end of the input ends this peer
            self._loop.remove_writer(self._fd)


def serve(fd: int, shell: Shell, lines: JsonLines, conditions: ImposedConditions) -> None:
    """Carry out the requests that come on a descriptor, until it ends; report the rounds of this peer's jobs, too."""
    loop, partial = asyncio.get_running_loop(), b""

    def read() -> None:
        nonlocal partial
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return
        if not data:
            loop.remove_reader(fd)
            shell.leave()
            return
        *requests, partial = (partial + data).split(b"\n")
        for request in requests:
            _carry_out(json.loads(request), shell, lines, conditions)

    RoundViews(shell, lines.write)
    os.set_blocking(fd, False)
    loop.add_reader(fd, read)


def _carry_out(request: Mapping[str, Any], shell: Shell, lines: JsonLines, conditions: ImposedConditions) -> None:
    match request["do"]:
        case "submit":
            treatment = Treatment(**request["treatment"])
            shell.step(Submit(base64.b64decode(request["job"]), tuple(request["roster"]), treatment))
        case "read":
            with Path(request["file"]).open("wb") as file:
                file.writelines(_find(shell, request["what"], request["key"]))
            lines.write({"verb": "read", "file": request["file"]})
        case "counters":
            own = {"max_rss_mb": max_rss_mb(), "cpu_s": time.process_time()}
            lines.write({"verb": "counters", **asdict(shell.links.counters), **own})
        case "link":
            shell.step(Linked(request["peer"], bool(request["up"])))
        case "suffer":
            conditions.take(request)
            lines.write({"verb": "suffers", "number": request["number"]})
        case "leave":
            shell.leave()


def _find(shell: Shell, what: str, key: str) -> Iterable[bytes]:
    core, stored = shell.core, shell.store.blobs
    if what == "blob":
        return stored.read(bytes.fromhex(key)) if core.blobs.has(bytes.fromhex(key)) else ()
    job = core.jobs.jobs.get(key)
    if job is None:
        return ()
    if what == "note":
        return (job.workspace.note,)
    if (ref := job.ledger.register.ref) is None:
        return ()
    return stored.read(ref.digest) if ref.payload is None else (ref.payload,)
