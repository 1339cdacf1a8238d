"""What all machines of the core share during a step: the time, the timers, and the list of effects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Final

import numpy as np

from p2pclust.peer.core.effects import Effect, Persist, Send
from p2pclust.peer.core.evidence import Verified
from p2pclust.peer.core.fleet_roster import HeldRosters
from p2pclust.peer.core.messages import JobMessage, Message, Relay
from p2pclust.peer.core.reports import Report
from p2pclust.peer.core.routing import Routing
from p2pclust.peer.core.timing import Limits, Timing
from p2pclust.transport.wire import verified

#: The machine that armed it, then what distinguishes the timers of this machine.
TimerKey = tuple[str, ...]

#: How long a route through a relay is kept after a message came that way.
_ROUTE_S = 30.0
#: How many of the messages that were sent last are known again when they are repeated.
_MOST_SENT = 4096
_NEVER = float("inf")


@dataclass
class Timers:
    """Named instants. Arming a timer again moves it; equal instants fire in the order in which they were armed."""

    next_at: float = _NEVER  #: the instant of the earliest timer; infinity if none is armed
    _at: dict[TimerKey, tuple[float, int]] = field(default_factory=dict)
    _armed: int = 0

    def set(self, key: TimerKey, at: float) -> None:
        """Arm the timer, or move it."""
        before = self._at.pop(key, None)
        self._armed += 1
        self._at[key] = (at, self._armed)
        if at <= self.next_at:
            self.next_at = at
        elif before is not None and before[0] == self.next_at:
            self._find_next()

    def cancel(self, key: TimerKey) -> None:
        """Disarm the timer if it is armed."""
        armed = self._at.pop(key, None)
        if armed is not None and armed[0] == self.next_at:
            self._find_next()

    def _find_next(self) -> None:
        self.next_at = min(self._at.values())[0] if self._at else _NEVER

    def postpone(self, kind: TimerKey, by_s: float) -> None:
        """Postpone all timers whose keys begin with `kind`.

        Examples
        --------
        >>> timers = Timers()
        >>> timers.set(("member", "suspicion", "a"), 2.0)
        >>> timers.set(("member", "probe"), 5.0)
        >>> timers.postpone(("member", "suspicion"), 7.0)
        >>> timers.next_at, timers.pop_due(9.0), timers.pop_due(9.0)
        (5.0, ('member', 'probe'), ('member', 'suspicion', 'a'))
        """
        for key in [key for key in self._at if key[: len(kind)] == kind]:
            self.set(key, self._at[key][0] + by_s)

    def armed(self, key: TimerKey) -> bool:
        return key in self._at

    def pop_due(self, now: float) -> TimerKey | None:
        """Disarm and return the earliest timer that is due, if any."""
        if not self._at or self.next_at > now:
            return None
        key = min(self._at, key=self._at.__getitem__)
        self.cancel(key)
        return key


@dataclass
class Context:
    """The shared part of a core. Machines append effects; the shell performs them."""

    me: str
    preset: Timing
    limits: Limits
    rng: np.random.Generator
    store_id: str
    routing: Routing = field(default_factory=lambda: Routing(""))
    serial: int = 0  # of the fleet roster; 0 where there is none
    rosters: HeldRosters = field(default_factory=HeldRosters)  # in a fleet with keys
    signs_facts: bool = False  # whether that roster says that all peers sign their facts
    #: Why a job, for so many peers, is too large for this device; the core itself reads no job.
    problem_with_size: Callable[[bytes, int], str] = lambda job, n_peers: ""
    #: Signs with this device's key, in a fleet with keys; and checks a signature. Both are functions of their arguments.
    sign: Callable[[bytes], bytes] | None = None
    verified: Verified = verified
    barred: dict[str, None] = field(default_factory=dict)  # revoked peers: nothing is sent to them
    preparing: dict[str, None] = field(default_factory=dict)  # jobs whose workspaces fetch blobs or run child jobs
    unread_phases: tuple[str, ...] = ()  # of rounds: nothing reads the reports that they have begun
    now: float = 0.0
    timers: Timers = field(default_factory=Timers)
    effects: list[Effect] = field(default_factory=list)
    _routes: dict[str, tuple[str, float]] = field(default_factory=dict)
    _sent: dict[int, float] = field(default_factory=dict)  # when messages that carry frames were sent, by their hash
    _stretched: tuple[int, Timing] | None = None

    @property
    def timing(self) -> Timing:
        """The preset's durations stretched to the farthest peer; `preset` has the same between neighbours, without a map."""
        if self.routing.whole:
            return self.preset
        reach = self.routing.reach
        if self._stretched is None or self._stretched[0] != reach:
            self._stretched = (reach, self.preset.over(reach))
        return self._stretched[1]

    def send(self, to: str, message: Message, *, bulk: bool = False, direct: bool = False) -> None:
        """Send a message to a neighbour, or to another peer through the overlay.

        A `direct` message takes the link to a neighbour even if that link is broken, because it tries the link.
        """
        relays = self.relays_to(to, direct=direct)
        if relays is None:  # no route is known: a peer that waits for an answer asks again
            return
        # The usual way may lose large messages only, so one that is repeated takes another way, too.
        if not self.routing.whole and isinstance(message, JobMessage) and not bulk and self._repeats(to, message):
            for other in self.choose(self.routing.others(to), 1):
                self.effects.append(Send(to, message, False, (other,)))
        self.effects.append(Send(to, message, bulk, relays))

    def relays_to(self, to: str, *, direct: bool = False) -> tuple[str, ...] | None:
        """Return the relay on the way to a peer, if there must be one; None if nothing can or may be sent to it."""
        if to in self.barred:
            return None
        if self.routing.whole:
            via = self.way_to(to)
            return (via,) if via else ()
        hop = to if direct and self.routing.linked(to) else self.routing.hop(to)
        if not hop:
            return None
        return () if hop == to else (hop,)

    def _repeats(self, to: str, message: Message) -> bool:
        if not message.frames:
            return False
        key = hash((to, message))
        before = self._sent.get(key)
        if before is not None and self.now - before < self.timing.retry_s / 2:
            return False  # the peer has two questions from two ways
        self._sent.pop(key, None)
        self._sent[key] = self.now
        if len(self._sent) > _MOST_SENT:
            del self._sent[next(iter(self._sent))]
        return before is not None

    def send_around(self, to: str, message: Message, alive: list[str], n_ways: int) -> list[str]:
        """Send a message through up to `n_ways` other peers, because the usual route is silent; return them."""
        if self.routing.whole:
            relays = self.choose([name for name in alive if name not in (to, self.me)], n_ways)
        else:
            relays = self.routing.others(to)[:n_ways]
        if relays and to not in self.barred:
            self.effects.append(Send(to, message, False, tuple(relays)))
        return relays

    def carry(self, relay: Relay, source: str, most_hops: int) -> None:
        """Hand on a neighbour's message to a third peer, over at most `most_hops` hops."""
        # Never return it to its sender: while two peers' maps differ, they would bounce it between them.
        hop, hops_left = self.routing.hop(relay.target, source), min(relay.hops_left, most_hops) - 1
        if hops_left >= 0 and hop not in ("", source):
            self.effects.append(Send(hop, Relay(relay.origin, relay.target, relay.signature, relay.inner, hops_left)))

    def heard(self, source: str, via: str) -> None:
        """On a full mesh, remember the relay that a message of a peer came through: answers go back through it."""
        # Use does not prolong a route: otherwise two peers would never try the direct way again.
        if not self.routing.whole:
            return
        if not via:
            if self._routes:
                self._routes.pop(source, None)
        elif self.now >= self._routes.get(source, ("", 0.0))[1]:
            self._routes[source] = (via, self.now + _ROUTE_S)

    def way_to(self, name: str) -> str:
        """Return the relay that a peer was last heard through, as long as that is remembered; empty otherwise."""
        if not self._routes:
            return ""
        via, until = self._routes.get(name, ("", 0.0))
        return via if self.now < until and via not in self.barred else ""

    def persist(self, table: str, key: str, value: bytes | None, *, sync: bool = True) -> None:
        """Write one row."""
        self.effects.append(Persist(table, key, value, sync))

    def report(self, report: Report) -> None:
        """Make a report for people, logs and tests."""
        self.effects.append(report)

    def set_timer(self, key: TimerKey, delay_s: float) -> None:
        """Arm a timer `delay_s` from now."""
        self.timers.set(key, self.now + delay_s)

    def uniform(self, low: float, high: float) -> float:
        """Return a random duration; the core uses randomness only for instants and for the choice of peers."""
        return low + (high - low) * float(self.rng.random())

    def choose(self, names: list[str], k: int) -> list[str]:
        """Choose at most `k` different names."""
        if len(names) <= k:
            return list(names)
        return [names[i] for i in self.rng.permutation(len(names))[:k]]


