"""What this peer claims of itself in this life, and two processes with one name: of another peer, or of this one.

One device key may be in two processes, as after a memory card was copied. A process is known by its address and its store.
Only the owner of a name raises its incarnation, and a start raises it above that of the life before; so in the order of
incarnations each life is one unbroken stretch. Two processes break this: each refutes the claims of the other, and their
claims alternate.

- *At the others:* a process pings with a higher incarnation than another process of its name, which itself pinged with a
  higher one than this process before. The numbers of its pings continue, so it was not restarted in between.
- *At the two themselves:* others pass on that this peer is alive elsewhere, with the incarnation after its own.

Messages of an earlier life that arrive late, and rows of a restored store, can look like this once or twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from p2pclust.peer.core.context import Context
from p2pclust.peer.core.members.member_table import Member
from p2pclust.peer.core.messages import Update
from p2pclust.peer.core.reports import Refuted, StoreForgot, Twin

#: The statuses against which a peer defends itself.
_WORSE = ("suspect", "dead", "left")


@dataclass
class OwnLife:
    """This peer's claim about itself."""

    _ctx: Context
    _me: Member  # its entry in the table of members, which is changed here
    _spread: Callable[[Update], None]
    _elsewhere: Callable[[Update], None]  # takes a claim that this peer is another process
    is_first: bool  # whether the store has had no earlier life
    began_at: float = 0.0  # the membership sets it
    has_forgotten: bool = False  # whether the store has a new id; the core takes note of it and clears it
    _left: bool = False

    def leave(self) -> Update:
        """Return the claim that this peer leaves; from now on it refutes nothing."""
        self._left = True
        self._me.status = "left"
        return self._me.update()

    def refute(self, update: Update) -> None:
        """Refute a claim that this peer is not alive, or a claim of another process: from its past, or of a twin."""
        other_process = update.store_id not in ("", self._ctx.store_id) or update.address not in ("", self._me.address)
        if self._left or update.incarnation < self._me.incarnation:
            return
        if other_process:
            self._elsewhere(update)
        if update.store_id == self._ctx.store_id and update.incarnation > self._me.incarnation:
            self.forgot("others have heard of a later life of it")
        if update.status in _WORSE or other_process or update.incarnation > self._me.incarnation:
            self._announce(update.incarnation + 1)
            self._ctx.report(Refuted(incarnation=self._me.incarnation))

    def forgot(self, why: str) -> None:
        """Take a new store id: the store was restored from an older image, or the disk lost its newest rows.

        The promises made since then are unknown, so the store no longer counts for a majority of the running jobs.
        """
        # An image is restored between two lives, and a liar could otherwise take a healthy store's votes at any time.
        if self._late():
            return
        store_id = "".join(f"{int(self._ctx.rng.integers(2**32)):08x}" for _ in range(4))
        self._ctx.report(StoreForgot(reason=why, store=self._ctx.store_id))
        self._ctx.persist("self", "store_id", store_id.encode())
        self._ctx.store_id = self._me.store_id = store_id
        self._announce(self._me.incarnation + 1)
        self.has_forgotten = True

    def may_promise(self, member: Member) -> bool:
        """Return whether a neighbour could have reported a later life of this store, whose promises this one might break."""
        return member.replied or self._late()

    def _late(self) -> bool:
        # Whether other peers' word about an earlier life is no longer believed.
        return self._ctx.now - self.began_at > self._ctx.timing.patience_s

    def _announce(self, incarnation: int) -> None:
        self._me.incarnation = incarnation
        self._ctx.persist("self", "incarnation", str(incarnation).encode())
        self._spread(self._me.update())


_SIGNS: Final = 3  # until two processes are reported
_AGAIN_S: Final = 60.0  # between two reports on one name
_SHOWN_S: Final = 600.0  # after the last sign, in the status of this peer
_ONE_LIFE: Final = 2**20  # pings in one life between two to one peer; each life but the first begins at random in 2^40


@dataclass(slots=True)
class _Process:
    """One process of a name, as its own pings describe it."""

    address: str
    store_id: str
    incarnation: int
    seq: int  # of its newest ping


@dataclass(slots=True)
class _Signs:
    """The signs of two processes with one name."""

    processes: list[_Process] = field(default_factory=list)  # at most two, the newer one last
    count: int = 0
    at: float = 0.0
    addresses: tuple[str, ...] = ()  # of those that were reported
    reported_at: float = float("-inf")


@dataclass
class Twins:
    """Notices two processes with one name, this peer's own included."""

    _ctx: Context
    _me: Member  # this peer's own entry in the table of members
    _signs: dict[str, _Signs] = field(default_factory=dict)

    def addresses(self, name: str) -> tuple[str, ...]:
        """Return the two addresses at which a name runs, the newer one last; none if it runs once."""
        signs = self._signs.get(name)
        lately = signs is not None and self._ctx.now - signs.at < _SHOWN_S
        return signs.addresses if signs is not None and lately else ()

    def forget(self, name: str) -> None:
        """Forget a peer that was revoked, or has new keys: another process may have them."""
        self._signs.pop(name, None)

    def claimed(self, claim: Update) -> None:
        """Take a claim about this peer that comes from another process, or from an earlier life."""
        if claim.status == "alive" and 0 <= claim.incarnation - self._me.incarnation <= 1:
            signs = self._signs.setdefault(self._ctx.me, _Signs())
            self._count(self._ctx.me, signs, (self._me.address, claim.address))

    def pinged(self, claim: Update, seq: int) -> None:
        """Take what the sender of a ping of that number claims of itself."""
        signs = self._signs.setdefault(claim.name, _Signs())
        who = (claim.address, claim.store_id)
        found = next((process for process in signs.processes if (process.address, process.store_id) == who), None)
        if found is None:
            signs.processes = [*signs.processes[-1:], _Process(claim.address, claim.store_id, claim.incarnation, seq)]
            signs.count = 0
            return
        newest, continues = signs.processes[-1], 0 <= seq - found.seq < _ONE_LIFE
        if not continues:  # it was restarted
            signs.count = 0
        if found is not newest:
            if not found.incarnation < newest.incarnation < claim.incarnation:
                return  # sent before the other life began, or before it heard of the other process
            signs.processes.reverse()
            if continues:
                self._count(claim.name, signs, (newest.address, claim.address))
        found.incarnation, found.seq = claim.incarnation, seq

    def _count(self, name: str, signs: _Signs, addresses: tuple[str, str]) -> None:
        signs.count += 1
        if signs.count < _SIGNS:
            return
        now = signs.at = self._ctx.now
        signs.addresses = addresses
        if now - signs.reported_at >= _AGAIN_S:
            signs.reported_at = now
            self._ctx.report(Twin(member=name, addresses=list(addresses)))
