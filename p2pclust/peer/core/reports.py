"""Reports: what people, logs, tests and armed faults may need to know, one class for each. No report contains data rows.

The verb of a report is its word in logs and in ``events.jsonl`` (docs/logs.md explains them all).
"""

from __future__ import annotations

from typing import Any, ClassVar

from p2pclust.peer.core.effects import Effect
from p2pclust.peer.core.structs import hyphenated


class Report(Effect):
    """Base of all reports. The verb is the name of the class in small letters, unless the class names it.

    Examples
    --------
    >>> report = JobSubmitted("job-1", ["a", "b"], series="series-1")
    >>> report.verb, report.fields
    ('submitted', {'job': 'job-1', 'roster': ['a', 'b'], 'series': 'series-1'})
    """

    verb: ClassVar[str]

    def __init_subclass__(cls, verb: str = "") -> None:
        super().__init_subclass__()
        cls.verb = verb or hyphenated(cls.__name__)

    @property
    def fields(self) -> dict[str, Any]:
        """The fields in plain values, without those that are None."""
        return {name: value for name, value in vars(self).items() if value is not None}


class JobReport(Report):
    """Base of the reports on a job; its first two fields are `Document.named`."""

    job: str
    within: str | None  # the parent of a child job


# -- members and the fleet roster ---------------------------------------------------------------------------------------


class MemberChanged(Report, verb="member"):
    member: str
    status: str
    before: str
    incarnation: int


class NoAnswer(Report):
    member: str
    address: str
    hint: str = "is it running there, and are it and this device on the newest fleet roster?"


class Refuted(Report):
    incarnation: int


class Twin(Report):
    """A member's key, or this peer's own, is used by two processes, at these addresses."""

    member: str
    addresses: list[str]
    hint: str = "one device key in two processes: end one of them, and give each device its own bundle"


class StoreForgot(Report):
    """This peer's store was restored from an older image, or lost its newest rows; `store` is its former id."""

    reason: str
    store: str


class LinkBroken(Report):
    """On a sparse overlay a neighbour lives, but does not answer over its link: messages go around it."""

    neighbour: str


class LinkMended(Report):
    neighbour: str


class NeighbourReplaced(Report, verb="replaced"):
    """With a partial view, this peer opened a link to `by` in place of the one to `lost`."""

    lost: str
    by: str


class RosterTaken(Report, verb="roster"):
    """A newer fleet roster is in force."""

    serial: int
    enrolled: list[str]
    revoked: list[str]
    renewed: list[str]
    by: str


class RosterRefused(Report):
    peer: str
    reason: str


class KeysExpired(Report, verb="expired"):
    member: str


# -- what spreads -------------------------------------------------------------------------------------------------------


class FactsCleared(Report, verb="floor"):
    """This peer published its facts anew; `void` of them are no longer true."""

    standing: int
    void: int


class TooManyFacts(Report):
    owner: str


class ForgedFact(Report):
    """A peer sent a fact without the valid signature of its owner; neither it nor what follows it in the message is kept."""

    peer: str
    owner: str
    key: str
    reason: str


class BadDocument(Report):
    """A fact, or the state of a census, should be a job document and is not one that this peer keeps."""

    owner: str
    reason: str


class DocumentHeld(Report):
    """A job waits for the fleet roster that its document names, which this peer lacks."""

    job: str
    owner: str
    serial: int


class TooLarge(Report):
    """A job would take too much of this device's memory: its document is not kept, and the device takes no part."""

    job: str
    owner: str
    reason: str


class BadLinks(Report):
    owner: str
    reason: str


class BlobPulled(Report, verb="pulling"):
    """This peer begins to fetch a blob."""

    blob: str
    size_bytes: int
    resumed_chunks: int


class BlobCorrupt(Report):
    """A fetched blob is not what its digest says."""

    blob: str
    sources: list[str]  # of its chunks


# -- jobs and series ----------------------------------------------------------------------------------------------------


class JobSubmitted(Report, verb="submitted"):
    job: str
    roster: list[str]
    asked: str | None = None  # as in the submission
    series: str | None = None


class JobRefused(Report, verb="refused"):
    """A job that was submitted here, or a cancel, was refused."""

    reason: str
    asked: str | None = None


class JobAccepted(Report, verb="accepted"):
    """A majority of the roster has the document on disk."""

    job: str


class CancelKnown(Report, verb="cancel"):
    job: str
    by: str


class JobBegun(JobReport, verb="job"):
    roster: list[str]


class Abstains(JobReport):
    reason: str


class JobFinished(JobReport, verb="finished"):
    term: int
    round: int
    digest: str


class JobGone(Report):
    """All present peers have forgotten the job after its end, or refuse it, or the others are fewer than a majority."""

    job: str
    peers: list[str]


class NotReloaded(Report):
    """A new turn works on the rows that are in memory."""

    job: str
    hint: str = "another job is at work on these rows"


class NoNext(Report):
    """No document can be made for the next turn of a series."""

    series: str
    number: int
    reason: str


class SeriesEnded(Report):
    series: str
    number: int
