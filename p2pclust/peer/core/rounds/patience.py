"""For how long an aggregator waits for a peer, and what it does then.

A peer that says that it computes or fetches is not silent, for `compute_limit_s`; nor is one whose contribution comes in,
chunk by chunk, or waits for this peer itself. A peer that only answers heartbeats is silent: its answer does not arrive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum, auto
from typing import Final

from p2pclust.peer.core.document import has_majority
from p2pclust.peer.core.rounds.headway import Headway
from p2pclust.peer.core.rounds.job_context import JobContext, JobPart
from p2pclust.peer.core.rounds.open_round import OpenRound
from p2pclust.peer.core.tasks import Ref

#: A silent peer is waited for in this many rounds in a row.
_MOST_SILENT: Final = 2


class Resort(Enum):
    """What the aggregator does about a silent peer."""

    ASK_AROUND = auto()
    GIVE_UP = auto()
    GIVE_UP_BUSY = auto()  # it has reported for too long that it computes


class Patience(JobPart):
    """Which peers were heard in one term, which work, and which are out of reach."""

    def __init__(self, job: JobContext, headway: Headway) -> None:
        super().__init__(job)
        self._headway = headway
        self._heard: dict[str, float] = dict.fromkeys(self.document.roster, self._ctx.now)
        self._astray: dict[str, None] = {}  # peers without a route when they were left out
        self._silent: dict[str, int] = {}  # how often each was left out as silent, since an answer of it came
        self.begin()

    def heard(self, name: str) -> None:
        self._heard[name] = self._ctx.now

    def works(self, name: str) -> None:
        """Note that a peer computes or fetches, or that its contribution comes."""
        self._works[name] = self._ctx.now

    def rests(self, name: str) -> None:
        self._works.pop(name, None)
        self._silent.pop(name, None)
        self._headway.hung.pop(name, None)
        if name == self._ctx.me:
            self._own_since = self._ctx.now

    def comes_through(self, name: str) -> None:
        """Note that an answer of a peer, or a part of one, came, if only late, or that it is gone and may return."""
        self._silent.pop(name, None)

    def begin(self) -> None:
        self._works: dict[str, float] = {}  # when a peer last reported that it computes or fetches
        self._own_since = float("inf")  # when this peer's own answer was there
        self._held_up: dict[bytes, float] = {}  # blobs that wait for this peer itself, and since when

    def revoked(self, name: str) -> None:
        self._heard[name] = float("-inf")
        self._works.pop(name, None)

    def followed(self) -> bool:
        """Return whether a majority, this peer included, was heard within the time that an election takes."""
        timing = self._ctx.timing
        lately_s = timing.election_max_s * self._headway.election_times() + timing.quiet_s
        heard = [name for name in self.document.roster if self._ctx.now - self._heard[name] < lately_s]
        return has_majority([self._ctx.me, *heard], self.document.roster)

    def works_still(self, name: str) -> bool:
        """Return whether a peer reported recently that it works, so that it need not be asked again."""
        return self._ctx.now - self._works.get(name, float("-inf")) < self._ctx.timing.retry_s

    def astray(self, name: str) -> bool:
        """Return whether a peer need not be waited for: it hangs, its answers are lost, or it is out of reach since it was
        left out.
        """
        lost = self._silent.get(name, 0) >= _MOST_SILENT or (name in self._astray and not self._ctx.routing.hop(name))
        return lost or name in self._headway.hung

    def left_out(self, name: str, *, busy: bool) -> None:
        """Note that the round continues without a peer, which has computed for too long (`busy`) or is silent.

        A silent peer is waited for again in the next round, or once there is a route to it. If it is silent then, too, its
        messages may be lost, and it is waited for again once an answer of it comes.
        """
        if busy:
            self._headway.given_up(name)
            return
        self._silent[name] = self._silent.get(name, 0) + 1
        if not self._ctx.routing.hop(name):
            self._astray[name] = None

    def gives_up(self, name: str, since: float, times: float = 1.0) -> bool:
        """Return whether a peer that was asked something at that instant has been silent, or computed, for too long.

        It may be silent for so many times `patience_s`.
        """
        silent = self.silent_s(name, since) > times * self.document.treatment.patience_s
        return silent or self._ctx.now - since > self.document.treatment.compute_limit_s

    def silent_s(self, name: str, since: float) -> float:
        """Return for how long a peer that was asked something at that instant has not reported that it works."""
        return self._ctx.now - max(self._works.get(name, 0.0), since)

    def _busy_too_long(self, opened: OpenRound, name: str) -> bool:
        """Return whether a peer computes or fetches so long after this peer's own answer, if that was asked for."""
        since = opened.opened_at if opened.one or self._me not in opened.asked else self._own_since
        return name in self._works and self._ctx.now - since > self.document.treatment.compute_limit_s

    def note_pulls(self, pulling: Mapping[int, Ref], chunks_left: dict[int, int]) -> None:
        """Count chunks that arrived since the last call as signs of work, and blobs that wait for this peer itself.

        `chunks_left` is how many chunks were missing at the last call.
        """
        for index, ref in pulling.items():
            left, name = self._blobs.left(ref.digest), self.document.roster[index]
            came, begun = chunks_left.get(index) != left, index in chunks_left
            chunks_left[index] = left
            if (came or self._holds_up(ref.digest)) and not self._blobs.spoiled_by(ref.digest, name):
                self.works(name)
                if came and begun:
                    self.comes_through(name)

    def _holds_up(self, digest: bytes) -> bool:
        """Return whether a blob waits for this peer itself, and not for so long that its worker may hang."""
        if not self._blobs.held_up(digest):
            self._held_up.pop(digest, None)
            return False
        since = self._held_up.setdefault(digest, self._ctx.now)
        return self._ctx.now - since <= self.document.treatment.compute_limit_s

    def lost_with(self, opened: OpenRound) -> Iterator[tuple[str, Resort]]:
        """Yield the peers that a round has waited for too long, and what to do about each.

        After `patience_s` of silence a peer is asked through other peers; after half as long again it is given up. With
        ``missing = "all"`` only peers that are not gone are considered, and a peer that computes is waited for, however
        long that takes. With ``"drop"`` only the deadline counts, unless too few peers have contributed by then.
        """
        missing, patience_s = self.document.treatment.missing, self.document.treatment.patience_s
        waited_s = self._ctx.now - opened.opened_at
        in_time = missing == "drop" and (waited_s < self.document.treatment.deadline_s or opened.enough)
        for index in () if in_time else (opened.proposer,) if opened.one else opened.asked:
            name = self.document.roster[index] if index >= 0 else self._ctx.me
            settled = name == self._ctx.me or name in opened.answered or index in opened.left_out
            if settled or (missing == "all" and self._membership.gone(name)):
                continue
            if missing != "all" and name not in self._headway.hung and self._busy_too_long(opened, name):
                yield name, Resort.GIVE_UP_BUSY
            elif self.silent_s(name, opened.opened_at) < patience_s:
                continue
            elif name not in opened.relayed:
                opened.relayed[name] = self._ctx.now
                yield name, Resort.ASK_AROUND
            elif self._ctx.now - opened.relayed[name] >= patience_s / 2:
                yield name, Resort.GIVE_UP
