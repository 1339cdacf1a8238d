"""Clients of real peers: the attempts of the simulated ones, through the connections that commands use."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any, Final

import msgpack
import numpy as np

from p2pclust.errors import P2PClustError
from p2pclust.hosts.client import Connection
from p2pclust.lab.simulation.checks.history import ENDED, History, Operation, Outcome, violations
from p2pclust.lab.simulation.fleets.attempts import Attempt, Chooser, Refused, Talk, conversation
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.reasons import CANCELLED
from p2pclust.protocols.engine.runner import replay
from p2pclust.protocols.engine.summaries import raw_centers

_WAIT_S: Final = 10.0
_HASTE_S: Final = (0.0, 0.03)  # of a client that goes before it has its answer
_HASTY: Final = 0.12
_THINK_S: Final = (0.05, 0.6)
_MOST_OPERATIONS: Final = 20_000  # of all clients; in a long soak each asks more rarely
#: What a connection says before anything was asked: then the question had no effect.
_BEFORE: Final = ("no peer listens", "cannot be reached", "does not answer:")
_GONE: Final = ("the peer at", "the connection to")


@dataclass
class Result:
    """The result of a job, as bytes, with what a replay needs."""

    job: str
    roster: tuple[str, ...]
    mathematics: bytes
    state: bytes

    def flaw(self, rows: Mapping[str, Local]) -> str:
        """Return why this cannot be the job's result, or an empty string: the bits are those of a replay."""
        state, job = JobState.decode(self.state), Job.from_dict(msgpack.unpackb(self.mathematics))
        if state.status == "failed" and not state.reason.startswith(CANCELLED):
            return f"{self.job} failed: {state.reason}"
        if state.status == "failed" and not state.log:
            return ""  # cancelled before its first round: with secure sums not even the columns were known yet
        again = replay(job, [rows[name] for name in self.roster], state.log)
        if state.status == "failed":  # a cancelled job has the rounds so far
            again = replace(again, status=state.status, reason=state.reason)
        same = again.encode() == state.plain().encode()
        return "" if same else f"{self.job}: the bits are not those of the in-process replay of its record"


@dataclass
class Seen:
    """What all clients saw, shared by their threads."""

    rows: Mapping[str, Local]
    state_dir: Callable[[str], Path]
    history: History = field(default_factory=History)
    results: dict[str, Result] = field(default_factory=dict)  # by digest
    lock: threading.Lock = field(default_factory=threading.Lock)
    _known: dict[str, None] = field(default_factory=dict)  # jobs

    def note(self, attempt: Attempt, outcome: Outcome) -> Operation:
        """Record how an attempt ended."""
        operation = attempt.operation(inf if outcome == "unknown" else time.monotonic(), outcome)
        with self.lock:
            self.history.operations.append(operation)
            self._known |= dict.fromkeys([*filter(None, [operation.job]), *operation.phases])
            if attempt.state and attempt.digest not in self.results:
                self.results[attempt.digest] = Result(
                    attempt.job, attempt.roster, attempt.mathematics, attempt.state
                )  # fmt: skip
        return operation

    def jobs(self) -> list[str]:
        """Return all jobs that any client heard of."""
        with self.lock:
            return list(self._known)

    def violations(self) -> list[str]:
        """Return each promise that is broken."""
        with self.lock:
            return violations(self.history, self._labels)

    def _labels(self, digest: str, name: str) -> tuple[int, ...]:
        """Return the nearest center of each row."""
        state = JobState.decode(self.results[digest].state)
        if state.status != "done":
            return ()
        apart = self.rows[name].X[:, None, :] - raw_centers(state)[None, :, :]
        return tuple(int(label) for label in (apart**2).sum(axis=2).argmin(axis=1))


def a_job(protocol: str, seed: int, max_rounds: int, *, secure: bool = False) -> Job:
    """Return a job of exactly so many rounds, unless it is cancelled."""
    off: dict[str, Any] = {{"llf-fcm": "privacy_gate", "llf-cm": "suppress_singletons"}[protocol]: False}
    return cluster_job(
        protocol, n_clusters=3, init="uniform", tol=0.0, max_rounds=max_rounds, seed=seed, secure=secure, **off
    )


