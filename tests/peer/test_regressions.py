"""What once went wrong, one test per fault, told in a user's terms. Elections, rounds, membership, documents and facts."""

from __future__ import annotations

from dataclasses import replace

import msgpack
import numpy as np
import pytest
from harness import Net, Packet, is_of_job, toy

from p2pclust.errors import WireError
from p2pclust.peer import facts
from p2pclust.peer.blobs import digest_of
from p2pclust.peer.document import Document
from p2pclust.peer.effects import Task
from p2pclust.peer.election import Election, Role
from p2pclust.peer.events import Computed, Ref, Woken
from p2pclust.peer.messages import (
    Adopted,
    Close,
    CloseReply,
    FactDelta,
    FactDigest,
    Gossip,
    MemberSync,
    Message,
    Open,
    PreVote,
    PreVoteReply,
    Relay,
    RequestVote,
    StaleTerm,
    Synced,
    Update,
    VoteReply,
    decode,
    encode,
)  # fmt: skip
from p2pclust.peer.tasks import perform
from p2pclust.protocols.compose import cluster_job
from p2pclust.protocols.local import Local

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
    """Who lost an election asks for the vote once more: the winner goes on."""
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
    assert [(name, effect.token[2]) for name, _, effect in net.tasks] == [("p2", "combine")]


def test_who_answers_heartbeats_only_is_left_out_in_the_end() -> None:
    """One peer's answers never arrive although it is alive: after `patience_s` the job goes on without it."""
    net = met()
    net.lost = lambda p: isinstance(p.message, Adopted) and p.source == "p3"
    job = net.submit("p1", toy(2), patience_s=2.0, aggregator="p1")
    net.until(lambda: len(net.finished(job)) == 3)
    assert {fields["peer"] for _, fields in net.verbs("left-out")} == {"p3"}
    assert net.states(job)["p1"] == "s2[0,1]"


def test_a_proposer_off_the_roster_is_not_asked() -> None:
    """Opens that name proposers there are none of do not pile up at a follower."""
    net, job, aggregator, follower = elected()
    opened = next(p.message for p in net.flight if p.target == follower)
    assert isinstance(opened, Open)
    net.deliver(lambda p: p.target == follower)
    before = len(net.job(follower, job).blobs_in_use()), len(net.peers[follower].effects)
    for index in range(100):
        net.arrive(aggregator, follower, replace(opened, proposer=index + 3))
    tasks = [e for e in net.peers[follower].effects[before[1] :] if type(e).__name__ == "Compute"]
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
    net.step("p1", Computed(effect.token, None, "failed: unknown protocol"))
    assert [(name, fields["task"]) for name, fields in net.verbs("unable")] == [("p1", "combine")]
    net.until(lambda: len(net.finished(job)) == 3)
    assert set(net.states(job).values()) == {"s2[0,1,2]"}
    assert "p1" not in [name for name, fields in net.verbs("elected") if fields["term"] > 1]


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


def test_the_table_of_a_large_fleet_fits_into_a_message() -> None:
    """In a fleet of five hundred, two peers can still compare whom they see."""
    net = Net(500)
    net.start("p1")
    store, host = "0123456789abcdef" * 2, "192.168.100."
    for index, name in enumerate(net.names[1:]):
        net.arrive(name, "p1", Gossip((Update(name, "alive", 1, f"{host}{index % 256}:47000", store, ""),)))
    net.advance(5)
    assert max(len(p.message.updates) for p in net.sent if isinstance(p.message, MemberSync)) == 500


# -- handing in -------------------------------------------------------------------------------------------------------


def test_a_roster_may_hold_names_that_are_enrolled_nowhere_here() -> None:
    """A job names a peer that this one's configuration does not know: it takes part as well as it can."""
    net = met()
    document = Document(
        toy(), ("p1", "p2", "zz"), ("store-p1", "store-p2", "store-zz"), "wait", 5.0, 0.0, "", "p2", "1"
    )
    for name in ("p1", "p3"):
        net.arrive("p2", name, FactDelta("p2", 0, ("job/" + document.id,), (2**40,), (document.encode(),)))
    net.advance(30)
    assert list(net.core("p1").jobs.jobs) == [document.id]
    assert net.core("p3").jobs.jobs == {}


