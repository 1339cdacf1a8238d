"""What once went wrong, one test per fault, told in a user's terms: elections, rounds and membership."""

from __future__ import annotations

from dataclasses import replace

import pytest
from harness import Net, Packet, is_of_job, toy

from p2pclust.errors import WireError
from p2pclust.peer.core.codec import decode, encode
from p2pclust.peer.core.events import Cancel, Computed
from p2pclust.peer.core.job_messages import (
    Adopted,
    Close,
    CloseReply,
    Open,
    PreVote,
    PreVoteReply,
    RequestVote,
    StaleTerm,
    VoteReply,
)  # fmt: skip
from p2pclust.peer.core.messages import Gossip, Message, Update
from p2pclust.peer.core.rounds.election import Election, Role
from p2pclust.peer.core.tasks import NoResult

ROUNDS = (Open, Adopted)


def met(n: int = 3) -> Net:
    net = Net(n)
    net.meet()
    return net


def elected(n: int = 3, job: bytes | None = None) -> tuple[Net, str, str, str]:
    """A fleet whose opens and answers are held back: with the job, its elected aggregator and one of its followers."""
    net = Net(n, manual=lambda message: isinstance(message, ROUNDS))
    net.meet()
    job_id = net.submit("p1", job or toy(50))
    net.until(lambda: net.aggregator(job_id) != "")
    aggregator = net.aggregator(job_id)
    return net, job_id, aggregator, next(name for name in net.names if name != aggregator)


def standing(*names: str) -> tuple[Net, str]:
    """A fleet of three in which these peers ask for pre-votes; every message of the job is held back."""
    net = Net(3, manual=is_of_job)
    net.meet()
    job = net.submit("p1")
    net.drop()
    net.until(lambda: all(election(net, name, job).role is Role.PRE_CANDIDATE for name in names))
    return net, job


def election(net: Net, name: str, job: str) -> Election:
    return net.job(name, job).election


def kind(net: Net, wanted: type[Message], target: str = "") -> list[Packet]:
    """Deliver what is of this kind now."""
    return net.deliver(lambda p: isinstance(p.message, wanted) and target in ("", p.target))


# -- elections --------------------------------------------------------------------------------------------------------


def test_a_late_word_of_an_old_term_does_not_depose_the_aggregator() -> None:
    """A message that was long on its way says that an old term is over: the aggregator of today works on."""
    net, job, aggregator, other = elected()
    term = net.job(aggregator, job).ledger.term
    for late in (term - 1, term):
        net.arrive(other, aggregator, StaleTerm(job, late))
    assert net.aggregator(job) == aggregator
    assert not net.verbs("deposed")


def test_a_rival_of_the_same_term_does_not_depose_the_aggregator() -> None:
    """Who lost an election asks for the vote once more: the winner continues."""
    net, job, aggregator, other = elected()
    net.arrive(other, aggregator, RequestVote(job, net.job(aggregator, job).ledger.term, 0, 0))
    assert net.aggregator(job) == aggregator


def test_two_candidates_do_not_end_each_others_candidacy() -> None:
    """Two peers stand at once; the third one's vote elects one of them."""
    net, job = standing("p1", "p2")
    kind(net, PreVote, "p3")
    kind(net, PreVoteReply)
    assert {election(net, name, job).role for name in ("p1", "p2")} == {Role.CANDIDATE}
    net.deliver(lambda p: isinstance(p.message, RequestVote) and p.target != "p3")  # they refuse one another
    kind(net, RequestVote, "p3")
    kind(net, VoteReply)
    assert net.aggregator(job) in ("p1", "p2")


def test_repeated_votes_give_no_second_life_in_one_term() -> None:
    """An aggregator resigned because nobody answered, then the network repeats its votes: it does not aggregate again."""
    net, job = standing("p1")
    net.drop(lambda p: p.source != "p1")
    for wanted in (PreVote, PreVoteReply, RequestVote):
        kind(net, wanted)
    votes = kind(net, VoteReply)
    assert net.aggregator(job) == "p1"
    term = net.job("p1", job).ledger.term
    net.manual = lambda message: False
    net.lost = lambda packet: is_of_job(packet.message)
    net.flight.clear()
    for role in (Role.FOLLOWER, Role.PRE_CANDIDATE):
        net.until(lambda role=role: election(net, "p1", job).role is role)  # type: ignore[misc]
        for vote in votes:
            net.arrive(vote.source, vote.target, vote.message)
        assert election(net, "p1", job).role is role
    assert net.job("p1", job).ledger.term == term


# -- rounds -----------------------------------------------------------------------------------------------------------


def test_a_round_is_combined_once_when_the_next_proposer_is_the_aggregator() -> None:
    """The aggregator takes over from a dead proposer and knows its own answer already: one combination, not two."""
    net = Net(5, fitness={"p4": 1.0, "p3": 0.9, "p1": 0.0, "p2": 0.0, "p5": 0.0})
    net.meet()
    # p4 aggregates without p1, so p2 is asked to propose. It computes its answer, which is lost.
    net.lost = lambda p: isinstance(p.message, Adopted) and p.source == "p2"
    net.crash("p1")
    net.until(lambda: not net.core("p4").membership.present("p1"))
    job = net.submit("p5", toy(3, one=True), roster=net.names, aggregator="p4")
    net.advance(0.2)

    # p1 is back and p4 is gone: p2 is elected, and asks p1, which never hears of it.
    def lost(p: Packet) -> bool:
        unheard = isinstance(p.message, Open) and p.target == "p1"
        others = isinstance(p.message, PreVote) and p.source != "p2"
        return unheard or others or (isinstance(p.message, Adopted) and p.target == "p4")

    net.lost = lost
    net.start("p1")
    net.advance(0.2)
    net.crash("p4")
    net.until(lambda: net.aggregator(job) == "p2")
    net.advance(0.2)
    net.start("p4")
    net.advance(0.3)
    net.hold_work = lambda name, effect: effect.task.kind == "combine"
    net.crash("p1")
    net.until(lambda: bool(net.tasks))
    net.advance(2)
    assert [(name, effect.task.kind) for name, _, effect in net.tasks] == [("p2", "combine")]


