"""The status of a peer, the fleet and its jobs, as this peer sees them: for operators, metrics and the status page.

It reveals nothing of the data but the numbers of rows and columns.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgpack

from p2pclust.errors import P2PClustError, UsageError
from p2pclust.peer.core.core import Core
from p2pclust.peer.core.document import Document, majority
from p2pclust.peer.core.rounds.job import AggregatedJob
from p2pclust.peer.core.tasks import Ref
from p2pclust.peer.operate.device import kernel_kib, max_rss_mb
from p2pclust.peer.shell.compute import DataStatus
from p2pclust.peer.shell.shell import Shell
from p2pclust.peer.work.floor import Floor
from p2pclust.peer.work.states import bare_state, is_cancelled
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.checks import SCALINGS
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.engine.registry import main_stage
from p2pclust.protocols.engine.summaries import with_names
from p2pclust.transport.links import Counters

if TYPE_CHECKING:
    from p2pclust.peer.core.gossip.job import GossipJob  # peers load it for a job with gossip

    AnyJob = AggregatedJob | GossipJob

#: Phases of ended jobs.
ENDED: Final = ("done", "failed", "cancelled")


@dataclass(frozen=True)
class FleetStatus:
    id: str
    serial: int  # of the fleet roster
    enrolled: int  # with this peer, as the next two
    alive: int
    majority: int


@dataclass(frozen=True)
class MemberStatus:
    name: str
    status: str
    incarnation: int
    address: str
    linked: bool  # whether it is a neighbour of this peer
    heard_s: float | None  # seconds since it was last heard; None: never
    why: str  # why it is not alive, or why nothing can be sent to it straight; else empty
    kernel: str = ""  # the best that it has for passes over its rows; empty if it is not known


@dataclass(frozen=True)
class JobStatus:
    job: str
    name: str  # that commands show: of a repeated job SERIES/TURN
    protocol: str
    clusters: int | None
    roster: tuple[str, ...]
    submitter: str
    missing: str
    collect: str
    within: str  # the job in one of whose rounds it is wanted, or empty
    term: int
    round: int
    #: At the aggregator electing, describing, gathering, combining, closing; at others fetching, computing, following;
    #: where no peer aggregates joining, mixing; and in the end done, failed, cancelled.
    phase: str
    aggregator: str  # empty: none is known
    waits_for: list[str]
    absent: list[str]  # roster peers that are not here
    reason: str  # why it failed, or cannot continue
    #: Peers that this one found something wrong with, in this job, each with the round and the reason.
    suspects: list[tuple[str, int, str]] = field(default_factory=list)
    scaling: str = ""
    verify: str = ""
    #: The parameters of secure sums; empty for a plain job, whose aggregators receive the sums of each peer.
    secured: dict[str, int | str] = field(default_factory=dict)
    #: Of a secured job: the peers about which sums of fewer peers than the cohort can be computed so far.
    exposed: list[str] = field(default_factory=list)
    #: Keepers of pads that report sets which the result leaves out, so that more peers are exposed.
    exposed_by: list[str] = field(default_factory=list)
    # Of a repeated job:
    series: str = ""
    number: int = 0  # of its turn, from 0
    every_s: float = 0.0
    next_s: float | None = None  # until the next turn at the latest, as this peer sees it
    series_cancelled_by: str = ""


@dataclass(frozen=True)
class PeerStatus:
    peer: str
    version: str
    address: str
    incarnation: int
    uptime_s: float
    fleet: FleetStatus
    waiting: str  # one line if fewer than a majority of the enrolled are here, else empty
    members: list[MemberStatus]
    jobs: list[JobStatus]
    data: DataStatus
    privacy: Floor
    counters: Counters
    rss_mb: float
    max_rss_mb: float
    descriptors: int  # that are open; 0 if the system does not report it
    tasks: int  # of the event loop
    kernel: str = ""  # as of a member
    links: list[tuple[str, str]] | None = None  # the working ones that it knows of, each once; None on a full mesh
    twin: str = ""  # one line if another process uses this peer's key, else empty


def snapshot(shell: Shell) -> PeerStatus:
    core, now = shell.core, shell.now
    roster, membership = shell.links.roster, core.membership
    n_alive, n_enrolled = len(membership.alive()), len(membership.members) + 1
    needed = majority(n_enrolled)
    descriptors = tasks = 0
    with suppress(OSError):
        descriptors = len(os.listdir("/proc/self/fd")) - 1  # without the one that lists them
    with suppress(RuntimeError):  # in simulation no loop runs
        tasks = len(asyncio.all_tasks())
    return PeerStatus(
        peer=core.identity.name,
        version=shell.version,
        address=core.identity.address,
        incarnation=membership.incarnation,
        uptime_s=round(now - shell.began_at, 3),
        fleet=FleetStatus(roster.fleet_id, roster.serial, n_enrolled, n_alive, needed),
        waiting=f"{n_alive} of {n_enrolled} enrolled peers are here" if n_alive < needed else "",
        members=[_member(shell, name) for name in membership.members],
        jobs=job_snapshots(shell),
        data=shell.worker.data,
        privacy=shell.worker.floor,
        counters=shell.links.counters,
        rss_mb=round((kernel_kib("VmRSS") or 0.0) / 1024, 1),
        max_rss_mb=round(max_rss_mb(), 1),
        descriptors=descriptors,
        tasks=tasks,
        kernel=core.identity.kernel,
        links=_links(core),
        twin=_twin(core, core.identity.name),
    )


def _twin(core: Core, name: str) -> str:
    addresses = core.membership.twins.addresses(name)
    return f"two processes use the key of {name}, at {' and at '.join(addresses)}: end one of them" if addresses else ""


def _links(core: Core) -> list[tuple[str, str]] | None:
    routing, names = core.routing, (core.identity.name, *core.membership.members)
    if routing.whole:
        return None
    return sorted((name, near) for name in names for near in routing.neighbours_of(name) if name < near)


def _member(shell: Shell, name: str) -> MemberStatus:
    member, heard_at = shell.core.membership.members[name], shell.heard.get(name)
    linked = shell.core.routing.linked(name)
    heard_s = None if heard_at is None else round(shell.now - heard_at, 3)
    return MemberStatus(
        name, member.status, member.incarnation, member.address, linked, heard_s, _why(shell, name),
        shell.core.kernel_of(name),
    )  # fmt: skip


def _why(shell: Shell, name: str) -> str:
    """Return why a member is not alive, or cannot be reached directly; empty if all is well."""
    core, member, routing = shell.core, shell.core.membership.members[name], shell.core.routing
    since = f"{shell.now - member.changed_at:.0f} s ago"
    match member.status:
        case _ if twin := _twin(core, name):
            return twin
        case status if status not in ("alive", "left") and name in shell.allow_list.outdated:
            return "it uses revoked keys: copy its new bundle to it"
        case "alive" if not routing.linked(name):
            hop = routing.hop(name)
            why = f"not a neighbour: reached through {hop}" if hop else "not a neighbour, and no route to it is known"
        case "alive" if name in routing.broken:
            why = f"does not answer over its link: reached through {routing.hop(name)}"
        case "alive":
            problem, via = shell.links.problem_with(name), core.way_to(name)
            why = f"{problem}; it is heard through {via}" if problem and via else problem
        case "unknown" if not member.address:
            why = "its address is not known yet: name it in join, or wait until it connects"
        case "unknown":
            why = f"no answer from {member.address} yet (is it running there, and on the newest fleet roster?)"
        case "suspect":
            others = [*dict.fromkeys([member.suspected_by, *member.confirmed_by])]
            why = f"silent, suspected by {', '.join(filter(None, others)) or 'others'} {since}"
        case "left":
            why = f"it left {since}"
        case _ if member.refused_by:
            why = f"its port refused to connect, as {', '.join(member.refused_by)} saw {since}"
        case _:
            why = f"silent, declared dead {since}"
    return why


def job_snapshots(shell: Shell) -> list[JobStatus]:
    """Return the status of this peer's jobs, without censuses, which only agree on the next turn."""
    return [job_snapshot(shell, job_id) for job_id, job in shell.core.jobs.jobs.items() if not job.document.census]


