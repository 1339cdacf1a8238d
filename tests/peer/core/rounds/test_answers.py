"""What counts as an answer, one test per promise. Reference: `docs/peer/rounds.md`, "Rounds"."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from harness import Net, Packet, opened_round

from p2pclust.peer.core.effects import Compute, Persist, Send
from p2pclust.peer.core.job_messages import Adopted, HeartbeatReply, Open, Synced
from p2pclust.peer.core.rounds.round import ANSWERED_TWICE
from p2pclust.peer.core.tasks import CombineRound, Ref
from p2pclust.protocols.engine.workspace import digest_of

ROUNDS = (Open, Adopted)


def held(n: int = 3, job: bytes | None = None, **fields: object) -> tuple[Net, str]:
    """A fleet whose opens and answers are held back; p1 aggregates term 1."""
    net = Net(n, manual=lambda message: isinstance(message, ROUNDS))
    net.meet()
    return net, net.submit("p1", job, aggregator="p1", **fields)


def answers(net: Net, name: str, job: str, state: bytes = b"s0") -> Adopted:
    """What a peer with an intact store answers to round 0 of term 1."""
    said = b"c%d of " % (int(name[1:]) - 1) + state
    return Adopted(job, 1, 0, digest_of(state), f"store-{name}", "", digest_of(said), len(said), (said,))


def round_of(net: Net, name: str, job: str) -> int:
    return net.job(name, job).ledger.register.round


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
    """Answers are tagged with job, term, round and the state's digest. Reference: docs/peer/rounds.md, "Rounds"."""
    net, job = held()
    for name in ("p2", "p3"):
        net.arrive(name, "p1", replace(answers(net, name, job), **changed))  # type: ignore[arg-type]
    assert round_of(net, "p1", job) == 0
    for name in ("p2", "p3"):
        net.arrive(name, "p1", answers(net, name, job))
    assert round_of(net, "p1", job) == 1


def test_the_same_answer_twice_counts_once() -> None:
    """Nothing counts twice. Reference: docs/peer/rounds.md, "Rounds"."""
    net, job = held()
    for _ in range(3):
        net.arrive("p2", "p1", answers(net, "p2", job))
    assert round_of(net, "p1", job) == 0
    net.arrive("p3", "p1", answers(net, "p3", job))
    assert net.verbs("combined")[0][1]["contributors"] == ["p1", "p2", "p3"]


def test_a_silent_peer_is_asked_ever_more_seldom() -> None:
    """Each repeat is answered with the whole contribution: twenty of them in 5 s once filled a slow uplink."""
    net, job = held(patience_s=5.0)
    began_at, asked = net.now, []

    def lost(packet: Packet) -> bool:
        if packet.target == "p2" and isinstance(packet.message, Open):
            asked.append(net.now - began_at)
        return False

    net.lost = lost
    net.advance(4.9)
    assert round_of(net, "p1", job) == 0
    assert asked == pytest.approx([0.25, 0.75, 1.75, 3.0, 4.25], abs=0.3)


def test_two_different_answers_to_one_round_make_a_suspect() -> None:
    """It is named at the aggregator, and continues to count. Reference: docs/peer/rounds.md, "Rounds"."""
    net, job = held()
    first = answers(net, "p2", job)
    net.arrive("p2", "p1", replace(first, contribution=digest_of(b"other"), size_bytes=5, payload=(b"other",)))
    assert not net.job("p1", job).suspicions
    net.arrive("p2", "p1", first)
    assert net.verbs("differs")[0][1] == {"job": job, "round": 0, "peer": "p2"}
    assert net.job("p1", job).suspicions == {"p2": (0, ANSWERED_TWICE)}
    assert not net.job("p3", job).suspicions
    net.arrive("p3", "p1", answers(net, "p3", job))
    assert net.verbs("combined")[0][1]["contributors"] == ["p1", "p2", "p3"]


