"""The control addresses of simulated peers: the code that answers operators on devices, asked over connections that break.

The questions, their checks and their answers are those of `p2pclust.peer.operate`. Only the socket and the shell around the
core are replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import msgpack

from p2pclust.lab.simulation.swarms.attempts import Question
from p2pclust.lab.simulation.world.observer import Observer
from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.lab.simulation.world.world import World
from p2pclust.peer.core.core import Core
from p2pclust.peer.core.effects import Effect
from p2pclust.peer.core.events import Event
from p2pclust.peer.core.reports import Report
from p2pclust.peer.operate.questions import Questions
from p2pclust.peer.operate.server import HERE, Caller, read_question
from p2pclust.peer.shell.compute import DataStatus
from p2pclust.peer.shell.logs import Watch
from p2pclust.peer.work.floor import Floor
from p2pclust.transport.links import Counters
from p2pclust.transport.wire import pack, unpack

#: Receives the frames of one answer, in the instant in which the peer sends it.
OnAnswer = Callable[[list[bytes]], None]


class _Shell:
    """What the control address uses of a shell, around one life of a simulated peer."""

    def __init__(self, world: World, peer: Peer) -> None:
        assert peer.core is not None
        self._world, self._peer = world, peer
        self.core: Core = peer.core
        self.store = SimpleNamespace(
            blobs=SimpleNamespace(chunk=peer.disk.chunk, read=lambda digest: iter(peer.disk.blob(digest)))
        )
        rows, columns = peer.local.X.shape
        self.worker = SimpleNamespace(features=(), data=DataStatus(rows, columns, ""), floor=Floor())
        self.links = SimpleNamespace(
            roster=SimpleNamespace(fleet_id="simulated", serial=1), counters=Counters(), trouble=lambda name: ""
        )
        self.allow_list = SimpleNamespace(outdated={})
        self.heard: dict[str, float] = {}
        self.outcomes: dict[str, Any] = {}
        self.version, self.began_at = "simulated", world.now
        self.listeners: list[Watch] = []

    @property
    def now(self) -> float:
        return self._peer.clock.read(self._world.now)

    def listen(self, listener: Watch) -> None:
        self.listeners.append(listener)

    def step(self, event: Event) -> None:
        if self._peer.core is self.core:  # else this life is over
            self._world.step(self._peer, event)


class ControlAddresses(Observer):
    """The control addresses of all peers of one world."""

    watches = (Report,)

    def __init__(self) -> None:
        self._here: dict[str, tuple[_Shell, Questions]] = {}

    def started(self, world: World, peer: Peer) -> None:
        """Open the control address of a new life."""
        shell = _Shell(world, peer)
        self._here[peer.name] = (shell, Questions(shell))  # type: ignore[arg-type]

    def crashed(self, world: World, peer: Peer, lost_writes: int) -> None:
        """All who wait for an answer wait in vain."""
        self._here.pop(peer.name, None)

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        """Let the control address hear what the core reports."""
        if isinstance(effect, Report) and peer.name in self._here:
            for listener in self._here[peer.name][0].listeners:
                listener(effect.verb, effect.fields)

    def ask(self, peer: Peer, number: int, asked: Question, heard: OnAnswer) -> None:
        """A question arrives at a peer that runs and is not stopped."""
        question = pack("ask", {"number": number, "verb": asked.verb}, [msgpack.packb(dict(asked.fields))])
        _, verb, fields = read_question(question)

        def send(frames: list[bytes]) -> bool:
            self._check(peer, verb, frames)
            heard(frames)
            return True

        self._here[peer.name][1].take(Caller(send, number, HERE), verb, fields)

    def _check(self, peer: Peer, verb: str, frames: list[bytes]) -> None:
        """S6: what an answer promises is on the disk."""
        kind, fields, _ = answer_in(frames)
        kept = True
        if kind == "answer" and verb == "cancel" and "by" in fields:
            kept = peer.disk.read_synced("cancel", fields["job"]) is not None
        elif kind == "answer" and verb == "submit":
            kept = peer.disk.read_synced("job", fields["job"]) is not None
        assert kept, f"S6: {peer.name} answers a {verb} of {fields['job']} that is not on its disk"


def answer_in(frames: list[bytes]) -> tuple[str, dict[str, Any], bool]:
    """Read an answer: its kind, its fields or the reason of a refusal, and whether it is the last."""
    kind, header, rest = unpack(frames)
    if kind == "refused":
        return kind, {"reason": rest[0].decode()}, True
    fields: Mapping[str, Any] = msgpack.unpackb(b"".join(rest), raw=False, strict_map_key=False)
    return kind, dict(fields), bool(header["last"])
