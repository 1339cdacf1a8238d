"""One peer of a small fleet that is explored: the real core and performer, a disk of rows, and a toy worker.

A peer is a value: a step copies it. Its worker needs no rows: a state is its number, the digest of the state before, and its
contributors.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from typing import Any, Final

import msgpack

from p2pclust.lab.simulation.checks.revealed import Revealed
from p2pclust.lab.simulation.world.disk import Disk
from p2pclust.peer.core import job_messages, tasks
from p2pclust.peer.core.core import Core, Identity
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.effects import Compute, Effect, Send
from p2pclust.peer.core.events import Computed, Event, Started
from p2pclust.peer.core.messages import JobMessage, Message
from p2pclust.peer.core.tasks import Contributed, Outcome, Ref, StateInfo, StateMade, Task
from p2pclust.peer.core.timing import Limits, preset
from p2pclust.peer.core.treatment import Treatment
from p2pclust.peer.shell.performer import Performer
from p2pclust.protocols.engine.workspace import digest_of

__all__ = ["NAMES", "BrokenError", "Peer", "Sent", "Toy", "fingerprint"]

NAMES: Final = ("a", "b", "c")
_STORES: Final = {name: f"store-{name}" for name in NAMES}
_BEGAN_S: Final = 1e6  # instants are far from durations, so that a fingerprint can tell them apart
_TIMING, _LIMITS = preset("fast"), Limits()
_DOCUMENT: Final = Document(
    b"\x80", NAMES, tuple(_STORES.values()),
    Treatment("wait", _TIMING.patience_s, _TIMING.compute_limit_s, collect="star"), "a", "1",
)  # fmt: skip
_JOB: Final = _DOCUMENT.id
_REVEALED: Final = Revealed({_JOB: _DOCUMENT})

Sent = tuple[str, str, Message]
Happened = tuple[Any, ...]


class BrokenError(AssertionError):
    """A promise is broken; the message begins with its name."""


class Toy:
    """The worker of all peers: a pure function from a task to its outcome. The state after `n_rounds` rounds is final."""

    def __init__(self, n_rounds: int) -> None:
        self.n_rounds = n_rounds
        #: From the digest of a state to that of the one before.
        self.parents: dict[bytes, bytes] = {}

    def perform(self, task: Task) -> Outcome:
        """Return the outcome of a task."""
        match task:
            case tasks.BeginJob():
                return self._made(self._state(0, b"", []))
            case tasks.DescribeState():
                return self._made(task.state)
            case tasks.CombineRound():
                number = msgpack.unpackb(task.state.payload)[0]
                peers = [index for indices, _ in task.contributions for index in indices]
                return self._made(self._state(number + 1, task.state.digest, sorted(peers)))
            case tasks.Contribute():
                data = b"%d" % task.me + task.state.digest
                return Contributed(Ref(digest_of(data), len(data), data))
        raise AssertionError(task)

    def _state(self, number: int, parent: bytes, peers: list[int]) -> Ref:
        data = bytes(msgpack.packb([number, parent, peers]))
        ref = Ref(digest_of(data), len(data), data)
        if parent:
            self.parents[ref.digest] = parent
        return ref

    def _made(self, ref: Ref) -> StateMade:
        final = msgpack.unpackb(ref.payload)[0] >= self.n_rounds
        return StateMade(ref, StateInfo(final, asked=() if final else (0, 1, 2)))


class _Draws:
    """Random numbers of a peer: its time-outs are always the same, and end one after those of another peer."""

    def __init__(self, u: float) -> None:
        self._u = u

    def random(self) -> float:
        return self._u

    def integers(self, *_limits: int) -> int:
        return 0

    def permutation(self, n: int) -> list[int]:
        return list(range(n))


class _PowerCutError(Exception):
    """The peer crashes between two effects."""


class Peer:
    """One peer: its core, disk and worker's queue, and what its last step did."""

    signs_facts = False

    def __init__(self, name: str, toy: Toy, *, at_once: bool) -> None:
        self.name, self.now = name, _BEGAN_S
        self._toy, self._at_once = toy, at_once
        self.disk = Disk(_STORES[name])
        self.disk.write("job", _JOB, _DOCUMENT.encode())
        self.disk.sync()
        self.tasks: tuple[tuple[Any, Outcome], ...] = ()
        self.sent: list[Sent] = []
        self.happened: list[Happened] = []
        self.n_effects = 0
        self._learns = False
        self.core: Core
        self.boot()

    def copied(self) -> Peer:
        """Return a peer that does what this one would do."""
        shared: list[Any] = [self._toy, _DOCUMENT, _TIMING, _LIMITS, self.core.identity, self.disk._rng]
        return copy.deepcopy(self, {id(one): one for one in shared})

    @property
    def identity(self) -> Identity:
        """What its core is."""
        return self.core.identity

    @property
    def job(self) -> Any:
        """The job at this peer."""
        return self.core.jobs.jobs[_JOB]

    def boot(self) -> None:
        """Start with what is on the disk; all peers are members of each other's fleet."""
        self.tasks = ()
        self.disk.crash()
        identity = Identity(self.name, f"{self.name}:1", NAMES, {name: f"{name}:1" for name in NAMES}, 1.0)
        draws: Any = _Draws(NAMES.index(self.name) / 2)
        self.core = Core(identity, self.disk.load(), _TIMING, _LIMITS, draws)
        for name in NAMES:
            if name != self.name:
                member = self.core.membership.members[name]
                member.status, member.incarnation, member.address, member.replied = "alive", 1, f"{name}:1", True
                member.store_id = _STORES[name]
        self._run(Started(), None)

    def step(self, event: Event, *, crash_after: int | None = None) -> None:
        """Handle an event; with `crash_after` lose power after so many effects, and start again."""
        self.sent, self.happened, self._learns = [], [], False
        self._run(event, crash_after)
        if crash_after is not None:
            self.boot()
        while self._at_once and self.tasks:
            self._run(self.next_task(0), None)

    def next_task(self, index: int) -> Event:
        """Take a task's outcome out of the worker's queue."""

        token, outcome = self.tasks[index]
        self.tasks = self.tasks[:index] + self.tasks[index + 1 :]
        return Computed(token, outcome)

    def _run(self, event: Event, crash_after: int | None) -> None:
        effects = self.core.step(self.now, event)
        self.n_effects = len(effects)

        def until() -> Iterator[Effect]:
            for index, effect in enumerate(effects):
                if index == crash_after:
                    raise _PowerCutError
                yield effect
            if crash_after is not None:
                raise _PowerCutError

        device: Any = self
        performer = Performer(
            self.name, device, device, device, device, lambda effect: None, device,
            encode=lambda message: [message], decode=lambda frames: frames[0],
        )  # type: ignore[arg-type]  # fmt: skip
        with suppress(_PowerCutError):
            performer.perform_all(until())
        # Members and facts are not explored: their timers are not armed.
        for key in [key for key in self.core.timers._at if key[0] != "job"]:
            self.core.timers.cancel(key)

    # -- the device of the performer -----------------------------------------------------------------------------------

    def write(self, rows: list[tuple[str, str, bytes | None]], *, sync: bool) -> None:
        """Write rows, and note what they promise once they are synced."""
        for table, key, value in rows:
            self._never_falls(table, self.disk.read(table, key), value)
            self.disk.write(table, key, value)
        if sync:
            for (table, _), value in self.disk._written.items():
                self._promised(table, value)
            self.disk.sync()

    def _never_falls(self, table: str, old: bytes | None, new: bytes | None) -> None:
        if old is None or new is None or table not in ("register", "ballot"):
            return
        before, after = msgpack.unpackb(old), msgpack.unpackb(new)
        if table == "register" and not after[6] and tuple(after[:2]) < tuple(before[:2]):
            raise BrokenError(f"S7: the register of {self.name} falls from {before[:2]} to {after[:2]}")
        if table == "ballot" and after[0] < before[0]:
            raise BrokenError(f"S7: the term of {self.name} falls from {before[0]} to {after[0]}")

    def _promised(self, table: str, value: bytes | None) -> None:
        if table == "ballot" and value is not None:
            term, candidate = msgpack.unpackb(value)
            if candidate:
                self.happened.append(("voted", term, candidate, self.name))
        elif table == "register" and value is not None:
            term, round_, digest, _, _, _, finished = msgpack.unpackb(value)
            # A candidate that takes over a register of an earlier term does not adopt it in that term.
            ballot = self.disk.read("ballot", _JOB)
            if not finished and not (self._learns and ballot and term < msgpack.unpackb(ballot)[0]):
                self.happened.append(("adopted", term, round_, digest, self.name))

    def send(self, to: str, frames: list[Message], lane: object) -> bool:
        """Send a message about the job; what it reveals is on the disk (S6)."""
        (message,) = frames
        if not isinstance(message, JobMessage) or isinstance(message, job_messages.Synced):
            return True
        if problem := _REVEALED.problem_with(self, Send(to, message)):  # type: ignore[arg-type]
            raise BrokenError(f"S6: {problem}: {message}")
        self.sent.append((self.name, to, message))
        return True

    def report(self, report: Any) -> None:
        """Note what the rules are about."""
        if report.verb == "elected":
            self.happened.append(("elected", report.fields["term"], self.name))
        elif report.verb == "finished":
            self.happened.append(("ended", bytes.fromhex(report.fields["digest"]), self.name))
        elif report.verb == "catches-up":
            self._learns = True

    def submit(self, effect: Compute) -> None:
        """Queue a task; its outcome does not depend on when it ends."""
        self.tasks += ((effect.token, self._toy.perform(effect.task)),)

    def before(self, effect: Effect) -> None:
        """Let an effect pass."""

    def check_link(self, peer: str) -> None:
        """Links are always open."""

    def connect(self, peer: str, address: str) -> None:
        """Links are always open."""

    def disconnect(self, peer: str) -> None:
        """Links are always open."""

    def held(self, owner: str, key: str) -> int:
        """Facts are not explored."""
        return 0

    # -- as a value ----------------------------------------------------------------------------------------------------

    def fingerprint(self) -> int:
        """Return a number that differs between two peers that may do different things."""
        disk = self.disk
        rows = (tuple(sorted(disk._synced.items(), key=repr)), tuple(sorted(disk._written.items(), key=repr)))
        timers = tuple((key, round(at - self.now, 4)) for key, (at, _) in sorted(self.core.timers._at.items()))
        told = repr((self.name, rows, self.tasks, timers, fingerprint(self.job, self.now)))
        return int.from_bytes(digest_of(told.encode())[:8], "big")


