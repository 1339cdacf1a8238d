"""How a job ends, begins and survives, one test per promise. Reference: `docs/peer/rounds.md`, "The end"."""

from __future__ import annotations

from dataclasses import replace

import msgpack
import pytest
from harness import Net, toy

from p2pclust.peer.core.effects import Persist, Send
from p2pclust.peer.core.job_messages import Adopted, Close, CloseReply, Heartbeat, Open, PreVote, RequestVote

ROUNDS = (Open, Adopted)


def held(n: int = 3, job: bytes | None = None, **fields: object) -> tuple[Net, str]:
    """A fleet whose opens and answers are held back; p1 aggregates term 1."""
    net = Net(n, manual=lambda message: isinstance(message, ROUNDS))
    net.meet()
    return net, net.submit("p1", job, aggregator="p1", **fields)


def test_the_final_state_needs_a_majority() -> None:
    """A peer is finished only when told that a majority adopted the final state.

    Reference: docs/peer/rounds.md, "The end".
    """
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
    """It is adopted only. Reference: docs/peer/rounds.md, "The end"."""
    net, _ = held(3, toy(1))
    for _ in range(3):
        net.deliver()
    finals = [p.message for p in net.flight if isinstance(p.message, Adopted) and p.message.round == 1]
    assert finals
    assert all((m.payload, m.abstains) == ((), "") for m in finals)


def test_the_end_is_on_disk_before_it_is_told() -> None:
    """Reference: `p2pclust/lab/simulation/checks/invariants.py`, S6."""
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
    """Every open or vote request of that job, also after a restart. Reference: docs/peer/rounds.md, "The end"."""
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
    """Reference: docs/peer/rounds.md, "The end"."""
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


def test_the_end_is_repeated_five_times_to_a_peer_that_does_not_confirm_it_and_to_no_other() -> None:
    net = Net(3)
    net.meet()
    net.lost = lambda packet: isinstance(packet.message, CloseReply) and packet.source == "p3"
    job = net.submit("p1", toy(1), aggregator="p1")
    net.until(lambda: net.finished(job) == ["p1", "p2", "p3"])
    net.advance(30.0)
    ends = [packet.target for packet in net.sent if packet.source == "p1" and isinstance(packet.message, Close)]
    assert (ends.count("p2"), ends.count("p3")) == (1, 1 + 5)


def test_who_is_told_the_end_without_the_state_asks_for_it() -> None:
    """Reference: `p2pclust/peer/core/job_messages.py`, Close and CloseReply."""
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
    """Reference: docs/peer/rounds.md, "The death of an aggregator"."""
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
    """A restarted peer continues with its jobs. Reference: docs/peer/shell.md, "Store"."""
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
    """Refused below a majority of the enrolled unless they are named. Reference: docs/peer/jobs.md, "Submission"."""
    net = Net(5)
    net.start("p1", "p2")
    net.advance(1)
    with pytest.raises(
        AssertionError, match=r"only 2 of 5 enrolled peers are here: start others, or .* \(--roster NAME"
    ):
        net.submit("p1")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"roster": ("p1", "zz")}, "never seen by this peer: zz"),
        ({"missing": "ignore"}, "missing = 'ignore'"),
        ({"missing": "drop"}, "needs deadline_s: "),
        ({"aggregator": "zz"}, "aggregator = 'zz' is not on the roster"),
        ({"job": bytes(58_000)}, "at most 57344 are possible"),
    ],
)
def test_a_submission_that_cannot_be_is_refused_with_its_reason(fields: dict[str, object], reason: str) -> None:
    net = Net(3)
    net.meet()
    with pytest.raises(AssertionError, match=reason):
        net.submit("p1", **fields)  # type: ignore[arg-type]
    assert all(net.core(name).jobs.jobs == {} for name in net.names)
