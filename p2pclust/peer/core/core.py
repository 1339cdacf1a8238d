"""The core of a peer: one pure step machine, `step(now, event) -> effects`.

It knows no socket, clock, disk, thread or global random state. The shell performs its effects on ZeroMQ and SQLite, the
simulator in virtual time; both run this very class. Effects are performed in order, and a `Persist` with `sync` is on disk
before the next one: so no message can reveal what a crash could take back.

Machines, from the bottom up: enrolment (the fleet roster), membership (which peers are present), facts (small values that
spread to all), blobs (large objects), jobs (for each job an election, a follower, and while this peer aggregates, its term).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import numpy as np

from p2pclust.clustering.kernels import KERNELS, NUMPY
from p2pclust.errors import WireError
from p2pclust.peer.core.context import Context, Timers
from p2pclust.peer.core.effects import Compute, Effect
from p2pclust.peer.core.events import (
    Arrived,
    Cancel,
    Computed,
    Event,
    Expired,
    Hinted,
    Leave,
    LinkChecked,
    Linked,
    RosterRead,
    Started,
    Submit,
)  # fmt: skip
from p2pclust.peer.core.fleet_roster import FleetRoster, HeldRosters
from p2pclust.peer.core.jobs.jobs import FACTS_OF_JOBS, Jobs
from p2pclust.peer.core.ledger import adopted_blobs
from p2pclust.peer.core.members.enrolment import TABLE as ROSTERS
from p2pclust.peer.core.members.enrolment import Enrolment
from p2pclust.peer.core.members.membership import Membership
from p2pclust.peer.core.messages import (
    Ack,
    BlobChunk,
    BlobMissing,
    BlobRequest,
    FactDelta,
    FactDigest,
    Gossip,
    MemberSync,
    Message,
    Ping,
    PingRequest,
    Refusal,
    Relay,
    RosterCopy,
    RosterOffer,
    RosterRequest,
)  # fmt: skip
from p2pclust.peer.core.reports import BadLinks, NeighbourReplaced
from p2pclust.peer.core.routing import LINKS, Routing
from p2pclust.peer.core.spread.blobs import Blobs
from p2pclust.peer.core.spread.facts import FITNESS, KERNEL, Fact, Facts
from p2pclust.peer.core.tasks import Contributed, JobToken, PadsTaken, StateMade, Summed, Token, Verified, VerifyToken
from p2pclust.peer.core.timing import Limits, Timing

#: The machine that receives each kind of message; the other kinds are about one job.
_RECEIVERS: Final[dict[type[Message], str]] = {
    **dict.fromkeys((Ping, Ack, PingRequest, Gossip, MemberSync, Refusal), "membership"),
    **dict.fromkeys((FactDigest, FactDelta), "facts"),
    **dict.fromkeys((RosterOffer, RosterRequest, RosterCopy), "enrolment"),
    **dict.fromkeys((BlobRequest, BlobChunk, BlobMissing), "blobs"),
}


@dataclass(frozen=True)
class Identity:
    """Who this peer is, and the peers of its fleet."""

    name: str
    address: str  # where it listens, "host:port"
    roster: tuple[str, ...]  # all peers of the fleet
    join: Mapping[str, str] = field(default_factory=dict)  # addresses known from the start
    fitness: float = 0.5  # 0 to 1: how well it would aggregate
    overlay: Mapping[str, Sequence[str]] | None = None  # the links of each peer, as far as known; None: a full mesh
    links: tuple[str, ...] | None = None  # its own neighbours at the start, if not those of the overlay
    partial_view: bool = False  # whether it may link to any peer, and replaces a dead neighbour by another
    serial: int = 0  # of the fleet roster; 0 where there is none that could change
    keys: Mapping[str, str] = field(default_factory=dict)  # by peer: a text that changes with its keys
    fleet_rosters: Sequence[FleetRoster] = ()  # that this peer holds, in a fleet with keys; the first is in force
    before: bytes = b""  # the digest of the one that it held before the one in force
    signs_facts: bool = False  # whether the fleet roster says that all peers sign their facts
    kernel: str = ""  # the best that it has for passes over its rows; empty if it publishes none


@dataclass(frozen=True)
class StoreContents:
    """The content of the store when the peer started."""

    store_id: str
    incarnation: int = 0
    tables: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)  # job, ballot, register
    blobs: Mapping[bytes, tuple[int, tuple[int, ...]]] = field(
        default_factory=dict
    )  # n_chunks and those that are there


@lru_cache(maxsize=4)
def _without_keys(roster: tuple[str, ...]) -> Mapping[str, str]:
    """Return an empty text for each peer of a roster, once for all peers of this process that have it."""
    return dict.fromkeys(roster, "")


class Core:
    """One peer. See the module's text; `docs/peer/rounds.md` walks through a round and a crash.

    `too_large` says why a job, for so many peers, is too large for the device, or returns an empty string.
    """

    def __init__(
        self, identity: Identity, stored: StoreContents, timing: Timing, limits: Limits, rng: np.random.Generator,
        too_large: Callable[[bytes, int], str] = lambda job, n_peers: "",
    ) -> None:  # fmt: skip
        self.identity = identity
        self.limits = limits
        self.routing = Routing(identity.name, identity.overlay, identity.links)
        held = identity.fleet_rosters
        rosters = HeldRosters(held[0] if held else None, identity.before, held)
        self._ctx = Context(
            identity.name, timing, limits, rng, stored.store_id, self.routing, identity.serial, rosters,
            identity.signs_facts, too_large,
            {name: None for roster in held for name in roster.devices if name not in identity.roster},
        )  # fmt: skip
        self.too_large = too_large
        # One above the last life: a "dead" of that life never buries this one.
        self._incarnation = stored.incarnation + 1
        self.membership = Membership(self._ctx, identity.roster, identity.address, self._incarnation)
        self.facts = Facts(self._ctx, self.membership, self._incarnation)
        self.facts.means_something = lambda key: key in (LINKS, FITNESS, KERNEL) or key.startswith(FACTS_OF_JOBS)
        tables = {name: dict(rows) for name, rows in stored.tables.items()}
        self.blobs = Blobs(self._ctx, dict(stored.blobs), adopted_blobs(tables.get("register", {})))
        self.jobs = Jobs(self._ctx, self.membership, self.facts, self.blobs, identity.fitness, tables)
        keys = identity.keys or _without_keys(identity.roster)
        self.enrolment = Enrolment(self._ctx, self.membership, self, keys, tables.get(ROSTERS, {}))
        self._newcomers: dict[str, None] = {}  # enrolled in this life, so they are on no map from the start
        self._running: dict[Token, None] = {}  # tasks that have not ended
        self._receivers: dict[str, Membership | Facts | Blobs | Enrolment] = {
            "membership": self.membership,
            "facts": self.facts,
            "enrolment": self.enrolment,
            "blobs": self.blobs,
        }
        self._machines: dict[str, Membership | Facts | Blobs | Jobs | Enrolment] = {
            "roster": self.enrolment,
            "member": self.membership,
            "fact": self.facts,
            "blob": self.blobs,
            "job": self.jobs,
            "submit": self.jobs,
            "pause": self.jobs,
            "told": self.jobs,
        }

    @property
    def wake_at(self) -> float:
        """When the core wants a `Woken` at the latest; infinity if it waits for nothing but messages."""
        return self._ctx.timers.next_at()

    @property
    def timers(self) -> Timers:
        """The timers of the machines of this core."""
        return self._ctx.timers

    @property
    def barred(self) -> Mapping[str, None]:
        """The revoked peers, as far as this peer knows."""
        return self._ctx.barred

    @property
    def rosters(self) -> HeldRosters:
        """The fleet rosters that this peer holds."""
        return self._ctx.rosters

    def kernel_of(self, name: str) -> str:
        """Return the best kernel that a peer has published; empty if none."""
        fact = self.facts.get(name, KERNEL)
        known = {kernel.encode(): kernel for kernel in KERNELS}
        return "" if fact is None else known.get(fact.value, NUMPY)

    def way_to(self, name: str) -> str:
        """Return the relay that a peer was last heard through on a full mesh, or an empty string."""
        return self._ctx.way_to(name)

    def step(self, now: float, event: Event) -> list[Effect]:
        """Take one event and return the effects to perform, in order.

        Parameters
        ----------
        now : float
            Seconds on a clock that never goes back.
        event : Event
            What happened.
        """
        ctx = self._ctx
        self._wake_up(now - ctx.now, now - ctx.timers.next_at())
        ctx.now = now
        if isinstance(event, Arrived):
            self._arrived(event)
        else:
            self._take(event)
        if ctx.timers.next_at() <= now:
            while (key := ctx.timers.pop_due(now)) is not None:
                self._machines[key[0]].fire(key)
        if self.membership.unsettled or self.facts.has_news:
            self._settle()
        self.jobs.look()
        self.enrolment.look()
        self._sweep()
        effects, ctx.effects = ctx.effects, []
        return effects

    def _take(self, event: Event) -> None:
        """Pass on an event other than a message."""
        match event:
            case Started():
                self._start()
            case Computed():
                self._computed(event)
            case LinkChecked():
                self.membership.refusals.checked(event.peer, event.refused)
            case Hinted():
                self.membership.hint(event.peer, event.address)
            case Linked():
                self._linked(event.peer, up=event.up)
            case Submit():
                self.jobs.submit(event)
            case Cancel():
                self.jobs.cancel(event)
            case RosterRead():
                self.enrolment.read(event)
            case Expired():
                self.enrolment.expired(event.names)
            case Leave():
                self.membership.leave()

    def _wake_up(self, passed_s: float, late_s: float) -> None:
        """Detect that this process was asleep, stopped, or without a processor; a timer is `late_s` over its time."""
        # Something happens at least once per period, which is longer while processors are short.
        if passed_s > 2 * self._ctx.preset.probe_period_s + self.membership.slack_s():
            self.membership.overslept(passed_s)
        if late_s > 0:
            self.membership.was_late(late_s)

    def _start(self) -> None:
        self._ctx.persist("self", "incarnation", str(self._incarnation).encode())
        self.membership.start(self.identity.join)
        self.facts.start()
        if not self._ctx.routing.told:
            self.facts.publish(LINKS, self._ctx.routing.own_claim)
        if self.identity.kernel:
            self.facts.publish(KERNEL, self.identity.kernel.encode())
        self.jobs.start()

    def _arrived(self, event: Arrived) -> None:
        source, via, message = event.source, event.via, event.message
        members = self.membership.members
        if source not in members or (via and via not in members):
            return  # not enrolled, or this peer itself
        linking = self.identity.partial_view or source in self._newcomers
        if linking and not via and not self.routing.linked(source):
            self._linked(source, up=True)  # it has linked to this peer
        if isinstance(message, Relay):
            if (
                message.target in members and message.origin not in self._ctx.barred
            ):  # the shell opens relays for this peer
                self._ctx.carry(message, source, len(members))
            return
        self._ctx.heard(source, via)
        receiver = _RECEIVERS.get(type(message))
        if receiver is None:
            self.jobs.receive(source, message)
            return
        if isinstance(message, MemberSync | FactDigest | FactDelta) and not via:
            self.enrolment.heard(source, message.serial)
        self._receivers[receiver].receive(source, message)

    def _linked(self, name: str, *, up: bool) -> None:
        """Act on a link that appeared or vanished, then publish this peer's links."""
        if name not in self.membership.members or not self._ctx.routing.link(name, up=up):
            return
        if up:
            self.membership.link_appeared(name)
        else:
            self.membership.link_vanished(name)
            self.blobs.link_vanished(name)
        self.facts.publish(LINKS, self._ctx.routing.own_claim)
        if up and self.membership.present(name):
            self.facts.greet(name)

    def _computed(self, event: Computed) -> None:
        token, outcome = event.token, event.outcome
        self._running.pop(token, None)
        if isinstance(token, VerifyToken):
            self.blobs.verified(token.digest, isinstance(outcome, Verified) and outcome.good)
            if self.blobs.has(token.digest):
                self.jobs.blob_ready(token.digest)
        elif isinstance(token, JobToken):
            ref = outcome.ref if isinstance(outcome, StateMade | Contributed | Summed | PadsTaken) else None
            made = None if ref is None or ref.payload is not None else ref.digest
            if made is not None:
                self.blobs.made(made)
            self.jobs.computed(token, outcome)
            if made is not None:
                self.jobs.blob_ready(made)  # a job here may have been fetching the same bytes

    def _settle(self) -> None:
        """Pass on what one machine learnt to the others: a lost store, changed members, new facts."""
        if self.membership.own.take_forgot():
            self.jobs.store_lost()
        if self.membership.take_links_changed():
            self.facts.publish(LINKS, self._ctx.routing.own_claim)
        for name, before in self.membership.take_changes():
            status = self.membership.status(name)
            gone = self.membership.gone(name)
            self._ctx.routing.carries(name, not gone)
            if self.identity.partial_view and gone and self.routing.linked(name):
                self._replace(name)
            if status == "alive" and before != "suspect" and self._ctx.routing.linked(name):
                self.facts.welcome(name)
            self.jobs.member_changed(name)
        for fact in self.facts.take_news():
            if fact.key == LINKS:
                self._learn_links(fact)
            else:
                self.jobs.learn(fact)

    # -- what a new roster changes (Changes) --------------------------------------------------------------------------

    def enrolled(self, name: str) -> None:
        """Add a peer to the fleet."""
        self._newcomers[name] = None
        self.membership.enrol(name)

    def renewed(self, name: str) -> None:
        """Use a peer's new keys."""
        self.membership.renew(name)
        self.jobs.renewed(name)
        if self._ctx.signs_facts:
            self.facts.forget(name)  # its old key signed them; it publishes them again, since new keys need a restart

    def named_rosters(self) -> Iterable[bytes]:
        """Return the digests of the rosters that the documents of jobs name."""
        return self.jobs.named_rosters()

    def roster_came(self) -> None:
        """Look at the documents that wait for a roster."""
        self.jobs.roster_came()

    def revoked(self, name: str) -> None:
        """Remove a peer from the fleet."""
        self._newcomers.pop(name, None)
        self.membership.expel(name)
        self.blobs.link_vanished(name)
        self.facts.forget(name)
        self.jobs.revoked(name)

    def _replace(self, lost: str) -> None:
        """Link to another peer that lost the same neighbour, so that all keep their number of links."""
        other = self.routing.replacement(lost)
        if other:
            self._ctx.report(NeighbourReplaced(lost=lost, by=other))
            self._linked(other, up=True)

    def _learn_links(self, fact: Fact) -> None:
        routing = self._ctx.routing
        if fact.owner == self.identity.name:
            # Facts of a former life are taken over as still true, but its links may have changed.
            if not routing.whole and fact.value != routing.own_claim:
                self.facts.publish(LINKS, routing.own_claim)
            return
        try:
            routing.learn(fact.owner, fact.value)
        except WireError as error:
            self._ctx.report(BadLinks(owner=fact.owner, reason=str(error)))

    def _sweep(self) -> None:
        """Drop the blobs that no job needs, at the end of a step: a register may just have left one.

        Never while a task runs: it may be making the same blob again (sums that do not change have one digest in every
        round), and a worker writes while the loop continues.
        """
        for effect in self._ctx.effects:
            if type(effect) is Compute:
                self._running[effect.token] = None
        if not self._running and self.blobs.any():
            self.blobs.keep_only(frozenset(self.jobs.blobs_in_use()), unfinished=self.jobs.unfinished())
