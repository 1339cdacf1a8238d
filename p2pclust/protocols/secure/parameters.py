"""What a job with secure sums asks for (docs/secure-sums.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from p2pclust.errors import UsageError

KEEPERS: Final = 3  # keepers of a job whose request names no number
ALL: Final = 4096  # as a number of keepers: every peer keeps pads. It is the most that a job roster has.
LEAST_COHORT: Final = 3
LEAST_GROUPS: Final = 3  # with fewer groups no total can be said to differ from the others
_LARGE_COHORT: Final = 5
#: What may be done when the set of a state that was revealed already cannot be had again: the default first.
BURNT: Final = ("groups", "record")
#: What may be done when a peer is missing in a round and was in the rounds before: the default first.
LEAVE: Final = ("alone", "groups")


def usual_cohort(n_peers: int) -> int:
    """Return how many peers hide each other by default: 5, or 3 in a fleet that has not two more than that."""
    # With two to spare, two peers may be missing before the job has to wait.
    return _LARGE_COHORT if n_peers >= _LARGE_COHORT + 2 else LEAST_COHORT


@dataclass(frozen=True, slots=True)
class SecureSums:
    """The parameters of secure sums, every one with its final value."""

    keepers: int = KEEPERS  # how many peers keep pads, in addition to those that insist on it
    cohort: int = _LARGE_COHORT  # the fewest peers whose sum may be revealed
    # {"groups", "record"}: of one state: whether another set may be revealed only if all classes have `cohort` members.
    burnt: str = BURNT[0]
    leave: str = LEAVE[0]  # {"alone", "groups"}: the same for the whole job
    # Into how many fixed groups the peers are dealt, whose totals are revealed one by one in stages that look at what
    # single peers contribute (`max_weight`, `robust`); then `cohort` is about each group. 0: such stages are refused.
    groups: int = 0

    @property
    def colluders(self) -> int:
        """How many peers, the aggregator included, may pool what they see: t of docs/secure-sums.md."""
        return min(self.keepers - 1, self.cohort - 2)

    def check(self, n_peers: int) -> None:
        if not (2 <= self.keepers <= n_peers or self.keepers == ALL):
            raise UsageError(
                f"secure: keepers = {self.keepers}: expected 2 to {n_peers}, the number of peers, or 'all'"
            )
        if not LEAST_COHORT <= self.cohort <= n_peers:
            few = f"{n_peers} peers are too few to hide among" if n_peers < LEAST_COHORT else f"cohort = {self.cohort}"
            raise UsageError(f"secure: {few}: expected {LEAST_COHORT} to the number of peers ({n_peers})")
        most = n_peers // self.cohort
        if self.groups and not LEAST_GROUPS <= self.groups <= most:
            why = f"expected {LEAST_GROUPS} to {most}, so that each of {n_peers} peers has {self.cohort - 1} others in its "
            why += "group (cohort)"
            if most < LEAST_GROUPS:
                why = f"{n_peers} peers make {most} groups of at least {self.cohort} (cohort), and {LEAST_GROUPS} are needed"
            raise UsageError(f"secure: groups = {self.groups}: {why}")
        for name, value, known in (("burnt", self.burnt, BURNT), ("leave", self.leave, LEAVE)):
            if value not in known:
                raise UsageError(f"secure: {name} = {value!r}: expected one of {', '.join(known)}")
