"""What this peer believes of each member of the fleet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from p2pclust.peer.core.context import Context
from p2pclust.peer.core.effects import CheckLink
from p2pclust.peer.core.messages import Update
from p2pclust.peer.core.reports import LinkBroken, LinkMended

#: A peer refutes a claim with a higher incarnation, and numbers its facts from it on, so a liar must not be able to use the
#: numbers up. No peer has so many lives; beyond it, what others say of a peer is believed in small steps only.
_MOST_LIVES: Final = 2**32
_STEP: Final = 16
_MOST_CLAIMS: Final = 16  # in one message
_MOST_SENT: Final = 3  # times, of a claim to each neighbour, on a sparse overlay


@dataclass(slots=True)
class Member:
    """What this peer believes of another.

    Where every peer knows the whole overlay, a peer that is not a neighbour counts as alive, in incarnation 0, until its
    neighbours report otherwise: so the start of a large fleet causes no messages about it.
    """

    name: str
    status: str = "unknown"  # never heard of; or alive, suspect, dead, left
    incarnation: int = 0
    address: str = ""  # where this peer links to it
    claimed: str = ""  # the address in its newest claim
    store_id: str = ""
    suspected_by: str = ""
    confirmed_by: dict[str, None] = field(default_factory=dict)  # other peers that suspect it
    suspected_at: float = 0.0
    refused_by: dict[str, float] = field(default_factory=dict)  # peers whose connect was refused, and when
    changed_at: float = 0.0
    greetings: int = 0  # without an answer so far
    hint_at: float = 0.0  # before this instant, hints of its address are ignored
    behind: bool = False  # its newest claim about itself was of an earlier life than others have heard of
    replied: bool = False  # to a question of this life of this peer

    def update(self) -> Update:
        """Return the claim to pass on."""
        address = self.claimed or self.address
        return Update(self.name, self.status, self.incarnation, address, self.store_id, self.suspected_by)


class MemberMap(Mapping[str, Member]):
    """The members by name, sorted, without `me`. `make` makes each when it is first looked at.

    Along a sparse overlay a peer looks at few members, and hears of few.
    """

    def __init__(self, names: tuple[str, ...], me: str, make: Callable[[str], Member]) -> None:
        self._names = _sorted(names)  # shared: replaced, never changed
        self._me = me
        self._make = make
        self._made: dict[str, Member] = {}

    def __getitem__(self, name: str) -> Member:
        found = self._made.get(name)
        if found is None:
            if name not in self:
                raise KeyError(name)
            found = self._made[name] = self._make(name)
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._made or (name in self._names and name != self._me)

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._names if name != self._me)

    def __len__(self) -> int:
        return len(self._names) - (self._me in self._names)

    def known(self, name: str) -> Member | None:
        """Return a member that was looked at; None if nothing was heard of it, or it is not enrolled."""
        return self._made.get(name)

    def among(self, names: Iterable[str]) -> list[Member]:
        """Return those of these peers that are members, in their order."""
        made = self._made
        return [made[name] if name in made else self[name] for name in names if name in made or name in self]

    def looked_at(self) -> list[Member]:
        """Return the members that were looked at, sorted: of the others nothing was heard."""
        return [self._made[name] for name in sorted(self._made)]

    def enrol(self, member: Member) -> None:
        """Add a member."""
        self._names = dict.fromkeys(sorted((*self._names, member.name)))
        self._made[member.name] = member

    def expel(self, name: str) -> Member | None:
        """Remove a member, and return it if there was one."""
        if name not in self:
            return None
        member = self[name]
        self._names = {other: None for other in self._names if other != name}
        del self._made[name]
        return member


@lru_cache(maxsize=4)
def _sorted(names: tuple[str, ...]) -> Mapping[str, None]:
    # Once for all peers of this process that have this roster.
    return dict.fromkeys(sorted(names))


@dataclass(slots=True)
class _Claim:
    update: Update
    left: int  # how often it is still to be sent, to any peer
    n_sent: dict[str, int] = field(default_factory=dict)  # to each neighbour
    known_to: dict[str, None] = field(default_factory=dict)  # the neighbours that have sent it, too

    def lacks(self, name: str) -> bool:
        """Return whether it is to be sent to a neighbour: one that has sent it gets one message, as an answer."""
        most = 1 if name in self.known_to else _MOST_SENT
        return name != self.update.name and self.n_sent.get(name, 0) < most


@dataclass
class News:
    """The newest claim about each member that may not have reached all peers.

    On a full mesh a claim is sent often enough to reach all peers by some way. On a sparse overlay this peer may
    be a neighbour's only source, so each claim goes to every neighbour, and again until that neighbour sends it, too.
    """

    _members: Sized
    _whole: bool
    _claims: dict[str, _Claim] = field(default_factory=dict)  # by the member that they are about

    def __bool__(self) -> bool:
        return bool(self._claims)

    def forget(self, name: str) -> None:
        """Drop the claim about a peer that is no longer a member."""
        self._claims.pop(name, None)

    def add(self, update: Update) -> None:
        """Begin to pass on a claim, in place of an earlier one about the same member."""
        n_digits = len(str(len(self._members) + 1))  # ceil(log10(N + 1)) for the N that matter
        self._claims[update.name] = _Claim(update, 4 * n_digits)

    def heard(self, update: Update, source: str) -> None:
        """Note that a peer has sent a claim."""
        claim = self._claims.get(update.name)
        if claim is not None and not self._whole:
            mine = claim.update
            if (mine.status, mine.incarnation, mine.by) == (update.status, update.incarnation, update.by):
                claim.known_to[source] = None

    def take(self, to: str) -> list[Update]:
        """Return the claims to send to that member now, the least-sent first, and count them as sent."""
        claims = [self._claims[name] for name in self.least_sent(to)[:_MOST_CLAIMS]]
        for claim in claims:
            claim.left -= 1
            if not self._whole:
                claim.n_sent[to] = claim.n_sent.get(to, 0) + 1
            elif claim.left <= 0:
                del self._claims[claim.update.name]
        return [claim.update for claim in claims]

    def drop_known(self, neighbours: list[str]) -> None:
        """Drop the claims that none of these neighbours, which are all, lacks; for a sparse overlay."""
        for claim in list(self._claims.values()):
            if not any(claim.lacks(name) for name in neighbours):
                del self._claims[claim.update.name]

    def least_sent(self, to: str) -> list[str]:
        """Return the members that there are claims about to send to that member, the least-sent first."""
        names = sorted(self._claims, key=lambda name: -self._claims[name].left)
        return names if self._whole else [name for name in names if self._claims[name].lacks(to)]


class MemberTable:
    """The members by name, questions about them, and what is said of them. Nothing here changes a status."""

    def __init__(self, context: Context, roster: tuple[str, ...], address: str, incarnation: int) -> None:
        self._ctx = context
        self._me = Member(context.me, "alive", incarnation, address, store_id=context.store_id)
        self._addresses: Mapping[str, str] = {}  # of the configuration
        self._first = frozenset(context.routing.own)  # the neighbours at the start
        self.members = MemberMap(
            roster, context.me, lambda name: Member(name, self._assumed(name), address=self._addresses.get(name, ""))
        )
        self._news = News(self.members, context.routing.whole)
        self.links_changed = False  # whether a link broke or works again; the core takes note and clears it

    def _assumed(self, name: str) -> str:
        return "alive" if self._ctx.routing.mapped and name not in self._first else "unknown"

    @property
    def incarnation(self) -> int:
        return self._me.incarnation

    @staticmethod
    def possible(incarnation: int, member: Member) -> bool:
        """Return whether a member may have that incarnation, of which another peer says so."""
        return incarnation <= max(_MOST_LIVES, member.incarnation + _STEP)

    def status(self, name: str) -> str:
        """Return the status of a member; this peer itself is always alive."""
        if name == self._ctx.me:
            return "alive"
        member = self.members.known(name)
        if member is not None:
            return member.status
        return self._assumed(name) if name in self.members else "revoked"

    def gone(self, name: str) -> bool:
        """Return whether the member is dead, left, or revoked."""
        return self.status(name) in ("dead", "left", "revoked")

    def present(self, name: str) -> bool:
        """Return whether the member is alive or suspect."""
        return self.status(name) in ("alive", "suspect")

    def alive(self) -> list[str]:
        """Return the names of all peers that are alive or suspect, this one included, sorted."""
        return sorted([self._ctx.me, *(name for name in self.members if self.present(name))])

    def all_here(self) -> bool:
        """Return whether all enrolled peers are present."""
        if not self._ctx.routing.mapped:
            return all(self.present(name) for name in self.members)
        # The others are assumed to be.
        looked_at = all(member.status in ("alive", "suspect") for member in self.members.looked_at())
        return looked_at and all(self.present(name) for name in self._first if name in self.members)

    def neighbours(self) -> list[str]:
        """Return the neighbours that are alive or suspect; on a full mesh every peer is a neighbour."""
        return [member.name for member in self._linked() if member.status in ("alive", "suspect")]

    def store_id(self, name: str) -> str:
        """Return the id of the member's store, empty if unknown."""
        if name == self._ctx.me:
            return self._ctx.store_id
        member = self.members.known(name)
        return "" if member is None else member.store_id

    def witnesses(self, name: str) -> list[str]:
        """Return the peers that can also check a member: its neighbours; on a full mesh, all."""
        routing = self._ctx.routing
        names = list(self.members) if routing.whole else routing.neighbours_of(name)
        return [other for other in names if other not in (name, self._ctx.me)]

    def _linked(self) -> list[Member]:
        if self._ctx.routing.whole:
            return list(self.members.values())
        return self.members.among(self._ctx.routing.own)

    def claims_for(self, to: str) -> tuple[Update, ...]:
        """Return this peer's claim, a claim that the receiver must refute or has forgotten, then the least-sent news."""
        claims = [self._me.update()]
        about = self.members[to]
        if about.behind or about.status in ("suspect", "dead", "left"):
            claims.append(about.update())
        return (*claims, *(self._news.take(to) if self._ctx.routing.linked(to) else ()))

    def look(self, name: str) -> None:
        """Try to connect, if there is a link."""
        if self._ctx.routing.linked(name):
            self._ctx.effects.append(CheckLink(name))

    def link_works(self, name: str, works: bool) -> None:
        """Note whether a neighbour that is alive answers over its link; on a sparse overlay messages go around it if not."""
        if self._ctx.routing.set_works(name, works):
            self._ctx.report(LinkMended(neighbour=name) if works else LinkBroken(neighbour=name))
            self.links_changed = True

    def _table(self) -> tuple[Update, ...]:
        known = self.members.looked_at()
        heard = (m for m in known if m.status != "unknown" and (m.status != "alive" or m.incarnation))
        return (self._me.update(), *(member.update() for member in heard))
