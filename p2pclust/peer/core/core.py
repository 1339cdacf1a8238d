"""The core of a peer: one pure step machine, `step(now, event) -> effects`.

It knows no socket, clock, disk, thread or global random state. The shell performs its effects on ZeroMQ and SQLite, the
simulator in virtual time. Effects are performed in order, and a `Persist` with `sync` is on disk before the next one: so no
message can reveal what a crash could take back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import numpy as np

from p2pclust.clustering.kernels import KERNELS, NUMPY
from p2pclust.errors import WireError
from p2pclust.peer.core import events, messages
from p2pclust.peer.core.context import Context
from p2pclust.peer.core.effects import Compute, Effect
from p2pclust.peer.core.enrolment import TABLE as ROSTERS
from p2pclust.peer.core.enrolment import Enrolment
from p2pclust.peer.core.evidence import Verified
from p2pclust.peer.core.fleet_roster import FleetRoster, HeldRosters
from p2pclust.peer.core.jobs.jobs import FACTS_OF_JOBS, Jobs
from p2pclust.peer.core.jobs.submission import TOLD
from p2pclust.peer.core.ledger import adopted_blobs
from p2pclust.peer.core.members.membership import Membership
from p2pclust.peer.core.reports import BadLinks, NeighbourReplaced
from p2pclust.peer.core.routing import LINKS, Routing
from p2pclust.peer.core.spread.blobs import Blobs
from p2pclust.peer.core.spread.facts import FITNESS, KERNEL, Facts
from p2pclust.peer.core.spread.series import PAUSES
from p2pclust.peer.core.tasks import BlobHashed, BlobToken, Contributed, JobToken, PadsTaken, StateMade, Summed, Token
from p2pclust.peer.core.timing import Limits, Timing
from p2pclust.transport.wire import verified

#: The machine that receives each kind of message, as timers name it; the other kinds are about one job.
_RECEIVERS: Final[dict[type[messages.Message], str]] = {
    **dict.fromkeys((messages.Ping, messages.Ack, messages.PingRequest), "member"),
    **dict.fromkeys((messages.Gossip, messages.MemberSync, messages.Refusal), "member"),
    **dict.fromkeys((messages.FactDigest, messages.FactDelta), "fact"),
    **dict.fromkeys((messages.RosterOffer, messages.RosterRequest, messages.RosterCopy), "roster"),
    **dict.fromkeys((messages.BlobRequest, messages.BlobChunk, messages.BlobMissing), "blob"),
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
    #: By digest: the number of chunks, and those that are there.
    blobs: Mapping[bytes, tuple[int, tuple[int, ...]]] = field(default_factory=dict)


@lru_cache(maxsize=4)
def _without_keys(roster: tuple[str, ...]) -> Mapping[str, str]:
    # Once for all peers of this process that have this roster.
    return dict.fromkeys(roster, "")


class Core:
    """One peer. See the module's text; `docs/peer/rounds.md` walks through a round and a crash.

    `problem_with_size` says why a job, for so many peers, is too large for the device, or returns an empty string. `sign`
    signs with the key of the device, in a fleet with keys, and `verified` checks a signature.
    """

    def __init__(
        self, identity: Identity, stored: StoreContents, timing: Timing, limits: Limits, rng: np.random.Generator,
        problem_with_size: Callable[[bytes, int], str] = lambda job, n_peers: "",
        sign: Callable[[bytes], bytes] | None = None, verified: Verified = verified,
    ) -> None:  # fmt: skip
        self.identity = identity
        self.limits = limits
        self.routing = Routing(identity.name, identity.overlay, identity.links)
        held = identity.fleet_rosters
        self.rosters = HeldRosters(held[0] if held else None, identity.before, held)
        self._ctx = Context(
            identity.name, timing, limits, rng, stored.store_id, self.routing, identity.serial, self.rosters,
            identity.signs_facts, problem_with_size, sign, verified,
            {name: None for roster in held for name in roster.devices if name not in identity.roster},
        )  # fmt: skip
        self.problem_with_size = problem_with_size
        self.timers = self._ctx.timers
        self.barred = self._ctx.barred  # the revoked peers, as far as this peer knows
        # One above the last life: a "dead" of that life never buries this one.
        self._incarnation = stored.incarnation + 1
        self.membership = Membership(self._ctx, identity.roster, identity.address, self._incarnation)
        self.facts = Facts(self._ctx, self.membership, self._incarnation)
        self.facts.means_something = lambda key: key in (LINKS, FITNESS, KERNEL) or key.startswith(FACTS_OF_JOBS)
        tables = {name: dict(rows) for name, rows in stored.tables.items()}
        self.blobs = Blobs(self._ctx, dict(stored.blobs), adopted_blobs(tables.get("register", {})))
        self.jobs = Jobs(self._ctx, self.membership, self.facts, self.blobs, identity.fitness, tables)
        keys = identity.keys or _without_keys(identity.roster)
        self.enrolment = Enrolment(
            self._ctx, self.membership, self.facts, self.blobs, self.jobs, keys, tables.get(ROSTERS, {})
        )  # fmt: skip
        self._running: dict[Token, None] = {}  # tasks that have not ended
        self._machines: dict[str, Membership | Facts | Blobs | Jobs | Enrolment] = {
            "roster": self.enrolment, "member": self.membership, "fact": self.facts, "blob": self.blobs,
            **dict.fromkeys(("job", "submit", PAUSES, TOLD), self.jobs),
        }  # fmt: skip

    @property
    def unread_phases(self) -> tuple[str, ...]:
        """The phases of rounds of which nothing reads the reports, which are not made; none at the start."""
        return self._ctx.unread_phases

    @unread_phases.setter
    def unread_phases(self, phases: tuple[str, ...]) -> None:
        self._ctx.unread_phases = phases

    @property
    def wake_at(self) -> float:
        """When the core wants a `Woken` at the latest; infinity if it waits for nothing but messages."""
        return self.timers.next_at

    def kernel_of(self, name: str) -> str:
        """Return the best kernel that a peer has published; empty if none."""
        fact = self.facts.get(name, KERNEL)
        known = {kernel.encode(): kernel for kernel in KERNELS}
        return "" if fact is None else known.get(fact.value, NUMPY)

    def way_to(self, name: str) -> str:
        """Return the relay that a peer was last heard through on a full mesh, or an empty string."""
        return self._ctx.way_to(name)

    def step(self, now: float, event: events.Event) -> list[Effect]:  # noqa: PLR0912 - one branch for each event
        """Take one event and return the effects to perform, in order; `now`, in seconds, never goes back."""
        ctx, members, late_s = self._ctx, self.membership, now - self.timers.next_at
        # Something happens at least once per period, which is longer while processors are short. Otherwise this process was
        # asleep, stopped, or without a processor: suspicions last longer, and answers are given more time.
        awake_s, expected_s = now - ctx.now, 2 * ctx.preset.probe_period_s
        if awake_s > expected_s and awake_s > expected_s + members.slack_s():
            members.suspicions.overslept(awake_s)
        if late_s > 0:
            members.pace.was_late(late_s, ctx.preset)
        ctx.now = now
        match event:
            case events.Arrived():
                self._arrived(event)
            case events.Computed():
                self._computed(event)
            case events.Started():
                self._start()
            case events.LinkChecked():
                members.refusals.checked(event.peer, event.refused)
            case events.Hinted():
                members.hint(event.peer, event.address)
            case events.Linked():
                self._linked(event.peer, up=event.up)
            case events.Submit():
                self.jobs.submit(event)
            case events.Cancel():
                self.jobs.cancel(event)
            case events.RosterRead():
                self.enrolment.read(event)
            case events.Expired():
                self.enrolment.expired(event.names)
            case events.Leave():
                members.leave()
        while self.timers.next_at <= now and (key := self.timers.pop_due(now)) is not None:
            self._machines[key[0]].fire(key)
        if members.changes or members.links_changed or members.own.has_forgotten or self.facts.news:
            self._settle()
        self.jobs.look()
        self.enrolment.look()
        self._sweep()
        effects, ctx.effects = ctx.effects, []
        return effects

    def _start(self) -> None:
        self._ctx.persist("self", "incarnation", str(self._incarnation).encode())
        self.membership.start(self.identity.join)
        self.facts.start()
        if not self.routing.links_known:
            self.facts.publish(LINKS, self.routing.own_claim)
        if self.identity.kernel:
            self.facts.publish(KERNEL, self.identity.kernel.encode())
        self.jobs.start()

    def _arrived(self, event: events.Arrived) -> None:
        source, via, message = event.source, event.via, event.message
        members = self.membership.members
        if source not in members or (via and via not in members):
            return  # not enrolled, or this peer itself
        linking = self.identity.partial_view or source in self.enrolment.newcomers
        if linking and not via and not self.routing.linked(source):
            self._linked(source, up=True)  # it has linked to this peer
        if isinstance(message, messages.Relay):  # to another peer: the shell opens those for this one
            if message.target in members and message.origin not in self.barred:
                self._ctx.carry(message, source, len(members))
            return
        self._ctx.heard(source, via)
        receiver = _RECEIVERS.get(type(message))
        if receiver is None:
            self.jobs.receive(source, message)
            return
        if isinstance(message, messages.MemberSync | messages.FactDigest | messages.FactDelta) and not via:
            self.enrolment.heard(source, message.serial)
        self._machines[receiver].receive(source, message)

    def _linked(self, name: str, *, up: bool) -> None:
        """Act on a link that appeared or vanished, then publish this peer's links."""
        if name not in self.membership.members or not self.routing.link(name, up=up):
            return
        if up:
            self.membership.link_appeared(name)
        else:
            self.membership.link_vanished(name)
            self.blobs.link_vanished(name)
        self.facts.publish(LINKS, self.routing.own_claim)
        if up and self.membership.present(name):
            self.facts.greet(name)

    def _computed(self, event: events.Computed) -> None:
        token, outcome = event.token, event.outcome
        self._running.pop(token, None)
        if isinstance(token, BlobToken):
            self.blobs.verified(token.digest, isinstance(outcome, BlobHashed) and outcome.good)
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
        members = self.membership
        if members.own.has_forgotten:
            members.own.has_forgotten = False
            self.jobs.store_lost()
        if members.links_changed:
            members.links_changed = False
            self.facts.publish(LINKS, self.routing.own_claim)
        changes, members.changes = members.changes, []
        for name, before in changes:
            status, gone = members.status(name), members.gone(name)
            self.routing.set_carries(name, not gone)
            replaced = self.identity.partial_view and gone and self.routing.linked(name)
            if replaced and (other := self.routing.replacement(name)):  # so that all keep their number of links
                self._ctx.report(NeighbourReplaced(lost=name, by=other))
                self._linked(other, up=True)
            if status == "alive" and before != "suspect" and self.routing.linked(name):
                self.facts.welcome(name)
            self.jobs.member_changed(name)
        news, self.facts.news = self.facts.news, []
        for fact in news:
            if fact.key != LINKS:
                self.jobs.learn(fact)
            elif fact.owner == self.identity.name:
                # Facts of a former life are taken over as still true, but its links may have changed.
                if not self.routing.whole and fact.value != self.routing.own_claim:
                    self.facts.publish(LINKS, self.routing.own_claim)
            else:
                try:
                    self.routing.learn(fact.owner, fact.value)
                except WireError as error:
                    self._ctx.report(BadLinks(owner=fact.owner, reason=str(error)))

    def _sweep(self) -> None:
        # Drop the blobs that no job needs, at the end of a step: a register may just have left one. Never while a task runs:
        # it may be making the same blob again (sums that do not change have one digest in every round), and a worker writes
        # while the loop continues.
        for effect in self._ctx.effects:
            if type(effect) is Compute:
                self._running[effect.token] = None
        if not self._running and self.blobs.any():
            in_use = frozenset(digest for job in self.jobs.jobs.values() for digest in job.blobs_in_use())
            self.blobs.keep_only(in_use, unfinished=self.jobs.unfinished())
