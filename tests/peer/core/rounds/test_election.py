"""Raft's election, one test per sentence. Reference: Ongaro, "Consensus: bridging theory and practice", 2014."""

from __future__ import annotations

from collections.abc import Iterable

import msgpack
import pytest
from harness import Net, Packet, is_of_job, toy

from p2pclust.peer.core.effects import Compute, Effect, Persist, Send
from p2pclust.peer.core.events import Woken
from p2pclust.peer.core.job_messages import (
    Adopted,
    Close,
    Heartbeat,
    HeartbeatReply,
    HeldState,
    Open,
    PreVote,
    PreVoteReply,
    RequestVote,
    StaleTerm,
    VoteReply,
)  # fmt: skip
from p2pclust.peer.core.rounds.election import Role
from p2pclust.peer.core.rounds.job import AggregatedJob
from p2pclust.protocols.engine.workspace import digest_of

FAR = 100  # a term that nobody has reached


class Voter:
    """AggregatedJob messages are held back, so that one peer of three can be asked by hand. p1 is the peer under test."""

    def __init__(self, n: int = 3, **job: object) -> None:
        self.net = Net(n, manual=is_of_job)
        self.net.meet()
        self.id = self.net.submit("p1", toy(9), **job)
        self.net.drop()

    @property
    def job(self) -> AggregatedJob:
        return self.net.job("p1", self.id)

    def ask(self, source: str, term: int, register: tuple[int, int] = (0, 0)) -> list[VoteReply]:
        effects = self.net.arrive(source, "p1", RequestVote(self.id, term, *register))
        return [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, VoteReply)]

    def pre_ask(self, source: str, term: int, register: tuple[int, int] = (0, 0)) -> PreVoteReply:
        effects = self.net.arrive(source, "p1", PreVote(self.id, term, *register))
        return next(e.message for e in effects if isinstance(e, Send) and isinstance(e.message, PreVoteReply))

    def opens(self, source: str, term: int, round_: int, state: bytes) -> None:
        message = Open(self.id, term, round_, digest_of(state), len(state), False, -1, (state,))
        self.net.arrive(source, "p1", message)


def test_one_vote_per_term_first_come_first_served() -> None:
    """Each voter votes for at most one candidate in a term. Reference: section 3.4."""
    voter = Voter()
    assert [r.granted for r in voter.ask("p2", FAR)] == [True]
    assert [r.granted for r in voter.ask("p3", FAR)] == [False]
    assert [r.granted for r in voter.ask("p2", FAR)] == [True], "the same candidate may ask again: the answer was lost"
    assert [r.granted for r in voter.ask("p3", FAR + 1)] == [True]


def test_one_vote_per_term_across_a_restart() -> None:
    """Term and vote are stored before the answer and survive a crash. Reference: section 3.8."""
    voter = Voter()
    assert [r.granted for r in voter.ask("p2", FAR)] == [True]
    voter.net.crash("p1")
    voter.net.start("p1")
    assert voter.job.ledger.term == FAR
    assert [r.granted for r in voter.ask("p3", FAR)] == [False]
    assert [r.granted for r in voter.ask("p2", FAR)] == [True]


def test_the_vote_is_on_disk_before_the_answer() -> None:
    """A server responds only after updating stable storage. Reference: figure 3.1."""
    voter = Voter()
    effects = voter.net.arrive("p2", "p1", RequestVote(voter.id, FAR, 0, 0))
    last_row = max(i for i, e in enumerate(effects) if isinstance(e, Persist) and e.table == "ballot")
    assert msgpack.unpackb(effects[last_row].value) == [FAR, "p2"]  # type: ignore[attr-defined]
    answer = next(i for i, e in enumerate(effects) if isinstance(e, Send) and isinstance(e.message, VoteReply))
    assert last_row < answer


