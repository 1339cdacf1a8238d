"""What the fuzzer found, each as one message or one connection: how a liar or a stranger could stop peers."""

from __future__ import annotations

from unittest import mock

import msgpack
import numpy as np
import pytest
from tests.fuzz.fleets import HONEST, LIAR, Fleet
from tests.throwaway import throwaway_fleet

from p2pclust.errors import UsageError, WireError
from p2pclust.lab.simulation.world import device
from p2pclust.peer.core.codec import decode
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.events import Arrived
from p2pclust.peer.core.job_messages import HeldState
from p2pclust.peer.core.messages import Gossip, Message, Update
from p2pclust.peer.core.tasks import BeginJob, CheckState, NoResult, Outcome
from p2pclust.peer.core.treatment import Treatment
from p2pclust.peer.work.states import BlobAccess
from p2pclust.peer.work.tasks import perform
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.workspace import digest_of
from p2pclust.transport.roster import parse
from p2pclust.transport.wire import OtherVersionError

DEEP = b"\x91" * 1010 + b"\x01"


def told(fleet: Fleet, message: Message, *targets: str) -> None:
    """Let the liar send a message to these peers."""
    for target in targets:
        fleet.world.step(fleet.world.peers[target], Arrived(LIAR, message))


def test_a_version_that_is_nested_too_deeply_to_be_written() -> None:
    """It raised RecursionError, which the shell does not expect."""
    with pytest.raises(OtherVersionError, match="of type list"):
        decode([b"\x93" + DEEP + b"\xa1k\x80"])


@pytest.mark.slow
@pytest.mark.parametrize("incarnation", [2**59, 2**62])
@pytest.mark.parametrize("status", ["alive", "dead"])
def test_a_claim_with_the_last_of_all_incarnations(status: str, incarnation: int) -> None:
    """The peer refuted it with the next number, which no peer can read, and could publish no fact in its next life."""
    fleet = Fleet("star", 3)
    world = fleet.world
    claim = Update("p2", status, incarnation, "", "another", "")
    told(fleet, Gossip((claim,)), *HONEST)
    fleet.advance(5.0)
    assert all(world.peers[name].core.membership.present("p2") for name in HONEST if name != "p2")  # type: ignore[union-attr]
    world.crash("p2")
    world.start("p2")
    core = world.peers["p2"].core
    assert core is not None
    fleet.advance(5.0)
    core.facts.publish("job/news", b"new")
    fleet.advance(5.0)
    assert all(world.peers[name].core.facts.get("p2", "job/news") is not None for name in HONEST)  # type: ignore[union-attr]


@pytest.mark.slow
def test_claims_beyond_all_lives_are_believed_in_small_steps_only() -> None:
    fleet = Fleet("star", 3)
    table = fleet.world.peers["p1"].core.membership  # type: ignore[union-attr]
    for claimed, believed in ((2**32, 2**32), (2**32 + 17, 2**32), (2**32 + 16, 2**32 + 16), (2**33, 2**32 + 16)):
        told(fleet, Gossip((Update("p2", "alive", claimed, "", "", ""),)), "p1")
        assert table.members["p2"].incarnation == believed


def test_a_peer_is_believed_what_it_says_of_itself() -> None:
    fleet = Fleet("star", 3)
    told(fleet, Gossip((Update(LIAR, "alive", 2**40, "", "", ""),)), "p1")
    assert fleet.world.peers["p1"].core.membership.members[LIAR].incarnation == 2**40  # type: ignore[union-attr]


def test_a_gossip_job_of_thousands_on_a_full_mesh() -> None:
    """Its links alone, millions of them, took every peer that read the document 30 s and 1.4 GB."""
    roster = tuple(f"n{number:04d}" for number in range(129))
    treatment = Treatment("wait", 1.0, 60.0, collect="gossip", gossip_tolerance=0.1, mixing="push-sum")
    with pytest.raises(UsageError, match="129 peers on a full mesh, where at most 128 can average"):
        Document(b"x", roster, ("",) * 129, treatment, "p1", "n")
    small = Document(b"x", roster[:128], ("",) * 128, treatment, "p1", "n")
    fields = msgpack.unpackb(small.encode())
    fields[1:3] = [f"n{number:04d}" for number in range(4096)], [""] * 4096
    with pytest.raises(WireError, match="4096 peers on a full mesh"):
        Document.decode(msgpack.packb(fields))


@pytest.mark.slow
@pytest.mark.parametrize(
    "mathematics",
    [
        msgpack.packb({"stages": [{"protocol": ["llf-cm"]}], "seed": 1}),
        msgpack.packb({"stages": [{"protocol": {}}], "seed": 1}),
        b"\x82\xa6stages\x91\x81\xa8protocol\xa6llf-cm\xa4seed" + DEEP,
        b"\x82\xa6stages\x91\x82\xa8protocol\xa6llf-cm\xaaparameters\x81\xaan_clusters" + DEEP + b"\xa4seed\x01",
    ],
    ids=["a list for a protocol", "a map for a protocol", "a deep seed", "a deep parameter"],
)
def test_mathematics_that_cannot_be_looked_up_or_written(mathematics: bytes) -> None:
    """TypeError and RecursionError ended the worker, and with it every peer that the document reached."""
    blobs = BlobAccess(lambda digest: iter(()), lambda *blob: None, lambda digest: None, Fleet("star", 3).world.limits)
    outcome = perform(BeginJob(mathematics, 3), Local(np.ones((3, 2))), blobs)
    assert isinstance(outcome, NoResult)
    assert outcome.reason.startswith("failed: job: ")


@pytest.mark.slow
def test_an_offered_register_of_the_last_term() -> None:
    """It was taken over, and no term was left for an election: every message of this peer about the job was malformed."""
    fleet = Fleet("star", 3)
    world = fleet.world
    (job_id,) = fleet.jobs("p1")
    world.crash(LIAR)
    victim = world.peers["p1"]
    assert victim.core is not None
    job = victim.core.jobs.jobs[job_id]
    ref = job.ledger.register.ref
    assert ref is not None
    state = b"".join(victim.disk.blob(ref.digest)) if ref.payload is None else ref.payload
    offer = HeldState(job_id, 2**62, 2**62, 7, digest_of(state), len(state), (state,))
    for name in HONEST:
        if world.peers[name] is not victim:
            world.crash(name)
    world.run_until(world.now + 30.0, lambda: job.election.stands)
    assert job.election.stands
    told(fleet, offer, "p1")
    assert job.ledger.term < 2**40


@pytest.mark.slow
def test_a_state_that_cannot_be_checked_is_not_checked_without_end() -> None:
    """It was given to the worker again as soon as the worker had failed, forever, with a line in the log each time."""
    checks = 0

    def unable(task: object, *rest: object) -> Outcome:
        nonlocal checks
        if not isinstance(task, CheckState):
            return perform(task, *rest)  # type: ignore[arg-type]
        checks += 1
        return NoResult("failed: another version")

    fleet = Fleet("verified", 3)
    with mock.patch.object(device, "perform", unable):
        fleet.advance(5.0)
    assert 0 < checks < 300


def test_a_file_of_small_parts_is_no_roster() -> None:
    """Four megabytes of braces became a hundred of objects before anything was verified."""
    roster, _ = throwaway_fleet([f"n{number}" for number in range(50)])
    assert parse(roster.to_bytes()) == roster
    for data in (b'{"peers": [' + b"{}," * 10_000 + b"{}]}", b"[" * 10_000, b"[" + b"0," * 10_000 + b"0]"):
        with pytest.raises(ValueError, match="more parts than a roster of its size"):
            parse(data)
