"""The reference backend: the same job in this process, through the same engine and the same grid."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from p2pclust.fleet.record import Record
from p2pclust.fleet.spec import FleetResult, FleetSpec, JobResult, OnEvent
from p2pclust.protocols.engine import last_shift
from p2pclust.protocols.job import JobState
from p2pclust.protocols.office import Office
from p2pclust.protocols.runner import run_in_process
from p2pclust.protocols.verbs import digest_of

__all__ = ["carry_out"]


def carry_out(spec: FleetSpec, on_event: OnEvent) -> FleetResult:
    """Run all jobs of the spec one after another; there are no peers, so there are no faults either."""
    began = time.monotonic()
    peers = sorted(spec.peers, key=lambda peer: peer.name)
    names = tuple(peer.name for peer in peers)
    record, results = Record(on_event), []
    for number, request in enumerate(spec.jobs):
        start, job_id = time.monotonic(), f"job-{number}"
        record.take(start - began, "", "submitted", {"job": job_id, "roster": names})
        centers: list[NDArray[np.float64]] = []

        by_columns = request.job.by_columns

        def told(
            state: JobState, job_id: str = job_id, centers: list[NDArray[np.float64]] = centers,
            by_columns: bool = by_columns,
        ) -> None:  # fmt: skip
            fields: dict[str, object] = {"job": job_id, "term": 0, "round": state.round - 1, "stage": state.stage}
            fields |= {"status": state.status, "contributors": [names[i] for i in state.log[-1].contributors]}
            if "centers" in state.arrays:
                centers.append(state.arrays["centers"])
                if len(centers) > 1:
                    fields["shift"] = float(np.linalg.norm(centers[-1] - centers[-2]))
            elif by_columns and (shift := last_shift(state)) is not None:
                fields |= {"shift": shift, "moved": "distances"}
            record.take(time.monotonic() - began, "", "combined", fields)

        office = Office()
        state = run_in_process(request.job, [peer.local() for peer in peers], told, office)
        digests = dict.fromkeys(names, digest_of(state.encode()).hex())
        notes = {names[index]: note for index, note in sorted(office.notes.items())}
        results.append(JobResult(job_id, names, state, (), digests, time.monotonic() - start, notes))
    nothing = {"messages_sent": 0, "messages_received": 0, "bytes_sent": 0, "bytes_received": 0, "max_rss_mb": None}
    told_peers = {name: {"finished": True, "lost": False, **nothing} for name in names}
    return FleetResult(
        tuple(results), told_peers, time.monotonic() - began, None, "", (), len(record.events), tuple(record.events)
    )
