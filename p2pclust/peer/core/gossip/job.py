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

from collections.abc import Mapping
from math import inf

import numpy as np

from p2pclust.errors import WireError
from p2pclust.peer.core.context import Context, TimerKey
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.effects import Compute
from p2pclust.peer.core.gossip.members import GossipMembership
from p2pclust.peer.core.gossip.ticks import Frames, Position, Ticks
from p2pclust.peer.core.job_messages import AskState, Close, HeldState, Join, Mix
from p2pclust.peer.core.messages import Message
from p2pclust.peer.core.reports import JobFinished
from p2pclust.peer.core.round_reports import (
    AnswerMalformed,
    Averaged,
    Mixing,
    PhaseBegun,
    RoundCombined,
    StateTaken,
    Unable,
)
from p2pclust.peer.core.rounds.handover import Handover, Version, close_message
from p2pclust.peer.core.rounds.job_context import JobContext
from p2pclust.peer.core.rounds.workspace import JobWorkspace
from p2pclust.peer.core.tasks import (
    BeginJob,
    CloseGossipRound,
    DescribeState,
    MakeOffer,
    NoResult,
    Offered,
    Outcome,
    Ref,
    StateInfo,
    StateMade,
    StateTask,
    Task,
)
from p2pclust.peer.core.tokens import GossipToken, JobToken
from p2pclust.protocols.engine.reasons import CANCELLED, MAX_REASON, REVOKED
from p2pclust.protocols.gossip.averaging import Answer, Averaging, Tick
from p2pclust.protocols.gossip.leaderless import Offer
from p2pclust.transport.wire import MAX_CONTROL_BYTES


class GossipWork:
    """Hands tasks to the worker."""

    def __init__(self, context: Context, document: Document) -> None:
        self._ctx = context
        self._document = document
        self._me = document.index(context.me)
        self._running: dict[GossipToken, None] = {}

    def describe(self, ref: Ref | None) -> None:
        """Ask what the core may know about a state, or about the job's first state if there is none yet."""
        job, n_peers = self._document.job, len(self._document.roster)
        self._ask("", BeginJob(job, n_peers) if ref is None else DescribeState(job, n_peers, ref))

    def offer(self, ref: Ref, members: tuple[int, ...], within: str) -> None:
        """Ask for this peer's offer to the round that starts from the state."""
        self._ask(within, MakeOffer(self._document.job, len(self._document.roster), ref, self._me, members))

    def close(self, ref: Ref, ended: Averaging, *, within: str, own: bool) -> None:
        """Ask for the state after a round; `own`: the estimate is this peer's alone."""
        task = CloseGossipRound(
            self._document.job, len(self._document.roster), ref,
            answers=tuple(answer for _, answer in sorted(ended.answers.items())),
            estimate=ended.estimate if ended.size else None,
            tolerance=inf if own else self._document.treatment.gossip_tolerance,
        )  # fmt: skip
        self._ask(within, task)

    def _ask(self, within: str, task: Task) -> None:
        state = task.state.digest if isinstance(task, StateTask) else b""
        token = GossipToken(self._document.id, task.kind, state, within)
        if token not in self._running:
            self._running[token] = None
            self._ctx.effects.append(Compute(token, task))

    def ended(self, token: GossipToken) -> None:
        """A task ended."""
        self._running.pop(token, None)


_TOLD = 100  # a report is made after so many ticks


