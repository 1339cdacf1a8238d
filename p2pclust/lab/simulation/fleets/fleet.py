"""One run of a random fleet: it lives through its plan, is healed, and is judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import msgpack
import numpy as np
from numpy.typing import NDArray

from p2pclust.lab.simulation.checks.invariants import Invariants
from p2pclust.lab.simulation.checks.jobs import Promises, Turns, Waits, WaitsOnce
from p2pclust.lab.simulation.checks.liars import NamedRosters, Published, Refutations
from p2pclust.lab.simulation.checks.secrecy import Secrecy
from p2pclust.lab.simulation.fleets.faults import KINDS as FAULTS
from p2pclust.lab.simulation.fleets.faults import break_
from p2pclust.lab.simulation.fleets.jobs import (
    CATEGORIES,
    KINDS,
    N_FEATURES,
    DrawnJob,
    DrawnSeries,
    JobsSeen,
    job_of,
    treatment_of,
)
from p2pclust.lab.simulation.fleets.liars import LIES, Forger, Ghosts, let_them_lie
from p2pclust.lab.simulation.fleets.marks import Marks, PhaseCrashes, aggregates
from p2pclust.lab.simulation.fleets.out_of_turn import speak_out_of_turn
from p2pclust.lab.simulation.fleets.plan import FOR_EVER, FleetPlan
from p2pclust.lab.simulation.world.network import Conditions, Network
from p2pclust.lab.simulation.world.peer import Peer, paper_roster
from p2pclust.lab.simulation.world.world import World
from p2pclust.peer.core.document import has_majority
from p2pclust.peer.core.events import Cancel, Submit
from p2pclust.peer.core.timing import preset
from p2pclust.protocols.engine.local import Local

#: On a perfect network; and in a large fleet.
_SEE_EACH_OTHER_S = (30.0, 60.0)
_LARGE = 25
_RETRY_S = 1.0
_RESTART_S = 2.0
#: A job may take so many of the longest tasks longer, where tasks are long.
_TASKS = 60
_LONG_TASK_S = 1.5
#: And so many times as long in a fleet that is slow as a whole, where a message takes up to some hundred times as long.
_SLOWER = 6.0
_LINKS_KNOWN_S = 120.0
_MOST_ROWS = 60


@dataclass(frozen=True)
class SeedResult:
    """The outcome of a run; `failure` is empty if no promise was broken."""

    plan: FleetPlan
    failure: str
    virtual_s: float
    n_events: int
    trace: str
    counts: Counter[str]


class RandomFleet:
    """The fleet of one plan."""

    deadline_s = 0.0  # as of a kind of job, where none is planned

    def __init__(self, plan: FleetPlan) -> None:
        self.plan = plan
        width = len(str(plan.n_peers - 1))
        self.names = [f"p{index:0{width}d}" for index in range(plan.n_peers)]
        turns = Turns(keyed=plan.keyed)
        self.jobs: list[DrawnJob] = []
        for number, planned in enumerate(plan.jobs):
            job, repeated = job_of(planned, plan.seed + number), KINDS[planned.kind].repeated
            self.jobs.append(DrawnSeries(planned, job, turns=turns) if repeated else DrawnJob(planned, job))
        seen = (JobsSeen(self.jobs), turns) if self.jobs else ()
        rng = np.random.default_rng([plan.seed, 21])
        self.locals = _rows(plan, self.names, rng)
        ends = [(self.names[a], self.names[b]) for link in plan.links for a, b in (link, link[::-1])]
        near = {name: tuple(sorted(b for a, b in ends if a == name)) for name in self.names} if ends else None
        self.network = Network(Conditions(), np.random.default_rng([plan.seed, 22]))
        self.marks, self.invariants = Marks(), Invariants()
        self.published, self.forger = Published(), Forger(np.random.default_rng([plan.seed, 24]))
        timing = preset(plan.timing)
        limit_s = 4 * (2 * plan.patience_s + timing.election_max_s + timing.quiet_s)
        timing = replace(timing, patience_s=plan.patience_s, compute_limit_s=limit_s)
        self.world = World(
            self.locals, self.network, timing, plan.limits,
            np.random.default_rng([plan.seed, 23]),
            (self.invariants, Promises(), Waits(), self.marks, *seen),
            {name: float(rng.random()) for name in self.names}, near,
            known=plan.known, keyed=plan.keyed, signs_facts=plan.signs_facts,
        )  # fmt: skip
        self.world.workers.task_s = plan.compute_s
        self.refutations = Refutations(*(self.names[liar] for liar in (plan.liar, *plan.more_liars) if liar >= 0))
        self.named_rosters, self.ghosts = NamedRosters(), Ghosts(np.random.default_rng([plan.seed, 25]))
        self.world.watch(self.published)
        if plan.keyed:  # without keys, jobs name no fleet rosters, and a peer that lies is believed
            self.world.watch(self.named_rosters, self.refutations)
        if self.jobs and all(KINDS[job.plan.kind].repeated for job in self.jobs):
            self.world.reload = _grown
        secret = [job.job for job in self.jobs if job.plan.keepers]
        self.secrecy = Secrecy(secret[0]) if secret else None
        if self.secrecy is not None:
            self.world.watch(self.secrecy)
        if [job.kind for job in plan.jobs] == ["plain"] and all(fault.for_s == FOR_EVER for fault in plan.faults):
            self.world.watch(WaitsOnce())
        let_them_lie(self)
        if plan.signs_facts:  # otherwise peers take what others forge
            self.world.forge = self.forger
        self.phase_crashes = PhaseCrashes(plan.phase_crashes, self.marks)
        self.lost: dict[str, None] = {}  # peers that lost their store, or were revoked
        self.revoked: dict[str, None] = {}
        self.renewed: dict[str, str] = {}  # peers with new keys: a text for each key
        # Peers that are enrolled while the fleet runs: on a full mesh, and none that must end the jobs alone.
        named = dict.fromkeys(fault.peers[0] for fault in plan.faults if fault.kind == "enrolled")
        free = [] if plan.links else [peer for peer in named if plan.all_heal or peer not in plan.core]
        self.strangers = {self.names[peer]: None for peer in free[: plan.n_peers // 2]}  # not on the roster yet
        # A majority of peers that have intact stores, and open no wrong states, must be left.
        self._most_lost = (plan.n_peers - len(self.strangers) - 1) // 2 - (plan.lie in LIES) - len(plan.more_liars)
        self.down: dict[str, None] = {}  # peers that stay down
        self.healed = False
        self._last_late: tuple[str, DrawnJob] | None = None  # a peer, and a job that it had not ended
        self.serial = 1  # of the newest roster
        self._rng = rng

    # -- what faults ask for ----------------------------------------------------------------------------------------------

    def may_lose(self, name: str) -> bool:
        """Return whether a peer may lose its store, or its place on the roster."""
        if not self.plan.all_heal:
            return self.names.index(name) not in self.plan.core
        if name in self.strangers or not all(job.survives([*self.lost, name]) for job in self.jobs):
            return False
        return name in self.lost or len(self.lost) + 1 <= self._most_lost

    def have_heard(self, name: str, *, beyond: int) -> bool:
        """Return whether all others run and have heard of a later incarnation of a peer."""
        cores = [self.world.peers[other].core for other in self.on_roster() if other != name]
        # One that has not taken the newest roster may not know the peer.
        known = [core.membership.members.get(name) if core is not None else None for core in cores]
        return all(member is not None and member.incarnation > beyond for member in known)

    def aim(self, peers: tuple[int, ...]) -> tuple[int, ...]:
        """Return the roster index of a peer that aggregates, or these if none does."""
        for index, name in enumerate(self.names):
            peer = self.world.peers[name]
            if peer.core is not None and any(aggregates(peer, job) for job in peer.core.jobs.jobs):
                return (index,)
        return peers

    def lose(self, name: str) -> None:
        """Note that a peer has lost its store, or its place on the roster."""
        self.lost[name] = None

    def revoke(self, name: str, *hearers: str) -> None:
        """A person revokes a peer, and gives the roster to some peer that runs, and to others that do."""
        self.revoked[name] = None
        if not self._publish(*hearers):
            del self.revoked[name]

    def renew(self, name: str) -> None:
        """A person gives a peer new keys, restarts it with them, and gives the roster to some peer that runs."""
        before = dict(self.renewed)
        self.renewed[name] = f"{self.serial + 1}"
        self.world.crash(name)
        if self._publish():
            self.world.put_roster(name, self._roster())
        else:
            self.renewed = before
        self.world.at(self.world.now + _RESTART_S / 2, partial(self._restart, name))

    def enrol(self, name: str) -> None:
        """A person enrols a peer, and gives the roster to it and to some peer that runs."""
        if name not in self.strangers:
            return
        del self.strangers[name]
        if self._publish(name):
            self.world.start(name)
        else:
            self.strangers[name] = None

    def start(self, name: str) -> None:
        """Start a peer that is enrolled and down."""
        if name not in self.strangers:
            self.world.start(name)

    def relink(self, a: str, b: str, *, up: bool) -> None:
        """Let a link appear or vanish, if it has not."""
        if self.plan.links and self.world.relink(a, b, up=up):
            self.marks.counts["link appeared" if up else "link vanished"] += 1

    def _publish(self, *others: str) -> bool:
        """Give a new roster to some peer that runs, if there is one, and to others; return whether there is one."""
        names = self.on_roster()
        running = [one for one in names if self.world.peers[one].core is not None]
        if running:
            self.serial += 1
            roster = self._roster()
            for name in (*others, running[int(self._rng.integers(len(running)))]):
                self.world.give_roster(name, roster)
        return bool(running)

    def _roster(self) -> bytes:
        roster = paper_roster(self.serial, self.on_roster(), renewed=self.renewed)
        self.named_rosters.signed(roster)
        return roster

    def on_roster(self) -> list[str]:
        return [name for name in self.names if name not in self.revoked and name not in self.strangers]

    # -- the run ----------------------------------------------------------------------------------------------------------

    def go(self) -> SeedResult:
        failure = ""
        try:
            self._begin()
            self._live()
            self._heal()
            self._judge()
        except AssertionError as error:
            failure = str(error) or repr(error)
        world, counts = self.world, self.marks.counts
        for kind in ("lost", "cut", "duplicated", "delayed"):
            counts[f"message {kind}"] += world.network.counts[kind]
        return SeedResult(self.plan, failure, world.now, world.n_events, world.trace, counts)

    def _begin(self) -> None:
        world = self.world
        enrolled = self.on_roster()
        for name in enrolled if self.plan.keyed else ():
            world.give_roster(name, self._roster())
        for name in enrolled:
            world.start(name)
        within_s = _SEE_EACH_OTHER_S[self.plan.n_peers > _LARGE]
        linked = world.run_until(within_s, self._all_see_all)
        assert linked, f"L2: the peers did not find each other within {within_s:.0f} s of a perfect network"
        self.network.conditions = self.plan.conditions
        world.crash_point = self.phase_crashes

    def _all_see_all(self) -> bool:
        cores = (self.world.peers[name].core for name in self.on_roster())
        return all(core is not None and core.membership.all_here() for core in cores)

    def _live(self) -> None:
        world, start = self.world, self.world.now
        for number, liar in enumerate(self.refutations.liars):
            rng = np.random.default_rng([self.plan.seed, 25, *([number] if number else [])])
            speak_out_of_turn(world, liar, rng, self.marks.counts, self.refutations)
        for number, job in enumerate(self.plan.jobs):
            world.at(start + job.at_s, partial(self._submit, number))
            for at_s, by in job.cancels:
                world.at(start + at_s, partial(self._cancel, number, by))
        for fault in self.plan.faults:
            world.at(start + fault.at_s, partial(break_, self, fault))
        world.run_until(start + self.plan.lasts_s, self._step)

    def _submit(self, number: int) -> None:
        """Submit a job at the first peer from the planned one on that runs; try again while it is refused."""
        job, n = self.jobs[number], self.plan.n_peers
        if job.id or (self.healed and any(one.id for one in self.jobs)):
            return
        asked, life = job.at
        lives = asked and self.world.peers[asked].core is not None and self.world.peers[asked].life == life
        for name in [] if lives else [self.names[(job.plan.by + step) % n] for step in range(n)]:
            peer = self.world.peers[name]
            if peer.core is not None and name not in self.revoked and self.world.now >= peer.frozen_until:
                job.at = (name, peer.life)
                roster = () if KINDS[job.plan.kind].repeated else tuple(self.on_roster())
                treatment = treatment_of(job.plan, n)
                named = self.names[job.plan.named] if job.plan.named >= 0 and treatment.collect != "gossip" else ""
                if named in roster:
                    treatment = replace(treatment, aggregator=named)
                mathematics = bytes(msgpack.packb(job.job.to_dict()))
                self.world.step(peer, Submit(mathematics, roster, treatment, str(number)))
                break
        self.world.at(self.world.now + _RETRY_S, partial(self._submit, number))

    def _cancel(self, number: int, by: int) -> None:
        job = self.jobs[number]
        for name in self.names[by:] + self.names[:by]:
            peer = self.world.peers[name]
            if job.id and peer.core is not None and job.known(peer.core) and name not in self.revoked:
                self.marks.counts["cancel asked for"] += 1
                self.published.cancelled[job.id] = None
                self.world.step(peer, Cancel(job.id, f"admin-{name}"))
                return

    def _step(self) -> bool:
        """After every event: plan the restart of a peer that a phase crash ended."""
        while self.phase_crashes.crashed:
            name = self.phase_crashes.crashed.pop()
            self.world.at(self.world.now + float(self._rng.uniform(0.05, 8.0)), partial(self._restart, name))
        return False

    def _restart(self, name: str) -> None:
        if name not in self.down:
            self.start(name)

    # -- the end ------------------------------------------------------------------------------------------------------------

    def _heal(self) -> None:
        """End every fault that ends, and give the jobs time."""
        world, plan = self.world, self.plan
        lasting = [fault for fault in plan.faults if fault.for_s == float("inf")]
        self.healed, self.phase_crashes.active = True, False
        for job in self.jobs:
            job.heals(self)
        kept = {fault.peers[0] for fault in lasting}
        self.network.heal_all()
        self._heal_links()
        self.forger.names.clear()
        for index, name in enumerate(self.names):
            if index in kept:
                continue
            for table in (world.workers.hung, world.rotten):
                table.pop(name, None)
            world.workers.slow(name, 1.0)
            world.set_clock(name, 1.0)
            if world.peers[name].core is None and name not in self.down:
                world.at(world.now + float(self._rng.uniform(0, 1)), partial(self._restart, name))
        for fault in lasting:  # cuts were healed with all others
            break_(self, fault)
        self.marks.counts["under way when the core heals"] += bool(lasting and not self._all_ended())
        limit_s = max((KINDS[job.plan.kind].deadline_s for job in self.jobs), default=self.deadline_s)
        if lasting:
            # Outside the core, peers may aggregate in vain one after another: as slow as elections of this timing are.
            timings = (preset(plan.timing), preset("fast"))
            wait_s, fast_s = (2 * plan.patience_s + one.election_max_s + one.quiet_s for one in timings)
            limit_s *= wait_s / fast_s
        if any(FAULTS[fault.kind].of_all for fault in lasting):
            limit_s *= _SLOWER
        if plan.compute_s[1] > _LONG_TASK_S:
            limit_s += _TASKS * plan.compute_s[1]
        world.run_until(world.now + _RESTART_S, self._step)
        for name in list(self.strangers):  # no peer ran when it should have been enrolled
            self.enrol(name)
        world.run_until(world.now + limit_s, lambda: self._step() or self._all_ended())

    def _heal_links(self) -> None:
        """Restore enough links, the new ones first, so that no peer is cut off meanwhile."""
        last = {(self.names[a], self.names[b]): None for a, b in self.plan.last_links}
        for a, b in last:
            self.relink(a, b, up=True)
        for name in self.names if last else ():
            for other in self.world.overlay.neighbours(name):
                if (name, other) not in last and (other, name) not in last:
                    self.relink(name, other, up=False)

    def core(self) -> list[str]:
        """Return the peers that must end the jobs: those that are healed, and on the roster."""
        return [self.names[index] for index in self.plan.core if self.names[index] not in self.revoked]

    def _known(self, job: DrawnJob) -> bool:
        """Return whether a disk that was not lost has the job."""
        peers = [self.world.peers[name] for name in self.core()]
        return any(peer.core is not None and job.known(peer.core) for peer in peers)

    def _must_end(self, job: DrawnJob) -> bool:
        whole = self.plan.all_heal and not self.revoked
        return bool(job.id) and self._known(job) and (whole or not job.may_wait(self))

    def refuses(self, name: str, job: DrawnJob) -> bool:
        """Return whether a peer rightly does without a job: it met the document when its fleet roster was replaced twice."""
        cores = [self.world.peers[other].core for other in self.names]
        documents = [core.jobs.table.documents.get(job.id) for core in cores if core is not None]
        named = next((document.fleet_roster for document in documents if document is not None), None)
        core = self.world.peers[name].core
        if core is None or named is None or job.known(core):
            return False
        return named.serial < core.rosters.oldest

    def _late(self, job: DrawnJob) -> list[str]:
        return [
            name for name in self.core()
            if name in job.roster and not self._has_ended(name, job) and not self.refuses(name, job)
        ]  # fmt: skip

    def _has_ended(self, name: str, job: DrawnJob) -> bool:
        core = self.world.peers[name].core
        return core is not None and job.has_ended(name, core)

    def _all_ended(self) -> bool:
        """Return whether all jobs that must end did. Asked after every event: the last peer that was late comes first."""
        if self._last_late is not None and not self._has_ended(*self._last_late):
            return False
        late = ((name, job) for job in self.jobs if self._must_end(job) for name in self._late(job))
        self._last_late = next(late, None)
        return self._last_late is None

    def _judge(self) -> None:
        story = "\n".join(self.invariants.story)
        submitted = any(job.id for job in self.jobs) or not self.jobs
        assert submitted or not self.marks.refused, f"no peer took the job of this swarm: {self.marks.refused}"
        self.published.compare(self.world)
        for job in self.jobs:
            # Of peers that are revoked, or met the document too late, a job may have too many to go on.
            left = [name for name in job.roster if name not in self.revoked and name not in job.gone]
            if job.accepted and not self._known(job) and has_majority(left, job.roster):
                raise AssertionError(f"L1: {job.id} was accepted, and no peer knows it any more\n{story}")
            if not self._must_end(job):
                self.marks.counts["job that need not end" if job.id else "job that was never submitted"] += 1
                continue
            late = self._late(job)
            assert not late, f"L3: {', '.join(late)} have not ended the {job.plan.kind} {job.id} in time\n{story}"
            job.judge(self)
        if self.plan.last_links and self.plan.all_heal:
            known = self.world.run_until(self.world.now + _LINKS_KNOWN_S, self._all_know_the_links)
            assert known, "L4: not all peers know the present links"

    def _all_know_the_links(self) -> bool:
        now = {name: self.world.overlay.neighbours(name) for name in self.names}
        peers = [peer.core for peer in self.world.peers.values() if peer.core is not None]
        return all(core.routing.neighbours_of(name) == near for core in peers for name, near in now.items())


def _rows(plan: FleetPlan, names: Sequence[str], rng: np.random.Generator) -> dict[str, Local]:
    """Draw what each peer holds for the kinds of jobs, see `JobKind.data`."""
    made, kinds = {}, {KINDS[job.kind].data for job in plan.jobs}
    # Drawn apart, so that everything else of a seed stays as it was.
    holes = np.random.default_rng([plan.seed, 41]) if any(job.gaps for job in plan.jobs) else None
    if "labelled" in kinds:  # three kinds of rows, two of them at each peer; one label in ten is wrong
        middles = rng.random((3, N_FEATURES))
        for name in names:
            truth = np.repeat(rng.choice(3, 2, replace=False), rng.integers(8, 14, 2))
            X = np.clip(middles[truth] + rng.normal(0, 0.05, (len(truth), N_FEATURES)), 0, 1)
            wrong = rng.random(len(truth)) < 0.1
            labels = np.unique(truth, return_inverse=True)[1]
            made[name] = Local(X, labels=np.where(wrong, 1 - labels, labels), n_clusters=2)
    elif "columns" in kinds:
        truth, ids = rng.integers(0, 2, 30), np.arange(30)
        made = {name: Local(truth[:, None] * 5 + rng.normal(0, 1, (30, 2)), ids=ids) for name in names}
    else:
        centers = rng.uniform(0, 100, (3, 2))
        for name in names:
            n_rows = int(rng.integers(6, 14))
            X = centers[rng.integers(0, 3, n_rows)] + rng.normal(0, 3, (n_rows, 2))
            if any(job.protocol == "k-prototypes" for job in plan.jobs):  # numbers around 0 to 100 become values
                X[:, 1] = np.clip(X[:, 1] // 34, 0, CATEGORIES[1] - 1)
            made[name] = Local(X if holes is None else _with_gaps(X, holes))
    return made


def _with_gaps(X: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Return rows in which a third of the cells are missing, or a whole column."""
    gone = rng.random(X.shape) < 1 / 3
    if rng.random() < 0.2:
        gone[:, int(rng.integers(X.shape[1]))] = True
    return np.where(gone, np.nan, X)


def _grown(peer: Peer) -> Local:
    """Return more rows of the same kind, up to a limit."""
    rows = peer.local.X
    more = np.where((rows == np.rint(rows)).all(axis=0), 0.0, 0.5)  # a category stays one
    return peer.local if len(rows) >= _MOST_ROWS else Local(np.vstack([rows, rows[:3] + more]))
