"""The reference: a whole job in one process, through the same engine and the same grid as a fleet.

:func:`pooled` evaluates the same algorithm on the union of the rows in plain floats, independently of the engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering import ClusteringResult, run_steps
from p2pclust.errors import UsageError, WireError
from p2pclust.protocols.engine import engine, summaries
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import Abstain, Additive, ByColumns, Clustering, Labelling, WithWorkspace
from p2pclust.protocols.engine.engine import Group, Peers, added_up
from p2pclust.protocols.engine.fixed_point import MAX_PEERS
from p2pclust.protocols.engine.job import Job, JobState, RoundRecord
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.wire import decode_state
from p2pclust.protocols.engine.workspace import Run, Workspace, digest_of

_POOLED_TOL = 1e-4
_POOLED_ROUNDS = 300
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass
class Workspaces:
    """Notes and blobs of the peers of one job in this process: what disks and links do for protocols with a workspace.

    Peers share one set of blobs, and each has its note. Jobs that a round wants run at the same time, one thread each, and
    so do the peers' contributions: mathematics in NumPy and torch lets other threads run. Each of them computes with one
    thread, so the result does not depend on how many there are.
    """

    threads: int = 1  # how many contributions, or jobs, are computed at once
    notes: dict[int, Arrays] = field(default_factory=dict)  # by roster index
    blobs: dict[bytes, bytes] = field(default_factory=dict)  # published, and still wanted; by digest

    def map(self, function: Callable[[_Item], _Result], items: Sequence[_Item]) -> Iterable[_Result]:
        if self.threads == 1 or len(items) < 2:
            return map(function, items)
        with ThreadPoolExecutor(self.threads) as pool:
            return list(pool.map(function, items))

    def of(self, peer: int) -> Workspace:
        """Return a peer's workspace with its note, and with all blobs."""
        return Workspace(peer, self.notes.get(peer, Arrays()), self.blobs.get)

    def prepare(
        self, job: Job, state: JobState, peers: Sequence[int], n_peers: int, run: Callable[[Run, Workspaces], JobState]
    ) -> dict[int, Workspace]:
        """Return the workspaces of these peers for the coming round, with all that they want; none if it needs none.

        `run` runs a job that is wanted, with workspaces of its own.
        """
        if not isinstance(job.protocols[state.stage], WithWorkspace):
            return {}
        made = {peer: self.of(peer) for peer in peers}
        wanted = {peer: engine.wants(job, state, workspace, n_peers) for peer, workspace in made.items()}
        # The other blobs were for earlier rounds.
        in_use = {fetch.digest for wants in wanted.values() for fetch in wants.fetches}
        self.blobs = {digest: data for digest, data in self.blobs.items() if digest in in_use}
        runs = {one.name: one for wants in wanted.values() for one in wants.runs}
        ended = dict(zip(runs, self.map(lambda one: run(one, self._within(one)), list(runs.values())), strict=True))
        for peer, workspace in made.items():
            workspace.blob = self.blobs.get
            workspace.results = {one.name: ended[one.name] for one in wanted[peer].runs}
        return made

    def _within(self, run: Run) -> Workspaces:
        notes = {index: self.notes[peer] for index, peer in enumerate(run.roster) if peer in self.notes}
        return Workspaces(1, notes, self.blobs)

    def take(self, used: Mapping[int, Workspace]) -> None:
        """Keep what was published and noted in a round."""
        for peer, workspace in used.items():
            self.blobs.update({digest_of(data): data for data in workspace.published})
            if workspace.kept is not None:
                self.notes[peer] = workspace.kept


def run_in_process(
    job: Job, locals: Sequence[Local], on_round: Callable[[JobState], None] | None = None,
    workspaces: Workspaces | None = None, *, entropy: Callable[[int], bytes] | None = None, groups: Sequence[int] = (),
) -> JobState:  # fmt: skip
    """Run a job over these peers in this process; return its last state: "done", or "failed" with a reason.

    Parameters
    ----------
    job : Job
    locals : sequence of Local
        One per roster peer, in roster order.
    on_round : callable, optional
        Called with the state after every round.
    workspaces : Workspaces, optional
        What the peers keep beside the state: their notes, and what they published. It can be read after the job.
    entropy : callable, optional
        Returns as many secret random bytes as it is asked for. A stage that is private by noise needs it.
    groups : sequence of int
        Sets of peers whose totals count as one contribution where single ones are looked at; see :func:`replay`.

    Examples
    --------
    >>> from p2pclust.protocols.engine import summaries
    >>> from p2pclust.protocols.engine.compose import cluster_job
    >>> job = cluster_job("llf-cm", n_clusters=2, init=[[0.0], [9.0]], suppress_singletons=False)
    >>> state = run_in_process(job, [Local([[0.0], [1.0]]), Local([[8.0], [9.0]])])
    >>> summaries.raw_centers(state).tolist()
    [[0.5], [8.5]]
    """
    _checked(locals)
    if any(local.weights is not None for local in locals):
        unable = next((protocol.id for protocol in job.protocols if not protocol.takes_weights()), "")
        if unable:
            raise UsageError(f"{unable} cannot count rows by their weights: leave the weights out")
    with one_thread():
        return _run(job, locals, on_round, Workspaces() if workspaces is None else workspaces, entropy, groups)