def job_snapshot(shell: Shell, job_id: str) -> JobStatus:
    job = shell.core.jobs.jobs[job_id]
    document, roster = job.document, job.document.roster
    phase, aggregator, waits_for = job.standing()
    outcome = _outcome(shell, job)
    absent = [name for name in roster if not shell.core.membership.present(name)]
    n_here, needed = len(roster) - len(absent), majority(len(roster))
    reason = ""
    if phase == "finished":
        phase, reason = outcome.phase, with_names(outcome.reason, roster)
    elif n_here < needed:
        reason = f"waiting: {n_here} of {len(roster)} peers are here, {needed} are needed"
    protocol, clusters, scaling = _mathematics(document.mathematics)
    treatment, turn, until = document.treatment, document.turn, shell.core.jobs.series.waits_until.get(job_id)
    repeated: dict[str, Any] = {} if turn is None or document.census else {
        "series": turn.series, "number": turn.number, "every_s": treatment.every_s,
        "next_s": None if until is None else round(max(0.0, until - shell.now), 3),
        "series_cancelled_by": shell.core.jobs.cancels.by(turn.series),
    }  # fmt: skip
    return JobStatus(
        job_id, name_of(document), protocol, clusters, roster, document.submitter, treatment.missing, treatment.collect,
        document.parent, job.ledger.term, job.ledger.register.round, phase, aggregator, waits_for, absent, reason,
        [(peer, *found) for peer, found in job.suspicions.items()], scaling, treatment.verify,
        asdict(treatment.secure_sums) if treatment.secure else {},
        *_exposed(job, outcome), **repeated,
    )  # fmt: skip


