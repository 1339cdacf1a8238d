"""Enrolment: the fleet roster, which spreads from peer to peer. The highest serial that the fleet signed wins.

Membership tables and digests of facts carry the serial of their sender's roster. A peer that receives a higher serial asks
for that roster; a peer that receives a lower one offers its own. The shell checks the fleet's signature before anything
changes here; until then a roster is opaque bytes. In a fleet without rosters (serial 0) none of this happens.

A peer that is no longer on the roster is *revoked*: nothing is sent to it and nothing from it is heard, neither directly
nor through others; its votes and acknowledgements are discarded. It stays on the rosters of running jobs, whose majorities
are counted over all peers that were there at the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from p2pclust.peer.core.context import Context, TimerKey
from p2pclust.peer.core.effects import CheckRoster, SendRoster, TakeRoster
from p2pclust.peer.core.events import RosterRead
from p2pclust.peer.core.members.membership import Membership
from p2pclust.peer.core.messages import Message, RosterCopy, RosterOffer, RosterRequest
from p2pclust.peer.core.reports import KeysExpired, RosterRefused, RosterTaken

__all__ = ["CURRENT", "TABLE", "Changes", "Enrolment"]

#: The row in which a peer keeps the roster.
TABLE, CURRENT = "roster", "current"

_FANOUT: Final = 8  # peers that are sent a new roster at once; the others learn of it when they compare
_DISTRUST_S: Final = 60.0  # how long a peer that sent an unsigned roster is not asked again
_MOST_OFFERS: Final = 256
_TIMER: Final[TimerKey] = ("roster", "ask")


class Changes(Protocol):
    """What a new roster changes at this peer."""

    def enrolled(self, name: str) -> None:
        """Add a peer to the fleet."""

    def renewed(self, name: str) -> None:
        """Use a peer's new keys."""

    def revoked(self, name: str) -> None:
        """Remove a peer from the fleet."""

    def facts_are_signed(self) -> None:
        """Require signatures on facts from now on."""


class Enrolment:
    """Keeps the fleet roster. `peers` are those of the first roster, each with a text that changes with its keys."""

    def __init__(
        self, context: Context, membership: Membership, changes: Changes, peers: Mapping[str, str]
    ) -> None:  # fmt: skip
        self._ctx = context
        self._membership = membership
        self._changes = changes
        self._peers = peers  # replaced, never changed
        self._offers: dict[str, int] = {}  # peers with a newer roster
        self._asked = ""  # the peer whose copy is awaited or being checked
        self._checks = False  # whether that copy is being checked
        self._distrusted: dict[str, float] = {}

    def heard(self, source: str, serial: int) -> None:
        """Compare serials with a peer."""
        own = self._ctx.serial
        if not own or not serial or serial == own or not self._ctx.routing.linked(source):
            return
        if serial < own:
            self._ctx.send(source, RosterOffer(own))
        elif self._distrusted.get(source, 0.0) <= self._ctx.now and len(self._offers) < _MOST_OFFERS:
            self._offers[source] = serial
            self._ask()

    def receive(self, source: str, message: Message) -> None:
        """Handle a message about rosters."""
        match message:
            case RosterOffer():
                if message.serial > self._ctx.serial:  # a lower one is not answered: two peers would go on for ever
                    self.heard(source, message.serial)
            case RosterRequest():
                if message.serial < self._ctx.serial and self._ctx.routing.linked(source):
                    self._ctx.effects.append(SendRoster(source))
            case RosterCopy():
                if source == self._asked and not self._checks:  # a second copy would be checked for nothing
                    self._checks = True
                    self._ctx.effects.append(CheckRoster(source, b"".join(message.parts)))

    def fire(self, key: TimerKey) -> None:
        """Ask another peer: the last one did not answer."""
        self._offers.pop(self._asked, None)
        self._asked, self._checks = "", False
        self._ask()

    def _ask(self) -> None:
        if self._asked:
            return
        offers = {name: serial for name, serial in self._offers.items() if serial > self._ctx.serial}
        self._offers = {name: serial for name, serial in offers.items() if self._membership.present(name)}
        if self._offers:
            self._asked = max(self._offers, key=lambda name: self._offers[name])
            self._ctx.send(self._asked, RosterRequest(self._ctx.serial))
            self._ctx.set_timer(_TIMER, 4 * self._ctx.timing.retry_s)

    # -- rosters ------------------------------------------------------------------------------------------------------

    def read(self, event: RosterRead) -> None:
        """Take a roster whose signature was checked."""
        if event.source and event.source == self._asked:
            self._ctx.timers.cancel(_TIMER)
            promised = self._offers.pop(self._asked, 0)
            self._asked, self._checks = "", False
            if not event.valid or event.serial < promised:
                self._distrust(event)
        if event.valid and event.serial > self._ctx.serial:
            self._adopt(event)
        self._ask()

    def _distrust(self, event: RosterRead) -> None:
        self._distrusted[event.source] = self._ctx.now + _DISTRUST_S
        reason = event.reason or f"its serial is {event.serial}, and a newer one was promised"
        self._ctx.report(RosterRefused(peer=event.source, reason=reason))

    def _adopt(self, event: RosterRead) -> None:
        ctx, before = self._ctx, self._peers
        ctx.persist(TABLE, CURRENT, event.data)
        ctx.effects.append(TakeRoster(event.data))
        ctx.serial, self._peers = event.serial, dict(event.peers)
        ctx.pins = event.pins
        gone = sorted(name for name in before if name not in self._peers)
        new = sorted(name for name in self._peers if name not in before)
        renewed = sorted(name for name in before if self._peers.get(name, before[name]) != before[name])
        ctx.report(
            RosterTaken(
                serial=event.serial, enrolled=new, revoked=gone, renewed=renewed, by=event.source or "this device"
            )
        )
        self._revoke(gone)
        for name in new:
            ctx.barred.pop(name, None)
            self._changes.enrolled(name)
        for name in renewed:
            self._changes.renewed(name)
        before_signed, ctx.signs_facts = ctx.signs_facts, event.signs_facts
        if ctx.signs_facts and not before_signed:
            self._changes.facts_are_signed()
        for name in ctx.choose(self._membership.neighbours(), _FANOUT):
            if name != event.source:
                ctx.send(name, RosterOffer(event.serial))

    def expired(self, names: tuple[str, ...]) -> None:
        """Treat peers with expired keys as revoked."""
        over = [name for name in dict.fromkeys(names) if name in self._peers]
        self._peers = {name: text for name, text in self._peers.items() if name not in over}
        for name in over:
            self._ctx.report(KeysExpired(member=name))
        self._revoke(over)

    def _revoke(self, names: list[str]) -> None:
        others = [name for name in names if name != self._ctx.me]  # this peer is ended by its own shell
        for name in others:  # all, before the end of the first makes this peer speak to the others
            self._offers.pop(name, None)
            self._ctx.barred[name] = None
        for name in others:
            self._changes.revoked(name)
