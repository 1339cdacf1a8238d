"""What this peer believes of each member of the fleet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from p2pclust.peer.core.context import Context
from p2pclust.peer.core.messages import Update

__all__ = ["Member", "MemberTable"]

_SMALL_FLEET: Final = 3
#: A peer refutes a claim with a higher incarnation, and numbers its facts from it on, so a liar must not be able to use the
#: numbers up. No peer has so many lives; beyond it, what others say of a peer is believed in small steps only.
_MOST_LIVES: Final = 2**32
_STEP: Final = 16


@dataclass(slots=True)
class Member:
    """What this peer believes of another.

    Where every peer knows the whole overlay, a peer that is not a neighbour counts as alive, in incarnation 0, until its
    neighbours report otherwise: so the start of a large fleet causes no messages about it.
    """

    name: str
    status: str = "unknown"
    incarnation: int = 0
    address: str = ""
    store_id: str = ""
    suspected_by: str = ""
    confirmed_by: dict[str, None] = field(default_factory=dict)  # other peers that suspect it
    suspected_at: float = 0.0
    refused_by: dict[str, float] = field(default_factory=dict)  # peers whose connect was refused, and when
    changed_at: float = 0.0
    greetings: int = 0  # without an answer so far
    hint_at: float = 0.0  # before this instant, hints of its address are ignored

    def update(self) -> Update:
        """Return the claim to pass on."""
        return Update(self.name, self.status, self.incarnation, self.address, self.store_id, self.suspected_by)


class MemberTable:
    """The members by name, and questions about them. Nothing here changes a member."""

    def __init__(self, context: Context, roster: tuple[str, ...], address: str, incarnation: int) -> None:
        self._ctx = context
        self._me = Member(context.me, "alive", incarnation, address, context.store_id)
        far = "alive" if context.routing.mapped else "unknown"
        self.members = {
            name: Member(name, "unknown" if context.routing.linked(name) else far)
            for name in sorted(roster)
            if name != context.me
        }

    @property
    def incarnation(self) -> int:
        """The incarnation of this peer."""
        return self._me.incarnation

    @staticmethod
    def possible(incarnation: int, member: Member) -> bool:
        """Return whether a member may have that incarnation, of which another peer says so."""
        return incarnation <= max(_MOST_LIVES, member.incarnation + _STEP)

    def status(self, name: str) -> str:
        """Return the status of a member; this peer itself is always alive."""
        if name == self._ctx.me:
            return "alive"
        return self.members[name].status if name in self.members else "revoked"

    def gone(self, name: str) -> bool:
        """Return whether the member is dead, left, or revoked."""
        return self.status(name) in ("dead", "left", "revoked")

    def present(self, name: str) -> bool:
        """Return whether the member is alive or suspect."""
        return self.status(name) in ("alive", "suspect")

    def alive(self) -> list[str]:
        """Return the names of all peers that are alive or suspect, this one included, sorted."""
        return sorted([self._ctx.me, *(m.name for m in self.members.values() if self.present(m.name))])

    def all_here(self) -> bool:
        """Return whether all enrolled peers are present."""
        return all(self.present(name) for name in self.members)

    def neighbours(self) -> list[str]:
        """Return the neighbours that are alive or suspect; on a full mesh every peer is a neighbour."""
        return self._near("alive", "suspect")

    def incarnation_of(self, name: str) -> int:
        """Return the newest known incarnation of a member."""
        return self.members[name].incarnation

    def store_id(self, name: str) -> str:
        """Return the id of the member's store, empty if unknown."""
        if name == self._ctx.me:
            return self._ctx.store_id
        return self.members[name].store_id if name in self.members else ""

    def witnesses(self, name: str) -> list[str]:
        """Return the peers that can also check a member: its neighbours; on a full mesh, all."""
        routing = self._ctx.routing
        names = list(self.members) if routing.whole else routing.neighbours_of(name)
        return [other for other in names if other not in (name, self._ctx.me)]

    def _near(self, *statuses: str) -> list[str]:
        """Return the neighbours with one of these statuses."""
        return [member.name for member in self._linked() if member.status in statuses]

    def _linked(self) -> list[Member]:
        if self._ctx.routing.whole:
            return list(self.members.values())
        return [self.members[name] for name in self._ctx.routing.own if name in self.members]

    def _needed(self, name: str) -> int:
        """Return how many refused connects are a verdict: two, or one where there are too few witnesses."""
        others = len(self.witnesses(name))
        return 1 if others < (_SMALL_FLEET - 1 if self._ctx.routing.whole else 1) else 2

    def _expected(self, member: Member) -> bool:
        """Return True if all peers assume that the member is alive, so that a first claim of it adds nothing."""
        unheard = member.status == "unknown" or (member.status == "alive" and member.incarnation == 0)
        return self._ctx.routing.mapped and unheard

    def _table(self) -> tuple[Update, ...]:
        heard = (m for m in self.members.values() if m.status != "unknown" and (m.status != "alive" or m.incarnation))
        return (self._me.update(), *(member.update() for member in heard))
