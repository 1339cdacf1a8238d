"""What the clients of a fleet saw, as Jepsen records it, and the promises that it must keep.

Clients ask at the control addresses of different peers while faults happen. Each operation is recorded with the instants at
which it was invoked and completed, and with its outcome: ``ok``, ``failed`` (it certainly had no effect) or ``unknown`` (no
answer came, or not the last one). The same check serves simulated clients and clients of real processes. It looks at nothing
but the history:

H1  a job that was accepted has ended at every peer of its roster, once all faults have ended
H2  a job has one result: the same bits, or the same reason for none, at every peer and for ever
H3  a job whose cancel was answered with ``cancelled`` has no other result
H4  a submission that is repeated at a peer with the same request id is the same job, whether or not an answer was lost
H5  labels that a client was given are those of the centers of the job's result
H6  what a client reads at a peer never goes back, as long as the peer has its store: neither from a result to a running job,
    nor from a known job to an unknown one

Peers delete the oldest jobs: of these H1, H4 and H6 allow that a peer does not know them any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final, Literal

Outcome = Literal["ok", "failed", "unknown"]
#: How the peer that was asked sees a job: it does not know it, it runs, or how it ended.
ABSENT: Final = "absent"
RUNNING: Final = "running"
ENDED: Final = ("done", "failed", "cancelled")
_RANK: Final = {ABSENT: 0, RUNNING: 1}
_MOST_KEPT: Final = 500  # jobs that have ended, at one peer
_AT_ONCE: Final = 32  # jobs that may reach peers in another order than they are named in


@dataclass(frozen=True)
class Operation:
    """One operation of a client at a peer."""

    client: str
    peer: str
    verb: str  # submit | cancel | result | status | assign
    invoked_at: float
    completed_at: float  # in seconds; never completed: infinity
    outcome: Outcome  # a submission is ok if it was accepted, a cancel if its job's end was answered
    request: str = ""  # the request id of a submission; of a result, the one of its job, where that is known
    job: str = ""  # as far as it was answered
    roster: tuple[str, ...] = ()  # of the job, as far as it was answered
    #: How the peer saw each job that the answer is about: one job, or for ``status`` all that the peer knows.
    phases: Mapping[str, str] = field(default_factory=dict)
    digest: str = ""  # of the bits of the result that was read, or that rows were labelled with
    labels: tuple[int, ...] = ()  # of the rows that were labelled

    def phase_of(self, job: str) -> str:
        """Return how the peer saw a job, or an empty string if the answer is not about it."""
        if self.verb == "status" and self.outcome == "ok":
            return self.phases.get(job, ABSENT)
        return self.phases.get(job, "")

    def __str__(self) -> str:
        about = " ".join(filter(None, (self.request, self.job[:12])))
        seen = ", ".join(f"{job[:12]} {phase}" for job, phase in self.phases.items())
        until = "..." if self.completed_at == inf else f"{self.completed_at:.3f}"
        bits = f" bits {self.digest[:8]}" if self.digest else ""
        return (
            f"{self.invoked_at:9.3f} to {until}: {self.client} at {self.peer}: {self.verb} {about}: {self.outcome}, "
            f"saw {seen or 'nothing'}{bits}"
        )


@dataclass
class History:
    """All operations of a run, and what the checker must know of its faults."""

    operations: list[Operation] = field(default_factory=list)
    stores_lost: list[tuple[str, float]] = field(default_factory=list)  # peer and instant
    #: Since when all faults have ended, and jobs had time to end.
    settled_at: float = inf

    def jobs(self) -> list[str]:
        """Return all jobs that any client heard of, in the order in which they were first named."""
        return list(dict.fromkeys(job for op in self.operations for job in (op.job, *op.phases) if job))

    def reads(self) -> dict[str, list[Operation]]:
        """Return for each job the operations whose answer shows how a peer saw it, in the order of their beginning."""
        found: dict[str, list[Operation]] = {job: [] for job in self.jobs()}
        for op in sorted(self.operations, key=lambda op: op.invoked_at):
            of_all = op.verb == "status" and op.outcome == "ok"
            for job in found if of_all else op.phases:
                found[job].append(op)
        return found

    def kept_store(self, peer: str, since: float, until: float) -> bool:
        """Return whether a peer had the same store all the time between two instants."""
        return not any(name == peer and since <= at <= until for name, at in self.stores_lost)


#: The labels that the centers of a result give to a peer's rows, from the digest of the result, and the peer.
ExpectedLabels = Callable[[str, str], tuple[int, ...]]


def violations(history: History, expected_labels: ExpectedLabels, kept: int = _MOST_KEPT) -> list[str]:
    """Return each promise that the history breaks, with the operations that show it; nothing if all is well.

    `expected_labels` is called only for results that rows were labelled with; `kept` is how many ended jobs a peer keeps.
    """
    accepted = {op.job: op for op in history.operations if op.verb == "submit" and op.outcome == "ok"}
    reads = history.reads()
    # Named in their order; a peer has at least so many newer ones.
    oldest = dict.fromkeys(list(reads)[: len(reads) - kept + _AT_ONCE] if len(reads) > kept else ())
    found: list[str] = []
    for job, seen in reads.items():  # what explains most comes first
        found += _ends(job, seen)
        if job in accepted:
            found += _must_end(history, accepted[job], seen, deleted=job in oldest)
        found += _goes_back(history, job, seen, deletes=job in oldest)
    found += _twice(history, oldest)
    for op in history.operations:  # that the digest is the one of the job's result is H2
        if op.verb == "assign" and op.digest and op.labels != expected_labels(op.digest, op.peer):
            labels = f"the labels of {op.peer}'s rows"
            found.append(_shown("H5", f"{labels} are not those of the centers of {op.job}", op))
    return found


def _shown(rule: str, what: str, *operations: Operation) -> str:
    return "\n".join([f"{rule}: {what}", *(f"  {operation}" for operation in operations)])


def _must_end(history: History, accepted: Operation, reads: list[Operation], *, deleted: bool) -> Iterator[str]:
    job = accepted.job
    for peer in accepted.roster if history.settled_at < inf else ():
        last = [op for op in reads if op.peer == peer and op.invoked_at >= history.settled_at]
        if deleted and last and last[-1].phase_of(job) == ABSENT:
            continue
        if not last or last[-1].phase_of(job) not in ENDED:
            yield _shown("H1", f"{job} was accepted, and has not ended at {peer}", accepted, *last[-1:])


def _ends(job: str, reads: list[Operation]) -> Iterator[str]:
    """Yield how a job's cancel did not stand (H3), and how it has two results (H2)."""
    ends = [op for op in reads if op.phase_of(job) in ENDED]
    cancelled = next((op for op in ends if op.verb == "cancel" and op.phase_of(job) == "cancelled"), None)
    late = next((op for op in ends if op.phase_of(job) != "cancelled"), None)
    if cancelled is not None and late is not None:
        yield _shown("H3", f"{job} has a result after its cancel was answered", cancelled, late)
    bits = [op for op in ends if op.digest]
    other = next((op for op in ends if op.phase_of(job) != ends[0].phase_of(job)), None)
    another = next((op for op in bits if op.digest != bits[0].digest), None)
    if other is not None:
        yield _shown("H2", f"{job} ended in two ways", ends[0], other)
    elif another is not None:
        yield _shown("H2", f"{job} has two results", bits[0], another)


