"""All swarms as one: each seed belongs to one of them, and together they must meet every way of recovering."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class SwarmKind(NamedTuple):
    """One swarm, as ``p2pclust simulate`` has its options."""

    protocol: str | None = None
    overlay: str | None = None


#: Which swarm the seeds 0, 1, 2 ... belong to, over and over, with the kind of overlay. Cheap ones are there more often.
MIXTURE: Final = (
    "default", "cuts", "cancel", "default/sparse", "any", "default", "lasting", "disks", "default/moving", "leaderless",
    "cuts", "rosters", "clients", "series", "cancel/sparse", "fedcref", "lasting", "disks", "any-core", "cancel",
    "cancel/moving", "secure", "disks", "secure_groups", "leaderless/sparse", "verified", "forgers", "disks-core", "terms",
    "fedcref/sparse",
)  # fmt: skip

#: What recovering looks like from outside (see `swarms.marks`): a thousand seeds must meet each at least `_LEAST` times.
RECOVERIES: Final = (
    "aggregator crashed while opening", "aggregator crashed while combining", "aggregator crashed while closing",
    "peer crashed while adopting", "restart with lost writes", "wiped store", "older store noticed",
    "two aggregators met", "aggregator deposed", "deposed aggregator's late message", "aggregator stood still",
    "candidate caught up", "minority waited", "proposer replaced", "late answer", "peer left out", "peer out of reach",
    "broken link noticed", "link used again", "silent peer asked through others",
    "message relayed through others", "refuted", "blob pulled", "wrong blob noticed",
    "cancelled", "newer roster taken", "state refuted", "state not checked", "keys renewed", "pads refused",
    "began without this peer", "state of another epoch taken", "another aggregator within", "contributed without",
)  # fmt: skip
_LEAST: Final = 20
_OF_SEEDS: Final = 1000


def kind_of(seed: int) -> SwarmKind:
    """Return the swarm of a seed.

    Examples
    --------
    >>> kind_of(3)
    SwarmKind(protocol=None, overlay='sparse')
    """
    protocol, _, overlay = MIXTURE[seed % len(MIXTURE)].partition("/")
    return SwarmKind(None if protocol == "default" else protocol, overlay or None)


def least(n_seeds: int) -> int:
    """Return how often so many seeds must meet each way of recovering: 20 times in 1,000; fewer prove nothing.

    Examples
    --------
    >>> least(1000), least(30000), least(10)
    (20, 600, 0)
    """
    return _LEAST * n_seeds // _OF_SEEDS if n_seeds >= _OF_SEEDS else 0


def rare(counts: Mapping[str, int], n_seeds: int) -> dict[str, int]:
    """Return what so many seeds have met too rarely.

    Examples
    --------
    >>> rare(dict.fromkeys(RECOVERIES, 20) | {"refuted": 3}, 1000)
    {'refuted': 3}
    """
    return {what: counts.get(what, 0) for what in RECOVERIES if counts.get(what, 0) < least(n_seeds)}
