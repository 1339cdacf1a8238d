"""What goes wrong in a fleet of processes on purpose: real signals, broken links and bad rows, at planned instants."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from p2pclust.fleet.faults import PAIR, Cuts, Damage, Fault, comes, damage_of, goes_on, heals, late, reaches, unfired
from p2pclust.fleet.processes.children import Child
from p2pclust.fleet.record import Record
from p2pclust.fleet.spec import FleetSpec
from p2pclust.peer.core.timing import preset
from p2pclust.transport.keys import ROSTER, Throwaway

__all__ = ["Misfortunes"]

_ENDS_S = 10.0  # how long a killed process may take to be gone, or a peer to say that it suffers
_SOUND = {"slow": {"slowness": 1.0}, "drop": {"loss": 0.0}}


class Misfortunes:
    """Carries out the faults and the trace of a spec on the processes of a fleet.

    Parameters
    ----------
    spec : FleetSpec
    record : Record
        Is told what struck.
    directory : pathlib.Path
        The run's: where victims are decided, and where damaged rows are kept.
    children : mapping of str to Child
        By name; those that run.
    now : callable
        The seconds since the fleet was made.
    until : callable
        Waits for a condition on what children said, and for so many seconds at most.

    Attributes
    ----------
    returning, joining, paused, late, revoked : dict of str to None
        Who is down but will be back, who is being started, who stands still, who has not been started yet, and who is no
        longer on the fleet roster.
    keys : Throwaway or None
        What signs rosters.
    damage : list of Damage
        Rows that were used in the place of others.
    flaw : BaseException or None
        What kept a fault from being carried out: whoever waits for the fleet raises it.
    """

    def __init__(
        self, spec: FleetSpec, record: Record, directory: Path, children: Mapping[str, Child], now: Callable[[], float],
        until: Callable[[Callable[[], bool], float], Awaitable[bool]],
    ) -> None:  # fmt: skip
        self._spec = spec
        self._record = record
        self._directory = directory
        self._children = children
        self._now = now
        self._until = until
        self._tasks: list[asyncio.Task[None]] = []
        self._rows = {peer.name: peer.X for peer in spec.peers}
        self._cuts = Cuts(list(self._rows))
        self._ends_of_cuts = 0  # that are still to come by themselves
        self._lasting: dict[tuple[str, str], int] = {}  # which fault of a kind a device suffers from
        self._paused_until: dict[str, float] = {}
        self._suffers: dict[str, dict[str, Any]] = {name: {} for name in self._rows}
        self._ending: dict[str, None] = {}  # who was told to end, or killed, and may not have ended yet
        self._asked = 0
        self._answered: dict[str, int] = {}
        self._links = (
            None if spec.overlay is None else {name: dict.fromkeys(near) for name, near in spec.overlay.items()}
        )
        self.returning: dict[str, None] = {}
        self.joining: dict[str, None] = {}
        self.paused: dict[str, None] = {}
        self.late = dict.fromkeys(late(spec.faults))
        self.damage: list[Damage] = []
        self.flaw: BaseException | None = None
        #: Empties a device's battery and does what follows from that; False if the device has none.
        self.empties: Callable[[str], bool] = lambda name: False
        self.revoked: dict[str, None] = {}
        self.keys: Throwaway | None = None  # of the fleet, once there are some

    def armed(self, name: str) -> list[dict[str, Any]]:
        """Return the faults by round as the configuration of a peer holds them."""
        claims = self._directory / "faults"
        claims.mkdir(exist_ok=True)
        return [
            {
                "number": number,
                "do": fault.do,
                "round": fault.round,
                "phase": fault.phase,
                "who": fault.who,
                "within": fault.within,
                "claim": str(claims / str(number)),
                "suffers": self._suffering(number, fault, name),
                "told": fault.told(),
            }
            for number, fault in enumerate(self._spec.faults)
            if fault.round is not None and (not fault.who or name in fault.who)
        ]

    def plan(self) -> None:
        """Let the planned seconds pass from now on."""
        for number, fault in enumerate(self._spec.faults):
            if fault.seconds is not None:
                self._record.planned(self._now(), number, fault)
                self._soon(self._after(number, fault, fault.seconds))
        if self._spec.trace:
            self._soon(self._follow_trace())

    async def before_job(self, job: int) -> None:
        """Let happen what is planned before a job is handed in, and wait until its victims say that it has."""
        for number, fault in enumerate(self._spec.faults):
            if fault.job == job:
                self._all(number, fault, fault.who, {"job_number": job})
        asked = {name: told["number"] for name, told in self._suffers.items() if "number" in told}
        here = [name for name in asked if self._answers(name)]
        await self._until(lambda: all(self._answered.get(name, 0) >= asked[name] for name in here), _ENDS_S)
        await self._until(lambda: not any(self._children[name].alive for name in self._ending), _ENDS_S)
        self._ending.clear()

    def _answers(self, name: str) -> bool:
        child = self._children[name]
        return child.alive and not child.asleep and name not in self.paused

    def cancel(self) -> None:
        """Let nothing more happen."""
        for task in self._tasks:
            task.cancel()

    def told(self, name: str, fields: Mapping[str, Any]) -> None:
        """A peer told that a fault met it: it does to itself what it can; the rest is our part."""
        number = fields["number"]
        fault = self._spec.faults[number]
        match fault.do:
            case "restart":
                self._bring_back(fault, name)
            case "pause":
                self._note_pause(fault, name)
            case "leave" | "kill":
                pass
            case _:
                self._strike(number, fault, name)

    def heard(self, name: str, verb: str, fields: Mapping[str, Any]) -> None:
        """A peer says that it suffers as it was told, or that it works with other rows from now on."""
        if verb == "suffers":
            self._answered[name] = max(self._answered.get(name, 0), fields["number"])
            return
        number = fields["number"]
        rows = damage_of(self._spec.faults[number], number, self._rows[name], name, self._spec.seed)
        self.damage.append(Damage(name, self._spec.faults[number].how, fields["job"], fields["round"], rows))

    def counts(self, name: str) -> bool:
        """Whether the peer is there, or will be back."""
        if name in self.revoked or self.still(name):
            return False
        if self._children[name].alive or name in self.returning or name in self.joining:
            return True
        return comes(self._spec.faults, self._struck(), name)

    def still(self, name: str) -> bool:
        """Whether it stands still for good: nothing will wake it up."""
        lives = self._children[name].alive and name not in self.returning
        endless = lives and self._paused_until.get(name) == float("inf")
        return endless and not goes_on(self._spec.faults, self._struck(), name)

    def cut_off(self, name: str, finished: Sequence[str]) -> bool:
        """Whether a peer can never hear of the end from those that finished: no way is left, and none will be again."""
        if self._ends_of_cuts or self._spec.trace or heals(self._spec.faults, self._struck()):
            return False
        links = self._cuts.links(self._near())
        return not reaches({a: [b for b in near if self.counts(b)] for a, near in links.items()}, name, finished)

    def links(self, roster: Sequence[str]) -> Mapping[str, Sequence[str]] | None:
        """Return the neighbours of each peer that is there or on the roster, where they hear each other; None if all do."""
        links = self._cuts.links(self._near())
        if self._links is None and all(len(near) == len(links) - 1 for near in links.values()):
            return None
        here = [name for name in links if name not in self.late and (name in roster or self.counts(name))]
        return {name: [other for other in links[name] if other in here] for name in here}

    def _near(self) -> dict[str, list[str]] | None:
        return None if self._links is None else {name: list(near) for name, near in self._links.items()}

    def unfired(self) -> tuple[str, ...]:
        """Return the faults that have not struck."""
        return unfired(self._spec.faults, self._struck())

    def _struck(self) -> dict[int, None]:
        return {event["number"]: None for event in self._record.events if event["verb"] == "fault"}

    # -- when ---------------------------------------------------------------------------------------------------------

    async def _after(self, number: int, fault: Fault, delay_s: float) -> None:
        await _pass(delay_s)
        self._all(number, fault, fault.who or self._aggregators(), {"seconds": fault.seconds})

    def _all(self, number: int, fault: Fault, victims: Sequence[str], moment: Mapping[str, Any]) -> None:
        for name in victims[:1] if fault.do in ("cut", "heal") else victims:
            self._record.take(self._now(), name, "fault", {"number": number, **fault.told(), **moment})
            self._strike(number, fault, name)

    def _aggregators(self) -> tuple[str, ...]:
        terms = [job.terms for job in self._record.jobs.values() if job.terms]
        return (terms[-1][max(terms[-1])],) if terms else ()

    def _soon(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._done)
        self._tasks.append(task)

    def _done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and self.flaw is None:
            self.flaw = task.exception()

    # -- what ---------------------------------------------------------------------------------------------------------

    def _strike(self, number: int, fault: Fault, name: str) -> None:
        child = self._children[name]
        match fault.do:
            case "kill":
                self._kill(name)
            case "drain":
                if not self.empties(name):
                    self._kill(name)
            case "restart":
                self._kill(name)
                self._bring_back(fault, name)
            case "pause":
                child.signal(signal.SIGSTOP)
                self._note_pause(fault, name)
            case "resume":
                self._go_on(name)
                child.signal(signal.SIGCONT)
            case "leave":
                self._ending[name] = None
                child.signal(signal.SIGCONT)  # whoever stands still is woken up to leave
                child.tell({"do": "counters"})  # it takes them with it
                child.tell({"do": "leave"})
            case "join":
                self._come(name)
            case "cut" | "heal":
                self._cut(fault, name)
            case "revoke":
                self._revoke(name)
            case _:
                self._tell(name, self._suffering(number, fault, name))
                self._lasting[fault.do, name] = number
                if fault.for_s is not None:
                    self._soon(self._recover(number, fault, name, fault.for_s))

    def _suffering(self, number: int, fault: Fault, name: str) -> dict[str, Any]:
        """Return what a victim is told of a fault, as `p2pclust.peer.testbed.conditions` has it."""
        match fault.do:
            case "cut":
                pairs = self._cuts.pairs(fault.who or (name,), fault.apart_from, one_way=fault.one_way)
                deaf = [source for source, target in pairs if target == name]
                return {"deaf": deaf, "mute": [target for source, target in pairs if source == name]}
            case "slow":
                return {"slowness": fault.factor}
            case "drop":
                return {"loss": fault.probability}
            case "corrupt-data":
                rows = damage_of(fault, number, self._rows[name], name, self._spec.seed)
                file = self._directory / name / f"damaged-{number}.npy"
                np.save(file, rows, allow_pickle=False)
                return {"rows": {"file": str(file), "number": number}}
        return {}

    def _tell(self, name: str, told: Mapping[str, Any]) -> None:
        """Let a peer suffer, also in its next lives."""
        self._asked += 1
        self._suffers[name] |= {**told, "number": self._asked}
        self._children[name].configure({"suffers": self._suffers[name]})
        self._children[name].tell({"do": "suffer", **told, "number": self._asked})

    async def _recover(self, number: int, fault: Fault, name: str, for_s: float) -> None:
        await _pass(for_s)
        if self._lasting.get((fault.do, name)) == number:  # no other one of its kind took its place
            self._tell(name, _SOUND[fault.do])
            self._record.take(self._now(), name, "recovered", {"from": fault.do})

    # -- cuts ---------------------------------------------------------------------------------------------------------

    def _cut(self, fault: Fault, name: str) -> None:
        who = fault.who or (name,)
        pairs = self._cuts.pairs(who, fault.apart_from, one_way=fault.one_way)
        if fault.do == "heal":
            pairs = self._cuts.about(who, fault.apart_from, one_way=fault.one_way)
            self._cuts.heal(pairs)
        else:
            self._cuts.add(pairs)
            if fault.for_s is not None:
                self._ends_of_cuts += 1
                self._soon(self._end_cut(name, pairs, fault.for_s))
        self._tell_ends(pairs)

    async def _end_cut(self, name: str, pairs: Sequence[PAIR], for_s: float) -> None:
        await _pass(for_s)
        self._ends_of_cuts -= 1
        self._cuts.end(pairs)
        self._tell_ends(pairs)
        self._record.take(self._now(), name, "recovered", {"from": "cut"})

    def _tell_ends(self, pairs: Sequence[PAIR]) -> None:
        for name in dict.fromkeys(end for pair in pairs for end in pair):
            self._tell(name, {"deaf": self._cuts.deaf(name), "mute": self._cuts.mute(name)})

    # -- the roster ---------------------------------------------------------------------------------------------------

    def _revoke(self, name: str) -> None:
        """As an administrator does it: a new roster, in the hands of one peer; the others hear of it from that one."""
        assert self.keys is not None
        self.revoked[name] = None
        (self._directory / "keys" / ROSTER).write_bytes(self.keys.revoke(name).to_bytes())
        enrolled = (self._children[other] for other in self.keys.roster.names)
        told = next((child for child in enrolled if child.alive and child.name not in self.paused), None)
        if told is not None:
            told.signal(signal.SIGHUP)

    # -- lives --------------------------------------------------------------------------------------------------------

    def _kill(self, name: str) -> None:
        self._ending[name] = None
        self._children[name].signal(signal.SIGKILL)

    def _bring_back(self, fault: Fault, name: str) -> None:
        if name not in self.returning:
            down_s = fault.for_s if fault.for_s is not None else 2 * preset(self._spec.timing).election_max_s
            self.returning[name] = None
            self._soon(self._restart(name, down_s))

    async def _restart(self, name: str, down_s: float) -> None:
        await _pass(down_s)
        await self._until(lambda: not self._children[name].alive, _ENDS_S)
        await self._begin(name)
        self.returning.pop(name, None)

    def _come(self, name: str) -> None:
        if not self._children[name].alive:
            self.late.pop(name, None)
            self.joining[name] = None
            self._soon(self._join(name))

    async def _join(self, name: str) -> None:
        await self._begin(name)
        self.joining.pop(name, None)

    async def _begin(self, name: str) -> None:
        self._go_on(name)
        self._ending.pop(name, None)
        child, links = self._children[name], self._links
        found = {} if links is None else dict(links[name])
        if self._spec.trace:
            child.configure({"links": sorted(found)})  # as a radio would find them
        await child.start()
        now = {} if links is None else links[name]
        for other in self._children:
            if (up := other in now) != (other in found):  # it changed since that was written
                child.tell({"do": "link", "peer": other, "up": up})

    def _note_pause(self, fault: Fault, name: str) -> None:
        self.paused[name] = None
        ends = float("inf") if fault.for_s is None else self._now() + fault.for_s
        self._paused_until[name] = max(self._paused_until.get(name, 0.0), ends)
        if fault.for_s is not None:
            self._soon(self._resume(name, fault.for_s))

    async def _resume(self, name: str, for_s: float) -> None:
        await _pass(for_s)
        if self._now() < self._paused_until.get(name, float("inf")) - 1e-3:
            return  # meanwhile it was paused for longer, or goes on already
        self._go_on(name)
        self._children[name].signal(signal.SIGCONT)
        self._record.take(self._now(), name, "resumed", {})

    def _go_on(self, name: str) -> None:
        self.paused.pop(name, None)
        self._paused_until.pop(name, None)

    # -- links --------------------------------------------------------------------------------------------------------

    async def _follow_trace(self) -> None:
        """Tell both ends of every link that appears or vanishes, when it does."""
        began = self._now()
        for change in self._spec.trace:
            wait_s = began + change.seconds - self._now()
            if wait_s > 0:
                await _pass(wait_s)
            assert self._links is not None, "a trace has an overlay to begin with"
            self._record.take(self._now(), change.a, "link", {"to": change.b, "up": change.up})
            for one, other in ((change.a, change.b), (change.b, change.a)):
                if change.up:
                    self._links[one][other] = None
                else:
                    self._links[one].pop(other, None)
                self._children[one].tell({"do": "link", "peer": other, "up": change.up})


async def _pass(delay_s: float) -> None:
    """Let a planned time pass: a testbed's faults are the one thing that really waits for the clock."""
    timer = asyncio.get_running_loop().create_future()
    handle = asyncio.get_running_loop().call_later(delay_s, timer.set_result, None)
    try:
        await timer
    finally:
        handle.cancel()
