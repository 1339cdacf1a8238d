"""One gossip job (a job without an aggregator) at one peer: its rounds, and its end.

Every member of the epoch (:mod:`p2pclust.peer.core.gossip.members`) computes its contribution, exchanges messages with its
neighbours in ticks (:mod:`p2pclust.peer.core.gossip.ticks`) until all have the same answers and the same estimate
(:mod:`p2pclust.protocols.gossip.averaging`), and computes the next state from them. So all states of a round have the same
bits, and each is on disk before the next round.

*Versions.* Members enter an epoch with the states that they have, which may be of different rounds. A message names the
state that its sender entered with; messages of different states do not mix. A member that learns of a higher state, by
round, then by the epoch in which it was adopted, takes it over and begins again with it.

*The end.* A member that has computed the final state is not finished: it might be cut off before any other has it. The
members exchange two more rounds of messages, each of as many ticks as the overlay has hops. After the first all of them
have the state, and put it on disk in this epoch. After the second all of them have done so, and finish: a majority of
intact stores holds the state, so every later epoch has a member with it. A finished peer answers with the final state.

Nothing of a tick is on disk. A restarted peer has lost its masses, so it joins again.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np

from p2pclust.errors import WireError
from p2pclust.peer.core import round_reports, tasks
from p2pclust.peer.core.context import TimerKey
from p2pclust.peer.core.effects import Compute
from p2pclust.peer.core.gossip.members import GossipMembers, GossipMembership
from p2pclust.peer.core.gossip.ticks import Frames, Position, Ticks
from p2pclust.peer.core.job_messages import AskState, Close, HeldState, Join, Mix, Open
from p2pclust.peer.core.messages import Message
from p2pclust.peer.core.rounds.job_context import JobContext
from p2pclust.peer.core.rounds.peer_job import PeerJob
from p2pclust.peer.core.rounds.workspace import JobWorkspace
from p2pclust.protocols.engine.reasons import CANCELLED, MAX_REASON, REVOKED
from p2pclust.protocols.gossip.averaging import Answer, Averaging, Tick
from p2pclust.protocols.gossip.leaderless import Offer
from p2pclust.transport.wire import MAX_CONTROL_BYTES


class Version(NamedTuple):
    """A state, ordered by round, then by the epoch in which it was adopted."""

    round: int
    epoch: int
    digest: bytes

    @classmethod
    def of(cls, message: HeldState) -> Version:
        """Return the version that a message offers."""
        return cls(message.entry_round, message.entry_epoch, message.digest)


@dataclass(frozen=True)
class GossipState:
    """The state that the present round begins with."""

    version: Version
    ref: tasks.Ref
    info: tasks.StateInfo


_TOLD = 100  # a report is made after so many ticks


class GossipJob(PeerJob):
    """One gossip job at one peer, with the methods of an `AggregatedJob`."""

    asks = (Mix, Join, AskState)

    def __init__(self, job: JobContext, note: bytes | None) -> None:
        super().__init__(job, lambda name: None)
        self.workspace = JobWorkspace(job, note)  # always empty
        self.circles = GossipMembership(job, self)
        self._exchange = Ticks(job.context, self._tell)
        self._timer: TimerKey = ("job", self.id, "mix")
        self._computing: dict[tasks.GossipToken, None] = {}
        self._held: GossipState | None = None  # the present state; None before the first
        self._entry: Version | None = None  # with which it entered the epoch
        self._offers: dict[str, Offer] = {}  # to the present state; by members if only one peer is asked
        self._round: Averaging | None = None
        self._half_way = False  # of the end
        self._taken: Version | None = None  # a state of another peer that the worker reads
        self._asked_at = float("-inf")  # when this peer asked for another state
        self._refused: dict[bytes, None] = {}  # digests that are not valid states

    def start(self, *, fresh: bool) -> None:
        if self.ledger.finished:
            return
        self._ctx.set_timer(self._timer, self._ctx.timing.heartbeat_s / 2)
        if self._job.cancels.of(self.document):
            self.circles.settle()
        self._compute("", self._describing(self.ledger.register.ref))
        if fresh:
            self.circles.begin()
        else:
            self.circles.join()

    # -- messages ---------------------------------------------------------------------------------------------------

    def receive(self, source: str, message: Message) -> None:
        match message:
            case _ if self.about_the_end(source, message):
                pass
            case Mix():
                self._on_mix(source, message)
            case Join():
                self.greet(source)
            case AskState():
                self._on_ask(source, message)
            case HeldState():
                self._on_held(source, message)

    def fire(self, key: TimerKey) -> None:
        if not self.ledger.finished:
            self._ctx.set_timer(self._timer, self._ctx.timing.heartbeat_s / 2)
            self.circles.fire()
            self._exchange.repeat()

    def member_changed(self, name: str) -> None:
        self.circles.look()

    def standing(self) -> tuple[str, str, list[str]]:
        """Return the job's phase at this peer, an empty string (no aggregator), and the peers that it waits for."""
        if self.ledger.finished:
            return "finished", "", []
        if self.circles.circle is None:
            return "joining", "", [name for name in self.document.roster if not self._membership.present(name)]
        if self._round is None:
            return "computing", "", []
        return "closing" if self._state.info.final else "mixing", "", self._exchange.waits_for()

    def forget(self) -> None:
        self._ctx.timers.cancel(self._timer)
        super().forget()

    def blobs_in_use(self) -> list[bytes]:
        held = None if self._held is None else self._held.ref
        return tasks.blobs_of((self.ledger.register.ref, held)) + self.states.blobs_in_use()

    def state_named(self, source: str, message: HeldState | Open) -> None:
        if isinstance(message, HeldState):
            self._on_held(source, message)

    # -- ticks ------------------------------------------------------------------------------------------------------

    def _tell(self, name: str, at: Position, frames: Frames) -> None:
        circle, entry = self.circles.circle, self._entry
        if circle is None:
            return
        message = Mix(
            self.id, circle.epoch, circle.mask, *((entry.epoch, entry.round, entry.digest) if entry else (0, -1, b"")),
            *at, *self._exchange.heard(name), frames,
        )  # fmt: skip
        self._ctx.send(name, message, bulk=sum(map(len, frames)) > MAX_CONTROL_BYTES // 2)

    def greet(self, name: str) -> None:
        self._tell(name, self._exchange.at, ())

    def _on_mix(self, source: str, message: Mix) -> None:
        if not self.circles.heard(source, message.epoch, message.members):
            if self.circles.circle is not None and message.epoch < self.circles.circle.epoch:
                self.greet(source)
            return
        shown = (message.heard_round, message.heard_tick)
        if not self._exchange.said(shown):
            self.circles.renew()
            return
        if message.entry_round < 0 or self._entry is None:
            return
        theirs = Version(message.entry_round, message.entry_epoch, message.entry_digest)
        if theirs.digest != self._entry.digest:
            pause_s, asked_s = self._ctx.timing.heartbeat_s, self._ctx.now - self._asked_at
            if theirs <= self._entry:
                if message.word:
                    self.greet(source)
            elif self._awaits_older(theirs) and asked_s >= pause_s:
                # An older one may never come: its holders may have taken the newer state meanwhile, and dropped it.
                self._asked_at = self._ctx.now
                self._ctx.send(source, AskState(self.id, self._circle.epoch))
            return
        self._exchange.hear(source, (message.round, message.tick), shown, message.word)
        self._go_on()

    def _go_on(self) -> None:
        while self._round is not None and (words := self._exchange.words()) is not None:
            heard: dict[int, Tick] = {}
            for name, word in words.items():
                try:
                    heard[self.document.index(name)] = self._round.read(word, n_peers=len(self.document.roster))
                except WireError as error:
                    self._report(round_reports.AnswerMalformed, peer=name, reason=str(error))
                    self._exchange.refuse(name)
            if len(heard) < len(words):
                return
            self._round.step(heard)
            if self._round.ended:
                self._end_round(self._round)
            else:
                self._say()

    def _say(self) -> None:
        assert self._round is not None
        round_, tick = self._state.version.round, self._round.tick + (self._round.hops if self._half_way else 0)
        self._exchange.say((round_, tick), self._round.message.encode())
        if tick and tick % _TOLD == 0:
            self._report(round_reports.Mixing, round=round_, tick=tick)

    # -- rounds -----------------------------------------------------------------------------------------------------

    def entered(self) -> None:
        """Begin again in a new epoch."""
        self._round, self._taken, self._half_way = None, None, False
        self.states.waiting.clear()
        self._entry = None if self._held is None else self._held.version
        self._exchange.enter(self._near(), (self._entry.round if self._entry else 0, 0))
        if self._held is not None:
            self._open()

    def outside(self) -> None:
        self._round = None

    def _work_on(self, version: Version, made: tasks.StateMade) -> None:
        """Open the round that begins with a state."""
        self._held, self._taken = GossipState(version, made.ref, made.info), None
        self._offers.clear()
        if self._entry is None:
            self._entry = version
            if self.circles.circle is not None:
                self._exchange.enter(self._near(), (version.round, 0), again=True)
        if self.circles.circle is not None:
            self._open()

    def _open(self) -> None:
        state, circle = self._state, self._circle
        phase = "closing" if state.info.final else "adopting"
        self._phase_begins(phase, circle.epoch, state.version.round)
        if state.info.final:
            self._mix(self._present)
        elif self._whom in self._offers:
            self._mix(self._offers[self._whom])
        else:
            self._compute(self._whom, tasks.MakeOffer(*self._of_job, state.ref, self._me, circle.members))

    @property
    def _state(self) -> GossipState:
        assert self._held is not None
        return self._held

    @property
    def _circle(self) -> GossipMembers:
        circle = self.circles.circle
        assert circle is not None
        return circle

    @property
    def _whom(self) -> str:
        """What an offer depends on beside the state: where one peer is asked, it depends on the members."""
        return self._circle.mask.hex() if self._state.info.one else ""

    def cancelled(self) -> None:
        self.circles.settle()

    def _mix(self, offer: Offer) -> None:
        assert self.circles.links is not None
        if not self._state.info.final:
            cancel = self._job.cancels.of(self.document)
            instead = REVOKED if self.bars(self._ctx.me) else ""
            if cancel is not None:
                instead = f"{CANCELLED}{cancel.by}"[:MAX_REASON]
            if instead:
                offer = Offer(Answer(self._me, instead), None if offer.mass is None else np.zeros_like(offer.mass))
        tolerance = self.document.treatment.gossip_tolerance
        self._round = Averaging(
            self.circles.links, self._me, offer.answer, offer.mass, tolerance=tolerance, ticks=self._ticks
        )  # fmt: skip
        if self._round.ended:  # there is no other member
            self._end_round(self._round)
        else:
            self._say()
            self._go_on()

    @property
    def _ticks(self) -> int:
        """After which each member continues from its own estimate; 0: when all agree."""
        return 0 if self._state.info.settles else self.document.treatment.ticks

    def _end_round(self, ended: Averaging) -> None:
        epoch, round_ = self._circle.epoch, self._state.version.round
        self._round = None
        if not ended.complete:  # a peer withheld answers of others
            self._report(round_reports.AnswerMalformed, peer="", reason="answers are missing at the end of a round")
            self.circles.renew()
            return
        if self._state.info.final:
            self._closed(ended)
            return
        self._exchange.expect((round_ + 1, 0))
        self._report(round_reports.Averaged, round_, epoch, ticks=ended.tick, reached=ended.reached)
        self._phase_begins("combining", epoch, round_)
        task = tasks.CloseGossipRound(
            *self._of_job, self._state.ref,
            answers=tuple(answer for _, answer in sorted(ended.answers.items())),
            estimate=ended.estimate if ended.size else None,
            tolerance=inf if self._ticks else self.document.treatment.gossip_tolerance,
        )  # fmt: skip
        self._compute(str(epoch), task)

    def _compute(self, within: str, task: tasks.Task) -> None:
        state = task.state.digest if isinstance(task, tasks.StateTask) else b""
        token = tasks.GossipToken(self.id, task.kind, state, within)
        if token not in self._computing:
            self._computing[token] = None
            self._ctx.effects.append(Compute(token, task))

    def computed(self, token: tasks.JobToken, outcome: tasks.Outcome) -> None:
        assert isinstance(token, tasks.GossipToken), token
        self._computing.pop(token, None)
        if self.ledger.finished:
            return
        if isinstance(outcome, tasks.NoResult):  # another version of the software, say
            self._report(round_reports.Unable, task=token.kind, reason=outcome.reason)
            if self._taken is not None and self._taken.digest == token.state:
                self._refused[self._taken.digest] = None
                self.entered()  # with what it had
            return
        if isinstance(outcome, tasks.StateMade) and token.kind != tasks.CloseGossipRound.kind:
            register = self.ledger.register
            if self._held is None:
                self._work_on(Version(register.round, register.term, outcome.ref.digest), outcome)
            elif self._taken is not None and self._taken.digest == outcome.ref.digest:
                self._work_on(self._taken, outcome)
            return
        if self._held is None or self._held.ref.digest != token.state or self._taken is not None:
            return  # this peer works on another state by now
        if isinstance(outcome, tasks.Offered):
            self._offers[token.within] = outcome.offer
        circle = self.circles.circle
        if circle is None or self._round is not None:
            return
        if isinstance(outcome, tasks.StateMade) and token.within == str(circle.epoch):
            epoch, round_, roster = circle.epoch, self._held.version.round + 1, self.document.roster
            self.ledger.adopt(epoch, round_, outcome.ref, final=outcome.info.final)
            if self._me == circle.members[0]:  # all members report the same, so one does
                names = [roster[index] for index in outcome.info.contributors]
                self._report(round_reports.RoundCombined, epoch, round_ - 1, names, outcome.info, roster)
            self._work_on(Version(round_, epoch, outcome.ref.digest), outcome)
        elif isinstance(outcome, tasks.Offered) and token.within == self._whom:
            self._mix(outcome.offer)

    # -- states of others -------------------------------------------------------------------------------------------

    def _awaits_older(self, version: Version) -> bool:
        """Return whether no state is being fetched that is as new as that."""
        waiting = self.states.waiting
        _, held = waiting.get(HeldState, ("", None))
        return Close not in waiting and (not isinstance(held, HeldState) or Version.of(held) < version)

    def _on_ask(self, source: str, message: AskState) -> None:
        circle, entry, held = self.circles.circle, self._entry, self._held
        if entry is None or held is None or entry.digest != held.ref.digest:
            return
        if circle is None or circle.epoch != message.epoch:
            return
        ref = held.ref
        answer = HeldState(self.id, circle.epoch, entry.epoch, entry.round, ref.digest, ref.size_bytes, ref.frames)
        self._ctx.send(source, answer, bulk=sum(map(len, ref.frames)) > MAX_CONTROL_BYTES // 2)

    def _on_held(self, source: str, message: HeldState) -> None:
        version = Version.of(message)
        if self.circles.circle is None or self.circles.circle.epoch != message.epoch:
            return
        if self._entry is None or version <= self._entry or version.digest in self._refused:
            return
        ref = self.states.resolve(source, message)
        if ref is None:
            if self._awaits_older(version) and self.states.awaits(version.digest):
                self.states.waiting[HeldState] = (source, message)
            return
        # Not on disk yet: a round with all members shows first that all of them have this state.
        self._round, self._half_way = None, False
        self._entry = self._taken = version
        self._exchange.enter(self._near(), (version.round, 0), again=True)
        self._report(round_reports.StateTaken, peer=source, round=version.round)
        self._compute("", self._describing(ref))

    def _near(self) -> list[str]:
        assert self.circles.links is not None
        return [self.document.roster[other] for other in self.circles.links.near[self._me]]

    # -- the end ----------------------------------------------------------------------------------------------------

    def _closed(self, ended: Averaging) -> None:
        """Continue after as many ticks as hops: all members have the state, or, the second time, have it on disk."""
        state, position = self._state, (self._circle.epoch, self._state.version.round)
        if not self._half_way:
            self._half_way = True
            if self.ledger.register.position != position or not self.ledger.register.final:
                self.ledger.adopt(*position, state.ref, final=True)
            self._mix(self._present)
        elif self.circles.counted(
            {peer: told.payload.decode(errors="replace") for peer, told in ended.answers.items()}
        ):
            self._finish(*position, state.ref)

    @property
    def _present(self) -> Offer:
        return Offer(Answer(self._me, payload=self._ctx.store_id.encode()), None)

    def _stop(self) -> None:
        self._ctx.timers.cancel(self._timer)
        self._round = None
