"""One job at one peer: the door through which its messages come, and the follower's side of its rounds."""

from __future__ import annotations

from collections.abc import Mapping

from p2pclust.errors import WireError
from p2pclust.peer.blobs import Blobs
from p2pclust.peer.context import Context, TimerKey
from p2pclust.peer.desk import Children, Desk
from p2pclust.peer.document import Document
from p2pclust.peer.effects import Compute, Task
from p2pclust.peer.election import Election, Role
from p2pclust.peer.events import Computed, Ref
from p2pclust.peer.gathering import Gathering
from p2pclust.peer.ledger import Ledger
from p2pclust.peer.membership import Membership
from p2pclust.peer.messages import (
    Adopted,
    Close,
    CloseReply,
    Heartbeat,
    HeartbeatReply,
    Message,
    Open,
    Partial,
    PreVote,
    PreVoteReply,
    RequestVote,
    StaleTerm,
    VoteReply,
)  # fmt: skip
from p2pclust.peer.rounds import Aggregating, Opened
from p2pclust.protocols.verbs import digest_of

__all__ = ["Job"]

#: How often a finished aggregator repeats its word to those that did not confirm; later they learn it by asking.
_CLOSE_REPEATS = 5


class Job:
    """The machine. Every message of the job passes `receive`, which refuses stale terms before anything else sees them."""

    def __init__(
        self, context: Context, membership: Membership, blobs: Blobs, document: Document, ledger: Ledger, fitness: float,
        children: Children, note: bytes | None,
    ) -> None:  # fmt: skip
        self._ctx = context
        self._membership = membership
        self._blobs = blobs
        self.document = document
        self.ledger = ledger
        self.id = document.id
        self._me = document.index(context.me)
        self.election = Election(context, membership, document, ledger, self, fitness)
        self.desk = Desk(context, membership, blobs, document, children, note)
        self._children = children
        self._term: Aggregating | None = None
        self._pending: tuple[str, Open] | None = None  # an opened state whose blob is on its way
        self._answers: dict[tuple[bytes, int], tuple[Ref | None, str]] = {}  # of the state in the register
        self._computing: dict[tuple[str, ...], Task] = {}
        self._proposer = -1
        self._gathering: Gathering | None = None  # this peer's place in the tree of the round
        self._direct = (0, 0)  # the round for which the aggregator asked this peer itself
        self._final: tuple[str, Close] | None = None  # a final state whose blob is on its way
        self._unconfirmed: dict[str, None] = {}
        self._repeats = 0

    def start(self, *, fresh: bool) -> None:
        """Begin, or go on after a restart."""
        self.desk.start()
        if not self.ledger.finished:
            self.election.start(fresh=fresh)

    # -- the door -----------------------------------------------------------------------------------------------------

    def receive(self, source: str, message: Message) -> None:
        """A message of this job came from a roster peer."""
        match message:
            case Close():
                self._on_close(source, message)
            case CloseReply():
                self._on_close_reply(source, message)
            case PreVote() | RequestVote() | Open() | Heartbeat() if self.ledger.finished:
                # Whoever still asks gets the final state; answers to old questions mean nothing any more.
                self._ctx.send(self._asker(source, message), self._close_message(with_state=True))
            case _ if self.ledger.finished:
                pass
            case PreVote() | PreVoteReply() | RequestVote() | VoteReply() | StaleTerm():
                self.election.receive(source, message)
            case Open() | Heartbeat():
                self._from_aggregator(source, message)
            case Adopted() | HeartbeatReply():
                self._from_follower(source, message)
            case Partial() if message.term == self.ledger.term:
                self._on_partial(source, message)

    def _asker(self, source: str, message: Message) -> str:
        """Who asks: peers of a tree hand on what the aggregator opens."""
        roster = self.document.roster
        if isinstance(message, Open) and 0 <= message.aggregator < len(roster):
            return roster[message.aggregator]
        return source

    def _from_aggregator(self, carrier: str, message: Open | Heartbeat) -> None:
        source = self._asker(carrier, message)
        if source == self._ctx.me:
            return
        if self.ledger.stale(message.term):  # the fence: it was deposed and does not know it yet
            self._ctx.report("fenced", **self.document.told, peer=source, term=message.term, own_term=self.ledger.term)
            self._ctx.send(source, StaleTerm(self.id, self.ledger.term))
            return
        if carrier == source or self._is_news(message):
            self.election.follow(source, message.term)
        if self._gathering is not None and message.term > self._gathering.opened.term:
            self._leave_place()
        if isinstance(message, Open):
            self._take_place(message)
            self._on_open(source, message)
        else:
            self._on_heartbeat(source, message)

    def _is_news(self, message: Open | Heartbeat) -> bool:
        """Whether what a peer of the tree hands on is new here: it asks again, long after the aggregator may be gone."""
        here = (0, 0) if self._gathering is None else (self._gathering.opened.term, self._gathering.opened.round)
        return (message.term, message.round) > max(self.ledger.register.position, here, self._direct)

    def _from_follower(self, source: str, message: Adopted | HeartbeatReply) -> None:
        if self._term is None or message.term != self.ledger.term:
            self._ctx.report("late-answer", **self.document.told, peer=source, term=message.term)
        elif isinstance(message, Adopted):
            self._term.on_adopted(source, message)
        else:
            self._term.on_heartbeat_reply(source, message)

    def _on_partial(self, source: str, message: Partial) -> None:
        try:
            if self._term is not None:
                self._term.on_partial(source, message)
            elif self._gathering is not None and self._gathering.of(message.term, message.round, message.digest):
                self._gathering.receive(source, message)
        except WireError as error:
            self._ctx.report("bad-part", **self.document.told, peer=source, reason=str(error))

    def fire(self, key: TimerKey) -> None:
        """A timer of this job is due."""
        match key[2]:
            case "election":
                self.election.fire()
            case "tick" if self._term is not None:
                self._term.fire()
            case "close":
                self._repeat_close()
            case "gather" if self._gathering is not None:
                self._gathering.fire()
            # "desk" only wakes this peer: whatever happened, the desk is looked at after every step.

    def computed(self, event: Computed) -> None:
        """A task of this job ended."""
        if event.token[2] == "contribute":
            self._on_contribution(event, self._computing.pop(event.token))
        elif event.token[2] == "add":
            if self._gathering is not None:
                self._gathering.added(event)
        elif self._term is not None and not self.ledger.finished:
            self._term.computed(event)

    def blob_ready(self, digest: bytes) -> None:
        """A blob that somebody here may have waited for is complete."""
        if self._final is not None and self._final[1].digest == digest:
            self._on_close(*self._final)
        if self._pending is not None and self._pending[1].digest == digest:
            source, message = self._pending
            self._pending = None
            if not self.ledger.finished and message.term == self.ledger.term:
                self._on_open(source, message)
        if self._term is not None:
            self._term.blob_ready(digest)
        elif self._gathering is not None:
            self._gathering.blob_ready(digest)

    def look(self) -> None:
        """Something happened at this peer: is all that the contribution wants on the desk now?"""
        task = self.desk.look()
        if task is not None:
            self._compute(task)

    def revoked(self, name: str) -> None:
        """A roster peer was revoked."""
        self._unconfirmed.pop(name, None)
        if self._pending is not None and self._pending[0] == name:
            self._pending = None
        if self._final is not None and self._final[0] == name:
            self._final = None
        if not self.ledger.finished:
            self.election.revoked(name)
            if self._term is not None:
                self._term.revoked(name)

    def member_changed(self, name: str) -> None:
        """Membership changed its mind about a roster peer."""
        if self.ledger.finished:
            return
        if self._term is not None:
            self._term.member_changed(name)
            return
        if self._gathering is not None:
            self._gathering.look()
        if name == self.election.aggregator and self._membership.gone(name):
            self.election.aggregator_lost()

    @property
    def terms(self) -> Mapping[int, str]:
        """Who aggregated in which term, as far as this life of the peer has heard."""
        return self.election.terms

    def standing(self) -> tuple[str, str, list[str]]:
        """Say for people what this job is at here, who aggregates as far as known, and for whom is waited."""
        aggregator, roster = self.election.aggregator, self.document.roster
        if self.ledger.finished:
            return "finished", "", []
        if self._term is not None:
            return self._term.phase, aggregator, self._term.waits_for()
        if not aggregator:
            return "electing", "", [name for name in roster if not self._membership.present(name)]
        if self._pending is not None or self.desk.busy:
            return "fetching", aggregator, []
        return ("computing", aggregator, []) if self._computing else ("following", aggregator, [aggregator])

    def forget(self) -> None:
        """Nobody needs this job any more: leave no timer and no row behind."""
        self.election.stop()
        self._leave_place()
        self.deposed()
        self.desk.forget()
        self._ctx.timers.cancel(("job", self.id, "close"))
        for table in ("job", "ballot", "register"):
            self._ctx.persist(table, self.id, None, sync=False)

    def _take_place(self, message: Open) -> None:
        """Take this peer's place in the tree that the message names, or be asked for itself."""
        position, place = (message.term, message.round), self._gathering
        here = (0, 0) if place is None else (place.opened.term, place.opened.round)
        if not self.ledger.may_adopt(*position) or position < max(here, self._direct):
            return  # it may come late, and before the blob of a newer state is here
        if place is not None and here != position:
            self._leave_place()
        if not message.parents:
            self._direct = position
        elif place is not None and place.opened == message:
            place.again()
        elif len(message.parents) == len(self.document.roster):
            self._leave_place()
            try:
                self._gathering = Gathering(
                    self._ctx, self._membership, self._blobs, self.document, message, self._me
                )  # fmt: skip
            except WireError as error:
                self._ctx.report("bad-tree", **self.document.told, reason=str(error))

    def _leave_place(self) -> None:
        if self._gathering is not None:
            self._gathering.end()
            self._gathering = None

    # -- adopting and contributing ----------------------------------------------------------------------------------

    def _on_open(self, source: str, message: Open) -> None:
        register = self.ledger.register
        if not self.ledger.may_adopt(message.term, message.round):
            return  # an older message of this term, overtaken on the way
        if not -1 <= message.proposer < len(self.document.roster):
            return
        self._proposer = message.proposer
        held = register.ref is not None and register.ref.digest == message.digest
        if held and register.position == (message.term, message.round):
            self._answer()
            return
        if register.position == (message.term, message.round) and register.ref is not None:
            self._ctx.report("contradiction", **self.document.told, peer=source, term=message.term, round=message.round)
            return  # one term, one round, two states: no honest aggregator does that
        ref = self._resolve(source, message)
        if ref is None:
            self._pending = (source, message)
            return
        self._pending = None
        self._adopt(message.term, message.round, ref, final=message.final)

    def _resolve(self, source: str, message: Open | Close) -> Ref | None:
        """The state that the message speaks of; None while it is fetched, or if it is not what it claims to be."""
        register = self.ledger.register
        if register.ref is not None and register.ref.digest == message.digest:
            return register.ref
        if message.state:
            if digest_of(message.state[0]) != message.digest:
                self._ctx.report("corrupt", **self.document.told, peer=source)
                return None
            return Ref(message.digest, len(message.state[0]), message.state[0])
        if self._blobs.has(message.digest):
            return Ref(message.digest, message.size_bytes, None)
        if message.size_bytes > self._ctx.limits.inline_bytes:
            others = [
                n for n in self.document.roster if n not in (source, self._ctx.me) and self._membership.present(n)
            ]
            self._blobs.pull(message.digest, message.size_bytes, [source, *others])
        return None

    def _adopt(self, term: int, round_: int, ref: Ref, *, final: bool) -> None:
        before = self.ledger.register.ref
        self._ctx.report("phase", phase="adopting", **self.document.told, term=term, round=round_)
        self.ledger.adopt(term, round_, ref, final=final)
        if before is not None and before.digest != ref.digest:
            self._answers.clear()
            self.desk.abandon()
        self._answer()

    def blobs_in_use(self) -> list[bytes]:
        """What must be kept, or fetched, for this job; everything else that is large may go."""
        own = [ref for ref, _ in self._answers.values()]
        refs = [ref for ref in (self.ledger.register.ref, *own) if ref is not None and ref.payload is None]
        waiting = [message[1].digest for message in (self._pending, self._final) if message is not None]
        computing = [bytes.fromhex(token[3]) for token in self._computing]
        opened = [] if self._term is None else self._term.blobs_in_use()
        sums = [] if self._gathering is None else [r.digest for r in self._gathering.refs() if r.payload is None]
        return [ref.digest for ref in refs] + waiting + computing + opened + sums + self.desk.blobs_in_use()

    def _answer(self) -> None:
        """Acknowledge the register's state, with the contribution; compute it first if that was not done yet."""
        register = self.ledger.register
        assert register.ref is not None
        key = (register.ref.digest, self._proposer)
        if register.final:
            self._acknowledge(None, "")
        elif key in self._answers:
            self._acknowledge(*self._answers[key])
        elif not self.desk.busy:
            self._compute(
                Task(
                    "contribute",
                    self.document.job,
                    len(self.document.roster),
                    me=self._me,
                    state=register.ref,
                    proposer=self._proposer,
                    note=self._note(),
                )
            )

    def _compute(self, task: Task) -> None:
        assert task.state is not None
        token = ("job", self.id, "contribute", task.state.digest.hex(), str(task.proposer))
        if token not in self._computing:
            self._computing[token] = task
            self._ctx.effects.append(Compute(token, task))

    def _note(self) -> bytes:
        """What this peer kept for itself; a job within another one works with the note of that one."""
        parent = self.document.parent
        if parent:
            return self._children.note_for(parent, self.document.parent_round)
        return self.desk.note_before(self.ledger.register.round)

    def _on_contribution(self, event: Computed, task: Task) -> None:
        digest, proposer = bytes.fromhex(event.token[3]), int(event.token[4])
        register = self.ledger.register
        if register.ref is None or register.ref.digest != digest or self.ledger.finished:
            return
        if "wanted" in event.info:
            if not self.desk.busy:
                self.desk.prepare(register.round, task, event.info["wanted"])
            return
        self.desk.took(register.round, event.info)
        self._answers[digest, proposer] = (event.result, event.abstains)
        if proposer == self._proposer:
            self._acknowledge(event.result, event.abstains)

    def _acknowledge(self, contribution: Ref | None, abstains: str) -> None:
        register = self.ledger.register
        assert register.ref is not None
        if self._term is not None:
            self._term.own_answer(register.ref.digest, contribution, abstains)
            return
        place = self._gathering
        if place is not None and place.of(register.term, register.round, register.ref.digest):
            place.own(register.ref, contribution, abstains)
            if self._direct != register.position:
                return
        if not self.election.aggregator or register.term != self.ledger.term:
            return  # nobody to tell at the moment; the next open asks again
        ref = contribution or Ref(b"", 0, None)
        payload = () if ref.payload is None else (ref.payload,)
        message = Adopted(
            self.id, register.term, register.round, register.ref.digest, self._ctx.store_id, abstains,
            ref.digest, ref.size_bytes, payload,
        )  # fmt: skip
        self._ctx.send(self.election.aggregator, message)

    def _works_on(self, position: tuple[int, int]) -> bool:
        """Whether an answer to that very round is being computed here, or its state fetched."""
        if self._pending is not None and (self._pending[1].term, self._pending[1].round) == position:
            return self._blobs.fetching(self._pending[1].digest)
        gathers = self._gathering is not None and self._gathering.busy()
        return (bool(self._computing) or self.desk.busy or gathers) and self.ledger.register.position == position

    def _on_heartbeat(self, source: str, message: Heartbeat) -> None:
        term, round_ = self.ledger.register.position
        busy = self._works_on((message.term, message.round))
        self._ctx.send(
            source, HeartbeatReply(self.id, message.term, term, round_, self._ctx.store_id, busy)
        )  # fmt: skip

    # -- what the election and the term say (Rule and Hooks) ----------------------------------------------------------

    def elected(self) -> None:
        """This peer aggregates now."""
        self._children.elected(self.document)
        self._leave_place()
        self._term = Aggregating(
            self._ctx, self._membership, self._blobs, self.document, self.ledger, self
        )  # fmt: skip
        self._term.begin()

    def deposed(self) -> None:
        """This peer aggregates no longer."""
        if self._term is not None:
            self._term.end()
            self._term = None

    def no_majority(self) -> None:
        """Nobody answers: stop aggregating."""
        self.election.resign()

    def cancelled_by(self) -> str:
        """Who wants this job ended."""
        return self._children.cancelled_by(self.id)

    def continues(self) -> Task | None:
        """The task that makes the mathematics of the job that follows in a series."""
        return self._children.continues(self.document)

    def next_document(self, mathematics: bytes) -> bytes | None:
        """What this peer proposes as the next document of a series."""
        return self._children.next_document(self.document, mathematics)

    def cancelled(self) -> None:
        """Somebody wants this job ended; whoever aggregates it sees to that."""
        if self._term is not None and not self.ledger.finished:
            self._term.look()

    def unable(self) -> None:
        """This peer cannot aggregate this job: leave it to others."""
        self.election.withdraw()

    def out_of_reach(self) -> None:
        """Let another aggregate, who may hear those that this peer does not."""
        self.election.hand_over()

    def adopt_own(self, term: int, opened: Opened) -> None:
        """The aggregator is its own first follower."""
        register = self.ledger.register
        self._proposer = opened.proposer
        if register.position == (term, opened.round) and register.ref is not None:
            self._answer()
            return
        self._adopt(term, opened.round, opened.ref, final=opened.final)
        if self._term is not None and self.document.counts(self._ctx.me, self._ctx.store_id):
            self._term.own_adopted()

    # -- the end ----------------------------------------------------------------------------------------------------

    def finished(self, term: int, opened: Opened) -> None:
        """A majority adopted the final state: finish, and tell everybody."""
        assert self.election.role is Role.AGGREGATOR
        self._unconfirmed = {name: None for name in self.document.roster if name != self._ctx.me}
        self._finish(term, opened.round, opened.ref)
        for name in self._unconfirmed:
            self._ctx.send(name, self._close_message(with_state=name not in opened.adopted))
        if self._unconfirmed:
            self._ctx.set_timer(("job", self.id, "close"), self._ctx.timing.retry_s)

    def _finish(self, term: int, round_: int, ref: Ref) -> None:
        self.ledger.finish(term, round_, ref)
        self.election.stop()
        self._leave_place()
        self.deposed()
        self._answers.clear()
        self.desk.finish()
        self._pending = self._final = None
        self._ctx.report("finished", **self.document.told, term=term, round=round_, digest=ref.digest.hex())
        self._children.ended(self.id)

    def _close_message(self, *, with_state: bool) -> Close:
        register = self.ledger.register
        assert register.ref is not None
        ref = register.ref
        state = (ref.payload,) if with_state and ref.payload is not None else ()
        return Close(self.id, register.term, register.round, ref.digest, ref.size_bytes, state)

    def _on_close(self, source: str, message: Close) -> None:
        if not self.ledger.finished:
            held = self.ledger.register
            running = held.ref is not None and held.ref.digest == message.digest and not held.final
            ref = None if running else self._resolve(source, message)
            if ref is None:
                if message.size_bytes > self._ctx.limits.inline_bytes:
                    self._final = (source, message)
                elif not message.state and not running:
                    self._ctx.send(source, CloseReply(self.id, True))
                return
            self._finish(message.term, message.round, ref)
        self._ctx.send(source, CloseReply(self.id, False))

    def _on_close_reply(self, source: str, message: CloseReply) -> None:
        if not self.ledger.finished:
            return
        if message.needs_state:
            self._ctx.send(source, self._close_message(with_state=True))
        else:
            self._unconfirmed.pop(source, None)

    def _repeat_close(self) -> None:
        self._repeats += 1
        for name in self._unconfirmed:
            if self._membership.present(name):
                self._ctx.send(name, self._close_message(with_state=True))
        if self._unconfirmed and self._repeats < _CLOSE_REPEATS:
            self._ctx.set_timer(("job", self.id, "close"), self._ctx.timing.retry_s)