def _goes_back(history: History, job: str, reads: list[Operation], *, deletes: bool) -> Iterator[str]:
    by_store: dict[tuple[str, int], list[Operation]] = {}  # the reads at each peer as long as it had one store
    for op in reads:
        if history.kept_store(op.peer, op.invoked_at, op.completed_at):
            lost = sum(peer == op.peer and at < op.invoked_at for peer, at in history.stores_lost)
            by_store.setdefault((op.peer, lost), []).append(op)
    for at_one_store in by_store.values():
        ended = deque(sorted(at_one_store, key=lambda op: op.completed_at))
        before: Operation | None = None  # of those that had ended, the one that saw most
        for later in at_one_store:
            while ended[0].completed_at < later.invoked_at:
                earlier = ended.popleft()
                if before is None or _rank(earlier, job) > _rank(before, job):
                    before = earlier
            now = later.phase_of(job)
            if before is None or _rank(later, job) >= _rank(before, job) or (now == ABSENT and deletes):
                continue
            yield _shown("H6", f"{job} was {before.phase_of(job)} at {later.peer}, and then {now}", before, later)
            return


def _rank(op: Operation, job: str) -> int:
    return _RANK.get(op.phase_of(job), 2)


def _twice(history: History, oldest: Mapping[str, None]) -> Iterator[str]:
    asked: dict[str, list[Operation]] = {}
    for op in history.operations:
        if op.verb == "submit" and op.request and op.job not in oldest:
            asked.setdefault(op.request, []).append(op)
    for request, submissions in asked.items():
        answered = [op for op in submissions if op.job]
        pairs = ((earlier, later) for number, later in enumerate(answered) for earlier in answered[:number])
        at_one_store = (
            (one, other) for one, other in pairs if one.job != other.job and one.peer == other.peer
            and history.kept_store(one.peer, *sorted((one.invoked_at, other.invoked_at)))
        )  # fmt: skip
        if two := next(at_one_store, None):
            yield _shown("H4", f"request {request} is two jobs at {two[0].peer}", *two)
            continue
        seen: dict[str, Operation] = {}
        for op in history.operations:
            if op.request == request and op.job and op.job not in oldest:
                seen.setdefault(op.job, op)
        stores = {  # at which it may have been submitted
            (op.peer, sum(peer == op.peer and at <= instant for peer, at in history.stores_lost))
            for op in submissions if op.outcome != "failed" for instant in (op.invoked_at, op.completed_at)
        }  # fmt: skip
        if len(seen) > len(stores):
            what = f"was submitted at {len(stores)} stores, and is {len(seen)} jobs"
            yield _shown("H4", f"request {request} {what}", *submissions, *seen.values())