@lru_cache(maxsize=64)
def _mathematics(data: bytes) -> tuple[str, int | None, str]:
    """Return the protocol, the number of clusters and the scaling of a job, without importing the protocol."""
    try:
        stages = msgpack.unpackb(data, raw=False, strict_map_key=True)["stages"]
        asked_for = stages[main_stage([stage["protocol"] for stage in stages])]
        clusters = asked_for.get("parameters", {}).get("n_clusters")
        scaling = next((stage["protocol"] for stage in stages if stage["protocol"] in SCALINGS), "")
        scaling = scaling or str(asked_for.get("parameters", {}).get("scaling", ""))
        return str(asked_for["protocol"]), clusters if isinstance(clusters, int) else None, scaling
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError, msgpack.UnpackException):
        return "unknown", None, ""  # for example of another version


def _exposed(job: AnyJob, outcome: Ending) -> tuple[list[str], list[str]]:
    if outcome.state is None or not isinstance(job, AggregatedJob):
        return [], []
    from p2pclust.protocols.engine.secure_rounds import exposed_peers  # noqa: PLC0415 - of jobs with secure sums only

    roster, named = job.document.roster, exposed_peers(outcome.state)
    reports = job.notes.by_keeper() if job.ledger.finished else {}
    every = exposed_peers(outcome.state, [one for sets in reports.values() for one in sets])
    by = [name for name, sets in reports.items() if set(exposed_peers(outcome.state, sets)) - set(named)]
    return [roster[peer] for peer in every if peer < len(roster)], by


@dataclass(frozen=True)
class Ending:
    """The end of a job, or how far it is, as a state has it."""

    phase: str  # done, failed or cancelled; of a state that is not final "running"
    reason: str = ""
    state: JobState | None = None  # of a job with secure sums: what it revealed


def _outcome(shell: Shell, job: AnyJob) -> Ending:
    """Return the outcome of a job, as its newest state has it; cached, because a state may be large."""
    ref = job.ledger.register.ref
    if ref is None:
        return Ending("running")
    known = shell.outcomes.get(job.id)
    if known is None or known[0] != ref.digest:
        known = (ref.digest, outcome_of(ref, shell.store.blobs.read))
        jobs = shell.core.jobs.jobs  # those of deleted jobs go
        shell.outcomes = {name: kept for name, kept in shell.outcomes.items() if name in jobs} | {job.id: known}
    return known[1]


def outcome_of(ref: Ref, read: Callable[[bytes], Iterator[bytes]]) -> Ending:
    try:
        state = bare_state(ref, read)
    except P2PClustError as error:
        return Ending("failed", f"its final state cannot be read here: {error}")
    bare = None if state.secured is None else replace(state, arrays=Arrays(), log=(), proof=b"")
    return Ending("cancelled" if is_cancelled(state) else state.status, state.reason, bare)


def name_of(document: Document) -> str:
    turn = document.turn
    return document.id if turn is None else f"{turn.series}/{turn.number + 1}"


def find(jobs: Mapping[str, AnyJob], named: str, peer: str, *, ended: bool) -> AnyJob:
    """Return the job of this peer with that name, or the only one whose name begins with it, or raise UsageError.

    A series without a turn means its newest turn that has `ended`, or else the running turn, or else the newest.
    """
    shown = {job_id: job for job_id, job in jobs.items() if not job.document.census}
    if named in shown:
        return shown[named]
    beginning, slash, number = named.partition("/")
    series: dict[str, dict[int, AnyJob]] = {}
    for job in shown.values():
        turn = job.document.turn if beginning.removeprefix("series-") else None
        if turn is not None and turn.series.startswith((beginning, f"series-{beginning}")):
            series.setdefault(turn.series, {})[turn.number] = job
    only = next(iter(series.values())) if len(series) == 1 else None
    turns = series.get(beginning) or series.get(f"series-{beginning}") or only
    if turns is not None and not slash:
        return turns[max([number for number, job in turns.items() if job.ledger.finished is ended] or turns)]
    if turns is not None:
        if not re.fullmatch(r"[1-9]\d{0,17}", number):
            raise UsageError(f"{named!r:.80}: expected the number of a turn after the slash, from 1")
        wanted = int(number) - 1
        if wanted in turns:
            return turns[wanted]
        kept = "is no longer kept: of a series a peer keeps the last two turns"
        why = "has not begun" if wanted > max(turns) else kept
        there = " and ".join(f"turn {number + 1}" for number in sorted(turns))
        raise UsageError(f"turn {number} of {beginning:.80} {why}; {peer} has {there}")
    begins = named.removeprefix("job-")
    found = [job for job_id, job in shown.items() if named and job_id.removeprefix("job-").startswith(begins)]
    if len(found) != 1:
        why = "knows several jobs of that name" if found else "does not know the job"
        raise UsageError(f"{peer} {why}: {named!r:.80}: `p2pclust jobs` lists what it knows")
    return found[0]