#: Parts of a core that are not explored, and what never changes.
_PASSED_OVER: Final = frozenset((
    "Membership", "Facts", "Blobs", "Document", "Routing", "Cancels", "Series", "Timing", "Limits", "Jobs", "Fitness",
    "Context", "Rosters",
))  # fmt: skip


def fingerprint(part: object, now: float) -> object:
    """Return a part of a core as plain values, with instants as durations from now."""
    return _plain(part, now, {})


def _plain(part: Any, now: float, seen: dict[int, int]) -> Any:  # noqa: PLR0911 - one for each kind of value
    match part:
        case int() | str() | bytes() | None:
            return part
        case float():
            instant = _BEGAN_S / 2 < part < float("inf")
            return ("in", max(round(part - now, 4), -30.0)) if instant else part
        case list() | tuple():
            return tuple(_plain(one, now, seen) for one in part)
        case dict():
            return tuple((_plain(key, now, seen), _plain(value, now, seen)) for key, value in part.items())
        case set() | frozenset():
            return tuple(sorted(map(repr, part)))
        case Enum():
            return part.name
    kind = type(part)
    if kind.__name__ in _PASSED_OVER or callable(part):
        return 0
    if id(part) in seen:
        return ("again", seen[id(part)])
    seen[id(part)] = len(seen)
    held = getattr(part, "__dict__", None)
    named = held.items() if held is not None else [(name, getattr(part, name)) for name in kind.__slots__]
    return (kind.__name__, *((name, _plain(value, now, seen)) for name, value in named))
