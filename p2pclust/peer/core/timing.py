"""All durations of the agent in one table: three presets, and the limits that belong to them.

Nothing else in the package holds a time-out. A preset is chosen by name in the configuration; a test or a simulation may
replace single values with `dataclasses.replace`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log10
from typing import Final

from p2pclust.errors import UsageError


@dataclass(frozen=True)
class Timing:
    """Durations in seconds; the comments say how they depend on each other."""

    # Membership. One member is probed per period; a direct answer may take `probe_timeout_s`, then helpers are asked.
    probe_period_s: float
    probe_timeout_s: float
    #: A suspicion lasts between min and max: suspicion_min = 3 * max(1, log10 N) * probe_period, max = 4 * min.
    suspicion_periods: float
    #: News is passed on at this pace; without news nothing is sent.
    gossip_period_s: float
    #: Whole tables are exchanged with one random member at this pace, so that healed cuts merge.
    sync_period_s: float
    #: One dead member is tried again at this pace.
    dead_probe_s: float

    # Election (Raft). A follower stands after U(min, max) * (1.25 - 0.5 * fitness) without a heartbeat.
    heartbeat_s: float
    election_min_s: float
    election_max_s: float
    #: The upper end of the wait when membership holds the aggregator dead.
    hurry_s: float

    # Rounds. An unanswered request is repeated after `retry_s`; after `patience_s` of silence a peer is left out, and one
    # that computes `compute_limit_s` after the aggregator has its own answer.
    retry_s: float
    patience_s: float
    compute_limit_s: float

    # Blobs. One chunk that did not come is asked for again after this.
    chunk_timeout_s: float

    #: What each further link may add on the way to a peer that is not a neighbour.
    hop_s: float

    #: How long any peer may be silent by plan, asleep in its duty cycle: shorter silence means nothing.
    quiet_s: float = 0.0

    def allowing(self, quiet_s: float) -> Timing:
        """The durations of a fleet some of whose peers are silent for so long by plan.

        It is added to the length of suspicions, to the time for which an aggregator counts a silent peer as its follower,
        and to the default patience. Peers react to what they observe, such as a refused connection, as fast as before.

        Examples
        --------
        >>> fast = preset("fast").allowing(4.0)
        >>> fast.suspicion_s(10), fast.patience_s, fast.election_max_s
        (4.75, 9.0, 0.8)
        """
        return replace(self, quiet_s=quiet_s, patience_s=self.patience_s + quiet_s) if quiet_s else self

    def over(self, hops: int) -> Timing:
        """The durations of a peer that has others so many links away: what waits for an answer waits for its way.

        Examples
        --------
        >>> preset("default").over(11).retry_s, preset("default").over(1) == preset("default")
        (1.0, True)
        """
        there_s = max(0, hops - 1) * self.hop_s
        both_ways = ("election_min_s", "election_max_s", "retry_s", "patience_s", "chunk_timeout_s")
        longer = {name: getattr(self, name) + 2 * there_s for name in both_ways}
        return replace(self, hurry_s=self.hurry_s + there_s, **longer) if there_s else self

    def suspicion_s(self, n_members: int) -> float:
        """The shortest suspicion in a fleet of `n_members`; the longest is four times it.

        Examples
        --------
        >>> preset("default").suspicion_s(10), preset("default").suspicion_s(1000)
        (3.0, 9.0)
        """
        return self.quiet_s + self.suspicion_periods * max(1.0, log10(n_members)) * self.probe_period_s


PRESETS: Final[dict[str, Timing]] = {
    # A local network of devices: round trips of some milliseconds, pauses below a second.
    "default": Timing(
        probe_period_s=1.0, probe_timeout_s=0.3, suspicion_periods=3.0, gossip_period_s=0.2, sync_period_s=10.0,
        dead_probe_s=5.0, heartbeat_s=0.3, election_min_s=1.5, election_max_s=3.0, hurry_s=0.5, retry_s=0.6,
        patience_s=30.0, compute_limit_s=600.0, chunk_timeout_s=2.0, hop_s=0.02,
    ),
    # Links of 50 to 500 ms, with loss.
    "wan": Timing(
        probe_period_s=2.0, probe_timeout_s=1.0, suspicion_periods=5.0, gossip_period_s=0.5, sync_period_s=20.0,
        dead_probe_s=10.0, heartbeat_s=1.0, election_min_s=5.0, election_max_s=10.0, hurry_s=2.0, retry_s=2.0,
        patience_s=60.0, compute_limit_s=1200.0, chunk_timeout_s=8.0, hop_s=0.5,
    ),
    # One machine, or one rack.
    "fast": Timing(
        probe_period_s=0.25, probe_timeout_s=0.1, suspicion_periods=3.0, gossip_period_s=0.05, sync_period_s=2.0,
        dead_probe_s=1.0, heartbeat_s=0.06, election_min_s=0.4, election_max_s=0.8, hurry_s=0.08, retry_s=0.25,
        patience_s=5.0, compute_limit_s=60.0, chunk_timeout_s=0.5, hop_s=0.005,
    ),
}  # fmt: skip


def preset(name: str) -> Timing:
    """Return the preset of that name; raise `UsageError` if there is none."""
    if name not in PRESETS:
        raise UsageError(f"timing = {name!r}: expected one of {', '.join(PRESETS)}")
    return PRESETS[name]


@dataclass(frozen=True)
class Limits:
    """Sizes in bytes and counts; a simulation lowers them so that small data take the paths of large ones."""

    #: What is larger travels as a blob. Below it, a state fits into a control message with room to spare.
    inline_bytes: int = 32 * 1024
    chunk_bytes: int = 64 * 1024
    #: Chunks of one blob that are asked for at the same time.
    window: int = 4
    #: Blobs that are fetched at the same time; the others wait, or a peer that wants a hundred would drown in them.
    pulls: int = 4
    #: Blobs that are fetched only because a neighbour, who has no link to those who have them, asked for them.
    passing: int = 64
    #: No blob may claim to be larger.
    blob_bytes: int = 1024**3