@pytest.mark.parametrize("size", [40 * 1024 - 1, 40 * 1024, 40 * 1024 + 1])
def test_a_document_as_large_as_a_document_may_be(size: int) -> None:
    """A job just below, at and above the limit is taken or reported, and stops nobody."""
    net = met()
    fields = [b"", ["p1", "p2"], ["a", "b"], "wait", 5.0, 0.0, "", "p2", "1"]
    fields[0] = bytes(size - len(msgpack.packb(fields)) - 1)
    data: bytes = msgpack.packb(fields)
    net.arrive("p2", "p1", FactDelta("p2", 0, ("job/x",), (2**40,), (data,)))
    assert bool(net.verbs("bad-document")) == (len(data) > 40 * 1024)


def test_a_job_for_others_is_accepted_where_it_was_handed_in() -> None:
    """Handed in at a peer that takes no part itself: the word that a majority has it comes all the same."""
    net = met(4)
    job = net.submit("p4", roster=("p1", "p2", "p3"))
    net.until(lambda: len(net.finished(job)) == 3)
    assert [name for name, _ in net.verbs("accepted")] == ["p4"]


def test_a_job_for_others_survives_a_crash_of_who_handed_it_in() -> None:
    """It crashes before anybody heard of the job, and tells them when it is back."""
    net = met(4)
    net.lost = lambda p: isinstance(p.message, FactDelta) and p.source == "p4"
    job = net.submit("p4", roster=("p1", "p2", "p3"))
    net.crash("p4")
    net.lost = lambda p: False
    net.start("p4")
    net.until(lambda: net.finished(job) == ["p1", "p2", "p3"])


def test_a_lost_confirmation_is_asked_for_again() -> None:
    """Every word that the job is on disk was lost once: it is accepted nevertheless."""
    net = met()
    net.lost = lambda p: isinstance(p.message, Synced)
    job = net.submit("p1", toy(1))
    net.lost = lambda p: False
    net.until(lambda: bool(net.verbs("accepted")))
    net.until(lambda: len(net.finished(job)) == 3)


def test_a_roster_of_peers_never_seen_is_refused() -> None:
    """Handed in before the others were ever heard of: refused with their names, for it could never finish."""
    net = Net(3)
    net.start("p1")
    with pytest.raises(AssertionError, match="never seen by this peer: p2, p3"):
        net.submit("p1", roster=net.names)
    net.start("p2", "p3")
    net.until(lambda: len(net.core("p1").membership.alive()) == 3)
    job = net.submit("p1", roster=net.names)
    net.until(lambda: len(net.finished(job)) == 3)


# -- the worker -------------------------------------------------------------------------------------------------------


def done(**task: object) -> str:
    """Why the real worker has no result."""
    job = msgpack.packb(cluster_job("llf-cm", n_clusters=2).to_dict())
    outcome = perform(
        replace(Task("contribute", job, 3, me=0), **task),  # type: ignore[arg-type]
        Local(np.zeros((5, 2))),
        lambda digest: iter(()),
    )
    assert outcome.payload is None
    return outcome.abstains


@pytest.mark.parametrize("task", ["contribute", "describe", "combine"])
@pytest.mark.parametrize(
    "state",
    [
        pytest.param(Ref(digest_of(b"abc"), 3, b"abc"), id="hostile"),
        pytest.param(Ref(digest_of(b""), 0, b""), id="empty"),
        pytest.param(Ref(bytes(32), 300, None), id="dropped-meanwhile"),
    ],
)
def test_a_state_that_the_worker_cannot_read_stops_nobody(task: str, state: Ref) -> None:
    """A peer is sent nonsense as a state: it abstains, and lives on."""
    assert done(kind=task, state=state).startswith("failed: ")


