"""The jobs of a random fleet: the kinds of jobs, how each runs, when it has ended, and whether its end is right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from p2pclust.clustering.mixtures import COVARIANCE_TYPES
from p2pclust.lab.simulation.checks.jobs import SeriesSeen, Turns
from p2pclust.lab.simulation.fleets.plan import JobPlan
from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.lab.simulation.world.world import Observer, World
from p2pclust.peer.core.core import Core
from p2pclust.peer.core.effects import Effect
from p2pclust.peer.core.enrolment import TABLE as ROSTER
from p2pclust.peer.core.events import Cancel
from p2pclust.peer.core.reports import JobAccepted, JobGone, JobRefused, JobSubmitted
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job, JobState, Stage
from p2pclust.protocols.engine.reasons import CANCELLED, LATE, NEW_KEYS
from p2pclust.protocols.engine.runner import replay
from p2pclust.protocols.engine.wire import decode_state
from p2pclust.protocols.engine.workspace import Workspace, digest_of
from p2pclust.protocols.gossip.push_sum import MIXINGS
from p2pclust.protocols.models.fedcref_agreed import Agreed
from p2pclust.protocols.secure.classes import in_cohorts
from p2pclust.tools.bit_sets import as_mask

if TYPE_CHECKING:
    from p2pclust.lab.simulation.fleets.fleet import RandomFleet

_MANY: Final = 10**6
#: What a tolerance of 1e-9 may grow to in five rounds of a clustering.
_APART: Final = 1e-5
_EVERY_S: Final = 4.0
_GROUPS: Final = 3
#: After all peers have ended a FedCRef job, the last of them has by then dropped what it need not keep.
_SETTLE_S: Final = 5.0
N_FEATURES: Final = 6
#: The columns of the rows of fleets whose jobs are of k-prototypes: a number, and a category.
CATEGORIES: Final = (0, 3)
#: How long a job that drops peers waits for the answers of a round.
_DEADLINE_S: Final = 2.0
#: How many turns a series has after everything healed, and for how long none begins after its cancel.
_MORE_TURNS: Final = 2
_QUIET_S: Final = 12.0
#: Workers forget the keys of a job that has ended, and compare the result with what their peers know.
_KEYS_FORGOTTEN_S: Final = 120.0


@dataclass(frozen=True)
class JobKind:
    """One kind of job: what its end must be, and where it is drawn."""

    judge: Callable[[RandomFleet, DrawnJob, JobState], None]
    least_peers: int = 1
    most_peers: int = _MANY
    missing: tuple[str, ...] = ()  # those that are possible, the usual one first; empty: any
    #: From a plan, the number of peers, and how many are healed: whether the job may wait for one that is not.
    waits: Callable[[JobPlan, int, int], bool] = lambda plan, n, healed: False
    deadline_s: float = 120.0  # within so many virtual seconds after healing it ends, with the timing `fast`
    data: str = "rows"  # what peers must hold: "rows", "columns" of the same rows, or "labelled" rows
    categories: bool = True  # whether its rows may have them
    repeated: bool = False  # whether it is a series
    only_named: bool = False  # whether only swarms that name it draw it


def job_of(plan: JobPlan, seed: int) -> Job:
    """Return the mathematics of a job."""
    options: dict[str, Any] = {"n_clusters": 3, "tol": 0.0, "max_rounds": 4, "seed": seed}
    options["init"] = ("uniform", "split-merge")[seed % 2]
    if plan.gaps:
        options["missing_values"] = "keep"
    off: dict[str, Any] = {"privacy_gate" if plan.protocol == "llf-fcm" else "suppress_singletons": False}
    off |= {"levels": CATEGORIES} if plan.protocol == "k-prototypes" else {}
    if plan.protocol == "mixture":
        off |= {"privacy_gate": False, "covariance_type": COVARIANCE_TYPES[seed % len(COVARIANCE_TYPES)]}
    match plan.kind:
        case "secured" | "verified-secured":
            options |= {"secure": True, "n_init": plan.n_init}
        case "grouped":  # reveals the totals of groups one by one, for medians between them
            off.pop("privacy_gate", None)
            options |= {"n_clusters": 2, "secure": True, "groups": _GROUPS, "robust": "median", "max_weight": 2.0}
        case "described" | "described-secured":
            return cluster_job("describe", quantiles=[0.9], seed=seed, secure=plan.kind == "described-secured")
        case "vertical":
            protocol = {"llf-cm": "vertical-cm", "llf-fcm": "vertical-fcm"}[plan.protocol]
            return cluster_job(protocol, n_clusters=2, tol=0.0, max_rounds=3, seed=seed, scaling="minmax")
        case "fedcref":  # refined or as the paper has it, and tiny: what is tested is the order of events
            mode = ("refined", "refined", "paper")[seed % 3]
            bounds = {"lo": [0.0] * N_FEATURES, "hi": [1.0] * N_FEATURES}
            length = {"max_refinements": 2} if mode == "refined" else {"max_iterations": 2, "theta": 0.5}
            parameters = {
                "mode": mode, "initial": "given", "hidden": [3], "output": "linear", "epochs": 6, "batch": 8, "rounds": 2,
                "learning_rate": 0.02, "federated_rate": 0.02, "min_rows": 4, **length,
            }  # fmt: skip
            stages = (Stage("range", {"rows_needed": 1, **bounds}), Stage("minmax"), Stage("fedcref", parameters))
            return Job(stages, seed)
        case _:
            options |= {"max_rounds": plan.rounds, "participation": plan.participation}
            options["init"] = ("uniform", "random", "split-merge")[seed % 3]
            if plan.gaps and "gossip" in plan.kind:
                # Cells of split-merge have equal values in a column; rows with that column alone are as near to one as to
                # another, up to what gossip leaves open.
                options["init"] = "uniform"
    return cluster_job(plan.protocol, **options, **off)


def treatment_of(plan: JobPlan, n: int) -> Treatment:
    """Return how a fleet of `n` peers is to treat a job."""
    kind, drops = plan.kind, plan.missing == "drop"
    treatment = Treatment(plan.missing, deadline_s=_DEADLINE_S if drops else 0.0, collect=plan.collect)
    if "gossip" in kind:
        mixing = MIXINGS[plan.by % len(MIXINGS)]
        treatment = Treatment(plan.missing, collect="gossip", gossip_tolerance=1e-9, mixing=mixing)
    if kind in ("secured", "verified-secured", "described-secured", "grouped"):
        treatment = replace(
            treatment, secure=True, keepers=min(plan.keepers or 3, n), cohort=min(plan.cohort or 4, max(3, n - 1)),
            burnt=plan.burnt or ("record" if plan.by % 2 else "groups"), leave=plan.leave,
        )  # fmt: skip
        if kind == "grouped":
            treatment = replace(treatment, groups=_GROUPS, cohort=3, collect="star")
        treatment = replace(treatment, colluders=min(treatment.keepers - 1, treatment.cohort - 2))
    if "verified" in kind:
        treatment = replace(treatment, verify="all", collect="star")
    if kind == "fedcref":
        treatment = replace(treatment, deadline_s=20.0 if drops else 0.0, collect="star")
    return replace(treatment, every_s=_EVERY_S) if "series" in kind else treatment


def _secured_waits(plan: JobPlan, n: int, healed: int) -> bool:
    """With groups, a peer of a set that was revealed is waited for by name."""
    treatment = treatment_of(plan, n)
    return treatment.burnt == "groups" or healed < max(treatment.cohort, treatment.keepers + 1)


# -- verdicts ------------------------------------------------------------------------------------------------------------


def _replayed(fleet: RandomFleet, job: DrawnJob, state: JobState) -> JobState:
    """Return what the rounds of a state come to in one process."""
    part = state.secured
    if part is not None and part.columns == 0:
        again = engine.begin(job.job)  # columns are agreed on with the keys, and a replay knows them from the start
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
        passed = [reason for reason in gone if reason in (NEW_KEYS, LATE)]
        assert job.plan.missing != "all" or not passed, f"a peer was passed over: {gone}"
    same_bits(fleet, job, state)


def _too_few_join(fleet: RandomFleet, state: JobState) -> bool:
    """Return whether a liar is left out, and all others that are back from the faults are too few to hide each other.

    Neither the peers of sums that were revealed are a cohort without the liar, nor those of none, which join as one only.
    """
    part, liar = state.secured, -1 if fleet.secrecy is None else fleet.secrecy.liar
    if part is None or liar < 0 or not part.proofs:
        return False
    honest = as_mask(range(len(fleet.names))) & ~(1 << liar)
    known = honest & reduce(or_, (*part.revealed, *part.unknown), 0)
    return not any(in_cohorts(one, part.groups, part.cohort) for one in (known, honest & ~known))


def _nearly(fleet: RandomFleet, job: DrawnJob, state: JobState) -> None:
    again = _replayed(fleet, job, state)
    assert again.log == state.log, f"S5: {job.id}: the replay has another log"
    if state.status == "done":
        apart = float(np.abs(again.arrays["centers"] - state.arrays["centers"]).max())
        assert apart <= _APART * float(np.max(state.arrays["unit"])), f"S5: {job.id}: {apart} from the replay's centers"


def _groups(fleet: RandomFleet, job: DrawnJob, state: JobState) -> None:
    """Judge FedCRef: labels name groups of the state, and nothing of the jobs within is left (L6).

    Which groups have a model depends on who was present in a job within, and no log has that.
    """
    if state.status != "done":
        return
    decode_state(job.job, state.encode())  # raises if others could not read it
    agreed = Agreed.of(state.arrays)
    n_groups = agreed.n_groups
    fleet.marks.counts["groups"] += n_groups
    fleet.marks.counts["groups without a model"] += n_groups - len(engine.results(job.job, state))
    fleet.world.run_until(fleet.world.now + _SETTLE_S)
    wanted = [one.id for one in fleet.jobs]
    for name in fleet.core():
        peer = fleet.world.peers[name]
        if not any(one.plan.kind == "series" for one in fleet.jobs):
            assert peer.core is not None
            left = [one for one in peer.core.jobs.jobs if one not in wanted]
            assert not left, f"L6: {name} keeps jobs that are not needed: {left}"
            tables = peer.disk.load().tables.items()
            rows = {table: [key for key in keys if key not in wanted] for table, keys in tables if table != ROSTER}
            assert not any(rows.values()), f"L6: {name} has rows on disk that are not needed: {rows}"
        if name in job.roster:
            _judge_labels(fleet, job, state, agreed, peer)


def _judge_labels(fleet: RandomFleet, job: DrawnJob, state: JobState, agreed: Agreed, peer: Peer) -> None:
    """Check that a peer's labels name groups of the state, or clusters of its own that belong to none."""

    def blob(digest: bytes) -> bytes | None:
        """Return a blob from the disk of any peer that has it."""
        found = (b"".join(other.disk.blob(digest)) for other in fleet.world.peers.values())
        return next((data for data in found if digest_of(data) == digest), None)

    assert peer.core is not None
    note, index = peer.core.jobs.jobs[job.id].workspace.note, job.roster.index(peer.name)
    workspace = Workspace(index, Arrays.decode(note) if note else Arrays(), blob)
    labels = engine.conclude(job.job, state, peer.local, workspace)["labels"]
    first, total = len(agreed.alive), int(agreed.alone.sum())
    begin = int(agreed.alone[:index].sum())
    own = range(begin, begin + int(agreed.alone[index : index + 1].sum()))
    assert labels.shape == (peer.local.n_samples,), f"{peer.name} has labels of {labels.shape}"
    alone = [label - first for label in np.unique(labels).tolist() if first <= label < first + total]
    assert labels.min() >= -1, f"{peer.name} has labels that mean nothing"
    assert set(alone) <= set(own), f"{peer.name} has rows in clusters of others: {alone} of {own}"