def submission(request: str, max_rounds: int = 8) -> dict[str, Any]:
    """Return the fields of a client's submission; every third job has secure sums."""
    seed = int(request.removeprefix("request-"))
    secure = seed % 3 == 0
    job = a_job(("llf-cm", "llf-fcm")[seed % 2], seed, max_rounds, secure=secure)
    treatment = Treatment("wait", secure=secure)
    return {"mathematics": msgpack.packb(job.to_dict()), "roster": [], **treatment.to_dict()}


def carry_out(seen: Seen, attempt: Attempt, fields: Mapping[str, Any], within_s: float = _WAIT_S) -> Operation:
    """Ask a peer, and record what came of it. With little time, the answer is lost."""
    talk = conversation(attempt, fields, seen.rows[attempt.peer])
    until = time.monotonic() + within_s
    with Connection(seen.state_dir(attempt.peer)) as connection:
        try:
            return seen.note(attempt, _converse(connection, talk, until))
        except Refused:
            return seen.note(attempt, "failed")


def _converse(connection: Connection, talk: Talk, until: float) -> Outcome:
    """Ask what the conversation asks, until it is over or an answer does not come."""
    answers: Iterator[dict[str, Any]] = iter(())
    try:
        asked = next(talk)
        while True:
            if asked is not None:
                answers = connection.follow(asked.verb, in_all_s=until - time.monotonic(), **asked.fields)
            try:
                answer = next(answers, None)
            except P2PClustError as error:
                reason = str(error)
                if reason.startswith(_GONE):
                    return "unknown"
                if any(before in reason for before in _BEFORE):
                    return "failed"
                asked = talk.throw(Refused(reason))
                continue
            if answer is None:
                return "unknown"
            asked = talk.send(answer)
    except StopIteration:
        return "ok"


class Client(threading.Thread):
    """One client: asks one thing after another until it is ended."""

    def __init__(self, seen: Seen, chooser: Chooser, think_s: tuple[float, float] = _THINK_S) -> None:
        super().__init__(name=chooser.client, daemon=True)
        self._think_s = think_s
        self._seen, self._chooser = seen, chooser
        self._ends = threading.Event()
        self.flaw: BaseException | None = None

    def run(self) -> None:
        try:
            self._ask_on()
        except BaseException as error:  # noqa: BLE001 - raised by `end`
            self.flaw = error

    def _ask_on(self) -> None:
        rng = self._chooser.rng
        while not self._ends.wait(float(rng.uniform(*self._think_s))):
            attempt = self._chooser.choose(self._seen.jobs(), time.monotonic())
            if attempt is None:
                continue
            fields = submission(attempt.request) if attempt.verb == "submit" else {}
            hasty = attempt.verb in ("submit", "cancel") and rng.random() < _HASTY
            operation = carry_out(self._seen, attempt, fields, float(rng.uniform(*_HASTE_S)) if hasty else _WAIT_S)
            self._chooser.ended(attempt, operation.outcome)

    def end(self) -> None:
        """Let it finish what it asks now; raise what went wrong in it."""
        self._ends.set()
        self.join(2 * _WAIT_S)
        if self.flaw is not None:
            raise self.flaw


def think_s(seconds: float, n_clients: int) -> tuple[float, float]:
    """Return how long a client of a soak thinks between two questions.

    Examples
    --------
    >>> think_s(600.0, 2), think_s(36_000.0, 2)
    ((0.05, 0.6), (0.05, 7.2))
    """
    return _THINK_S[0], max(_THINK_S[1], 2 * seconds * n_clients / _MOST_OPERATIONS)


def chooser(number: int, peers: Sequence[str], seed: int, n_requests: int, cancels: float) -> Chooser:
    """Return what decides for one client."""
    requests = [f"request-{1_000_000 * (number + 1) + k}" for k in range(n_requests)]
    return Chooser(f"c{number}", peers, requests, np.random.default_rng([seed, 7, number]), 0.06, cancels)


def has_ended(operation: Operation, job: str) -> bool:
    """Return whether an answer shows that a job has ended."""
    return operation.phase_of(job) in ENDED
