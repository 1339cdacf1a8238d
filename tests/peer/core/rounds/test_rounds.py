"""Who is waited for in a round, one test per promise. Reference: `docs/peer/rounds.md`, "Missing peers"."""

from __future__ import annotations

import pytest
from harness import Net, Packet, is_of_job, toy

from p2pclust.peer.core.effects import Compute
from p2pclust.peer.core.job_messages import Adopted, Open
from p2pclust.peer.core.messages import BlobChunk
from p2pclust.peer.core.tasks import Contribute
from p2pclust.peer.core.timing import Limits
from p2pclust.protocols.engine.workspace import digest_of

ROUNDS = (Open, Adopted)


def held(n: int = 3, job: bytes | None = None, **fields: object) -> tuple[Net, str]:
    """A fleet whose opens and answers are held back; p1 aggregates term 1."""
    net = Net(n, manual=lambda message: isinstance(message, ROUNDS))
    net.meet()
    return net, net.submit("p1", job, aggregator="p1", **fields)


def round_of(net: Net, name: str, job: str) -> int:
    return net.job(name, job).ledger.register.round


# -- who is waited for ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["wait", "all", "drop"])
def test_without_faults_everybody_contributes(missing: str) -> None:
    """All policies give the same result when nobody is missing. Reference: docs/peer/rounds.md, "Missing peers"."""
    net = Net(5)
    net.meet()
    job = net.submit("p3", toy(3), missing=missing, deadline_s=2.0 if missing == "drop" else 0.0)
    net.until(lambda: len(net.finished(job)) == 5)
    assert set(net.states(job).values()) == {"s3[0,1,2,3,4]"}


def test_a_majority_is_not_enough_while_others_are_alive() -> None:
    """`wait` waits for every roster peer that is alive or suspect. Reference: docs/peer/rounds.md, "Missing peers"."""
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
    """An unanswered open is repeated, an answered one is not. Reference: docs/peer/rounds.md, "The rules of a round"."""
    net, job = held()
    net.deliver(lambda packet: packet.target == "p2")
    net.deliver(lambda packet: packet.source == "p2")
    net.drop()
    net.advance(net.timing.retry_s + 2 * net.timing.heartbeat_s)
    assert {packet.target for packet in net.flight if isinstance(packet.message, Open)} == {"p3"}
    assert round_of(net, "p1", job) == 0


def test_the_dead_are_left_out_under_wait() -> None:
    """Membership says whom not to wait for. Reference: docs/peer/rounds.md, "Missing peers" and "Quorum"."""
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


@pytest.mark.slow
def test_all_waits_for_the_dead() -> None:
    """`all`: nobody is left out; the result is that of a run without faults.

    Reference: docs/peer/rounds.md, "Missing peers".
    """
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
    """After `patience_s` of silence the open is relayed, then the peer is left out.

    Reference: docs/peer/rounds.md, "Missing peers".
    """
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


@pytest.mark.parametrize("missing", ["wait", "all"])
def test_who_computed_for_long_is_not_silent_when_it_has_done(missing: str) -> None:
    """Patience begins when a peer was heard to work last. Reference: docs/peer/rounds.md, "Missing peers"."""
    net = Net(3)
    net.meet()
    net.hold_work = lambda name, effect: name == "p3" and effect.task.kind == "contribute"
    job = net.submit("p1", toy(1), missing=missing, patience_s=2.0, aggregator="p1")
    net.advance(5.0)
    net.lost = lambda packet: packet.source == "p3" and isinstance(packet.message, Adopted)
    net.hold_work = lambda name, effect: False
    net.do_work()
    net.advance(1.5)  # its answer is on its way, and it is not busy any more
    net.lost = lambda packet: False
    net.until(lambda: len(net.finished(job)) == 3)
    assert not net.verbs("relayed", "left-out", "out-of-reach")
    assert set(net.states(job).values()) == {"s1[0,1,2]"}


