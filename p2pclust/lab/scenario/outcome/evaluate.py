"""The entry of one job in ``result.json``."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.data import DataSet
from p2pclust.jobs.request import JobResult
from p2pclust.lab.run.events import RunEvent
from p2pclust.lab.scenario.file.schema import Scenario
from p2pclust.lab.scenario.outcome.communities import measured_communities
from p2pclust.lab.scenario.outcome.measures import Done, MeasuredEvidence, measured
from p2pclust.lab.testbed.faults import Damage
from p2pclust.peer.core.round_reports import AnswerDiffers, RefutesState
from p2pclust.peer.core.rounds.round import ANSWERED_TWICE
from p2pclust.protocols.centers.alternating import Alternating
from p2pclust.protocols.centers.robust import limited_peers
from p2pclust.protocols.centers.stream import drift_report
from p2pclust.protocols.columns.vertical_stages import warnings_of
from p2pclust.protocols.engine import summaries
from p2pclust.protocols.engine.base import Clustering
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.reasons import IMPLAUSIBLE
from p2pclust.protocols.engine.runner import clustering_stage, labelling_stage
from p2pclust.protocols.engine.secure_rounds import exposed_peers
from p2pclust.protocols.engine.summaries import suspects_of_log, with_names
from p2pclust.protocols.measuring.describe import Describe
from p2pclust.protocols.measuring.description import Description
from p2pclust.protocols.measuring.doubts import doubts, objective_of
from p2pclust.protocols.models.fedcref import FedCRefProtocol

Floats = NDArray[np.float64]

_OF_COLUMNS: Final = "no peer holds whole centers: each peer has its own columns of them, in centers-PEER.csv"


def job_entry(
    job: Job, found: JobResult, shares: Mapping[str, DataSet], given: Mapping[str, Floats] | None = None,
    damage: Sequence[Damage] = (), evidence: MeasuredEvidence | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return one entry of ``jobs`` in ``result.json`` for a job and the fleet's result; see scenarios/README.md.

    The other arguments are those of :class:`p2pclust.lab.scenario.outcome.measures.Done`, but of the whole fleet; see
    `damage_in`. If peers hold columns, ``own_centers`` has what each exports; it is written to separate files.
    """
    entry = empty_entry(job) | {
        "job": found.job_id,
        "terms": [{"term": term, "aggregator": name} for term, name in found.terms],
        "digests": dict(found.digests),
        "seconds": found.seconds,
        "failure": "no peer finished it",
    }
    state = found.state
    if state is None:
        return entry
    entry |= _recorded(job, found, state, damage, shares)
    if state.status != "done":
        return entry
    entry["declared"] = {name: values.tolist() for name, values in summaries.declared(job, state).items()}
    if isinstance(job.protocols[job.main], Describe):
        features = next(iter(shares.values())).feature_names
        entry["description"] = Description.of(job, state, features).to_dict()
    if isinstance(job.protocols[job.main], FedCRefProtocol):
        return entry | measured_communities(job, found, shares)
    held = {name: shares[name] for name in found.roster}
    evidence = evidence or MeasuredEvidence()
    entry |= measured(Done(job, state, held, given or {}, damage, evidence, found.tolerance))
    entry["doubts"] += [f"not measured: {failure}" for failure in evidence.failures]
    if best := entry["best_pooled"]:
        entry["best_pooled"] = dataclasses.asdict(best) | {"words": best.words}
        entry["doubts"] += [best.doubt] if best.doubt else []
    if found.tolerance is not None:
        entry["replay_identical"] = None  # the replay's sums are exact, and the fleet's are right up to the tolerance
    return entry


def _recorded(
    job: Job, found: JobResult, state: JobState, damage: Sequence[Damage], shares: Mapping[str, DataSet]
) -> dict[str, Any]:  # fmt: skip
    roster, rows = found.roster, {name: share.n_rows for name, share in shares.items()}
    features = next((job.center_columns(share.feature_names) for share in shares.values()), ())
    warnings = warnings_of(state.arrays, clustering_stage(job)[1].n_clusters) if job.by_columns else {}
    damaged = []
    for one in damage:
        # Reasons about rows begin with the row, and those about lies with the word; others are about other rounds.
        reasons = (record.abstained.get(roster.index(one.peer), "") for record in state.log[one.round :])
        named = next((reason for reason in reasons if reason.startswith(("row ", IMPLAUSIBLE))), None)
        damaged.append({"peer": one.peer, "how": one.how, "round": one.round, "named": named})
    privacy = None
    if "deviations" in state.arrays:  # one standard deviation of each center due to noise, in the data's units
        deviations = (state.arrays["deviations"] * state.arrays["scale"]).tolist()
        privacy = {name: float(state.arrays[name]) for name in ("epsilon", "delta")} | {"deviations": deviations}
    return {
        "rounds": state.round, "converged": state.converged and state.status == "done",
        "history": summaries.shifts(state),
        "contributors": [[roster[peer] for peer in record.contributors] for record in state.log],
        "abstained": [{roster[peer]: why for peer, why in record.abstained.items()} for record in state.log],
        "stages": [job.stages[record.stage].protocol for record in state.log],
        "suppressed": summaries.suppressed(state), "coarse": summaries.coarse(state),
        "objective": objective_of(state.arrays), "doubts": list(doubts(state.arrays, features, levels=job.levels)),
        "secure": state.secured is not None, "exposed": exposed_in(job, state, roster, rows),
        "suspects": suspects_of_log(state, roster),
        "limited": {roster[peer]: times for peer, times in limited_peers(state.arrays).items()}, "privacy": privacy,
        "drift": [batch.to_dict() for batch in drift_report(state.arrays)], "tolerance": found.tolerance,
        "reached": found.reached, "ticks": list(found.ticks),
        "failure": with_names(state.reason, roster) if state.status != "done" else "",
        "damaged": damaged,
        "warnings": {roster[peer]: warning for peer, warning in warnings.items()},
    }  # fmt: skip


