"""Sums that are added up on the way to the aggregator, along a tree of the job's peers.

The message that opens a round has the part of the tree below its receiver. A peer hands that message on to its children,
with the part below each, waits for their sums, adds its own contribution, and sends one `Partial` to its parent. Sums are of
integers, so every tree gives the same bits.

Only the number of messages depends on the tree. A peer that has waited too long for its children sends what it has, and
more when more comes; the aggregator asks peers that are in no sum directly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from p2pclust.errors import WireError
from p2pclust.peer.core.context import TimerKey
from p2pclust.peer.core.effects import Compute
from p2pclust.peer.core.job_messages import Open, Partial
from p2pclust.peer.core.round_reports import ContributionsUnread
from p2pclust.peer.core.rounds.job_context import JobContext, JobPart
from p2pclust.peer.core.tasks import NOTHING, AddUp, Given, Outcome, Ref, Summed, SumToken
from p2pclust.tools.bit_sets import as_mask, members_of, packed, unpacked

_MOST_REASON_BYTES: Final = 24 * 1024  # in one message: half of what a header may have, beside a sum that travels in it


@dataclass(frozen=True)
class Tree:
    """A tree of roster indices, or the part of one below a peer."""

    children: Mapping[int, tuple[int, ...]]  # of peers that have some
    below: Mapping[int, int]  # as bits, including the peer itself
    height: Mapping[int, int]  # 0 for a leaf

    def pairs(self, peer: int) -> tuple[int, ...]:
        """Return the peers below a peer, each followed by its parent, which `branch_of` reads."""
        found: list[int] = []
        parents = [peer]
        for parent in parents:
            for child in self.children.get(parent, ()):
                found += (child, parent)
                parents.append(child)
        return tuple(found)

    def without(self, peer: int) -> tuple[int, ...]:
        """Return the peers below a peer, which are cut off when it is gone."""
        return members_of(self.below.get(peer, 0) & ~(1 << peer))


@lru_cache(maxsize=16)
def tree_of(parents: tuple[int, ...], root: int) -> Tree:
    """Return the tree below a root, from the parent of each roster index; -1 for none.

    Examples
    --------
    >>> tree = tree_of((-1, 0, 1, 1, -1), 0)
    >>> tree.children[1], members_of(tree.below[1]), tree.height[0]
    ((2, 3), (1, 2, 3), 2)
    """
    lists: dict[int, list[int]] = {}
    for peer, parent in enumerate(parents):
        if parent >= 0:
            lists.setdefault(parent, []).append(peer)
    order = [root]
    for peer in order:
        order += lists.get(peer, ())
    return _tree(order, lists)


def branch_of(pairs: Sequence[int], root: int, n_peers: int) -> Tree:
    """Read the part of a tree below one peer, the root: pairs of a peer and its parent, which is named before it.

    Raises a `WireError` if a peer is not on the roster, is named twice, or before its parent.

    Examples
    --------
    >>> branch_of((3, 1, 7, 3), 1, 10).children
    {1: (3,), 3: (7,)}
    """
    if len(pairs) % 2:
        raise WireError("tree: a peer without a parent")
    lists: dict[int, list[int]] = {root: []}
    for peer, parent in zip(pairs[::2], pairs[1::2], strict=True):
        if parent not in lists or peer in lists or not 0 <= peer < n_peers:
            raise WireError(f"tree: {peer} cannot be below {parent}")
        lists[parent].append(peer)
        lists[peer] = []
    return _tree(list(lists), lists)


def _tree(order: Sequence[int], lists: Mapping[int, Sequence[int]]) -> Tree:
    below, height = {peer: 1 << peer for peer in order}, dict.fromkeys(order, 0)
    for peer in reversed(order):
        for child in lists.get(peer, ()):
            below[peer] |= below[child]
            height[peer] = max(height[peer], height[child] + 1)
    return Tree({peer: tuple(children) for peer, children in lists.items() if children}, below, height)


@dataclass(frozen=True)
class Part:
    """A partial sum, and the peers in it as bits."""

    answered: int
    adopted: int
    summed: int
    abstained: Mapping[int, str]
    ref: Ref | None  # the sum; None without a contribution
    done: bool


class Branches(JobPart):
    """The tree below one peer, and the latest part of each of its children, once its sum is here."""

    def __init__(self, job: JobContext, tree: Tree) -> None:
        super().__init__(job)
        self.tree = tree
        self.children = tree.children.get(self._me, ())
        self.parts: dict[int, Part] = {}
        self.barred = 0  # revoked peers, as bits: a part that includes one is discarded
        self._pulling: dict[int, Part] = {}

    def along(self, child: int, message: Open) -> Open:
        """Return the message with the part of the tree that a child hands it on along; any other peer is asked directly."""
        tree = self.tree
        if child not in self.children or tree.below[child] & self.barred:
            return message
        return replace(message, aggregator=self._me, height=tree.height[self._me], below=tree.pairs(child))

    def drop(self, peer: int) -> tuple[int, ...]:
        """Discard the parts with a revoked peer; return the other peers in them, which must be asked directly."""
        self.barred |= 1 << peer
        lost = 0
        for parts in (self.parts, self._pulling):
            for child in [child for child, part in parts.items() if child == peer or part.answered >> peer & 1]:
                lost |= parts.pop(child).answered
        return members_of(lost & ~self.barred)

    def take(self, source: str, message: Partial) -> Part | None:
        """Return a child's part if it is new and complete; None while its sum is fetched, or if it is useless.

        Raises
        ------
        WireError
            If it includes peers that are not below this child.
        """
        child = self.document.index(source)
        part = self._read(child, message)
        known = self.parts.get(child)
        if part.answered & self.barred:
            return None  # the aggregator asks the peers in it directly
        if known is not None and (part.answered & known.answered != known.answered or part == known):
            return None  # older, or from a life that knows less: the aggregator asks missing peers directly
        ref = part.ref
        if ref is not None and ref.payload is None and not self._blobs.has(ref.digest):
            self._pulling[child] = part
            self._blobs.pull(ref.digest, ref.size_bytes, [source])
            return None
        self._pulling.pop(child, None)  # this one overtook it
        self.parts[child] = part
        return part

    def _read(self, child: int, message: Partial) -> Part:
        if child not in self.children:
            raise WireError("a part from a peer that is not below")
        answered, adopted, summed = (unpacked(peers) for peers in (message.answered, message.adopted, message.summed))
        if answered & ~self.tree.below[child] or (adopted | summed) & ~answered:
            raise WireError("a part of peers that are not below")
        abstained = dict(zip(message.abstained, message.reasons, strict=False))
        if len(abstained) != len(message.reasons) or any(peer < 0 or not answered >> peer & 1 for peer in abstained):
            raise WireError("a part with reasons of peers that are not in it")
        ref = Ref.of(message.contribution, message.size_bytes, message.payload)
        return Part(answered, adopted, summed, abstained, ref if summed else None, message.done)

    def blob_ready(self, digest: bytes) -> list[Part]:
        found = [child for child, part in self._pulling.items() if part.ref is not None and part.ref.digest == digest]
        for child in found:
            self.parts[child] = self._pulling.pop(child)
        return [self.parts[child] for child in found]

    def coming(self) -> dict[int, Ref]:
        """Return the sums on their way, by the peers in them."""
        parts = self._pulling.values()
        return {peer: part.ref for part in parts if part.ref is not None for peer in members_of(part.answered)}

    def refs(self) -> list[Ref | None]:
        return [part.ref for part in (*self.parts.values(), *self._pulling.values())]

    def sums(self) -> list[Given]:
        parts = (self.parts[child] for child in sorted(self.parts))
        return [(members_of(part.summed), part.ref) for part in parts if part.ref is not None]


class TreeSum(JobPart):
    """One peer's place in the tree of one round, from the message that opened it until the next one is opened."""

    def __init__(self, job: JobContext, carrier: str, message: Open) -> None:
        super().__init__(job)
        self.opened = message
        self._tree = branch_of(message.below, self._me, len(self.document.roster))
        if not self._tree.height[self._me] < message.height < len(self.document.roster):
            raise WireError(f"tree: its height is not {message.height}")  # waits follow from it
        self._above = carrier
        self._branches = Branches(job, self._tree)
        self._own: Part | None = None
        self._state: Ref | None = None
        self._sent: Partial | None = None
        self._sent_at = float("-inf")
        self._adding: tuple[SumToken, Part] | None = None  # the running task, and the rest of the message
        self._changed = False  # since that task began
        self._timer: TimerKey = ("job", self.document.id, "gather")
        for child in self._branches.children:
            self._invite(child)

    def _invite(self, child: int) -> None:
        self._ctx.send(self.document.roster[child], replace(self.opened, below=self._tree.pairs(child)))

    def end(self) -> None:
        self._ctx.timers.cancel(self._timer)

    def of(self, term: int, round_: int, digest: bytes) -> bool:
        """Return whether this place is in the tree of that round."""
        opened = self.opened
        return (opened.term, opened.round, opened.digest) == (term, round_, digest)

    def busy(self) -> bool:
        """Return whether the aggregator should wait for this peer, or for those above it."""
        patience_s = self._wait_s(self.opened.height)
        return self._sent is None or self._ctx.now - self._sent_at < patience_s

    def refs(self) -> list[Ref | None]:
        own, sent = self._own, self._sent
        handed = None
        if sent is not None and sent.contribution:
            handed = Ref.of(sent.contribution, sent.size_bytes, sent.payload)
        return [None if own is None else own.ref, handed, *self._branches.refs()]

    def again(self) -> None:
        if self._sent is not None:
            self._ctx.send(self._above, self._sent)

    def own(self, state: Ref, ref: Ref | None, abstains: str) -> None:
        self._state = state
        me = 1 << self._me
        counts = self.document.counts(self._ctx.me, self._ctx.store_id)
        abstained = {self._me: abstains} if abstains else {}
        part = Part(me, me if counts else 0, me if ref is not None else 0, abstained, ref, True)
        if part != self._own:
            self._own = part
            self._changed = True
            self.look()

    def receive(self, source: str, message: Partial) -> None:
        if self._branches.take(source, message) is not None:
            self._changed = True
            self.look()

    def blob_ready(self, digest: bytes) -> None:
        if self._branches.blob_ready(digest):
            self._changed = True
            self.look()

    def fire(self) -> None:
        """Ask the children again, and send what is here: the wait was too long."""
        for child in self._missing():
            self._invite(child)
        self._hand_on()

    def look(self) -> None:
        if self._own is None:
            return
        if not self._missing():
            self._hand_on()
        elif not self._ctx.timers.armed(self._timer):
            self._ctx.set_timer(self._timer, self._wait_s(self._tree.height[self._me]))

    def _wait_s(self, height: int) -> float:
        """Return how long to wait for the children: longer for a higher peer, so that those below give up first."""
        wait_s = self._ctx.timing.retry_s * (1 + height) / 2
        if self.document.treatment.missing != "drop":
            return wait_s
        # The aggregator waits no longer than the deadline.
        return min(wait_s, self.document.treatment.deadline_s * (1 + height) / (1 + self.opened.height) / 2)

    def _missing(self) -> list[int]:
        """Return the children that may send more; the aggregator asks the peers below a child that is gone."""
        parts, roster = self._branches.parts, self.document.roster
        waited = [child for child in self._branches.children if child not in parts or not parts[child].done]
        return [child for child in waited if not self._membership.gone(roster[child])]

    def _hand_on(self) -> None:
        """Send what is here, unless it was sent or is being added up."""
        missing = self._missing()
        if missing:
            self._ctx.set_timer(self._timer, self._ctx.timing.retry_s)
        said = self._sent is not None and (self._sent.done or bool(missing)) and not self._changed
        if self._own is None or self._adding is not None or said:
            return
        self._changed = False
        whole = replace(self._own, ref=None, done=not missing)  # without the sum
        for part in (self._branches.parts[child] for child in sorted(self._branches.parts)):
            whole = replace(
                whole, answered=whole.answered | part.answered, adopted=whole.adopted | part.adopted,
                summed=whole.summed | part.summed, abstained={**whole.abstained, **part.abstained},
            )  # fmt: skip
        sums = self._branches.sums()
        if self._own.ref is not None:
            sums = [((self._me,), self._own.ref), *sums]
        if len(sums) > 1:
            assert self._state is not None
            task = AddUp(*self._of_job, self._state, tuple(sums), keys=self._job.keys)
            token = SumToken(self.document.id, task.kind, self.opened.term, self.opened.round)
            self._adding = (token, whole)
            self._ctx.effects.append(Compute(token, task))
        else:
            self._send(replace(whole, ref=sums[0][1] if sums else None))

    def added(self, token: SumToken, outcome: Outcome) -> None:
        """The sum is made; peers whose contributions were malformed are left out of it."""
        if self._adding is None or token != self._adding[0]:
            return
        whole, self._adding = self._adding[1], None
        ref = outcome.ref if isinstance(outcome, Summed) else None
        summed = as_mask(outcome.peers) if isinstance(outcome, Summed) and ref is not None else 0
        unread = whole.summed & ~summed
        if unread:
            self._report(ContributionsUnread, peers=[self.document.roster[i] for i in members_of(unread)])
        answered, adopted = whole.answered & ~unread, whole.adopted & ~unread
        self._send(replace(whole, answered=answered, adopted=adopted, summed=summed, ref=ref))
        self.look()

    def _send(self, part: Part) -> None:
        # Leave out abstentions that would make the message too long, new ones first: the aggregator asks those peers.
        said = () if self._sent is None else self._sent.abstained
        left, without = _MOST_REASON_BYTES, 0
        for peer in sorted(part.abstained, key=lambda peer: peer not in said):
            left -= len(part.abstained[peer].encode()) + 8
            if left < 0:
                without |= 1 << peer
        reasons = {peer: reason for peer, reason in part.abstained.items() if not without >> peer & 1}
        answered, adopted = part.answered & ~without, part.adopted & ~without
        opened, ref = self.opened, part.ref or NOTHING
        self._sent = Partial(
            opened.job, opened.term, opened.round, opened.digest, packed(answered), packed(adopted),
            packed(part.summed), tuple(reasons), tuple(reasons.values()), part.done,
            ref.digest, ref.size_bytes, ref.frames,
        )  # fmt: skip
        self._sent_at = self._ctx.now
        self._ctx.send(self._above, self._sent)
