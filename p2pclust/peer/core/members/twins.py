"""One device key in two processes, as after a memory card was copied: seen by the two themselves, and by the others.

A process is known by its address and its store. Only the owner of a name raises its incarnation, and a start raises it above
that of the life before; so in the order of incarnations each life is one unbroken stretch. Two processes break this: each
refutes the claims of the other, and their claims alternate.

- *At the others:* a process pings with a higher incarnation than another process of its name, which itself pinged with a
  higher one than this process before. The numbers of its pings continue, so it was not restarted in between.
- *At the two themselves:* others pass on that this peer is alive elsewhere, with the incarnation after its own.

Messages of an earlier life that arrive late, and rows of a restored store, can look like this once or twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from p2pclust.peer.core.context import Context
from p2pclust.peer.core.members.member_table import Member
from p2pclust.peer.core.messages import Update
from p2pclust.peer.core.reports import Twin

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

    def is_of(self, claim: Update) -> bool:
        return (claim.address, claim.store_id) == (self.address, self.store_id)


@dataclass(slots=True)
class _Signs:
    """The signs of two processes with one name."""

    processes: list[_Process] = field(default_factory=list)  # at most two, the newer one last
    count: int = 0
    at: float = 0.0
    addresses: tuple[str, ...] = ()  # of those that were reported
    reported_at: float = float("-inf")


class Twins:
    """Notices two processes with one name, this peer's own included. `me` is its own entry in the table of members."""

    def __init__(self, context: Context, me: Member) -> None:
        self._ctx = context
        self._me = me
        self._signs: dict[str, _Signs] = {}

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
        found = next((process for process in signs.processes if process.is_of(claim)), None)
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
