"""Swarm testing of the control addresses: several clients at different peers, while peers crash and answers are lost.

Clients submit jobs, cancel them, ask for their results and status, and label rows, each at a random peer. A client may hear
nothing of what it asked for: its question is lost, or the answer is, or its peer crashes a few effects after the question.
Then it asks again, often with the same request id. What all clients saw is one history
(`p2pclust.lab.simulation.checks.history`), which is checked when everything has healed and all peers have been asked once
more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

import msgpack
import numpy as np

from p2pclust.lab.simulation.checks.history import History, Outcome, violations
from p2pclust.lab.simulation.swarms.attempts import Attempt, Chooser, Question, Refused, conversation
from p2pclust.lab.simulation.swarms.control import ControlAddresses, answer_in
from p2pclust.lab.simulation.swarms.overlays import laid_out
from p2pclust.lab.simulation.swarms.plan import SwarmPlan, draw
from p2pclust.lab.simulation.swarms.swarm import SeedResult, Swarm
from p2pclust.lab.simulation.world.observer import Observer
from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.lab.simulation.world.world import World
from p2pclust.peer.core.document import Document, majority
from p2pclust.peer.core.effects import Effect
from p2pclust.peer.core.reports import JobBegun
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.reasons import CANCELLED
from p2pclust.protocols.engine.runner import replay
from p2pclust.protocols.engine.summaries import raw_centers

_TRIP_S: Final = (0.0005, 0.01)  # of a question or an answer
_THINK_S: Final = (0.05, 1.5)
_WAIT_S: Final = (2.0, 8.0)  # until a client gives an answer up
_GONE: Final = 0.15  # the share of connections that end before the last answer
_STRUCK: Final = 0.12  # the share of questions whose peer crashes soon after it arrived
_EFFECTS: Final = 14  # within so many effects
_LAST_S: Final = 20.0  # how long the last questions may take


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

    def __init__(self, swarm: ClientSwarm, chooser: Chooser) -> None:
        self._swarm, self._chooser = swarm, chooser
        self._rng = chooser.rng
        self._number = 0  # of the last attempt
        self._last_heard = 0.0
        self.attempt: Attempt | None = None
        self.calm = False  # whether its connections hold

    def go_on(self) -> None:
        """Begin the next attempt, unless all is over."""
        world = self._swarm.world
        if self.calm:
            return
        attempt = self._chooser.choose(self._swarm.history.jobs(), world.now)
        if attempt is None:
            world.at(world.now + float(self._rng.uniform(*_THINK_S)), self.go_on)
        else:
            self.begin(attempt)

    def begin(self, attempt: Attempt) -> None:
        """Begin an attempt; it is given up some seconds later."""
        world, rng = self._swarm.world, self._rng
        self._number += 1
        self.attempt = attempt
        self._talk = conversation(attempt, self._swarm.submission(attempt.request), self._swarm.locals[attempt.peer])
        self._answers_left = int(rng.integers(0, 3)) if rng.random() < _GONE and not self.calm else 10**6
        world.at(world.now + float(rng.uniform(*_WAIT_S)), partial(self._end, self._number, "unknown"))
        self._go_on(self._number, lambda: next(self._talk))

    def _go_on(self, number: int, step: Callable[[], Question | None]) -> None:
        """Let the conversation go on to its next question."""
        try:
            asked = step()
        except StopIteration:
            self._end(number, "ok")
        except Refused:
            self._end(number, "failed")
        else:
            if asked is not None:
                trip_s = float(self._rng.uniform(*_TRIP_S))
                self._swarm.world.at(self._swarm.world.now + trip_s, partial(self._arrive, number, asked))

    def _arrive(self, number: int, asked: Question) -> None:
        """The question reaches its peer, or a closed port."""
        if number != self._number or self.attempt is None:
            return
        peer, world = self._swarm.world.peers[self.attempt.peer], self._swarm.world
        if peer.core is None:
            self._end(number, "failed")
        elif world.now < peer.frozen_until:
            world.at(peer.frozen_until, partial(self._arrive, number, asked))
        else:
            if not self.calm and asked.verb in ("submit", "cancel") and self._rng.random() < _STRUCK:
                self._swarm.strike(peer.name, int(self._rng.integers(_EFFECTS)))
            self._swarm.addresses.ask(peer, number, asked, partial(self._sent, number))

    def _sent(self, number: int, frames: list[bytes]) -> None:
        """The peer answers; the answer is lost if the connection ended."""
        if number == self._number and self._answers_left:
            self._answers_left -= 1
            trip_s = float(self._rng.uniform(*_TRIP_S))
            self._last_heard = max(self._last_heard, self._swarm.world.now + trip_s)  # a connection keeps the order
            self._swarm.world.at(self._last_heard, partial(self._hear, number, frames))

    def _hear(self, number: int, frames: list[bytes]) -> None:
        if number != self._number or self.attempt is None:
            return
        kind, fields, _ = answer_in(frames)
        if kind == "refused":
            reason = str(fields["reason"])
            self._go_on(number, lambda: self._talk.throw(Refused(reason)))
        else:
            self._go_on(number, lambda: self._talk.send(fields))

    def _end(self, number: int, outcome: Outcome) -> None:
        if number != self._number or self.attempt is None:
            return
        attempt, self.attempt = self.attempt, None
        self._chooser.ended(attempt, outcome)
        self._swarm.note(attempt, outcome)
        self._swarm.world.at(self._swarm.world.now + float(self._rng.uniform(*_THINK_S)), self.go_on)


class ClientSwarm(Swarm):
    """One run."""

    deadline_s = 240.0  # several jobs at once

    def __init__(self, plan: SwarmPlan) -> None:
        super().__init__(plan)
        self.history = History()
        self.addresses, self._documents = ControlAddresses(), _Documents()
        self.world.watch(self.addresses)
        self.world.watch(self._documents)
        rng = np.random.default_rng([plan.seed, 61])
        self._struck: dict[str, int] = {}  # peers that crash after so many more effects
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
        """Return the fields of a submission."""
        if not request:
            return {}
        plan = self.plan
        job = self._job_of(int(request.removeprefix("request-")))
        treatment = Treatment(
            plan.missing, 0.0, plan.deadline_s if plan.missing == "drop" else 0.0, collect=plan.collect
        )
        return {"mathematics": msgpack.packb(job.to_dict()), "roster": [], **treatment.to_dict()}

    def _job_of(self, seed: int) -> Job:
        plan = self.plan
        off: dict[str, Any] = {{"llf-fcm": "privacy_gate", "llf-cm": "suppress_singletons"}[plan.protocol]: False}
        return cluster_job(
            plan.protocol, n_clusters=3, init=plan.init, tol=0.0, max_rounds=5, seed=seed,
            participation=plan.participation, **off,
        )  # fmt: skip

    def note(self, attempt: Attempt, outcome: Outcome) -> None:
        """Record how an attempt ended."""
        self.marks.counts[f"{attempt.verb}: {outcome}"] += 1
        self.history.operations.append(
            attempt.operation(float("inf") if outcome == "unknown" else self.world.now, outcome)
        )

    def strike(self, name: str, effects: int) -> None:
        """Let a peer crash after so many more effects."""
        self._struck[name] = effects

    def _crashes(self, peer: Peer, effect: Effect) -> bool:
        if self.phase_crashes(peer, effect):
            return True
        left = self._struck.pop(peer.name, None)
        if left is None or not self.phase_crashes.active:
            return False
        if left:
            self._struck[peer.name] = left - 1
            return False
        self.marks.counts["peer crashed at a question"] += 1
        self.phase_crashes.crashed.append(peer.name)
        return True

    # -- the run ---------------------------------------------------------------------------------------------------------

    def _submit(self) -> None:
        world = self.world
        for name in self.names:
            world.start(name)
        assert world.run_until(30.0, self._all_see_all), "L2: the peers did not find each other within 30 s"
        self.network.conditions = self.plan.conditions
        world.crash_point = self._crashes
        for number, client in enumerate(self._clients):
            world.at(world.now + 0.1 * number, client.go_on)

    def _plan_restart(self, name: str, down_s: float, *, wiped: bool) -> None:
        if wiped:
            self.history.stores_lost.append((name, self.world.now))
        super()._plan_restart(name, down_s, wiped=wiped)

    def _may_wipe(self) -> bool:
        """Leave a majority of intact stores to every job that has one: its roster may be smaller than the fleet."""
        return super()._may_wipe() and not any(
            self._spare(document) == 0 for document in self._documents.known.values()
        )

    def _spare(self, document: Document) -> int:
        """Return how many peers of a job may lose their stores; negative: it cannot end any more.

        A job may have that from the beginning, if its submitter had not heard of a store that was lost.
        """
        stores = zip(document.roster, document.store_ids, strict=True)
        n_intact = sum(self.world.peers[name].disk.store_id == store for name, store in stores)
        return n_intact - majority(len(document.roster))

    def _heal(self) -> None:
        for client in self._clients:
            client.calm = True
        super()._heal()
        self._ask_all()

    def _ask_all(self) -> None:
        """Ask each peer for the result of each job, and label its rows: calmly, one after another."""
        world, client = self.world, self._clients[0]
        world.run_until(world.now + _WAIT_S[1], lambda: all(one.attempt is None for one in self._clients))
        self.history.settled_at = world.now
        for job in [*self.history.jobs(), *(job for job in self._documents.known if job not in self.history.jobs())]:
            for name in self.names:
                for verb in ("result", "assign"):
                    client.begin(Attempt("last", name, verb, world.now, job=job))
                    world.run_until(world.now + _LAST_S, lambda: client.attempt is None)

    def _all_finished(self) -> bool:
        return all(self._has_finished(peer) for peer in self.world.peers.values())

    def _has_finished(self, peer: Peer) -> bool:
        """Whether the peer has ended all jobs that any peer still knows, and that can end."""
        if peer.core is None:
            return False
        known = {job for other in self.world.peers.values() if other.core is not None for job in other.core.jobs.jobs}
        documents = [self._documents.known[job] for job in known]
        mine = [document.id for document in documents if peer.name in document and self._spare(document) >= 0]
        return all(job in peer.core.jobs.jobs and peer.core.jobs.jobs[job].ledger.finished for job in mine)

    def _judge(self) -> None:
        story = "\n".join(self.invariants.story)
        for job, document in self._documents.known.items():
            self._judge_bits(job, document)
        found = violations(self.history, self._labels)
        assert not found, "\n".join([*found, story])
        self.marks.counts["jobs"] += len(self._documents.known)
        self.marks.counts["operations"] += len(self.history.operations)

    def _judge_bits(self, job_id: str, document: Document) -> None:
        """S5: the bits of a result are those of the in-process replay of its record."""
        for peer in self.world.peers.values():
            job = None if peer.core is None else peer.core.jobs.jobs.get(job_id)
            if job is None or not job.ledger.finished:
                continue
            ref = job.ledger.register.ref
            assert ref is not None
            if ref.digest.hex() in self._states:
                continue
            state = self._states[ref.digest.hex()] = JobState.decode(peer.bytes_of(ref))
            self.marks.counts["job done" if state.status == "done" else "job cancelled"] += 1
            mathematics = Job.from_dict(msgpack.unpackb(document.job))
            again = replay(mathematics, [self.locals[name] for name in document.roster], state.log)
            if state.status == "failed":
                assert state.reason.startswith(CANCELLED), f"{job_id} failed: {state.reason}"
                again = replace(again, status=state.status, reason=state.reason)
            assert again.encode() == state.plain().encode(), f"S5: {job_id}: not the bits of the in-process replay"

    def _labels(self, digest: str, name: str) -> tuple[int, ...]:
        """Return the nearest center of each row, without the code that labels."""
        state = self._states[digest]
        if state.status != "done":
            return ()
        apart = self.locals[name].X[:, None, :] - raw_centers(state)[None, :, :]
        return tuple(int(label) for label in (apart**2).sum(axis=2).argmin(axis=1))


def run(seed: int, *, overlay: str | None = None) -> SeedResult[SwarmPlan]:
    """Run one seed, on a full mesh or an overlay that is ``sparse`` or ``moving``."""
    plan = draw(seed)
    return ClientSwarm(laid_out(plan, overlay)).go()
