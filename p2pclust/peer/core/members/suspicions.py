"""How long a suspicion lasts before it is a verdict: as in Lifeguard (Dadgar et al. 2017), less with each independent view.

A suspicion begins at four times the shortest duration and comes down to it with three confirmations. The suspect is told at
its beginning, and again at a third and two thirds of the shortest duration: it refutes what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log
from typing import Final, Protocol

from p2pclust.peer.core.context import Context
from p2pclust.peer.core.messages import Update

__all__ = ["Member", "Suspicions"]

_CONFIRMATIONS: Final = 3  # Lifeguard's K


@dataclass(slots=True)
class Member:
    """What this peer believes of another.

    Where everybody was given the whole overlay, whoever is no neighbour is held alive, in incarnation 0, until its
    neighbours say otherwise: so a large fleet that starts has nothing to tell.
    """

    name: str
    status: str = "unknown"
    incarnation: int = 0
    address: str = ""
    store_id: str = ""
    suspected_by: str = ""
    confirmed_by: dict[str, None] = field(default_factory=dict)  # who else suspects it
    suspected_at: float = 0.0
    refused_by: dict[str, float] = field(default_factory=dict)  # who saw its port refuse, and when
    changed_at: float = 0.0
    greetings: int = 0  # that it has not answered yet
    hint_at: float = 0.0  # not before then, a hint of its address is taken

    def update(self) -> Update:
        """The claim to pass on."""
        return Update(self.name, self.status, self.incarnation, self.address, self.store_id, self.suspected_by)


class Fleet(Protocol):
    """What suspicions ask of whoever knows the members."""

    @property
    def members(self) -> Mapping[str, Member]:
        """All but this peer, by name."""

    def witnesses(self, name: str) -> Sequence[str]:
        """Who else can tell whether that member lives."""


class Suspicions:
    """The timers of all suspicions that this peer holds; when one is due, the member is dead to it."""

    def __init__(self, context: Context, fleet: Fleet) -> None:
        self._ctx = context
        self._fleet = fleet

    @property
    def shortest_s(self) -> float:
        """How long a suspicion lasts that three others confirm."""
        return self._ctx.timing.suspicion_s(len(self._fleet.members) + 1)

    def begin(self, member: Member, by: str) -> None:
        """Somebody suspects the member, of whom nobody did."""
        member.suspected_at, member.suspected_by = self._ctx.now, by
        member.confirmed_by.clear()
        self._ctx.set_timer(("member", "suspicion", member.name), self._factor(member) * self.shortest_s)
        for part in (1, 2):
            self._ctx.set_timer(("member", "tell", member.name, str(part)), self.shortest_s * part / 3)

    def confirm(self, member: Member, by: str) -> bool:
        """Shorten it, if that is a further view of it; returns whether it is."""
        if by in (member.suspected_by, *member.confirmed_by) or len(member.confirmed_by) >= _CONFIRMATIONS:
            return False
        member.confirmed_by[by] = None
        ends_at = member.suspected_at + self._factor(member) * self.shortest_s
        self._ctx.timers.set(("member", "suspicion", member.name), ends_at)
        return True

    def end(self, member: Member) -> None:
        """Nobody suspects it any more, or everybody knows."""
        member.suspected_by = ""
        self._ctx.timers.cancel(("member", "suspicion", member.name))
        for part in (1, 2):
            self._ctx.timers.cancel(("member", "tell", member.name, str(part)))

    def overslept(self, passed_s: float) -> None:
        """This peer was asleep so long and heard no refutation: each goes on where it was."""
        for member in self._fleet.members.values():
            if member.suspected_by:
                member.suspected_at += passed_s
        self._ctx.timers.postpone(("member", "suspicion"), passed_s)

    def _factor(self, member: Member) -> float:
        """Lifeguard's formula, with as many confirmations expected as the fleet can give."""
        expected = min(_CONFIRMATIONS, len(self._fleet.witnesses(member.name)))
        if expected <= 0:
            return 1.0
        return max(1.0, 4.0 - 3.0 * log(len(member.confirmed_by) + 1) / log(expected + 1))
