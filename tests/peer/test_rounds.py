"""Rounds, one test per promise. Reference: DESIGN 1B, which `docs/architecture.md` keeps up to date."""

from __future__ import annotations

from dataclasses import replace

import msgpack
import pytest
from harness import Net, Packet, is_of_job, toy

from p2pclust.peer.effects import Compute, Persist, Send
from p2pclust.peer.messages import (
    Adopted,
    Close,
    CloseReply,
    Heartbeat,
    HeartbeatReply,
    Open,
    PreVote,
    RequestVote,
    Synced,
)  # fmt: skip

ROUNDS = (Open, Adopted)


def held(n: int = 3, job: bytes | None = None, **fields: object) -> tuple[Net, str]:
    """A fleet whose opens and answers are held back; p1 aggregates term 1."""
    net = Net(n, manual=lambda message: isinstance(message, ROUNDS))
    net.meet()
    return net, net.submit("p1", job, aggregator="p1", **fields)


def answers(net: Net, name: str, job: str, state: bytes = b"s0") -> Adopted:
    """What a peer with an intact store answers to round 0 of term 1."""
    from p2pclust.peer.blobs import digest_of

    said = b"c%d of " % (int(name[1:]) - 1) + state
    return Adopted(job, 1, 0, digest_of(state), f"store-{name}", "", digest_of(said), len(said), (said,))


def round_of(net: Net, name: str, job: str) -> int:
    return net.job(name, job).ledger.register.round


# -- who is waited for ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["wait", "all", "drop"])
def test_without_faults_everybody_contributes(missing: str) -> None:
    """All policies give the same result when nobody is missing. Reference: DESIGN 1B, "Missing peers"."""
    net = Net(5)
    net.meet()
    job = net.submit("p3", toy(3), missing=missing, deadline_s=2.0)
    net.until(lambda: len(net.finished(job)) == 5)
    assert set(net.states(job).values()) == {"s3[0,1,2,3,4]"}


def test_a_majority_is_not_enough_while_others_are_alive() -> None:
    """`wait` waits for every roster peer that is alive or suspect. Reference: DESIGN 1B, "Missing peers"."""
    net, job = held(5)
    net.deliver(lambda packet: packet.target != "p5")
    net.deliver()
    net.drop()
    assert round_of(net, "p1", job) == 0
    net.advance(0.3)
    assert round_of(net, "p1", job) == 0
    net.deliver()  # the repeated open
    net.deliver()
    assert round_of(net, "p1", job) == 1


def test_who_was_not_heard_is_asked_again() -> None:
    """An unanswered open is repeated, an answered one is not. Reference: RELIABILITY 2.1, item 6."""
    net, job = held()
    net.deliver(lambda packet: packet.target == "p2")
    net.deliver(lambda packet: packet.source == "p2")
    net.drop()
    net.advance(net.timing.retry_s + 2 * net.timing.heartbeat_s)
    assert {packet.target for packet in net.flight if isinstance(packet.message, Open)} == {"p3"}
    assert round_of(net, "p1", job) == 0


def test_the_dead_are_left_out_under_wait() -> None:
    """Membership says whom not to wait for. Reference: DESIGN 1B, "Missing peers" and "Quorum"."""
    net, job = held(5)
    net.crash("p5")
    net.deliver()
    net.deliver()
    assert round_of(net, "p1", job) == 0, "not yet known to be dead"
    net.until(lambda: round_of(net, "p1", job) == 1)
    net.manual = lambda message: False
    net.deliver()
    net.until(lambda: len(net.finished(job)) == 4)
    assert net.verbs("combined")[0][1]["contributors"] == ["p1", "p2", "p3", "p4"]


