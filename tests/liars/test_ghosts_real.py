"""The same over real connections: a liar with a key of the fleet against a real peer whose device has strict floors."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from tests.processes.by_hand import Fleet

from p2pclust.peer.core.codec import decode, encode
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.fleet_roster import RosterName
from p2pclust.peer.core.job_messages import Adopted, Synced
from p2pclust.peer.core.messages import Ack, FactDelta, Message, Ping, Update
from p2pclust.peer.core.spread.facts import Fact
from p2pclust.peer.core.treatment import Treatment
from p2pclust.peer.shell.signing import RosterSigner
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.transport.bundle import Bundle, load_bundle, load_roster
from p2pclust.transport.keys import add_devices, init_fleet
from p2pclust.transport.links import Lane
from p2pclust.transport.roster import Roster
from p2pclust.transport.zeromq import ZmqLinks

LIAR, VICTIM = "p02", "p00"
PEERS = ("p00", "p01", "p02")
pytestmark = [pytest.mark.processes, pytest.mark.slow]


class Liar:
    """Speaks for an enrolled device, over links of its own."""

    def __init__(self, bundle: Bundle, roster: Roster, listen: dict[str, str]) -> None:
        self.heard: list[Message] = []
        self.store: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._links = ZmqLinks(bundle, roster, listen[LIAR], self._take)
        self._links.connect(VICTIM, listen[VICTIM])
        self._signer = RosterSigner(bundle, roster)
        self._me = Update(LIAR, "alive", 1, listen[LIAR], "store-liar", "")
        self._version = 2**21

    def _take(self, source: str, frames: list[bytes], lane: Any) -> None:
        message = decode(frames)
        self.heard.append(message)
        if isinstance(message, Ping):
            self.send(Ack(message.seq, True, (self._me,)))
        elif isinstance(message, Ack) and not self.store.done():
            for update in message.updates:
                if update.name == VICTIM and update.store_id:
                    self.store.set_result(update.store_id)

    def send(self, message: Message) -> None:
        self._links.send(VICTIM, encode(message), Lane.CONTROL)

    def close(self) -> None:
        self._links.close()

    async def greets(self) -> None:
        """Ping the victim until it is cancelled, so that it knows the liar."""
        number = 10_000
        while True:
            number += 1
            self.send(Ping(number, (self._me,)))
            await asyncio.sleep(0.05)

    def publish(self, document: Document) -> None:
        before, self._version = self._version if self._version > 2**21 else 0, self._version + 1
        fact = Fact(LIAR, f"job/{document.id}", self._version, document.encode())
        signature = self._signer.sign_fact(fact)
        self.send(FactDelta(LIAR, before, (fact.key,), (fact.version,), (fact.value,), (signature,)))


def document(store: str, names: tuple[str, ...], named: RosterName, nonce: str) -> Document:
    job = cluster_job(
        "llf-cm", n_clusters=3, bounds=([-50.0, -50.0], [150.0, 150.0]), init="uniform", tol=0.0, secure=True
    )  # fmt: skip
    treatment = Treatment(
        "wait", 30.0, 600.0, 0.0, LIAR, "star", secure=True, keepers=3, cohort=5 if len(names) == 5 else 3, burnt="groups",
        leave="groups", colluders=1,
    )  # fmt: skip
    stores = tuple({VICTIM: store, LIAR: "store-liar"}.get(name, "s") for name in names)
    return Document(bytes(msgpack.packb(job.to_dict())), names, stores, treatment, LIAR, nonce, fleet_roster=named)


async def attack(fleet: Fleet, home: Path) -> list[Message]:
    bundle = load_bundle(home / f"{LIAR}.bundle")
    roster = load_roster(home / "roster.json", bundle.fleet_public)
    in_force = _name(home / "roster.json", roster.serial)
    liar = Liar(bundle, roster, fleet.listen)
    greets = asyncio.create_task(liar.greets())
    try:
        store = await asyncio.wait_for(liar.store, 60.0)
        honest = document(store, PEERS, in_force, "3")
        liar.publish(document(store, ("ghost-a", "ghost-b", "ghost-c", VICTIM, LIAR), in_force, "1"))
        liar.publish(document(store, PEERS, RosterName(roster.serial, b"x" * 32), "2"))
        liar.publish(honest)
        async with asyncio.timeout(60.0):
            while not any(isinstance(message, Synced) and message.job == honest.id for message in liar.heard):
                await asyncio.sleep(0.05)
    finally:
        greets.cancel()
        liar.close()
    return liar.heard


def _name(file: Path, serial: int) -> RosterName:
    return RosterName(serial, hashlib.sha256(file.read_bytes()).digest())


def test_a_real_device_with_strict_floors_gives_a_liar_with_ghosts_no_key(tmp_path: Path) -> None:
    init_fleet(tmp_path / "fleet")
    add_devices(tmp_path / "fleet", ["p00", "p01", "p02"])
    arrays = [np.random.default_rng(number).normal(20 * number, 5, (40, 2)) for number in range(3)]
    floor = {"secure": True, "keep": True}

    def settings(name: str) -> dict[str, Any]:
        return {"bundle": f"../fleet/{name}.bundle", "roster": "../fleet/roster.json", "privacy": floor}

    with Fleet(tmp_path, arrays, settings) as fleet:
        fleet.start(VICTIM)
        heard = asyncio.run(attack(fleet, tmp_path / "fleet"))
        reasons = [line["reason"] for line in fleet.verbs(VICTIM, "bad-document")]
        jobs = [line["job"] for line in fleet.verbs(VICTIM, "job")]
    assert [message for message in heard if isinstance(message, Adopted)] == []
    serial = load_bundle(tmp_path / "fleet" / "p02.bundle").roster.serial  # type: ignore[union-attr]
    assert reasons == [
        f"it names ghost-a, which is not on fleet roster {serial}",
        f"fleet roster {serial} is another one than it names",
    ]
    assert len(jobs) == 1, "the third document, which names the roster in force and its peers, is that of a job"
