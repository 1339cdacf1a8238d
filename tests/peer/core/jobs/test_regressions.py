"""What once went wrong, one test per fault, told in a user's terms: handing in, the worker, and facts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgpack
import numpy as np
import pytest
from harness import Net, toy

from p2pclust.peer.core.codec import decode, encode
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.events import Woken
from p2pclust.peer.core.job_messages import Adopted, Synced
from p2pclust.peer.core.messages import FactDelta, FactDigest, Relay
from p2pclust.peer.core.spread import facts
from p2pclust.peer.core.tasks import BeginJob, CombineRound, Contribute, DescribeState, NoResult, Ref, StateTask, Task
from p2pclust.peer.core.timing import Limits
from p2pclust.peer.core.treatment import Treatment
from p2pclust.peer.work.states import BlobAccess
from p2pclust.peer.work.tasks import perform
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.workspace import digest_of


def met(n: int = 3) -> Net:
    net = Net(n)
    net.meet()
    return net


# -- handing in -------------------------------------------------------------------------------------------------------


def test_a_roster_may_hold_names_that_are_enrolled_nowhere_here() -> None:
    """A job names a peer that this one's configuration does not know: it takes part as well as it can."""
    net = met()
    document = Document(
        toy(),
        ("p1", "p2", "zz"),
        ("store-p1", "store-p2", "store-zz"),
        Treatment("wait", 5.0, 60.0, collect="star"),
        "p2",
        "1",
    )
    for name in ("p1", "p3"):
        net.arrive("p2", name, FactDelta("p2", 0, ("job/" + document.id,), (2**40,), (document.encode(),)))
    net.advance(30)
    assert list(net.core("p1").jobs.jobs) == [document.id]
    assert net.core("p3").jobs.jobs == {}


def test_a_job_is_not_accepted_on_a_store_that_does_not_count_for_it() -> None:
    """The submitter had not heard yet that a peer lost its store: the job was accepted, and could never end."""
    net = met()
    net.crash("p3", wiped=True)
    job = net.submit("p1", toy(), roster=("p1", "p3"))
    net.start("p3")
    net.until(lambda: job in net.core("p3").jobs.jobs)
    net.advance(30)
    assert net.verbs("accepted") == []


@pytest.mark.parametrize("seconds", [5, 5.0], ids=["a-whole-number", "as-written"])
@pytest.mark.parametrize("size", [56 * 1024 - 1, 56 * 1024, 56 * 1024 + 1])
def test_a_document_as_large_as_a_document_may_be(size: int, seconds: float) -> None:
    """A job just below, at and above the limit, written by another program: it is taken or reported, and stops nobody."""
    net = met()
    treatment = ["wait", seconds, 60.0, 0.0, "", "star", 0.0, "", 0, 0.0, False, 0, 0, "", "", "", 0, 0]
    fields = [b"", ["p1", "p2"], ["a", "b"], treatment, "p2", "1", b"", None, None]
    fields[0] = bytes(size - len(msgpack.packb(fields)) - 1)
    data: bytes = msgpack.packb(fields)
    net.arrive("p2", "p1", FactDelta("p2", 0, ("job/x",), (2**40,), (data,)))
    assert bool(net.verbs("bad-document")) == (len(data) > 56 * 1024 or isinstance(seconds, int))


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


JOB = bytes(msgpack.packb(cluster_job("llf-cm", n_clusters=2).to_dict()))


def reason(task: Task) -> str:
    """Why the real worker has no result."""
    blobs = BlobAccess(lambda digest: iter(()), lambda *blob: None, lambda digest: None, Limits())
    outcome = perform(task, Local(np.zeros((5, 2))), blobs)
    assert isinstance(outcome, NoResult)
    return outcome.reason


@pytest.mark.parametrize("task", [partial(Contribute, me=0), DescribeState, partial(CombineRound, contributions=())])
@pytest.mark.parametrize(
    "state",
    [
        pytest.param(Ref(digest_of(b"abc"), 3, b"abc"), id="hostile"),
        pytest.param(Ref(digest_of(b""), 0, b""), id="empty"),
        pytest.param(Ref(bytes(32), 300, None), id="dropped-meanwhile"),
    ],
)
def test_a_state_that_the_worker_cannot_read_stops_nobody(task: Callable[..., StateTask], state: Ref) -> None:
    """A peer is sent nonsense as a state: it abstains, and lives on."""
    assert reason(task(JOB, 3, state)).startswith("failed: ")


@pytest.mark.parametrize("job", [b"", b"\xc0", b"\xc1", b"\x80", b"\x91" * 5000, msgpack.packb({"stages": []})])
def test_a_job_that_the_worker_cannot_read_stops_nobody(job: bytes) -> None:
    """A job of another version, or none at all: there is a reason instead of a result."""
    assert reason(BeginJob(job, 3)).startswith("failed: ")


def test_a_reason_is_short_enough_for_every_message_that_repeats_it() -> None:
    """An abstention for a reason of many words can still be sent."""
    job = msgpack.packb({"\U0001f30d" * 900: 1})
    assert 0 < len(reason(BeginJob(job, 3))) <= 200
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
    said(net, "p1", "job/a", b"old")
    while net.deliver():
        pass
    net.crash("p1", wiped=True)
    net.start("p1")
    said(net, "p1", "job/b", b"new")
    while net.deliver():
        pass
    net.manual = lambda message: False
    net.advance(10)
    for name in net.names:
        held = {key: fact.value for key in "ab" if (fact := net.core(name).facts.get("p1", f"job/{key}"))}
        assert held == {"a": b"old", "b": b"new"}


def test_a_peer_that_lost_its_store_is_given_back_all_that_it_said() -> None:
    """However many facts that were: in more than one message, and the two agree on every version."""
    net = met(2)
    keys = [f"job/{i:02}" for i in range(20)]
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
        net.core("p1").facts.publish(f"job/{i:02}", b"x")
    net.step("p1", Woken())
    net.arrive("p2", "p1", FactDigest(False, (), (), ()))
    deltas = [p.message for p in net.sent if isinstance(p.message, FactDelta)]
    assert max(len(message.keys) for message in deltas) == 7
    for message in deltas:
        assert decode(encode(Relay("p1", "p2", b"", tuple(encode(message))))).kind == "relay"


def test_two_peers_that_hold_different_facts_of_a_full_owner_leave_it_at_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """A liar filled two peers with different facts up to the limit: they do not ask each other indefinitely."""
    monkeypatch.setattr(facts, "_MOST_BYTES", 64 * 266)
    net = met()
    net.lost = lambda p: isinstance(p.message, (FactDigest, FactDelta))
    for target, first in (("p1", 1000), ("p2", 1)):
        for i in range(70):
            net.arrive("p3", target, FactDelta("p3", 0, (f"job/{target}-{i:02}",), (first + i,), (b"",)))
    net.crash("p3")
    before = len(net.sent)
    net.lost = lambda p: len(net.sent) - before > 5000
    net.advance(5)
    assert len(net.sent) - before < 2000
