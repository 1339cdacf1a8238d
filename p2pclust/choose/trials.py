"""A fleet chooses the number of clusters: by one job for each number and restart, whose results the peers measure.

First centers are drawn by chance, and a bad draw would be taken for a bad number of clusters: hence the restarts. Each job
reveals more sums over the same rows. The gates of the protocols look at one round, not at what the rounds of some dozens of
jobs reveal together.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from numpy.typing import ArrayLike

from p2pclust.clustering.points import Floats
from p2pclust.errors import DataError, FleetError, UsageError
from p2pclust.jobs.request import JobRequest, JobResult
from p2pclust.jobs.secured import decided
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine import checks, summaries
from p2pclust.protocols.engine.compose import cluster_job, clustering_class, inits_of
from p2pclust.protocols.engine.exclusions import refuse
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.random_streams import MAX_SEED, fresh_seed
from p2pclust.protocols.engine.runner import clustering_stage, run_in_process
from p2pclust.protocols.measuring.choose import recommend
from p2pclust.protocols.measuring.measure import MeasuredIndices, measured
from p2pclust.protocols.secure.classes import exposed
from p2pclust.tools.bit_sets import members_of
from p2pclust.tools.distribution import laboratory

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_NEXT_SEED = 2**32  # far apart, so that neighbouring seeds of a person have no restart in common
# One peer's picks miss the clusters that it has no rows of, and k-means does not get over it; docs/protocols/stages.md has
# how often each way to first centers is right.
_INIT = "split-merge"
_PROTOCOL = "llf-fcm"
_CLUSTERS = range(2, 11)


@dataclass(frozen=True, eq=False)
class ChoiceOfClusters:
    """The measures for each number of clusters, and the recommended number.

    Attributes
    ----------
    recommended : int
    reason : str
        In sentences; it says so where the measures disagree.
    votes : mapping of str to int or None
        The number at which each measure is best; None if it does not decide.
    agreed : bool
        Whether more than half of the measures are best at the recommended number.
    table : tuple of MeasuredIndices
        One for each number of clusters, ascending, from its best restart.
    centers : mapping of int to ndarray of shape (C, F)
        Of these restarts, in the data's own units.
    seeds : mapping of int to int
        Of these restarts: a job with this seed and number of clusters gives these centers again.
    notes : tuple of str
        The peers whose rows were not measured, and why.
    """

    recommended: int
    reason: str
    votes: Mapping[str, int | None]
    agreed: bool
    table: tuple[MeasuredIndices, ...] = field(repr=False)
    centers: Mapping[int, Floats] = field(repr=False)
    seeds: Mapping[int, int] = field(repr=False)
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; infinite measures are infinite floats."""
        rows = [
            asdict(row) | {"seed": self.seeds[row.clusters], "centers": self.centers[row.clusters].tolist()}
            for row in self.table
        ]
        own = {name: getattr(self, name) for name in ("recommended", "reason", "agreed")}
        return own | {"votes": dict(self.votes), "notes": list(self.notes), "table": rows}

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draw each measure over the number of clusters, with its own best and the recommended number marked.

        It is saved at `path`, if given; the ending says as what (png, pdf, svg, ...). Raises UsageError if matplotlib is
        not installed, or the file cannot be written.
        """
        return cast("Figure", laboratory("pictures.estimators", "the plot of a choice").choice_figure(self, path))


def choose_clusters(
    X: Sequence[ArrayLike], protocol: str | Iterable[int] = _PROTOCOL, clusters: Iterable[int] | str | None = None, *,
    restarts: int = 3, random_state: int | None = None, fleet: Any = None, measure_gate: bool | None = None,
    **options: Any,
) -> ChoiceOfClusters:  # fmt: skip
    """Cluster with each number of clusters, let the peers measure the results, and recommend a number.

    Parameters
    ----------
    X : sequence of array_like of shape (n_m, F)
        One array per peer.
    protocol : str
        Of peers that hold different rows.
    clusters : iterable of int, default range(2, 11)
        The numbers to try, at least two different ones. Begin at 1 if an elbow at 2 should be found. They may be given in
        the second place too: ``choose_clusters(peers, range(2, 7))`` tries 2, 3, 4, 5 and 6.
    restarts : int
        How many jobs per number; the one with the best objective counts.
    random_state : int, optional
        The seed of the first restart.
    fleet : None, str or backend
        None runs in this process; the name of a backend starts one fleet for all jobs; the numbers are the same.
    measure_gate : bool, optional
        Whether peers with too few rows for the largest number abstain from measuring. Default: as the protocol's own
        ``privacy_gate`` is given here, else True.
    **options
        Of :func:`p2pclust.protocols.cluster_job`: ``scaling``, ``init``, ``tol``, ``fuzzifier``, ... Default of ``init``:
        "split-merge", from sums of all peers, where the protocol takes it. ``secure`` is as of :class:`LosslessCMeans`.

    Raises
    ------
    DataError
        For an empty peer, a value that is not finite, or peers with different columns.
    UsageError
        For a parameter out of range, or more clusters than rows.
    FleetError
        If a job failed, for example because no peer has rows enough to be measured.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.Generator(np.random.PCG64(0))
    >>> peers = [np.concatenate([rng.normal(at, 0.1, (60, 1)) for at in (0, 5, 9)]) for _ in range(3)]
    >>> found = choose_clusters(peers, clusters=range(1, 6), random_state=0)
    >>> found.recommended, found.reason
    (3, 'All four measures are best at 3 clusters.')
    """
    protocol, clusters = _either_way(protocol, clusters)
    if not isinstance(X, list | tuple) or not X:
        raise DataError("X: expected a list with one array per peer")
    from p2pclust.estimators.inputs import matrices  # noqa: PLC0415 - imports all estimators
    from p2pclust.estimators.running import has_links  # noqa: PLC0415

    arrays = matrices(X, None)
    wanted = numbers_of_clusters(clusters, sum(len(rows) for rows in arrays))
    if not isinstance(options.get("init") or "", str):
        raise UsageError("init: first centers cannot be given for several numbers of clusters: name a way to draw them")
    seed = fresh_seed() if random_state is None else random_state
    if options.get("init") is None:
        options["init"] = usual_init(protocol)
    asked = options.pop("secure", None)
    refuse({"in_process": not has_links(fleet), "secure": bool(asked) or isinstance(asked, Mapping)})
    if not has_links(fleet):
        asked = False

    def make(secured: Mapping[str, Any]) -> list[JobRequest]:
        sums = {"secure": True, "groups": secured.get("groups", 0)} if secured else {}
        jobs = (
            cluster_job(protocol, n_clusters=number, seed=own, **options, **sums)
            for number, own in trials(wanted, restarts, seed)
        )
        treatment = Treatment(missing="", **secured)
        return [JobRequest(trial_job(job, wanted[-1], measure_gate), treatment) for job in jobs]

    requests = decided(protocol, asked, len(arrays), make)
    return choice([one.job for one in requests], _run(requests, arrays, fleet))


def _either_way(first: str | Iterable[int], second: Iterable[int] | str | None) -> tuple[str, Iterable[int]]:
    """Return the protocol and the numbers, whichever was given first."""
    if isinstance(first, str):
        if isinstance(second, str):
            raise UsageError(f"clusters = {second!r}: expected whole numbers, such as range(2, 11)")
        return first, _CLUSTERS if second is None else second
    if second is not None and not isinstance(second, str):
        raise UsageError("clusters: the numbers were given twice, in the second place and as `clusters`: leave one out")
    return second or _PROTOCOL, first


def numbers_of_clusters(clusters: Iterable[int], n_rows: int) -> tuple[int, ...]:
    """Return the numbers to try, sorted, or raise UsageError if they cannot be compared or there are too few rows."""
    try:
        wanted = tuple(sorted({operator.index(number) for number in clusters}))
    except TypeError:
        raise UsageError("clusters: expected whole numbers, such as range(2, 11)") from None
    if len(wanted) < 2:
        raise UsageError(f"clusters: {len(wanted)} number(s) were given: expected at least two to compare")
    for number in wanted:
        checks.CLUSTERS("clusters", number)
    if wanted[-1] > n_rows:
        raise UsageError(f"clusters: {wanted[-1]}, but all peers together hold {n_rows} rows: try at most {n_rows}")
    return wanted


def usual_init(protocol: str) -> str | None:
    """Return the default method for first centers: sums of all peers, where the protocol supports it."""
    return _INIT if _INIT in inits_of(clustering_class(protocol)) else None


def trials(clusters: Sequence[int], restarts: int, seed: int) -> tuple[tuple[int, int], ...]:
    """Return (number of clusters, seed) of every job to run: the given seed, and restarts that follow from it."""
    count = checks.whole("restarts", restarts, least=1, most=1000)
    first = checks.whole("seed", seed, least=0, most=MAX_SEED)
    return tuple((c, (first + number * _NEXT_SEED) & MAX_SEED) for c in clusters for number in range(count))


def trial_job(job: Job, most: int, gate: bool | None = None) -> Job:
    """Return a clustering job that is measured at its end, as one of several with up to `most` clusters.

    The privacy parameters of the clustering hold for measuring too; `gate` replaces its ``privacy_gate``.
    """
    clustering_stage(job)  # what has no centers cannot be measured
    own = job.stages[job.main].parameters
    gate = bool(own.get("privacy_gate", True)) if gate is None else gate
    singletons = own.get("suppress_singletons", True)
    return measured(job, compare_up_to=most, privacy_gate=gate, suppress_singletons=singletons)


def _run(requests: Sequence[JobRequest], arrays: Sequence[Floats], fleet: Any) -> list[JobState]:
    """Run all jobs: here, on one fleet of that name, or one by one on a backend that only runs single jobs."""
    if fleet is None:
        locals_ = [Local(X) for X in arrays]
        return [run_in_process(one.job, locals_) for one in requests]
    if not isinstance(fleet, str):
        if not hasattr(fleet, "run"):
            raise UsageError(f"fleet = {fleet!r}: expected None, the name of a backend, or a backend")
        treated = [{"treatment": one.treatment} if one.treatment.secure else {} for one in requests]
        return [fleet.run(one.job, arrays, **more) for one, more in zip(requests, treated, strict=True)]
    named = f"fleet = {fleet!r}"
    spec, width = laboratory("testbed.spec", named), len(str(len(arrays)))
    peers = tuple(spec.PeerSpec(f"peer-{number:0{width}d}", X) for number, X in enumerate(arrays))
    jobs = with_one_roster(requests, [peer.name for peer in peers])
    result = laboratory("testbed", named).backend(fleet).carry_out(spec.FleetSpec(peers, jobs), lambda event: None)
    return final_states(result.jobs, result.failure, len(requests))


def with_one_roster(requests: Sequence[JobRequest], names: Sequence[str]) -> tuple[JobRequest, ...]:
    """Return the trials of one choice for these peers: with other rosters, two totals would differ by a few peers' rows."""
    return tuple(replace(one, roster=tuple(names)) for one in requests)


