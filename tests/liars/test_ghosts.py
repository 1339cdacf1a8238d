"""One enrolled liar writes job documents with peers, fleet rosters and keys of its choice.

In a fleet with keys a device takes part only in jobs whose document names a fleet roster that the fleet has signed, that is
in force or was just before, and that lists all peers of the job. Peers that are revoked, or
have new keys, hide no other.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgpack
import numpy as np
import pytest

from p2pclust.lab.simulation.world.device import signature_of
from p2pclust.lab.simulation.world.network import Conditions, Network
from p2pclust.lab.simulation.world.peer import FLEET, Peer, paper_roster
from p2pclust.lab.simulation.world.world import Observer, World
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.effects import Effect, Send
from p2pclust.peer.core.events import Arrived, Submit
from p2pclust.peer.core.fleet_roster import RosterName
from p2pclust.peer.core.messages import FactDelta, JobMessage
from p2pclust.peer.core.reports import Report
from p2pclust.peer.core.timing import Limits, preset
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.reasons import REVOKED
from p2pclust.protocols.private.private_cm import shares
from p2pclust.protocols.secure.key_list import FleetKeys, keeper_order

LIAR = "p0"
SECURE = {"secure": True, "keepers": 3, "cohort": 3, "burnt": "groups", "leave": "groups", "colluders": 1}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {}, "secured": SECURE, "verified": {"verify": "all"}, "both": {**SECURE, "verify": "all"},
}  # fmt: skip


class Ears(Observer):
    """Notes reports, and the messages about jobs that are sent to the liar."""

    watches = (Send, Report)

    def __init__(self) -> None:
        self.reports: list[tuple[str, Report]] = []
        self.answers: list[JobMessage] = []

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        if isinstance(effect, Report):
            self.reports.append((peer.name, effect))
        elif isinstance(effect, Send) and effect.to == LIAR and isinstance(effect.message, JobMessage):
            self.answers.append(effect.message)

    def reasons(self, verb: str) -> set[str]:
        return {str(report.fields["reason"]) for _, report in self.reports if report.verb == verb}


class Fleet:
    """The keyed fleet p0, p1, ... on fleet roster 1; p0 lies."""

    def __init__(self, n: int = 5, *, line: bool = False) -> None:
        rng = np.random.default_rng(5)
        self.names = [f"p{i}" for i in range(n)]
        self.ears = Ears()
        locals_ = {name: Local(rng.normal(size=(12, 2)) + 8 * rng.integers(0, 2, (12, 1))) for name in self.names}
        self.network = Network(Conditions(), np.random.default_rng(1))
        near = {
            name: tuple(self.names[max(0, i - 1) : i] + self.names[i + 1 : i + 2]) for i, name in enumerate(self.names)
        }
        self.world = World(
            locals_, self.network, preset("fast"), Limits(), np.random.default_rng(2), (self.ears,),
            overlay=near if line else None, keyed=True,
        )  # fmt: skip
        self.papers = {1: paper_roster(1, self.names)}
        for name in self.names:
            self.world.give_roster(name, self.papers[1])
        for name in self.names:
            self.world.start(name)
        assert self.world.run_until(30.0, lambda: all(core.membership.all_here() for core in self.cores()))

    def cores(self, *names: str) -> list[Any]:
        cores = [self.world.peers[name].core for name in names or self.names]
        return [core for core in cores if core is not None]

    def sign(self, serial: int, names: list[str] | None = None, *, renewed: dict[str, str] | None = None) -> None:
        """The administrator signs another fleet roster."""
        self.papers[serial] = paper_roster(serial, names or self.names, renewed=renewed)

    def name(self, serial: int) -> RosterName:
        return RosterName(serial, hashlib.sha256(self.papers[serial]).digest())

    def give(self, serial: int, *names: str) -> None:
        for name in names or self.names:
            self.world.give_roster(name, self.papers[serial])

    def renew(self, serial: int, name: str) -> None:
        """Give a device new keys: it is restarted with its new bundle, and the others get the roster."""
        self.sign(serial, renewed={name: "new"})
        self.world.crash(name)
        self.world.put_roster(name, self.papers[serial])
        self.world.start(name)
        self.give(serial, *(other for other in self.names if other != name))

    def document(self, kind: str = "plain", *, roster: list[str] | None = None, **changed: Any) -> Document:
        names = tuple(sorted(roster or self.names))
        stores = tuple(f"store-{name}-0" for name in names)
        treatment = Treatment("wait", 5.0, 60.0, 0.0, LIAR, "star", **KINDS[kind])
        job = cluster_job("llf-cm", n_clusters=2, secure=treatment.secure, tol=0.0, max_rounds=3)
        given = {"nonce": "n", "submitter": LIAR, "fleet_roster": self.name(1)} | changed
        return Document(bytes(msgpack.packb(job.to_dict())), names, stores, treatment, **given)

    def publish(self, *documents: Document, wait_s: float = 3.0) -> None:
        """The liar publishes job documents as facts of its own."""
        core = self.world.peers[LIAR].core
        assert core is not None
        for document in documents:
            core.facts.publish(f"job/{document.id}", document.encode())
        delta = core.facts.everything()
        for name in self.names[1:]:
            for fact in delta:
                if fact.owner == LIAR and fact.key.startswith("job/"):
                    self.hear(
                        name, FactDelta(LIAR, 0, (fact.key,), (fact.version,), (fact.value,), (signature_of(fact),))
                    )
        self.world.run_until(self.world.now + wait_s)

    def hear(self, name: str, message: Any) -> None:
        self.world.step(self.world.peers[name], Arrived(LIAR, message))

    def begun(self, document: Document) -> list[str]:
        return [name for name in self.names[1:] if document.id in self.world.peers[name].core.jobs.jobs]  # type: ignore[union-attr]

    def submit(self, job: Job, at: str = "p1", **treatment: Any) -> str:
        self.world.step(
            self.world.peers[at], Submit(bytes(msgpack.packb(job.to_dict())), treatment=Treatment(**treatment))
        )
        assert self.world.run_until(self.world.now + 5.0, lambda: bool(self.cores(at)[0].jobs.jobs))
        return list(self.cores(at)[0].jobs.jobs)[-1]

    def state(self, job_id: str, name: str = "p1") -> JobState:
        peer = self.world.peers[name]
        assert peer.core is not None
        ref = peer.core.jobs.jobs[job_id].ledger.register.ref
        assert ref is not None
        return JobState.decode(b"".join(peer.disk.blob(ref.digest)) if ref.payload is None else ref.payload)

    def ended(self, job_id: str, *names: str) -> bool:
        jobs = [core.jobs.jobs.get(job_id) for core in self.cores(*names)]
        return all(job is not None and job.ledger.finished for job in jobs)


def _refused(fleet: Fleet, document: Document, reason: str) -> None:
    fleet.publish(document)
    assert fleet.begun(document) == []
    assert fleet.ears.answers == [], "no vote, no key, no acknowledgement"
    assert fleet.ears.reasons("bad-document") == {reason}


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_with_peers_that_the_liar_invented_is_refused(kind: str) -> None:
    """Otherwise they fill the cohort and keep the pads, and the total without the liar's numbers is the victim's numbers."""
    fleet = Fleet()
    document = fleet.document(kind, roster=["ghost-a", "ghost-b", "ghost-c", "p0", "p1"])
    _refused(fleet, document, "it names ghost-a, which is not on fleet roster 1")


def test_so_no_roster_of_thousands_divides_the_noise_of_a_private_job() -> None:
    """Each device adds the share of two thirds of the job roster, whose length the submitter writes."""
    fleet = Fleet()
    names = sorted([*(f"g{number:x}" for number in range(1200)), "p0", "p1"])
    assert shares(len(names)) > 100 * shares(len(fleet.names))
    _refused(fleet, fleet.document("secured", roster=names), "it names g0, which is not on fleet roster 1")


@pytest.mark.parametrize("kind", KINDS)
def test_a_fleet_roster_that_the_fleet_has_not_signed_is_refused(kind: str) -> None:
    """Its digest orders the keepers and deals the groups: it must not be the submitter's choice."""
    fleet = Fleet()
    documents = [
        fleet.document(kind, fleet_roster=RosterName(1, hashlib.sha256(b"%d" % tries).digest())) for tries in range(20)
    ]
    fleet.publish(*documents)
    assert [fleet.begun(document) for document in documents] == [[]] * 20
    assert fleet.ears.answers == []
    assert fleet.ears.reasons("bad-document") == {"fleet roster 1 is another one than it names"}


