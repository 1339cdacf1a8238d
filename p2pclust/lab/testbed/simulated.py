"""A fleet in virtual time: the cores of real peers in the simulator, from one seed. Faults strike at the same phases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgpack
import numpy as np

from p2pclust.errors import FleetError
from p2pclust.jobs.request import JobRequest
from p2pclust.lab.simulation.checks.invariants import Invariants
from p2pclust.lab.simulation.checks.jobs import Waits
from p2pclust.lab.simulation.world.network import Conditions, LinkTraffic, Network
from p2pclust.lab.simulation.world.peer import Peer, paper_roster
from p2pclust.lab.simulation.world.world import Observer, World
from p2pclust.lab.testbed.driver import Driver, FleetPort, What
from p2pclust.lab.testbed.faults import PAIR, Cuts
from p2pclust.lab.testbed.peer.lies import FirstUse, lie_called
from p2pclust.lab.testbed.peer.round_views import centers_of
from p2pclust.lab.testbed.power import Use, modelled_cpu_s
from p2pclust.lab.testbed.spec import FleetResult, FleetSpec, OnEvent
from p2pclust.peer.core.effects import Compute, Effect
from p2pclust.peer.core.events import Submit
from p2pclust.peer.core.reports import Report
from p2pclust.peer.core.timing import Limits, preset

_FOREVER_S = 1e6
_LINK_S = 60.0
_LAN_S = 0.001  # the latency of a device whose link is not stated
_NOTICE_S = 1.0  # how long a job waits until goodbyes are heard


def carry_out(spec: FleetSpec, on_event: OnEvent) -> FleetResult:
    """Run the spec in virtual time.

    Raise FleetError if the peers do not find each other; UsageError if a job is not meant for so many peers.
    """
    spec.refuse_floods()
    work = Driver(_SimulatedFleet(spec, on_event)).run()
    try:
        work.send(None)  # it never waits: a simulation is done when its call returns
    except StopIteration as end:
        result: FleetResult = end.value
        return result
    raise AssertionError("a simulated fleet waited for an event loop")


class _SimulatedFleet(FleetPort, Observer):
    """A fleet that observes its own world: it turns reports into events, and counts what devices compute."""

    watches = (Report, Compute)
    unit = "virtual seconds"

    def __init__(self, spec: FleetSpec, on_event: OnEvent) -> None:
        super().__init__(spec, on_event)
        self.answer_s = spec.give_up_s  # a peer may first ask the others who they are
        network = Network(
            Conditions((0.0001, 0.0005)), np.random.default_rng([spec.seed, 2]),
            {peer.name: (_LAN_S, 0.0) for peer in spec.peers if peer.link is None},
        )  # fmt: skip
        self._world = World(
            {peer.name: peer.local() for peer in spec.peers}, network,
            preset(spec.timing).allowing(spec.quiet_s), Limits(), np.random.default_rng([spec.seed, 3]),
            (Invariants(), Waits()),
            {peer.name: peer.fitness for peer in spec.peers}, spec.overlay, partial_view=spec.partial_view,
            keyed=any(request.treatment.keyed for request in spec.jobs),
        )  # fmt: skip
        for number, peer in enumerate(spec.peers):
            self._world.workers.cpu_share[peer.name] = peer.cpu_share
            if peer.link is not None:
                rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([spec.seed, 4, number])))
                self._world.lines.shape(peer.name, peer.link, rng)
        self._enrolled = [peer.name for peer in spec.peers if peer.enrolled]
        self._tasks: Counter[str] = Counter()  # that devices computed
        self._numbers: Counter[str] = Counter()  # and the numbers in the rows that these went through
        self._shown = ("", -1)  # the job and round of the centers that were reported last
        self._left: dict[str, None] = {}  # peers that said goodbye and have not come back
        self._uses = {name: FirstUse() for name in self.names}  # since when each peer uses replaced rows
        if len(self._enrolled) < len(spec.peers) or spec.plans("revoke"):
            for name in self.names:
                own = [] if name in self._enrolled else [name]  # a stranger has put itself on its own roster
                self._world.give_roster(name, paper_roster(len(self._enrolled), [*self._enrolled, *own]))
        self._world.watch(self)
        self._behind = ""  # a peer that did not see all others when this was last looked at
        self._aggregating: dict[bool, str] = {}  # of the submitted job (False), and of one within it (True)
        self._world.crash_point = self._at_effect

    @property
    def now(self) -> float:
        return self._world.now

    async def start(self) -> None:
        for name in self._world.peers:
            if name not in self.faults.late:
                self._world.start(name)
        linked = self.linked if self.spec.plans("join") else self._all_linked
        if not self._world.run_until(_LINK_S, linked):
            raise FleetError(f"the peers did not find each other within {_LINK_S:.0f} virtual seconds")

    async def advance(self, until: Callable[[], bool], timeout_s: float) -> bool:
        return self._world.run_until(self.now + timeout_s, until)

    async def settle(self) -> None:
        def goodbyes_heard() -> bool:
            cores = [peer.core for peer in self._world.peers.values() if self._left and peer.core is not None]
            return not any(core.membership.present(name) for core in cores for name in self._left)

        self._world.run_until(self.now + _NOTICE_S, goodbyes_heard)

    def _all_linked(self) -> bool:
        # Evaluated after every event: the peer that did not see all others then most often settles it.
        if self._behind and self.faults.belongs(self._behind) and not self._sees_all(self._behind):
            return False
        own = (name for name in self._world.peers if self.faults.belongs(name))
        self._behind = next((name for name in own if not self._sees_all(name)), "")
        return not self._behind

    def _sees_all(self, name: str) -> bool:
        core = self._world.peers[name].core
        return core is not None and core.membership.all_here()

    def linked(self) -> bool:
        peers = self._world.peers
        started = (name for name, peer in peers.items() if peer.core is not None)
        # A peer that nothing resumes never hears of the others: waiting for it would take until the fleet is given up.
        here = [name for name in started if self.faults.belongs(name) and not self.faults.still(name)]
        seen = [core.membership for name in here if (core := peers[name].core) is not None]
        return all(membership.present(name) for membership in seen for name in here)

    def alive(self, name: str) -> bool:
        return self._world.peers[name].core is not None

    readable = alive

    def answers(self, name: str) -> bool:
        peer = self._world.peers[name]
        return peer.core is not None and not peer.asleep and self.now >= peer.frozen_until

    def ends(self, name: str) -> int:
        peer = self._world.peers[name]
        return peer.life - (peer.core is not None)

    def submit(self, name: str, request: JobRequest) -> None:
        event = Submit(msgpack.packb(request.job.to_dict()), request.roster, request.treatment)
        self._world.step(self._world.peers[name], event)

    async def read(self, names: Sequence[str], what: What, key: str) -> dict[str, bytes]:
        return {name: data for name in names if (data := self._read(self._world.peers[name], what, key))}

    def _read(self, peer: Peer, what: What, key: str) -> bytes:
        if what == "blob":
            return b"".join(peer.disk.blob(bytes.fromhex(key)))
        if peer.core is None:
            return b""
        job = peer.core.jobs.jobs[key]
        if what == "note":
            return job.workspace.note
        ref = job.ledger.register.ref
        assert ref is not None
        return ref.payload if ref.payload is not None else b"".join(peer.disk.blob(ref.digest))

    def outcome(self, name: str) -> dict[str, Any]:
        gone = not self.alive(name) or self.devices.gone(name)
        lost = gone and name not in self._left
        return {"lost": lost, "max_rss_mb": None, "dropped": {}} | self._world.peers[name].counters

    def links(self) -> Mapping[tuple[str, str], LinkTraffic]:
        return self._world.traffic.links()

    def virtual_seconds(self) -> float | None:
        return self.now

    # -- what faults and plans do ------------------------------------------------------------------------------------

    def at(self, delay_s: float, action: Callable[[], None]) -> None:
        self._world.at(self.now + delay_s, action)

    def bring_up(self, name: str) -> None:
        self._left.pop(name, None)
        self._world.start(name)

    def kill(self, name: str) -> None:
        self._world.crash(name)

    def leave(self, name: str, *, by_round: bool) -> None:
        if by_round:
            self.after_step(partial(self.leave, name, by_round=False))
        elif self.alive(name):
            self._world.leave(name)
            self._left[name] = None
            self.report(name, "left", {})
            self.report(name, "exited", {"code": 0})

    def pause(self, name: str, for_s: float | None) -> None:
        self._world.freeze(name, _FOREVER_S if for_s is None else for_s)

    def resume(self, name: str) -> None:
        self._world.thaw(name)

    def stopped_for_good(self, name: str) -> bool:
        peer = self._world.peers[name]
        return peer.core is not None and peer.frozen_until > self.now + _FOREVER_S / 2

    def sleep(self, name: str) -> None:
        self._world.sleep(name)

    def wake(self, name: str) -> None:
        self._world.wake(name)

    def measure(self, name: str) -> Use | None:
        counters = self._world.peers[name].counters
        n_messages = counters["messages_sent"] + counters["messages_received"]
        cpu_s = modelled_cpu_s(n_messages, self._tasks[name], self._numbers[name])
        return Use(counters["bytes_sent"], counters["bytes_received"], cpu_s)

    def impose(self, name: str, conditions: Mapping[str, Any]) -> None:
        peer = self._world.peers[name]
        for what, value in conditions.items():
            match what:
                case "slowness":
                    self._world.workers.slow(name, value)
                case "loss":
                    self._world.network.lose(name, value)
                case "rows":
                    peer.local = peer.local.with_rows(value["X"])
                    self._uses[name].replaced(value["number"])
                case "lies":
                    peer.local = peer.local.lying(lie_called(value["how"]))
                    self._uses[name].replaced(value["number"])

    def cut(self, cuts: Cuts, pairs: Sequence[PAIR]) -> None:
        network = self._world.network
        for source, target in pairs:
            if network.reaches(source, target) != cuts.open(source, target):
                (network.heal if cuts.open(source, target) else network.cut)(source, target)

    def revoke(self, name: str, revoked: Sequence[str]) -> None:
        enrolled = [other for other in self._enrolled if other not in revoked]
        first = next((other for other in sorted(enrolled) if self.alive(other)), None)
        if first is not None:
            self._world.give_roster(first, paper_roster(len(self._enrolled) + len(revoked), enrolled))

    def after_step(self, action: Callable[[], None]) -> None:
        self.at(0.0, action)

    def neighbours(self) -> Mapping[str, Sequence[str]] | None:
        if self.spec.overlay is None:
            return None
        return {name: self._world.overlay.neighbours(name) for name in self._world.peers}

    def relink(self, a: str, b: str, *, up: bool) -> None:
        self._world.relink(a, b, up=up)

    # -- what peers do ------------------------------------------------------------------------------------------------

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        if isinstance(effect, Compute):
            self._tasks[peer.name] += 1
            # Only a contribution goes through the rows; the rest is about sums.
            if effect.task.kind == "contribute":
                self._numbers[peer.name] += peer.local.X.size
        elif isinstance(effect, Report):
            self.report(peer.name, effect.verb, effect.fields)
            if effect.verb in ("combined", "finished") and "within" not in effect.fields:
                if effect.verb == "combined":
                    self.record.load(self.now, {name: other.counters for name, other in world.peers.items()})
                job_id = effect.fields["job"]
                job = None if peer.core is None else peer.core.jobs.jobs.get(job_id)
                if job is not None and self._shown != (job_id, job.ledger.register.round):
                    self._shown = (job_id, job.ledger.register.round)
                    if (centers := centers_of(peer.core, job_id)) is not None:
                        self.report(peer.name, "centers", {"job": job_id, **centers})

    def crashed(self, world: World, peer: Peer, lost_writes: int) -> None:
        self.report(peer.name, "exited", {"code": -9})

    def started(self, world: World, peer: Peer) -> None:
        self.report(peer.name, "started", {"life": peer.life})
        if self.devices.asleep(peer.name):
            world.sleep(peer.name)

    def _at_effect(self, peer: Peer, effect: Effect) -> bool:
        """Carry out the fault that is due at an effect of a peer; returns whether it ended the peer."""
        used = self._uses[peer.name].see(effect)
        if used is not None:
            self.report(peer.name, used.verb, used.fields)
            self.faults.note_damage(peer.name, used.fields)
        if not isinstance(effect, Report):
            return False
        within = "within" in effect.fields
        if effect.verb == "elected":
            self._aggregating[within] = peer.name
        elif effect.verb == "phase":
            phase, round_ = effect.fields["phase"], effect.fields["round"]
            aggregates = self._aggregating.get(within) == peer.name
            self.faults.reached(peer.name, phase, round_, aggregates=aggregates, within=within)
        return peer.core is None