def empty_entry(job: Job) -> dict[str, Any]:
    """Return the entry of a job that was not submitted."""
    number, protocol = labelling_stage(job)
    stage = job.stages[number]
    # A protocol without centers has no first centers.
    inits = [before.parameters["init"] for before in job.stages[:number] if "init" in before.parameters]
    init = {"init": (inits or ["own"])[0]} if protocol.inits else {}
    parameters = stage.parameters
    if not isinstance(protocol, Clustering):  # those with default values too
        fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(protocol)  # type: ignore[arg-type] # they all are
        given = {field.name: getattr(protocol, field.name) for field in fields}
        parameters = {name: value for name, value in given.items() if value is not None}
    return {
        "protocol": stage.protocol,
        "parameters": {**parameters, **init, "participation": job.participation},
        "kernel": job.kernel,
        "stops": protocol.stops,
        "rounds": None, "converged": False, "centers": None, "declared": {}, "description": None,
        "note": _OF_COLUMNS if job.by_columns else "", "warnings": {}, "terms": [],
        "contributors": [], "abstained": [], "stages": [], "history": [], "suppressed": 0, "coarse": 0, "objective": None,
        "best_pooled": None, "doubts": [], "secure": False, "exposed": {}, "suspects": [], "limited": {}, "privacy": None,
        "drift": [], "tolerance": None, "reached": None, "ticks": [], "n_rows": 0, "metrics": {}, "pooled": None,
        "gap": None, "damaged": [], "harm": None, "replay_identical": None, "digests": {}, "seconds": None, "job": None,
        "failure": "it was not submitted, because the fleet could not finish the job before it",
    }  # fmt: skip


def damage_in(damage: Sequence[Damage], jobs: Sequence[JobResult], number: int) -> list[Damage]:
    """Return the rows that replaced those of a job's peers; those replaced in an earlier job count from round 0."""
    order = {job.job_id: position for position, job in enumerate(jobs[: number + 1])}
    roster = jobs[number].roster
    found: list[Damage] = []
    for one in damage:
        if one.job_id in order and one.peer in roster:
            earlier = order[one.job_id] < number
            # Of several replacements before the job, or in one round, only the last one counts.
            one = dataclasses.replace(one, round=0) if earlier else one  # noqa: PLW2901
            found = [other for other in found if (other.peer, other.round) != (one.peer, one.round)] + [one]
    return sorted(found, key=lambda one: one.round)


def suspects_by_report(events: Iterable[RunEvent], job_id: str) -> list[dict[str, Any]]:
    """Return the suspects that single devices of a run reported, with the names of these devices.

    >>> from p2pclust.peer.core.round_reports import AnswerDiffers
    >>> suspects_by_report([RunEvent(1.0, "b", "differs", AnswerDiffers("j", None, 3, "a"))], "j")[0]["found_by"]
    ['b']
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for event in events:
        told = event.what
        if not isinstance(told, AnswerDiffers | RefutesState) or told.job != job_id:
            continue
        reason = told.reason if isinstance(told, RefutesState) else ANSWERED_TWICE
        first = {"peer": told.peer, "round": told.round, "rounds": 1, "reason": reason, "found_by": []}
        known = found.setdefault((told.peer, reason), first)
        known["found_by"] = sorted({*known["found_by"], event.peer})
    return list(found.values())


def exposed_in(job: Job, state: JobState, roster: Sequence[str], rows: Mapping[str, int]) -> dict[str, str]:
    """Return the exposed devices of a job with this last state, by name, and why; `rows` has how many rows each device has.

    With secure sums these are the peers of small classes (docs/secure-sums.md). Without, the peers of ``llf-cm`` and
    ``llf-fcm`` whose sums over all rounds and starts are at least as many equations as their rows have values: N rows
    of F values against C (F + 1) for each.
    """
    if state.secured is not None:
        why = f"sums of fewer than {state.secured.cohort} devices with it can be computed"
        return {roster[peer]: why for peer in exposed_peers(state)}
    protocol = job.protocols[job.main]
    if not isinstance(protocol, Alternating) or "centers" not in state.arrays:
        return {}
    n_clusters, n_features = state.arrays["centers"].shape
    told = Counter(peer for record in state.log if record.stage == job.main for peer in record.contributors)
    equations = protocol.n_init * n_clusters * (n_features + 1)
    return {
        roster[peer]: f"it has {rows[roster[peer]]} rows, and the sums of {rounds} rounds are as many equations"
        for peer, rounds in sorted(told.items())
        if rows.get(roster[peer], 0) * (len(job.levels) or n_features) <= rounds * equations
    }


def rows_left_out(scenario: Scenario, shares: Mapping[str, DataSet]) -> list[dict[str, Any]]:
    """Return the rows that were left out of each file, as in ``result.json``; complete files are not listed.

    ``device`` is None if the rows of one source were dealt out: every share has the count of the whole source.
    """
    parts = [(device, share) for device, share in shares.items() if share.dropped]
    found = [{"file": share.name, "device": device, "rows": share.dropped} for device, share in parts]
    return found if scenario.data.files is not None else [one | {"device": None} for one in found[:1]]
