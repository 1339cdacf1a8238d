"""Who is there: SWIM (Das et al. 2002) with Lifeguard's suspicion and local health (Dadgar et al. 2017).

Here is what is believed of each member, and how it spreads; `Probes` finds out who does not answer, `Suspicions` how long
that may go on.

State of one member: `unknown` (on the fleet's roster, never heard of), `alive`, `suspect`, `dead`, `left`, with the
incarnation that only its owner raises. A claim of a higher incarnation wins; of equal ones `alive < suspect < dead`. Who is
not on the fleet's roster (any more) is no member: `revoked`.

Two departures, each measured before it was made:

- *Tell the suspect.* Whoever holds a suspicion sends it straight to the suspect when it begins and again at a third and
  two thirds of its shortest duration. False verdicts under loss become some thirty times rarer, detection no slower.
- *Refused is dead.* A plain TCP connect that is refused means that no process listens there. Two such observations (one
  in a fleet of up to three) are death at once; silence goes through suspicion.

What is known here is soft: it says whom to try and whom not to wait for. No majority is ever counted with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from p2pclust.peer.core.context import Context, TimerKey
from p2pclust.peer.core.effects import CheckLink, Connect, Disconnect
from p2pclust.peer.core.members.news import News
from p2pclust.peer.core.members.probes import Probes
from p2pclust.peer.core.members.suspicions import Member, Suspicions
from p2pclust.peer.core.messages import Ack, Gossip, MemberSync, Message, Ping, PingRequest, Refusal, Update

__all__ = ["Membership"]

_RANK: Final = {"unknown": -1, "alive": 0, "suspect": 1, "dead": 2, "left": 3}
_FANOUT: Final = 3
_SMALL_FLEET: Final = 3
_HINT_TURNS: Final = 4  # of such turns, one is for a hint and the others for the address that is known
_COMPLAIN_AFTER: Final = 10  # greetings without an answer, one per probe period


class Membership:
    """The machine. `roster` are the enrolled names; strangers are ignored."""

    def __init__(self, context: Context, roster: tuple[str, ...], address: str, incarnation: int) -> None:
        self._ctx = context
        self._me = Member(context.me, "alive", incarnation, address, context.store_id)
        far = "alive" if context.routing.mapped else "unknown"
        self.members = {
            name: Member(name, "unknown" if context.routing.linked(name) else far)
            for name in sorted(roster)
            if name != context.me
        }
        self._news = News(len(self.members) + 1, self.neighbours, whole=context.routing.whole)
        self._probes = Probes(context, self)
        self._suspicions = Suspicions(context, self)
        self._sync_s = context.timing.sync_period_s  # until the next table is exchanged
        self._left = self._forgot = False
        self._began_at = 0.0
        self._changes: list[tuple[str, str]] = []

    @property
    def incarnation(self) -> int:
        """This peer's own."""
        return self._me.incarnation

    # -- what others ask --------------------------------------------------------------------------------------------

    def status(self, name: str) -> str:
        """The status of a member; this peer itself is always alive."""
        if name == self._ctx.me:
            return "alive"
        return self.members[name].status if name in self.members else "revoked"

    def gone(self, name: str) -> bool:
        """Whether the member will not answer, as far as is known: dead, left, or revoked."""
        return self.status(name) in ("dead", "left", "revoked")

    def present(self, name: str) -> bool:
        """Whether the member is worth waiting for: alive or suspect."""
        return self.status(name) in ("alive", "suspect")

    def alive(self) -> list[str]:
        """Everybody that is alive or suspect, with this peer, sorted."""
        return sorted([self._ctx.me, *(m.name for m in self.members.values() if self.present(m.name))])

    def all_here(self) -> bool:
        """Whether everybody enrolled is there, as far as this peer can know; its neighbours have said so themselves."""
        return all(self.present(name) for name in self.members)

    def neighbours(self) -> list[str]:
        """The neighbours that are alive or suspect: on a full mesh, everybody."""
        return self._near("alive", "suspect")

    def call(self, names: Sequence[str]) -> None:
        """Ask peers who they are, of whom nothing but their place in the overlay is known."""
        for name in names:
            self._greet(name)

    def incarnation_of(self, name: str) -> int:
        """The newest life of a member that is known here."""
        return self.members[name].incarnation

    def store_id(self, name: str) -> str:
        """The id of the member's store, empty if not known."""
        if name == self._ctx.me:
            return self._ctx.store_id
        return self.members[name].store_id if name in self.members else ""

    def take_changes(self) -> list[tuple[str, str]]:
        """Members whose status changed since the last call, with the status before, oldest first."""
        changes, self._changes = self._changes, []
        return changes

    # -- life -------------------------------------------------------------------------------------------------------

    def start(self, addresses: dict[str, str]) -> None:
        """Link to the addresses that the configuration names, and begin to probe."""
        self._began_at = self._ctx.now
        for name, address in sorted(addresses.items()):
            if name in self.members:
                self.members[name].address = address
                self._link(name, address)
        self._ctx.set_timer(("member", "probe"), self._ctx.uniform(0.0, self._ctx.timing.probe_period_s / 5))
        if self._ctx.routing.whole and any(name not in addresses for name in self.members):
            # The others are heard of from those that were named: soon, and then more and more seldom.
            self._sync_s = self._ctx.timing.probe_period_s
        self._ctx.set_timer(("member", "sync"), self._ctx.uniform(0.5, 1.5) * self._sync_s)
        self._ctx.set_timer(("member", "dead"), self._ctx.uniform(0.5, 1.5) * self._ctx.timing.dead_probe_s)
        for name in self._ctx.routing.near(list(self.members)):
            self._greet(name)

    def leave(self) -> None:
        """Tell everybody that this peer goes on purpose."""
        self._left = True
        self._me.status = "left"
        for name in self._near("alive", "suspect"):
            self._ctx.send(name, Gossip((self._me.update(),)))

    def fire(self, key: TimerKey) -> None:
        """A timer of this machine is due."""
        match key[1]:
            case "probe":
                self._probe()
            case "direct" | "verdict" | "helping":
                self._probes.fire(key)
            case "suspicion":
                self._suspicion_over(key[2])
            case "tell":
                self._tell(key[2])
            case "gossip":
                self._gossip()
            case "sync":
                self._sync()
            case "dead":
                self._try_dead()
            case "hint":
                self._hint_over(key[2])

    def receive(self, source: str, message: Message) -> None:
        """A membership message came."""
        if source not in self.members:
            return
        if isinstance(message, Ping | MemberSync) and message.updates and message.updates[0].name == source:
            self._follow(self.members[source], message.updates[0].address)
        match message:
            case Ping():
                self._merge(message.updates, source)
                self._ctx.send(source, Ack(message.seq, True, self.claims_for(source)))
            case Ack():
                self._merge(message.updates, source)
                self._probes.answered(message)
            case PingRequest():
                self._merge(message.updates, source)
                if message.target in self.members:
                    self._probes.help(source, message)
            case Gossip():
                self._merge(message.updates, source)
            case MemberSync():
                self._merge(message.updates)
                if not message.answer:
                    self._ctx.send(source, MemberSync(True, self._table(), self._ctx.serial))
            case Refusal():
                self._refusal(message.name, message.incarnation, source)

    def _follow(self, member: Member, address: str) -> None:
        """Answer a member where its own message says that it is.

        A life that lost its store counts its incarnations from the start, so its claim loses against what is known of
        it, and only our answer, at its new address, makes it raise them.
        """
        if address and address != member.address:
            member.address = address
            self._link(member.name, address)

    def _link(self, name: str, address: str) -> None:
        if self._ctx.routing.linked(name):
            self._ctx.effects.append(Connect(name, address))

    def hint(self, name: str, address: str) -> None:
        """Somebody who proves nothing says where a member may be: try there for a while, and believe its own answer only.

        Whoever is here is not looked for. The address that is known gets its turn before another hint does, so hints that
        are wrong can keep nobody from being found.
        """
        member = self.members.get(name)
        known = member is None or self.present(name) or address == member.address or not self._ctx.routing.linked(name)
        if known or member is None or self._ctx.now < member.hint_at:
            return
        window_s = self._ctx.timing.dead_probe_s
        member.hint_at = self._ctx.now + _HINT_TURNS * window_s
        self._link(name, address)
        self._greet(name)
        self._ctx.set_timer(("member", "hint", name), window_s)

    def _hint_over(self, name: str) -> None:
        """Nobody answered where the hint led to: back to the address that is known."""
        if not self.present(name) and self.members[name].address:
            self._link(name, self.members[name].address)

    def link_appeared(self, name: str) -> None:
        """This peer can reach that one now: connect, and exchange all that each knows of the others.

        Whoever was held dead hears of it in this very message, and refutes it.
        """
        if self.members[name].address:
            self._link(name, self.members[name].address)
        self._ctx.send(name, MemberSync(False, self._table(), self._ctx.serial))

    def link_vanished(self, name: str) -> None:
        """This peer can reach that one no more. That is no death, so its silence from now on proves nothing.

        A suspicion that stands goes on: it was told to all, and whoever still has a link to the suspect passes on its word.
        """
        self._ctx.effects.append(Disconnect(name))
        self._probes.forget(name)

    def _near(self, *statuses: str) -> list[str]:
        """The neighbours of such a status: on a full mesh, everybody."""
        return [member.name for member in self._linked() if member.status in statuses]

    def _linked(self) -> list[Member]:
        if self._ctx.routing.whole:
            return list(self.members.values())
        return [self.members[name] for name in self._ctx.routing.own if name in self.members]

    # -- who is a member ----------------------------------------------------------------------------------------------

    def enrol(self, name: str) -> None:
        """That peer belongs to the fleet from now on."""
        if name not in self.members and name != self._ctx.me:
            self.members[name] = Member(name)
            self.members = dict(sorted(self.members.items()))
            self._news.resize(len(self.members) + 1)

    def renew(self, name: str) -> None:
        """That peer has other keys now: a link that was opened with the old ones leads nowhere."""
        if name in self.members and self.members[name].address:
            self._ctx.effects.append(Disconnect(name))
            self._link(name, self.members[name].address)

    def expel(self, name: str) -> None:
        """That peer belongs to the fleet no more."""
        member = self.members.pop(name, None)
        if member is None:
            return
        self._suspicions.end(member)
        self.link_vanished(name)
        self._probes.help_no_more(name)
        self._news.forget(name)
        self._news.resize(len(self.members) + 1)
        for other in self.members.values():
            other.refused_by.pop(name, None)
            other.confirmed_by.pop(name, None)
        self._changes.append((name, member.status))

    # -- probing ----------------------------------------------------------------------------------------------------

    def _probe(self) -> None:
        """Once per period: greet whoever has never answered, and probe one of those that have."""
        self._ctx.set_timer(("member", "probe"), self._ctx.timing.probe_period_s * self._ctx.uniform(0.9, 1.1))
        for member in self._linked():
            if self._ctx.timers.armed(("member", "hint", member.name)):
                self._greet(member.name)
            elif member.status == "unknown" and member.address:
                self._greet_again(member)
        self._probes.next()

    def no_answer(self, name: str, incarnation: int) -> None:
        """Neither the member nor anybody else answered a probe of that incarnation in time."""
        target = self.members[name]
        if target.incarnation != incarnation:
            return  # it came back meanwhile: the ping went to a former life
        if target.status == "alive":
            self._accept(Update(target.name, "suspect", target.incarnation, "", "", self._ctx.me))
        elif target.status == "suspect":
            self._confirm(target, self._ctx.me)

    def _greet_again(self, member: Member) -> None:
        self._greet(member.name)
        member.greetings += 1
        if member.greetings % _COMPLAIN_AFTER == 0:
            self._ctx.report(
                "no-answer", member=member.name, address=member.address,
                hint="is it running there, and is it on the newest fleet roster?",
            )  # fmt: skip
            if self._ctx.routing.mapped:
                self._accept(Update(member.name, "dead", 0, "", "", ""))  # others hold it alive, unless told

    def _greet(self, name: str) -> None:
        """Ping somebody of whom nothing is expected yet."""
        if name in self.members:
            self._probes.greet(name)

    def _welcome(self, name: str, before: str) -> None:
        """A neighbour appeared."""
        if before == "unknown":
            self._greet(name)
        if not self._ctx.routing.whole:
            # On a full mesh everybody else tells it the news. Elsewhere this peer may be its only link, and what came
            # by before it appeared is told no more.
            self._ctx.send(name, MemberSync(False, self._table(), self._ctx.serial))

    # -- claims -----------------------------------------------------------------------------------------------------

    def _merge(self, updates: tuple[Update, ...], source: str = "") -> None:
        """Take claims: what somebody passes on of others is news to it, so to others too; a whole table need not be."""
        for update in updates:
            if update.name == self._ctx.me:
                self._refute(update)
            elif update.name in self.members and update.status in _RANK:
                self._accept(update, passed_on=source not in ("", update.name))

    def _refute(self, update: Update) -> None:
        """Somebody claims that this peer is not alive, or knows a past of ours: in which it had left, or another store."""
        worse = _RANK.get(update.status, -1) > _RANK["alive"]
        other_store = update.store_id not in ("", self._ctx.store_id)
        if self._left or update.incarnation < self._me.incarnation:
            return
        if update.store_id == self._ctx.store_id and update.incarnation > self._me.incarnation:
            self.forgot("others have heard of a later life of it")
        if worse or other_store or update.incarnation > self._me.incarnation:
            self._me.incarnation = update.incarnation + 1
            self._ctx.persist("self", "incarnation", str(self._me.incarnation).encode())
            self._ctx.report("refuted", incarnation=self._me.incarnation)
            self._spread(self._me.update())

    def forgot(self, why: str) -> None:
        """This store once held more than it does: an older image of it was put back, or a disk lost its newest rows.

        What it promised since is not known, so from now on it is another store, which counts for no majority of the jobs
        that go on. Others are believed that only while a life is young: an image is put back between two lives, and a liar
        could otherwise take a healthy store's votes at any time.
        """
        if self._ctx.now - self._began_at > self._ctx.timing.patience_s:
            return
        store_id = "".join(f"{int(self._ctx.rng.integers(2**32)):08x}" for _ in range(4))
        self._ctx.report("store-forgot", reason=why, store=self._ctx.store_id)
        self._ctx.persist("self", "store_id", store_id.encode())
        self._ctx.store_id = self._me.store_id = store_id
        self._me.incarnation += 1
        self._ctx.persist("self", "incarnation", str(self._me.incarnation).encode())
        self._spread(self._me.update())
        self._forgot = True

    def take_forgot(self) -> bool:
        """Whether the store became another one since the last call."""
        forgot, self._forgot = self._forgot, False
        return forgot

    def _accept(self, update: Update, *, passed_on: bool = False) -> None:
        member = self.members[update.name]
        newer = update.incarnation > member.incarnation or member.status == "unknown"
        expected = update.status == "alive" and not passed_on and self._expected(member)
        if update.status == "suspect" == member.status and update.incarnation == member.incarnation:
            self._confirm(member, update.by)
            return
        if update.status == "unknown" or update.incarnation < member.incarnation:
            return
        if update.incarnation == member.incarnation and _RANK[update.status] <= _RANK[member.status]:
            return
        before = member.status
        member.status, member.incarnation, member.changed_at = update.status, update.incarnation, self._ctx.now
        if newer:
            member.refused_by.clear()
        if update.store_id:
            member.store_id = update.store_id
        if update.address and update.address != member.address:
            member.address = update.address
            self._link(member.name, update.address)
        self._suspicions.end(member)
        if update.status == "suspect":
            self._suspicions.begin(member, update.by)
            self.look(member.name)
            self._tell(member.name)
        if before != member.status:
            self._changes.append((member.name, before))
            self._ctx.report(
                "member", member=member.name, status=member.status, before=before, incarnation=member.incarnation
            )
        if not expected:
            self._spread(member.update())
        if update.status == "alive" and before != "suspect" and self._ctx.routing.linked(member.name):
            self._welcome(member.name, before)

    def _expected(self, member: Member) -> bool:
        """Whether everybody holds that member alive who has not heard otherwise: then its first word is no news."""
        unheard = member.status == "unknown" or (member.status == "alive" and member.incarnation == 0)
        return self._ctx.routing.mapped and unheard

    def overslept(self, passed_s: float) -> None:
        """We stood still so long and heard no refutation: what we suspect goes on where it was."""
        self._suspicions.overslept(passed_s)

    def _confirm(self, member: Member, by: str) -> None:
        if self._suspicions.confirm(member, by):
            self._spread(Update(member.name, "suspect", member.incarnation, member.address, member.store_id, by))

    def _suspicion_over(self, name: str) -> None:
        member = self.members[name]
        self._accept(Update(name, "dead", member.incarnation, "", "", ""))

    def _tell(self, name: str) -> None:
        self._ctx.send(name, Gossip((self.members[name].update(),)))

    # -- refused connections ----------------------------------------------------------------------------------------

    def check(self, name: str) -> None:
        """Somebody has reason to doubt that the member's process lives: look."""
        if name in self.members and self.present(name):
            self.look(name)

    def look(self, name: str) -> None:
        """Try to connect, if there is a link."""
        if self._ctx.routing.linked(name):
            self._ctx.effects.append(CheckLink(name))

    def witnesses(self, name: str) -> list[str]:
        """Who else can tell whether that member lives: its neighbours, which on a full mesh are all."""
        routing = self._ctx.routing
        names = list(self.members) if routing.whole else routing.neighbours_of(name)
        return [other for other in names if other not in (name, self._ctx.me)]

    def checked(self, name: str, refused: bool) -> None:
        """The connect that was asked for was refused, or not."""
        member = self.members.get(name)
        if member is None or not refused or not self.present(name) or not self._ctx.routing.linked(name):
            return
        for other in self.witnesses(name):
            if self.present(other):
                self._ctx.send(other, Refusal(name, member.incarnation))
        self._refusal(name, member.incarnation, self._ctx.me)

    def _refusal(self, name: str, incarnation: int, by: str) -> None:
        member = self.members.get(name)
        if member is None or incarnation != member.incarnation or not self.present(name):
            return
        first = self._ctx.me not in member.refused_by
        member.refused_by[by] = self._ctx.now
        lately = self._ctx.now - self._suspicions.shortest_s
        witnesses = [witness for witness, at in member.refused_by.items() if at >= lately]
        if len(witnesses) >= self._needed(name):
            self._accept(Update(name, "dead", member.incarnation, "", "", ""))
        elif first and by != self._ctx.me:
            self.look(name)

    def _needed(self, name: str) -> int:
        """How many must see the port refuse: two, or one where there is no other, or too few to ask for two."""
        others = len(self.witnesses(name))
        return 1 if others < (_SMALL_FLEET - 1 if self._ctx.routing.whole else 1) else 2

    # -- spreading --------------------------------------------------------------------------------------------------

    def _spread(self, update: Update) -> None:
        self._news.add(update)
        if not self._ctx.timers.armed(("member", "gossip")):
            self._ctx.set_timer(("member", "gossip"), 0.0)

    def claims_for(self, to: str) -> tuple[Update, ...]:
        """Our own claim, what we hold against the receiver (so that it can refute), then the least-sent news."""
        claims = [self._me.update()]
        about = self.members[to]
        if about.status in ("suspect", "dead", "left"):
            claims.append(about.update())
        return (*claims, *(self._news.tell(to) if self._ctx.routing.linked(to) else ()))

    def _gossip(self) -> None:
        near = [name for name in self.neighbours() if self._news.waits_for(name)]
        for name in self._ctx.choose(near, _FANOUT):
            if self._news:
                self._ctx.send(name, Gossip(self.claims_for(name)))
        self._news.drop_spent()
        if self._news:
            self._ctx.set_timer(("member", "gossip"), self._ctx.timing.gossip_period_s)

    def _table(self) -> tuple[Update, ...]:
        heard = (m for m in self.members.values() if m.status != "unknown" and (m.status != "alive" or m.incarnation))
        return (self._me.update(), *(member.update() for member in heard))

    def _sync(self) -> None:
        self._sync_s = min(2 * self._sync_s, self._ctx.timing.sync_period_s)
        self._ctx.set_timer(("member", "sync"), self._sync_s * self._ctx.uniform(0.9, 1.1))
        for name in self._ctx.choose(self.neighbours(), 1):
            self._ctx.send(name, MemberSync(False, self._table(), self._ctx.serial))

    def _try_dead(self) -> None:
        self._ctx.set_timer(("member", "dead"), self._ctx.timing.dead_probe_s * self._ctx.uniform(0.9, 1.1))
        for name in self._ctx.choose(self._near("dead"), 1):
            self._ctx.send(name, MemberSync(False, self._table(), self._ctx.serial))
