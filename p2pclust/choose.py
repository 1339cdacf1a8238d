"""The number of clusters chosen by the fleet: one job for each number, measured by the peers, and what the measures say.

No peer sends more for it than the clustering itself and one round of sums (:mod:`p2pclust.protocols.measure`). Each number
of clusters is a job of its own, with as many restarts as are wanted: first centers are drawn by chance, and a bad draw would
be taken for a bad number of clusters. The jobs go through one fleet, one after another.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from p2pclust.errors import DataError, FleetError, UsageError
from p2pclust.protocols import checks, engine
from p2pclust.protocols.alternating import MAX_CLUSTERS
from p2pclust.protocols.choose import MEASURES, recommend
from p2pclust.protocols.compose import cluster_job
from p2pclust.protocols.job import Job, JobState
from p2pclust.protocols.local import Local, first_bad_value
from p2pclust.protocols.measure import Measures, measured
from p2pclust.protocols.runner import run_in_process
from p2pclust.protocols.streams import MAX_SEED, fresh_seed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from p2pclust.fleet.spec import FleetResult

__all__ = [
    "ChoiceOfClusters",
    "choice",
    "choose_clusters",
    "final_states",
    "numbers_of_clusters",
    "plot_refusal",
    "trial_job",
    "trials",
]

Floats = NDArray[np.float64]

# Far apart, so that neighbouring seeds of a person have no restart in common.
_NEXT_SEED = 2**32
_NO_MATPLOTLIB = "a plot needs matplotlib, which is not installed: pip install 'p2pclust[plots]'"


@dataclass(frozen=True, eq=False)
class ChoiceOfClusters:
    """What the fleet found for each number of clusters, and which one it recommends.

    Attributes
    ----------
    recommended : int
    reason : str
        In sentences; it says so where the measures disagree.
    votes : mapping of str to int or None
        At which number each measure is best; None where it cannot tell.
    agreed : bool
        Whether more than half of the measures are best at the recommended number.
    table : tuple of Measures
        One for each number of clusters, ascending, from its best restart.
    centers : mapping of int to ndarray of shape (C, F)
        Of these restarts, in the data's own units.
    seeds : mapping of int to int
        Of these restarts: a job with this seed and number of clusters gives these centers again.
    notes : tuple of str
        Whose rows were not measured, and why.
    """

    recommended: int
    reason: str
    votes: Mapping[str, int | None]
    agreed: bool
    table: tuple[Measures, ...]
    centers: Mapping[int, Floats]
    seeds: Mapping[int, int]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; infinite measures are infinite floats."""
        rows = [
            asdict(row) | {"seed": self.seeds[row.clusters], "centers": self.centers[row.clusters].tolist()}
            for row in self.table
        ]
        kept = ("recommended", "reason", "agreed")
        own = {name: getattr(self, name) for name in kept} | {"votes": dict(self.votes), "notes": list(self.notes)}
        return own | {"table": rows}

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draw each measure over the number of clusters, with its own best and the recommended number marked.

        Parameters
        ----------
        path : str or Path, optional
            Where to save it; the ending says as what (png, pdf, svg, ...).

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        UsageError
            If matplotlib is not installed, or the file cannot be written.
        """
        refusal = plot_refusal(path)
        if refusal:
            raise UsageError(refusal)
        figure = _figure(self)
        if path is not None:
            try:
                figure.savefig(path, dpi=150)
            except OSError as error:
                raise UsageError(f"{path}: the plot cannot be written ({error.strerror})") from None
        return figure


def choose_clusters(
    X: Sequence[ArrayLike],
    protocol: str = "llf-fcm",
    clusters: Iterable[int] = range(2, 11),
    *,
    restarts: int = 3,
    random_state: int | None = None,
    fleet: Any = None,
    measure_gate: bool | None = None,
    **options: Any,
) -> ChoiceOfClusters:
    """Cluster with each number of clusters, let the peers measure the results, and recommend a number.

    Parameters
    ----------
    X : sequence of array_like of shape (n_m, F)
        One array per peer.
    protocol : str
        Of peers that hold different rows.
    clusters : iterable of int
        The numbers to try, at least two different ones. Begin at 1 if an elbow at 2 should be found.
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
        Of :func:`p2pclust.protocols.cluster_job`: ``scaling``, ``init``, ``tol``, ``fuzzifier``, ...

    Returns
    -------
    ChoiceOfClusters

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
    >>> rng = np.random.Generator(np.random.PCG64(0))
    >>> peers = [np.concatenate([rng.normal(at, 0.1, (60, 1)) for at in (0, 5, 9)]) for _ in range(3)]
    >>> found = choose_clusters(peers, clusters=range(1, 6), random_state=0)
    >>> found.recommended, found.reason
    (3, 'All four measures are best at 3 clusters.')
    """
    arrays = _per_peer(X)
    wanted = numbers_of_clusters(clusters, sum(len(rows) for rows in arrays))
    if not isinstance(options.get("init", ""), str):
        raise UsageError("init: first centers cannot be given for several numbers of clusters: name a way to draw them")
    seed = fresh_seed() if random_state is None else random_state
    jobs = [
        trial_job(cluster_job(protocol, n_clusters=number, seed=own, **options), wanted[-1], measure_gate)
        for number, own in trials(wanted, restarts, seed)
    ]
    return choice(jobs, _run(jobs, arrays, fleet))


def numbers_of_clusters(clusters: Iterable[int], n_rows: int) -> tuple[int, ...]:
    """Return the numbers to try, sorted, or raise UsageError if they cannot be compared or there are too few rows."""
    try:
        wanted = tuple(sorted({operator.index(number) for number in clusters}))
    except TypeError:
        raise UsageError("clusters: expected whole numbers, such as range(2, 11)") from None
    if len(wanted) < 2:
        raise UsageError(f"clusters: {len(wanted)} number(s) were given: expected at least two to compare")
    checks.whole("clusters", wanted[0], least=1, most=MAX_CLUSTERS)
    checks.whole("clusters", wanted[-1], least=1, most=MAX_CLUSTERS)
    if wanted[-1] > n_rows:
        raise UsageError(f"clusters: {wanted[-1]}, but all peers together hold {n_rows} rows: try at most {n_rows}")
    return wanted


def trials(clusters: Sequence[int], restarts: int, seed: int) -> tuple[tuple[int, int], ...]:
    """Return (number of clusters, seed) of every job to run: the given seed, and restarts that follow from it."""
    count = checks.whole("restarts", restarts, least=1, most=1000)
    first = checks.whole("seed", seed, least=0, most=MAX_SEED)
    return tuple((c, (first + number * _NEXT_SEED) & MAX_SEED) for c in clusters for number in range(count))


def trial_job(job: Job, most: int, gate: bool | None = None) -> Job:
    """Return a clustering job that is measured at its end, as one of several with up to `most` clusters.

    What the clustering itself says of privacy holds for the measuring too; `gate` replaces its ``privacy_gate``.
    """
    own = job.stages[-1].parameters
    return measured(
        job,
        compare_up_to=most,
        privacy_gate=own.get("privacy_gate", True) if gate is None else gate,
        suppress_singletons=own.get("suppress_singletons", True),
    )


def choice(
    jobs: Sequence[Job], states: Sequence[JobState], name: Callable[[int], str] = "peer {}".format
) -> ChoiceOfClusters:
    """Make the choice from the final states of all trials.

    Parameters
    ----------
    jobs : sequence of Job
        As :func:`trial_job` makes them.
    states : sequence of JobState
        In the same order.
    name : callable
        What people call the peer of an index.

    Raises
    ------
    FleetError
        If a job failed.
    """
    best: dict[int, tuple[float, Measures, int, JobState]] = {}
    notes: dict[str, None] = {}
    for job, state in zip(jobs, states, strict=True):
        if state.status != "done":
            wanted = job.stages[-2].parameters["n_clusters"]
            raise FleetError(f"{wanted} clusters: {state.reason or f'the job ended as {state.status!r}'}")
        found = Measures.of(state)
        for peer, why in state.log[-1].abstained.items():
            notes[f"{name(peer)} was not measured: {why}"] = None
        # What the algorithm itself minimises, per row: peers that were lost meanwhile are not measured.
        loss = (found.objective if hasattr(job.protocols[-2], "fuzzifier") else found.inertia) / found.rows
        if found.clusters not in best or loss < best[found.clusters][0]:
            best[found.clusters] = (loss, found, job.seed, state)
    kept = [best[clusters] for clusters in sorted(best)]
    rows = sorted({found.rows for _, found, _, _ in kept})
    if len(rows) > 1:
        notes[f"not every number of clusters was measured over the same rows: {rows[0]} to {rows[-1]} of them"] = None
    said = recommend([found for _, found, _, _ in kept])
    return ChoiceOfClusters(
        recommended=said.clusters,
        reason=said.reason,
        votes=said.votes,
        agreed=said.agreed,
        table=tuple(found for _, found, _, _ in kept),
        centers={found.clusters: engine.raw_centers(state) for _, found, _, state in kept},
        seeds={found.clusters: seed for _, found, seed, _ in kept},
        notes=tuple(notes),
    )


def plot_refusal(path: str | Path | None) -> str:
    """Say why a plot could not be saved there, before anything runs, or return an empty string."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra, and heavy
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "matplotlib":
            raise
        return _NO_MATPLOTLIB
    if path is None:
        return ""
    known = sorted(Figure().canvas.get_supported_filetypes())
    if Path(path).suffix[1:].lower() not in known:
        return f"{path}: a plot can be saved as {', '.join(known)}: end the name with one of them"
    if not Path(path).parent.is_dir():
        return f"{path}: there is no folder {Path(path).parent}: make it first"
    return ""


