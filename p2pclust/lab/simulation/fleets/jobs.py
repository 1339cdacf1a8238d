"""The kinds of jobs of a random fleet: how each is submitted, and what its end must be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from p2pclust.lab.simulation.checks.groups import judge_labels, judge_leftovers
from p2pclust.lab.simulation.fleets.plan import JobPlan
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job, JobState, Stage
from p2pclust.protocols.engine.reasons import CANCELLED, LEFT_OUT, NEW_KEYS
from p2pclust.protocols.engine.runner import replay
from p2pclust.protocols.engine.wire import decode_state
from p2pclust.protocols.gossip.push_sum import MIXINGS
from p2pclust.protocols.models.fedcref_agreed import Agreed

if TYPE_CHECKING:
    from p2pclust.lab.simulation.fleets.drawn import DrawnJob
    from p2pclust.lab.simulation.fleets.fleet import RandomFleet

_MANY: Final = 10**6
#: What a tolerance of 1e-9 may grow to in five rounds of a clustering.
_APART: Final = 1e-5
_EVERY_S: Final = 4.0
_GROUPS: Final = 3
#: After all peers have ended a FedCRef job, the last of them has by then dropped what it need not keep.
_SETTLE_S: Final = 5.0
N_FEATURES: Final = 6
#: Workers forget the keys of a job that has ended, and compare the result with what their peers know.
_KEYS_FORGOTTEN_S: Final = 120.0


@dataclass(frozen=True)
class JobKind:
    """One kind of job: its mathematics, from a plan and a seed; how it is treated, from a plan and the number of peers;
    and what its end must be."""

    job: Callable[[JobPlan, int], Job]
    treatment: Callable[[JobPlan, int], Treatment]
    judge: Callable[[RandomFleet, DrawnJob, JobState], None]
    least_peers: int = 1
    most_peers: int = _MANY
    missing: tuple[str, ...] = ()  # those that are possible, the usual one first; empty: any
    #: From a plan, the number of peers, and how many are healed: whether the job may wait for one that is not.
    waits: Callable[[JobPlan, int, int], bool] = lambda plan, n, healed: False
    deadline_s: float = 120.0  # within so many virtual seconds after healing it ends, with the timing `fast`
    data: str = "rows"  # what peers must hold: "rows", "columns" of the same rows, or "labelled" rows
    repeated: bool = False  # whether it is a series
    only_named: bool = False  # whether only swarms that name it draw it


def _off(plan: JobPlan) -> dict[str, Any]:
    return {{"llf-fcm": "privacy_gate", "llf-cm": "suppress_singletons"}[plan.protocol]: False}


def _plain_job(plan: JobPlan, seed: int) -> Job:
    init = ("uniform", "random", "split-merge")[seed % 3]
    return cluster_job(
        plan.protocol, n_clusters=3, init=init, tol=0.0, max_rounds=plan.rounds, seed=seed,
        participation=plan.participation, **_off(plan),
    )  # fmt: skip


def _secured_job(plan: JobPlan, seed: int) -> Job:
    init = ("uniform", "split-merge")[seed % 2]
    return cluster_job(
        plan.protocol, n_clusters=3, init=init, tol=0.0, max_rounds=4, seed=seed, secure=True, n_init=plan.n_init,
        **_off(plan),
    )  # fmt: skip


def _grouped_job(plan: JobPlan, seed: int) -> Job:
    """Reveal the totals of groups one by one, for medians between them."""
    init = ("uniform", "split-merge")[seed % 2]
    off: dict[str, Any] = _off(plan) if plan.protocol == "llf-cm" else {}
    return cluster_job(
        plan.protocol, n_clusters=2, init=init, tol=0.0, max_rounds=4, seed=seed, secure=True, groups=_GROUPS,
        robust="median", max_weight=2.0, **off,
    )  # fmt: skip


def _vertical_job(plan: JobPlan, seed: int) -> Job:
    protocol = {"llf-cm": "vertical-cm", "llf-fcm": "vertical-fcm"}[plan.protocol]
    return cluster_job(protocol, n_clusters=2, tol=0.0, max_rounds=3, seed=seed, scaling="minmax")


def _fedcref_job(plan: JobPlan, seed: int) -> Job:
    """Refined or as the paper has it, and tiny: what is tested is the order of events."""
    mode = ("refined", "refined", "paper")[seed % 3]
    bounds = {"lo": [0.0] * N_FEATURES, "hi": [1.0] * N_FEATURES}
    length = {"max_refinements": 2} if mode == "refined" else {"max_iterations": 2, "theta": 0.5}
    parameters = {
        "mode": mode, "initial": "given", "hidden": [3], "output": "linear", "epochs": 6, "batch": 8, "rounds": 2,
        "learning_rate": 0.02, "federated_rate": 0.02, "min_rows": 4, **length,
    }  # fmt: skip
    return Job((Stage("range", {"rows_needed": 1, **bounds}), Stage("minmax"), Stage("fedcref", parameters)), seed)


def _plain(plan: JobPlan, n: int) -> Treatment:
    deadline_s = plan.deadline_s if plan.missing == "drop" else 0.0
    return Treatment(plan.missing, deadline_s=deadline_s, collect=plan.collect)


def _secured(plan: JobPlan, n: int) -> Treatment:
    return replace(
        _plain(plan, n), secure=True, keepers=min(plan.keepers or 3, n), cohort=min(plan.cohort or 4, max(3, n - 1)),
        burnt=plan.burnt or ("record" if plan.by % 2 else "groups"), leave=plan.leave,
    )  # fmt: skip


def _grouped(plan: JobPlan, n: int) -> Treatment:
    return replace(_secured(plan, n), groups=_GROUPS, cohort=3, collect="star")


def _secured_waits(plan: JobPlan, n: int, healed: int) -> bool:
    """With groups, a peer of a set that was revealed is waited for by name."""
    treatment = _secured(plan, n)
    return treatment.burnt == "groups" or healed < max(treatment.cohort, treatment.keepers + 1)


def _needs_all(plan: JobPlan, n: int, healed: int) -> bool:
    return True


def _verified(plan: JobPlan, n: int) -> Treatment:
    return replace(_plain(plan, n), verify="all", collect="star")


def _verified_secured(plan: JobPlan, n: int) -> Treatment:
    return replace(_secured(plan, n), verify="all", collect="star")


def _gossip(plan: JobPlan, n: int) -> Treatment:
    mixing = MIXINGS[plan.by % len(MIXINGS)]
    return Treatment(plan.missing, collect="gossip", gossip_tolerance=1e-9, mixing=mixing)


def _fedcref(plan: JobPlan, n: int) -> Treatment:
    return replace(_plain(plan, n), deadline_s=20.0 if plan.missing == "drop" else 0.0, collect="star")


def _series(plan: JobPlan, n: int) -> Treatment:
    return replace(_plain(plan, n), every_s=_EVERY_S)


def _gossip_series(plan: JobPlan, n: int) -> Treatment:
    return replace(_gossip(plan, n), every_s=_EVERY_S)


# -- verdicts ------------------------------------------------------------------------------------------------------------


def _replayed(fleet: RandomFleet, job: DrawnJob, state: JobState) -> JobState:
    """Return what the rounds of a state come to in one process."""
    part = state.secured
    if (
        part is not None and part.columns == 0
    ):  # they are agreed on with the keys, and a replay knows them from the start
        again = engine.begin(job.job)
    else:
        rows = [fleet.locals[name] for name in job.roster]
        again = replay(job.job, rows, state.log, (), () if part is None else part.groups)
    return again if state.status == "done" else replace(again, status=state.status, reason=state.reason)


def same_bits(fleet: RandomFleet, job: DrawnJob, state: JobState) -> None:
    """S5: the bits of a result are those of the in-process replay of its record."""
    again = _replayed(fleet, job, state)
    assert again.encode() == state.plain().encode(), f"S5: {job.id}: the bits are not those of the in-process replay"


def _secret(fleet: RandomFleet, job: DrawnJob, state: JobState) -> None:
    """Judge secure sums: what was revealed, which only the checks of a fleet with a single job know, and the bits."""
    if (secrecy := fleet.secrecy) is not None:
        fleet.world.run_until(fleet.world.now + _KEYS_FORGOTTEN_S, lambda: not secrecy.keys_left(fleet.world))
        secrecy.judge(fleet.world, state)
        # With "all", apart from peers that sums would expose, none may be passed over.
        gone = [reason for record in state.log for reason in record.abstained.values()]
        passed = [reason for reason in gone if reason in (NEW_KEYS, f"{LEFT_OUT}: late")]
        assert job.plan.missing != "all" or not passed, f"a peer was passed over: {gone}"
    same_bits(fleet, job, state)


def _nearly(fleet: RandomFleet, job: DrawnJob, state: JobState) -> None:
    again = _replayed(fleet, job, state)
    assert again.log == state.log, f"S5: {job.id}: the replay has another log"
    if state.status == "done":
        apart = float(np.abs(again.arrays["centers"] - state.arrays["centers"]).max())
        assert apart <= _APART * float(np.max(state.arrays["unit"])), f"S5: {job.id}: {apart} from the replay's centers"


def _groups(fleet: RandomFleet, job: DrawnJob, state: JobState) -> None:
    """Judge FedCRef: which groups have a model depends on who was present in a job within, and no log has that."""
    if state.status != "done":
        return
    decode_state(job.job, state.encode())  # raises if others could not read it
    n_groups = Agreed.of(state.arrays).n_groups
    fleet.marks.counts["groups"] += n_groups
    fleet.marks.counts["groups without a model"] += n_groups - len(engine.results(job.job, state))
    fleet.world.run_until(fleet.world.now + _SETTLE_S)
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
        asked = bool(fleet.marks.counts["cancel asked for"]) and by.startswith("admin-")
        return asked or by.startswith("the revocation of ")
    lost = [name for name in job.roster if name in fleet.lost]
    return KINDS[job.plan.kind].judge is _secret and state.reason.startswith("secure sums: ") and bool(lost)


_SECURED: Final = JobKind(
    _secured_job, _secured, _secret, least_peers=4, most_peers=25, deadline_s=480.0, waits=_secured_waits
)
_GOSSIP: Final = JobKind(_plain_job, _gossip, _nearly, missing=("wait", "all"), most_peers=9, waits=_needs_all)
_SERIES: Final = JobKind(
    _plain_job, _series, same_bits, missing=("wait", "drop"), most_peers=25, deadline_s=300.0, repeated=True
)
KINDS: Final[dict[str, JobKind]] = {
    "plain": JobKind(_plain_job, _plain, same_bits),
    "secured": _SECURED,
    "verified": JobKind(_plain_job, _verified, same_bits, most_peers=25, deadline_s=600.0),
    "gossip": _GOSSIP,
    "vertical": JobKind(
        _vertical_job,
        _plain,
        same_bits,
        least_peers=2,
        most_peers=9,
        missing=("all",),
        waits=_needs_all,
        data="columns",
    ),
    "fedcref": JobKind(_fedcref_job, _fedcref, _groups, least_peers=2, most_peers=9, deadline_s=300.0, data="labelled"),
    "series": _SERIES,
    "gossip-series": replace(_SERIES, treatment=_gossip_series, missing=("wait",), most_peers=9, only_named=True),
    "grouped": replace(_SECURED, job=_grouped_job, treatment=_grouped, least_peers=9, only_named=True),
    "verified-secured": replace(_SECURED, treatment=_verified_secured, deadline_s=600.0, only_named=True),
}