@pytest.mark.slow
def test_an_older_fleet_roster_than_the_one_before_is_refused() -> None:
    fleet = Fleet()
    for serial in (2, 3, 4):
        fleet.sign(serial)
        fleet.give(serial)
    assert {core._ctx.serial for core in fleet.cores()} == {4}
    _refused(fleet, fleet.document("secured"), "it names fleet roster 1, which 4 has replaced long ago")
    fleet.ears.reports.clear()
    _refused(
        fleet, fleet.document("secured", fleet_roster=fleet.name(2)),
        "it names fleet roster 2, which 4 has replaced long ago",
    )  # fmt: skip
    before, now = (fleet.document(fleet_roster=fleet.name(serial)) for serial in (3, 4))
    fleet.publish(before, now)
    assert fleet.begun(before) == fleet.begun(now) == fleet.names[1:]


@pytest.mark.slow
def test_so_a_submitter_chooses_between_two_orders_of_keepers_at_most() -> None:
    fleet = Fleet()
    fleet.sign(2)
    fleet.give(2)
    made_up = [RosterName(2, hashlib.sha256(b"%d" % tries).digest()) for tries in range(50)]
    orders: set[tuple[int, ...]] = set()
    for number, named in enumerate([*made_up, fleet.name(1), fleet.name(2)]):
        document = fleet.document("secured", fleet_roster=named, nonce=str(number))
        fleet.publish(document, wait_s=0.2)
        for name in fleet.begun(document):
            keys = fleet.world.peers[name].core.jobs.jobs[document.id].keys  # type: ignore[union-attr]
            orders.add(tuple(keeper_order(FleetKeys(FLEET, keys.fleet_roster_digest, keys.devices), range(5))))
    assert len(orders) == 2


