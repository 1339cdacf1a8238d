"""What crosses each link of a simulated network: messages and bytes by kind, and contributions by round.

A message that is relayed crosses several links, and counts on each, as what it carries. What is lost on its way was sent,
and counts as well; a copy that the network makes does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from p2pclust.lab.simulation.world.coding import decoded
from p2pclust.peer.core.messages import Relay
from p2pclust.transport.wire import kind_of

#: Kinds of messages that may carry a contribution, or a sum of several: what has the attributes `job` and `round`, and
#: names the contribution's blob in `contribution` or has its bytes in `payload`.
_CARRIERS: Final = frozenset(("adopted", "partial"))
_RELAY: Final = Relay.kind


@dataclass(frozen=True)
class LinkTraffic:
    """What went over one link, in one direction.

    Messages and bytes are by kind of message, of relayed ones by the kind of what they carry; bytes are those of header and
    frames. Contributions are the messages with one, or with a sum of several, by job and round.
    """

    messages: dict[str, int] = field(default_factory=dict)
    n_bytes: dict[str, int] = field(default_factory=dict)
    contributions: dict[tuple[str, int], int] = field(default_factory=dict)

    @property
    def total_messages(self) -> int:
        """Messages of all kinds."""
        return sum(self.messages.values())

    @property
    def total_bytes(self) -> int:
        """Bytes of messages of all kinds."""
        return sum(self.n_bytes.values())


class Traffic:
    """Counts as it goes: two look-ups per message, and one decoding more per contribution."""

    def __init__(self) -> None:
        self._links: dict[tuple[str, str], LinkTraffic] = {}

    def count(self, source: str, target: str, frames: Sequence[bytes], n_bytes: int) -> None:
        """A message leaves `source` for its neighbour `target`."""
        link = self._links.get((source, target))
        if link is None:
            link = self._links[source, target] = LinkTraffic()
        kind = kind_of(frames[0])
        if kind == _RELAY:
            frames = frames[1:]
            kind = kind_of(frames[0])
        link.messages[kind] = link.messages.get(kind, 0) + 1
        link.n_bytes[kind] = link.n_bytes.get(kind, 0) + n_bytes
        if kind in _CARRIERS:
            message: Any = decoded(frames)
            # It may be only the word that a state was adopted.
            if getattr(message, "contribution", b"") or getattr(message, "payload", ()):
                key = (message.job, message.round)
                link.contributions[key] = link.contributions.get(key, 0) + 1

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


def summary(links: Mapping[tuple[str, str], LinkTraffic]) -> dict[str, object] | None:
    """Return the sums over all links, and which link carried most bytes; None where nothing was counted.

    Examples
    --------
    >>> summary({("a", "b"): LinkTraffic({"ping": 2}, {"ping": 80}), ("b", "a"): LinkTraffic({"ack": 1}, {"ack": 30})})
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
