"""Facts: versioned keys that one peer owns and that spread to all peers (Scuttlebutt, van Renesse et al. 2008).

Invariant: for every key of an owner, a peer holds its newest version up to the highest version that it knows of that owner.
So facts of one owner come in ascending order, as a delta that says after which version it starts; a delta that starts above
what is known is answered with a request. `docs/peer/facts.md` has the other rules, lists the keys, and says who signs facts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

from p2pclust.peer.core.context import Context, TimerKey
from p2pclust.peer.core.members.membership import Membership
from p2pclust.peer.core.messages import FactDelta, FactDigest, Message
from p2pclust.peer.core.reports import FactsCleared, TooManyFacts
from p2pclust.transport.wire import MAX_FRAMES

#: Prefixes of keys. The id of a job follows, and the value is its document.
JOB: Final = "job/"
#: The name of a series follows, and the value is its newest document.
SERIES: Final = "series/"
#: The id of a job, or the name of a series, follows; the value is who cancelled it.
CANCEL: Final = "cancel/"
#: The key of the fact with a peer's fitness, in hundredths.
FITNESS: Final = "fitness"
#: The key of the fact with the best kernel that a peer has. Those that publish one also round what they receive.
KERNEL: Final = "kernel"
#: Every peer publishes them once, and no peer waits for them.
_UNHURRIED: Final = frozenset((FITNESS, KERNEL))

#: An owner that restarts numbers on from here, above whatever it said in its former life; no write per fact is needed.
_PER_LIFE: Final = 2**20
#: One frame less than a message may have: a relay puts its own header before it.
_PER_DELTA: Final = MAX_FRAMES - 1
#: The owner's key whose version is its floor: its facts with versions below that are void.
_FLOOR: Final = "floor"
#: A floor is published once so many facts are void, and half as many as are true.
_MOST_VOID: Final = 64
#: Of one owner's facts; more are not kept, so that no peer can fill the memory of all others.
_MOST_BYTES: Final = 2**20
#: What a fact takes in memory beside its key and its value.
_BYTES_OF_A_FACT: Final = 256
_MAX_VERSION: Final = 2**60
_DELTA_BYTES: Final = 48 * 1024  # one delta stays on the control lane
#: What is larger is named to neighbours, along a sparse overlay, and sent to those that ask.
_NAMED_BYTES: Final = 4096
_MOST_OWNERS: Final = 16  # whose facts are sent in answer to one digest, on a full mesh
_WELCOMES: Final = 3  # full exchanges with new members, in one period of anti-entropy


@dataclass(frozen=True, slots=True)
class Fact:
    """One version of one key."""

    owner: str
    key: str
    version: int
    value: bytes
    signature: bytes = b""  # none of this peer's own: they are signed as they are sent

    @property
    def n_bytes(self) -> int:
        """The memory that it takes."""
        return _BYTES_OF_A_FACT + len(self.key) + len(self.value)

    @property
    def checksum(self) -> int:
        """A number for its key and version."""
        return crc32(f"{self.key} {self.version}".encode())


@dataclass(slots=True)
class OwnerFacts:
    """What a peer holds of one owner."""

    by_key: dict[str, Fact] = field(default_factory=dict)
    highest: int = 0  # the highest version that is known
    n_bytes: int = 0
    checksum: int = 0  # of all facts; it differs, but for rare collisions, if two peers hold different ones
    passed_over: bool = False  # whether some facts are not kept
    asked_until: dict[str, float] = field(default_factory=dict)  # by the neighbour that was asked for facts

    @property
    def print(self) -> int:
        """The checksum; 0 where some facts are not kept, because two peers may then differ for good."""
        return 0 if self.passed_over else self.checksum

    @property
    def floor(self) -> int:
        """The version below which facts are void."""
        fact = self.by_key.get(_FLOOR)
        return 0 if fact is None else fact.version

    def n_bytes_with(self, fact: Fact) -> int:
        """Return the memory that the facts take once this one is among them."""
        former = self.by_key.get(fact.key)
        return self.n_bytes + fact.n_bytes - (0 if former is None else former.n_bytes)

    def keep(self, fact: Fact) -> None:
        """Keep a fact in the place of the former one with its key."""
        former = self.by_key.get(fact.key)
        self.n_bytes = self.n_bytes_with(fact)
        self.checksum ^= fact.checksum ^ (0 if former is None else former.checksum)
        self.by_key[fact.key] = fact
        self.highest = max(fact.version, self.highest)

    def drop_void(self) -> None:
        """Drop the facts below the floor."""
        for fact in [fact for fact in self.by_key.values() if fact.version < self.floor]:
            del self.by_key[fact.key]
            self.n_bytes -= fact.n_bytes
            self.checksum ^= fact.checksum
        self.passed_over = False


def facts_of(delta: FactDelta) -> tuple[Fact, ...]:
    """Return the facts of a delta; none if its lists do not match."""
    n = len(delta.keys)
    signatures = delta.signatures or (b"",) * n
    if not len(delta.versions) == len(delta.values) == len(signatures) == n:
        return ()
    parts = zip(delta.keys, delta.versions, delta.values, signatures, strict=True)
    return tuple(Fact(delta.owner, *part) for part in parts)


class Facts:
    """Holds all facts."""

    def __init__(self, context: Context, membership: Membership, incarnation: int) -> None:
        self._ctx = context
        self._membership = membership
        self._held: defaultdict[str, OwnerFacts] = defaultdict(OwnerFacts)
        self._seen: dict[str, None] = {}  # which of the facts that no peer waits for were ever held, of any owner
        # The random part keeps a life that lost its store from using the same numbers as a former one.
        self._version = incarnation * _PER_LIFE + int(context.rng.integers(_PER_LIFE // 2))
        #: The facts of others that came, and own ones of a former life, oldest first; the core empties it.
        self.news: list[Fact] = []
        self._void: dict[str, None] = {}  # own keys that are retracted with the next floor
        self._owes_floor = self._floor_next = False
        self._former = 0  # the floor of a former life
        self._welcomed = 0  # members since the last anti-entropy
        #: How often a fact with the fitness of any peer came or went.
        self.fitness_changes = 0
        #: Whether this peer still says what others remember that a former life of it said.
        self.stands: Callable[[str, bytes], bool] = lambda key, value: True
        #: Whether a key is one that peers publish; other facts are not kept.
        self.means_something: Callable[[str], bool] = lambda key: True

    def start(self) -> None:
        """Begin anti-entropy."""
        self._ctx.set_timer(("fact", "sync"), self._ctx.uniform(0.1, 1.0) * self._ctx.preset.sync_period_s)

    def publish(self, key: str, value: bytes) -> None:
        """Set one of this peer's keys, and send it to the neighbours."""
        self._void.pop(key, None)
        before = self._held[self._ctx.me].highest
        self._version = max(self._version, before) + 1
        fact = Fact(self._ctx.me, key, self._version, value)
        self._keep(fact)
        self._push(self._delta_of(fact.owner, before, (fact,)), "")

    def retract(self, key: str) -> None:
        """Retract one of this peer's keys, with the next floor."""
        own = self._held[self._ctx.me].by_key
        if key in own:
            self._void[key] = None
            void_bytes = sum(own[key].n_bytes for key in self._void)
            many = len(self._void) > _MOST_VOID + len(own) // 2 or void_bytes > _MOST_BYTES // 4
            self._owes_floor = self._owes_floor or many

    def has_room(self, key: str, value: bytes) -> bool:
        """Return whether other peers would keep this fact, and some more, such as a cancel, if it was published."""
        return self._held[self._ctx.me].n_bytes_with(Fact(self._ctx.me, key, 0, value)) <= _MOST_BYTES // 4 * 3

    def _push(self, delta: FactDelta, source: str) -> None:
        """Send news to all neighbours except its sender."""
        if not self._ctx.routing.whole and _UNHURRIED.issuperset(delta.keys):
            return  # so each peer gets it about once, and not over each of its links
        if source and sum(map(len, delta.values)) > _NAMED_BYTES:  # a neighbour that lacks it asks for it
            delta = self._delta_of(delta.owner, max(delta.versions), ())
        for name in self._membership.neighbours():
            if name != source:
                self._ctx.send(name, delta)

    def get(self, owner: str, key: str) -> Fact | None:
        """Return the newest known version of a key, or None."""
        held = self._held.get(owner)
        return None if held is None else held.by_key.get(key)

    def published(self, key: str) -> bool:
        """Return whether some peer has ever published its `FITNESS`, or its `KERNEL`."""
        return key in self._seen

    def everything(self) -> list[Fact]:
        """Return all facts that are held."""
        return [fact for held in self._held.values() for fact in held.by_key.values()]

    def forget(self, owner: str) -> None:
        """Drop the facts of a peer that was revoked, or has new keys: others refuse them, so they would never be equal."""
        self._held.pop(owner, None)
        for held in self._held.values():
            held.asked_until.pop(owner, None)
        self.fitness_changes += 1

    def welcome(self, name: str) -> None:
        """Exchange facts with a new member at once."""
        # On a full mesh peers that meet many others in a short time, because a large fleet starts or a cut heals, compare
        # everything with the first of them only. The others send each other their own facts, or if they are large, name the
        # newest: no peer needs to hear those of all peers from all peers.
        self._welcomed += 1
        me = self._ctx.me
        if not self._ctx.routing.whole or self._welcomed <= _WELCOMES:
            self.greet(name)
        elif sum(len(fact.value) for fact in self._held[me].by_key.values()) <= _NAMED_BYTES:
            self._send_newer(name, me, 0)
        else:
            self._ctx.send(name, self._delta_of(me, self._held[me].highest, ()))

    def greet(self, name: str) -> None:
        """Compare all facts with a member at once."""
        self._ctx.send(name, self._digest(answer=False))

    def fire(self, key: TimerKey) -> None:
        """Anti-entropy with one random member."""
        period_s = self._ctx.preset.sync_period_s * self._ctx.uniform(0.9, 1.1)
        self._ctx.set_timer(key, period_s + 4 * self._membership.slack_s())
        self._welcomed = 0
        if self._floor_next:  # publish a new floor, and above it the facts that are still valid
            own = self._held[self._ctx.me].by_key
            standing = {key: fact.value for key, fact in own.items() if key not in self._void and key != _FLOOR}
            self._owes_floor = False
            self._void.clear()
            self._ctx.report(FactsCleared(standing=len(standing), void=len(own) - len(standing)))
            self.publish(_FLOOR, b"")
            self._drop_void(self._ctx.me)
            for fact_key, value in standing.items():
                self.publish(fact_key, value)
        self._floor_next = self._owes_floor  # a period later, when other peers have sent all that they remember
        for name in self._ctx.choose(self._membership.neighbours(), 1):
            self.greet(name)

    def receive(self, source: str, message: Message) -> None:
        """Handle a message about facts."""
        match message:
            case FactDigest():
                self._compare(source, message)
            case FactDelta():
                if not self._holds(message):
                    self._apply(source, message)

    def _digest(self, *, answer: bool) -> FactDigest:
        held = sorted((owner, held.highest, held.print) for owner, held in self._held.items() if held.highest)
        owners, versions, prints = zip(*held, strict=True) if held else ((), (), ())
        return FactDigest(answer, owners, versions, prints, self._ctx.serial)

    def _compare(self, source: str, digest: FactDigest) -> None:
        theirs, held = dict(zip(digest.owners, digest.versions, strict=False)), self._held
        differ = {
            owner for owner, version, printed in zip(digest.owners, digest.versions, digest.prints, strict=False)
            if owner in held and version == held[owner].highest and printed and held[owner].print not in (0, printed)
        }  # fmt: skip
        after = {owner: 0 if owner in differ else theirs.get(owner, 0) for owner in held if held[owner].by_key}
        lacking = sorted(owner for owner in after if held[owner].highest > after[owner])
        if self._ctx.routing.whole and len(lacking) > _MOST_OWNERS:  # the owners and others send theirs too
            own = [owner for owner in lacking if owner == self._ctx.me]
            others = [owner for owner in lacking if owner != self._ctx.me]
            lacking = sorted([*self._ctx.choose(others, _MOST_OWNERS), *own])
        for owner in lacking:
            self._send_newer(source, owner, after[owner])
        known = (owner for owner in theirs if owner in self._membership.members or owner == self._ctx.me)
        behind = any(theirs[owner] > (held[owner].highest if owner in held else 0) for owner in known)
        if (behind or differ) and not digest.answer:
            self._ctx.send(source, self._digest(answer=True))

    def _delta_of(self, owner: str, after: int, facts: Sequence[Fact]) -> FactDelta:
        signatures = tuple(fact.signature for fact in facts)
        return FactDelta(
            owner, after, tuple(fact.key for fact in facts), tuple(fact.version for fact in facts),
            tuple(fact.value for fact in facts), signatures if any(signatures) else (), self._ctx.serial,
        )  # fmt: skip

    def _send_newer(self, to: str, owner: str, after: int) -> None:
        newer = sorted((f for f in self._held[owner].by_key.values() if f.version > after), key=lambda f: f.version)
        while newer:
            n, size = 1, len(newer[0].value)
            while n < min(len(newer), _PER_DELTA) and (size := size + len(newer[n].value)) <= _DELTA_BYTES:
                n += 1
            self._ctx.send(to, self._delta_of(owner, after, newer[:n]))
            after, newer = newer[n - 1].version, newer[n:]

    def _apply(self, source: str, delta: FactDelta) -> None:
        facts, owner, now = facts_of(delta), delta.owner, self._ctx.now
        if len(facts) != len(delta.keys):
            return
        # No owner counts that far: a liar wants it to run out of numbers. Half of them are reserved for the owner.
        if max(delta.versions, default=0) > (_MAX_VERSION // 2 if delta.owner == self._ctx.me else _MAX_VERSION):
            return
        if owner == self._ctx.me:
            self._remember(facts)
            return
        if owner not in self._membership.members:
            return
        held = self._held[owner]
        if delta.after > held.highest:
            # Not while this neighbour's answer may be under way, or for facts that are only named, any neighbour's.
            asked = source if delta.keys else ""
            if now >= held.asked_until.get(asked, 0.0):
                held.asked_until[asked] = now + self._ctx.preset.probe_timeout_s
                self._ctx.send(source, self._digest(answer=True))
            return
        learnt = [fact for fact in facts if self._learn(fact)]
        if learnt and not self._ctx.routing.whole:
            # On a full mesh the owner sent it to all; elsewhere news goes from neighbour to neighbour, once over each link:
            # the facts as they are held here, because others in the delta are older, and may be forged.
            known, newest = held.by_key, max(delta.versions)
            news = [known[key] for key in dict.fromkeys(delta.keys) if key in known and known[key].version <= newest]
            self._push(self._delta_of(owner, delta.after, sorted(news, key=lambda fact: fact.version)), source)

    def _learn(self, fact: Fact) -> bool:
        """Keep a fact of another peer if it is newer and there is room; return whether it is kept."""
        held, former = self._held[fact.owner], self.get(fact.owner, fact.key)
        if fact.version < held.floor or (former is not None and fact.version <= former.version):
            return False
        if fact.key != _FLOOR and (not self.means_something(fact.key) or held.n_bytes_with(fact) > _MOST_BYTES):
            # Passed over for good; otherwise two peers with different ones would ask each other again and again.
            if not held.passed_over:
                self._ctx.report(TooManyFacts(owner=fact.owner))
            held.passed_over = True
            held.highest = max(fact.version, held.highest)
            return False
        self._keep(fact)
        if fact.key == _FLOOR:
            self._drop_void(fact.owner)
        else:
            self.news.append(fact)
        return True

    def _holds(self, delta: FactDelta) -> bool:
        """Return whether all facts in a delta of another peer, of which there are some, are held here already."""
        held = self._held.get(delta.owner)
        if held is None or not delta.keys or delta.owner == self._ctx.me or delta.after > held.highest:
            return False
        known, pairs = held.by_key, zip(delta.keys, delta.versions, strict=False)
        return all(key in known and version <= known[key].version for key, version in pairs)

    def _remember(self, former: tuple[Fact, ...]) -> None:
        """Publish facts of a former life, which other peers still hold, under new versions."""
        held = self._held[self._ctx.me]
        own, newest = held.by_key, max((fact.version for fact in former), default=0)
        self._former = max([self._former, *(fact.version for fact in former if fact.key == _FLOOR)])
        missing = [f for f in former if f.key not in own and f.key != _FLOOR and f.version >= self._former]
        lost, room = [], _MOST_BYTES - held.n_bytes
        for fact in missing:
            if self.means_something(fact.key) and self.stands(fact.key, fact.value) and fact.n_bytes <= room:
                lost.append(fact)
                room -= fact.n_bytes
        # Facts that are no longer valid, and an older floor, are void below a new floor.
        void = self._former > held.floor or any(
            f.version > held.floor and not self.stands(f.key, f.value) for f in missing
        )
        self._owes_floor = self._owes_floor or void
        outbid = newest > held.highest
        if not lost and not outbid:
            return
        if outbid:
            self._version = max(self._version, newest) + _PER_LIFE
        standing = {key: fact.value for key, fact in own.items()} if outbid else {}
        for fact in lost:
            standing[fact.key] = fact.value
            self.news.append(fact)
        for key, value in standing.items():
            self.publish(key, value)

    def _drop_void(self, owner: str) -> None:
        self._held[owner].drop_void()
        self.fitness_changes += 1

    def _keep(self, fact: Fact) -> None:
        if fact.key in _UNHURRIED:
            self._seen[fact.key] = None
            self.fitness_changes += fact.key == FITNESS
        self._held[fact.owner].keep(fact)
