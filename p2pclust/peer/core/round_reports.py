"""Reports on elections and rounds, with and without an aggregator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from p2pclust.peer.core.reports import JobReport, Report
from p2pclust.peer.core.tasks import StateInfo

# -- elections ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Elected(JobReport):
    """This peer is the aggregator of the term."""

    term: int
    round: int
    votes: int
    of: int


@dataclass(frozen=True, slots=True)
class Deposed(JobReport):
    """This peer is no longer the aggregator; `term` is the newer one."""

    term: int


@dataclass(frozen=True, slots=True)
class WaitsForMajority(JobReport, verb="waiting"):
    """Less than a majority of the roster is present, or follows this peer."""

    present: int
    of: int


@dataclass(frozen=True, slots=True)
class CatchesUp(JobReport):
    """This refused candidate takes over the newer state of a peer."""

    peer: str
    term: int
    round: int


@dataclass(frozen=True, slots=True)
class TermLeap(JobReport):
    """A message names a term that elections cannot have reached."""

    peer: str
    term: int
    own_term: int


@dataclass(frozen=True, slots=True)
class RoundLeap(JobReport):
    """A message names a round that the job cannot have reached."""

    peer: str
    round: int
    own_round: int


@dataclass(frozen=True, slots=True)
class Fenced(JobReport):
    """A message of a deposed aggregator was refused."""

    peer: str
    term: int
    own_term: int


@dataclass(frozen=True, slots=True)
class StandsStill(JobReport):
    """This aggregator makes no progress, and lets another peer try."""

    term: int
    phase: str
    seconds: float


# -- rounds -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PhaseBegun(JobReport, verb="phase"):
    """A phase of a round began here; `term` is the epoch of a gossip job."""

    phase: str
    term: int
    round: int


@dataclass(frozen=True, slots=True)
class RoundCombined(JobReport, verb="combined"):
    """A round is closed, and its contributions are combined into the next state."""

    term: int
    round: int
    contributors: list[str]
    info: StateInfo  # of the next state
    roster: tuple[str, ...]

    @property
    def fields(self) -> dict[str, Any]:
        """The fields in plain values, with those of the state."""
        own = super(RoundCombined, self).fields
        own |= self.info.to_dict(own.pop("roster"))
        del own["info"]
        return own


@dataclass(frozen=True, slots=True)
class Cancelling(JobReport):
    """The aggregator makes the final state of a cancelled job."""

    term: int
    round: int
    by: str


@dataclass(frozen=True, slots=True)
class ProposerAsked(JobReport, verb="proposer"):
    """Another peer is asked, because the one before is gone or silent."""

    proposer: str


@dataclass(frozen=True, slots=True)
class LateAnswer(JobReport):
    """An answer came for an older term, or when this peer did not aggregate."""

    peer: str
    term: int


@dataclass(frozen=True, slots=True)
class AnswerDiffers(JobReport, verb="differs"):
    """A peer sent another contribution to the same round than before."""

    round: int
    peer: str


@dataclass(frozen=True, slots=True)
class Relayed(JobReport):
    """A silent peer is asked through others."""

    round: int
    peer: str
    via: list[str]


@dataclass(frozen=True, slots=True)
class LeftOut(JobReport):
    """The round continues without a silent peer, or without one that computes for too long (`busy`)."""

    round: int
    peer: str
    busy: bool | None = None


@dataclass(frozen=True, slots=True)
class OutOfReach(JobReport):
    """The round needs a silent peer; another aggregator may have a link to it."""

    round: int
    peer: str


@dataclass(frozen=True, slots=True)
class Unable(JobReport):
    """This peer cannot compute with the job or its state."""

    task: str
    reason: str


@dataclass(frozen=True, slots=True)
class StateCorrupt(JobReport, verb="corrupt"):
    """A state is not what its digest says."""

    peer: str


@dataclass(frozen=True, slots=True)
class Contradiction(JobReport):
    """An aggregator opened two states in one round of one term, or one after the last."""

    peer: str
    term: int
    round: int


@dataclass(frozen=True, slots=True)
class SecondAggregator(JobReport):
    """A peer speaks as the aggregator of a term that another one aggregates; it was ignored."""

    peer: str
    term: int
    aggregator: str


@dataclass(frozen=True, slots=True)
class RefutesState(JobReport):
    """A state that a peer sent is not right: that peer is no longer followed in this job."""

    round: int
    peer: str
    reason: str


@dataclass(frozen=True, slots=True)
class NotChecked(JobReport):
    """This peer cannot say whether a state is right, and does not adopt it."""

    peer: str
    reason: str


@dataclass(frozen=True, slots=True)
class BadTree(JobReport):
    """The tree that an aggregator sent cannot be."""

    reason: str


@dataclass(frozen=True, slots=True)
class BadPart(JobReport):
    """A partial sum cannot be."""

    peer: str
    reason: str


@dataclass(frozen=True, slots=True)
class ContributionsUnread(JobReport, verb="unread"):
    """These peers' contributions could not be added up."""

    peers: list[str]


@dataclass(frozen=True, slots=True)
class NoJob(Report):
    """A child job that a round wants cannot exist."""

    within: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Without(JobReport):
    """This peer contributes without these blobs and child jobs; `of` counts all of them."""

    round: int
    what: list[str]
    of: int


@dataclass(frozen=True, slots=True)
class RowsDamaged(Report, verb="damaged"):
    """In a testbed: from this round on, this peer contributes from rows that a fault replaced."""

    job: str
    round: int
    number: int


# -- gossip jobs --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EpochBegun(JobReport, verb="circle"):
    """An epoch of gossip began among these members."""

    epoch: int
    members: list[str]


@dataclass(frozen=True, slots=True)
class LeftEpoch(JobReport, verb="outside"):
    """Other peers began an epoch without this peer."""

    peer: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Mixing(JobReport):
    """A gossip round has taken that many ticks."""

    round: int
    tick: int


@dataclass(frozen=True, slots=True)
class Averaged(JobReport):
    """A gossip round ended; `reached` is the largest distance of any estimate from the one used."""

    round: int
    epoch: int
    ticks: int
    reached: float


@dataclass(frozen=True, slots=True)
class StateTaken(JobReport, verb="took"):
    """This peer continues from the state of another peer."""

    peer: str
    round: int


@dataclass(frozen=True, slots=True)
class AnswerMalformed(JobReport, verb="malformed"):
    """A peer's message in a gossip round cannot be, or the answers at its end are incomplete (then `peer` is empty)."""

    peer: str
    reason: str


# -- secure sums ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeysExchanged(JobReport):
    """The peers of a job with secure sums have exchanged keys: these contribute."""

    term: int
    round: int
    peers: list[str]


@dataclass(frozen=True, slots=True)
class KeysRenewed(JobReport):
    """A round of padded contributions has no total: all peers are asked for new keys."""

    term: int
    round: int
    reason: str


@dataclass(frozen=True, slots=True)
class RefusesPads(JobReport):
    """This keeper does not take its pads away."""

    round: int
    peer: str
    reason: str


@dataclass(frozen=True, slots=True)
class ReportsSets(JobReport):
    """The job's final state leaves out sets of peers for which this keeper took pads away: it reports them to the fleet.

    Sums of few peers may have been computed, about these `peers`, which the state does not list as exposed.
    """

    peers: list[str]


@dataclass(frozen=True, slots=True)
class TooFewKeys(JobReport):
    """The job waits for more peers: otherwise sums of too few would be revealed."""

    term: int
    round: int
    reason: str