def test_a_candidate_stores_its_own_vote_before_it_asks() -> None:
    """A candidate votes for itself, and that is a vote like any other. Reference: section 3.4 and 3.8."""
    voter = Voter()
    voter.net.until(lambda: voter.job.election.role is Role.PRE_CANDIDATE)
    voter.net.drop()
    term = voter.job.ledger.term + 1
    effects = voter.net.arrive("p2", "p1", PreVoteReply(voter.id, term, True, term - 1, "store-p2"))
    row = next(i for i, e in enumerate(effects) if isinstance(e, Persist) and e.table == "ballot")
    assert msgpack.unpackb(effects[row].value) == [term, "p1"]  # type: ignore[attr-defined]
    asked = [i for i, e in enumerate(effects) if isinstance(e, Send) and isinstance(e.message, RequestVote)]
    assert len(asked) == 2
    assert row < min(asked)
    assert [r.granted for r in voter.ask("p3", term)] == [False]


def test_votes_of_an_older_term_elect_no_aggregator_of_a_newer_one() -> None:
    """A candidate of term 5 takes over a register of term 6 meanwhile. Reference: figure 3.1."""
    voter = Voter(5)
    voter.net.arrive("p2", "p1", StaleTerm(voter.id, 4))
    voter.net.until(lambda: voter.job.election.role is Role.PRE_CANDIDATE)
    for name in ("p2", "p3"):
        voter.net.arrive(name, "p1", PreVoteReply(voter.id, 5, True, 4, f"store-{name}"))
    assert (voter.job.election.role, voter.job.ledger.term) == (Role.CANDIDATE, 5)
    voter.net.arrive("p2", "p1", VoteReply(voter.id, 5, True, "store-p2"))
    voter.net.arrive("p3", "p1", HeldState(voter.id, 6, 6, 1, digest_of(b"s1[]"), 4, (b"s1[]",)))
    assert (voter.job.ledger.term, voter.job.ledger.register.position) == (6, (6, 1))
    voter.net.arrive("p3", "p1", VoteReply(voter.id, 6, True, "store-p3"))
    assert voter.job.election.role is Role.FOLLOWER
    assert voter.net.verbs("elected") == []


@pytest.mark.parametrize(
    ("register", "granted"),
    [((3, 4), True), ((3, 5), True), ((4, 0), True), ((3, 3), False), ((2, 9), False), ((0, 0), False)],
)
def test_a_vote_only_for_a_register_at_least_as_new(register: tuple[int, int], granted: bool) -> None:
    """The voter denies its vote if its own log is more up-to-date. Reference: section 3.6.1."""
    voter = Voter()
    voter.opens("p2", 3, 4, b"s4")
    voter.net.advance(voter.net.timing.election_max_s)  # p1 no longer sticks to p2
    voter.net.drop()
    assert voter.pre_ask("p3", FAR, register).granted is granted
    assert [r.granted for r in voter.ask("p3", FAR, register)] == [granted]


def test_a_vote_that_is_denied_still_moves_the_term() -> None:
    """A server that sees a higher term updates its own. Reference: section 3.3."""
    voter = Voter()
    voter.opens("p2", 3, 4, b"s4")
    voter.net.advance(voter.net.timing.election_max_s)
    assert [r.granted for r in voter.ask("p3", FAR)] == [False]
    assert voter.job.ledger.term == FAR


def test_a_pre_vote_changes_nothing() -> None:
    """In the pre-vote phase a candidate asks whether it could win, before it increments its term.

    Reference: section 9.6.
    """
    voter = Voter()
    before = voter.job.ledger.term
    effects = voter.net.arrive("p2", "p1", PreVote(voter.id, FAR, 5, 5))
    assert not [e for e in effects if isinstance(e, Persist)]
    assert (voter.job.ledger.term, voter.job.ledger.voted_for) == (before, "")
    assert voter.pre_ask("p3", FAR, (5, 5)).granted, "pre-votes are not limited to one"
    assert not voter.pre_ask("p3", before, (5, 5)).granted, "a term that is not above ours could not be won"


def test_a_lonely_peer_does_not_raise_its_term() -> None:
    """A server cut off never wins a pre-vote, so it does not disturb when it comes back. Reference: section 9.6."""
    voter = Voter()
    voter.net.lost = lambda packet: True
    voter.net.advance(60)
    assert voter.job.ledger.term == 0
    assert voter.net.verbs("waiting")