_PARTS: Final = 16
_LEAST_PART_S: Final = 0.5  # short durations are saved less often


class Elapsed:
    """Durations of one kind, by name, that continue after a restart: the part that is over is on disk, in sixteenths.

    Only the uptime of this peer counts. The timer of each has the key ``(kind, name)``; call `fire` when it is due.
    """

    def __init__(self, context: Context, kind: str, stored: Mapping[str, bytes]) -> None:
        self._ctx = context
        self._kind = kind
        self._parts = {name: min(_PARTS, int(value)) for name, value in stored.items()}
        self._whole_s: dict[str, float] = {}
        #: When each duration that has begun ends, at the latest.
        self.until: dict[str, float] = {}

    def begin(self, name: str, whole_s: float) -> None:
        """Begin or continue a duration."""
        self._whole_s[name] = whole_s
        left = _PARTS - self._parts.get(name, 0)
        self._ctx.set_timer((self._kind, name), whole_s * min(left, self._step(name)) / _PARTS)
        self.until[name] = self._ctx.now + whole_s * left / _PARTS

    def fire(self, name: str) -> bool:
        """Note that a part is over; return whether all of it is."""
        if name not in self._whole_s:
            return False
        self._parts[name] = min(_PARTS, self._parts.get(name, 0) + self._step(name))
        self._ctx.persist(self._kind, name, str(self._parts[name]).encode())
        if self._parts[name] < _PARTS:
            self.begin(name, self._whole_s[name])
            return False
        del self._whole_s[name], self.until[name]
        return True

    def over(self, name: str) -> bool:
        """Return whether all of a duration is over."""
        return self._parts.get(name, 0) >= _PARTS

    def end(self, name: str) -> None:
        """Forget a duration."""
        self._whole_s.pop(name, None)
        self.until.pop(name, None)
        self._ctx.timers.cancel((self._kind, name))
        if self._parts.pop(name, None) is not None:
            self._ctx.persist(self._kind, name, None, sync=False)

    def keep_only(self, names: Iterable[str]) -> None:
        """Forget all others."""
        kept = dict.fromkeys(names)
        for name in [name for name in self._parts if name not in kept]:
            self.end(name)

    def _step(self, name: str) -> int:
        return min(_PARTS, max(1, ceil(_LEAST_PART_S * _PARTS / self._whole_s[name])))