@pytest.mark.parametrize("job", [b"", b"\xc0", b"\xc1", b"\x80", b"\x91" * 5000, msgpack.packb({"stages": []})])
def test_a_job_that_the_worker_cannot_read_stops_nobody(job: bytes) -> None:
    """A job of another version, or none at all: there is a reason instead of a result."""
    assert done(kind="begin", job=job).startswith("failed: ")


def test_a_reason_is_short_enough_for_every_message_that_repeats_it() -> None:
    """An abstention for a reason of many words can still be sent."""
    job = msgpack.packb({"\U0001f30d" * 900: 1})
    reason = done(kind="begin", job=job)
    assert 0 < len(reason) <= 200
    decode(encode(Adopted("job", 1, 0, bytes(32), "s", "\U0001f30d" * 200, b"", 0, ())))


# -- facts ------------------------------------------------------------------------------------------------------------


def said(net: Net, name: str, key: str, value: bytes) -> None:
    net.core(name).facts.publish(key, value)
    net.step(name, Woken())


def test_a_peer_that_lost_its_store_does_not_reuse_its_numbers() -> None:
    """What it says in its new life reaches those who still hold what it said in the old one."""
    net = Net(3, manual=lambda message: isinstance(message, (FactDigest, FactDelta)))
    net.start()
    while net.deliver():
        pass
    said(net, "p1", "a", b"old")
    while net.deliver():
        pass
    net.crash("p1", wiped=True)
    net.start("p1")
    said(net, "p1", "b", b"new")
    while net.deliver():
        pass
    net.manual = lambda message: False
    net.advance(10)
    for name in net.names:
        held = {key: fact.value for key in "ab" if (fact := net.core(name).facts.get("p1", key))}
        assert held == {"a": b"old", "b": b"new"}


def test_a_peer_that_lost_its_store_is_given_back_all_that_it_said() -> None:
    """However many facts that were: in more than one message, and the two agree on every version."""
    net = met(2)
    keys = [f"k{i:02}" for i in range(20)]
    for key in keys:
        said(net, "p1", key, key.encode())
    net.crash("p1", wiped=True)
    net.advance(0.1)
    net.start("p1")
    net.advance(10)
    held = [{key: net.core(name).facts.get("p1", key) for key in keys} for name in net.names]
    assert all(fact is not None for fact in held[0].values())
    assert held[0] == held[1]


def test_a_full_message_of_facts_can_be_relayed() -> None:
    """Two peers whose direct link is broken exchange any number of facts through a third."""
    net = met(2)
    for i in range(20):
        net.core("p1").facts.publish(f"k{i:02}", b"x")
    net.step("p1", Woken())
    net.arrive("p2", "p1", FactDigest(False, (), ()))
    deltas = [p.message for p in net.sent if isinstance(p.message, FactDelta)]
    assert max(len(message.keys) for message in deltas) == 7
    for message in deltas:
        assert decode(encode(Relay("p1", "p2", b"", tuple(encode(message))))).kind == "relay"


@pytest.mark.xfail(strict=True, reason="an owner at its limit is asked for again and again")
def test_two_peers_that_hold_different_facts_of_a_full_owner_leave_it_at_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody filled two peers with different facts up to the limit: they do not ask each other for ever."""
    monkeypatch.setattr(facts, "_MAX_KEYS", 64)
    net = met()
    net.lost = lambda p: isinstance(p.message, (FactDigest, FactDelta))
    for target, first in (("p1", 1000), ("p2", 1)):
        for i in range(64):
            net.arrive("p3", target, FactDelta("p3", 0, (f"{target}-{i}",), (first + i,), (b"",)))
    net.crash("p3")
    before = len(net.sent)
    net.lost = lambda p: len(net.sent) - before > 5000
    net.advance(5)
    assert len(net.sent) - before < 2000
