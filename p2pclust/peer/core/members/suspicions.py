"""How long a suspicion lasts before it is a verdict, as in Lifeguard (Dadgar et al. 2017).

A suspicion lasts four times the shortest duration, and less with each confirmation, down to the shortest with three. The
suspect is informed at the beginning, and after a third and two thirds of the shortest duration, so that it can refute it.
"""

from __future__ import annotations

from math import log
from typing import Final

from p2pclust.peer.core.context import Context
from p2pclust.peer.core.members.member_table import Member, MemberTable
from p2pclust.peer.core.members.pace import AnswerPace

_CONFIRMATIONS: Final = 3  # Lifeguard's K


class Suspicions:
    """The timers of this peer's suspicions. When one is due, the member is considered dead."""

    def __init__(self, context: Context, table: MemberTable, pace: AnswerPace) -> None:
        self._ctx = context
        self._table = table
        self._pace = pace

    @property
    def planned_s(self) -> float:
        """The duration of a suspicion that three other peers confirm, where answers come in time."""
        return self._ctx.timing.suspicion_s(len(self._table.members) + 1)

    @property
    def shortest_s(self) -> float:
        """The same at present."""
        return self.planned_s + 2 * self._pace.more_s(self._ctx.preset)

    def begin(self, member: Member, by: str) -> None:
        """Begin a suspicion of a member."""
        member.suspected_at, member.suspected_by = self._ctx.now, by
        member.confirmed_by.clear()
        self._ctx.set_timer(("member", "suspicion", member.name), self._factor(member) * self.shortest_s)
        for part in (1, 2):
            self._ctx.set_timer(("member", "tell", member.name, str(part)), self.shortest_s * part / 3)

    def confirm(self, member: Member, by: str) -> bool:
        """Shorten a suspicion if this peer had not confirmed it yet; return whether it had not."""
        if by in (member.suspected_by, *member.confirmed_by) or len(member.confirmed_by) >= _CONFIRMATIONS:
            return False
        member.confirmed_by[by] = None
        ends_at = member.suspected_at + self._factor(member) * self.shortest_s
        self._ctx.timers.set(("member", "suspicion", member.name), ends_at)
        return True

    def end(self, member: Member) -> None:
        """End a suspicion."""
        member.suspected_by = ""
        self._ctx.timers.cancel(("member", "suspicion", member.name))
        for part in (1, 2):
            self._ctx.timers.cancel(("member", "tell", member.name, str(part)))

    def overslept(self, passed_s: float) -> None:
        """Prolong all suspicions by the time in which this peer was stopped."""
        for member in self._table.members.looked_at():
            if member.suspected_by:
                member.suspected_at += passed_s
        self._ctx.timers.postpone(("member", "suspicion"), passed_s)

    def _factor(self, member: Member) -> float:
        """Lifeguard's formula, with as many confirmations expected as the fleet can give."""
        expected = min(_CONFIRMATIONS, len(self._table.witnesses(member.name)))
        if expected <= 0:
            return 1.0
        return max(1.0, 4.0 - 3.0 * log(len(member.confirmed_by) + 1) / log(expected + 1))
