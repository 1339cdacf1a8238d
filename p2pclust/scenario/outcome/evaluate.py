"""The measures of one job: against true labels, against the pooled algorithm, against the replay of its record.

They need all rows in one place. A scenario has them, because it dealt them out; no peer does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pclust.data import DataSet
from p2pclust.errors import UsageError
from p2pclust.fleet.faults import Damage
from p2pclust.fleet.spec import JobResult
from p2pclust.metrics import accuracy, adjusted_rand_index, center_distance
from p2pclust.protocols.centers.drift import drift_report
from p2pclust.protocols.engine import engine, summaries
from p2pclust.protocols.engine.base import Clustering, Labelling
from p2pclust.protocols.engine.job import Job, JobState, Stage
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import Later, clustering_stage, labelling_stage, pooled, pooled_run, replayed
from p2pclust.protocols.engine.summaries import with_names
from p2pclust.protocols.measuring.doubts import doubts, objective_of
from p2pclust.scenario.outcome.by_columns import NOTE, measured, warnings_by_name
from p2pclust.scenario.outcome.communities import measured_communities
from p2pclust.scenario.outcome.evidence import Evidence
from p2pclust.scenario.outcome.pooled_starts import best_pooled

__all__ = ["damage_in", "empty_entry", "job_entry"]

Floats = NDArray[np.float64]


def job_entry(
    job: Job, found: JobResult, shares: Mapping[str, DataSet], given: Mapping[str, Floats] | None = None,
    damage: Sequence[Damage] = (), evidence: Evidence | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return one entry of ``jobs`` in ``result.json``.

    Parameters
    ----------
    job : Job
    found : JobResult
        The fleet's result.
    shares : mapping of str to DataSet
        Every peer's rows, or columns, by name.
    given : mapping of str to ndarray, optional
        Each peer's columns of the first centers, if peers that hold columns were given them.
    damage : sequence of Damage
        Rows that replaced those of peers, in the order of rounds; see `damage_in`.
    evidence : Evidence, optional
        Receives what measuring finds beside the entry.

    Returns
    -------
    dict
        See scenarios/README.md. ``rounds`` counts all stages, ``history`` has the shift of every clustering round that
        moved centers, ``contributors`` and ``abstained`` have one item per round of any stage. If peers hold columns,
        ``own_centers`` has what each exports; it is written to separate files.
    """
    evidence = evidence or Evidence()
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
    roster = found.roster
    entry |= {
        "rounds": state.round,
        "converged": state.converged and state.status == "done",
        "history": summaries.shifts(state),
        "contributors": [[roster[peer] for peer in record.contributors] for record in state.log],
        "abstained": [{roster[peer]: why for peer, why in record.abstained.items()} for record in state.log],
        "stages": [job.stages[record.stage].protocol for record in state.log],
        "suppressed": summaries.suppressed(state),
        "coarse": summaries.coarse(state),
        "objective": objective_of(state.arrays),
        "doubts": list(doubts(state.arrays)),
        "drift": [batch.to_dict() for batch in drift_report(state.arrays)],
        "tolerance": found.tolerance,
        "reached": found.reached,
        "ticks": list(found.ticks),
        "failure": with_names(state.reason, roster) if state.status != "done" else "",
    }
    entry["damaged"] = [_damaged(one, state, roster) for one in damage]
    if job.by_columns:
        entry["warnings"] = warnings_by_name(job, state, roster)
    if state.status == "done":
        entry |= _result(job, found, state, shares, given or {}, damage, evidence, entry["doubts"])
    return entry


