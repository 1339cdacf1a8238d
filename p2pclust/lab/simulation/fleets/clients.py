"""A fleet that several clients ask at the control addresses of its peers, while peers crash and answers are lost.

Clients submit jobs, cancel them, ask for their results and status, and label rows, each at a random peer. A client may hear
nothing of what it asked for: its question is lost, or the answer is, or its peer crashes a few effects after the question.
Then it asks again, often with the same request id. The code that answers operators on devices answers them
(`p2pclust.peer.operate`); only the socket and the shell around the core are replaced. What all clients saw is one history
(`p2pclust.lab.simulation.checks.history`), which is checked when everything has healed and all peers have been asked again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

import msgpack
import numpy as np

from p2pclust.lab.simulation.checks.history import History, Outcome, violations
from p2pclust.lab.simulation.fleets.attempts import Attempt, Chooser, Question, Refused, conversation
from p2pclust.lab.simulation.fleets.fleet import RandomFleet
from p2pclust.lab.simulation.fleets.jobs import DrawnJob, job_of, same_bits, treatment_of
from p2pclust.lab.simulation.fleets.plan import FleetPlan
from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.lab.simulation.world.world import Observer, World
from p2pclust.peer.core.core import Core
from p2pclust.peer.core.document import Document, majority
from p2pclust.peer.core.effects import Effect
from p2pclust.peer.core.events import Event
from p2pclust.peer.core.reports import JobBegun, Report
from p2pclust.peer.operate.questions import Questions
from p2pclust.peer.operate.server import HERE, Caller, read_question
from p2pclust.peer.shell.compute import DataStatus
from p2pclust.peer.shell.logs import Watch
from p2pclust.peer.work.floor import Floor
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.reasons import CANCELLED
from p2pclust.protocols.engine.summaries import raw_centers
from p2pclust.transport.links import Counters
from p2pclust.transport.wire import pack, unpack

_TRIP_S: Final = (0.0005, 0.01)  # of a question or an answer
_THINK_S: Final = (0.05, 1.5)
_WAIT_S: Final = (2.0, 8.0)  # until a client gives an answer up
_GONE: Final = 0.15  # the share of connections that end before the last answer
_STRUCK: Final = 0.12  # the share of questions whose peer crashes soon after it arrived
_EFFECTS: Final = 14  # within so many effects
_LAST_S: Final = 20.0  # how long the last questions may take


class _Shell:
    """What the control address uses of a shell, around one life of a simulated peer."""

    def __init__(self, world: World, peer: Peer) -> None:
        assert peer.core is not None
        self._world, self._peer = world, peer
        self.core: Core = peer.core
        self.store = SimpleNamespace(
            blobs=SimpleNamespace(chunk=peer.disk.chunk, read=lambda digest: iter(peer.disk.blob(digest)))
        )
        rows, columns = peer.local.X.shape
        self.worker = SimpleNamespace(features=(), data=DataStatus(rows, columns, ""), floor=Floor())
        self.links = SimpleNamespace(
            roster=SimpleNamespace(fleet_id="simulated", serial=1), counters=Counters(), problem_with=lambda name: ""
        )
        self.allow_list = SimpleNamespace(outdated={})
        self.heard: dict[str, float] = {}
        self.outcomes: dict[str, Any] = {}
        self.version, self.began_at = "simulated", world.now
        self.listeners: list[Watch] = []

    @property
    def now(self) -> float:
        return self._peer.clock.read(self._world.now)

    def listen(self, listener: Watch) -> None:
        self.listeners.append(listener)

    def step(self, event: Event) -> None:
        if self._peer.core is self.core:  # else this life is over
            self._world.step(self._peer, event)


class _ControlAddresses(Observer):
    """The control addresses of all peers of one world."""

    watches = (Report,)

    def __init__(self) -> None:
        self._here: dict[str, tuple[_Shell, Questions]] = {}

    def started(self, world: World, peer: Peer) -> None:
        shell = _Shell(world, peer)
        self._here[peer.name] = (shell, Questions(shell))  # type: ignore[arg-type]

    def crashed(self, world: World, peer: Peer, lost_writes: int) -> None:
        self._here.pop(peer.name, None)  # clients that wait for an answer wait in vain

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        if isinstance(effect, Report) and peer.name in self._here:
            for listener in self._here[peer.name][0].listeners:
                listener(effect.verb, effect.fields)

    def ask(self, peer: Peer, number: int, asked: Question, heard: Callable[[dict[str, Any] | Refused], None]) -> None:
        """A question arrives at a peer that runs and is not stopped; `heard` receives each answer when it is sent."""
        question = pack("ask", {"number": number, "verb": asked.verb}, [msgpack.packb(dict(asked.fields))])
        _, verb, fields = read_question(question)

        def send(frames: list[bytes]) -> bool:
            kind, _, rest = unpack(frames)
            if kind == "refused":
                heard(Refused(rest[0].decode()))
                return True
            answer = dict(msgpack.unpackb(b"".join(rest), raw=False, strict_map_key=False))
            if kind == "answer" and (verb == "submit" or (verb == "cancel" and "by" in answer)):
                kept = peer.disk.read_synced("job" if verb == "submit" else "cancel", answer["job"]) is not None
                assert kept, f"S6: {peer.name} answers a {verb} of {answer['job']} that is not on its disk"
            heard(answer)
            return True

        self._here[peer.name][1].take(Caller(send, number, HERE), verb, fields)


class _Documents(Observer):
    """Notes all jobs that ever began."""

    watches = (JobBegun,)

    def __init__(self) -> None:
        self.known: dict[str, Document] = {}

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        if isinstance(effect, JobBegun) and peer.core is not None:
            self.known[effect.job] = peer.core.jobs.table.documents[effect.job]


class _Client:
    """One client: one attempt at a time."""

    def __init__(self, fleet: ClientFleet, chooser: Chooser) -> None:
        self._fleet, self._chooser = fleet, chooser
        self._rng = chooser.rng
        self._number = 0  # of the last attempt
        self._last_heard = 0.0
        self.attempt: Attempt | None = None
        self.calm = False  # whether its connections hold

    def go_on(self) -> None:
        """Begin the next attempt, unless all is over."""
        world = self._fleet.world
        if self.calm:
            return
        attempt = self._chooser.choose(self._fleet.history.jobs(), world.now)
        if attempt is None:
            world.at(world.now + float(self._rng.uniform(*_THINK_S)), self.go_on)
        else:
            self.begin(attempt)

    def begin(self, attempt: Attempt) -> None:
        """Begin an attempt; it is given up some seconds later."""
        world, rng = self._fleet.world, self._rng
        self._number += 1
        self.attempt = attempt
        self._talk = conversation(attempt, self._fleet.submission(attempt.request), self._fleet.locals[attempt.peer])
        self._answers_left = int(rng.integers(0, 3)) if rng.random() < _GONE and not self.calm else 10**6
        world.at(world.now + float(rng.uniform(*_WAIT_S)), partial(self._end, self._number, "unknown"))
        self._go_on(self._number, lambda: next(self._talk))

    def _go_on(self, number: int, step: Callable[[], Question | None]) -> None:
        try:
            asked = step()
        except StopIteration:
            self._end(number, "ok")
        except Refused:
            self._end(number, "failed")
        else:
            if asked is not None:
                trip_s = float(self._rng.uniform(*_TRIP_S))
                self._fleet.world.at(self._fleet.world.now + trip_s, partial(self._arrive, number, asked))

    def _arrive(self, number: int, asked: Question) -> None:
        """The question reaches its peer, or a closed port."""
        if number != self._number or self.attempt is None:
            return
        peer, world = self._fleet.world.peers[self.attempt.peer], self._fleet.world
        if peer.core is None:
            self._end(number, "failed")
        elif world.now < peer.frozen_until:
            world.at(peer.frozen_until, partial(self._arrive, number, asked))
        else:
            if not self.calm and asked.verb in ("submit", "cancel") and self._rng.random() < _STRUCK:
                self._fleet.struck[peer.name] = int(self._rng.integers(_EFFECTS))
            if asked.verb == "cancel":
                self._fleet.published.cancelled[asked.fields["job"]] = None
            self._fleet.addresses.ask(peer, number, asked, partial(self._sent, number))

    def _sent(self, number: int, answer: dict[str, Any] | Refused) -> None:
        """The peer answers; the answer is lost if the connection ended."""
        if number == self._number and self._answers_left:
            self._answers_left -= 1
            trip_s = float(self._rng.uniform(*_TRIP_S))
            self._last_heard = max(self._last_heard, self._fleet.world.now + trip_s)  # a connection keeps the order
            self._fleet.world.at(self._last_heard, partial(self._hear, number, answer))

    def _hear(self, number: int, answer: dict[str, Any] | Refused) -> None:
        if number == self._number and self.attempt is not None:
            if isinstance(answer, Refused):
                self._go_on(number, partial(self._talk.throw, answer))
            else:
                self._go_on(number, partial(self._talk.send, answer))

    def _end(self, number: int, outcome: Outcome) -> None:
        if number != self._number or self.attempt is None:
            return
        attempt, self.attempt = self.attempt, None
        self._chooser.ended(attempt, outcome)
        self._fleet.note(attempt, outcome)
        self._fleet.world.at(self._fleet.world.now + float(self._rng.uniform(*_THINK_S)), self.go_on)


class ClientFleet(RandomFleet):
    """One run. The only job of its plan is the model of all that clients submit."""

    deadline_s = 240.0  # several jobs at once

    def __init__(self, plan: FleetPlan) -> None:
        super().__init__(replace(plan, jobs=()))
        (self._model,) = plan.jobs
        self.history = History()
        self.addresses, self._documents = _ControlAddresses(), _Documents()
        self.world.watch(self.addresses, self._documents)
        rng = np.random.default_rng([plan.seed, 61])
        self.struck: dict[str, int] = {}  # peers that crash after so many more effects
        self._states: dict[str, JobState] = {}  # by digest
        first = plan.seed * 100
        self._clients = [
            _Client(self, Chooser(f"c{n}", self.names, [f"request-{first + 10 * n + k}" for k in range(n_jobs)], own))
            for n, (n_jobs, own) in enumerate(
                (int(rng.integers(0, 4)), np.random.default_rng([plan.seed, 62, n]))
                for n in range(int(rng.integers(2, 5)))
            )
        ]

    # -- what clients do -------------------------------------------------------------------------------------------------

    def submission(self, request: str) -> dict[str, object]:
        if not request:
            return {}
        job = job_of(self._model, int(request.removeprefix("request-")))
        treatment = treatment_of(self._model, self.plan.n_peers)
        return {"mathematics": msgpack.packb(job.to_dict()), "roster": [], **treatment.to_dict()}

    def note(self, attempt: Attempt, outcome: Outcome) -> None:
        self.marks.counts[f"{attempt.verb}: {outcome}"] += 1
        self.history.operations.append(
            attempt.operation(float("inf") if outcome == "unknown" else self.world.now, outcome)
        )

    def _crashes(self, peer: Peer, effect: Effect) -> bool:
        if self.phase_crashes(peer, effect):
            return True
        left = self.struck.pop(peer.name, None)
        if left is None or not self.phase_crashes.active:
            return False
        if left:
            self.struck[peer.name] = left - 1
            return False
        self.marks.counts["peer crashed at a question"] += 1
        self.phase_crashes.crashed.append(peer.name)
        return True

    # -- the run ---------------------------------------------------------------------------------------------------------

    def lose(self, name: str) -> None:
        self.history.stores_lost.append((name, self.world.now))
        super().lose(name)

    def may_lose(self, name: str) -> bool:
        """Leave a majority of intact stores to every job that has one: its roster may be smaller than the fleet."""
        return super().may_lose(name) and not any(self._spare(one) == 0 for one in self._documents.known.values())

    def _spare(self, document: Document) -> int:
        """Return how many peers of a job may lose their stores; negative: it cannot end any more.

        A job may have that from the beginning, if its submitter had not heard of a store that was lost.
        """
        stores = zip(document.roster, document.store_ids, strict=True)
        n_intact = sum(self.world.peers[name].disk.store_id == store for name, store in stores)
        return n_intact - majority(len(document.roster))

    def _live(self) -> None:
        self.world.crash_point = self._crashes
        for number, client in enumerate(self._clients):
            self.world.at(self.world.now + 0.1 * number, client.go_on)
        super()._live()

    def _heal(self) -> None:
        for client in self._clients:
            client.calm = True
        super()._heal()
        # Ask each peer for the result of each job, and label its rows: calmly, one after another.
        world, client = self.world, self._clients[0]
        world.run_until(world.now + _WAIT_S[1], lambda: all(one.attempt is None for one in self._clients))
        self.history.settled_at = world.now
        for job in [*self.history.jobs(), *(job for job in self._documents.known if job not in self.history.jobs())]:
            for name in self.names:
                for verb in ("result", "assign"):
                    client.begin(Attempt("last", name, verb, world.now, job=job))
                    world.run_until(world.now + _LAST_S, lambda: client.attempt is None)

    def _all_ended(self) -> bool:
        """Return whether all peers have ended all their jobs that any peer still knows, and that can end."""
        cores = {peer.name: peer.core for peer in self.world.peers.values() if peer.core is not None}
        known = {job for core in cores.values() for job in core.jobs.jobs}
        needed = [one for one in map(self._documents.known.__getitem__, known) if self._spare(one) >= 0]
        return len(cores) == len(self.names) and all(
            one.id in core.jobs.jobs and core.jobs.jobs[one.id].ledger.finished
            for name, core in cores.items() for one in needed if name in one
        )  # fmt: skip

    def _judge(self) -> None:
        story = "\n".join(self.invariants.story)
        for document in self._documents.known.values():
            for peer in self.world.peers.values():
                job = None if peer.core is None else peer.core.jobs.jobs.get(document.id)
                ref = None if job is None or not job.ledger.finished else job.ledger.register.ref
                if ref is None or ref.digest.hex() in self._states:
                    continue
                state = self._states[ref.digest.hex()] = JobState.decode(peer.bytes_of(ref))
                self.marks.counts["job done" if state.status == "done" else "job cancelled"] += 1
                right = state.status == "done" or state.reason.startswith(CANCELLED)
                assert right, f"the job failed: {state.reason} ({document.id})"
                mathematics = Job.from_dict(msgpack.unpackb(document.mathematics))
                same_bits(self, DrawnJob(self._model, mathematics, document.id, document.roster), state)
        found = violations(self.history, self._labels)
        assert not found, "\n".join([*found, story])
        self.marks.counts["jobs"] += len(self._documents.known)
        self.marks.counts["operations"] += len(self.history.operations)

    def _labels(self, digest: str, name: str) -> tuple[int, ...]:
        """Return the nearest center of each row, without the code that labels."""
        state = self._states[digest]
        if state.status != "done":
            return ()
        apart = self.locals[name].X[:, None, :] - raw_centers(state)[None, :, :]
        return tuple(int(label) for label in (apart**2).sum(axis=2).argmin(axis=1))
