"""Which states meet in one round without an aggregator, and in which epoch a final state counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from harness import Net, toy

from p2pclust.peer.core.gossip.job import GossipJob, GossipState, Version
from p2pclust.peer.core.gossip.members import GossipMembers
from p2pclust.peer.core.job_messages import AskState, HeldState, Mix
from p2pclust.peer.core.tasks import Ref, StateInfo
from p2pclust.protocols.engine.workspace import digest_of

STATE = Ref(digest_of(b"the state of round 3"), 20, b"the state of round 3")
OLDER = digest_of(b"the state of round 2")
ALL = GossipMembers(0, (0, 1, 2))


@pytest.fixture
def net() -> Net:
    """Three peers with a gossip job whose tasks never end."""
    net = Net(3)
    net.meet()
    net.hold_work = lambda name, effect: True
    net.submit("p1", toy(9), collect="gossip")
    return net


def entered(net: Net, version: Version) -> GossipJob:
    """The job of p1, which has entered the first epoch with that state."""
    (job,) = net.core("p1").jobs.jobs.values()
    assert isinstance(job, GossipJob)
    job._held, job._entry = GossipState(version, STATE, StateInfo(final=False)), version
    job._exchange.enter(("p2", "p3"), (version.round, 0))
    return job


@pytest.mark.parametrize(
    ("entry", "taken"), [((3, STATE.digest), True), ((2, OLDER), False)], ids=["of the same state", "of an older one"]
)
def test_words_that_belong_to_an_older_state_are_not_mixed(net: Net, entry: tuple[int, bytes], taken: bool) -> None:
    job = entered(net, Version(3, 0, STATE.digest))
    round_, digest = entry
    before = len(net.sent)
    net.arrive("p2", "p1", Mix(job.id, 0, ALL.mask, 0, round_, digest, 3, 0, -1, -1, (b"word",)))
    assert (job._exchange._came["p2"] == {(3, 0): (b"word",)}) is taken
    answers = [
        p.message for p in net.sent[before:] if (p.source, p.target) == ("p1", "p2") and isinstance(p.message, Mix)
    ]
    assert [(answer.entry_round, answer.word) for answer in answers] == ([] if taken else [(3, ())])


@pytest.mark.parametrize(("epoch", "final"), [(0, True), (7, False)], ids=["an older epoch", "not as final"])
def test_a_final_state_is_adopted_in_the_epoch_in_which_all_members_have_it(net: Net, epoch: int, final: bool) -> None:
    """Else no majority of this epoch would have it on disk, and a peer could finish before one has."""
    job = entered(net, Version(3, epoch, STATE.digest))
    job._held = GossipState(Version(3, epoch, STATE.digest), STATE, StateInfo(final=True))
    job.ledger.see(7)
    job.ledger.adopt(epoch, 3, STATE, final=final)
    job.circles.circle = GossipMembers(7, (0, 1, 2))
    job._closed(cast(Any, SimpleNamespace(answers={})))
    assert (job.ledger.register.position, job.ledger.register.final) == ((7, 3), True)
    assert not job.ledger.finished


def test_a_wait_for_a_state_ends_with_its_own_blob_only(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    job = entered(net, Version(3, 0, STATE.digest))
    wanted, taken = digest_of(b"wanted"), list[bytes]()
    message = HeldState(job.id, 0, 0, 4, wanted, 10**6, ())
    net.arrive("p2", "p1", message)
    monkeypatch.setattr(job, "_on_held", lambda source, message: taken.append(message.digest))
    job.blob_ready(digest_of(b"another"))
    assert (taken, wanted in job.blobs_in_use()) == ([], True)
    job.blob_ready(wanted)
    assert (taken, wanted in job.blobs_in_use()) == ([wanted], False)


def test_a_peer_that_fetches_a_state_asks_for_a_newer_one_and_for_no_older_one(net: Net) -> None:
    """All others have dropped the state that it fetches: it once waited for that blob without end."""
    job = entered(net, Version(3, 0, STATE.digest))
    wanted = {round_: digest_of(b"the state of round %d" % round_) for round_ in (4, 5, 6)}

    def asked(round_: int) -> bool:
        before = len(net.sent)
        net.advance(2 * net.timing.heartbeat_s)
        net.arrive("p2", "p1", Mix(job.id, 0, ALL.mask, 0, round_, wanted[round_], round_, 0, -1, -1, ()))
        return any(isinstance(packet.message, AskState) for packet in net.sent[before:])

    def held(round_: int) -> None:
        net.arrive("p2", "p1", HeldState(job.id, 0, 0, round_, wanted[round_], 10**6, ()))

    held(5)
    assert [round_ for round_ in wanted if asked(round_)] == [6]
    held(6)
    held(4)
    assert job.blobs_in_use()[-1] == wanted[6]
