"""Hand a job in at a running peer, and get its result: what the commands for operators are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgpack
import numpy as np

from p2pclust.errors import FleetError, UsageError, WireError
from p2pclust.fleet.hosts.client import Connection
from p2pclust.fleet.spec import JobRequest
from p2pclust.protocols.engine import engine, summaries
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.workspace import digest_of

__all__ = ["FinishedJob", "drift", "fetch", "result_of", "submit"]


def submit(
    door: Connection, request: JobRequest, roster: tuple[str, ...] = (), within_s: float = 60.0,
    on_submitted: Callable[[str, list[str]], None] = lambda named, roster: None, *, every_s: float = 0.0,
) -> str:  # fmt: skip
    """Hand in a job and return its id, or that of its series if it is repeated, when a majority has the document on disk.

    Parameters
    ----------
    door : Connection
    request : JobRequest
    roster : tuple of str
        By default, whoever is alive.
    within_s : float
        How long the fleet may take.
    on_submitted : callable
        Told the id and the roster as soon as these are known.
    every_s : float
        If above 0, the job is done again so long after each end, from the centers that it ended with.

    Raises
    ------
    UsageError, FleetError
        If the peer refuses, or no majority has the job in time; it may be done all the same, if it was told at all.
    """
    fields = {
        "mathematics": msgpack.packb(request.job.to_dict()), "roster": list(roster), "missing": request.missing,
        "patience_s": request.patience_s, "deadline_s": request.deadline_s, "aggregator": request.aggregator,
        "collect": request.collect, "tolerance": request.tolerance, "mixing": request.mixing, "ticks": request.ticks,
        "every_s": every_s,
    }  # fmt: skip
    job_id = ""
    for answer in door.follow("submit", within_s=within_s, **fields):
        job_id = str(job_id or answer.get("series") or answer["job"])  # only the first answer has both
        if answer["accepted"]:
            return job_id
        on_submitted(job_id, answer["roster"])
    if not job_id:
        raise FleetError(
            f"the peer at {door.address} did not hand the job in within {within_s:g} s: nothing is known of it"
        )
    raise FleetError(
        f"{job_id} is handed in, but after {within_s:g} s no majority of its roster has it on disk: it goes on being told, "
        f"and begins when enough are there; look with `p2pclust watch {job_id}`"
    )


def fetch(door: Connection, job_id: str, what: str, digest: bytes = b"") -> bytes:
    """Read something large, part by part.

    Raises
    ------
    FleetError
        If the bytes are not those of the digest.
    """
    data = b"".join(_parts(door, job_id, what, digest))
    if digest and digest_of(data) != digest:
        raise FleetError(f"{job_id}: the {what} came damaged, or changed meanwhile: ask again")
    return data


def _parts(door: Connection, job_id: str, what: str, digest: bytes) -> Iterator[bytes]:
    asked: dict[str, Any] = {"digest": digest} if what == "blob" else {}
    for part in range(1 << 20):
        answer = door.ask("read", job=job_id, what=what, part=part, **asked)
        yield answer["data"]
        if answer["last"]:
            return


@dataclass(frozen=True)
class FinishedJob:
    """A job that was done, with all that came of it at one peer."""

    job_id: str
    told: dict[str, Any]  # the answer to `job`
    job: Job
    state: JobState
    blobs: dict[bytes, bytes] = field(default_factory=dict, repr=False)  # of the result, as far as that peer has them
    note: Arrays = field(default_factory=Arrays, repr=False)  # what it keeps for itself, if asked on its device

    @property
    def features(self) -> list[str]:
        """The names of the columns, as that peer's data have them; ``x1``, ``x2``, ... where it has no names."""
        n_features = self.state.arrays["origin"].size if "origin" in self.state.arrays else 0
        names = list(self.told["features"])
        return names if len(names) == n_features else [f"x{number}" for number in range(1, n_features + 1)]

    def named(self, peers: Any) -> list[str]:
        """Return the names of roster indices."""
        return [self.told["roster"][peer] for peer in peers]


def drift(found: FinishedJob) -> dict[str, Any] | None:
    """Return how far the centers of a repeated job moved since the turn before, in the data's own units.

    Returns
    -------
    dict or None
        ``each``: of each center, from the one that it is matched with; ``frobenius``: of all of them together. Centers are
        matched so that the sum of squares is the least. None for a first turn.
    """
    from scipy.optimize import linear_sum_assignment  # noqa: PLC0415

    if not found.told["number"] or "centers" not in found.state.arrays:
        return None
    given = next((s.parameters["centers"] for s in found.job.stages if s.parameters.get("init") == "given"), None)
    centers = summaries.raw_centers(found.state)
    if given is None or np.shape(given) != centers.shape:
        return None
    squared = ((np.array(given)[:, None, :] - centers[None, :, :]) ** 2).sum(axis=2)
    before, now = linear_sum_assignment(squared)
    moved = np.sqrt(squared[before, now][np.argsort(now)])
    return {"frobenius": float(np.sqrt((moved**2).sum())), "each": moved.tolist()}


def result_of(door: Connection, job_id: str, *, own: bool = False) -> FinishedJob:
    """Return what came of a job.

    Parameters
    ----------
    door : Connection
    job_id : str
        Or the beginning of one.
    own : bool
        Ask also for what the peer keeps for itself; it says so on its own device only.

    Raises
    ------
    FleetError
        If the job has not ended, failed, or was cancelled, with why.
    UsageError
        If the peer does not know it.
    """
    told = door.ask("job", job=job_id)
    job_id, named = told["job"], told.get("name", told["job"])
    if not told["finished"]:
        raise FleetError(
            f"{named} has not ended: {told['phase']}, round {told['round']}; `p2pclust watch {named}` waits"
        )
    if told["phase"] != "done":
        raise FleetError(f"{named}: {told['reason'] or told['phase']}")
    try:
        job = Job.from_dict(msgpack.unpackb(told["mathematics"], raw=False, strict_map_key=True))
        state = engine.decode_state(job, fetch(door, job_id, "state", told["digest"]))
        blobs = {digest: fetch(door, job_id, "blob", digest) for digest in engine.results(job, state)}
        note = Arrays.decode(fetch(door, job_id, "note") or Arrays().encode()) if own and job.at_desk else Arrays()
        for digest in job.protocols[-1].own_results(state.arrays, note) if note else ():
            with suppress(UsageError):  # its disk has it no more: the peer concludes without it, too
                blobs[digest] = fetch(door, job_id, "blob", digest)
    except WireError as error:
        raise FleetError(f"{job_id}: its result cannot be read here: {error}") from None
    return FinishedJob(job_id, told, job, state, blobs, note)