def _result(
    job: Job, found: JobResult, state: JobState, shares: Mapping[str, DataSet], given: Mapping[str, Floats],
    damage: Sequence[Damage], evidence: Evidence, known: Sequence[str],
) -> dict[str, Any]:  # fmt: skip
    """Return what is measured of a job that is done; `known` are the doubts so far."""
    if job.has_workspace:
        return measured_communities(job, found, shares)
    held = {name: shares[name] for name in found.roster}
    if job.by_columns:
        locals_ = [Local(share.X, ids=share.shared_ids, centers=given.get(name)) for name, share in held.items()]
    else:
        locals_ = [Local(share.X) for share in held.values()]
    places = [found.roster.index(one.peer) for one in damage]
    later = [(one.round, place, locals_[place].with_rows(one.X)) for one, place in zip(damage, places, strict=True)]
    if job.by_columns:
        return measured(job, state, held, locals_, later, evidence)
    entry = _measured(job, state, locals_, list(held.values()), later, evidence)
    entry |= _beside_pooling(job, state, locals_, known)
    if found.tolerance is not None:
        entry["replay_identical"] = None  # the replay's sums are exact, and the fleet's are right up to the tolerance
    return entry


def empty_entry(job: Job) -> dict[str, Any]:
    """Return the entry of a job that was not submitted."""
    number, protocol = labelling_stage(job)
    stage = job.stages[number]
    # A protocol without centers has no first centers.
    inits = [before.parameters["init"] for before in job.stages[:number] if "init" in before.parameters]
    init = {"init": (inits or ["own"])[0]} if protocol.inits else {}
    return {
        "protocol": stage.protocol,
        "parameters": {**_parameters(protocol, stage), **init, "participation": job.participation},
        "stops": protocol.stops,
        "rounds": None,
        "converged": False,
        "centers": None,
        "note": NOTE if job.by_columns else "",
        "warnings": {},
        "terms": [],
        "contributors": [],
        "abstained": [],
        "stages": [],
        "history": [],
        "suppressed": 0,
        "coarse": 0,
        "objective": None,
        "best_pooled": None,
        "doubts": [],
        "drift": [],
        "tolerance": None,
        "reached": None,
        "ticks": [],
        "n_rows": 0,
        "metrics": {},
        "pooled": None,
        "gap": None,
        "damaged": [],
        "harm": None,
        "replay_identical": None,
        "digests": {},
        "seconds": None,
        "job": None,
        "failure": "it was not submitted, because the fleet could not finish the job before it",
    }


def _parameters(protocol: Labelling, stage: Stage) -> dict[str, Any]:
    """Return the job's parameters; for a protocol without centers also those with default values."""
    if isinstance(protocol, Clustering):
        return dict(stage.parameters)
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(protocol)  # type: ignore[arg-type] # they all are
    given = {field.name: getattr(protocol, field.name) for field in fields}
    return {name: value for name, value in given.items() if value is not None}


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


def _damaged(damage: Damage, state: JobState, roster: Sequence[str]) -> dict[str, Any]:
    """Describe damaged rows, with the reason that the fleet gave for leaving them out, if it noticed them."""
    peer = roster.index(damage.peer)
    reasons = [record.abstained.get(peer, "") for record in state.log[damage.round :]]
    # Reasons about rows begin with the row; other reasons are about rounds without a peer that has sound rows.
    named = next((reason for reason in reasons if reason.startswith("row ")), None)
    return {"peer": damage.peer, "how": damage.how, "round": damage.round, "named": named}


def _measured(
    job: Job, state: JobState, locals_: Sequence[Local], shares: Sequence[DataSet], later: Later, evidence: Evidence
) -> dict[str, Any]:
    clustering, protocol = labelling_stage(job)
    contributed = sorted({peer for record in state.log if record.stage == clustering for peer in record.contributors})
    labelled = {
        "n_rows": sum(shares[peer].n_rows for peer in contributed),
        "metrics": _metrics(job, state, [(locals_[peer], shares[peer]) for peer in contributed]),
        "replay_identical": _replays(job, state, locals_, later, evidence),
    }
    if not isinstance(protocol, Clustering):
        return labelled
    evidence.centers = centers = summaries.raw_centers(state)
    # Over all rows that were used, also the damaged ones.
    ranges = _ranges([*locals_, *(rows for _, _, rows in later if not rows.problem)])
    if protocol.lossless:
        evidence.pooled = pooled(job, locals_, state.log, later)
    return labelled | {
        "centers": centers.tolist(),
        "pooled": None if evidence.pooled is None else _differences(centers, evidence.pooled, ranges),
        "gap": None if protocol.lossless else _gap(job, state, centers, locals_, later, ranges, evidence),
        "harm": _harm(job, state, centers, locals_) if later else None,
    }


