"""Submit a job to a running peer, and read its result, for the commands of operators."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgpack
import numpy as np

from p2pclust.errors import FleetError, UsageError, WireError
from p2pclust.hosts.client import Connection
from p2pclust.jobs.request import JobRequest
from p2pclust.peer.work.floor import Floor
from p2pclust.protocols.engine import engine, summaries
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.wire import decode_state
from p2pclust.protocols.engine.workspace import digest_of
from p2pclust.protocols.models.linkage import cheapest_matching
from p2pclust.tools.spelling import command


def submit(
    client: Connection, request: JobRequest, roster: tuple[str, ...] = (), within_s: float = 60.0,
    on_submitted: Callable[[str, list[str]], None] = lambda named, roster: None, request_id: str = "",
) -> str:  # fmt: skip
    """Submit a job; return its id (of a repeated job, its series') when a majority has the document on disk.

    `on_submitted` receives the id and the roster as soon as these are known. After a lost answer, the same peer answers the
    same `request_id` with the same job. Raise FleetError if no majority has the job in time; it may still be done later.
    """
    mathematics, treatment = msgpack.packb(request.job.to_dict()), request.treatment.to_dict()
    fields: dict[str, Any] = {"mathematics": mathematics, "roster": list(roster), "id": request_id, **treatment}
    job_id = ""
    for answer in client.follow("submit", within_s=within_s, **fields):
        job_id = str(job_id or answer.get("series") or answer["job"])  # only the first answer has both
        if answer["accepted"]:
            return job_id
        on_submitted(job_id, answer["roster"])
    if not job_id:
        raise FleetError(f"the peer at {client.address} did not submit the job within {within_s:g} s")
    raise FleetError(
        f"{job_id} is submitted, but after {within_s:g} s no majority of its roster has it on disk: the peers keep "
        f"spreading it, and it starts when enough peers are there; see `{command('p2pclust', 'watch', job_id)}`"
    )


def n_features_at(client: Connection) -> int:
    """Return the number of features of the peer's rows."""
    answer = client.ask("status")
    if not answer["data"]["columns"]:
        why = f"one pair of bounds is for all features, and {answer['peer']} has no rows that can be used"
        raise FleetError(f"submit: {why}: write a pair for each feature, or ask another peer")
    return int(answer["data"]["columns"])


def alive_at(client: Connection) -> tuple[str, ...]:
    """Return the peers that take part in a job that names no roster."""
    answer = client.ask("status")
    return (answer["peer"], *(one["name"] for one in answer["members"] if one["status"] == "alive"))


def problem_with_floor(client: Connection, request: JobRequest, n_peers: int) -> str:
    """Return in one line why the peer that is asked will contribute nothing to a job, or an empty string."""
    answer, treatment = client.ask("status"), request.treatment
    asks = answer.get("privacy", {})
    floor = Floor(**{**asks, "protocols": tuple(asks.get("protocols", ()))})
    secure = treatment.secured_for(n_peers).secure_sums if treatment.secure else None
    problem = floor.problem_with(request.job, secure, answer["data"]["rows"])
    return (
        f"{answer['peer']} will contribute nothing, nor will devices with the same [privacy]: {problem}"
        if problem
        else ""
    )


def with_common_kernel(client: Connection, request: JobRequest, roster: tuple[str, ...] = ()) -> JobRequest:
    """Return the request with the best kernel that all peers have; later turns may have any peer of the fleet."""
    answer = client.ask("status")
    every = bool(roster) or request.treatment.every_s > 0
    kernels = {answer["peer"]: answer["kernel"]}
    kernels |= {one["name"]: one["kernel"] for one in answer["members"] if every or one["status"] == "alive"}
    job = request.job.with_common_kernel([kernels.get(name, "") for name in roster or kernels])
    return replace(request, job=job)


def fetch(client: Connection, job_id: str, what: str, digest: bytes = b"") -> bytes:
    """Read a large object, part by part. Raise FleetError if the bytes do not have this digest."""
    asked: dict[str, Any] = {"digest": digest} if what == "blob" else {}
    parts: list[bytes] = []
    answer: dict[str, Any] = {"last": False}
    while not answer["last"]:
        answer = client.ask("read", job=job_id, what=what, part=len(parts), **asked)
        parts.append(answer["data"])
    data = b"".join(parts)
    if digest and digest_of(data) != digest:
        raise FleetError(f"{job_id}: the {what} arrived damaged, or changed meanwhile: try again")
    return data


@dataclass(frozen=True)
class FinishedJob:
    """A finished job, with its result at one peer."""

    job_id: str
    told: dict[str, Any]  # the answer to `job`
    job: Job
    state: JobState
    blobs: dict[bytes, bytes] = field(default_factory=dict, repr=False)  # those of the result that this peer has
    note: Arrays = field(default_factory=Arrays, repr=False)  # what the peer keeps for itself; read on its device only

    @property
    def features(self) -> list[str]:
        """The names of the columns in the peer's data; ``x1``, ``x2``, ... where it has none."""
        n_features = self.state.arrays["origin"].size if "origin" in self.state.arrays else 0
        names = list(self.told["features"])
        return names if len(names) == n_features else [f"x{number}" for number in range(1, n_features + 1)]

    def named(self, peers: Any) -> list[str]:
        return [self.told["roster"][peer] for peer in peers]

    def to_bytes(self) -> bytes:
        """Return the job, its last state and the names of the columns, for a file that labels other rows."""
        fields = {"job": self.job_id, "features": self.features, "mathematics": self.job.to_dict()}
        return bytes(msgpack.packb(fields | {"state": self.state.encode()}))

    @classmethod
    def from_file(cls, file: Path) -> FinishedJob:
        """Read what :meth:`to_bytes` returned; raise UsageError if the file holds something else."""
        try:
            fields = msgpack.unpackb(file.read_bytes(), raw=False, strict_map_key=True)
            job = Job.from_dict(fields["mathematics"])
            told = {"features": [str(name) for name in fields["features"]], "roster": [], "number": 0}
            return cls(str(fields["job"]), told, job, decode_state(job, fields["state"]))
        except OSError as error:
            raise UsageError(f"{file}: cannot be read ({error.strerror}): is it in the folder of a run?") from None
        except (WireError, ValueError, TypeError, KeyError, msgpack.UnpackException) as error:
            raise UsageError(f"{file}: not the result of a run of this version ({error}): run it again") from None


def drift(found: FinishedJob) -> dict[str, Any] | None:
    """Return how far the centers of a repeated job moved since the previous turn; None for a first turn.

    ``features`` has the largest move of any center in each feature, by name, as a fraction of what ``of`` says; ``each`` the
    largest of each center; ``largest`` of them all. Centers are matched so that the sum of squared fractions is the least.
    """
    if not found.told["number"] or "centers" not in found.state.arrays:
        return None
    given = next((s.parameters["centers"] for s in found.job.stages if s.parameters.get("init") == "given"), None)
    centers = summaries.raw_centers(found.state)
    if given is None or np.shape(given) != centers.shape:
        return None
    width, of = summaries.widths(found.state)
    apart = (np.array(given)[:, None, :] - centers[None, :, :]) / width
    squared = (apart**2).sum(axis=2)
    # The matching wants whole numbers; 53 bits keep what a float has.
    costs = np.rint(squared.T / (squared.max() or 1.0) * 2.0**53).astype(np.int64).tolist()
    moved = np.abs(apart[cheapest_matching(costs), np.arange(len(centers))])
    features = dict(zip(found.features, moved.max(axis=0).tolist(), strict=True))
    return {"of": of, "largest": float(moved.max()), "features": features, "each": moved.max(axis=1).tolist()}


def result_of(client: Connection, job_id: str, *, own: bool = False) -> FinishedJob:
    """Return the result of a finished job, named by its id or the beginning of it.

    With `own`, also read what the peer keeps for itself; possible on its own device only.
    """
    told = client.ask("job", job=job_id)
    job_id, named = told["job"], told.get("name", told["job"])
    if not told["finished"]:
        raise FleetError(
            f"{named} has not ended: {told['phase']}, round {told['round']}; `{command('p2pclust', 'watch', named)}` waits"
        )
    if told["phase"] != "done":
        exposed = f"; exposed: {', '.join(told['exposed'])}" if told["exposed"] else ""
        raise FleetError(f"{named}: {told['reason'] or told['phase']}{exposed}")
    try:
        job = Job.from_dict(msgpack.unpackb(told["mathematics"], raw=False, strict_map_key=True))
        state = decode_state(job, fetch(client, job_id, "state", told["digest"]))
        blobs = {digest: fetch(client, job_id, "blob", digest) for digest in engine.results(job, state)}
        data = fetch(client, job_id, "note") if own and job.has_workspace else b""
        note = Arrays.decode(data) if data else Arrays()
        for digest in engine.own_results(job, state, note) if note else ():
            with suppress(UsageError):  # its disk has it no more: the peer concludes without it, too
                blobs[digest] = fetch(client, job_id, "blob", digest)
    except WireError as error:
        raise FleetError(f"{job_id}: its result cannot be read by this version: {error}") from None
    return FinishedJob(job_id, told, job, state, blobs, note)
