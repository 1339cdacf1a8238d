"""Refused connections: where no process listens any more, and how many observations of that are a verdict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from p2pclust.peer.core.context import Context
from p2pclust.peer.core.effects import CheckLink
from p2pclust.peer.core.members.member_table import MemberTable
from p2pclust.peer.core.members.suspicions import Suspicions
from p2pclust.peer.core.messages import Refusal

_LOOKERS: Final = 16  # peers that check a suspect
_SMALL_FLEET: Final = 3  # in fleets up to this size one refused connection proves a death


class Refusals:
    """Checks members by plain connects, and counts those that are refused.

    Parameters
    ----------
    context : Context
        This peer.
    table : MemberTable
        The members.
    suspicions : Suspicions
        Their duration is how long an observation counts.
    dies : callable
        Is called with the name of a member of which the observations prove that it is dead.
    """

    def __init__(
        self, context: Context, table: MemberTable, suspicions: Suspicions, dies: Callable[[str], None]
    ) -> None:  # fmt: skip
        self._ctx = context
        self._table = table
        self._suspicions = suspicions
        self._dies = dies

    def look(self, name: str) -> None:
        """Try to connect, if there is a link."""
        if self._ctx.routing.linked(name):
            self._ctx.effects.append(CheckLink(name))

    def look_at_suspect(self, name: str) -> None:
        """Try to connect to a suspect, which other peers do too: in a large fleet some of them are enough."""
        n_members = len(self._table.members)
        if n_members <= _LOOKERS or self._ctx.uniform(0.0, n_members) < _LOOKERS:
            self.look(name)

    def checked(self, name: str, refused: bool) -> None:
        """Take the result of a connect."""
        member = self._table.members.get(name)
        if member is None or not refused or not self._table.present(name) or not self._ctx.routing.linked(name):
            return
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
        if len(witnesses) >= self._needed(name):
            self._dies(name)
        elif first and by != self._ctx.me:
            self.look(name)

    def _needed(self, name: str) -> int:
        """Return how many refused connects are a verdict: two, or one where there are too few witnesses."""
        others = len(self._table.witnesses(name))
        return 1 if others < (_SMALL_FLEET - 1 if self._ctx.routing.whole else 1) else 2