def final_states(results: Sequence[JobResult], failure: str, n_jobs: int) -> list[JobState]:
    """Return the final state of each job; raise FleetError if the fleet, with that failure, did not finish all of them."""
    states = [job.state for job in results if job.state is not None]
    if failure or len(states) < n_jobs:
        raise FleetError(failure or f"the fleet finished {len(states)} of {n_jobs} jobs")
    return states


def choice(jobs: Sequence[Job], states: Sequence[JobState], names: Sequence[str] = ()) -> ChoiceOfClusters:
    """Make the choice from the final states of all trials, in the order of the jobs; raise FleetError if one failed.

    `names` are those of the peers, in roster order; without them a peer has a number.
    """
    best: dict[int, tuple[float, MeasuredIndices, int, JobState]] = {}
    notes: dict[str, None] = {}
    for job, state in zip(jobs, states, strict=True):
        if state.status != "done":
            wanted = job.stages[job.main].parameters["n_clusters"]
            reason = summaries.with_names(state.reason, names)
            raise FleetError(f"{wanted} clusters: {reason or f'the job ended as {state.status!r}'}")
        found = MeasuredIndices.of(state)
        for peer, why in state.log[-1].abstained.items():
            notes[summaries.with_names(f"peer {peer} was not measured: {why}", names)] = None
        # The algorithm's own objective per row: peers that were lost meanwhile are not measured.
        loss = (found.objective if hasattr(job.protocols[job.main], "fuzzifier") else found.inertia) / found.rows
        if found.clusters not in best or loss < best[found.clusters][0]:
            best[found.clusters] = (loss, found, job.seed, state)
    if exposed := _exposed(states):
        who = ", ".join(names[peer] if names else f"peer {peer}" for peer in exposed)
        notes[f"exposed by the totals of all jobs together, which fewer peers than the cohort are in: {who}"] = None
    kept = [best[clusters] for clusters in sorted(best)]
    rows = sorted({found.rows for _, found, _, _ in kept})
    if len(rows) > 1:
        notes[f"not every number of clusters was measured over the same rows: {rows[0]} to {rows[-1]} of them"] = None
    table = tuple(found for _, found, _, _ in kept)
    advice = recommend(table)
    centers = {found.clusters: summaries.raw_centers(state) for _, found, _, state in kept}
    seeds = {found.clusters: seed for _, found, seed, _ in kept}
    return ChoiceOfClusters(
        advice.clusters, advice.reason, advice.votes, advice.agreed, table, centers, seeds, tuple(notes)
    )


def _exposed(states: Sequence[JobState]) -> tuple[int, ...]:
    """Return the peers about which the sets of all jobs say too much, if they were jobs of one over the same rows."""
    parts = [state.secured for state in states if state.secured is not None]
    if not parts:
        return ()
    sets, unknown = ([mask for part in parts for mask in getattr(part, name)] for name in ("revealed", "unknown"))
    return members_of(exposed(sets, parts[0].cohort, unknown))