def test_who_hears_an_aggregator_votes_for_nobody_else() -> None:
    """A request within the minimum election timeout of hearing a leader is not granted. Reference: section 4.2.3."""
    voter = Voter()
    voter.net.arrive("p2", "p1", Heartbeat(voter.id, 3, 0))
    voter.net.advance(0.5 * voter.net.timing.election_min_s)
    assert not voter.pre_ask("p3", FAR, (9, 9)).granted
    assert voter.ask("p3", FAR, (9, 9)) == []
    assert voter.job.ledger.term == 3, "nor does the request move the term"
    voter.net.advance(0.6 * voter.net.timing.election_min_s)
    assert [r.granted for r in voter.ask("p3", FAR, (9, 9))] == [True]


def test_a_dead_aggregator_is_not_stuck_to() -> None:
    """Membership's word shortens the wait. Reference: docs/peer/election.md, "Election"."""
    voter = Voter(5)
    voter.net.arrive("p2", "p1", Heartbeat(voter.id, 3, 0))
    voter.net.crash("p2")
    voter.net.until(lambda: voter.net.core("p1").membership.status("p2") == "dead", limit_s=10)
    assert voter.pre_ask("p3", FAR, (9, 9)).granted


def test_an_aggregator_without_a_majority_resigns() -> None:
    """A leader steps down if an election timeout elapses without a round to a majority. Reference: section 6.2."""
    net = Net(5)
    net.meet()
    net.hold_work = lambda name, effect: True
    job = net.submit("p1", toy(9), aggregator="p1")
    net.lost = lambda packet: packet.source == "p1" or packet.target == "p1"
    net.advance(net.timing.election_max_s + 2 * net.timing.heartbeat_s)
    assert net.job("p1", job).election.role is not Role.AGGREGATOR
    assert [f for name, f in net.verbs("waiting") if name == "p1"]


def test_a_minority_elects_nobody() -> None:
    """A candidate needs votes from a majority of the full cluster. Reference: section 3.4."""
    net = Net(5)
    net.meet()
    net.hold_work = lambda name, effect: True
    job = net.submit("p1", toy(2), aggregator="p5")
    for name in ("p3", "p4", "p5"):
        net.crash(name)
    net.hold_work = lambda name, effect: False
    net.advance(60)
    assert net.aggregator(job) == ""
    assert net.finished(job) == []
    net.start("p5")
    net.until(lambda: net.finished(job) == ["p1", "p2", "p5"])


def test_a_higher_term_deposes() -> None:
    """A leader that discovers a higher term reverts to follower. Reference: section 3.3."""
    net = Net(3, manual=lambda message: isinstance(message, (Open, Adopted)))
    net.meet()
    job = net.submit("p1", toy(9), aggregator="p1")
    assert net.aggregator(job) == "p1"
    net.arrive("p2", "p1", StaleTerm(job, 7))
    assert net.job("p1", job).election.role is Role.FOLLOWER
    assert net.job("p1", job).ledger.term == 7
    assert net.verbs("deposed")


def test_a_stale_term_is_refused_and_told() -> None:
    """A request with a stale term number is rejected. Reference: section 3.3."""
    voter = Voter()
    voter.net.arrive("p2", "p1", Heartbeat(voter.id, 5, 0))
    for message in (Heartbeat(voter.id, 4, 9), Open(voter.id, 4, 9, b"", 0, False, -1, (b"s9",))):
        effects = voter.net.arrive("p3", "p1", message)
        assert [e.message for e in effects if isinstance(e, Send)] == [StaleTerm(voter.id, 5)]
    assert voter.job.ledger.register.ref is None
    assert voter.job.election.aggregator == "p2"


def test_a_new_aggregator_first_opens_its_newest_state_again_in_its_own_term() -> None:
    """A leader must not conclude anything about entries of older terms before one of its own.

    Reference: section 3.6.2.
    """
    net = Net(3, manual=lambda message: isinstance(message, (Open, Adopted)))
    net.meet()
    job = net.submit("p1", toy(9), aggregator="p1")
    for _ in range(4):  # opens and answers of rounds 0 and 1
        net.deliver()
    register = net.job("p2", job).ledger.register
    assert (register.term, register.round) == (1, 1)
    net.drop()
    net.crash("p1")
    net.until(lambda: net.aggregator(job) != "")
    new = net.aggregator(job)
    opens = [p.message for p in net.sent if p.source == new and isinstance(p.message, Open)]
    assert opens[0].term >= 2
    assert (opens[0].round, opens[0].digest) == (1, register.ref.digest)  # type: ignore[union-attr]
    combined = [e for e in net.peers[new].effects if isinstance(e, Compute) and e.task.kind == "combine"]
    assert not combined, "nothing is combined before a majority adopted it in the new term"