def test_who_answers_heartbeats_only_is_left_out_in_the_end() -> None:
    """One peer's answers never arrive although it is alive: after `patience_s` the job continues without it."""
    net = met()
    net.lost = lambda p: isinstance(p.message, Adopted) and p.source == "p3"
    job = net.submit("p1", toy(2), patience_s=2.0, aggregator="p1")
    net.until(lambda: len(net.finished(job)) == 3)
    assert {fields["peer"] for _, fields in net.verbs("left-out")} == {"p3"}
    assert net.states(job)["p1"] == "s2[0,1]"


def test_a_proposer_off_the_roster_is_not_asked() -> None:
    """Opens that name proposers there are none of do not pile up at a follower."""
    net, _, aggregator, follower = elected()
    opened = next(p.message for p in net.flight if p.target == follower)
    assert isinstance(opened, Open)
    net.deliver(lambda p: p.target == follower)
    before = len(net.peers[follower].effects)
    for index in range(100):
        net.arrive(aggregator, follower, replace(opened, proposer=index + 3))
    tasks = [e for e in net.peers[follower].effects[before:] if type(e).__name__ == "Compute"]
    assert tasks == []


def test_an_end_without_a_state_does_not_end_a_running_job() -> None:
    """Somebody says that the job is finished with the state of the running round: nobody believes it."""
    net, job, aggregator, follower = elected()
    net.deliver(lambda p: p.target == follower)
    held = net.job(follower, job).ledger.register
    assert held.ref is not None
    for state in ((), (held.ref.payload or b"",)):
        message = Close(job, held.term, held.round, held.ref.digest, held.ref.size_bytes, state)
        effects = net.arrive(aggregator, follower, message)
        assert CloseReply(job, False) not in [getattr(e, "message", None) for e in effects]
    assert net.finished(job) == []


def test_a_job_that_cannot_begin_is_told_and_left_to_others() -> None:
    """A peer that cannot read the job says so and stands no more, instead of ending."""
    net = met()
    job = net.submit("p1", b"\xc1")
    net.until(lambda: len(net.verbs("unable")) == 3)
    assert {fields["reason"] for _, fields in net.verbs("unable")} == {"failed: unreadable job"}
    net.advance(20)
    assert len(net.verbs("unable")) == 3
    assert net.finished(job) == []


def test_another_aggregates_when_one_cannot_combine() -> None:
    """One peer's version of the software cannot combine this job: it resigns, and another finishes it."""
    net = met()
    net.hold_work = lambda name, effect: name == "p1" and effect.task.kind == "combine"
    job = net.submit("p2", toy(2), aggregator="p1")
    net.until(lambda: bool(net.tasks))
    (_, _, effect), net.tasks = net.tasks[0], []
    net.step("p1", Computed(effect.token, NoResult("failed: unknown protocol")))
    assert [(name, fields["task"]) for name, fields in net.verbs("unable")] == [("p1", "combine")]
    net.until(lambda: len(net.finished(job)) == 3)
    assert set(net.states(job).values()) == {"s2[0,1,2]"}
    assert "p1" not in [name for name, fields in net.verbs("elected") if fields["term"] > 1]


def test_a_job_that_none_can_combine_ends_when_it_is_cancelled() -> None:
    """Each aggregator resigned for its life, and none was left that could end the job."""
    net = met()
    net.hold_work = lambda name, effect: effect.task.kind == "combine"
    job = net.submit("p2", toy(2))
    for _ in range(3):
        net.until(lambda: bool(net.tasks))
        (name, _, effect), net.tasks = net.tasks[0], []
        net.step(name, Computed(effect.token, NoResult("failed: division by zero")))
    assert len(net.verbs("unable")) == 3
    net.step("p2", Cancel(job, "admin"))
    net.until(lambda: len(net.finished(job)) == 3)


# -- membership -------------------------------------------------------------------------------------------------------


def test_a_verdict_about_a_former_life_does_not_hit_the_new_one() -> None:
    """A peer is restarted while a ping to its former life is open: nobody suspects the new life for it."""
    net = met()
    net.submit("p1")
    net.crash("p1")
    net.until(lambda: net.core("p3").membership.status("p1") == "dead")
    net.start("p1")
    net.advance(1)
    assert not net.verbs("refuted")


def test_the_longest_addresses_still_fit_into_a_ping() -> None:
    """One peer spreads the longest addresses and store ids there may be: everybody's pings remain readable."""
    net = Net(40)
    net.start("p1", "p2")
    net.advance(0.1)
    updates = tuple(Update(n, "alive", 1, "\U0001f30d" * 80, "\U0001f30d" * 80, "") for n in net.names[2:])
    for first in range(0, len(updates), 8):
        net.arrive("p2", "p1", decode(encode(Gossip(updates[first : first + 8]))))
    net.advance(5)
    with pytest.raises(WireError, match="short text"):
        decode(encode(Gossip((replace(updates[0], address="h" * 81),))))
