"""How the fleet treats a job, from the person who submits it to the document that every peer holds."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from p2pclust.errors import UsageError
from p2pclust.peer.core.timing import PRESETS
from p2pclust.protocols.engine import exclusions
from p2pclust.protocols.secure.parameters import SecureSums

#: What happens when a peer of the roster does not answer (docs/peer/rounds.md, "Missing peers").
MISSING: Final = ("all", "wait", "drop")

#: How contributions come together (docs/peer/tree.md, "Sums along a tree").
COLLECT: Final = ("star", "tree", "gossip")

#: Which peers make each state again before they adopt it (docs/verified-rounds.md); empty: none.
VERIFY: Final = ("", "all")

#: A person may not set less: a peer would be passed over before a message to it could be repeated once. Documents that are
#: here already are read whatever they say.
LEAST_PATIENCE_S: Final = 0.1

#: The default `Treatment.gossip_tolerance` of gossip rounds.
TOLERANCE: Final = 1e-9

#: Followers learn with the next heartbeat at the latest that a turn is over. The slowest heartbeat of all presets counts,
#: so that a document is valid at every peer or at none.
_LEAST_EVERY_S: Final = max(timing.heartbeat_s for timing in PRESETS.values())
_FOREVER_S: Final = 1e9
_MOST_TICKS: Final = 10**6


@dataclass(frozen=True, slots=True)
class Treatment:
    """How the fleet treats a job.

    In a request, a field left at 0 or empty stands for its default; in a document every field has its final value.

    Examples
    --------
    >>> Treatment("drop", patience_s=5.0, compute_limit_s=60.0, collect="star").check()
    Traceback (most recent call last):
    ...
    p2pclust.errors.UsageError: missing = 'drop' needs deadline_s: the round ends at its deadline: set deadline_s above 0
    """

    missing: str = "wait"  # one of `MISSING`
    patience_s: float = 0.0  # how long a round waits for a silent peer; by default, as the timing preset says
    #: How long a round waits for a peer that computes, from the aggregator's own answer; by default, as the preset says.
    compute_limit_s: float = 0.0
    deadline_s: float = 0.0  # with missing = "drop": after this long a round ends as soon as one peer has contributed
    aggregator: str = ""  # of term 1; by default, elected
    collect: str = ""  # one of `COLLECT`; by default, as the overlay requires
    #: With collect = "gossip", as the next two: how closely all estimates of a sum agree, relative to the sum of absolute
    #: values; by default 1e-9.
    gossip_tolerance: float = 0.0
    mixing: str = ""  # "push-sum" or "metropolis-hastings"; by default push-sum, and with `ticks` metropolis-hastings
    ticks: int = 0  # after which each peer continues from its own estimate, in stages that allow it; 0: never
    every_s: float = 0.0  # above 0: repeat the job this long after each end
    secure: bool = False  # whether no peer sees what a single other peer contributes (docs/secure-sums.md)
    #: Of secure sums, as the next three, `groups` and `colluders`: see `SecureSums`, which has their defaults.
    keepers: int = 0
    cohort: int = 0
    burnt: str = ""
    leave: str = ""
    verify: str = ""  # one of `VERIFY`
    groups: int = 0
    colluders: int = 0

    @property
    def keyed(self) -> bool:
        """Whether the job needs the keys of its peers' devices."""
        return self.secure or bool(self.verify)

    @property
    def secure_sums(self) -> SecureSums:
        """The parameters of secure sums; each has its final value."""
        return SecureSums(self.keepers, self.cohort, self.burnt, self.leave, self.groups, self.colluders)

    def secured_for(self, n_peers: int) -> Treatment:
        """Return the treatment of a secured job of so many peers in which every field has its final value."""
        return replace(self, **asdict(SecureSums.usual(n_peers, **asdict(self.secure_sums))))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, by field."""
        return asdict(self)

    def check(self) -> None:
        """Raise `UsageError` if a final value is impossible, or if two contradict each other."""
        if self.missing not in MISSING:
            raise UsageError(f"missing = {self.missing!r}: expected one of {', '.join(MISSING)}")
        if self.collect not in COLLECT:
            raise UsageError(f"collect = {self.collect!r}: expected one of {', '.join(COLLECT)}")
        durations = (self.patience_s, self.compute_limit_s, self.deadline_s)
        if not all(type(s) is float and 0 <= s < _FOREVER_S for s in durations) or 0 in durations[:2]:
            raise UsageError("patience_s, compute_limit_s and deadline_s: expected seconds, the first two above 0")
        if self.verify not in VERIFY:
            raise UsageError(f"verify = {self.verify!r}: expected 'all', or leave it out")
        exclusions.refuse(self.options)
        if type(self.ticks) is not int or not 0 <= self.ticks <= _MOST_TICKS:
            raise UsageError(f"ticks = {self.ticks!r}: expected a whole number from 0 to {_MOST_TICKS}")
        numbers = (self.keepers, self.cohort, self.groups, self.colluders)
        if type(self.secure) is not bool or not all(type(number) is int for number in numbers):
            raise UsageError("secure, keepers, cohort, groups, colluders: expected true or false, and whole numbers")
        if type(self.every_s) is not float:
            raise UsageError("every_s: expected seconds")
        if self.every_s and (problem := problem_with_every(self.every_s)):
            raise UsageError(f"every_s = {self.every_s:g}: {problem}")

    @property
    def options(self) -> exclusions.JobOptions:
        """What the table of exclusions looks at; a value that documents have whether they use it or not is unknown."""
        unknown = {"patience_s", "compute_limit_s"} | (set() if self.missing == "drop" else {"deadline_s"})
        given = {name: value for name, value in asdict(self).items() if name not in unknown}
        return {**given, "every": self.every_s}


def problem_with_every(every_s: float) -> str:
    """Return why a job cannot be repeated so long after each end, or an empty string.

    Examples
    --------
    >>> problem_with_every(3600.0), problem_with_every(1e-9)
    ('', 'expected at least 1 s, and less than 1e+09 s')
    """
    if _LEAST_EVERY_S <= every_s < _FOREVER_S:
        return ""
    return f"expected at least {_LEAST_EVERY_S:g} s, and less than {_FOREVER_S:g} s"