def _per_peer(X: Any) -> list[Floats]:
    if not isinstance(X, list | tuple) or not X:
        raise DataError("X: expected a list with one array per peer")
    arrays: list[Floats] = []
    for peer, rows in enumerate(X):
        try:
            matrix = np.asarray(rows, dtype=np.float64)
        except (TypeError, ValueError):
            raise DataError(f"peer {peer}: expected numbers in rows of equal length") from None
        if matrix.ndim != 2 or matrix.size == 0:
            raise DataError(f"peer {peer}: expected at least one row and one column, got shape {matrix.shape}")
        if arrays and matrix.shape[1] != arrays[0].shape[1]:
            raise DataError(f"peer {peer} has {matrix.shape[1]} columns where peer 0 has {arrays[0].shape[1]}")
        problem = first_bad_value(matrix)
        if problem:
            raise DataError(f"peer {peer}: {problem}: mend or leave out that row")
        arrays.append(matrix)
    return arrays


def _run(jobs: Sequence[Job], arrays: Sequence[Floats], fleet: Any) -> list[JobState]:
    """Run all jobs: here, on one fleet of that name, or one by one on a backend that only runs single jobs."""
    if fleet is None:
        locals_ = [Local(X) for X in arrays]
        return [run_in_process(job, locals_) for job in jobs]
    if not isinstance(fleet, str):
        if not hasattr(fleet, "run"):
            raise UsageError(f"fleet = {fleet!r}: expected None, the name of a backend, or a backend")
        return [fleet.run(job, arrays) for job in jobs]
    # Imported only when real peers are wanted: in process none of the network is needed.
    from p2pclust.fleet import backend  # noqa: PLC0415
    from p2pclust.fleet.spec import FleetSpec, JobRequest, PeerSpec  # noqa: PLC0415

    width = len(str(len(arrays)))
    peers = tuple(PeerSpec(f"peer-{number:0{width}d}", X) for number, X in enumerate(arrays))
    requests = tuple(JobRequest(job) for job in jobs)
    return final_states(backend(fleet).carry_out(FleetSpec(peers, requests), lambda event: None), len(jobs))