_SECURED: Final = JobKind(_secret, least_peers=4, most_peers=25, deadline_s=480.0, waits=_secured_waits)
_SERIES: Final = JobKind(same_bits, missing=("wait", "drop"), most_peers=25, deadline_s=300.0, repeated=True)
KINDS: Final[dict[str, JobKind]] = {
    "plain": JobKind(same_bits),
    "secured": _SECURED,
    "verified": JobKind(same_bits, most_peers=25, deadline_s=600.0),
    "gossip": JobKind(_nearly, missing=("wait", "all"), most_peers=9, waits=lambda plan, n, healed: True),
    "vertical": JobKind(
        same_bits,
        least_peers=2,
        most_peers=9,
        missing=("all",),
        data="columns",
        categories=False,
        waits=lambda plan, n, healed: True,
    ),
    "fedcref": JobKind(_groups, least_peers=2, most_peers=9, deadline_s=300.0, data="labelled", categories=False),
    "series": _SERIES,
    "gossip-series": replace(_SERIES, missing=("wait",), most_peers=9, only_named=True),
    "grouped": replace(_SECURED, least_peers=9, only_named=True, categories=False),
    "verified-secured": replace(_SECURED, deadline_s=600.0, only_named=True),
    "described": JobKind(same_bits, most_peers=25, deadline_s=300.0, only_named=True),
    "described-secured": replace(_SECURED, deadline_s=600.0, only_named=True),
}


