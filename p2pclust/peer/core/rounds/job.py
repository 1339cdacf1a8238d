"""One job with an aggregator at one peer: it dispatches the job's messages, and ends the job."""

from __future__ import annotations

from typing import Final

from p2pclust.errors import WireError
from p2pclust.peer.core import round_reports, tasks
from p2pclust.peer.core.context import TimerKey
from p2pclust.peer.core.job_messages import (
    Adopted,
    Close,
    CloseReply,
    Heartbeat,
    HeartbeatReply,
    HeldState,
    Open,
    Pads,
    Partial,
    PreVote,
    PreVoteReply,
    Reminder,
    RequestVote,
    StaleTerm,
    Unpad,
    VoteReply,
)  # fmt: skip
from p2pclust.peer.core.messages import Message
from p2pclust.peer.core.rounds.aggregator import AggregatorTerm
from p2pclust.peer.core.rounds.election import Election, Fitness, Role
from p2pclust.peer.core.rounds.follower import Follower
from p2pclust.peer.core.rounds.headway import Headway
from p2pclust.peer.core.rounds.job_context import JobContext
from p2pclust.peer.core.rounds.pad_notes import PadNotes
from p2pclust.peer.core.rounds.peer_job import PeerJob
from p2pclust.peer.core.rounds.round import Round
from p2pclust.peer.core.rounds.workspace import JobWorkspace

#: How often a finished aggregator repeats its `Close` to unconfirmed peers; later they learn of the end by asking.
_CLOSE_REPEATS = 5
#: More elections, or rounds, than a fleet can have while a peer is away. Without the limit, one false message could use up
#: all terms, or all rounds.
_MOST_LEAP = 2**32
#: The field with the term, of messages where that is not `term`.
_TERMS: Final[dict[type[Message], str]] = {PreVoteReply: "own_term", HeldState: "entry_epoch"}
#: The field with the round, of messages whose round a peer would take over.
_ROUNDS: Final[dict[type[Message], str]] = {Open: "round", HeldState: "entry_round", Close: "round"}

#: Messages that ask this peer for a promise, or that rely on one.
_PROMISES: Final = PreVote | PreVoteReply | RequestVote | VoteReply | Open | Heartbeat
#: Messages that ask this peer to follow the sender or to vote for it; ignored from a peer that has sent a refuted state.
_FOLLOWS: Final = PreVote | RequestVote | Open | Heartbeat