def test_an_answer_from_outside_the_roster_is_ignored() -> None:
    """No key outside the roster ever changes state. Reference: `p2pclust/lab/simulation/checks/invariants.py`, S8."""
    net = Net(5, manual=lambda message: isinstance(message, ROUNDS))
    net.meet()
    job = net.submit("p1", roster=("p1", "p2", "p3"), aggregator="p1")
    for name in ("p4", "p5"):
        net.arrive(name, "p1", replace(answers(net, "p2", job), store_id="store-p2"))
        net.arrive(name, "p1", Open(job, 9, 9, b"", 0, False, -1, (b"s9",)))
    assert round_of(net, "p1", job) == 0
    assert net.job("p1", job).ledger.term == 1


def test_a_wiped_store_contributes_but_is_not_counted() -> None:
    """It counts for no majority of that job. Reference: docs/peer/rounds.md, "Quorum"."""
    net, job = held()
    net.crash("p3")
    net.until(lambda: net.core("p1").membership.status("p3") == "dead")
    net.arrive("p3", "p1", replace(answers(net, "p3", job), store_id="another"))
    assert round_of(net, "p1", job) == 0, "p1 alone is no majority of three"
    net.arrive("p2", "p1", answers(net, "p2", job))
    assert net.verbs("combined")[0][1]["contributors"] == ["p1", "p2", "p3"]


def test_a_heartbeat_reply_tells_of_an_adoption() -> None:
    """The register in the reply counts like an acknowledgement of the state."""
    net, job = held(5, missing="drop", deadline_s=0.2)
    for name in ("p2", "p3"):
        net.arrive(name, "p1", HeartbeatReply(job, 1, 1, 0, f"store-{name}", False, 0))
    net.until(lambda: round_of(net, "p1", job) == 1, limit_s=2)
    assert net.verbs("combined")[0][1]["contributors"] == ["p1"]


def test_persist_comes_before_the_answer() -> None:
    """What the answer reveals is on disk. Reference: `p2pclust/lab/simulation/checks/invariants.py`, S6."""
    net, _ = held()
    for name in ("p2", "p3"):
        before = len(net.peers[name].effects)
        net.deliver(lambda packet, name=name: packet.target == name)  # type: ignore[misc]
        effects = net.peers[name].effects[before:]
        row = next(i for i, e in enumerate(effects) if isinstance(e, Persist) and e.table == "register")
        told = next(i for i, e in enumerate(effects) if isinstance(e, Send) and isinstance(e.message, Adopted))
        assert row < told
        assert effects[row].sync  # type: ignore[attr-defined]


def test_a_document_is_on_disk_before_it_is_confirmed() -> None:
    """`submit` returns when a majority has synced the document. Reference: docs/peer/jobs.md, "Submission"."""
    net = Net(3)
    net.meet()
    job = net.submit("p1")
    effects = net.peers["p2"].effects
    row = next(i for i, e in enumerate(effects) if isinstance(e, Persist) and (e.table, e.key) == ("job", job))
    told = next(i for i, e in enumerate(effects) if isinstance(e, Send) and isinstance(e.message, Synced))
    assert row < told
    assert [f["job"] for name, f in net.verbs("accepted") if name == "p1"] == [job]


def test_two_states_of_one_round_are_not_both_adopted() -> None:
    """One term and round is one state. Reference: `p2pclust/lab/simulation/checks/invariants.py`, S4."""
    net, job = held()
    net.deliver(lambda packet: packet.target == "p2")
    net.arrive("p1", "p2", Open(job, 1, 0, digest_of(b"s0x"), 3, False, -1, (b"s0x",)))
    assert net.states(job)["p2"] == "s0"
    assert [name for name, _ in net.verbs("contradiction")] == ["p2"]


def test_a_state_that_is_not_what_its_digest_says_is_not_adopted() -> None:
    """Reference: docs/peer/rounds.md, "Rounds"."""
    net, job = held()
    net.drop()
    net.arrive("p1", "p2", Open(job, 1, 0, bytes(32), 2, False, -1, (b"s0",)))
    assert net.job("p2", job).ledger.register.ref is None
    assert [name for name, _ in net.verbs("corrupt")] == ["p2"]