# -- as they run ---------------------------------------------------------------------------------------------------------


@dataclass
class DrawnJob:
    """A job that was submitted: its plan, its mathematics, and what is known of it from outside."""

    plan: JobPlan
    job: Job
    id: str = ""
    roster: tuple[str, ...] = ()
    accepted: bool = False
    gone: dict[str, None] = field(default_factory=dict)  # peers that have forgotten or refuse it, as they said
    name: str = ""  # of the series, if it is repeated
    at: tuple[str, int] = ("", 0)  # the peer that was asked to submit it, and its life

    def known(self, core: Core) -> bool:
        return self.id in core.jobs.jobs

    def has_ended(self, name: str, core: Core) -> bool:
        job = core.jobs.jobs.get(self.id)
        return job is not None and job.ledger.finished

    def may_wait(self, fleet: RandomFleet) -> bool:
        waits = KINDS[self.plan.kind].waits(self.plan, len(self.roster), len(fleet.core()))
        return waits or self.plan.missing == "all"

    def survives(self, lost: Sequence[str]) -> bool:
        """Return whether it goes on if these peers have lost their stores."""
        return True

    def heals(self, fleet: RandomFleet) -> None:
        """Note that all faults that end have ended."""

    def judge(self, fleet: RandomFleet) -> None:
        """Check its end: the same bits at all peers, and the right ones."""
        names = [name for name in fleet.core() if name in self.roster and not fleet.refuses(name, self)]
        finals = {fleet.world.peers[name].state_of(self.id) for name in names}
        assert len(finals) == 1, f"S5: peers ended {self.id} with different bits"
        state = JobState.decode(finals.pop())
        done = state.status == "done"
        assert done or self._failed_rightly(fleet, state), f"the job failed: {state.reason} ({self.id})"
        KINDS[self.plan.kind].judge(fleet, self, state)
        fleet.marks.counts[f"{'done' if done else 'failed rightly'}: {self.plan.kind}"] += 1
        fleet.marks.counts["cancelled"] += state.reason.startswith(CANCELLED)
        fleet.marks.counts["finished"] += 1

    def _failed_rightly(self, fleet: RandomFleet, state: JobState) -> bool:
        if state.reason.startswith(CANCELLED):
            by = state.reason.removeprefix(CANCELLED)
            asked = bool(fleet.marks.counts["cancel asked for"]) and by.startswith("admin-")
            return asked or by.startswith("the revocation of ")
        lost = any(name in fleet.lost for name in self.roster)
        named = KINDS[self.plan.kind].judge is _secret and state.reason.startswith("secure sums: ")
        return named and (lost or _too_few_join(fleet, state))