def test_a_candidate_that_lacks_what_a_majority_adopted_cannot_win() -> None:
    """The winner holds every committed entry (leader completeness). Reference: section 3.6.3."""
    net = Net(3, fitness={"p3": 1.0})
    net.meet()
    net.lost = lambda packet: packet.target == "p3" and isinstance(packet.message, Open)
    job = net.submit("p1", toy(50), aggregator="p1", missing="drop", deadline_s=0.1)
    net.until(lambda: net.job("p2", job).ledger.register.round >= 3)
    net.crash("p1")
    net.lost = lambda packet: False
    net.until(lambda: len(net.verbs("elected")) > 1)
    assert [peer for peer, _ in net.verbs("elected")] == ["p1", "p2"]


def test_the_named_aggregator_begins_without_an_election() -> None:
    """The document casts everybody's vote of term 1. Reference: docs/peer/election.md, "Election"."""
    voter = Voter(aggregator="p2")
    assert voter.net.aggregator(voter.id) == "p2"
    assert [r.granted for r in voter.ask("p3", 1)] == [False]
    assert not [packet for packet in voter.net.sent if isinstance(packet.message, (PreVote, RequestVote))]


@pytest.mark.parametrize("wiped", [False, True])
def test_the_named_aggregator_does_not_get_a_second_life_in_term_1(wiped: bool) -> None:
    """After a restart it stands like anybody else. Reference: docs/peer/election.md, "Election"."""
    net = Net(3, manual=is_of_job)
    net.meet()
    job = net.submit("p2", toy(9), aggregator="p1")
    assert net.aggregator(job) == "p1"
    net.crash("p1", wiped=wiped)
    net.drop()
    net.start("p1")
    net.until(lambda: net.peers["p1"].core is not None and job in net.core("p1").jobs.jobs)
    assert net.job("p1", job).election.role is Role.FOLLOWER
    net.advance(3)
    ours = [p.message for p in net.flight if p.source == "p1" and isinstance(p.message, (Open, Heartbeat))]
    assert ours == []


@pytest.mark.slow
def test_a_wiped_store_neither_stands_nor_counts() -> None:
    """A peer that may have forgotten a vote counts for no majority of that job.

    Reference: docs/peer/rounds.md, "Quorum".
    """
    net = Net(3)
    net.meet()
    net.hold_work = lambda name, effect: True
    job = net.submit("p1", toy(2))
    net.until(lambda: net.aggregator(job) != "")
    net.crash("p2", wiped=True)
    net.crash("p3", wiped=True)
    net.crash("p1")
    net.start()
    net.hold_work = lambda name, effect: False
    net.advance(30)
    assert net.aggregator(job) == "", "one intact store of three is no majority"
    assert net.finished(job) == []


def test_a_wiped_store_asks_for_votes_and_so_learns_of_the_end() -> None:
    """No peer sends the end any more when it comes back, and it may not stand; those that it asks answer with the end."""
    net = Net(3)
    net.meet()
    job = net.submit("p1", toy(1), roster=net.names)
    net.crash("p3", wiped=True)
    net.until(lambda: net.finished(job) == ["p1", "p2"])
    net.advance(10.0)
    net.start("p3")
    net.until(lambda: len(net.finished(job)) == 3)


def test_the_fitter_stands_first() -> None:
    """Fitness shortens the wait. Reference: docs/peer/election.md, "Election"."""
    net = Net(5, fitness={"p4": 1.0, **dict.fromkeys(("p1", "p2", "p3", "p5"), 0.0)})
    net.meet()
    winners = []
    for _ in range(6):
        job = net.submit("p1", toy(1))
        net.until(lambda job=job: len(net.finished(job)) == 5)  # type: ignore[misc]
        winners.append(next(name for name, f in net.verbs("elected") if f["job"] == job))
    assert winners == ["p4"] * 6