def final_states(result: FleetResult, n_jobs: int) -> list[JobState]:
    """Return the final state of each job.

    Raises
    ------
    FleetError
        If the fleet did not finish all of them.
    """
    states = [job.state for job in result.jobs if job.state is not None]
    if result.failure or len(states) < n_jobs:
        raise FleetError(result.failure or f"the fleet finished {len(states)} of {n_jobs} jobs")
    return states


def _figure(found: ChoiceOfClusters) -> Figure:
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra, and heavy
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    figure = Figure(figsize=(9, 6), layout="constrained")
    clusters = [row.clusters for row in found.table]
    panels = {
        MEASURES[0]: ("smaller is better", [row.soft_davies_bouldin for row in found.table]),
        MEASURES[1]: ("smaller is better", [row.xie_beni for row in found.table]),
        MEASURES[2]: ("greater is better", [row.simplified_silhouette for row in found.table]),
        MEASURES[3]: ("inertia per row; the sharpest bend", [row.inertia / row.rows for row in found.table]),
    }
    for number, (measure, (how, values)) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(2, 2, number)
        axes.axvline(found.recommended, color="0.8", linewidth=6, zorder=0)
        axes.plot(clusters, [value if np.isfinite(value) else np.nan for value in values], "o-", color="C0")
        vote = found.votes[measure]
        if vote is not None:
            axes.plot([vote], [values[clusters.index(vote)]], "o", color="C3", markersize=10, zorder=3)
        title = f"{measure}: {vote if vote is not None else 'cannot tell'}"
        axes.set_title(title, fontsize=11, loc="left")
        axes.set_title(how, fontsize=8, loc="right", color="0.4")
        if measure == MEASURES[1] or measure == MEASURES[3]:
            _logarithmic(axes, values)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("clusters")
    figure.suptitle(f"{found.recommended} clusters recommended" + ("" if found.agreed else "; the measures disagree"))
    return figure


def _logarithmic(axes: Any, values: Sequence[float]) -> None:
    """Use a logarithmic axis where all numbers shown are positive."""
    if all(value > 0.0 for value in values):
        axes.set_yscale("log")
