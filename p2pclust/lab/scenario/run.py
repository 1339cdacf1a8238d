"""Run a checked scenario on a backend, and write `result.json` and the other files of its output directory."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.data import DataSet
from p2pclust.data.dataset import doubtful
from p2pclust.errors import FleetError
from p2pclust.jobs.secured import secured_fields
from p2pclust.jobs.submission import request_of
from p2pclust.lab.run.events import RunEvent
from p2pclust.lab.run.scene import Scene
from p2pclust.lab.scenario.file import load
from p2pclust.lab.scenario.file.plans import away_s, longest_sleep_s, make_rests, planned
from p2pclust.lab.scenario.file.schema import Scenario
from p2pclust.lab.scenario.outcome import evaluate, folder
from p2pclust.lab.scenario.outcome.communities import first_labels, own_numbers
from p2pclust.lab.scenario.outcome.expectations import check
from p2pclust.lab.scenario.outcome.measures import AuditedJob, MeasuredEvidence
from p2pclust.lab.simulation.world.network import traffic_summary
from p2pclust.lab.testbed import Backend
from p2pclust.lab.testbed import backend as backend_called
from p2pclust.lab.testbed.spec import LARGE_FLEET, FleetResult, FleetSpec, LogLine, OnEvent, PeerSpec
from p2pclust.lab.topology.layout import lay_out
from p2pclust.peer.core.timing import preset
from p2pclust.peer.operate.device import USUAL_FITNESS, fitness
from p2pclust.protocols.engine.base import Clustering
from p2pclust.protocols.engine.compose import clustering_class, require_extras, usual_scaling
from p2pclust.protocols.engine.job import Job
from p2pclust.protocols.engine.summaries import with_columns
from p2pclust.tools.json_values import plain

_GIVE_UP_S: Final = 120.0
_MOST_PLACED: Final = 200  # peers that are laid out here: springs for more take seconds


@dataclass(frozen=True)
class CheckedRun:
    """A scenario that was checked, with its rows, its jobs, and each peer's columns of the first centers."""

    scenario: Scenario
    shares: Mapping[str, DataSet]
    jobs: Sequence[Job]
    given: Mapping[str, NDArray[np.float64]]

    @property
    def features(self) -> tuple[str, ...]:
        return next(iter(self.shares.values())).feature_names


#: Attacks the jobs of a run, and returns what it found.
Attack = Callable[[CheckedRun, FleetResult], Sequence[AuditedJob]]


def checked_run(scenario: Scenario) -> CheckedRun:
    """Load a scenario's data and make its jobs; refuse what cannot be run."""
    shares = load.load_data(scenario)
    first = next(iter(shares.values()))
    jobs = [load.make_job(scenario, index, first.n_features, first.schema) for index in range(len(scenario.jobs))]
    require_extras(jobs)
    return CheckedRun(scenario, shares, jobs, load.given_centers(scenario, shares))