def test_all_waits_for_the_dead() -> None:
    """`all`: nobody is left out; the result is that of a run without faults. Reference: DESIGN 1B, "Missing peers"."""
    net = Net(5)
    net.meet()
    net.crash("p5")
    net.until(lambda: net.core("p1").membership.status("p5") == "dead")
    job = net.submit("p1", toy(2), roster=net.names, missing="all")
    net.advance(60)
    assert set(net.states(job).values()) == {"s0"}
    net.start("p5")
    net.until(lambda: len(net.finished(job)) == 5)
    assert set(net.states(job).values()) == {"s2[0,1,2,3,4]"}


def test_a_silent_peer_is_asked_through_others_and_then_left_out_by_name() -> None:
    """After `patience_s` of silence the open is relayed, then the peer is left out. Reference: DESIGN 1B, "Missing peers"."""
    net = Net(5)
    net.meet()

    def lost(packet: Packet) -> bool:
        return is_of_job(packet.message) and "p5" in (packet.source, packet.target)

    net.lost = lost
    job = net.submit("p1", toy(1), patience_s=1.0, aggregator="p1")
    net.advance(0.9)
    assert not net.verbs("relayed", "left-out")
    net.until(lambda: bool(net.verbs("relayed")), limit_s=1.5)
    assert not net.verbs("left-out")
    net.until(lambda: bool(net.verbs("left-out")), limit_s=1.5)
    assert net.verbs("left-out")[0][1]["peer"] == "p5"
    net.advance(1)
    assert net.states(job)["p1"] == "s1[0,1,2,3]"


def test_a_relayed_open_is_answered_the_way_it_came() -> None:
    """A broken link between two peers does not cost a contribution. Reference: DESIGN 1B, "Missing peers"."""
    net = Net(4)
    net.meet()
    net.lost = lambda packet: {packet.source, packet.target} == {"p1", "p4"} and not packet.via
    job = net.submit("p1", toy(2), patience_s=0.5, aggregator="p1")
    net.until(lambda: len(net.finished(job)) >= 3, limit_s=20)
    assert net.states(job)["p1"] == "s2[0,1,2,3]"
    assert not net.verbs("left-out")


def test_who_comes_back_contributes_again() -> None:
    """From the next round on. Reference: DESIGN 1B, "Missing peers"."""
    net, job = held(5, toy(3))
    net.crash("p5")
    net.deliver()
    net.deliver()
    net.until(lambda: round_of(net, "p1", job) == 1)
    net.start("p5")
    net.manual = lambda message: False
    net.deliver()
    net.until(lambda: len(net.finished(job)) == 5)
    assert [f["contributors"] for _, f in net.verbs("combined")][1:] == [["p1", "p2", "p3", "p4", "p5"]] * 2


def test_drop_goes_on_after_its_deadline_but_not_before() -> None:
    """`drop`: a deadline. Reference: DESIGN 1B, "Missing peers"."""
    net, job = held(5, missing="drop", deadline_s=1.0)
    began = net.now
    net.deliver(lambda packet: packet.target != "p5")
    net.deliver()
    net.advance(0.9)
    assert round_of(net, "p1", job) == 0
    net.drop()
    net.until(lambda: round_of(net, "p1", job) == 1)
    assert net.now - began == pytest.approx(1.0, abs=2 * net.timing.heartbeat_s)
    assert net.verbs("combined")[0][1]["contributors"] == ["p1", "p2", "p3", "p4"]


def test_drop_never_goes_on_before_a_majority_adopted() -> None:
    """The deadline does not weaken the quorum. Reference: DESIGN 1B, "Missing peers"."""
    net, job = held(5, missing="drop", deadline_s=0.5)
    net.deliver(lambda packet: packet.target == "p2")
    net.deliver(lambda packet: packet.source == "p2")
    net.advance(10)
    net.drop()
    assert round_of(net, "p1", job) == 0
    assert not net.verbs("combined")


# -- proposers --------------------------------------------------------------------------------------------------------


def test_one_proposer_is_asked_and_the_others_adopt() -> None:
    """The first of the permutation that is not dead. Reference: DESIGN 1A."""
    net = Net(3)
    net.meet()
    job = net.submit("p2", toy(2, one=True))
    net.until(lambda: len(net.finished(job)) == 3)
    assert set(net.states(job).values()) == {"s2[0]"}