class GossipJob:
    """One gossip job at one peer, with the methods of an `AggregatedJob`."""

    def __init__(self, job: JobContext, note: bytes | None) -> None:
        context, document = job.context, job.document
        self._ctx = context
        self._membership = job.membership
        self._bars = job.bars
        self._cancels = job.cancels
        self._children = job.children
        self.document = document
        self.suspicions = job.suspicions
        self.ledger = job.ledger
        self.id = document.id
        self._me = document.index(context.me)
        self.workspace = JobWorkspace(job, note)  # always empty
        self.circles = GossipMembership(context, job.membership, document, job.ledger, self)
        self._exchange = Ticks(context, self._tell)
        self._handover = Handover(context, job.blobs, document)
        self._work = GossipWork(context, document)
        self._timer: TimerKey = ("job", document.id, "mix")
        self._version: Version | None = None  # of the present state
        self._ref: Ref | None = None
        self._final = False
        self._entry: Version | None = None  # with which it entered the epoch
        self._one = False  # whether only one peer is asked
        self._ticks = 0  # after which each member continues from its own estimate; 0: when all agree
        self._offers: dict[str, Offer] = {}  # to the present state; by members if only one peer is asked
        self._round: Averaging | None = None
        self._half_way = False  # of the end
        self._taken: Version | None = None  # a state of another peer that the worker reads

    def start(self, *, fresh: bool) -> None:
        """Begin, or continue after a restart."""
        if self.ledger.finished:
            return
        self._ctx.set_timer(self._timer, self._ctx.timing.heartbeat_s / 2)
        if self._cancels.of(self.document):
            self.circles.settle()
        self._work.describe(self.ledger.register.ref)
        if fresh:
            self.circles.begin()
        else:
            self.circles.join()

    # -- messages ---------------------------------------------------------------------------------------------------

    def receive(self, source: str, message: Message) -> None:
        """Handle a message of this job from a roster peer."""
        match message:
            case Close():
                self._on_close(source, message)
            case Mix() | Join() | AskState() if self.ledger.finished:
                self._ctx.send(source, close_message(self.id, self.ledger.register))
            case _ if self.ledger.finished:
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
        """Handle a timer of this job."""
        if not self.ledger.finished:
            self._ctx.set_timer(self._timer, self._ctx.timing.heartbeat_s / 2)
            self.circles.fire()
            self._exchange.repeat()

    def member_changed(self, name: str) -> None:
        """React to a new membership status of a roster peer."""
        if not self.ledger.finished:
            self.circles.look()

    @property
    def terms(self) -> Mapping[int, str]:
        """Always empty: no peer aggregates."""
        return {}

    def standing(self) -> tuple[str, str, list[str]]:
        """Return the job's phase at this peer, an empty string (no aggregator), and the peers that it waits for."""
        if self.ledger.finished:
            return "finished", "", []
        if self.circles.circle is None:
            return "joining", "", [name for name in self.document.roster if not self._membership.present(name)]
        if self._round is None:
            return "computing", "", []
        return "closing" if self._final else "mixing", "", self._exchange.waits_for()

    def forget(self) -> None:
        """Delete the timer and rows of this job."""
        self._ctx.timers.cancel(self._timer)
        for table in ("job", "ballot", "register"):
            self._ctx.persist(table, self.id, None, sync=False)

    def blobs_in_use(self) -> list[bytes]:
        """Return the blobs that this job needs."""
        refs = [ref for ref in (self.ledger.register.ref, self._ref) if ref is not None and ref.payload is None]
        return [ref.digest for ref in refs] + self._handover.in_use()

    def blob_ready(self, digest: bytes) -> None:
        """Continue with what waited for this blob."""
        message = None if self.ledger.finished else self._handover.ready(digest)
        if isinstance(message, Close):
            self._on_close("", message)
        elif message is not None:
            self._on_held("", message)

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
        """Send this peer's epoch and position to another."""
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
            if theirs.rank > self._entry.rank:
                assert self.circles.circle is not None
                self._handover.ask(source, self.circles.circle.epoch, theirs)
            elif message.word:
                self.greet(source)
            return
        self._exchange.hear(source, (message.round, message.tick), shown, message.word)
        self._go_on()

    def _go_on(self) -> None:
        """Take as many ticks as the neighbours' messages allow."""
        while self._round is not None and (words := self._exchange.words()) is not None:
            ticks = {name: self._read(name, word) for name, word in words.items()}
            for name, tick in ticks.items():
                if tick is None:
                    self._exchange.refuse(name)
            heard = {self.document.index(name): tick for name, tick in ticks.items() if tick is not None}
            if len(heard) < len(ticks):
                return
            self._round.step(heard)
            if self._round.ended:
                self._end_round(self._round)
            else:
                self._say()

    def _read(self, name: str, word: bytes) -> Tick | None:
        assert self._round is not None
        try:
            return self._round.read(word, n_peers=len(self.document.roster))
        except WireError as error:
            self._ctx.report(AnswerMalformed(*self.document.named, peer=name, reason=str(error)))
            return None

    def _say(self) -> None:
        assert self._round is not None
        assert self._version is not None
        tick = self._round.tick + (self._round.hops if self._half_way else 0)
        self._exchange.say((self._version.round, tick), self._round.message.encode())
        if tick and tick % _TOLD == 0:
            self._ctx.report(Mixing(*self.document.named, round=self._version.round, tick=tick))

    # -- rounds -----------------------------------------------------------------------------------------------------

    def entered(self) -> None:
        """Begin again in a new epoch."""
        self._round, self._taken, self._half_way = None, None, False
        self._handover.forget()
        self._entry = self._version
        self._exchange.enter(self._near(), (self._version.round if self._version else 0, 0))
        if self._version is not None:
            self._open()

    def outside(self) -> None:
        """Stop the round: this peer has left the epoch."""
        self._round = None

    def _work_on(self, version: Version, ref: Ref, info: StateInfo) -> None:
        """Open the round that begins with a state."""
        self._version, self._ref, self._taken = version, ref, None
        self._final, self._one = info.final, info.one
        self._ticks = 0 if info.settles else self.document.treatment.ticks
        self._offers.clear()
        if self._entry is None:
            self._entry = version
            if self.circles.circle is not None:
                self._exchange.enter(self._near(), (version.round, 0), again=True)
        if self.circles.circle is not None:
            self._open()

    def _open(self) -> None:
        assert self._version is not None
        assert self.circles.circle is not None
        phase = "closing" if self._final else "adopting"
        self._ctx.report(
            PhaseBegun(*self.document.named, phase=phase, term=self.circles.circle.epoch, round=self._version.round)
        )
        if self._final:
            self._mix(self._present)
        elif self._whom in self._offers:
            self._mix(self._offers[self._whom])
        else:
            assert self._ref is not None
            self._work.offer(self._ref, self.circles.circle.members, self._whom)

    @property
    def _whom(self) -> str:
        """What an offer depends on beside the state: where one peer is asked, it depends on the members."""
        assert self.circles.circle is not None
        return self.circles.circle.mask.hex() if self._one else ""

    def cancelled(self) -> None:
        """Let this peer's next answer say that the job is cancelled."""
        if not self.ledger.finished:
            self.circles.settle()

    def _mix(self, offer: Offer) -> None:
        assert self.circles.links is not None
        cancel = None if self._final else self._cancels.of(self.document)
        instead = "" if cancel is None else f"{CANCELLED}{cancel.by}"[:MAX_REASON]
        instead = instead or (REVOKED if self._bars(self._ctx.me) else "")
        if instead and not self._final:
            nothing = None if offer.mass is None else np.zeros_like(offer.mass)
            offer = Offer(Answer(self._me, instead), nothing)
        tolerance = self.document.treatment.gossip_tolerance
        self._round = Averaging(
            self.circles.links, self._me, offer.answer, offer.mass, tolerance=tolerance, ticks=self._ticks
        )  # fmt: skip
        if self._round.ended:  # there is no other member
            self._end_round(self._round)
        else:
            self._say()
            self._go_on()

    def _end_round(self, ended: Averaging) -> None:
        circle, version = self.circles.circle, self._version
        assert circle is not None
        assert version is not None
        self._round = None
        if not ended.complete:  # a peer withheld answers of others
            self._ctx.report(
                AnswerMalformed(*self.document.named, peer="", reason="answers are missing at the end of a round")
            )
            self.circles.renew()
            return
        if self._final:
            self._closed(ended)
            return
        self._exchange.expect((version.round + 1, 0))
        named, round_ = self.document.named, version.round
        self._ctx.report(Averaged(*named, round_, circle.epoch, ticks=ended.tick, reached=ended.reached))
        self._ctx.report(PhaseBegun(*named, "combining", circle.epoch, round_))
        assert self._ref is not None
        self._work.close(self._ref, ended, within=str(circle.epoch), own=self._ticks > 0)

    def computed(self, token: JobToken, outcome: Outcome) -> None:
        """Continue after a task of this job."""
        assert isinstance(token, GossipToken), token
        self._work.ended(token)
        if self.ledger.finished:
            return
        if isinstance(outcome, NoResult):  # another version of the software, say
            self._ctx.report(Unable(*self.document.named, task=token.kind, reason=outcome.reason))
            if self._taken is not None and self._taken.digest == token.state:
                self._handover.refuse(self._taken.digest)
                self.entered()  # with what it had
            return
        if isinstance(outcome, StateMade) and token.kind != CloseGossipRound.kind:
            self._described(outcome)
            return
        if self._ref is None or self._ref.digest != token.state or self._taken is not None:
            return  # this peer works on another state by now
        if isinstance(outcome, Offered):
            self._offers[token.within] = outcome.offer
        circle = self.circles.circle
        if circle is None or self._round is not None:
            return
        if isinstance(outcome, StateMade) and token.within == str(circle.epoch):
            self._combined(outcome)
        elif isinstance(outcome, Offered) and token.within == self._whom:
            self._mix(outcome.offer)

    def _described(self, made: StateMade) -> None:
        if self._version is None:
            register = self.ledger.register
            self._work_on(Version(register.round, register.term, made.ref.digest), made.ref, made.info)
        elif self._taken is not None and self._taken.digest == made.ref.digest:
            self._work_on(self._taken, made.ref, made.info)

    def _combined(self, made: StateMade) -> None:
        assert self._version is not None
        assert self.circles.circle is not None
        epoch, round_, roster = self.circles.circle.epoch, self._version.round, self.document.roster
        self.ledger.adopt(epoch, round_ + 1, made.ref, final=made.info.final)
        if self._me == self.circles.circle.members[0]:  # all members report the same, so one does
            contributors = [roster[index] for index in made.info.contributors]
            self._ctx.report(RoundCombined(*self.document.named, epoch, round_, contributors, made.info, roster))
        self._work_on(Version(round_ + 1, epoch, made.ref.digest), made.ref, made.info)

    # -- states of others -------------------------------------------------------------------------------------------

    def _on_ask(self, source: str, message: AskState) -> None:
        circle, entry, ref = self.circles.circle, self._entry, self._ref
        held = entry is not None and ref is not None and entry.digest == ref.digest
        if held and circle is not None and circle.epoch == message.epoch:
            self._handover.give(source, circle.epoch, entry, ref)  # type: ignore[arg-type] # they are not None

    def _on_held(self, source: str, message: HeldState) -> None:
        version = Version(message.entry_round, message.entry_epoch, message.digest)
        if self.circles.circle is None or self.circles.circle.epoch != message.epoch:
            return
        if self._entry is None or version.rank <= self._entry.rank:
            return
        ref = self._handover.resolve(source, message, (self.ledger.register.ref, self._ref))
        if ref is None:
            return
        # Not on disk yet: a round with all members shows first that all of them have this state.
        self._round, self._half_way = None, False
        self._entry = self._taken = version
        self._exchange.enter(self._near(), (version.round, 0), again=True)
        self._ctx.report(StateTaken(*self.document.named, peer=source, round=version.round))
        self._work.describe(ref)

    def _near(self) -> list[str]:
        """Return the neighbours that are members."""
        assert self.circles.links is not None
        return [self.document.roster[other] for other in self.circles.links.near[self._me]]

    # -- the end ----------------------------------------------------------------------------------------------------

    def _closed(self, ended: Averaging) -> None:
        """Continue after as many ticks as hops: all members have the state, or, the second time, have it on disk."""
        assert self._version is not None
        assert self._ref is not None
        assert self.circles.circle is not None
        position = (self.circles.circle.epoch, self._version.round)
        if not self._half_way:
            self._half_way = True
            if self.ledger.register.position != position or not self.ledger.register.final:
                self.ledger.adopt(*position, self._ref, final=True)
            self._mix(self._present)
        elif self.circles.counted(
            {peer: told.payload.decode(errors="replace") for peer, told in ended.answers.items()}
        ):
            self._finish(*position, self._ref)

    @property
    def _present(self) -> Offer:
        """This peer's answer to the final state: the id of its store."""
        return Offer(Answer(self._me, payload=self._ctx.store_id.encode()), None)

    def _finish(self, epoch: int, round_: int, ref: Ref) -> None:
        self.ledger.finish(epoch, round_, ref)
        self._ctx.timers.cancel(self._timer)
        self._round = None
        self._handover.forget()
        self._ctx.report(JobFinished(*self.document.named, term=epoch, round=round_, digest=ref.digest.hex()))
        self._children.ended(self.id)

    def _on_close(self, source: str, message: Close) -> None:
        """Finish: the sender has finished, so a majority has this state."""
        if self.ledger.finished:
            return
        ref = self._handover.resolve(source, message, (self.ledger.register.ref, self._ref))
        if ref is not None:
            self._finish(message.term, message.round, ref)
