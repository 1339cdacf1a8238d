"""The kinds of jobs of a random fleet: how each is submitted, and what its end must be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from p2pclust.lab.simulation.checks.groups import judge_labels, judge_leftovers
from p2pclust.lab.simulation.fleets.plan import FOR_EVER, JobPlan
from p2pclust.lab.simulation.swarms.fedcref import SETTLE_S, tiny_job
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.reasons import CANCELLED
from p2pclust.protocols.engine.runner import replay
from p2pclust.protocols.engine.wire import decode_state

if TYPE_CHECKING:
    from p2pclust.lab.simulation.fleets.drawn import DrawnJob
    from p2pclust.lab.simulation.fleets.fleet import RandomFleet

_MANY: Final = 10**6
#: What a tolerance of 1e-9 may grow to in five rounds of a clustering.
_APART: Final = 1e-5
_EVERY_S: Final = 4.0


@dataclass(frozen=True)
class JobKind:
    """One kind of job.

    Parameters
    ----------
    job : callable
        From a plan and a seed.
    treatment : callable
        From a plan and the number of peers.
    judge : callable
        Checks the result of a job that is done.
    least_peers, most_peers : int
    missing : str
        The only one that is possible; empty: any.
    waits : callable
        From a plan, the number of peers, and how many are healed: whether the job may wait for one that is not.
    deadline_s : float
        Within so many virtual seconds after healing it ends, with the timing `fast`.
    data : {"rows", "columns", "labelled"}
        What peers must hold: rows, columns of the same rows, or rows with labels.
    repeated : bool
        Whether it is a series.
    """

    job: Callable[[JobPlan, int], Job]
    treatment: Callable[[JobPlan, int], Treatment]
    judge: Callable[[RandomFleet, DrawnJob, JobState], None]
    least_peers: int = 1
    most_peers: int = _MANY
    missing: str = ""
    waits: Callable[[JobPlan, int, int], bool] = lambda plan, n, healed: False
    deadline_s: float = 120.0
    data: str = "rows"
    repeated: bool = False


def _off(plan: JobPlan) -> dict[str, Any]:
    return {{"llf-fcm": "privacy_gate", "llf-cm": "suppress_singletons"}[plan.protocol]: False}


def _plain_job(plan: JobPlan, seed: int) -> Job:
    init = ("uniform", "random", "split-merge")[seed % 3]
    return cluster_job(plan.protocol, n_clusters=3, init=init, tol=0.0, max_rounds=plan.rounds, seed=seed, **_off(plan))


def _secured_job(plan: JobPlan, seed: int) -> Job:
    init = ("uniform", "split-merge")[seed % 2]
    return cluster_job(
        plan.protocol, n_clusters=3, init=init, tol=0.0, max_rounds=4, seed=seed, secure=True, **_off(plan)
    )  # fmt: skip


def _vertical_job(plan: JobPlan, seed: int) -> Job:
    protocol = {"llf-cm": "vertical-cm", "llf-fcm": "vertical-fcm"}[plan.protocol]
    return cluster_job(protocol, n_clusters=2, tol=0.0, max_rounds=3, seed=seed, scaling="minmax")


def _fedcref_job(plan: JobPlan, seed: int) -> Job:
    return tiny_job(("refined", "refined", "paper")[seed % 3], seed)


def _plain(plan: JobPlan, n: int) -> Treatment:
    deadline_s = plan.deadline_s if plan.missing == "drop" else 0.0
    return Treatment(plan.missing, 0.0, deadline_s, collect=plan.collect)


def _secured(plan: JobPlan, n: int) -> Treatment:
    cohort, keepers = max(3, min(4, n - 1)), min(3, n)
    return replace(
        _plain(plan, n), secure=True, keepers=keepers, cohort=cohort,
        burnt="record" if plan.by % 2 else "groups", leave="alone",
    )  # fmt: skip


def _secured_waits(plan: JobPlan, n: int, healed: int) -> bool:
    """With groups, a peer of a set that was revealed is waited for by name."""
    treatment = _secured(plan, n)
    return treatment.burnt == "groups" or healed < max(treatment.cohort, treatment.keepers + 1)


def _needs_all(plan: JobPlan, n: int, healed: int) -> bool:
    return True


def _verified(plan: JobPlan, n: int) -> Treatment:
    return replace(_plain(plan, n), verify="all", collect="star")


def _gossip(plan: JobPlan, n: int) -> Treatment:
    return Treatment(plan.missing, collect="gossip", gossip_tolerance=1e-9, mixing="push-sum")


def _fedcref(plan: JobPlan, n: int) -> Treatment:
    return replace(_plain(plan, n), deadline_s=20.0 if plan.missing == "drop" else 0.0, collect="star")


def _series(plan: JobPlan, n: int) -> Treatment:
    return Treatment(plan.missing, collect=plan.collect, every_s=_EVERY_S)


# -- verdicts ------------------------------------------------------------------------------------------------------------


def _same_bits(fleet: RandomFleet, job: DrawnJob, state: JobState) -> None:
    again = replay(job.job, [fleet.locals[name] for name in job.roster], state.log)
    assert again.encode() == state.plain().encode(), f"S5: {job.id}: the bits are not those of the in-process replay"


def _nearly(fleet: RandomFleet, job: DrawnJob, state: JobState) -> None:
    again = replay(job.job, [fleet.locals[name] for name in job.roster], state.log)
    assert again.log == state.log, f"S5: {job.id}: the replay has another log"
    apart = float(np.abs(again.arrays["centers"] - state.arrays["centers"]).max())
    assert apart <= _APART * float(np.max(state.arrays["unit"])), f"S5: {job.id}: {apart} from the replay's centers"


def _groups(fleet: RandomFleet, job: DrawnJob, state: JobState) -> None:
    """Judge FedCRef: which groups have a model depends on who was present in a job within, and no log has that."""
    decode_state(job.job, state.encode())  # raises if others could not read it
    fleet.world.run_until(fleet.world.now + SETTLE_S)
    wanted = [one.id for one in fleet.jobs]
    for name in fleet.core():
        peer = fleet.world.peers[name]
        if not any(one.plan.kind == "series" for one in fleet.jobs):
            judge_leftovers(peer, wanted)
        if name in job.roster:
            judge_labels(fleet.world, peer, job.id, job.job, state, job.roster)


def failure_is_right(fleet: RandomFleet, job: DrawnJob, state: JobState) -> bool:
    """Return whether a job may have ended without a result."""
    if state.reason.startswith(CANCELLED):
        by = state.reason.removeprefix(CANCELLED)
        asked = job.plan.cancel_at_s < FOR_EVER and by.startswith("admin")
        return asked or by.startswith("the revocation of ")
    lost = [name for name in job.roster if name in fleet.lost]
    return job.plan.kind == "secured" and state.reason.startswith("secure sums: ") and bool(lost)


KINDS: Final[dict[str, JobKind]] = {
    "plain": JobKind(_plain_job, _plain, _same_bits),
    "secured": JobKind(
        _secured_job, _secured, _same_bits, least_peers=4, most_peers=25, deadline_s=480.0,
        waits=_secured_waits,
    ),
    "verified": JobKind(_plain_job, _verified, _same_bits, most_peers=25, deadline_s=600.0),
    "gossip": JobKind(_plain_job, _gossip, _nearly, missing="wait", most_peers=9, waits=_needs_all),
    "vertical": JobKind(
        _vertical_job, _plain, _same_bits, least_peers=2, most_peers=9, missing="all", waits=_needs_all, data="columns"
    ),
    "fedcref": JobKind(_fedcref_job, _fedcref, _groups, least_peers=2, most_peers=9, deadline_s=300.0, data="labelled"),
    "series": JobKind(_plain_job, _series, _same_bits, missing="wait", most_peers=25, deadline_s=300.0, repeated=True),
}  # fmt: skip