def test_a_proposer_that_is_dead_is_replaced_within_the_round() -> None:
    """It is replaced, recorded, and the round is not lost. Reference: DESIGN 1A."""
    net = Net(5, manual=lambda message: isinstance(message, ROUNDS))
    net.meet()
    job = net.submit("p3", toy(1, one=True), aggregator="p3")
    net.deliver(lambda packet: packet.target != "p1")
    net.deliver()
    assert round_of(net, "p3", job) == 0
    net.crash("p1")
    net.until(lambda: bool(net.verbs("proposer")))
    assert net.verbs("proposer")[0][1]["proposer"] == "p2"
    net.manual = lambda message: False
    net.deliver()
    net.until(lambda: len(net.finished(job)) == 4)
    assert set(net.states(job).values()) == {"s1[1]"}


def test_a_proposer_that_abstains_ends_the_round() -> None:
    """An abstention is an answer: the next round asks the next. Reference: `p2pclust/peer/rounds.py`."""
    net = Net(3)
    net.meet()
    job = net.submit("p2", toy(1, one=True, abstainers=[0]))
    net.until(lambda: len(net.finished(job)) == 3)
    assert set(net.states(job).values()) == {"s1[]"}
    tasks = [e.task for p in net.peers.values() for e in p.effects if isinstance(e, Compute) and e.task.kind == "combine"]
    assert dict(tasks[0].abstained) == {0: "gate"}


def test_abstentions_are_recorded_with_their_reason() -> None:
    """Reference: DESIGN 1A."""
    net = Net(3)
    net.meet()
    job = net.submit("p2", toy(1, abstainers=[1]))
    net.until(lambda: len(net.finished(job)) == 3)
    assert set(net.states(job).values()) == {"s1[0,2]"}
    tasks = [e.task for p in net.peers.values() for e in p.effects if isinstance(e, Compute) and e.task.kind == "combine"]
    assert dict(tasks[0].abstained) == {1: "gate"}


# -- what counts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"term": 0}, id="an-older-term"),
        pytest.param({"term": 2}, id="a-newer-term"),
        pytest.param({"round": 1}, id="another-round"),
        pytest.param({"digest": bytes(32)}, id="another-state"),
    ],
)
def test_an_answer_that_is_not_to_this_open_is_ignored(changed: dict[str, object]) -> None:
    """Answers are tagged with job, term, round and the state's digest. Reference: DESIGN 1B."""
    net, job = held()
    for name in ("p2", "p3"):
        net.arrive(name, "p1", replace(answers(net, name, job), **changed))  # type: ignore[arg-type]
    assert round_of(net, "p1", job) == 0
    for name in ("p2", "p3"):
        net.arrive(name, "p1", answers(net, name, job))
    assert round_of(net, "p1", job) == 1


def test_the_same_answer_twice_counts_once() -> None:
    """Nothing counts twice. Reference: DESIGN 1A."""
    net, job = held()
    for _ in range(3):
        net.arrive("p2", "p1", answers(net, "p2", job))
    assert round_of(net, "p1", job) == 0
    net.arrive("p3", "p1", answers(net, "p3", job))
    assert net.verbs("combined")[0][1]["contributors"] == ["p1", "p2", "p3"]


def test_an_answer_from_outside_the_roster_is_ignored() -> None:
    """No key outside the roster ever changes state. Reference: RELIABILITY 2.9, S8."""
    net = Net(5, manual=lambda message: isinstance(message, ROUNDS))
    net.meet()
    job = net.submit("p1", roster=("p1", "p2", "p3"), aggregator="p1")
    for name in ("p4", "p5"):
        net.arrive(name, "p1", replace(answers(net, "p2", job), store_id="store-p2"))
        net.arrive(name, "p1", Open(job, 9, 9, b"", 0, False, -1, (b"s9",)))
    assert round_of(net, "p1", job) == 0
    assert net.job("p1", job).ledger.term == 1


