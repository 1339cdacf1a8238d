"""One soak: peers, faults, clients and meters for a set time, and what came of it."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TextIO

import numpy as np
from tests.soak.clients import Client, Seen, carry_out, chooser, has_ended, submission, think_s
from tests.soak.faults import Faults, Mix
from tests.soak.meters import Meters, Sample, size_mb
from tests.soak.peers import Peers, network_for
from tests.soak.processor import Processor, observed

from p2pclust.errors import P2PClustError
from p2pclust.hosts.client import Connection
from p2pclust.lab.simulation.checks.history import ENDED
from p2pclust.lab.simulation.fleets.attempts import Attempt
from p2pclust.protocols.engine.local import Local

_STEP_S: Final = 0.02
_SAMPLE_S: Final = 5.0
_START_S: Final = 120.0
_UNDER_FAULTS_S: Final = 60.0  # how long a job may take while faults continue; then they end until it has ended
_CALM_S: Final = 180.0  # how long it may take without faults
_PATIENCE_S: Final = 30.0  # for one answer of a peer that runs


@dataclass(frozen=True)
class Options:
    """What a soak does."""

    seed: int
    seconds: float
    mix: Mix = field(default_factory=Mix)
    kills: int = 0  # end after so many; 0: only after the time
    n_peers: int = 5
    n_clients: int = 2
    isolated: bool = False
    cancels: float = 0.2  # how often clients cancel jobs
    rounds: tuple[int, int] = (40, 200)  # of the jobs that follow each other
    nice: int = 0
    say_every_s: float = 10.0


@dataclass(frozen=True)
class JobLine:
    """What came of one of the jobs that follow each other."""

    seed: int
    request: str
    job: str
    outcome: str
    kills: int  # while it ran
    violation: str


@dataclass
class Report:
    """What came of a soak."""

    options: Options
    jobs: list[JobLine] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    meters: Meters = field(default_factory=Meters)
    processor: Processor = field(default_factory=Processor)
    other_jobs: int = 0  # that clients submitted
    operations: int = 0
    seconds: float = 0.0


def all_ended(jobs: Mapping[str, Sequence[Mapping[str, Any]]], most_kept: int = 500) -> bool:
    """Return whether each peer has ended all jobs whose roster it is on, from the jobs that each peer lists.

    A peer deletes the oldest of more than `most_kept` ended jobs, so it may lack some that others have.
    """
    rosters = {job["job"]: job["roster"] for listed in jobs.values() for job in listed}
    phases = {name: {job["job"]: job["phase"] for job in listed} for name, listed in jobs.items()}
    full = [name for name, of in phases.items() if sum(phase in ENDED for phase in of.values()) >= most_kept]
    return all(
        phases[name].get(job, "deleted" if name in full else "never seen") in (*ENDED, "deleted")
        for job, roster in rosters.items()
        for name in roster
    )


class Soak:
    """One run. Faults and processes are the main thread's; jobs and clients have threads of their own."""

    def __init__(self, options: Options, home: Path, on_job: Any = lambda line: None) -> None:
        self.options, self.home, self._on_job = options, home, on_job
        rng = np.random.default_rng([options.seed, 1])
        middles = rng.uniform(0, 100, (3, 3))
        self.rows = {
            f"p{number}": Local(middles[rng.integers(0, 3, 40)] + rng.normal(0, 8, (40, 3)))
            for number in range(options.n_peers)
        }
        self.report = Report(options)
        self._began = time.monotonic()
        self._over = threading.Event()  # no further job begins
        self._wants_calm = threading.Event()  # a job takes long
        self._flaw: BaseException | None = None
        self._log: TextIO
        self.seen: Seen
        self.faults: Faults

    def go(self) -> Report:
        """Run it; whatever happens, no process is left behind."""
        options = self.options
        log = (self.home / "soak.log").open("a", encoding="utf-8")
        with (
            log as self._log,
            network_for(list(self.rows), isolated=options.isolated) as network,
            observed(self.report.processor, options.nice),
        ):
            peers = Peers(self.home, self.rows, network, options.nice)
            try:
                rng = np.random.default_rng([options.seed, 2])
                self.faults = Faults(peers, options.mix, rng, self._say, partial(self._aggregator, peers))
                self.seen = Seen(self.rows, peers.state_dir)
                self._live(peers)
            finally:
                peers.kill_all()
        self.report.counts = dict(self.faults.counts)
        self.report.seconds = time.monotonic() - self._began
        return self.report

    def _live(self, peers: Peers) -> None:
        options = self.options
        for name in peers.names:
            peers.start(name)
        self._wait("all peers see each other", lambda: all(self._sees_all(name) for name in peers.names), _START_S)
        n_requests = max(2, int(options.seconds / 15))
        think = think_s(options.seconds, options.n_clients)
        clients = [
            Client(self.seen, chooser(n, peers.names, options.seed, n_requests, options.cancels), think)
            for n in range(options.n_clients)
        ]
        jobs = threading.Thread(target=self._run_jobs, args=(peers,), daemon=True)
        for thread in (jobs, *clients):
            thread.start()
        try:
            self._let_faults_happen(peers, jobs)
        except KeyboardInterrupt:
            sys.stderr.write("ending: the last job and the last reads\n")
        self._over.set()
        self.faults.end_all()
        for client in clients:
            client.end()
        jobs.join(_CALM_S + _UNDER_FAULTS_S)
        if self._flaw is not None:
            raise self._flaw
        self._judge(peers)

    def _let_faults_happen(self, peers: Peers, jobs: threading.Thread) -> None:
        options, faults = self.options, self.faults
        until, sample_at, say_at = time.monotonic() + options.seconds, 0.0, time.monotonic() + options.say_every_s
        while time.monotonic() < until and jobs.is_alive() and not peers.bugs():
            now = time.monotonic()
            faults.calm = self._wants_calm.is_set()
            faults.step(now)
            if options.kills and faults.counts["kill"] >= options.kills:
                break
            if now >= sample_at:
                self._sample(peers)
                sample_at = time.monotonic() + _SAMPLE_S
            if now >= say_at:
                sys.stderr.write(progress(self.report, dict(faults.counts), now - self._began) + "\n")
                say_at = now + options.say_every_s
            self._over.wait(_STEP_S)
        self.report.violations += peers.bugs()

    # -- jobs one after another --------------------------------------------------------------------------------------------

    def _run_jobs(self, peers: Peers) -> None:
        rng = np.random.default_rng([self.options.seed, 3])
        try:
            for number in range(10**6):
                if self._over.is_set():
                    return
                self._run_job(peers, f"request-{number}", int(rng.integers(*self.options.rounds)), rng)
        except AssertionError as broken:
            self.report.violations.append(str(broken))
        except BaseException as error:  # noqa: BLE001 - raised by the main thread
            self._flaw = error

    def _run_job(self, peers: Peers, request: str, rounds: int, rng: np.random.Generator) -> None:
        kills = self.faults.counts["kill"]
        secure = int(request.removeprefix("request-")) % 3 == 0
        fields = submission(request, rounds // 4 if secure else rounds)
        began, job = time.monotonic(), ""
        peer = str(rng.choice(peers.names))
        outcome = "unknown"
        while outcome not in ("done", "cancelled", "failed"):
            self._keep_calm(began)
            if not job:
                operation = self._ask(Attempt("jobs", peer, "submit", time.monotonic(), request=request), fields)
                job = operation.job if operation.outcome == "ok" else ""
            else:
                asked = str(rng.choice(peers.names))
                operation = self._ask(Attempt("jobs", asked, "result", time.monotonic(), job=job), {})
                outcome = operation.phase_of(job) if has_ended(operation, job) else outcome
            time.sleep(0.1)
        self._wants_calm.clear()
        self._close(request, job, outcome, operation.digest, self.faults.counts["kill"] - kills)

    def _keep_calm(self, began: float) -> None:
        """Let faults end where a job takes long; a job that does not end even then breaks a promise."""
        took_s = time.monotonic() - began
        if took_s > _UNDER_FAULTS_S:
            self._wants_calm.set()
        if took_s > _UNDER_FAULTS_S + _CALM_S:
            share = self.report.processor.share(since=began)
            had = (
                ""
                if share is None
                else f"; meanwhile the soak had {100 * share:.0f} % of the processor time it asked for"
            )
            raise AssertionError(f"H1: a job has not ended {_CALM_S:.0f} s after all faults{had}")

    def _close(self, request: str, job: str, outcome: str, digest: str, kills: int) -> None:
        flaw = self.seen.results[digest].flaw(self.rows)
        if flaw:
            self.report.violations.append(f"S5: {flaw}")
        line = JobLine(self.options.seed, request, job, outcome, kills, flaw)
        self.report.jobs.append(line)
        self._on_job(line)
        self._say(json.dumps(asdict(line)))

    def _ask(self, attempt: Attempt, fields: Any, within_s: float = 10.0) -> Any:
        return carry_out(self.seen, attempt, fields, within_s)

    # -- the end -----------------------------------------------------------------------------------------------------------

    def _judge(self, peers: Peers) -> None:
        """Ask each peer for each job once more, and check all that clients saw."""
        self._wait("all jobs end at all peers", lambda: self._all_ended(peers), _CALM_S)
        self.seen.history.settled_at = time.monotonic()
        for job in self.seen.jobs():
            for name in peers.names:
                for verb in ("result", "assign"):
                    self._ask(Attempt("last", name, verb, time.monotonic(), job=job), {}, _PATIENCE_S)
        flaws = [f"S5: {flaw}" for result in self.seen.results.values() if (flaw := result.flaw(self.rows))]
        known = dict.fromkeys(self.report.violations)
        self.report.violations += [flaw for flaw in flaws if flaw not in known]
        self.report.violations += self.seen.violations() + [bug for bug in peers.bugs() if bug not in known]
        self.report.operations = len(self.seen.history.operations)
        self.report.other_jobs = len(self.seen.jobs()) - len(self.report.jobs)

    def _all_ended(self, peers: Peers) -> bool:
        """Return whether all peers answer, and each has ended all jobs whose roster it is on."""
        told = {name: self._status(name) for name in peers.names}
        return all(told.values()) and all_ended({name: status["jobs"] for name, status in told.items()})

    def _aggregator(self, peers: Peers) -> str:
        """Return the aggregator of a job that runs, as the first peer that answers sees it; empty if it sees none."""
        for name in peers.names:
            if peers.runs(name) and not peers.stopped(name) and (told := self._status(name)):
                running = [job["aggregator"] for job in told["jobs"] if job["phase"] not in ENDED]
                return str(next(filter(None, running), ""))
        return ""

    def _sees_all(self, name: str) -> bool:
        members = self._status(name).get("members", [])
        return bool(members) and all(member["status"] == "alive" for member in members)

    def _wait(self, what: str, holds: Any, within_s: float) -> None:
        until = time.monotonic() + within_s
        while not holds():
            if time.monotonic() > until:
                self.report.violations.append(f"not within {within_s:.0f} s: {what}")
                return
            time.sleep(0.2)

    # -- meters ------------------------------------------------------------------------------------------------------------

    def _status(self, name: str) -> dict[str, Any]:
        """Return what a peer says of itself; nothing if it does not answer."""
        with Connection(self.home / name / "state") as connection:
            try:
                return connection.ask("status", within_s=2.0)
            except P2PClustError:
                return {}

    def _sample(self, peers: Peers) -> None:
        for name in peers.names:
            if not peers.runs(name) or peers.stopped(name):
                continue
            told = self._status(name)
            if told:
                self.report.meters.add(
                    name,
                    Sample(
                        time.monotonic() - self._began, peers.lives[name], told["uptime_s"], told["rss_mb"],
                        told["descriptors"], told["tasks"], size_mb(peers.state_dir(name)),
                    ),
                )  # fmt: skip

    def _say(self, what: str) -> None:
        self._log.write(f"{time.monotonic() - self._began:9.3f} {what}\n")
        self._log.flush()


def progress(report: Report, counts: dict[str, int], seconds: float) -> str:
    """Return one line on how a soak goes, with the figures of the first peer.

    Examples
    --------
    >>> report = Report(Options(1, 60.0))
    >>> report.meters.add("p0", Sample(20.0, 1, 19.0, 64.4, 30, 2, 0.31))
    >>> progress(report, {"kill": 2, "cut": 1}, 30.0)
    '30 s: 0 jobs, 2 kills, 0 pauses, 1 cuts, 0 violations; p0: 64 MB, 30 descriptors, 2 tasks, 0.3 MB stored'
    """
    cuts = counts.get("cut", 0) + counts.get("one-way cut", 0)
    faults = f"{counts.get('kill', 0)} kills, {counts.get('pause', 0)} pauses, {cuts} cuts"
    line = f"{seconds:.0f} s: {len(report.jobs)} jobs, {faults}, {len(report.violations)} violations"
    first = min(report.meters.samples, default="")
    last, drift = report.meters.last(first), report.meters.drift_mb_per_hour(first)
    if last is None:
        return line
    slope = "" if drift is None else f" ({drift:+.1f} per hour)"
    figures = f"{last.rss_mb:.0f} MB{slope}, {last.descriptors} descriptors, {last.tasks} tasks"
    return f"{line}; {first}: {figures}, {last.store_mb:.1f} MB stored"


@contextmanager
def kept_lines(path: Path | None) -> Iterator[Any]:
    """Yield a function that keeps a job's line in a file, if there is one."""
    if path is None:
        yield lambda line: None
        return
    with path.open("a", encoding="utf-8") as file:

        def keep(line: JobLine) -> None:
            file.write(json.dumps(asdict(line)) + "\n")
            file.flush()

        yield keep
