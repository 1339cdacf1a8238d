"""When a silent member is held dead: how long answers take at present, how long a suspicion lasts, and refused connections.

*Pace.* If the processes of a machine have less processor time than they need, every answer comes late, and so do this peer's
own timers. A verdict after a fixed time would then be wrong about many members at once, and the suspicions, their
refutations and the exchange of both would take what processor time is left.

*Suspicions* last as in Lifeguard (Dadgar et al. 2017). *Refused connections* show that no process listens at an address.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import Final

from p2pclust.peer.core.context import Context
from p2pclust.peer.core.members.member_table import Member, MemberTable
from p2pclust.peer.core.messages import Refusal
from p2pclust.peer.core.timing import Timing

_GAIN: Final = 0.25  # the weight of the newest observation
_KEPT: Final = 0.9  # of what is usual, with each probe
_MOST_LATE: Final = 2.0  # in probe periods: of one delay of this peer's own; what is longer also prolongs suspicions
_ROUND_TRIPS: Final = 3.0  # silence counts after this multiple of the usual time of an answer
#: At its start a peer shakes hands with all that it links to, and they with it. For each beyond the first few it expects so
#: much delay, until answers show how long they take.
_START_S: Final = 0.005
_FEW: Final = 16
_MOST_PERIODS: Final = 20.0  # in probe periods: the longest additional time


class AnswerPace:
    """Observes answers to probes and delays of this peer's timers; `n_links` is the number of peers that it links to.

    Examples
    --------
    >>> from p2pclust.peer.core.timing import preset
    >>> pace, timing = AnswerPace(n_links=5), preset("fast")
    >>> pace.answered(0.02)
    >>> pace.more_s(timing)
    0.0
    >>> pace.was_late(0.4, timing)
    >>> round(pace.more_s(timing), 2)
    1.1
    """

    def __init__(self, n_links: int) -> None:
        #: How long an answer usually takes at present; less than the truth rather than more.
        self.usual_s = _START_S * max(0, n_links - _FEW)

    def answered(self, after_s: float) -> None:
        """Take note of how long a member took to answer a probe, in time or not."""
        self.usual_s += _GAIN * (after_s - self.usual_s)

    def was_late(self, by_s: float, timing: Timing) -> None:
        """Take note that a timer of this peer was late: answers are at least as late."""
        self.usual_s = max(self.usual_s, min(by_s, _MOST_LATE * timing.probe_period_s))

    def forget(self) -> None:
        """Give former observations less weight; to be called with each probe. If answers no longer come, none is slow."""
        self.usual_s *= _KEPT

    def more_s(self, timing: Timing) -> float:
        """Return how much longer than usual to wait for an answer; 0 if answers come well within `probe_timeout_s`."""
        more_s = _ROUND_TRIPS * self.usual_s - timing.probe_timeout_s
        return min(max(0.0, more_s), _MOST_PERIODS * timing.probe_period_s)


_CONFIRMATIONS: Final = 3  # Lifeguard's K


@dataclass
class Suspicions:
    """The timers of this peer's suspicions. When one is due, the member is considered dead."""

    _ctx: Context
    _table: MemberTable
    _pace: AnswerPace

    @property
    def planned_s(self) -> float:
        """The duration of a suspicion that three other peers confirm, where answers come in time."""
        return self._ctx.preset.suspicion_s(len(self._table.members) + 1)

    @property
    def shortest_s(self) -> float:
        """The same at present."""
        return self.planned_s + 2 * self._pace.more_s(self._ctx.preset)

    def begin(self, member: Member, by: str) -> None:
        member.suspected_at, member.suspected_by = self._ctx.now, by
        member.confirmed_by.clear()
        # The suspect is informed at the beginning, and after a third and two thirds of the shortest duration.
        self._ctx.set_timer(("member", "suspicion", member.name), self._factor(member) * self.shortest_s)
        for part in (1, 2):
            self._ctx.set_timer(("member", "inform", member.name, str(part)), self.shortest_s * part / 3)

    def confirm(self, member: Member, by: str) -> bool:
        """Shorten a suspicion if this peer had not confirmed it yet; return whether it had not."""
        if by in (member.suspected_by, *member.confirmed_by) or len(member.confirmed_by) >= _CONFIRMATIONS:
            return False
        member.confirmed_by[by] = None
        ends_at = member.suspected_at + self._factor(member) * self.shortest_s
        self._ctx.timers.set(("member", "suspicion", member.name), ends_at)
        return True

    def end(self, member: Member) -> None:
        member.suspected_by = ""
        self._ctx.timers.cancel(("member", "suspicion", member.name))
        for part in (1, 2):
            self._ctx.timers.cancel(("member", "inform", member.name, str(part)))

    def overslept(self, passed_s: float) -> None:
        """Prolong all suspicions by the time in which this peer was stopped."""
        for member in self._table.members.looked_at():
            if member.suspected_by:
                member.suspected_at += passed_s
        self._ctx.timers.postpone(("member", "suspicion"), passed_s)

    def _factor(self, member: Member) -> float:
        # Lifeguard's formula, with as many confirmations expected as the fleet can give.
        expected = min(_CONFIRMATIONS, len(self._table.witnesses(member.name)))
        if expected <= 0:
            return 1.0
        return max(1.0, 4.0 - 3.0 * log(len(member.confirmed_by) + 1) / log(expected + 1))


_SMALL_FLEET: Final = 3  # in fleets up to this size one refused connection proves a death


@dataclass
class Refusals:
    """Counts the plain connects to members that are refused, each for the duration of a suspicion."""

    _ctx: Context
    _table: MemberTable
    _suspicions: Suspicions
    _dies: Callable[[str], None]  # called when observations prove that a member is dead

    def checked(self, name: str, refused: bool) -> None:
        """Take the result of a connect."""
        member = self._table.members.get(name)
        if member is None or not refused or not self._table.present(name) or not self._ctx.routing.linked(name):
            return
        with self._ctx.routing.around(name):
            for other in self._table.witnesses(name):
                if self._table.present(other):
                    self._ctx.send(other, Refusal(name, member.incarnation))
        self.heard(name, member.incarnation, self._ctx.me)

    def heard(self, name: str, incarnation: int, by: str) -> None:
        """Count the refused connect of a peer."""
        member = self._table.members.get(name)
        if member is None or incarnation != member.incarnation or not self._table.present(name):
            return
        first = self._ctx.me not in member.refused_by
        member.refused_by[by] = self._ctx.now
        lately = self._ctx.now - self._suspicions.planned_s
        witnesses = [witness for witness, at in member.refused_by.items() if at >= lately]
        # Two are a verdict, or one where there are too few witnesses.
        few = len(self._table.witnesses(name)) < (_SMALL_FLEET - 1 if self._ctx.routing.whole else 1)
        if len(witnesses) >= (1 if few else 2):
            self._dies(name)
        elif first and by != self._ctx.me:
            self._table.look(name)