def _run(
    job: Job, locals: Sequence[Local], on_round: Callable[[JobState], None] | None, workspaces: Workspaces,
    entropy: Callable[[int], bytes] | None = None, groups: Sequence[int] = (),
) -> JobState:  # fmt: skip
    n_peers, memory = len(locals), engine.Memory()
    state = _begin(job, locals)
    _refuse_unknown(job, state)
    while state.status == "running":
        asked = engine.asked(job, state, n_peers)
        if job.protocols[state.stage].asks == "one":
            asked = asked[:1]
        prepared = workspaces.prepare(
            job, state, asked, n_peers,
            lambda run, own: _run(run.job, [locals[peer] for peer in run.roster], None, own),
        )  # fmt: skip

        def answer(
            peer: int, state: JobState = state, prepared: Mapping[int, Workspace] = prepared
        ) -> Contribution | Abstain:  # fmt: skip
            try:
                return engine.contribution(job, state, locals[peer], peer, n_peers, prepared.get(peer), entropy=entropy)
            except Abstain as abstention:
                return abstention

        answers = dict(zip(asked, workspaces.map(answer, asked) if prepared else map(answer, asked), strict=True))
        workspaces.take(prepared)
        given = [(peer, answer) for peer, answer in answers.items() if not isinstance(answer, Abstain)]
        abstained = {peer: answer.reason for peer, answer in answers.items() if isinstance(answer, Abstain)}
        summed = by_groups(job, state, given, groups)
        state = engine.advance(job, state, summed, abstained, n_peers=n_peers, memory=memory)
        _refuse_unknown(job, state)
        if on_round is not None:
            on_round(state)
    return state


def _begin(job: Job, locals: Sequence[Local]) -> JobState:
    """Return the first state; stages for secure sums are given the columns, which a fleet agrees on with its keys."""
    state = engine.begin(job)
    rows = [job.rows(local) for local in locals if local.X.size]
    protocol = job.protocols[state.stage]
    usable = [local for local in rows if not local.problem_if(keeps_gaps=protocol.keeps_gaps)]
    columns = Counter(local.n_features for local in usable).most_common(1)
    return replace(state, arrays=protocol.knowing_columns(state.arrays, columns[0][0] if columns else 1))


def _refuse_unknown(job: Job, state: JobState) -> None:
    """Refuse a state that peers would not accept from each other; only the protocol of a plug-in can make one."""
    if any(stage.package for stage in job.stages):
        try:
            decode_state(job, state.encode())
        except WireError as error:
            raise UsageError(f"{job.protocols[state.stage].id}: peers would refuse this state: {error}") from None


def conclude(job: Job, state: JobState, locals: Sequence[Local]) -> list[Arrays]:
    """Return what each of these peers keeps of a finished job; see :func:`p2pclust.protocols.engine.engine.conclude`."""
    with one_thread():
        return [engine.conclude(job, state, local) for local in locals]


#: Rows that changed while a job ran: from that round on, the peer of that number had those.
Later = Sequence[tuple[int, int, Local]]


def replay(
    job: Job, locals: Sequence[Local], log: Sequence[RoundRecord], later: Later = (), groups: Sequence[int] = ()
) -> JobState:  # fmt: skip
    """Run a job again with exactly the recorded proposers and contributors of every round.

    Parameters
    ----------
    job : Job
    locals : sequence of Local
        Every peer's rows.
    log : sequence of RoundRecord
    later : sequence of (int, int, Local)
        Rows that took the place of others: from which round on, whose, and which; in the order of rounds.
    groups : sequence of int
        As the state of a job with secure sums has them: the sets of peers whose totals were revealed one by one.

    Raises
    ------
    UsageError
        If the log is not one of this job over these peers.
    """
    *_, state = replayed(job, locals, log, later, groups)
    return state