def _beside_pooling(job: Job, state: JobState, locals_: Sequence[Local], known: Sequence[str]) -> dict[str, Any]:
    """Compare with the best of several pooled starts, over the rows of all that contributed to the clustering."""
    stage, protocol = labelling_stage(job)
    contributed = sorted({peer for record in state.log if record.stage == stage for peer in record.contributors})
    if not isinstance(protocol, Clustering):
        return {}
    best = best_pooled(job, state, [locals_[peer] for peer in contributed])
    if best is None:
        return {}
    return {"best_pooled": best.to_dict(), "doubts": [*known, *([best.doubt] if best.doubt else [])]}


def _metrics(job: Job, state: JobState, contributed: Sequence[tuple[Local, DataSet]]) -> dict[str, float]:
    """Score the labels of all rows of the peers that contributed to the clustering, if true labels are known."""
    truth = [share.y for _, share in contributed if share.y is not None]
    if not truth or len(truth) < len(contributed):
        return {}
    own = [engine.conclude(job, state, local)["labels"] for local, _ in contributed]
    # The labels become text if one file has numbers and another has words.
    known, labels = np.concatenate(truth), np.concatenate(own)
    found = {"ari": adjusted_rand_index(known, labels), "accuracy": accuracy(known, labels)}
    if not isinstance(labelling_stage(job)[1], Clustering):
        # As in FedCRef's paper: each peer by itself, with its own best matching.
        found["peer_accuracy"] = float(np.mean([accuracy(*pair) for pair in zip(truth, own, strict=True)]))
    return found


def _differences(centers: Floats, by_pooling: Floats, ranges: Floats) -> dict[str, float]:
    """Compare with the pooled centers; the relative difference is in units of each feature's range over all rows."""
    apart = np.abs(centers - by_pooling).max(axis=0)
    return {
        "max_abs_difference": float(apart.max()),
        "relative_difference": float((apart / ranges).max()),
    }


def _harm(job: Job, state: JobState, centers: Floats, locals_: Sequence[Local]) -> dict[str, Any] | None:
    """Measure how far the centers lie from those of the undamaged rows."""
    whole = pooled if clustering_stage(job)[1].lossless else lambda *run: pooled_run(*run).centers
    try:
        sound = whole(job, locals_, state.log)
    except UsageError:
        return None  # with undamaged rows a peer that contributed would have abstained
    ranges = _ranges(locals_)
    return {"to": "the sound rows", "center_distance": center_distance(sound / ranges, centers / ranges)}


def _gap(
    job: Job, state: JobState, centers: Floats, locals_: Sequence[Local], later: Later, ranges: Floats,
    evidence: Evidence,
) -> dict[str, Any]:  # fmt: skip
    """Measure how far the centers of a protocol that is not lossless lie from the pooled ones."""
    protocol = clustering_stage(job)[1]
    found = pooled_run(job, locals_, state.log, later)
    evidence.compare(centers, found.centers, ranges)
    return {
        "to": f"pooled {protocol.pooled_name}",
        # With the best matching, because an aggregator that clusters centers may change their order.
        "center_distance": center_distance(found.centers / ranges, centers / ranges),
        "pooled_rounds": found.n_rounds,
        "pooled_converged": found.converged,
    }


def _ranges(locals_: Sequence[Local]) -> Floats:
    """Return each feature's range over all rows; that of a constant feature is 1, as in min-max scaling."""
    low = np.min([local.X.min(axis=0) for local in locals_], axis=0)
    high = np.max([local.X.max(axis=0) for local in locals_], axis=0)
    return np.where(high > low, high - low, 1.0)


def _replays(
    job: Job, state: JobState, locals_: Sequence[Local], later: Later, evidence: Evidence
) -> bool:  # fmt: skip
    """Return whether the in-process replay of the recorded proposers and contributors has the same bits."""
    try:
        for step in replayed(job, locals_, state.log, later):
            evidence.follow(step)
    except UsageError:
        return False  # the record does not belong to this job over these rows
    return step.encode() == state.encode()