def test_a_wiped_store_contributes_but_is_not_counted() -> None:
    """It counts for no majority of that job. Reference: DESIGN 1B, "Quorum"."""
    net, job = held()
    net.crash("p3")
    net.until(lambda: net.core("p1").membership.status("p3") == "dead")
    net.arrive("p3", "p1", replace(answers(net, "p3", job), store_id="another"))
    assert round_of(net, "p1", job) == 0, "p1 alone is no majority of three"
    net.arrive("p2", "p1", answers(net, "p2", job))
    assert net.verbs("combined")[0][1]["contributors"] == ["p1", "p2", "p3"]


def test_a_heartbeat_reply_tells_of_an_adoption() -> None:
    """The register in the reply counts like an acknowledgement of the state. Reference: `p2pclust/peer/messages.py`."""
    net, job = held(5, missing="drop", deadline_s=0.2)
    for name in ("p2", "p3"):
        net.arrive(name, "p1", HeartbeatReply(job, 1, 1, 0, f"store-{name}", False))
    net.until(lambda: round_of(net, "p1", job) == 1, limit_s=2)
    assert net.verbs("combined")[0][1]["contributors"] == ["p1"]


def test_persist_comes_before_the_answer() -> None:
    """What the answer reveals is on disk. Reference: DESIGN 1C; RELIABILITY 2.9, S6."""
    net, job = held()
    for name in ("p2", "p3"):
        before = len(net.peers[name].effects)
        net.deliver(lambda packet, name=name: packet.target == name)  # type: ignore[misc]
        effects = net.peers[name].effects[before:]
        row = next(i for i, e in enumerate(effects) if isinstance(e, Persist) and e.table == "register")
        told = next(i for i, e in enumerate(effects) if isinstance(e, Send) and isinstance(e.message, Adopted))
        assert row < told
        assert effects[row].sync  # type: ignore[attr-defined]


def test_a_document_is_on_disk_before_it_is_confirmed() -> None:
    """`submit` returns when a majority has synced the document. Reference: DESIGN 1B, "Roster"."""
    net = Net(3)
    net.meet()
    job = net.submit("p1")
    effects = net.peers["p2"].effects
    row = next(i for i, e in enumerate(effects) if isinstance(e, Persist) and (e.table, e.key) == ("job", job))
    told = next(i for i, e in enumerate(effects) if isinstance(e, Send) and isinstance(e.message, Synced))
    assert row < told
    assert [f["job"] for name, f in net.verbs("accepted") if name == "p1"] == [job]


def test_two_states_of_one_round_are_not_both_adopted() -> None:
    """One term and round is one state. Reference: RELIABILITY 2.9, S4."""
    net, job = held()
    net.deliver(lambda packet: packet.target == "p2")
    from p2pclust.peer.blobs import digest_of

    net.arrive("p1", "p2", Open(job, 1, 0, digest_of(b"s0x"), 3, False, -1, (b"s0x",)))
    assert net.states(job)["p2"] == "s0"
    assert [name for name, _ in net.verbs("contradiction")] == ["p2"]


def test_a_state_that_is_not_what_its_digest_says_is_not_adopted() -> None:
    """Reference: DESIGN 1B."""
    net, job = held()
    net.drop()
    net.arrive("p1", "p2", Open(job, 1, 0, bytes(32), 2, False, -1, (b"s0",)))
    assert net.job("p2", job).ledger.register.ref is None
    assert [name for name, _ in net.verbs("corrupt")] == ["p2"]


def test_an_older_open_of_the_same_term_changes_nothing() -> None:
    """It was overtaken on the way. Reference: DESIGN 1B, "Fence"."""
    net, job = held()
    first = next(packet for packet in net.flight if packet.target == "p2")
    for _ in range(3):
        net.deliver()
    assert round_of(net, "p2", job) == 1
    assert not [e for e in net.arrive("p1", "p2", first.message) if isinstance(e, (Send, Persist))]
    assert round_of(net, "p2", job) == 1