def pooled(
    job: Job, locals: Sequence[Local], log: Sequence[RoundRecord], later: Later = (), groups: Sequence[int] = ()
) -> NDArray[np.float64]:  # fmt: skip
    """Evaluate the pooled algorithm over the recorded contributors, from the same first centers.

    For each recorded clustering round, one step of the pooled algorithm over the rows of that round's contributors:
    plain floats and no grid, with the job's origin and scale. It is used to evaluate only, for it needs all rows in
    one place.

    Returns
    -------
    ndarray of shape (C, F)
        Centers in the data's own units.

    Raises
    ------
    UsageError
        If the protocol promises no such equality; see :func:`pooled_run`.
    """
    stage, protocol = clustering_stage(job)
    if not protocol.lossless:
        raise UsageError(f"{protocol.id} does not go round by round as pooled {protocol.pooled_name}: measure its gap")
    first, steps = _kept_start(job, locals, log, stage, later, groups)
    records = [(number, record) for number, record in enumerate(log) if record.stage == stage and record.contributors]
    if isinstance(protocol, ByColumns):
        records = records[1:]  # the first round measures the distances to the first centers, and moves none
    records = records[:steps]
    # In the job's coordinates, or centers far from the origin would be rounded after every round.
    begins, contributors = (records[0][0], records[0][1].contributors) if records else (0, tuple(range(len(locals))))
    with one_thread(), job.stages[stage].calling("pooled_step"):
        rows = [job.rows(rows_at(locals, later, begins)[peer]) for peer in contributors]
        pool = protocol.pool(first, rows)
        centers = np.array(pool.centers)
        for number, record in records:
            now = [job.rows(rows_at(locals, later, number)[peer]) for peer in record.contributors]
            if len(now) != len(rows) or any(one is not other for one, other in zip(now, rows, strict=True)):
                rows = now
                pool = protocol.pool(first, rows)
            # One step, and not a whole run: of a round's contributors there may be fewer rows than clusters.
            centers = protocol.pooled_round(pool, centers)
    return pool.raw(centers)


def pooled_run(
    job: Job, locals: Sequence[Local], log: Sequence[RoundRecord], later: Later = (), groups: Sequence[int] = ()
) -> ClusteringResult:  # fmt: skip
    """Run the pooled algorithm from the job's first centers until it stops by itself.

    With this a protocol that is not lossless is compared: on the rows of every peer that contributed to the
    clustering, as they last were, and until the centers move by less than the protocol's ``tol`` (1e-4 where it
    has none, or has 0), at most 300 rounds. The first centers of a protocol that makes its own are those after its
    first round.

    Returns
    -------
    ClusteringResult
        Centers in the data's own units; shifts in working coordinates.
    """
    stage, protocol = clustering_stage(job)
    first, _ = _kept_start(job, locals, log, stage, later, groups)
    # Each peer's rows as they were when it contributed last: what became of them later counts for nothing.
    last = {peer: number for number, record in enumerate(log) if record.stage == stage for peer in record.contributors}
    contributors = sorted(last)
    if not contributors:
        raise UsageError("no peer contributed to the clustering: there is nothing to compare with")
    tol = getattr(protocol, "tol", 0.0) or _POOLED_TOL
    with one_thread(), job.stages[stage].calling("pooled_step"):
        rows = [job.rows(rows_at(locals, later, last[peer])[peer]) for peer in contributors]
        pool = protocol.pool(first, rows)
        found = run_steps(protocol.pooled_step, pool.points, pool.centers, tol=tol, max_rounds=_POOLED_ROUNDS)
    return replace(found, centers=pool.raw(found.centers))


def labelling_stage(job: Job) -> tuple[int, Labelling]:
    """Return the stage that a person asked for: its number and its protocol; raise UsageError if there is none."""
    for number, protocol in enumerate(job.protocols):
        if isinstance(protocol, Labelling):
            return number, protocol
    raise UsageError("the job has no clustering stage to compare with")


def clustering_stage(job: Job) -> tuple[int, Clustering]:
    """Return the same, where it ends with centers; raise UsageError where it has none."""
    number, protocol = labelling_stage(job)
    if not isinstance(protocol, Clustering):
        raise UsageError(f"{protocol.id} has no centers: there is nothing to compare them with")
    return number, protocol


def rows_at(locals: Sequence[Local], later: Later, number: int) -> list[Local]:
    now = list(locals)
    for begins, peer, rows in later:
        if begins <= number:
            now[peer] = rows
    return now


def _kept_start(
    job: Job, locals: Sequence[Local], log: Sequence[RoundRecord], stage: int, later: Later = (),
    groups: Sequence[int] = (),
) -> tuple[State, int]:  # fmt: skip
    """Return the first arrays of the clustering stage that have centers, and how many steps these went.

    Of several starts, the centers are those of the start that was kept in the end.
    """
    if any(local.weights is not None for local in locals):
        raise UsageError(
            "weights: the pooled algorithm counts every row once: compare without them, or with repeated rows"
        )
    states, reason = replayed(job, locals, log, later, groups), "its log ends before"
    for state in states:
        # A protocol that makes its own centers begins with drawn ones, until peers have proposed some. Peers that hold
        # columns have theirs from the beginning.
        there = job.by_columns or ("centers" in state.arrays and state.arrays.get("proposed", np.True_).all())
        if state.stage == stage and there:
            first = last = state.arrays
            break
        reason = state.reason or reason
    else:
        raise UsageError(f"the job did not reach its clustering stage: {reason}")
    if "starts" not in first:
        return first, len(log)
    for state in states:
        last = state.arrays
    if "winner" not in last:
        return first, len(log)
    return first.replace(centers=first["starts"][int(last["winner"])]), last["shifts"].size


