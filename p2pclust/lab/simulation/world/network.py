"""The network of a simulated world: which links there are, what they do to messages, and what has crossed them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, count
from typing import Any, Final

import numpy as np

from p2pclust.peer.core.codec import decode, encode
from p2pclust.peer.core.messages import Message, Relay
from p2pclust.transport.links import Lane
from p2pclust.transport.wire import kind_of

_NO_LINK: Final = (0.0, 0.0)
_AT_ONCE: Final = 1024
#: Peers that are sent the same message get it within so many other messages.
_RECENT: Final = 1024
#: Kinds of messages that may carry a contribution, or a sum of several: what has the attributes `job` and `round`, and
#: names the contribution's blob in `contribution` or has its bytes in `payload`.
_CARRIERS: Final = frozenset(("adopted", "partial"))


#: Several senders may be given the same list, which they do not change, and several peers the same message.
encoded = lru_cache(maxsize=_RECENT)(encode)
_decoded = lru_cache(maxsize=_RECENT)(decode)


def decoded(frames: Sequence[bytes]) -> Message:
    return _decoded(tuple(frames))


@dataclass(frozen=True)
class Conditions:
    """How bad the network is. Real links are TCP, where loss mostly shows as delay: hence the long tail."""

    delay_s: tuple[float, float] = (0.001, 0.01)  # uniform part
    tail_probability: float = 0.0  # of an extra delay, uniform up to `tail_s`
    tail_s: float = 3.0
    loss: float = 0.0
    duplicates: float = 0.0


class Network:
    """Decides when, how often, and whether a message arrives, from one random stream. Cuts are directed: `(from, to)`."""

    def __init__(
        self, conditions: Conditions, rng: np.random.Generator, links: Mapping[str, tuple[float, float]] | None = None
    ) -> None:
        self.conditions = conditions
        self._links = dict(links or {})  # name -> (seconds, loss) of a device's own link, on top of the conditions
        # What calls of `rng.random()` would return one by one; many are drawn at a time, which is faster.
        self._draws = chain.from_iterable(rng.random(_AT_ONCE).tolist() for _ in count())
        self._cuts: Counter[tuple[str, str]] = Counter()
        self._losing: dict[str, float] = {}
        self._largest: dict[str, float] = {}
        self._dead_lanes: dict[str, Lane | None] = {}
        self.counts = {"sent": 0, "lost": 0, "cut": 0, "duplicated": 0, "delayed": 0}

    def cut(self, source: str, target: str) -> None:
        """Stop everything from `source` to `target`; cuts of one direction add up."""
        self._cuts[source, target] += 1

    def heal(self, source: str, target: str) -> None:
        self._cuts[source, target] = max(0, self._cuts[source, target] - 1)

    def lose(self, name: str, probability: float) -> None:
        """From now on each message from or to this peer is lost with that probability, besides all else."""
        self._losing[name] = probability
        if not probability:
            del self._losing[name]

    def lose_large(self, name: str, most_bytes: float) -> None:
        """From now on every message from this peer with more bytes is lost, as behind a link with a smaller MTU."""
        self._largest[name] = most_bytes

    def lose_lane(self, name: str, lane: Lane | None) -> None:
        """From now on every message from this peer on that lane is lost; None: none is."""
        self._dead_lanes[name] = lane

    def passes(self, source: str, n_bytes: int, lane: Lane) -> bool:
        """Whether a message of that size gets onto the network at all."""
        passes = n_bytes <= self._largest.get(source, n_bytes) and self._dead_lanes.get(source) is not lane
        self.counts["lost"] += not passes
        return passes

    def heal_all(self) -> None:
        """A perfect network from now on."""
        for faults in (self._cuts, self._losing, self._largest, self._dead_lanes):
            faults.clear()
        self.conditions = Conditions()

    def reaches(self, source: str, target: str) -> bool:
        return not self._cuts.get((source, target))

    def delays(self, source: str, target: str) -> list[float]:
        """The delays after which copies of a message arrive; none if it is lost."""
        c, counts, draws = self.conditions, self.counts, self._draws
        counts["sent"] += 1
        if not self.reaches(source, target):
            counts["cut"] += 1
            return []
        for name in (source, target) if self._losing else ():
            # Drawn only here, so that a network which loses nothing in this way draws as it ever did.
            if name in self._losing and next(draws) < self._losing[name]:
                counts["lost"] += 1
                return []
        own_s, own_loss = self._links.get(source, _NO_LINK)
        their_s, their_loss = self._links.get(target, _NO_LINK)
        lost, twice, tail = next(draws), next(draws), next(draws)
        if lost >= (1 - c.loss) * (1 - own_loss) * (1 - their_loss):
            counts["lost"] += 1
            return []
        low, high = c.delay_s
        delays = [low + (high - low) * next(draws)]
        if twice < c.duplicates:
            counts["duplicated"] += 1
            delays.append(low + (high - low) * next(draws))
        if tail < c.tail_probability:
            counts["delayed"] += 1
            delays[0] += next(draws) * c.tail_s
        return [delay + own_s + their_s for delay in delays]


class LiveOverlay:
    """The links of a fleet as they are now, and how often each has changed. A full mesh, without an overlay, never changes.

    >>> line = LiveOverlay("abc", {"a": ["b"], "b": ["a", "c"], "c": ["b"]})
    >>> line.linked("a", "c"), line.change("c", "a", up=True), line.linked("a", "c"), line.changes("a", "c")
    (False, True, True, 1)
    """

    def __init__(self, names: Iterable[str], overlay: Mapping[str, Iterable[str]] | None = None) -> None:
        self._names = tuple(names)
        self.sparse = overlay is not None
        self._near = {name: dict.fromkeys(near) for name, near in (overlay or {}).items()}
        self._changes: Counter[frozenset[str]] = Counter()

    def linked(self, a: str, b: str) -> bool:
        return not self.sparse or b in self._near[a]

    def neighbours(self, name: str) -> tuple[str, ...]:
        """Return the present neighbours of a peer, sorted."""
        return tuple(sorted(self._near[name] if self.sparse else (other for other in self._names if other != name)))

    def add(self, a: str, b: str) -> None:
        """Add a link, which counts as no change: one peer alone has made it."""
        self._near[a][b] = self._near[b][a] = None

    def change(self, a: str, b: str, *, up: bool) -> bool:
        """Let a link appear or vanish; returns whether it did."""
        assert self.sparse, "on a full mesh no link appears or vanishes"
        if self.linked(a, b) == up:
            return False
        if up:
            self.add(a, b)
        else:
            del self._near[a][b], self._near[b][a]
        self._changes[frozenset((a, b))] += 1
        return True

    def changes(self, a: str, b: str) -> int:
        return self._changes[frozenset((a, b))] if self._changes else 0


@dataclass(frozen=True)
class LinkTraffic:
    """What went over one link, in one direction."""

    messages: dict[str, int] = field(default_factory=Counter)  # by kind; of relayed ones by the kind of what they carry
    n_bytes: dict[str, int] = field(default_factory=Counter)  # of header and frames, likewise
    #: The messages with a contribution, or with a sum of several, by job and round.
    contributions: dict[tuple[str, int], int] = field(default_factory=Counter)

    @property
    def total_messages(self) -> int:
        return sum(self.messages.values())

    @property
    def total_bytes(self) -> int:
        return sum(self.n_bytes.values())


class Traffic:
    """Counts what crosses each link: messages and bytes by kind, and contributions by round.

    A message that is relayed crosses several links, and counts on each, as what it carries. What is lost on its way was
    sent, and counts as well; a copy that the network makes does not.
    """

    def __init__(self) -> None:
        self._links: defaultdict[tuple[str, str], LinkTraffic] = defaultdict(LinkTraffic)

    def count(self, source: str, target: str, frames: Sequence[bytes], n_bytes: int) -> None:
        """A message leaves `source` for its neighbour `target`."""
        link, kind = self._links[source, target], kind_of(frames[0])
        if kind == Relay.kind:
            frames = frames[1:]
            kind = kind_of(frames[0])
        link.messages[kind] += 1
        link.n_bytes[kind] += n_bytes
        if kind in _CARRIERS:
            message: Any = decoded(frames)
            # It may be only the word that a state was adopted.
            if getattr(message, "contribution", b"") or getattr(message, "payload", ()):
                link.contributions[message.job, message.round] += 1

    def links(self) -> dict[tuple[str, str], LinkTraffic]:
        """Return what was counted so far, by (from, to), sorted."""
        return {
            ends: LinkTraffic(
                dict(sorted(link.messages.items())),
                dict(sorted(link.n_bytes.items())),
                dict(sorted(link.contributions.items())),
            )
            for ends, link in sorted(self._links.items())
        }


def traffic_summary(links: Mapping[tuple[str, str], LinkTraffic]) -> dict[str, object] | None:
    """Return the sums over all links, and which link carried most bytes; None where nothing was counted.

    >>> there, back = LinkTraffic({"ping": 2}, {"ping": 80}), LinkTraffic({"ack": 1}, {"ack": 30})
    >>> traffic_summary({("a", "b"): there, ("b", "a"): back})
    {'messages': 3, 'bytes': 110, 'hottest_link': {'from': 'a', 'to': 'b', 'bytes': 80}}
    """
    if not links:
        return None
    # Of equally hot ones the first by name, so that equal runs give the same summary.
    ends, hottest = max(sorted(links.items()), key=lambda item: item[1].total_bytes)
    return {
        "messages": sum(link.total_messages for link in links.values()),
        "bytes": sum(link.total_bytes for link in links.values()),
        "hottest_link": {"from": ends[0], "to": ends[1], "bytes": hottest.total_bytes},
    }