def test_an_older_open_of_the_same_term_changes_nothing() -> None:
    """It was overtaken on the way. Reference: docs/peer/rounds.md, "Fence"."""
    net, job = held()
    first = next(packet for packet in net.flight if packet.target == "p2")
    for _ in range(3):
        net.deliver()
    assert round_of(net, "p2", job) == 1
    assert not [e for e in net.arrive("p1", "p2", first.message) if isinstance(e, (Send, Persist))]
    assert round_of(net, "p2", job) == 1


def test_the_same_state_opened_again_is_answered_without_computing_again() -> None:
    """A contribution is a pure function of state and data. Reference: docs/peer/rounds.md, "Rounds"."""
    net, _ = held()
    opened = next(packet for packet in net.flight if packet.target == "p2")
    net.deliver(lambda packet: packet.target == "p2")
    effects = net.arrive("p1", "p2", opened.message)
    assert [e for e in effects if isinstance(e, Compute)] == []
    assert [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, Adopted)]


def test_while_it_computes_a_peer_is_not_asked_again() -> None:
    """A long computation does not count as silence, up to the limit of `headway.py`: here 11.2 s."""
    net, job = held(patience_s=1.0)
    net.hold_work = lambda name, effect: name == "p2"
    net.deliver()
    net.deliver()
    net.advance(11)
    assert not [packet for packet in net.flight if isinstance(packet.message, Open) and packet.target == "p2"]
    assert not net.verbs("relayed", "left-out")
    assert round_of(net, "p1", job) == 0
    net.do_work()
    net.deliver()
    assert round_of(net, "p1", job) == 1


def test_a_peer_whose_contribution_never_comes_has_not_answered() -> None:
    """Its acknowledgement arrives, its blob does not: it was waited for anew in every round."""
    net, job = held()
    term = net.job("p1", job).term
    assert term is not None
    large = replace(answers(net, "p2", job), contribution=bytes(32), size_bytes=10**6, payload=())
    net.arrive("p2", "p1", large)
    assert not term._round.peers[1].answered
    assert "p2" in term._patience._works
    net.arrive("p2", "p1", answers(net, "p2", job))
    assert term._round.peers[1].answered


def test_signed_refusals_are_combined_and_are_no_contributions() -> None:
    def ref(name: bytes) -> Ref:
        return Ref(name * 32, 1, name)

    opened = opened_round(ref(b"s"), "p1", "p2", "p3")
    opened.peers[0].ref, opened.peers[1].ref = ref(b"a"), ref(b"b")
    opened.peers[1].refusal, opened.peers[2].refusal = ref(b"c"), ref(b"d")
    opened.use()
    assert opened.used == (((0,), ref(b"a")), ((1,), ref(b"b")), ((2,), ref(b"d")))
    assert opened.contributors == (0, 1)


def test_who_is_in_one_sum_with_a_revoked_peer_is_asked_again() -> None:
    """Except for those whose own contributions are here too."""
    names = ("p1", "p2", "p3", "p4")
    opened = opened_round(Ref(b"s" * 32, 1, b"s"), *names)
    opened.branches = cast(Any, SimpleNamespace(drop=lambda index: [1, 3] if index == 2 else []))
    for one in opened.peers.values():
        one.answered = True
    opened.peers[0].ref, opened.peers[3].ref = Ref(b"a" * 32, 1, b"a"), Ref(b"b" * 32, 1, b"b")
    assert opened.revoke(2) == [1, 3]
    assert [one.name for one in opened.peers.values() if one.answered] == ["p1", "p4"]


def test_an_answer_with_neither_a_contribution_nor_a_reason_is_malformed() -> None:
    """It counts as an abstention, and the state says so."""
    net, job = held()
    net.arrive("p2", "p1", replace(answers(net, "p2", job), contribution=b"", size_bytes=0, payload=()))
    net.arrive("p3", "p1", answers(net, "p3", job))
    assert net.verbs("combined")[0][1]["contributors"] == ["p1", "p3"]
    (task,) = [e.task for e in net.peers["p1"].effects if isinstance(e, Compute) and isinstance(e.task, CombineRound)]
    assert task.abstained == {1: "malformed: neither a contribution nor a reason"}
