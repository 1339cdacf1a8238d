"""Enrolment: the fleet roster, which spreads from peer to peer. The highest serial that the fleet signed wins.

Membership tables and digests of facts carry the serial of their sender's roster. The shell checks the fleet's signature
before anything changes here; until then a roster is opaque bytes. In a fleet without rosters (serial 0) none of this
happens. `docs/peer/keys.md` says what a revoked peer loses.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

from p2pclust.peer.core.context import Context, TimerKey
from p2pclust.peer.core.effects import CheckRoster, SendRoster, TakeRoster
from p2pclust.peer.core.events import RosterRead
from p2pclust.peer.core.fleet_roster import FleetRoster, RosterName
from p2pclust.peer.core.jobs.jobs import Jobs
from p2pclust.peer.core.members.membership import Membership
from p2pclust.peer.core.messages import Message, RosterCopy, RosterOffer, RosterRequest
from p2pclust.peer.core.reports import KeysExpired, RosterRefused, RosterTaken
from p2pclust.peer.core.spread.blobs import Blobs
from p2pclust.peer.core.spread.facts import Facts

#: The table of rosters, each by the SHA-256 of its file in hexadecimal digits; two rows have those digits of the roster in
#: force and of the one before it.
TABLE, CURRENT, BEFORE = "roster", "current", "before"

_FANOUT: Final = 8  # peers that are sent a new roster at once; the others learn of it when they compare
_DISTRUST_S: Final = 60.0  # how long a peer that sent an unsigned roster is not asked again
_GRACE_S: Final = 60.0  # in which a peer with another roster may pass on facts that are refused here
_MOST_OFFERS: Final = 256
_MOST_EXPLAINED: Final = 48 * 1024  # bytes of a roster that is sent on the control lane, over links that end
_TIMER: Final[TimerKey] = ("roster", "ask")


def in_force(rows: Mapping[str, bytes]) -> bytes | None:
    """Return the roster in force, from the rows of the table; None if there is none."""
    return rows.get(rows.get(CURRENT, b"").decode())


def fleet_rosters(rows: Mapping[str, bytes]) -> list[bytes]:
    """Return all rosters in the rows of the table."""
    return [data for key, data in rows.items() if key not in (CURRENT, BEFORE)]


def rows_in_force(data: bytes, current: bytes | None) -> list[tuple[str, str, bytes]]:
    """Return the rows that put a roster in force; `current` is the row of that name before."""
    digits = hashlib.sha256(data).hexdigest()
    before = [] if current is None or current == digits.encode() else [(TABLE, BEFORE, current)]
    return [(TABLE, digits, data), *before, (TABLE, CURRENT, digits.encode())]


class Enrolment:
    """Keeps the fleet rosters, and changes the other machines as a new one says.

    `peers` are those of the first roster, each with a text that changes with its keys; `stored` the rows of the table.
    """

    def __init__(
        self, context: Context, membership: Membership, facts: Facts, blobs: Blobs, jobs: Jobs, peers: Mapping[str, str],
        stored: Mapping[str, bytes],
    ) -> None:  # fmt: skip
        self._ctx = context
        self._membership = membership
        self._facts = facts
        self._blobs = blobs
        self._jobs = jobs
        #: Peers that were enrolled in this life, so they are on no map from the start.
        self.newcomers: dict[str, None] = {}
        self._peers = peers  # replaced, never changed
        self._current = stored.get(CURRENT)
        self._rows = dict.fromkeys(key for key in stored if key not in (CURRENT, BEFORE))
        self._offers: dict[str, int] = {}  # peers with a newer roster
        self._asked = ""  # the peer whose copy is awaited or being checked
        self._asked_for = b""  # the digest of the older roster that is awaited; empty: a newer one is
        self._turn = 0  # how often an older one was asked for
        self._checks = False  # whether that copy is being checked
        self._distrusted: dict[str, float] = {}
        self._unasked: dict[str, float] = {}  # until when a copy that was not asked for is ignored
        self._since = context.now  # this roster is in force here
        self._ahead: dict[str, float] = {}  # peers that claim a newer roster, since when

    def excuses(self, source: str, serial: int) -> bool:
        """Return whether a peer with that roster may pass on, in good faith, a fact that this peer must refuse."""
        now = self._ctx.now
        if serial == self._ctx.serial:
            return False
        if serial > self._ctx.serial:  # for a minute after it first claimed a newer roster
            return now - self._ahead.setdefault(source, now) < _GRACE_S
        # With an older one for a minute after it appeared here, or this roster came into force.
        member = self._membership.members.known(source)
        appeared = self._since if member is None else max(self._since, member.changed_at)
        return now - appeared < _GRACE_S

    def heard(self, source: str, serial: int) -> None:
        """Compare serials with a peer."""
        own = self._ctx.serial
        if not own or not serial or serial == own or not self._ctx.routing.linked(source):
            return
        if serial < own:
            self._ctx.send(source, RosterOffer(own))
        elif self._trusts(source) and len(self._offers) < _MOST_OFFERS:
            self._offers[source] = serial
            self._ask()

    def _trusts(self, name: str) -> bool:
        return self._distrusted.get(name, 0.0) <= self._ctx.now

    def receive(self, source: str, message: Message) -> None:
        """Handle a message about rosters."""
        match message:
            case RosterOffer():
                if message.serial > self._ctx.serial:  # on a lower one two peers would exchange offers indefinitely
                    self.heard(source, message.serial)
            case RosterRequest() if message.digest:
                relays = self._ctx.relays_to(source)
                if message.digest.hex() in self._rows and relays is not None:
                    self._ctx.effects.append(SendRoster(source, message.digest, relays))
            case RosterRequest():
                if message.serial < self._ctx.serial and self._ctx.routing.linked(source):
                    self._ctx.effects.append(SendRoster(source))
            case RosterCopy():
                if source == self._asked:
                    wanted, self._checks = not self._checks, True  # a second copy would be checked for nothing
                else:  # it may have revoked this device
                    wanted = self._unasked.get(source, 0.0) <= self._ctx.now
                    self._unasked[source] = self._ctx.now + _DISTRUST_S
                if wanted:
                    self._ctx.effects.append(CheckRoster(source, b"".join(message.parts)))

    def fire(self, key: TimerKey) -> None:
        """Ask another peer: the last one did not answer."""
        if not self._asked_for:
            self._offers.pop(self._asked, None)
        self._asked, self._checks = "", False
        self._jobs.roster_came()  # what waits for it may have waited for too long
        self._ask()

    def _ask(self) -> None:
        if self._asked:
            return
        offers = {name: serial for name, serial in self._offers.items() if serial > self._ctx.serial}
        self._offers = {name: serial for name, serial in offers.items() if self._membership.present(name)}
        if self._offers:
            self._asked, self._asked_for = max(self._offers, key=lambda name: self._offers[name]), b""
        elif wanted := list(self._ctx.rosters.wanted.items()):
            # Each time another of the rosters, and another of the peers that may have it.
            self._asked_for, names = wanted[self._turn % len(wanted)]
            able = [name for name in names if self._membership.present(name) and self._trusts(name)]
            self._asked = able[self._turn // len(wanted) % len(able)] if able else ""
            self._turn += 1
        else:
            return
        if self._asked:
            self._ctx.send(self._asked, RosterRequest(self._ctx.serial, self._asked_for))
        self._ctx.set_timer(_TIMER, 4 * self._ctx.timing.retry_s)

    def look(self) -> None:
        """Ask for a roster that a document names, unless this peer waits for an answer."""
        if self._ctx.rosters.wanted and not self._ctx.timers.armed(_TIMER):
            self._ask()

    # -- rosters ------------------------------------------------------------------------------------------------------

    def read(self, event: RosterRead) -> None:
        """Take a roster whose signature was checked."""
        if event.source and event.source == self._asked:
            self._ctx.timers.cancel(_TIMER)
            promised = 0 if self._asked_for else self._offers.pop(self._asked, 0)
            self._asked, self._checks = "", False
            other = bool(self._asked_for) and hashlib.sha256(event.data).digest() != self._asked_for
            if not event.valid or event.serial < promised or other:
                self._distrust(event)
        elif event.source and not event.valid:
            self._distrust(event)
        if event.valid and event.serial > self._ctx.serial:
            self._adopt(event)
        elif event.valid and event.devices is not None:  # an older roster is kept if a document names it
            roster = _named(event, event.devices)
            if roster.name.digest in self._ctx.rosters.wanted:
                self._write((TABLE, roster.name.digest.hex(), event.data))
                self._ctx.rosters.hold(roster)
                self._ctx.barred.update(dict.fromkeys(name for name in event.devices if name not in self._peers))
                self._jobs.roster_came()
        self._ask()

    def _write(self, *rows: tuple[str, str, bytes]) -> None:
        for row in rows:  # on the disk in this order, all of them with the last one
            self._ctx.persist(*row, sync=row is rows[-1])
        self._rows.update(dict.fromkeys(key for _, key, _ in rows if key not in (CURRENT, BEFORE)))

    def _distrust(self, event: RosterRead) -> None:
        self._distrusted[event.source] = self._ctx.now + _DISTRUST_S
        reason = event.reason or f"its serial is {event.serial}, and another one was promised"
        self._ctx.report(RosterRefused(peer=event.source, reason=reason))

    def _adopt(self, event: RosterRead) -> None:
        ctx, before, last = self._ctx, self._peers, self._current
        gone = sorted(name for name in before if name not in event.peers)
        renewed = sorted(name for name in before if event.peers.get(name, before[name]) != before[name])
        rows = rows_in_force(event.data, last)
        self._write(*rows)
        self._current = rows[-1][-1]
        for name in (*gone, *renewed) if len(event.data) <= _MOST_EXPLAINED else ():
            # It refuses their keys: they learn why before their links end.
            if name != ctx.me and self._membership.present(name) and ctx.routing.linked(name):
                ctx.send(name, RosterCopy((event.data,)))
        ctx.effects.append(TakeRoster(event.data))
        ctx.serial, self._peers = event.serial, dict(event.peers)
        self._since = ctx.now
        self._ahead.clear()
        if event.devices is not None:
            ctx.rosters.take(_named(event, event.devices))
        kept = {row.decode(): bytes.fromhex(row.decode()) for row in (self._current, last) if row is not None}
        named = [document.fleet_roster for document in self._jobs.table.documents.values()]
        kept |= {roster.digest.hex(): roster.digest for roster in named if roster is not None}
        ctx.rosters.keep_only(kept.values())
        for key in [key for key in self._rows if key not in kept]:
            del self._rows[key]
            ctx.persist(TABLE, key, None, sync=False)
        new = sorted(name for name in self._peers if name not in before)
        ctx.report(RosterTaken(event.serial, new, gone, renewed, by=event.source or "this device"))
        self._revoke(gone)
        for name in new:
            ctx.barred.pop(name, None)
            self.newcomers[name] = None
            self._membership.enrol(name)
        for name in renewed:
            self._membership.renew(name)
            self._jobs.renewed(name)
            if ctx.signs_facts:
                self._facts.forget(name)  # its old key signed them; it publishes them again: new keys need a restart
        self._jobs.roster_came()
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
            self.newcomers.pop(name, None)
            self._membership.expel(name)
            self._blobs.link_vanished(name)
            self._facts.forget(name)
            self._jobs.revoked(name)


def _named(event: RosterRead, devices: Mapping[str, bytes]) -> FleetRoster:
    return FleetRoster(RosterName(event.serial, hashlib.sha256(event.data).digest()), devices)