def test_all_lets_another_aggregate_that_hears_who_is_silent_here() -> None:
    """p5 lives, and no way leads from p1 to it, not even through others: somebody else takes over, and nobody is left out.

    Reference: docs/peer/rounds.md, "Missing peers".
    """
    net = Net(5)
    net.meet()
    net.lost = lambda packet: {"p1", "p5"} == {packet.source, packet.target} and is_of_job(packet.message)
    job = net.submit("p1", toy(3), missing="all", patience_s=1.0, aggregator="p1")
    net.until(lambda: len(net.finished(job)) == 5)
    assert [(peer, fields["peer"]) for peer, fields in net.verbs("out-of-reach")] == [("p1", "p5")]
    assert {peer for peer, _ in net.verbs("elected")} > {"p1"}
    assert not net.verbs("left-out")
    assert set(net.states(job).values()) == {"s3[0,1,2,3,4]"}


@pytest.mark.slow
def test_all_keeps_its_aggregator_while_it_waits_for_the_dead() -> None:
    """Nobody else would hear it either."""
    net = Net(5)
    net.meet()
    net.crash("p5")
    net.until(lambda: net.core("p1").membership.status("p5") == "dead")
    net.submit("p1", toy(2), roster=net.names, missing="all", patience_s=1.0, aggregator="p1")
    net.advance(60)
    assert [peer for peer, _ in net.verbs("elected")] == ["p1"]
    assert not net.verbs("out-of-reach")


def test_a_relayed_open_is_answered_the_way_it_came() -> None:
    """A broken link between two peers does not cost a contribution.

    Reference: docs/peer/rounds.md, "Missing peers".
    """
    net = Net(4)
    net.meet()
    net.lost = lambda packet: {packet.source, packet.target} == {"p1", "p4"} and not packet.via
    job = net.submit("p1", toy(2), patience_s=0.5, aggregator="p1")
    net.until(lambda: len(net.finished(job)) >= 3, limit_s=20)
    assert net.states(job)["p1"] == "s2[0,1,2,3]"
    assert not net.verbs("left-out")


def test_who_comes_back_contributes_again() -> None:
    """From the next round on. Reference: docs/peer/rounds.md, "Missing peers"."""
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
    """`drop`: a deadline. Reference: docs/peer/rounds.md, "Missing peers"."""
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
    """The deadline does not weaken the quorum. Reference: docs/peer/rounds.md, "Missing peers"."""
    net, job = held(5, missing="drop", deadline_s=0.5)
    net.deliver(lambda packet: packet.target == "p2")
    net.deliver(lambda packet: packet.source == "p2")
    net.advance(10)
    net.drop()
    assert round_of(net, "p1", job) == 0
    assert not net.verbs("combined")


def test_drop_waits_for_a_first_contribution() -> None:
    """Ten rounds that were closed empty failed the job, though each of its peers was only slower than the deadline."""
    net = Net(3)
    net.meet()
    net.hold_work = lambda name, effect: effect.task.kind == "contribute"
    job = net.submit("p1", toy(1), aggregator="p1", missing="drop", deadline_s=0.5, patience_s=60.0)
    net.advance(2.0)
    assert round_of(net, "p1", job) == 0
    net.do_work(lambda name, effect: name == "p3")
    net.until(lambda: net.finished(job) != [])
    assert net.states(job)["p1"] == "s1[2]"


def test_drop_leaves_silent_peers_out_though_no_other_contributed() -> None:
    """All that could contribute are out of reach: the round is empty after all."""
    net = Net(3)
    net.meet()
    net.lost = lambda packet: isinstance(packet.message, Adopted)
    job = net.submit("p1", toy(1, abstainers=[0]), aggregator="p1", missing="drop", deadline_s=0.5, patience_s=1.0)
    net.until(lambda: net.verbs("combined") != [], limit_s=10)
    assert net.verbs("combined")[0][1]["contributors"] == []
    assert {fields["peer"] for _, fields in net.verbs("left-out")} == {"p2", "p3"}
    assert job