def test_a_document_without_a_fleet_roster_is_refused_where_the_fleet_has_keys() -> None:
    fleet = Fleet()
    _refused(fleet, fleet.document(fleet_roster=None), "it names no fleet roster, and this fleet has keys")


@pytest.mark.slow
def test_a_document_that_names_a_fleet_roster_to_come_waits_without_a_trace() -> None:
    fleet = Fleet()
    fleet.sign(2)
    document = fleet.document(fleet_roster=fleet.name(2))
    fleet.publish(document)
    assert fleet.begun(document) == []
    assert fleet.ears.answers == []
    assert fleet.ears.reasons("bad-document") == set()
    tables = [fleet.world.peers[name].disk.load().tables for name in fleet.names[1:]]
    assert [sorted({"job", "ballot", "ended"} & set(rows)) for rows in tables] == [[]] * 4
    fleet.give(2, "p3")
    fleet.world.run_until(fleet.world.now + 5.0)
    assert fleet.begun(document) == fleet.names[1:]


@pytest.mark.slow
def test_of_one_liar_a_few_documents_wait() -> None:
    fleet = Fleet()
    documents = [fleet.document(fleet_roster=RosterName(9, bytes([n]) * 32), nonce=str(n)) for n in range(30)]
    fleet.publish(*documents)
    held = [
        len([document for document in documents if document.id in core.jobs._held]) for core in fleet.cores("p1", "p2")
    ]
    assert held == [8, 8]
    assert all(not core._ctx.rosters.wanted for core in fleet.cores("p1", "p2")), "there is no roster 9 to ask for"