def carry_out(
    scenario: Scenario, backend_name: str, *, out: Path, on_event: OnEvent | None = None,
    on_end: Callable[[], None] | None = None, name: str = "", backend: Backend | None = None,
    attack: Attack | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Run a scenario, write its output directory, and return the content of ``result.json``.

    `on_event` is called with every event as it happens; `on_end` once, when the fleet is done, before its result is
    measured and the report is drawn. `name` is the name of the scenario in the result, by default its title. `backend`
    replaces the backend of that name. `attack` is called with the finished run; what it found is written to
    ``audit.json`` and shown in the report.

    Raise UsageError or DataError, before anything is started or written, if the backend cannot do what the scenario
    asks for, its data cannot be used, or its protocol needs a package that is not installed.
    """
    load.check_backend(scenario, backend_name)
    backend = backend or backend_called(backend_name)
    run = checked_run(scenario)
    spec = fleet_spec(run)
    folder.prepare(out)
    for stale in folder.left_by_a_run(out):  # it must not be mistaken for a file of this run
        stale.unlink()
    left_out = evaluate.rows_left_out(scenario, run.shares)
    events: list[RunEvent] = []
    with folder.event_log(out / "events.jsonl") as log:

        def keep(event: LogLine) -> None:
            events.append(RunEvent.of(event))
            log(event)
            if on_event is not None:
                on_event(event)

        keep(_scene(run, spec, backend_name, name).event())
        for one in left_out:
            left = {"verb": "rows-left-out", "file": one["file"], "rows": one["rows"]}
            keep({"t": 0.0, "peer": one["device"] or "", **left})
        began = time.monotonic()
        try:
            found = backend.carry_out(spec, keep)
        except FleetError as error:
            # The fleet did not start; the result is still written, with the reason.
            found = FleetResult((), {}, time.monotonic() - began, failure=str(error))
    if on_end is not None:
        on_end()
    evidence = [MeasuredEvidence() for _ in found.jobs]
    title = scenario.title
    measured = {"scenario": name or title, "title": title, "backend": backend_name, "seed": scenario.seed}
    measured |= _result(run, found, evidence, events, left_out)
    judged = [item.to_dict() for item in check(scenario.expect, plain(measured))]
    if scenario.faults:  # a run without a planned fault has not tested what it was meant to test
        struck = not measured["unfired_faults"]
        judged.append({"what": "every planned fault struck", "held": struck, "value": struck})
    measured |= {"expectations": judged, "output": str(out)}
    attacked = () if attack is None else attack(run, found)
    if attack is not None:
        folder.write_json(out / "audit.json", {"attacks": [one for job in attacked for one in job.to_dicts()]})
    return _write(out, run, measured, found, evidence, events, attacked)


def _write(
    out: Path, run: CheckedRun, measured: Mapping[str, Any], found: FleetResult, evidence: Sequence[MeasuredEvidence],
    events: Sequence[RunEvent], attacked: Sequence[AuditedJob],
) -> dict[str, Any]:  # fmt: skip
    """Write all files but the log of events and the audit; return the content of ``result.json``."""
    # Imported here, because they are slow to import and not needed to check a scenario.
    from p2pclust.lab.scenario.page.run_pages import write_run_page  # noqa: PLC0415
    from p2pclust.lab.scenario.page.story import RunStory  # noqa: PLC0415

    folder.write_centers(out, run.features, measured["jobs"])
    for job in measured["jobs"]:
        job.pop("own_centers", None)  # they are in files only
    result: dict[str, Any] = plain(measured)
    folder.write_json(out / "result.json", result)
    folder.write_descriptions(out, run.jobs, found.jobs, run.features)
    folder.write_models(out, run.jobs, found.jobs, run.features)
    folder.write_labels(out, run.jobs, found.jobs, run.shares)
    devices, overlay = run.scenario.fleet.members, load.starting_overlay(run.scenario)
    groups = {device.name: device.group for device in devices}
    strangers = [device.name for device in devices if not device.spec.enrolled]
    write_run_page(
        out, RunStory(result, run.jobs, found, run.shares, groups, strangers, overlay, evidence, events, attacked)
    )
    return result


def fleet_spec(run: CheckedRun) -> FleetSpec:
    """Return what a backend is asked to do.

    Peers are sorted by name, as every job roster is, so that all backends number them alike. The default of `give_up_s`
    covers the patience with a silent peer and half of it again, for the way through others; elections; the longest time
    that a fault or a plan keeps a peer away; and the time of the last change of links, which may join separate parts. It
    is never short, because a round may compute for long, and a fleet that lost its majority gives up earlier by itself.
    """
    scenario, fleet, shares = run.scenario, run.scenario.fleet, run.shares
    rests = make_rests(fleet)
    devices = [(device.name, device.spec) for device in sorted(fleet.members, key=lambda device: device.name)]
    labels, numbers = first_labels(scenario.jobs[0], shares, scenario.seed), own_numbers(scenario.jobs[0], shares)
    suited = {
        name: fitness(mains=spec.mains, cores=spec.cores, up_mbit=None if spec.link is None else spec.link.up)
        for name, spec in devices
    }
    if len(set(suited.values())) == 1:  # the usual fitness, which peers need not publish
        suited = dict.fromkeys(suited, USUAL_FITNESS)
    peers = tuple(
        PeerSpec(
            name, shares[name].X, suited[name], None if spec.link is None else spec.link.shape,
            ids=shares[name].shared_ids, centers=run.given.get(name), labels=labels.get(name),
            n_clusters=numbers.get(name), battery=spec.costs, rest=rests.get(name), cpu_share=spec.cpu_share,
            memory_mb=spec.memory_mb, enrolled=spec.enrolled,
        )
        for name, spec in devices
    )  # fmt: skip
    requests = tuple(
        request_of(spec, secured_fields(spec.protocol, spec.secure, fleet.n_enrolled), job)
        for spec, job in zip(scenario.jobs, run.jobs, strict=True)
    )
    faults = planned(scenario, next(iter(shares.values())).n_features)
    moves, overlay, timing = load.make_moves(scenario), load.starting_overlay(scenario), preset(fleet.timing)
    patience_s = max(request.treatment.patience_s or timing.patience_s for request in requests)
    deadline_s = max(request.treatment.deadline_s for request in requests)
    asleep_s = max(map(longest_sleep_s, rests.values()), default=0.0)
    moved_s = max((move.seconds for move in moves), default=0.0)
    usual_s = 2 * patience_s + deadline_s + 4 * timing.election_max_s + away_s(faults) + asleep_s + moved_s
    return FleetSpec(
        peers, requests, timing=fleet.timing, seed=scenario.seed,
        overlay=None if overlay is None else {name: overlay.neighbours(name) for name in overlay.names},
        partial_view=fleet.overlay.kind == "regular" and len(peers) > LARGE_FLEET, trace=moves, faults=faults,
        give_up_s=fleet.give_up_s or max(_GIVE_UP_S, usual_s),
    )  # fmt: skip


def _result(
    run: CheckedRun, found: FleetResult, evidence: Sequence[MeasuredEvidence], events: Sequence[RunEvent],
    left_out: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:  # fmt: skip
    jobs, shares = run.jobs, run.shares
    entries = [
        evaluate.job_entry(
            job, done, shares, run.given, evaluate.damage_in(found.damage, found.jobs, number), evidence[number]
        )
        for number, (job, done) in enumerate(zip(jobs, found.jobs, strict=False))
    ]
    for entry in entries:
        entry["suspects"] += evaluate.suspects_by_report(events, entry["job"])
    entries += [evaluate.empty_entry(job) for job in jobs[len(entries) :]]
    doubts = [] if jobs[0].by_columns else doubtful(list(shares.values()))
    for entry, spec in zip(entries, run.scenario.jobs, strict=True):
        scaling = run.scenario.data.scaling or usual_scaling(clustering_class(spec.protocol))
        entry["parameters"] |= {"scaling": scaling, "missing": spec.missing}
        entry["doubts"] += doubts
        if not jobs[0].by_columns:
            abstained = entry["abstained"]
            reasons = [{name: with_columns(why, run.features) for name, why in of.items()} for of in abstained]
            entry |= {"abstained": reasons, "failure": with_columns(entry["failure"], run.features)}
    failed = [(f"job {number}: " if len(jobs) > 1 else "") + entry["failure"]
              for number, entry in enumerate(entries, 1) if entry["failure"]]  # fmt: skip
    return {
        "jobs": entries,
        "peers": {
            name: {"finished": False, "lost": None, "n_rows": share.n_rows, **found.peers.get(name, {})}
            for name, share in sorted(shares.items())
        },
        "left_out": list(left_out),
        "reading": [*dict.fromkeys(share.reading for share in shares.values() if share.reading)],
        "traffic": traffic_summary(found.links),
        "wall_seconds": found.wall_seconds,
        "virtual_seconds": found.virtual_seconds,
        "failure": found.failure or (failed[0] if failed else ""),
        "unfired_faults": list(found.unfired_faults),
    }


def _scene(run: CheckedRun, spec: FleetSpec, backend: str, name: str) -> Scene:
    """Return what the log of a run begins with, so that it can be shown again by itself. It holds no value of a row."""
    scenario, overlay = run.scenario, load.starting_overlay(run.scenario)
    groups = {device.name: device.group for device in scenario.fleet.members}
    places, mains = {}, [request.job.protocols[request.job.main] for request in spec.jobs]
    if overlay is not None and overlay.n_peers <= _MOST_PLACED:
        places = {peer: (x, y) for peer, (x, y) in zip(overlay.names, lay_out(overlay).round(4).tolist(), strict=True)}
    return Scene(
        scenario.title or name, f"{len(spec.peers)} peers, {backend}, timing {spec.timing}, seed {spec.seed}",
        {peer.name: groups[peer.name] for peer in spec.peers},
        [[stage.protocol for stage in request.job.stages] for request in spec.jobs],
        [main.ends_below if isinstance(main, Clustering) else 0.0 for main in mains],
        None if overlay is None else list(overlay.links), places, list(run.features),
    )  # fmt: skip
