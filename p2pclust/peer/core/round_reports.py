"""Reports on elections and rounds, with and without an aggregator."""

from __future__ import annotations

from typing import Any, Final

from p2pclust.peer.core.reports import JobReport, Report
from p2pclust.peer.core.tasks import StateInfo

# -- elections ----------------------------------------------------------------------------------------------------------


class Elected(JobReport):
    term: int
    round: int
    votes: int
    of: int


class Deposed(JobReport):
    """This peer is no longer the aggregator; `term` is the newer one."""

    term: int


class WaitsForMajority(JobReport, verb="waiting"):
    """Less than a majority of the roster is present, or follows this peer."""

    present: int
    of: int


class CatchesUp(JobReport):
    """This refused candidate takes over the newer state of a peer."""

    peer: str
    term: int
    round: int


class TermLeap(JobReport):
    """A message names a term that elections cannot have reached."""

    peer: str
    term: int
    own_term: int


class RoundLeap(JobReport):
    """A message names a round that the job cannot have reached."""

    peer: str
    round: int
    own_round: int


class Fenced(JobReport):
    """A message of a deposed aggregator was refused."""

    peer: str
    term: int
    own_term: int


class BadEvidence(JobReport):
    """A peer showed a signature that is not right: it is ignored for the rest of that term."""

    peer: str
    term: int
    reason: str


class StandsStill(JobReport):
    """This aggregator makes no progress, and lets another peer try."""

    term: int
    phase: str
    seconds: float


# -- rounds -------------------------------------------------------------------------------------------------------------


#: The phases of a round.
PHASES: Final = ("opening", "adopting", "combining", "closing")


class PhaseBegun(JobReport, verb="phase"):
    """A phase of a round began here; `term` is the epoch of a gossip job."""

    phase: str
    term: int
    round: int


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
        own = super().fields
        own |= self.info.to_dict(own.pop("roster"))
        del own["info"]
        return own


class Cancelling(JobReport):
    term: int
    round: int
    by: str


class ProposerAsked(JobReport, verb="proposer"):
    """Another peer is asked, because the one before is gone or silent."""

    proposer: str


class LateAnswer(JobReport):
    """An answer came for an older term, or when this peer did not aggregate."""

    peer: str
    term: int


class AnswerDiffers(JobReport, verb="differs"):
    """A peer sent another contribution to the same round than before."""

    round: int
    peer: str


class Relayed(JobReport):
    """A silent peer is asked through others."""

    round: int
    peer: str
    via: list[str]


class LeftOut(JobReport):
    """The round continues without a silent peer, or without one that computes for too long (`busy`)."""

    round: int
    peer: str
    busy: bool | None = None


class OutOfReach(JobReport):
    """The round needs a silent peer; another aggregator may have a link to it."""

    round: int
    peer: str


class Unable(JobReport):
    """This peer cannot compute with the job or its state."""

    task: str
    reason: str


class StateCorrupt(JobReport, verb="corrupt"):
    """A state is not what its digest says."""

    peer: str


class Contradiction(JobReport):
    """An aggregator opened two states in one round of one term, or one after the last."""

    peer: str
    term: int
    round: int


class SecondAggregator(JobReport):
    """A peer speaks as the aggregator of a term that another one aggregates; it was ignored."""

    peer: str
    term: int
    aggregator: str


class RefutesState(JobReport):
    """A state that a peer sent is not right: that peer is no longer followed in this job."""

    round: int
    peer: str
    reason: str


class NotChecked(JobReport):
    """This peer cannot say whether a state is right, and does not adopt it."""

    peer: str
    reason: str


class BadTree(JobReport):
    reason: str


class BadPart(JobReport):
    peer: str
    reason: str


class ContributionsUnread(JobReport, verb="unread"):
    peers: list[str]


class NoJob(Report):
    """A child job that a round wants cannot exist."""

    within: str
    name: str
    reason: str


class Without(JobReport):
    """This peer contributes without these blobs and child jobs; `of` counts all of them."""

    round: int
    what: list[str]
    of: int


class RowsDamaged(Report, verb="damaged"):
    """In a testbed: from this round on, this peer contributes from rows that a fault replaced."""

    job: str
    round: int
    number: int


# -- gossip jobs --------------------------------------------------------------------------------------------------------


class EpochBegun(JobReport, verb="circle"):
    """An epoch of gossip began among these members."""

    epoch: int
    members: list[str]


class LeftEpoch(JobReport, verb="outside"):
    """Other peers began an epoch without this peer."""

    peer: str
    epoch: int


class Mixing(JobReport):
    """A gossip round has taken that many ticks."""

    round: int
    tick: int


class Averaged(JobReport):
    """A gossip round ended; `reached` is the largest distance of any estimate from the one used."""

    round: int
    epoch: int
    ticks: int
    reached: float


class StateTaken(JobReport, verb="took"):
    """This peer continues from the state of another peer."""

    peer: str
    round: int


class AnswerMalformed(JobReport, verb="malformed"):
    """A peer's message in a gossip round cannot be, or the answers at its end are incomplete (then `peer` is empty)."""

    peer: str
    reason: str


# -- secure sums ----------------------------------------------------------------------------------------------------------


class KeysExchanged(JobReport):
    """The peers of a job with secure sums have exchanged keys: these contribute."""

    term: int
    round: int
    peers: list[str]


class KeysRenewed(JobReport):
    """A round of padded contributions has no total: all peers are asked for new keys."""

    term: int
    round: int
    reason: str


class RefusesPads(JobReport):
    round: int
    peer: str
    reason: str


class ReportsSets(JobReport):
    """The job's final state leaves out sets of peers for which this keeper took pads away: it reports them to the fleet.

    Sums of few peers may have been computed, about these `peers`, which the state does not list as exposed.
    """

    peers: list[str]


class TooFewKeys(JobReport):
    """The job waits for more peers: otherwise sums of too few would be revealed."""

    term: int
    round: int
    reason: str
