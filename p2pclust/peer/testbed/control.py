"""The door for whoever started this peer: JSON lines in on standard input, JSON lines out on standard output.

In:  {"do": "submit", "job": base64, ...} | {"do": "state", "job": id, "file": path} | {"do": "counters"} | {"do": "leave"}
     | {"do": "link", "peer": name, "up": true} | {"do": "suffer", "number": of the request, ...} (see suffering.py)
Out: {"t": seconds, "verb": ..., ...} for everything that the core reports, and the answers, verbs "state", "counters" and
"suffers". A state that is a blob is written into the file, if one is named: a line of a hundred megabytes helps nobody.

When the input ends, whoever started the peer is gone, and the peer leaves: no orphan survives its parent.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from p2pclust.peer.core.events import Linked, Submit
from p2pclust.peer.operate.status import max_rss_mb
from p2pclust.peer.shell.shell import Shell

__all__ = ["Control", "Lines"]

_MAX_BUFFERED = 8 * 1024 * 1024


class Lines:
    """Writes lines to a descriptor without ever blocking the loop; a reader that stopped reading loses old lines."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[bytes] = deque()
        self._buffered = 0
        os.set_blocking(fd, False)

    def write(self, fields: Mapping[str, Any]) -> None:
        """Write one object; at once if the pipe takes it, so that even last words get out."""
        self._waiting.append(json.dumps(fields, default=_plain).encode() + b"\n")
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
            self._waiting.clear()  # nobody listens any more; the end of the input ends this peer
            self._loop.remove_writer(self._fd)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | set | frozenset):
        return list(value)
    if isinstance(value, bytes):
        return value.hex()
    return str(value)


class Control:
    """Serves one peer's door."""

    def __init__(self, shell: Shell, lines: Lines, suffer: Callable[[Mapping[str, Any]], None]) -> None:
        self._shell = shell
        self._lines = lines
        self._suffer = suffer
        self._partial = b""
        self._actions: dict[str, Callable[[Mapping[str, Any]], None]] = {
            "submit": self._submit,
            "state": self._state,
            "note": self._note,
            "blob": self._blob,
            "counters": self._counters,
            "link": lambda request: shell.step(Linked(request["peer"], bool(request["up"]))),
            "suffer": self._begin_to_suffer,
            "leave": lambda request: shell.leave(),
        }

    def serve(self, fd: int) -> None:
        """Read requests from the descriptor until it ends."""
        os.set_blocking(fd, False)
        asyncio.get_running_loop().add_reader(fd, self._read, fd)

    def _read(self, fd: int) -> None:
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return
        if not data:
            asyncio.get_running_loop().remove_reader(fd)
            self._shell.leave()
            return
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            request = json.loads(line)
            self._actions[request["do"]](request)

    def _submit(self, request: Mapping[str, Any]) -> None:
        self._shell.step(
            Submit(
                base64.b64decode(request["job"]), tuple(request["roster"]), request["missing"], request["patience_s"],
                request["deadline_s"], request["aggregator"], request["collect"],
                tolerance=request["tolerance"], mixing=request["mixing"], ticks=request["ticks"],
            )
        )  # fmt: skip

    def _begin_to_suffer(self, request: Mapping[str, Any]) -> None:
        """Be broken, slow or wrong as the testbed wants it, and say that it is so now."""
        self._suffer(request)
        self._lines.write({"verb": "suffers", "number": request["number"]})

    def _state(self, request: Mapping[str, Any]) -> None:
        """Tell the state in the register of a job."""
        job = self._shell.core.jobs.jobs.get(request["job"])
        answer = {"verb": "state", "job": request["job"], "finished": False, "state": ""}
        if job is not None and job.ledger.register.ref is not None:
            ref = job.ledger.register.ref
            answer["finished"] = job.ledger.finished
            if ref.payload is None and request.get("file"):
                with Path(request["file"]).open("wb") as file:
                    file.writelines(self._shell.store.read_blob(ref.digest))
                answer["file"] = request["file"]
            else:
                data = ref.payload if ref.payload is not None else b"".join(self._shell.store.read_blob(ref.digest))
                answer["state"] = base64.b64encode(data).decode()
        self._lines.write(answer)

    def _note(self, request: Mapping[str, Any]) -> None:
        """Write what this peer kept for itself of a job into a file; empty if that is nothing."""
        job = self._shell.core.jobs.jobs.get(request["job"])
        Path(request["file"]).write_bytes(b"" if job is None else job.workspace.note)
        self._lines.write({"verb": "note", "job": request["job"], "file": request["file"]})

    def _blob(self, request: Mapping[str, Any]) -> None:
        """Write a blob into a file; empty if it is not here."""
        digest = bytes.fromhex(request["digest"])
        here = self._shell.core.blobs.has(digest)
        with Path(request["file"]).open("wb") as file:
            file.writelines(self._shell.store.read_blob(digest) if here else ())
        self._lines.write({"verb": "blob", "digest": request["digest"], "file": request["file"]})

    def _counters(self, request: Mapping[str, Any]) -> None:
        counters = self._shell.links.counters
        self._lines.write(
            {
                "verb": "counters",
                "messages_sent": counters.messages_sent,
                "messages_received": counters.messages_received,
                "bytes_sent": counters.bytes_sent,
                "bytes_received": counters.bytes_received,
                "dropped": counters.dropped,
                "max_rss_mb": max_rss_mb(),
                "cpu_s": time.process_time(),
            }
        )
