"""What a job with secure sums asks for (docs/secure-sums.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from p2pclust.errors import UsageError

LEAST_PEERS: Final = 4  # fewer hide so little that jobs run plain, unless they ask for secure sums
ALL: Final = 4096  # as a number of keepers: every peer keeps pads. It is the most that a job roster has.
LEAST_COHORT: Final = 3
LEAST_GROUPS: Final = 3  # with fewer groups no total can be said to differ from the others
_LARGE_COHORT: Final = 5
_FEW: Final = 6  # with fewer peers one may collude, else two
#: What may be done when the set of a state that was revealed already cannot be had again.
BURNT: Final = ("groups", "record")
#: What may be done when a peer is missing in a round and was in the rounds before: the default first.
LEAVE: Final = ("alone", "groups")


@dataclass(frozen=True, slots=True)
class SecureSums:
    """The parameters of secure sums, every one with its final value."""

    keepers: int = 4  # how many peers keep pads, in addition to those that insist on it
    cohort: int = _LARGE_COHORT  # the fewest peers whose sum may be revealed
    # {"groups", "record"}: of one state: whether another set may be revealed only if all classes have `cohort` members.
    burnt: str = BURNT[0]
    leave: str = LEAVE[0]  # {"alone", "groups"}: the same for the whole job
    # Into how many fixed groups the peers are dealt, whose totals are revealed one by one in stages that look at what
    # single peers contribute (`max_weight`, `robust`); then `cohort` is about each group. 0: such stages are refused.
    groups: int = 0
    colluders: int = 2  # how many peers, the aggregator included, may pool what they see: t of docs/secure-sums.md

    @classmethod
    def usual(
        cls, n_peers: int, keepers: int = 0, cohort: int = 0, burnt: str = "", leave: str = "", groups: int = 0,
        colluders: int = 0,
    ) -> SecureSums:  # fmt: skip
        """Return the parameters of a job of so many peers; what is 0 or empty gets its default.

        Examples
        --------
        >>> usual = SecureSums.usual(6)
        >>> usual.cohort, usual.keepers, usual.colluders, usual.burnt
        (4, 4, 2, 'record')
        """
        majority = n_peers // 2 + 1
        cohort = cohort or (LEAST_COHORT if groups else max(LEAST_COHORT, min(_LARGE_COHORT, majority)))
        if not colluders:
            # Two honest peers are left in a cohort; an aggregator and a keeper may die at once, and an honest one is left.
            spare = keepers - 2 if keepers else cohort
            colluders = max(1, min(1 if n_peers < _FEW else 2, cohort - 2, spare))
        return cls(
            keepers or min(colluders + 2, n_peers), cohort, burnt or ("groups" if n_peers >= 2 * cohort else "record"),
            leave or LEAVE[0], groups, colluders,
        )  # fmt: skip

    def check(self, n_peers: int) -> None:
        if not (2 <= self.keepers <= n_peers or self.keepers == ALL):
            raise UsageError(
                f"secure: keepers = {self.keepers}: expected 2 to {n_peers}, the number of peers, or 'all'"
            )
        if not LEAST_COHORT <= self.cohort <= n_peers:
            few = f"{n_peers} peers are too few to hide among" if n_peers < LEAST_COHORT else f"cohort = {self.cohort}"
            raise UsageError(f"secure: {few}: expected {LEAST_COHORT} to the number of peers ({n_peers})")
        at_most = min(min(self.keepers, n_peers) - 1, self.cohort - 2)
        if not 1 <= self.colluders <= at_most:
            why = f"expected 1 to {at_most}, less than keepers, and two less than cohort"
            raise UsageError(f"secure: colluders = {self.colluders}: {why}")
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