def test_the_same_state_opened_again_is_answered_without_computing_again() -> None:
    """A contribution is a pure function of state and data. Reference: DESIGN 1A."""
    net, job = held()
    opened = next(packet for packet in net.flight if packet.target == "p2")
    net.deliver(lambda packet: packet.target == "p2")
    effects = net.arrive("p1", "p2", opened.message)
    assert [e for e in effects if isinstance(e, Compute)] == []
    assert [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, Adopted)]


def test_while_it_computes_a_peer_is_not_asked_again() -> None:
    """A long computation is no silence. Reference: `p2pclust/peer/messages.py`, HeartbeatReply."""
    net, job = held(patience_s=1.0)
    net.hold_work = lambda name, effect: name == "p2"
    net.deliver()
    net.deliver()
    net.advance(30)
    assert not [packet for packet in net.flight if isinstance(packet.message, Open) and packet.target == "p2"]
    assert not net.verbs("relayed", "left-out")
    assert round_of(net, "p1", job) == 0
    net.do_work()
    net.deliver()
    assert round_of(net, "p1", job) == 1


# -- the end ----------------------------------------------------------------------------------------------------------


def test_the_final_state_needs_a_majority() -> None:
    """A peer is finished only when told that a majority adopted the final state. Reference: DESIGN 1B, "The end"."""
    net, job = held(5, toy(1))
    net.deliver()
    net.deliver()  # the final state, s1, is opened now
    assert net.states(job)["p1"] == "s1[0,1,2,3,4]"
    net.deliver(lambda packet: packet.target == "p2")
    net.deliver(lambda packet: packet.source == "p2")
    assert net.finished(job) == []
    net.deliver(lambda packet: packet.target == "p3")
    assert net.finished(job) == [], "p3 adopted it, but nobody knows yet"
    net.deliver(lambda packet: packet.source == "p3")
    assert "p1" in net.finished(job)


def test_nothing_is_contributed_to_the_final_state() -> None:
    """It is adopted only. Reference: DESIGN 1B, "The end"."""
    net, job = held(3, toy(1))
    for _ in range(3):
        net.deliver()
    finals = [p.message for p in net.flight if isinstance(p.message, Adopted) and p.message.round == 1]
    assert finals
    assert all((m.payload, m.abstains) == ((), "") for m in finals)


def test_the_end_is_on_disk_before_it_is_told() -> None:
    """Reference: RELIABILITY 2.9, S6."""
    net, job = held(3, toy(1))
    net.manual = lambda message: False
    net.deliver()
    net.until(lambda: len(net.finished(job)) == 3)
    effects = net.peers["p1"].effects
    told = next(i for i, e in enumerate(effects) if isinstance(e, Send) and isinstance(e.message, Close))
    ended = [
        i for i, e in enumerate(effects)
        if isinstance(e, Persist) and e.table == "register" and e.value and msgpack.unpackb(e.value)[6]
    ]  # fmt: skip
    assert ended[0] < told


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize(
    "question",
    [
        PreVote("", 9, 0, 0),
        RequestVote("", 9, 0, 0),
        Open("", 9, 9, b"", 0, False, -1, (b"s9",)),
        Heartbeat("", 9, 9),
    ],
    ids=lambda message: message.kind,
)
def test_a_finished_peer_answers_with_the_final_state(question: Open, crashed: bool) -> None:
    """Every open or vote request of that job, also after a restart. Reference: DESIGN 1B, "The end"."""
    net = Net(3)
    net.meet()
    job = net.submit("p1", toy(1))
    net.until(lambda: len(net.finished(job)) == 3)
    if crashed:
        net.crash("p1")
        net.start("p1")
    effects = net.arrive("p2", "p1", replace(question, job=job))
    closes = [e.message for e in effects if isinstance(e, Send)]
    assert [(type(m), m.state) for m in closes] == [(Close, (b"s1[0,1,2]",))]  # type: ignore[attr-defined]
    assert not [e for e in effects if isinstance(e, Persist)]