class AggregatedJob(PeerJob):
    """One job at one peer.

    Every message of the job passes `receive`. The election, the follower and the keeper refuse stale terms.
    """

    asks = (PreVote, RequestVote, Open, Heartbeat)

    def __init__(
        self, job: JobContext, fitness: Fitness, note: bytes | None, pads: bytes | None = None,
        evidence: bytes | None = None,
    ) -> None:  # fmt: skip
        super().__init__(job, self._leave, evidence)
        self._began_at = job.context.now
        self.headway = Headway(job)
        self.election = Election(job, self, fitness, self.headway, self.statements, self.certificates)
        self.terms = self.election.terms
        self.workspace = JobWorkspace(job, note)
        self.term: AggregatorTerm | None = None  # while this peer aggregates
        self.notes = PadNotes(job, pads)
        self.follower = Follower(
            job, self.election, self.headway, self.workspace, self.notes, self.states, self.statements, self.certificates,
            self.own_term,
        )  # fmt: skip
        self._unconfirmed: dict[str, None] = {}
        self._repeats = 0
        self._closing: TimerKey = ("job", self.id, "close")
        self._leapt: dict[str, None] = {}  # peers that sent an impossible term or round
        #: The newest term and round that each peer reported to this peer as adopted, and its store.
        self._adopted: dict[str, tuple[int, int, str]] = {}

    def start(self, *, fresh: bool) -> None:
        self.workspace.start()
        if not self.ledger.finished:
            self.election.start(fresh=fresh)
        else:
            self.notes.go_on()

    # -- messages -----------------------------------------------------------------------------------------------------

    def receive(self, source: str, message: Message) -> None:
        distrusted = source in self.states.distrusted and not self.ledger.finished
        if self._leaps(source, message) or (distrusted and isinstance(message, _FOLLOWS)):
            return
        if isinstance(message, _PROMISES) and not self._membership.may_promise(source):
            self._membership.greet(source)  # and it asks again
            return
        if self.about_the_end(source, message):
            return
        match message:  # the most frequent first
            case Adopted() | HeartbeatReply():
                self._from_follower(source, message)
            case Heartbeat() | Open() if not self.statements.bars(source, message.term):
                self._from_aggregator(source, message)
            case Partial() if message.term == self.ledger.term:
                self._on_partial(source, message)
            case PreVote() | PreVoteReply() | RequestVote() | VoteReply() | StaleTerm() if not self._too_early(message):
                self._about_votes(source, message)
            case HeldState():
                self._on_offer(source, message)
            case Unpad() if self.document.treatment.secure:
                self.follower.keeper.on_unpad(source, message)
            case Pads() if self.term is not None and message.term == self.ledger.term:
                self.term.on_pads(source, message)
            case Reminder() if (message.store_id, source) == (self._ctx.store_id, self.election.aggregator):
                if (message.term, message.round) > self.ledger.register.position:
                    self._membership.own.forgot("a peer holds a later promise of it")

    def _about_votes(self, source: str, message: Message) -> None:
        match message:
            case StaleTerm() if self.term is not None and self.certificates.fences(source, message):
                self.election.renew(message.term)
            case RequestVote() | VoteReply() if self.statements.bars(source, message.term):
                pass
            case _:
                self.election.receive(source, message)

    def _too_early(self, message: Message) -> bool:
        """Return whether the message asks for a vote in the census of a cancelled series that has just begun.

        The candidate was away and may not know of the cancel. It hears of it meanwhile, and then begins no other turn.
        """
        turn = self.document.turn
        if turn is None or not self.document.census or not isinstance(message, PreVote | RequestVote):
            return False
        begun_s = self._ctx.now - self._began_at
        return bool(self._job.cancels.by(turn.series)) and begun_s < self.document.treatment.patience_s

    def _leaps(self, source: str, message: Message) -> bool:
        """Return whether the message has a term that elections, or a round that the job, cannot have reached: it is ignored.

        After a term, this peer raises its own by the greatest possible step, and asks the sender again: a peer that was led
        to its term by a liar is reached in as many steps as the liar took.
        """
        kind, register = type(message), self.ledger.register
        # Of an offered register it is the one that would be taken over.
        known = self.election.next_term - 1
        term: int = 0 if kind is Close else getattr(message, _TERMS.get(kind, "term"), 0)
        round_: int = getattr(message, _ROUNDS[kind]) if kind in _ROUNDS else 0
        far = term - known > _MOST_LEAP
        if self.ledger.finished or not (far or round_ - register.round > _MOST_LEAP):
            return False
        if source not in self._leapt:
            self._leapt[source] = None
            if far:
                self._report(round_reports.TermLeap, peer=source, term=term, own_term=self.ledger.term)
            else:
                self._report(round_reports.RoundLeap, peer=source, round=round_, own_round=register.round)
        if far:
            self.election.hear_of(known + _MOST_LEAP)
            self._ctx.send(source, PreVote(self.id, self.election.next_term, *register.position))
        return True

    def asker(self, source: str, message: Message) -> str:
        """Return the peer that the message is from: in a tree, and nowhere else, peers hand on the aggregator's message."""
        roster, tree = self.document.roster, self.document.treatment.collect == "tree"
        if tree and isinstance(message, Open) and 0 <= message.aggregator < len(roster):
            return roster[message.aggregator]
        return source

    def _aggregates_another(self, source: str, term: int) -> bool:
        """Return whether another peer aggregates that term, as far as this one has heard: a term has one aggregator."""
        named = self.document.treatment.aggregator if term == 1 else ""
        proved = named or self.certificates.aggregator(term)
        known = proved or self.election.terms.get(term, source)
        # A distrusted peer may have claimed a term of another one, but not if it was elected: then no other peer was.
        if known == source or (not proved and known in self.states.distrusted):
            return False
        self._report(round_reports.SecondAggregator, peer=source, term=term, aggregator=known)
        return True

    def _from_aggregator(self, carrier: str, message: Open | Heartbeat) -> None:
        source = self.asker(carrier, message)
        if source == self._ctx.me:
            return
        if self.ledger.stale(message.term):  # the fence: it was deposed and does not know it yet
            self._report(round_reports.Fenced, peer=source, term=message.term, own_term=self.ledger.term)
            self.certificates.refuse(source)
            return
        if self.election.terms.get(message.term) != source:
            if self._aggregates_another(source, message.term):
                return
            if not self.certificates.knows(message.term):
                self.certificates.await_(carrier, message, message.term, asked=source)
                return
        if carrier == source or self.follower.is_news(message):
            self.election.follow(source, message.term)
            self.headway.begins(message.term, source)
        if self.follower.place is not None and message.term > self.follower.place.opened.term:
            self.follower.leave_place()
        if isinstance(message, Open):
            if message.height or self.document.treatment.collect == "tree":
                self.follower.take_place(carrier, message)
            self.follower.on_open(source, message)
        else:
            self.follower.on_heartbeat(source, message)

    def _from_follower(self, source: str, message: Adopted | HeartbeatReply) -> None:
        if self.term is None or message.term != self.ledger.term:
            self._report(round_reports.LateAnswer, peer=source, term=message.term)
            return
        known = self._adopted.get(source)
        if isinstance(message, Adopted):
            if known is None or known[:2] <= (message.term, message.round):
                self._adopted[source] = (message.term, message.round, message.store_id)
            self.term.on_adopted(source, message)
            return
        held = (message.register_term, message.register_round)
        if known is not None and (known[0], known[2]) == (message.term, message.store_id) and held < known[:2]:
            # Its register seems to have gone back; after an old message this does no harm.
            self._ctx.send(source, Reminder(self.id, *known))
        self.term.on_heartbeat_reply(source, message)

    def _on_partial(self, source: str, message: Partial) -> None:
        try:
            if self.term is not None:
                self.term.on_partial(source, message)
            elif (place := self.follower.place) is not None and place.of(message.term, message.round, message.digest):
                place.receive(source, message)
        except WireError as error:
            self._report(round_reports.BadPart, peer=source, reason=str(error))

    def _on_offer(self, source: str, message: HeldState) -> None:
        """Take over a newer register: a voter offers it to a candidate that it refuses."""
        position = (message.entry_epoch, message.entry_round)
        self.states.waiting.pop(HeldState, None)
        if not self.election.stands or position <= self.ledger.register.position:
            return
        if not self.certificates.knows(message.entry_epoch):
            self.certificates.await_(source, message, message.entry_epoch)
            return
        at, opener = (*position, message.digest), self.certificates.aggregator(position[0])
        if message.final and not self.statements.ends(opener, at, message.acknowledgement):
            return
        ref = self.states.resolve(source, message)
        if ref is not None:
            self._report(round_reports.CatchesUp, peer=source, term=position[0], round=position[1])
            # The votes that this candidate has are of an older term; signed ones name the register that it has now.
            signed = self.statements.signed and self.election.role is Role.CANDIDATE
            if position[0] > self.ledger.term or signed:
                self.election.step_down(max(position[0], self.ledger.term))
            self.follower.learn(*position, ref, final=message.final)
            self.election.hurry()
        elif self.states.awaits(message.digest):
            self.states.waiting[HeldState] = (source, message)

    def fire(self, key: TimerKey) -> None:
        match key[2]:
            case "election":
                self.election.fire()
            case "tick" if self.term is not None:
                self.term.fire()
            case "close":
                self._repeats += 1
                for name in self._unconfirmed:
                    if self._membership.present(name):
                        self._ctx.send(name, self.close_message())
                if self._unconfirmed and self._repeats < _CLOSE_REPEATS:
                    self._ctx.set_timer(self._closing, self._ctx.timing.retry_s)
            case "gather" if self.follower.place is not None:
                self.follower.place.fire()
            # The timer of the workspace only wakes this peer: the workspace is checked after every step.

    def computed(self, token: tasks.JobToken, outcome: tasks.Outcome) -> None:
        if self.ledger.finished and not isinstance(token, tasks.EndToken):
            self.notes.end()  # the task may have come after the keys were forgotten
        match token:
            case tasks.AnswerToken():
                self.follower.contributed(token, outcome)
            case tasks.SumToken() if self.follower.place is not None:
                self.follower.place.added(token, outcome)
            case tasks.PadsToken():
                self.follower.keeper.taken(token, outcome)
            case tasks.EndToken():
                self.notes.compared(outcome)
            case tasks.CheckToken() if token.kind == tasks.CheckEvidence.kind:
                self._evidence_checked(token, outcome)
            case tasks.CheckToken():
                self.state_checked(token, outcome)
            case tasks.TermToken() if self.term is not None and not self.ledger.finished:
                self.term.computed(token, outcome)

    def _evidence_checked(self, token: tasks.CheckToken, outcome: tasks.Outcome) -> None:
        evidence = self.certificates.checked(token, outcome)
        if evidence is None or self.ledger.finished:
            return
        if evidence.term > self.ledger.term:
            self.election.step_down(evidence.term)
        self.certificates.release()

    def state_named(self, source: str, message: HeldState | Open) -> None:
        if isinstance(message, HeldState):
            self._on_offer(source, message)
        elif message.term == self.ledger.term:
            self.follower.on_open(source, message)

    def blob_ready(self, digest: bytes) -> None:
        super().blob_ready(digest)
        self.follower.keeper.blob_ready(digest)
        if self.term is not None:
            self.term.blob_ready(digest)
        elif self.follower.place is not None:
            self.follower.place.blob_ready(digest)

    def look(self) -> None:
        """Continue with the contribution if the workspace has all that it needs."""
        task = self.workspace.look()
        if task is not None:
            self.follower.compute(task)

    def revoked(self, name: str) -> None:
        self._unconfirmed.pop(name, None)
        self.states.revoked(name)
        self.certificates.revoked(name)
        if not self.ledger.finished:
            self.election.revoked(name)
            if self.term is not None:
                self.term.revoked(name)

    def member_changed(self, name: str) -> None:
        if self.term is not None:
            self.term.member_changed(name)
            return
        if self.follower.place is not None:
            self.follower.place.look()  # the peer may be below in the tree
        if name == self.election.aggregator and self._membership.gone(name):
            self.election.aggregator_lost()

    def own_term(self) -> AggregatorTerm | None:
        """Return the term in which this peer aggregates, if it does."""
        return self.term

    @property
    def aggregator(self) -> str:
        return self.election.aggregator

    @property
    def keys(self) -> tasks.JobKeys | None:
        return self._job.keys

    def standing(self) -> tuple[str, str, list[str]]:
        """Return the job's phase at this peer, its aggregator (or an empty string), and the peers that it waits for."""
        aggregator, roster = self.election.aggregator, self.document.roster
        if self.ledger.finished:
            return "finished", "", []
        if self.term is not None:
            return self.term.phase, aggregator, self.term.waits_for()
        if not aggregator:
            return "electing", "", [name for name in roster if not self._membership.present(name)]
        phase = self.follower.phase
        return phase, aggregator, [aggregator] if phase == "following" else []

    def blobs_in_use(self) -> list[bytes]:
        opened = [] if self.term is None else self.term.blobs_in_use()
        return self.follower.blobs_in_use() + opened + self.workspace.blobs_in_use()

    def forget(self) -> None:
        self.election.stop()
        self.follower.end()
        self.deposed()
        self.workspace.forget()
        self.notes.forget()
        self._ctx.timers.cancel(self._closing)
        super().forget()

    # -- called by the election and the term ---------------------------------------------------------------------------

    def elected(self) -> None:
        self.headway.begins(self.ledger.term, self._ctx.me)
        self.certificates.show_all(name for name in self.document.roster if name != self._ctx.me)
        self._job.series.publish(self.document)
        self.follower.leave_place()
        self.term = AggregatorTerm(
            self._job, self, self.election, self.headway, self.notes, self.follower.keeper, self.statements
        )  # fmt: skip
        self.term.begin()

    def offer(self, candidate: str) -> None:
        """Send a candidate this peer's register, which is newer than its own."""
        register, ref = self.ledger.register, self.ledger.register.ref
        if ref is not None:
            held = HeldState(
                self.id, self.ledger.term, register.term, register.round, ref.digest, ref.size_bytes, ref.frames,
                register.final, self.follower.opened_as_last if register.final else b"",
            )  # fmt: skip
            self._ctx.send(candidate, held)

    def deposed(self) -> None:
        if self.term is not None:
            self.term.end()
            self.term = None

    def cancelled(self) -> None:
        """Check whether this peer, as the aggregator, must end the cancelled job."""
        self.election.cancelled()
        if self.term is not None:
            self.term.look()

    def adopt_own(self, opened: Round) -> None:
        """Adopt what this peer opened: the aggregator is its own first follower."""
        new = self.follower.adopt_own(opened)
        if new and self.term is not None and self.document.counts(self._ctx.me, self._ctx.store_id):
            self.term.own_adopted()

    # -- the end ----------------------------------------------------------------------------------------------------

    def finished(self, opened: Round) -> None:
        """Finish the job, and send `Close` to the other peers: a majority adopted the final state."""
        assert self.election.role is Role.AGGREGATOR
        self._unconfirmed = {name: None for name in self.document.roster if name != self._ctx.me}
        if self.statements.signed:
            self.certificates.ended([opened.acknowledged[index] for index in opened.adopted])
        self._finish(opened.term, opened.number, opened.ref)
        self.certificates.show_all(self._unconfirmed)
        for name in self._unconfirmed:
            self._ctx.send(name, self.close_message(with_state=self.document.index(name) not in opened.adopted))
        if self._unconfirmed:
            self._ctx.set_timer(self._closing, self._ctx.timing.retry_s)

    def _stop(self) -> None:
        self.election.stop()
        self.follower.end()
        self.deposed()
        self.workspace.finish()
        self.notes.end()

    def close_confirmed(self, source: str, message: CloseReply) -> None:
        super().close_confirmed(source, message)
        if not message.needs_state:
            self._unconfirmed.pop(source, None)

    def _leave(self, name: str) -> None:
        if not self.ledger.finished:
            self.election.revoked(name)
