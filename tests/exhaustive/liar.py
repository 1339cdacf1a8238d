"""The third peer of a small fleet with keys as a liar: all that it may say about votes and ends, and what must hold.

It signs contradicting votes and acknowledgements, claims old registers, shows old and made-up certificates, and opens
different last states to different peers. It cannot sign for others, but hears at once all that they send to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from tests.exhaustive.fleet import KEYED, NAMES, STORES, Happened, Sent, Toy

from p2pclust.lab.simulation.world.peer import stand_in
from p2pclust.peer.core import job_messages as jobs
from p2pclust.peer.core.evidence import Evidence, Majority, Statement
from p2pclust.peer.core.messages import Message
from p2pclust.peer.core.tasks import Ref
from p2pclust.protocols.engine.workspace import digest_of

__all__ = ["HONEST", "LIAR", "Witnesses", "lies"]

LIAR: Final = NAMES[-1]
HONEST: Final = NAMES[:-1]
_ME: Final = NAMES.index(LIAR)
_JOB: Final = KEYED.id
_NO_REGISTER: Final = (0, 0, b"", False)  # term, round, digest, final


def lies(heard: Iterable[tuple[str, Message]], toy: Toy, last_term: int, *, ends: bool) -> Iterator[Sent]:
    """Yield all that the liar may send, given what it heard from whom; in terms up to the last one.

    With `ends` its lies are about ends: it stands for election, grants every vote, and opens different last states.
    Without, they are about votes, and as an elected aggregator it opens nothing.
    """
    known = list(heard)
    begun = max((getattr(message, "term", 0) for _, message in known), default=0)
    for term in range(1, min(begun + 1, last_term) + 1):
        yield from _of_its_own(term, toy, ends=ends)
    votes = [Statement.decode(m.vote) for _, m in known if isinstance(m, jobs.VoteReply) and m.vote]
    won = {
        vote.term: Majority.of([vote, _signed(replace(vote, by=_ME))], 2) for vote in votes if vote.aggregator == _ME
    }
    for term, majority in won.items():
        yield from _as_aggregator(term, majority, _made_up(toy) if ends else [])
        yield from _a_later_round(term, last_term)
    for source, message in known:
        yield from ((LIAR, source, answer) for answer in _answers(message))
        if isinstance(message, jobs.ShowEvidence) and not ends:
            yield from ((LIAR, name, message) for name in HONEST)
        acknowledged = getattr(message, "acknowledgement", b"")
        if acknowledged:
            yield from _ends(Statement.decode(acknowledged), known, won, toy)


def _signed(bare: Statement) -> Statement:
    bare = replace(bare, store_id=STORES[LIAR], signature=b"")
    return replace(bare, signature=stand_in(LIAR.encode(), bare.statement(_JOB)))


def _vote(term: int, aggregator: int, register: tuple[int, int, bytes, bool] = _NO_REGISTER) -> Statement:
    return _signed(Statement(term, aggregator, _ME, "", *register))


def _of_its_own(term: int, toy: Toy, *, ends: bool) -> Iterator[Sent]:
    """Stand with an old register, tell of a term, and open a state with votes that the liar alone has signed."""
    vote = _vote(term, _ME)
    alone = Majority(vote, dict.fromkeys((0, _ME), vote.signature))
    for name in HONEST:
        yield LIAR, name, jobs.RequestVote(_JOB, term, 0, 0, vote.encode())
        if not ends:
            yield LIAR, name, jobs.StaleTerm(_JOB, term, vote.encode())
            yield LIAR, name, jobs.ShowEvidence(_JOB, term, (Evidence(alone).encode(),))
            yield LIAR, name, _open(term, _made_up(toy)[0])


def _as_aggregator(term: int, votes: Majority, opened: list[Ref]) -> Iterator[Sent]:
    """Show that the liar was elected, and open these last states."""
    for name in HONEST:
        yield LIAR, name, jobs.ShowEvidence(_JOB, term, (Evidence(votes).encode(),))
        yield from ((LIAR, name, _open(term, ref)) for ref in opened)


def _open(term: int, ref: Ref) -> jobs.Open:
    own = _signed(Statement(term, _ME, _ME, "", term, 1, ref.digest, True)).encode()
    return jobs.Open(_JOB, term, 1, ref.digest, ref.size_bytes, True, -1, ref.frames, acknowledgement=own)


def _a_later_round(won: int, last_term: int) -> Iterator[Sent]:
    """Stand with a later round of a term that the liar has won, which is not the last."""
    for term in range(won + 1, last_term + 1):
        vote = _vote(term, _ME, (won, 9, bytes(32), False))
        for name in HONEST:
            yield LIAR, name, jobs.RequestVote(_JOB, term, won, 9, vote.encode())


def _made_up(toy: Toy) -> list[Ref]:
    return [toy.state(toy.n_rounds, b"", [peer]) for peer in (7, 8)]


def _answers(message: Message) -> Iterator[Message]:
    """Grant every vote, and acknowledge every state, whatever was granted and acknowledged before."""
    store = STORES[LIAR]
    match message:
        case jobs.PreVote():
            yield jobs.PreVoteReply(_JOB, message.term, True, 0, store)
        case jobs.RequestVote():
            vote = _signed(replace(Statement.decode(message.vote), by=_ME))
            yield jobs.VoteReply(_JOB, message.term, True, store, vote.encode())
        case jobs.Open():
            own = b""
            if message.final:
                own = _signed(replace(Statement.decode(message.acknowledgement), by=_ME)).encode()
            data = b"%d" % _ME + message.digest
            ref = Ref.of(digest_of(data), len(data), (data,))
            yield jobs.Adopted(
                _JOB,
                message.term,
                message.round,
                message.digest,
                store,
                "",
                ref.digest,
                ref.size_bytes,
                ref.frames,
                own,
            )
        case jobs.Heartbeat():
            yield jobs.HeartbeatReply(_JOB, message.term, message.term, message.round, store, False, 0)


def _ends(one: Statement, known: list[tuple[str, Message]], won: dict[int, Majority], toy: Toy) -> Iterator[Sent]:
    """Show that a job has ended with the state that one honest peer and the liar have acknowledged, and close it."""
    votes = won.get(one.term) if one.aggregator == _ME else None
    for _, message in known:
        if isinstance(message, jobs.ShowEvidence) and message.term == one.term and one.aggregator != _ME:
            votes = Evidence.decode(message.evidence[0]).votes
    if votes is None:
        return
    acknowledged = Majority.of([one, _signed(replace(one, by=_ME))], 2)
    shown = jobs.ShowEvidence(_JOB, one.term, (Evidence(votes, acknowledged).encode(),))
    states = {m.digest: m.state for _, m in known if isinstance(m, jobs.Open)} | {
        r.digest: r.frames for r in _made_up(toy)
    }
    state = states[one.digest]
    for name in HONEST:
        yield LIAR, name, shown
        yield LIAR, name, jobs.Close(_JOB, one.term, one.round, one.digest, len(state[0]), state)


class Witnesses:
    """The promises of docs/evidence.md along one history: W1, an honest signer; W2, the liar alone is in contradictions.

    Each method takes one thing that happened at an honest peer, and returns how it breaks a promise, or an empty string.
    """

    def __init__(self) -> None:
        self._votes: dict[tuple[int, str], str] = {}  # by term and voter
        self._adopted: dict[tuple[int, bytes, str], None] = {}
        self._followed: dict[tuple[int, str], Happened] = {}  # certificates, by term and aggregator
        self._closed: dict[tuple[int, bytes], Happened] = {}  # ends, by term and digest

    def flaw(self, event: Happened) -> str:
        match event:
            case ("voted", term, candidate, voter):
                known = self._votes.setdefault((term, voter), candidate)
                return "" if known == candidate else f"S1: {voter} votes for {known} and {candidate} in term {term}"
            case ("adopted", term, _, digest, name):
                self._adopted[term, digest, name] = None
            case ("followed", term, shown):
                return self._follows(term, shown)
            case ("closed", name, shown):
                return self._closes(name, shown)
        return ""

    def _follows(self, term: int, shown: Happened) -> str:
        if not shown or shown[0] != term:
            return f"W1: a state of term {term} is adopted without the certificate of this term"
        _, aggregator, register, _, signers = shown
        honest = [name for name in signers if name != LIAR]
        if not honest or any(self._votes.get((term, name)) != aggregator for name in honest):
            return f"W1: {aggregator} is followed in term {term} with the votes of {signers}"
        self._followed[term, aggregator] = shown
        others = [one for (of, _), one in self._followed.items() if of == term]
        older = [one for (of, _), one in self._closed.items() if of < term and register < (of, True, one[2][2])]
        return self._contradict([*others, *older], shown)

    def _closes(self, name: str, shown: Happened) -> str:
        if not shown:
            return f"W1: {name} ends the job without evidence"
        term, _, _, digest, signers = shown
        honest = [name for name in signers if name != LIAR]
        if not honest or any((term, digest, name) not in self._adopted for name in honest):
            return f"W1: {name} ends the job in term {term} with acknowledgements of {signers}"
        self._closed[term, digest] = shown
        others = [one for (of, _), one in self._closed.items() if of == term]
        later = [one for (of, _), one in self._followed.items() if of > term and one[2] < (term, True, shown[2][2])]
        return self._contradict([*others, *later], shown)

    def _contradict(self, others: list[Happened], shown: Happened) -> str:
        for one in others:
            both = [name for name in one[-1] if name in shown[-1]]
            if one[:4] != shown[:4] and both != [LIAR]:
                return f"W2: {one} and {shown} contradict each other, and {both} signed both"
        return ""