@dataclass
class DrawnSeries(DrawnJob):
    """A job that is repeated: its turns must go on after everything healed, and stop when it is cancelled."""

    turns: Turns = field(default_factory=Turns)  # of all series of the fleet
    until: int = 0  # this turn must end

    @property
    def series(self) -> SeriesSeen:
        return self.turns.series.get(self.name, SeriesSeen(self.name))

    def known(self, core: Core) -> bool:
        return bool(self.name) and bool(core.jobs.table.turns(self.name))

    def has_ended(self, name: str, core: Core) -> bool:
        return any(number >= self.until and name in ended for number, ended in self.series.finals.items())

    def may_wait(self, fleet: RandomFleet) -> bool:
        """Return whether a turn needs peers that are not healed: its roster are those that were present when it began."""
        healed = fleet.core()
        return not self.survives([name for name in fleet.names if name not in healed])

    def survives(self, lost: Sequence[str]) -> bool:
        left = ((sum(name not in lost for name in turn.roster), len(turn.roster)) for turn in self.series.needed())
        return all(2 * n_left > n_roster for n_left, n_roster in left)

    def heals(self, fleet: RandomFleet) -> None:
        self.until = self.series.newest + _MORE_TURNS

    def judge(self, fleet: RandomFleet) -> None:
        """Check all turns, cancel the series, and check that no other turn begins."""
        peers = [fleet.world.peers[name] for name in fleet.core()]
        self.series.judge(fleet.marks.counts, peers)
        asked = peers[fleet.plan.seed % len(peers)]
        assert asked.core is not None
        fleet.published.cancelled[self.name] = None
        turns = [turn for turn in asked.core.jobs.table.turns(self.name) if not turn.census]
        fleet.world.step(asked, Cancel(max(turns, key=lambda turn: turn.number).id, "admin-0"))
        fleet.world.run_until(fleet.world.now + _QUIET_S)
        last = self.series.newest
        fleet.world.run_until(fleet.world.now + _QUIET_S)
        assert self.series.newest == last, f"H6: a turn of {self.name} began after the series was cancelled"
        running = [peer.name for peer in peers if peer.core is not None and peer.core.jobs.unfinished()]
        assert not running or len(fleet.jobs) > 1, f"H6: the cancelled {self.name} continues at {', '.join(running)}"
        fleet.marks.counts[f"done: {self.plan.kind}"] += 1
        fleet.marks.counts["finished"] += 1


class JobsSeen(Observer):
    """Notes which job is which, and which were accepted."""

    watches = (JobSubmitted, JobRefused, JobAccepted, JobGone)

    def __init__(self, jobs: list[DrawnJob]) -> None:
        self._jobs = jobs

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        if isinstance(effect, JobSubmitted) and effect.asked is not None:
            job = self._jobs[int(effect.asked)]
            if not job.id:
                job.id, job.roster, job.name = effect.job, tuple(effect.roster), effect.series or ""
        elif isinstance(effect, JobRefused) and effect.asked:
            self._jobs[int(effect.asked)].at = ("", 0)
        elif isinstance(effect, JobAccepted):
            for job in self._jobs:
                job.accepted |= job.id == effect.job
        elif isinstance(effect, JobGone):
            for job in [job for job in self._jobs if job.id == effect.job]:
                job.gone |= dict.fromkeys(effect.peers)