def test_drop_does_not_leave_silent_peers_out_before_its_deadline() -> None:
    """Patience counts only from the deadline on. Reference: docs/peer/rounds.md, "Missing peers"."""
    net, job = held(3, missing="drop", deadline_s=5.0, patience_s=0.5)
    net.hold_work = lambda name, effect: effect.task.kind == "contribute"
    net.advance(4.5)
    assert not net.verbs("relayed", "left-out", "combined")
    assert round_of(net, "p1", job) == 0


def test_a_peer_whose_answers_are_lost_is_waited_for_in_two_rounds() -> None:
    """It cost one and a half times the patience in every round. Once an answer comes, if only late, all is as before."""
    net = Net(5)
    net.meet()
    net.lost = lambda p: p.source == "p5" and isinstance(p.message, Adopted) and p.message.round < 4
    job = net.submit("p1", toy(7), aggregator="p1", patience_s=1.0)
    net.until(lambda: len(net.finished(job)) == 5)
    assert [fields["round"] for _, fields in net.verbs("left-out")] == [0, 1]
    assert [len(fields["contributors"]) for _, fields in net.verbs("combined")] == [4, 4, 4, 4, 4, 5, 5]


def test_a_peer_whose_blobs_are_lost_is_waited_for_in_two_rounds() -> None:
    """Its acknowledgement arrives in each round, its contribution does not."""
    net = Net(5, limits=Limits(inline_bytes=100, chunk_bytes=100))
    net.meet()
    net.lost = lambda packet: packet.source == "p5" and isinstance(packet.message, BlobChunk)
    job = net.submit("p1", toy(4, pad=200), aggregator="p1", patience_s=1.0)
    net.until(lambda: len(net.finished(job)) >= 4, limit_s=120)
    assert [fields["round"] for _, fields in net.verbs("left-out")] == [0, 1]


# -- proposers --------------------------------------------------------------------------------------------------------


def test_one_proposer_is_asked_and_the_others_adopt() -> None:
    """The first of the permutation that is not dead. Reference: docs/peer/rounds.md, "Rounds"."""
    net = Net(3)
    net.meet()
    job = net.submit("p2", toy(2, one=True))
    net.until(lambda: len(net.finished(job)) == 3)
    assert set(net.states(job).values()) == {"s2[0]"}


def test_a_proposer_that_was_left_out_is_not_asked_again_in_that_round() -> None:
    """Two that lost contributions once took turns indefinitely: that it is not asked now settled what one was asked."""
    net = Net(5, limits=Limits(inline_bytes=100, chunk_bytes=100))
    net.meet()
    net.lost = lambda packet: packet.source in ("p1", "p2") and isinstance(packet.message, BlobChunk)
    job = net.submit("p3", toy(1, one=True, pad=200), aggregator="p3", patience_s=1.0)
    net.until(lambda: bool(net.finished(job)), limit_s=60)
    assert [fields["proposer"] for _, fields in net.verbs("proposer")] == ["p2", "p3"]


def test_a_proposer_that_is_dead_is_replaced_within_the_round() -> None:
    """It is replaced, recorded, and the round is not lost. Reference: docs/peer/rounds.md, "Rounds"."""
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
    """An abstention is an answer: the next round asks the next. Reference: `p2pclust/peer/core/rounds/aggregator.py`."""
    net = Net(3)
    net.meet()
    job = net.submit("p2", toy(1, one=True, abstainers=[0]))
    net.until(lambda: len(net.finished(job)) == 3)
    assert set(net.states(job).values()) == {"s1[]"}
    tasks = [
        e.task for p in net.peers.values() for e in p.effects if isinstance(e, Compute) and e.task.kind == "combine"
    ]
    assert dict(tasks[0].abstained) == {0: "gate"}


