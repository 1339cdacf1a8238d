"""The shell: one asyncio loop that performs the core's effects on ZeroMQ and SQLite and returns events to the core.

It decides nothing. An exception from the core is a bug: the peer reports it and ends at once, because a peer that
continued could break its promises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from p2pclust.errors import FleetError, P2PClustError, WireError
from p2pclust.peer.core.core import Core
from p2pclust.peer.core.effects import Effect
from p2pclust.peer.core.events import Event, Leave, LinkChecked, Started, Woken
from p2pclust.peer.core.reports import Report
from p2pclust.peer.shell.allow_list import AllowList
from p2pclust.peer.shell.compute import Worker
from p2pclust.peer.shell.logs import Watch
from p2pclust.peer.shell.performer import Performer
from p2pclust.peer.shell.signing import RosterSigner
from p2pclust.peer.shell.store import Store
from p2pclust.transport.links import Lane, Links
from p2pclust.transport.wire import WIRE_VERSION, OtherVersionError

_CHECK_S = 0.5  # a connect that is neither accepted nor refused by then is inconclusive


@dataclass(eq=False)
class Shell:
    """Connects a core with links, store and worker. `watch` is called with the verb and fields of every report."""

    core: Core
    store: Store
    signer: RosterSigner
    watch: Watch
    allow_list: AllowList
    version: str = field(default="", init=False)  # of the package
    heard: dict[str, float] = field(default_factory=dict, init=False)  # when each peer was, directly or relayed
    #: By job: the digest of its newest state, and what that says of the job; a cache of `p2pclust.peer.operate.status`.
    outcomes: dict[str, tuple[bytes, Any]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._wake: asyncio.TimerHandle | None = None
        self._checks: dict[asyncio.Task[None], None] = {}
        self._listeners: list[Watch] = []
        self._other_versions: dict[str, str] = {}  # reported wire versions, by peer
        #: Sees each effect before it is performed; for testbeds.
        self.before: Callable[[Effect], None] = lambda effect: None
        self.links: Links
        self.worker: Worker
        self.performer: Performer
        self.began_at = self.now
        self.ended: asyncio.Future[BaseException | None] = self._loop.create_future()

    def start(self, links: Links, worker: Worker) -> None:
        self.links, self.worker = links, worker
        me = self.core.identity.name
        self.performer = Performer(me, self.store, links, worker, self.signer, self.allow_list.perform, self)
        self.step(Started())

    def leave(self) -> None:
        """Say goodbye to the other peers, and end."""
        self.step(Leave())
        if not self.ended.done():
            self.ended.set_result(None)

    def failed(self, error: BaseException) -> None:
        if not self.ended.done():
            self.ended.set_result(error)

    def close(self) -> None:
        if self._wake is not None:
            self._wake.cancel()
        self.allow_list.close()
        for task in self._checks:
            task.cancel()

    @property
    def now(self) -> float:
        """The loop's clock, in seconds."""
        return self._loop.time()

    def listen(self, listener: Watch) -> None:
        """Call `listener` with the verb and fields of every report from now on."""
        self._listeners.append(listener)

    def receive(self, source: str, frames: list[bytes], lane: Lane) -> None:
        """Check a message and hand it to the core; drop and count a malformed one."""
        self.heard[source] = self._loop.time()
        try:
            event = self.performer.arrived(source, frames)
            if event.via:
                self.heard[event.source] = self._loop.time()
            self.step(event)
        except OtherVersionError as error:
            self.links.counters.drop("malformed")
            if self._other_versions.get(source) != error.theirs:  # once: the peer will repeat its messages
                self._other_versions[source] = error.theirs
                hint = "peers of different wire versions do not see each other: install the same release on both"
                fields = {"member": source, "theirs": error.theirs, "ours": str(WIRE_VERSION), "hint": hint}
                self.watch("other-version", fields)
        except WireError as error:
            self.links.counters.drop("malformed")
            self.watch("malformed", {"from": source, "reason": str(error)})

    def step(self, event: Event) -> None:
        """Give the core one event and perform its effects."""
        if self.ended.done():
            return
        try:
            self.performer.perform_all(self.core.step(self._loop.time(), event))
        except Exception as error:  # noqa: BLE001 (ends the peer; see the module's docstring)
            self.failed(error)
            return
        self._plan_wake()

    def _plan_wake(self) -> None:
        wake_at, planned = self.core.wake_at, self._wake
        # Most timers are postponed before they are due, the election's with every message of the aggregator. A wake-up
        # that turns out to be early costs less than moving it each time.
        if planned is not None and planned.when() <= wake_at < float("inf"):
            return
        if planned is not None:
            planned.cancel()
        self._wake = None if wake_at == float("inf") else self._loop.call_at(wake_at, self._on_wake)

    def _on_wake(self) -> None:
        self._wake = None
        if self.core.wake_at <= self._loop.time():
            self.step(Woken())
        else:
            self._plan_wake()

    def check_link(self, peer: str) -> None:

        async def check() -> None:
            self.step(LinkChecked(peer, await self.links.refused(peer, _CHECK_S)))

        task = self._loop.create_task(check())
        self._checks[task] = None
        task.add_done_callback(self._checks.pop)

    def held(self, owner: str, key: str) -> int:
        """Return the version of a fact that the core holds, or 0."""
        fact = self.core.facts.get(owner, key)
        return 0 if fact is None else fact.version

    def excuses(self, source: str, serial: int) -> bool:
        """Return whether a peer with that fleet roster may pass on, in good faith, a fact that is refused here."""
        return self.core.enrolment.excuses(source, serial)

    def report(self, effect: Report) -> None:
        """Write a report to the log and to the listeners."""
        fields = effect.fields
        self.watch(effect.verb, fields)
        for listener in tuple(self._listeners):
            try:
                listener(effect.verb, fields)
            except Exception as error:  # noqa: BLE001 - reported; a listener must not end the peer
                self._loop.call_exception_handler({"message": "a listener failed", "exception": error})


def exit_code(error: BaseException) -> int:
    """Return the exit code of a peer that this error ended: 3 if its device failed, 1 for a bug."""
    if isinstance(error, P2PClustError):
        return error.exit_code
    return FleetError.exit_code if isinstance(error, MemoryError) else 1


def explain(error: BaseException) -> str:
    """Return one line for people on why a peer ended."""
    if isinstance(error, MemoryError):
        return "out of memory: give it more (memory_mb, or what its service may take), or fewer rows"
    return str(error) if isinstance(error, FleetError) else f"bug: {type(error).__name__}: {error}"