def test_a_peer_that_missed_the_end_learns_it_by_asking() -> None:
    """Reference: DESIGN 1B, "The end"."""
    net = Net(3)
    net.meet()
    net.hold_work = lambda name, effect: name == "p3"
    job = net.submit("p1", toy(2), aggregator="p1", missing="drop", deadline_s=0.2)
    net.lost = lambda packet: "p3" in (packet.source, packet.target)
    net.until(lambda: net.finished(job) == ["p1", "p2"])
    net.advance(30)
    net.lost = lambda packet: False
    net.until(lambda: net.finished(job) == ["p1", "p2", "p3"], limit_s=20)
    assert len(set(net.states(job).values())) == 1


def test_who_is_told_the_end_without_the_state_asks_for_it() -> None:
    """Reference: `p2pclust/peer/messages.py`, Close and CloseReply."""
    net, job = held(3, toy(1))
    net.deliver()
    net.deliver()
    final = net.job("p1", job).ledger.register
    assert final.ref is not None
    close = Close(job, final.term, final.round, final.ref.digest, final.ref.size_bytes, ())
    effects = net.arrive("p1", "p3", close)
    assert [e.message for e in effects if isinstance(e, Send)] == [CloseReply(job, True)]
    assert net.finished(job) == []


def test_a_job_of_one_peer_runs() -> None:
    """One is a majority of one."""
    net = Net(1)
    net.meet()
    job = net.submit("p1", toy(3))
    net.until(lambda: net.finished(job) == ["p1"])
    assert net.states(job) == {"p1": "s3[0]"}


def test_an_aggregator_that_dies_mid_round_costs_an_election_and_at_most_one_repeated_round() -> None:
    """Reference: DESIGN 1B, "Hence"."""
    for phase in range(1, 6):
        net, job = held(5, toy(2))
        for _ in range(phase):
            net.deliver()
        net.crash("p1")
        net.drop()
        net.manual = lambda message: False
        net.until(lambda net=net, job=job: len(net.finished(job)) == 4)  # type: ignore[misc]
        assert len(set(net.states(job).values())) == 1
        assert len({f["term"] for _, f in net.verbs("elected")}) == 2
        assert len(net.verbs("combined")) <= 3


def test_everybody_crashes_and_the_job_goes_on() -> None:
    """A restarted peer goes on with its jobs. Reference: DESIGN 4, "Store"."""
    net, job = held(3, toy(3))
    for _ in range(3):
        net.deliver()
    for name in net.names:
        net.crash(name)
    net.drop()
    net.manual = lambda message: False
    net.start()
    net.until(lambda: len(net.finished(job)) == 3)
    assert set(net.states(job).values()) == {"s3[0,1,2]"}


def test_a_submission_without_a_majority_of_the_fleet_is_refused() -> None:
    """Refused below a majority of the enrolled unless they are named. Reference: DESIGN 1B, "Roster"."""
    net = Net(5)
    net.start("p1", "p2")
    net.advance(1)
    with pytest.raises(AssertionError, match="only 2 of 5 enrolled peers are here; name the roster"):
        net.submit("p1")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"roster": ("p1", "zz")}, "not enrolled: zz"),
        ({"missing": "ignore"}, "missing = 'ignore'"),
        ({"missing": "drop"}, "deadline_s must be positive"),
        ({"aggregator": "zz"}, "aggregator = 'zz' is not on the roster"),
        ({"job": bytes(41_000)}, "at most 40960 are possible"),
    ],
)
def test_a_submission_that_cannot_be_is_refused_with_its_reason(fields: dict[str, object], reason: str) -> None:
    net = Net(3)
    net.meet()
    with pytest.raises(AssertionError, match=reason):
        net.submit("p1", **fields)  # type: ignore[arg-type]
    assert all(net.core(name).jobs.jobs == {} for name in net.names)
