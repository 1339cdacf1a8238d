"""How long a term may stand still, and which peers let others stand first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from harness import Net, opened_round, toy

from p2pclust.peer.core.context import Context
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.events import Cancel
from p2pclust.peer.core.job_messages import HeartbeatReply, Open
from p2pclust.peer.core.rounds.headway import Headway
from p2pclust.peer.core.rounds.job_context import JobContext
from p2pclust.peer.core.rounds.patience import Patience
from p2pclust.peer.core.rounds.round import Round
from p2pclust.peer.core.tasks import HashBlob, Ref
from p2pclust.peer.core.timing import PRESETS, Limits
from p2pclust.peer.core.treatment import Treatment

PATIENCE_S = 1.0
LIMIT_S = 12.0


def test_a_round_that_waited_for_a_hung_worker_does_not_lengthen_the_limit_of_the_term() -> None:
    """It once did: an aggregator whose large messages are lost then kept the job for twice as long as that round."""
    net = Net(4)
    net.meet()
    net.hold_work = lambda name, effect: name == "p4"
    net.lost = lambda packet: packet.source == "p1" and isinstance(packet.message, Open) and packet.message.round > 0
    net.submit("p1", toy(3), aggregator="p1", patience_s=PATIENCE_S, compute_limit_s=LIMIT_S)
    net.until(lambda: any(fields.get("busy") for _, fields in net.verbs("left-out")), limit_s=120.0)
    waited_s = net.now
    net.until(lambda: net.verbs("stands-still") != [], limit_s=240.0)
    ((_, still),) = net.verbs("stands-still")
    assert still["seconds"] < waited_s / 2


def test_a_follower_notes_which_peers_have_aggregated() -> None:
    net = Net(3)
    net.meet()
    net.hold_work = lambda name, effect: name == "p3"  # so the first round lasts
    job = net.submit("p1", toy(50), aggregator="p1", missing="all")
    net.advance(2.0)
    assert list(net.job("p2", job).headway.tried) == ["p1"]


def test_a_peer_whose_store_has_a_new_id_stands_in_no_election() -> None:
    net = Net(3)
    net.meet()
    net.hold_work = lambda name, effect: True
    job = net.submit("p1", toy(3), aggregator="p1")
    net.until(lambda: job in net.core("p2").jobs.jobs)
    assert net.job("p2", job).election._stands
    net.core("p2").jobs.store_lost()
    assert not net.job("p2", job).election._stands


def test_an_aggregator_that_no_majority_answers_follows_no_peer() -> None:
    net = Net(3)
    net.meet()
    net.hold_work = lambda name, effect: name != "p1"
    job = net.submit("p1", toy(3), aggregator="p1")
    net.advance(0.5)
    assert net.job("p1", job).election.aggregator == "p1"
    net.lost = lambda packet: True
    net.until(lambda: net.job("p1", job).election.role.name != "AGGREGATOR", limit_s=30.0)
    assert net.job("p1", job).election.aggregator == ""


def test_a_term_tells_its_secured_rounds_which_peer_was_revoked(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net(3)
    net.meet()
    net.hold_work = lambda name, effect: name != "p1"
    job = net.submit("p1", toy(3), aggregator="p1")
    net.advance(0.5)
    term, revoked = net.job("p1", job).term, list[str]()
    assert term is not None
    monkeypatch.setattr(term._secure, "revoked", revoked.append)
    term.revoked("p3")
    assert revoked == ["p3"]


def a_round(context: Context, n_peers: int = 3) -> tuple[Patience, Round]:
    """A round of all peers that p1 opened at the instant 0; it has contributed."""
    names = tuple(f"p{number + 1}" for number in range(n_peers))
    stores = tuple("abcdefgh"[:n_peers])
    document = Document(
        b"", names, stores, Treatment(patience_s=PATIENCE_S, compute_limit_s=LIMIT_S, collect="star"), "p1", ""
    )
    membership = SimpleNamespace(gone=lambda name: False, alive=lambda: list(names))
    parts = SimpleNamespace(context=context, document=document, membership=membership, blobs=None, ledger=None)
    job = cast(JobContext, parts)
    patience = Patience(job, Headway(job))
    opened = opened_round(Ref(b"s", 1, b"s"), *names)
    opened.peers[0].answered = True
    return patience, opened


def ask_around(patience: Patience, opened: Round) -> list[str]:
    return [one.name for one in patience.ask_around(opened, 5, opened.message())]


def test_a_peer_that_computes_is_waited_for_as_long_as_the_limit_after_the_own_answer() -> None:
    _, context = a_headway()
    patience, opened = a_round(context)
    opened.busy_since = context.now = 5.0
    found: list[str] = []
    while not found:
        context.now += 0.5
        patience.works("p2")
        patience.works("p3")
        found = ask_around(patience, opened)
    assert (context.now, found) == (5.0 + LIMIT_S + 0.5, ["p2", "p3"])
    assert patience.left_out(opened, opened.peers[1])


def test_no_peer_is_given_up_as_busy_while_the_aggregator_computes_itself() -> None:
    """Where all devices take longer than the limit, none is left out of the round."""
    net = Net(3)
    net.meet()
    net.hold_work = lambda name, effect: effect.task.kind == "contribute"
    net.submit("p1", toy(1), aggregator="p1", patience_s=60.0, compute_limit_s=LIMIT_S)
    net.advance(3 * LIMIT_S)
    assert net.verbs("left-out") == []


@pytest.mark.slow
def test_a_worker_that_hashes_a_state_for_ever_is_not_reported_as_busy_for_ever() -> None:
    net = Net(3)
    net.meet()
    net.hold_work = lambda name, effect: name == "p3" and isinstance(effect.task, HashBlob)
    replies: list[bool] = []
    net.lost = lambda packet: (
        isinstance(packet.message, HeartbeatReply)
        and packet.source == "p3"
        and replies.append(packet.message.busy) is not None
    )
    net.submit("p1", toy(2, pad=40_000), aggregator="p1", missing="all", patience_s=PATIENCE_S, compute_limit_s=LIMIT_S)
    net.advance(40.0)
    assert True in replies
    first = replies.index(True)
    assert False in replies[first:]
    assert replies[first + replies[first:].index(False) :].count(True) == 0


@pytest.mark.slow
def test_a_peer_whose_worker_may_hang_lets_the_others_stand_first() -> None:
    """It once won the election by chance, and the job stood still for another term."""
    for hung, other in (("p2", "p3"), ("p3", "p2")):
        net = Net(3)
        net.meet()
        net.hold_work = lambda name, effect, hung=hung: name == hung  # type: ignore[misc]
        job = net.submit("p1", toy(50), aggregator="p1", missing="all", patience_s=PATIENCE_S)
        net.advance(30.0)
        net.crash("p1")
        net.until(lambda net=net, job=job: net.aggregator(job) != "", limit_s=60.0)  # type: ignore[misc]
        assert net.aggregator(job) == other


def a_headway() -> tuple[Headway, Context]:
    context = Context("p1", PRESETS["fast"], Limits(), np.random.default_rng(0), "store-p1")
    document = SimpleNamespace(
        treatment=Treatment(patience_s=PATIENCE_S, compute_limit_s=LIMIT_S), index=lambda name: 0
    )
    job = SimpleNamespace(context=context, document=document, membership=None, blobs=None, ledger=None)
    return Headway(cast(JobContext, job)), context


def test_an_aggregator_that_got_no_further_lets_the_others_stand_first() -> None:
    """Two peers whose large messages were lost once followed each other: each had made the newest state in its own term."""
    headway, _ = a_headway()
    headway.begins(1, "p1")
    headway.reached(3)
    assert list(headway.tried) == []
    headway.begins(2, "p2")
    assert list(headway.tried) == ["p1", "p2"]
    headway.reached(4)
    assert list(headway.tried) == []


def test_it_lets_them_stand_first_for_twice_as_long_with_each_term_of_its_own() -> None:
    """A peer whose large messages were lost was elected seven times: its answers came sooner than those of the others."""
    headway, _ = a_headway()
    times = []
    for term, aggregator in [(1, "p1"), (2, "p2"), (3, "p1"), (4, "p1")]:
        headway.begins(term, aggregator)
        times.append(headway.courtesy_times())
    headway.reached(0)
    assert [*times, headway.courtesy_times()] == [1.0, 1.0, 2.0, 4.0, 1.0]


def test_terms_that_a_voter_made_this_peer_leave_are_not_counted() -> None:
    """The votes of a liar doubled how long an honest aggregator lets the others stand first."""
    headway, _ = a_headway()
    shortest_s = headway.standing_limit_s()
    for term in range(1, 9):
        headway.begins(term, "p1")
        headway.renews()
    headway.begins(9, "p1")
    assert (headway.courtesy_times(), headway.standing_limit_s()) == (1.0, shortest_s)


def test_an_aggregator_that_cancels_a_job_waits_for_no_answers() -> None:
    """It took no more answers, held the peers for silent, and handed over; so did the next ones."""
    net = Net(3)
    net.meet()
    net.hold_work = lambda name, effect: effect.task.kind in ("contribute", "cancel")
    job = net.submit("p1", toy(3), aggregator="p1", missing="all", patience_s=PATIENCE_S, compute_limit_s=LIMIT_S)
    net.until(lambda: len(net.tasks) == 3)
    net.step("p1", Cancel(job, "admin"))
    net.do_work(lambda name, effect: effect.task.kind == "contribute")
    net.advance(2 * PATIENCE_S)  # half as long again is enough, and worker and aggregator have somewhat longer
    assert net.verbs("out-of-reach") == []
    net.do_work()
    net.until(lambda: len(net.finished(job)) == 3, limit_s=5.0)


def test_the_first_two_terms_of_a_round_may_stand_still_for_equally_long_and_the_next_for_twice_as_long() -> None:
    """The first of them has made the state."""
    headway, _ = a_headway()
    shortest_s = headway.standing_limit_s()
    headway.begins(1, "p1")
    headway.reached(0)
    limits_s = [headway.standing_limit_s()]
    for term in (2, 3):
        headway.begins(term, f"p{term}")
        limits_s.append(headway.standing_limit_s())
    assert limits_s == [shortest_s, shortest_s, 2 * shortest_s]


def test_a_silent_peer_is_asked_through_others_and_left_out_half_of_the_patience_later() -> None:
    _, context = a_headway()
    patience, opened = a_round(context)
    opened.peers[1].answered = True
    given_up: list[str] = []
    while not given_up:
        context.now += 0.1
        given_up = ask_around(patience, opened)
    relayed_at = opened.peers[2].relayed_at
    assert (relayed_at, given_up) == (pytest.approx(PATIENCE_S, abs=0.11), ["p3"])
    assert context.now == pytest.approx(1.5 * PATIENCE_S, abs=0.21)
    assert not patience.left_out(opened, opened.peers[2])


def test_a_peer_that_computed_for_too_long_is_waited_for_again_once_its_worker_has_ended_an_answer() -> None:
    _, context = a_headway()
    patience, opened = a_round(context)
    headway = patience._headway
    headway.has_ended("p3", 3)
    context.now = LIMIT_S + 1.0
    patience.works("p3")
    assert patience.left_out(opened, opened.peers[2])
    headway.has_ended("p3", 3)  # it computes still
    assert patience.astray("p3")
    headway.has_ended("p3", 4)
    assert not patience.astray("p3")


def test_a_slow_peer_is_counted_again_once_its_worker_has_ended_an_answer() -> None:
    """It begins no answer to the states between, so its next one is to a round that waits for it."""
    net = Net(2)
    net.meet()
    net.hold_work = lambda name, effect: name == "p2"
    job = net.submit("p1", toy(400), aggregator="p1", patience_s=PATIENCE_S, compute_limit_s=LIMIT_S)
    net.until(lambda: net.verbs("left-out") != [], limit_s=30.0)
    net.until(lambda: net.job("p2", job).ledger.register.round > 3, limit_s=5.0)
    assert [name for name, _, _ in net.tasks] == ["p2"]
    net.do_work()
    net.until(lambda: not net.job("p1", job).headway.hung, limit_s=1.0)
    net.do_work()
    net.until(lambda: net.verbs("combined")[-1][1]["contributors"] == ["p1", "p2"], limit_s=1.0)
    assert len(net.verbs("left-out")) == 1


@pytest.mark.parametrize(
    ("term", "answer_s", "times"),
    [(1, 5.0, 1.0), (2, 0.05, 1.0), (2, 5.0, 2.0), (4, 5.0, 8.0), (4, 0.5, 5.0), (9, 5.0, 50.0), (2**40, 5.0, 50.0)],
)
def test_elections_wait_longer_with_each_term_as_far_as_answers_take_long(
    term: int, answer_s: float, times: float
) -> None:
    """They took their time-outs from one range, whatever the term, although answers took longer."""
    _, context = a_headway()
    document = SimpleNamespace(
        treatment=Treatment(patience_s=PATIENCE_S, compute_limit_s=LIMIT_S), index=lambda name: 0
    )
    membership = SimpleNamespace(answer_s=lambda: answer_s)
    ledger = SimpleNamespace(term=term)
    parts = SimpleNamespace(context=context, document=document, membership=membership, blobs=None, ledger=ledger)
    assert Headway(cast(JobContext, parts)).election_times() == pytest.approx(times)


def test_a_term_may_stand_still_for_twice_as_long_as_its_longest_round() -> None:
    headway, context = a_headway()
    shortest_s = headway.standing_limit_s()
    for now, term, round_, limit_s in [
        (0.0, 1, 0, shortest_s), (100.0, 1, 1, 200.0),
        (500.0, 1, 3, 200.0),  # a state between was missed
        (900.0, 2, 4, 200.0),  # the term is another
        (1050.0, 2, 5, 300.0),
    ]:  # fmt: skip
        context.now = now
        headway.adopts(term, round_)
        assert headway.standing_limit_s() == limit_s
