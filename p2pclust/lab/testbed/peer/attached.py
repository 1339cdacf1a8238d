"""What a testbed attaches to a peer: a shaped link, faults, and control by JSON lines.

In addition to the keys of `p2pclust.peer.main.run_peer`, the configuration has ``stdio`` (whether the testbed drives the
peer), ``faults`` (a list), ``suffers`` (see `p2pclust.lab.testbed.peer.conditions`) and perhaps ``link``: the ``shape`` of
this device's link, the ``seed`` of what it loses, and the ``rates`` of others' up-links, see `p2pclust.lab.links.shaping`.

In:  {"do": "submit", "job": base64, ...} | {"do": "read", "what": ..., "key": ..., "file": path} | {"do": "counters"}
     | {"do": "link", "peer": name, "up": true} | {"do": "suffer", "number": of the request, ...} (see `conditions`)
     | {"do": "leave"}
Out: {"t": seconds, "verb": ..., ...} for everything that the core reports; what `round_views` adds; and the
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
import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from p2pclust.lab.links.breaking import BreakableLinks
from p2pclust.lab.links.delayed import shape_own
from p2pclust.lab.links.shaping import Shape
from p2pclust.lab.testbed.peer.conditions import ImposedConditions, PlannedFault, PlannedFaults
from p2pclust.lab.testbed.peer.lies import FirstUse
from p2pclust.lab.testbed.peer.round_views import RoundViews
from p2pclust.peer.core.effects import Effect
from p2pclust.peer.core.events import Linked, Submit
from p2pclust.peer.core.treatment import Treatment
from p2pclust.peer.main import Surroundings, die_with_parent, run_peer
from p2pclust.peer.operate.device import max_rss_mb
from p2pclust.peer.shell.compute import Worker
from p2pclust.peer.shell.logs import plain
from p2pclust.peer.shell.shell import Shell
from p2pclust.transport.bundle import Bundle
from p2pclust.transport.links import Receive
from p2pclust.transport.zeromq import ZmqLinks

_IN, _OUT = 0, 1
_MAX_BUFFERED = 8 * 1024 * 1024


class JsonLines:
    """Writes lines to standard output without blocking the loop; if the reader stops reading, old lines are dropped."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[bytes] = deque()
        self._buffered = 0
        os.set_blocking(_OUT, False)

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
                written = os.write(_OUT, self._waiting[0])
                self._buffered -= written
                if written == len(self._waiting[0]):
                    self._waiting.popleft()
                else:
                    self._waiting[0] = self._waiting[0][written:]
            self._loop.remove_writer(_OUT)
        except BlockingIOError:
            self._loop.add_writer(_OUT, self._flush)
        except BrokenPipeError:
            self._waiting.clear()  # the reader is gone; the end of the input ends this peer
            self._loop.remove_writer(_OUT)


def serve(shell: Shell, lines: JsonLines, conditions: ImposedConditions) -> None:
    """Carry out the requests on standard input, until it ends; report the rounds of this peer's jobs, too."""
    loop, partial = asyncio.get_running_loop(), b""

    def read() -> None:
        nonlocal partial
        try:
            data = os.read(_IN, 1 << 16)
        except BlockingIOError:
            return
        if not data:
            loop.remove_reader(_IN)
            shell.leave()
            return
        *requests, partial = (partial + data).split(b"\n")
        for request in requests:
            _carry_out(json.loads(request), shell, lines, conditions)

    RoundViews(shell, lines.write)
    os.set_blocking(_IN, False)
    loop.add_reader(_IN, read)


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


class OnShapedLink(Surroundings):
    """A device whose link a testbed may shape; otherwise it runs like any other."""

    def begin(self, shell: Shell, links: ZmqLinks, worker: Worker, bundle: Bundle) -> None:
        shape_link(self.config, links)
        super().begin(shell, links, worker, bundle)


class Driven(Surroundings):
    """A peer that the testbed drives: it gets all reports, and imposes conditions."""

    hides_memory = False

    def __init__(self, config: Mapping[str, Any]) -> None:
        die_with_parent()
        super().__init__(config)
        self.unread_phases = () if config["faults"] or config.get("suffers") else ("combining",)
        self._name = str(config["name"])
        self._lines = JsonLines()
        self._loop = asyncio.get_running_loop()
        self._breakable: BreakableLinks

    def watch(self, verb: str, fields: Mapping[str, Any]) -> None:
        if verb != "phase" or fields["phase"] != "adopting":  # the aggregator's reports are enough
            self._lines.write({"t": self._loop.time(), "verb": verb, **fields})

    def receiving(self, receive: Receive, rng: np.random.Generator) -> Receive:
        self._breakable = BreakableLinks(receive, rng)
        return self._breakable.take

    def begin(self, shell: Shell, links: ZmqLinks, worker: Worker, bundle: Bundle) -> None:
        """Start the peer, with the conditions of its configuration, and read requests from standard input."""
        shape_link(self.config, links)
        rows = FirstUse()

        def before(effect: Effect) -> None:
            if (first_use := rows.see(effect)) is not None:
                self.watch(first_use.verb, first_use.fields)

        shell.before = before
        links_ = self._breakable.wrap(links)
        conditions = ImposedConditions(links_, worker, shell, rows, self.config.get("suffers", {}))
        faults = tuple(PlannedFault.from_dict(fault) for fault in self.config["faults"])
        shell.listen(PlannedFaults(self._name, faults, self.watch, conditions.strike).take)
        shell.start(links_, worker)
        serve(shell, self._lines, conditions)

    def failed(self, reason: str) -> None:
        super().failed(reason)
        sys.stderr.write(f"error: {self._name}: {reason}\n")


def shape_link(config: Mapping[str, Any], links: ZmqLinks) -> None:
    if (link := config.get("link")) is not None:
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(link["seed"])))
        shape_own(links, Shape.from_dict(link["shape"]), rng, link["rates"])


def run_attached(config: Mapping[str, Any]) -> int:
    return run_peer(config, Driven if config.get("stdio") else OnShapedLink)


def main() -> int:
    """Run the peer whose configuration is in the file named by the only argument."""
    return run_attached(json.loads(Path(sys.argv[1]).read_text()))


if __name__ == "__main__":
    sys.exit(main())