@pytest.mark.slow
def test_a_clearly_less_fit_peer_seldom_wins_the_race_after_a_death() -> None:
    """The draws overlap, from 0 on where the aggregator is held dead; so the less fit let the fitter stand first.

    One still wins, as three of five equals often would, where the fitter asks before the others know of the death.
    """
    net = Net(5, fitness={"p4": 0.75, "p5": 0.75, **dict.fromkeys(("p1", "p2", "p3"), 0.07)})
    net.meet()
    won = 0
    for _ in range(20):
        job = net.submit("p1", toy(9))
        net.hold_work = lambda name, effect: effect.task.kind == "combine"
        net.until(lambda job=job: net.aggregator(job) != "")  # type: ignore[misc]
        dead = net.aggregator(job)
        net.crash(dead)
        net.until(lambda job=job, dead=dead: net.aggregator(job) not in ("", dead))  # type: ignore[misc]
        won += {dead, net.aggregator(job)} == {"p4", "p5"}
        net.hold_work = lambda name, effect: False
        net.do_work()
        net.start(dead)
        net.until(lambda job=job: len(net.finished(job)) == 5)  # type: ignore[misc]
    assert won >= 17


def test_split_votes_are_resolved() -> None:
    """Randomised timeouts make split votes rare and end them quickly. Reference: section 3.4."""
    net = Net(4)
    net.meet()
    for _ in range(5):
        job = net.submit("p1", toy(1))
        began = net.now
        net.until(lambda job=job: len(net.finished(job)) == 4, limit_s=10)  # type: ignore[misc]
        assert net.now - began < 10
        assert len({f["term"] for _, f in net.verbs("elected") if f["job"] == job}) >= 1


@pytest.mark.slow
def test_at_most_one_aggregator_per_term_whatever_is_lost() -> None:
    """Election safety. Reference: figure 3.2."""
    for seed in range(6):
        net, coin = Net(5), [seed]

        def lost(packet: Packet, coin: list[int] = coin) -> bool:
            coin[0] = (coin[0] * 1103515245 + 12345) % 2**31
            return is_of_job(packet.message) and coin[0] / 2**31 < 0.4

        net.meet()
        net.lost = lost
        job = net.submit("p1", toy(6), patience_s=1.0)
        net.advance(25)
        terms: dict[int, set[str]] = {}
        for name, fields in net.verbs("elected"):
            terms.setdefault(fields["term"], set()).add(name)
        assert all(len(names) == 1 for names in terms.values())
        net.lost = lambda packet: False
        net.until(lambda net=net, job=job: len(net.finished(job)) == 5)  # type: ignore[misc]
        assert len(set(net.states(job).values())) == 1


def test_heartbeats_are_answered_with_what_is_held() -> None:
    """The reply tells register and store. Reference: docs/peer/rounds.md, "Rounds"."""
    voter = Voter()
    voter.opens("p2", 3, 4, b"s4")
    effects = voter.net.arrive("p2", "p1", Heartbeat(voter.id, 3, 4))
    replies = [e.message for e in effects if isinstance(e, Send)]
    assert replies == [HeartbeatReply(voter.id, 3, 3, 4, "store-p1", False, ended=1)]


def test_a_newer_term_has_no_aggregator_until_it_is_heard() -> None:
    """A server that sees a higher term reverts to follower, and knows no leader of it. Reference: section 3.3."""
    voter = Voter()
    voter.opens("p2", FAR, 0, b"s0")
    assert voter.job.election.aggregator == "p2"
    voter.job.election.step_down(FAR + 1)
    assert voter.job.election.aggregator == ""


def test_a_candidate_is_offered_the_newer_state_when_it_is_refused_twice_under_no_aggregator() -> None:
    """A refusal before the last aggregator says nothing: a better candidate was elected."""
    voter = Voter()

    def offered() -> bool:
        effects = voter.net.arrive("p2", "p1", PreVote(voter.id, FAR + 9, 0, 0))
        return any(isinstance(e, Send) and isinstance(e.message, HeldState) for e in effects)

    for term in (FAR, FAR + 1):
        voter.opens("p3", term, 1, b"s1[]")
        voter.net.advance(3.0)  # no heartbeat comes
        assert not offered()
    assert offered()