def test_drop_asks_the_next_proposer_and_waits_for_the_last_one() -> None:
    """With every proposer late the round was empty."""
    net = Net(3)
    net.meet()
    net.hold_work = lambda name, effect: effect.task.kind == "contribute" and effect.task.proposer == effect.task.me
    job = net.submit("p1", toy(1, one=True), aggregator="p1", missing="drop", deadline_s=0.5, patience_s=60.0)
    net.advance(5.0)
    assert [fields["proposer"] for _, fields in net.verbs("proposer")] == ["p2", "p3"]
    assert round_of(net, "p1", job) == 0
    net.do_work(lambda name, effect: name == "p3")
    net.until(lambda: net.finished(job) != [])
    assert net.states(job)["p1"] == "s1[2]"


def test_abstentions_are_recorded_with_their_reason() -> None:
    """Reference: docs/peer/rounds.md, "Rounds"."""
    net = Net(3)
    net.meet()
    job = net.submit("p2", toy(1, abstainers=[1]))
    net.until(lambda: len(net.finished(job)) == 3)
    assert set(net.states(job).values()) == {"s1[0,2]"}
    tasks = [
        e.task for p in net.peers.values() for e in p.effects if isinstance(e, Compute) and e.task.kind == "combine"
    ]
    assert dict(tasks[0].abstained) == {1: "gate"}


def test_logs_say_who_abstains_and_why_there_once_a_job() -> None:
    """Reference: docs/logs.md, `abstains` and `combined`."""
    net = Net(3)
    net.meet()
    job = net.submit("p2", toy(3, abstainers=[1]))
    net.until(lambda: len(net.finished(job)) == 3)
    assert net.verbs("abstains") == [("p2", {"job": job, "reason": "gate"})]
    assert [fields["abstained"] for _, fields in net.verbs("combined")] == [{"p2": "gate"}] * 3
    again = net.submit("p1", toy(1, abstainers=[1]))
    net.until(lambda: len(net.finished(again)) == 3)
    assert [fields["job"] for _, fields in net.verbs("abstains")] == [job, again]
    whole = net.submit("p1", toy(1))
    net.until(lambda: len(net.finished(whole)) == 3)
    assert "abstained" not in net.verbs("combined")[-1][1], "nothing is said where nobody abstains"


class TestLateOpens:
    """p1 follows p2, which aggregates term 1; the messages of the job are held back."""

    def follower(self) -> tuple[Net, str]:
        net = Net(3, manual=is_of_job)
        net.meet()
        job = net.submit("p1", toy(9), aggregator="p2")
        net.drop()
        return net, job

    @staticmethod
    def opened(job: str, round_: int, *, blob: bool = False, proposer: int = -1, state: bytes = b"") -> Open:
        state = state or b"s%d[]" % round_
        frames = () if blob else (state,)
        return Open(job, 1, round_, digest_of(state), 10**6 if blob else len(state), False, proposer, frames)

    @pytest.mark.parametrize("blob", [False, True])
    def test_an_older_one_does_not_displace_a_newer_one_that_is_fetched(self, blob: bool) -> None:
        net, job = self.follower()
        newer = self.opened(job, 5, blob=True)
        net.arrive("p2", "p1", newer)
        net.arrive("p2", "p1", self.opened(job, 3, blob=blob))
        assert net.job("p1", job).states.waiting[Open] == ("p2", newer)
        assert net.job("p1", job).ledger.register.round < 3

    def test_one_that_is_refused_does_not_change_the_proposer(self) -> None:
        """The answer for the first is computed meanwhile; none is computed for the second's proposer."""
        net, job = self.follower()
        net.hold_work = lambda name, effect: effect.task.kind == "contribute"
        net.arrive("p2", "p1", self.opened(job, 1, proposer=0))
        net.arrive("p2", "p1", self.opened(job, 1, proposer=2, state=b"s1[0]"))
        assert [fields["peer"] for _, fields in net.verbs("contradiction")] == ["p2"]
        net.do_work()
        computed = [e.task for e in net.peers["p1"].effects if isinstance(e, Compute)]
        assert [task.proposer for task in computed if isinstance(task, Contribute)] == [0]
