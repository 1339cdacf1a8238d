"""The failure detector of SWIM, with Lifeguard's local health.

Helpers that send nothing at all are a sign that this peer itself is slow: then it allows more time for each answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from p2pclust.peer.core.context import Context, TimerKey
from p2pclust.peer.core.members.member_table import MemberTable
from p2pclust.peer.core.members.verdicts import AnswerPace
from p2pclust.peer.core.messages import Ack, Ping, PingRequest

_HELPERS: Final = 3  # members asked to probe for us (SWIM's k)
_BROKEN: Final = 3  # probes in a row that only helpers got an answer to: the link is broken, not the member
_MAX_HEALTH: Final = 8  # Lifeguard's S
_REMEMBERED: Final = 64  # probes without an answer: one that comes late says how slow answers are


@dataclass(slots=True)
class _Probe:
    """One ping of this peer that waits for its answer."""

    target: str
    incarnation: int
    silent_helpers: int = 0


@dataclass
class Probes:
    """Probes one member per period."""

    _ctx: Context
    _table: MemberTable
    _pace: AnswerPace
    _silent: Callable[[str, int], None]  # takes a member that does not answer, and the incarnation that was probed
    _turn: list[str] = field(default_factory=list)  # still to be probed in this turn
    _seq: int = 0  # of the newest ping
    _before: int = 0  # of the last ping that another life may have sent
    _waiting: dict[int, _Probe] = field(default_factory=dict)
    _helping: dict[int, tuple[str, int]] = field(default_factory=dict)  # our ping for a peer -> (that peer, its number)
    _health: int = 0
    _sent_at: dict[int, tuple[str, float]] = field(default_factory=dict)  # the newest probes, also those given up
    #: The probes of a member in a row that only helpers got an answer to.
    _by_helpers: dict[str, int] = field(default_factory=dict)

    def count_on(self, seq: int) -> None:
        """Number pings from here on, so that an answer to a ping of an earlier life is known as one."""
        self._seq = self._before = seq

    def next(self) -> None:
        """Probe the next member of the turn."""
        while self._turn and not self._table.present(self._turn[-1]):
            self._turn.pop()
        if not self._turn:  # every member once per turn, in an order of its own each time: detection is bounded
            names = self._table.neighbours()
            self._turn = [names[i] for i in self._ctx.rng.permutation(len(names))]
        if not self._turn:
            return
        self._pace.forget()
        target, timing = self._turn.pop(), self._ctx.preset
        seq = self.greet(target)
        self._waiting[seq] = _Probe(target, self._table.members[target].incarnation)
        self._sent_at[seq] = (target, self._ctx.now)
        if len(self._sent_at) > _REMEMBERED:
            del self._sent_at[next(iter(self._sent_at))]
        scale, more_s = 1 + self._health, self._pace.more_s(timing)
        self._ctx.set_timer(("member", "direct", str(seq)), timing.probe_timeout_s * scale + more_s)
        # Helpers need two round trips.
        self._ctx.set_timer(("member", "verdict", str(seq)), 0.9 * timing.probe_period_s * scale + 2 * more_s)

    def greet(self, name: str) -> int:
        """Ping a member and return the number of the ping; no answer is awaited."""
        self._seq += 1
        self._ctx.send(name, Ping(self._seq, self._table.claims_for(name)), direct=True)
        return self._seq

    def fire(self, key: TimerKey) -> None:
        """A timer of a probe is due."""
        seq = int(key[2])
        match key[1]:
            case "direct":
                probe = self._waiting[seq]
                self._table.look(probe.target)
                others = [name for name in self._table.witnesses(probe.target) if self._table.present(name)]
                with self._ctx.routing.around(probe.target):
                    for helper in self._ctx.choose(others, _HELPERS):
                        probe.silent_helpers += 1
                        self._ctx.send(helper, PingRequest(seq, probe.target, self._table.claims_for(helper)))
            case "verdict":
                probe = self._waiting[seq]
                if probe.silent_helpers > 0:
                    self._health = min(_MAX_HEALTH, self._health + 1)
                self._forget(seq)
                self._silent(probe.target, probe.incarnation)
            case "helping":
                source, theirs = self._helping.pop(seq)
                self._ctx.send(source, Ack(theirs, False, ()))

    def help(self, source: str, message: PingRequest) -> None:
        """Probe a member for another peer."""
        seq = self.greet(message.target)
        self._helping[seq] = (source, message.seq)
        self._ctx.set_timer(("member", "helping", str(seq)), self._ctx.preset.probe_timeout_s)

    def answered(self, source: str, message: Ack) -> None:
        """Handle an answer to a probe of this peer's own, or to one for another peer."""
        if self._before < message.seq <= self._seq:  # this life sent that ping
            self._table.members[source].replied = True
        target, sent_at = self._sent_at.get(message.seq, ("", 0.0))
        if source == target:
            del self._sent_at[message.seq]
            self._pace.answered(self._ctx.now - sent_at)
        if message.seq in self._helping:
            self._ctx.timers.cancel(("member", "helping", str(message.seq)))
            asker, theirs = self._helping.pop(message.seq)
            self._ctx.send(asker, Ack(theirs, True, self._table.claims_for(asker)))
        elif message.seq in self._waiting:
            if message.reached:
                self._health = max(0, self._health - 1)
                target = self._waiting[message.seq].target
                self._forget(message.seq)
                self._try_link(target, works=source == target)
            else:
                self._waiting[message.seq].silent_helpers -= 1  # it is well: the silence is not our own fault

    def forget(self, name: str) -> None:
        """End the probes of a member: its silence no longer proves anything."""
        for seq in [seq for seq, probe in self._waiting.items() if probe.target == name]:
            self._forget(seq)
        self._turn = [other for other in self._turn if other != name]
        self._by_helpers.pop(name, None)

    def help_no_more(self, name: str) -> None:
        """Stop helping a member."""
        for seq in [seq for seq, (asker, _) in self._helping.items() if asker == name]:
            self._ctx.timers.cancel(("member", "helping", str(seq)))
            del self._helping[seq]

    def _try_link(self, name: str, *, works: bool) -> None:
        # A member that answered through a helper only is probed again at once.
        if self._ctx.routing.whole:  # whether each is heard over its link is known without probes
            return
        count = self._by_helpers[name] = 0 if works else self._by_helpers.get(name, 0) + 1
        if 0 < count < _BROKEN:
            self._turn.append(name)
        else:
            self._table.link_works(name, works)

    def _forget(self, seq: int) -> None:
        self._ctx.timers.cancel(("member", "direct", str(seq)))
        self._ctx.timers.cancel(("member", "verdict", str(seq)))
        del self._waiting[seq]
