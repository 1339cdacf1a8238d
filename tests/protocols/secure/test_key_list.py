"""Lists of keys: signed entries, and keepers that no aggregator can choose."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from p2pclust.protocols.secure.key_list import FleetKeys, KeyEntry, KeyList

JOB = "job-1"
FLEET, ASKS = b"f" * 32, b"a" * 32


def fleet(n_peers: int, *, roster: bytes = b"s" * 32) -> tuple[FleetKeys, list[Ed25519PrivateKey]]:
    rng = np.random.default_rng(3)
    devices = [Ed25519PrivateKey.from_private_bytes(rng.bytes(32)) for _ in range(n_peers)]
    public = [device.public_key().public_bytes_raw() for device in devices]
    return FleetKeys(FLEET, roster, public), devices


def signed(entry: KeyEntry, device: Ed25519PrivateKey, *, job: str = JOB) -> KeyEntry:
    return replace(entry, signature=device.sign(entry.statement(FLEET, job, ASKS)))


def listed(devices: list[Ed25519PrivateKey]) -> KeyList:
    entries = [KeyEntry(i, bytes([i + 1]) * 64, 4, insists=False) for i in range(len(devices))]
    return KeyList(tuple(signed(entry, device) for entry, device in zip(entries, devices, strict=True)))


def test_a_list_that_all_have_signed_is_sound() -> None:
    known, devices = fleet(4)
    assert listed(devices).problem_with(known, JOB, ASKS) == ""


@pytest.mark.parametrize(
    "change",
    [
        {"public": b"\x09" * 64}, {"columns": 5}, {"insists": True}, {"signature": bytes(64)}, {"refusal": "no"},
        {"taken": None}, {"taken": 7}, {"sets": (7,)},
        {"opened": bytes(32)},
    ],
)  # fmt: skip
def test_an_entry_that_was_changed_is_named(change: dict[str, object]) -> None:
    known, devices = fleet(4)
    entries = list(listed(devices).entries)
    entries[2] = replace(entries[2], **change)  # type: ignore[arg-type]
    assert (
        KeyList(tuple(entries)).problem_with(known, JOB, ASKS) == "peer 2 has not signed its entry in the list of keys"
    )


def test_an_entry_counts_for_one_peer_one_job_and_one_fleet() -> None:
    known, devices = fleet(3)
    sound = listed(devices)
    assert sound.problem_with(known, "job-2", ASKS).startswith("peer 0 has not signed")
    assert sound.problem_with(replace(known, fleet=b"g" * 32), JOB, ASKS).startswith("peer 0 has not signed")
    assert sound.problem_with(known, JOB, b"b" * 32).startswith("peer 0 has not signed")
    moved = KeyList((replace(sound.entries[0], index=1),))
    assert moved.problem_with(known, JOB, ASKS).startswith("peer 1 has not signed")
    beyond = KeyList((replace(sound.entries[0], index=9),))
    assert beyond.problem_with(known, JOB, ASKS) == "peer 9 is not on the job roster"


def test_entries_are_in_roster_order_each_once() -> None:
    entry = KeyEntry(1, bytes(64), 2, insists=False)
    with pytest.raises(ValueError, match=r"peers \[1, 1\]"):
        KeyList((entry, entry))


def test_keepers_follow_from_the_fleet_roster_and_not_from_the_keys_of_the_job() -> None:
    known, devices = fleet(12)
    first = list(listed(devices).keepers(3, known, -1))
    other_keys = KeyList(tuple(replace(entry, public=b"z" * 64) for entry in listed(devices).entries))
    assert list(other_keys.keepers(3, known, -1)) == first
    orders = {tuple(listed(devices).keepers(3, fleet(12, roster=bytes([n]) * 32)[0], -1)) for n in range(20)}
    assert len(orders) > 10


def test_the_next_in_the_order_keeps_if_a_peer_is_left_off_the_list() -> None:
    known, devices = fleet(5)
    whole = listed(devices)
    first = list(whole.keepers(3, known, -1))
    without = KeyList(tuple(entry for entry in whole.entries if entry.index != first[0]))
    assert set(first[1:]) < set(without.keepers(3, known, -1))
    assert len(without.keepers(3, known, -1)) == 3


def test_who_insists_keeps_whatever_the_order() -> None:
    known, devices = fleet(6)
    last = next(i for i in range(6) if i not in listed(devices).keepers(5, known, -1))
    entries = [replace(entry, insists=entry.index == last) for entry in listed(devices).entries]
    assert last in KeyList(tuple(entries)).keepers(2, known, -1)
    assert len(KeyList(tuple(entries)).keepers(2, known, -1)) == 3


def test_impossible_entries_and_too_few_keepers_are_refused() -> None:
    known, devices = fleet(3)
    for wrong in (
        {"index": -1},
        {"index": 2**16},
        {"columns": 2**32},
        {"columns": -1},
        {"public": bytes(32)},
        {"opened": b"short"},
    ):
        with pytest.raises(ValueError, match="impossible"):
            replace(KeyEntry(0, bytes(64), 2, insists=False), **wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least 2"):
        listed(devices).keepers(1, known, -1)
