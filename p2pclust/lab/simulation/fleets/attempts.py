"""What clients of the control address try: each attempt as a conversation, and the choice of the next one.

A conversation yields what it asks, and is sent each answer; a refusal is thrown into it. What it learns is noted at once, so
that an attempt whose last answers are lost is recorded with what is known.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgpack
import numpy as np

from p2pclust.lab.simulation.checks.history import ABSENT, ENDED, RUNNING, Operation, Outcome
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.workspace import digest_of

_VERBS: Final = ("cancel", "result", "status", "assign")
_WEIGHTS: Final = (0.08, 0.37, 0.25, 0.30)


class Refused(Exception):  # noqa: N818 - an answer, not an error of this program
    """The peer refused, and said why."""


@dataclass(frozen=True)
class Question:
    """A question; an attempt that yields None instead waits for one more answer to its last question."""

    verb: str
    fields: Mapping[str, Any]


Talk = Generator[Question | None, dict[str, Any], None]


@dataclass
class Attempt:
    """One operation under way; `operation` is how a history records it. Most fields are those of an `Operation`."""

    client: str
    peer: str
    verb: str
    invoked_at: float
    request: str = ""
    job: str = ""
    roster: tuple[str, ...] = ()
    phases: dict[str, str] = field(default_factory=dict)
    digest: str = ""
    labels: tuple[int, ...] = ()
    # Of a result that was read, for who checks it:
    mathematics: bytes = b""
    state: bytes = b""

    def operation(self, completed_at: float, outcome: Outcome) -> Operation:
        return Operation(
            self.client, self.peer, self.verb, self.invoked_at, completed_at, outcome, self.request, self.job, self.roster,
            dict(self.phases), self.digest, self.labels,
        )  # fmt: skip


@dataclass
class Chooser:
    """Chooses what one client tries next.

    `requests` are the request ids that it may submit, `submits` how often it does; of its wishes to cancel a job it carries
    out the share `cancels`.
    """

    client: str
    peers: Sequence[str]
    requests: list[str]
    rng: np.random.Generator
    submits: float = 0.3
    cancels: float = 1.0
    _unanswered: dict[str, str] = field(default_factory=dict)  # submissions whose end is unknown: request -> peer
    _answered: dict[str, str] = field(default_factory=dict)

    def choose(self, jobs: Sequence[str], now: float) -> Attempt | None:
        """Return the next attempt; None if there is nothing to do. `jobs` are those that any client has heard of."""
        rng = self.rng
        peer = str(rng.choice(self.peers))
        if self._unanswered and rng.random() < 0.6:
            request, before = next(iter(self._unanswered.items()))
            return self._submission(request, before if rng.random() < 0.8 else peer, now)
        if self.requests and rng.random() < self.submits:
            return self._submission(self.requests.pop(0), peer, now)
        if self._answered and rng.random() < 0.08:  # a client that forgot that it was answered
            request, before = list(self._answered.items())[int(rng.integers(len(self._answered)))]
            return self._submission(request, before, now)
        if not jobs:
            return None
        verb = str(rng.choice(_VERBS, p=_WEIGHTS))
        if verb == "cancel" and self.cancels < 1.0 and rng.random() >= self.cancels:
            verb = "result"
        return Attempt(self.client, peer, verb, now, job=str(rng.choice(list(jobs))))

    def _submission(self, request: str, peer: str, now: float) -> Attempt:
        self._unanswered[request] = peer
        return Attempt(self.client, peer, "submit", now, request=request)

    def ended(self, attempt: Attempt, outcome: Outcome) -> None:
        """Note how an attempt ended; a submission that was not accepted is tried again."""
        if attempt.verb == "submit" and outcome == "ok":
            self._answered[attempt.request] = self._unanswered.pop(attempt.request, attempt.peer)


def conversation(attempt: Attempt, submission: Mapping[str, Any], local: Local | None = None) -> Talk:
    """Return the conversation of an attempt; it returns when all is answered.

    `submission` are the fields of a submission, and `local` the rows to label.
    """
    match attempt.verb:
        case "submit":
            told = yield Question("submit", {**submission, "id": attempt.request})
            attempt.job, attempt.roster = told["job"], tuple(told["roster"])
            told = yield None
            assert told["accepted"]
        case "cancel":
            told = yield Question("cancel", {"job": attempt.job})
            if "outcome" not in told:
                told = yield None
            if told["outcome"] in ENDED:
                attempt.phases[attempt.job] = told["outcome"]
        case "status":
            told = yield Question("status", {})
            attempt.phases |= {job["job"]: job["phase"] if job["phase"] in ENDED else RUNNING for job in told["jobs"]}
        case _:
            yield from _result(attempt, local if attempt.verb == "assign" else None)


def _result(attempt: Attempt, local: Local | None) -> Talk:
    try:
        told = yield Question("job", {"job": attempt.job})
    except Refused as refused:
        if "does not know the job" not in str(refused):
            raise
        attempt.phases[attempt.job] = ABSENT
        return
    attempt.roster, attempt.mathematics = tuple(told["roster"]), told["mathematics"]
    attempt.request = f"request-{msgpack.unpackb(attempt.mathematics)['seed']}"  # tests write it into the seed
    if told["finished"]:
        parts: list[bytes] = []
        last = False
        while not last:
            read = yield Question("read", {"job": attempt.job, "part": len(parts)})
            parts.append(read["data"])
            last = read["last"]
        attempt.state = b"".join(parts)
        attempt.digest = digest_of(attempt.state).hex()
        if local is not None and told["phase"] == "done":
            job = Job.from_dict(msgpack.unpackb(attempt.mathematics))
            attempt.labels = tuple(engine.conclude(job, JobState.decode(attempt.state), local)["labels"].tolist())
    attempt.phases[attempt.job] = told["phase"] if told["phase"] in ENDED else RUNNING