def test_a_candidate_that_caught_up_with_the_final_state_accepts_the_close() -> None:
    """It once held that state as one that is not final, and did not believe that the job had ended with it."""
    voter, state = Voter(), b"s9[]"
    voter.net.arrive("p3", "p1", Open(voter.id, FAR, 9, digest_of(state), len(state), True, -1, (state,)))
    voter.net.crash("p3")
    voter.net.advance(3.0)  # no heartbeat comes
    candidate = voter.net.job("p2", voter.id)
    voter.net.until(lambda: candidate.election.stands)
    voter.net.drop()
    for _ in range(2):  # it is refused twice, then the voter offers its state
        voter.net.arrive("p2", "p1", PreVote(voter.id, FAR + 9, 0, 0))
    voter.net.deliver(lambda packet: isinstance(packet.message, HeldState))
    assert candidate.ledger.register.position == (FAR, 9)
    voter.net.arrive("p3", "p2", Close(voter.id, FAR, 9, digest_of(state), len(state), ()))
    assert candidate.ledger.finished


def test_what_is_fetched_from_a_peer_that_sent_a_refuted_state_is_not_waited_for() -> None:
    voter = Voter()
    state = b"s1[]"
    large = Open(voter.id, FAR, 1, digest_of(state), 10**6, False, -1, ())  # to be pulled
    voter.net.arrive("p2", "p1", large)
    follower = voter.job.follower
    assert follower.phase == "fetching"
    voter.job.states.distrust("p3", "")
    assert follower.phase == "fetching"
    voter.job.states.distrust("p2", "")
    assert follower.phase == "following"


def test_a_wait_ends_soon_after_answers_become_fast_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where answers are slow, it is longer than drawn, by a factor that is looked at when it would be over."""
    voter = Voter()
    voter.ask("p2", FAR)
    times, net = [40.0], voter.net
    monkeypatch.setattr(voter.job.headway, "election_times", lambda: times[0])

    def stood() -> bool:
        return voter.job.election.role is not Role.FOLLOWER

    net.advance(10.0)
    assert not stood()
    times[0] = 1.0
    net.until(stood, limit_s=2.0)


@pytest.mark.slow
class TestLargeRosters:
    """A candidate of a large roster asks a few peers first."""

    N = 80

    def voter(self) -> Voter:
        return Voter(self.N)

    @staticmethod
    def asked(effects: Iterable[Effect]) -> list[str]:
        return [effect.to for effect in effects if isinstance(effect, Send) and isinstance(effect.message, PreVote)]

    def stand(self, voter: Voter) -> list[str]:
        """Let the election timer of p1 run out; return the peers that it asks."""
        core = voter.net.core("p1")
        voter.job.election._wait(0.0)
        return self.asked(core.step(voter.net.now, Woken()))

    def answer(self, voter: Voter, name: str, *, granted: bool) -> list[str]:
        term = voter.job.ledger.term
        store = voter.net.peers[name].disk.store_id
        return self.asked(voter.net.arrive(name, "p1", PreVoteReply(voter.id, term + 1, granted, term, store)))

    def test_the_others_are_asked_once_some_would_vote_for_it(self) -> None:
        voter = self.voter()
        few = self.stand(voter)
        assert len(few) == len(set(few)) == 16
        assert self.answer(voter, few[0], granted=False) == []
        assert [self.answer(voter, name, granted=True) for name in few[1:3]] == [[], []]
        others = self.answer(voter, few[3], granted=True)
        assert sorted([*few, *others, "p1"]) == sorted(voter.net.peers), "each once"
        assert self.answer(voter, few[4], granted=True) == []

    def test_it_asks_all_in_time_whatever_the_few_answer(self) -> None:
        voter = self.voter()
        tries = [self.stand(voter) for _ in range(8)]
        assert [len(names) for names in tries] == [16] * 7 + [self.N - 1]
        assert [tries[number] == tries[number + 1] for number in range(6)] == [True, False] * 3
        assert voter.job.election.role is Role.PRE_CANDIDATE

    def test_a_peer_that_hears_an_aggregator_begins_anew(self) -> None:
        voter = self.voter()
        first, *_ = [self.stand(voter) for _ in range(3)]
        voter.net.arrive("p2", "p1", Heartbeat(voter.id, voter.job.ledger.term + 1, 0))
        assert self.stand(voter) == first

    def test_a_small_roster_is_asked_at_once(self) -> None:
        assert len(self.stand(Voter(5))) == 4
