"""Membership: SWIM (Das et al. 2002) with Lifeguard's suspicion and local health (Dadgar et al. 2017).

This module changes what this peer believes of the members, and spreads it: `docs/peer/membership.md` lists the rules.
Membership is a hint: it says which peers to try, and which not to wait for. No majority is counted with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from heapq import nsmallest
from typing import Final

from p2pclust.peer.core.context import Context, TimerKey
from p2pclust.peer.core.effects import Connect, Disconnect
from p2pclust.peer.core.members.member_table import Member, MemberTable
from p2pclust.peer.core.members.own_life import OwnLife, Twins
from p2pclust.peer.core.members.probes import Probes
from p2pclust.peer.core.members.verdicts import AnswerPace, Refusals, Suspicions
from p2pclust.peer.core.messages import Ack, Gossip, MemberSync, Message, Ping, PingRequest, Refusal, Update
from p2pclust.peer.core.reports import MemberChanged, NoAnswer

#: In one period. While a large fleet starts, each peer awaits nearly all others. If it greeted all of them in every period,
#: a fleet of 60 would send some ten thousand greetings a second, and be too busy with them to connect.
_MOST_GREETED: Final = 16
_RANK: Final = {"unknown": -1, "alive": 0, "suspect": 1, "dead": 2, "left": 3}
_FANOUT: Final = 3
_LOOKERS: Final = 16  # peers that check a suspect
_HINT_TURNS: Final = 4  # of such turns, one is for a hint and the others for the address that is known
_COMPLAIN_AFTER: Final = 10  # greetings without an answer, one per probe period


class Membership(MemberTable):
    """Keeps and spreads the status of all members. `roster` has the enrolled names; other peers are ignored."""

    def __init__(self, context: Context, roster: tuple[str, ...], address: str, incarnation: int) -> None:
        super().__init__(context, roster, address, incarnation)
        #: How long answers take.
        self.pace = AnswerPace(len(self.members) if context.routing.whole else len(context.routing.own))
        self._probes = Probes(context, self, self.pace, self._no_answer)
        self.suspicions = Suspicions(context, self, self.pace)
        self.refusals = Refusals(context, self, self.suspicions, self._dies)
        self._greeted_last = ""
        self._sync_s = context.preset.sync_period_s  # until the next table is exchanged
        #: Names that two processes use.
        self.twins = Twins(context, self._me)
        #: What this peer claims of itself.
        self.own = OwnLife(context, self._me, self._spread, self.twins.claimed, is_first=incarnation <= 1)
        #: The members whose status changed, with the status before, oldest first; the core empties it.
        self.changes: list[tuple[str, str]] = []

    # -- life -------------------------------------------------------------------------------------------------------

    def start(self, addresses: Mapping[str, str]) -> None:
        """Link to the addresses that the configuration names, and begin to probe."""
        self.own.began_at = self._ctx.now
        self._addresses = addresses
        if not self.own.is_first:
            self._probes.count_on(int(self._ctx.rng.integers(2**40)))
        for member in self.members.looked_at():  # others are made with their address
            member.address = addresses.get(member.name, member.address)
        neighbours = [name for name in self.members if self._ctx.routing.linked(name)]
        for name in neighbours:
            if name in addresses:
                self._link(name, addresses[name])
        self._ctx.set_timer(("member", "probe"), self._ctx.uniform(0.0, self._ctx.preset.probe_period_s / 5))
        if self._ctx.routing.whole and any(name not in addresses for name in self.members):
            # This peer learns of the others from those that are named, so the first exchanges come soon.
            self._sync_s = self._ctx.preset.probe_period_s
        self._ctx.set_timer(("member", "sync"), self._ctx.uniform(0.5, 1.5) * self._sync_s)
        self._ctx.set_timer(("member", "dead"), self._ctx.uniform(0.5, 1.5) * self._ctx.preset.dead_probe_s)
        for name in neighbours:
            self.greet(name)

    def leave(self) -> None:
        """Announce that this peer leaves on purpose."""
        claim = self.own.leave()
        for name in self.neighbours():
            self._ctx.send(name, Gossip((claim,)))

    def fire(self, key: TimerKey) -> None:
        """A timer of this machine is due."""
        match key[1]:
            case "probe":
                self._probe()
            case "direct" | "verdict" | "helping":
                self._probes.fire(key)
            case "suspicion":
                self._dies(key[2])
            case "inform":
                self._ctx.send(key[2], Gossip((self.members[key[2]].update(),)))
            case "gossip":
                self._gossip()
            case "sync":
                self._sync_s = min(2 * self._sync_s, self._ctx.preset.sync_period_s)
                self._compare_tables(key, self.neighbours(), self._sync_s, 4 * self.slack_s())
            case "dead":
                dead = [member.name for member in self._linked() if member.status == "dead"]
                self._compare_tables(key, dead, self._ctx.preset.dead_probe_s)
            case "hint":  # it led to no answer: return to the known address
                member = self.members.known(key[2])
                if member is not None and not self.present(key[2]) and member.address:  # it may be revoked meanwhile
                    self._link(key[2], member.address)

    def receive(self, source: str, message: Message) -> None:
        """A membership message came."""
        if source not in self.members:
            return
        member = self.members[source]
        if isinstance(message, Ping | MemberSync) and message.updates and message.updates[0].name == source:
            own = message.updates[0]
            if own.address and own.address != member.address:
                # A member that lost its store counts incarnations from the start again, so its claim loses here; only an
                # answer at its new address makes it raise them.
                member.address = own.address
                self._link(source, own.address)
            if isinstance(message, Ping):
                self.twins.pinged(own, message.seq)
        if isinstance(message, Ping | Ack | PingRequest | Gossip | MemberSync):
            self._merge(message.updates, source, table=isinstance(message, MemberSync))
        match message:
            case Ping():
                self._ctx.send(source, Ack(message.seq, True, self.claims_for(source)), direct=True)
            case Ack():
                self._probes.answered(source, message)
            case PingRequest() if message.target in self.members:
                self._probes.help(source, message)
            case MemberSync() if not message.answer:
                self._send_table(source, answer=True)
            case Refusal():
                self.refusals.heard(message.name, message.incarnation, source)

    def _link(self, name: str, address: str) -> None:
        if self._ctx.routing.linked(name):
            self._ctx.effects.append(Connect(name, address))

    def hint(self, name: str, address: str) -> None:
        """Try an unproven address of a member for a while; only an answer of the member itself is believed."""
        # The known address has its turn before the next hint, so wrong hints cannot hide a member.
        member = self.members.get(name)
        known = member is None or self.present(name) or address == member.address or not self._ctx.routing.linked(name)
        if known or member is None or self._ctx.now < member.hint_at:
            return
        window_s = self._ctx.preset.dead_probe_s
        member.hint_at = self._ctx.now + _HINT_TURNS * window_s
        self._link(name, address)
        self.greet(name)
        self._ctx.set_timer(("member", "hint", name), window_s)

    def link_appeared(self, name: str) -> None:
        """Connect to a new neighbour, and exchange tables: if this peer believes it dead, it learns that, and refutes it."""
        if self.members[name].address:
            self._link(name, self.members[name].address)
        self._send_table(name)

    def link_vanished(self, name: str) -> None:
        """Disconnect from a peer that is no longer a neighbour; from now on its silence proves nothing."""
        # A suspicion in progress continues: other peers know of it, and those linked to the suspect pass on its refutation.
        self._ctx.effects.append(Disconnect(name))
        self._probes.forget(name)

    # -- who is a member ----------------------------------------------------------------------------------------------

    def enrol(self, name: str) -> None:
        """Add a peer to the fleet."""
        if name not in self.members and name != self._ctx.me:
            self.members.enrol(Member(name))

    def renew(self, name: str) -> None:
        """Open the link to a peer again, with its new keys."""
        self.twins.forget(name)
        if name in self.members and self.members[name].address:
            self._ctx.effects.append(Disconnect(name))
            self._link(name, self.members[name].address)

    def expel(self, name: str) -> None:
        """Remove a peer from the fleet."""
        member = self.members.expel(name)
        if member is None:
            return
        self.suspicions.end(member)
        self.link_vanished(name)
        self._probes.help_no_more(name)
        self._news.forget(name)
        self.twins.forget(name)
        for other in self.members.looked_at():
            other.refused_by.pop(name, None)
            other.confirmed_by.pop(name, None)
        self.changes.append((name, member.status))

    # -- probing ----------------------------------------------------------------------------------------------------

    def _probe(self) -> None:
        period_s = self._ctx.preset.probe_period_s * self._ctx.uniform(0.9, 1.1)
        self._ctx.set_timer(("member", "probe"), period_s + self.slack_s())
        armed = self._ctx.timers.armed
        near = self._linked()
        awaited = [m for m in near if armed(("member", "hint", m.name)) or (m.status == "unknown" and m.address)]
        if len(awaited) > _MOST_GREETED:  # in turns
            awaited = nsmallest(_MOST_GREETED, awaited, lambda member: (member.name <= self._greeted_last, member.name))
            self._greeted_last = awaited[-1].name
        for member in awaited:
            self.greet(member.name)
            if armed(("member", "hint", member.name)):
                continue
            member.greetings += 1
            if member.greetings % _COMPLAIN_AFTER == 0:
                self._ctx.report(NoAnswer(member.name, member.address))
                if self._ctx.routing.mapped:  # other peers believe it alive until they are informed
                    self._accept(Update(member.name, "dead", 0, "", "", ""))
        self._probes.next()

    def _no_answer(self, name: str, incarnation: int) -> None:
        target = self.members[name]
        if target.incarnation != incarnation:
            return  # it came back meanwhile: the ping went to a former life
        if target.status == "alive":
            self._accept(Update(target.name, "suspect", target.incarnation, "", "", self._ctx.me))
        elif target.status == "suspect":
            self._confirm(target, self._ctx.me)

    def greet(self, name: str) -> None:
        """Ping a member without expecting an answer."""
        if name in self.members:
            self._probes.greet(name)

    # -- claims -----------------------------------------------------------------------------------------------------

    def _merge(self, updates: tuple[Update, ...], source: str, *, table: bool = False) -> None:
        # What a peer passes on about others is news; an entry of a whole table need not be.
        for update in updates:
            if update.name == self._ctx.me:
                if self.possible(update.incarnation, self._me):
                    self.own.refute(update)
            elif update.name in self.members and update.status in _RANK:
                own = update.name == source
                if own:
                    self.members[source].behind = update.incarnation < self.members[source].incarnation
                if own or self.possible(update.incarnation, self.members[update.name]):
                    self._accept(update, own=own, passed_on=not own and not table)
                    self._news.heard(update, source)

    def may_promise(self, name: str) -> bool:
        """Return whether a peer may be promised something: see `OwnLife.may_promise`; once a neighbour answers a ping."""
        own = self.own
        return own.is_first or not self._ctx.routing.linked(name) or own.may_promise(self.members[name])

    def _accept(self, update: Update, *, own: bool = False, passed_on: bool = False) -> None:
        """Take a claim: the member's `own`, or news that another peer has `passed_on`."""
        member = self.members[update.name]
        newer = update.incarnation > member.incarnation or member.status == "unknown"
        # All peers assume this: so a first claim of it adds nothing.
        assumed = member.status == "unknown" or (member.status == "alive" and member.incarnation == 0)
        expected = update.status == "alive" and not passed_on and self._ctx.routing.mapped and assumed
        same = update.incarnation == member.incarnation
        if update.status == "suspect" == member.status and same:
            self._confirm(member, update.by)
            return
        older = update.incarnation < member.incarnation or (same and _RANK[update.status] <= _RANK[member.status])
        if update.status == "unknown" or older:
            return
        before = member.status
        member.status, member.incarnation, member.changed_at = update.status, update.incarnation, self._ctx.now
        if newer:
            member.refused_by.clear()
        if update.store_id:
            member.store_id = update.store_id
        member.claimed = update.address or member.claimed
        if update.address and update.address != member.address:
            member.address = update.address
            self._link(member.name, update.address)
        self.suspicions.end(member)
        if update.status == "suspect":
            self.suspicions.begin(member, update.by)
            # The others that are linked to it try to connect too: of many, some are enough.
            routing = self._ctx.routing
            n_linked = len(self.members if routing.whole else routing.neighbours_of(member.name))
            if n_linked <= _LOOKERS or self._ctx.uniform(0.0, n_linked) < _LOOKERS:
                self.look(member.name)
            self._ctx.send(member.name, Gossip((member.update(),)))
        if before != member.status:
            self.changes.append((member.name, before))
            self._ctx.report(MemberChanged(member.name, member.status, before, member.incarnation))
        if not expected:
            self._spread(member.update())
        if update.status == "alive" and before != "suspect" and self._ctx.routing.linked(member.name):
            if before == "unknown" and not own:  # one that announced itself has just been answered, or has answered
                self.greet(member.name)
            if not self._ctx.routing.whole:
                # On a full mesh other peers send it the news. Elsewhere this peer may be its only link, and news from
                # before it appeared is no longer sent.
                self._send_table(member.name)

    def slack_s(self) -> float:
        """Return how much slower than usual to continue, because processors are short."""
        return self.pace.more_s(self._ctx.preset)

    def answer_s(self) -> float:
        """Return how long an answer of the farthest peer usually takes at present."""
        return self.pace.usual_s * max(1, self._ctx.routing.reach)

    def _confirm(self, member: Member, by: str) -> None:
        if self.suspicions.confirm(member, by):
            self._spread(replace(member.update(), status="suspect", by=by))

    # -- verdicts ---------------------------------------------------------------------------------------------------

    def check(self, name: str) -> None:
        """Check whether a member's process lives."""
        if name in self.members and self.present(name):
            self.look(name)

    def _dies(self, name: str) -> None:
        self._accept(Update(name, "dead", self.members[name].incarnation, "", "", ""))

    # -- spreading --------------------------------------------------------------------------------------------------

    def _spread(self, update: Update) -> None:
        self._news.add(update)
        if not self._ctx.timers.armed(("member", "gossip")):
            self._ctx.set_timer(("member", "gossip"), 0.0)

    def _gossip(self) -> None:
        near = self.neighbours()
        lacking = [name for name in near if self._news.least_sent(name)]
        for name in self._ctx.choose(lacking, _FANOUT) if self._ctx.routing.whole else lacking:
            if self._news:
                self._ctx.send(name, Gossip(self.claims_for(name)))
        if not self._ctx.routing.whole:
            self._news.drop_known(near)
        if self._news:
            self._ctx.set_timer(("member", "gossip"), self._ctx.preset.gossip_period_s + self.slack_s() / 4)

    def _compare_tables(self, timer: TimerKey, names: list[str], period_s: float, more_s: float = 0.0) -> None:
        self._ctx.set_timer(timer, period_s * self._ctx.uniform(0.9, 1.1) + more_s)
        for name in self._ctx.choose(names, 1):
            self._send_table(name)

    def _send_table(self, to: str, *, answer: bool = False) -> None:
        self._ctx.send(to, MemberSync(answer, self._table(), self._ctx.serial))