def replayed(
    job: Job, locals: Sequence[Local], log: Sequence[RoundRecord], later: Later = (), groups: Sequence[int] = ()
) -> Iterator[JobState]:  # fmt: skip
    """Yield the state before the first recorded round and after each; see :func:`replay`."""
    n_peers = _checked(locals)
    with one_thread():
        state = _begin(job, locals)
        memory = engine.Memory()
        yield state
        for number, record in enumerate(log):
            if state.status != "running" or record.stage != state.stage:
                raise UsageError(f"round {number} of the log: the job is {state.status} in stage {state.stage}")
            if any(peer >= n_peers for peer in (*record.contributors, *record.abstained)):
                raise UsageError(f"round {number} of the log names a peer beyond the {n_peers} given")
            rows = rows_at(locals, later, number)
            given: list[tuple[int, Contribution]] = []
            for peer in record.contributors:
                try:
                    given.append((peer, engine.contribution(job, state, rows[peer], peer, n_peers)))
                except Abstain as answer:
                    why = f"peer {peer} contributed, but now it abstains: {answer.reason}"
                    raise UsageError(f"round {number} of the log: {why}") from None
            if record.forgot:
                memory.value = None
            summed = by_groups(job, state, given, groups)
            state = engine.advance(job, state, summed, record.abstained, n_peers=n_peers, memory=memory)
            yield state


def by_groups(
    job: Job, state: JobState, given: Sequence[tuple[int, Contribution]], groups: Sequence[int]
) -> list[tuple[Peers, Contribution]]:  # fmt: skip
    """Return the totals of groups in a stage that looks at single contributions; else, or without groups, what was given."""
    protocol = job.protocols[state.stage]
    if not groups or not isinstance(protocol, Additive) or not protocol.one_by_one:
        return list(given)
    found: list[tuple[Peers, Contribution]] = []
    for own in groups:
        total, members = added_up([(peer, part) for peer, part in given if own >> peer & 1], own.bit_length())
        if total is not None:
            found.append((Group(members), total))
    return found


def _checked(locals: Sequence[Local]) -> int:
    if not 1 <= len(locals) <= MAX_PEERS:
        raise UsageError(f"{len(locals)} peers: expected 1 to {MAX_PEERS}")
    return len(locals)


def one_thread() -> AbstractContextManager[object]:
    """Hold BLAS at one thread: with more, the bits of a matrix product depend on the machine's cores."""
    # Imported here: a running peer sets its worker's threads itself and never calls this.
    from threadpoolctl import threadpool_limits  # noqa: PLC0415

    limits: AbstractContextManager[object] = threadpool_limits(limits=1)
    return limits


_STEPS: Final = 64
_NUMBERS: Final = 2_000_000  # the most numbers that a trail holds, 16 MB


@dataclass(eq=False)
class Trail:
    """The centers of a job over its rounds.

    >>> from p2pclust.protocols.engine.compose import cluster_job
    >>> from p2pclust.protocols.engine.local import Local
    >>> found = Trail()
    >>> job = cluster_job("llf-cm", n_clusters=2, init=[[0.0], [9.0]], suppress_singletons=False)
    >>> state = run_in_process(job, [Local([[0.0], [1.0]]), Local([[8.0], [9.0]])], found.follow)
    >>> [(number, centers.tolist()) for number, centers in found.steps][:2]
    [(1, [[0.0], [9.0]]), (2, [[0.5], [8.5]])]
    """

    #: The centers at the start of at most 64 rounds, in the data's units, among them the first and nearly the last one.
    steps: list[tuple[int, NDArray[np.float64]]] = field(default_factory=list)
    _every: int = field(default=1, init=False)

    def follow(self, state: JobState) -> None:
        """Take the state after a round."""
        arrays = state.arrays
        if "centers" not in arrays or not arrays.get("proposed", np.True_).all():
            return
        if "starts" in arrays:  # several, of which the last round keeps one
            return
        if state.round % self._every == 0 and arrays["centers"].size * (len(self.steps) + 1) <= _NUMBERS:
            self.steps.append((state.round, summaries.raw_centers(state)))
        if len(self.steps) > _STEPS:
            # Keep every second one, and from now on add as few.
            self._every *= 2
            self.steps = [step for step in self.steps if step[0] % self._every == 0]