@pytest.mark.slow
@pytest.mark.parametrize("line", [False, True], ids=["mesh", "line"])
def test_a_peer_that_lacks_the_fleet_roster_of_a_job_asks_for_it_and_takes_part(line: bool) -> None:
    """It was away while the roster was in force; now a newer one is. On the line others carry what it asks and is sent."""
    fleet = Fleet(line=line)
    fleet.world.crash("p4")
    fleet.sign(2)
    fleet.give(2, *fleet.names[:4])
    document = fleet.document(roster=["p0", "p1", "p4"], fleet_roster=fleet.name(2))
    fleet.publish(document)
    fleet.sign(3)
    fleet.give(3, *fleet.names[:4])
    fleet.world.put_roster("p4", fleet.papers[3])
    fleet.world.start("p4")
    (asked,) = fleet.cores("p4")
    assert fleet.world.run_until(fleet.world.now + 10.0, lambda: document.id in asked.jobs._held)
    assert document.id not in asked.jobs.jobs
    assert fleet.world.run_until(fleet.world.now + 10.0, lambda: document.id in asked.jobs.jobs)
    assert fleet.ears.reasons("bad-document") == set()
    fleet.world.crash("p4")
    fleet.world.start("p4")
    (again,) = fleet.cores("p4")
    assert document.id in again.jobs.jobs
    assert fleet.name(2).digest in again._ctx.rosters.held, "the roster is on its disk as long as the job"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "secured"])
def test_new_keys_of_one_peer_stop_no_job_and_that_peer_takes_part_no_more(kind: str) -> None:
    fleet = Fleet()
    fleet.world.workers.task_s = (0.1, 0.2)
    job = cluster_job("llf-cm", n_clusters=2, secure=kind == "secured", tol=0.0, max_rounds=12)
    job_id = fleet.submit(job, **(KINDS[kind] | ({"leave": "alone"} if KINDS[kind] else {})))
    started = fleet.world.run_until(fleet.world.now + 60.0, lambda: len(_log(fleet, job_id)) >= 3)
    assert started
    before = len(_log(fleet, job_id))
    fleet.renew(2, "p3")
    assert fleet.world.run_until(fleet.world.now + 300.0, lambda: fleet.ended(job_id))
    state = fleet.state(job_id)
    assert state.status == "done", state.reason
    assert 3 in state.log[before - 1].contributors
    assert all(set(record.contributors) >= {0, 1, 2, 4} for record in state.log)
    assert 3 not in state.log[-1].contributors
    assert state.log[-1].abstained.get(3) == REVOKED
    assert len(state.log) > before + 2


def test_what_is_barred_follows_from_the_rosters_so_a_restart_changes_nothing() -> None:
    fleet = Fleet()
    fleet.world.workers.task_s = (5.0, 6.0)  # so that the job continues all the time
    job_id = fleet.submit(cluster_job("llf-cm", n_clusters=2, tol=0.0, max_rounds=50))
    assert fleet.world.run_until(fleet.world.now + 5.0, lambda: all(job_id in core.jobs.jobs for core in fleet.cores()))
    fleet.renew(2, "p3")
    fleet.sign(3, [name for name in fleet.names if name != "p4"], renewed={"p3": "new"})
    fleet.give(3, *fleet.names[:4])

    def barred(name: str) -> list[str]:
        (core,) = fleet.cores(name)
        return [other for other in fleet.names if core.jobs.jobs[job_id].bars(other)]

    assert barred("p1") == ["p3", "p4"]
    assert barred("p3") == ["p3", "p4"], "it knows it of itself"
    fleet.world.crash("p1")
    fleet.world.start("p1")
    assert barred("p1") == ["p3", "p4"]


def _log(fleet: Fleet, job_id: str) -> list[Any]:
    (core,) = fleet.cores("p1")
    job = core.jobs.jobs.get(job_id)
    return [] if job is None or job.ledger.register.ref is None else fleet.state(job_id).log
