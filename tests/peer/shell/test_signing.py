"""Signatures on what others carry."""

from __future__ import annotations

from dataclasses import replace

import pytest

from p2pclust.peer.core.messages import Relay
from p2pclust.peer.shell.signing import RosterSigner
from p2pclust.transport.keys import throwaway_fleet

FRAMES = (b"header", b"frame one", b"")


@pytest.fixture(scope="module")
def signers() -> dict[str, RosterSigner]:
    roster, bundles = throwaway_fleet(["a", "b", "c"])
    return {name: RosterSigner(bundle, roster) for name, bundle in bundles.items()}


@pytest.fixture
def relay(signers: dict[str, RosterSigner]) -> Relay:
    """From a to b."""
    return Relay("a", "b", signers["a"].sign("b", FRAMES), FRAMES)


def test_everybody_in_the_fleet_can_check_it(signers: dict[str, RosterSigner], relay: Relay) -> None:
    assert all(signer.valid(relay) for signer in signers.values())


@pytest.mark.parametrize(
    "changed",
    [
        {"origin": "b"},
        {"origin": "stranger"},
        {"target": "c"},
        {"inner": (b"header", b"frame two", b"")},
        {"inner": (b"header", b"frame one")},
        {"inner": (b"header", b"frame one", b"", b"")},
        {"inner": (b"headerframe", b" one", b"")},
        {"inner": (b"frame one", b"header", b"")},
        {"signature": b""},
        {"signature": b"\0" * 64},
        {"signature": b"\0" * 1000},
    ],
)
def test_whatever_was_changed_on_the_way_is_noticed(
    signers: dict[str, RosterSigner], relay: Relay, changed: dict[str, object]
) -> None:
    assert not signers["b"].valid(replace(relay, **changed))  # type: ignore[arg-type]


def test_a_carrier_cannot_sign_for_another(signers: dict[str, RosterSigner]) -> None:
    forged = Relay("a", "b", signers["c"].sign("b", FRAMES), FRAMES)
    assert not signers["b"].valid(forged)


def test_a_message_of_another_fleet_with_the_same_names_is_none_of_ours(relay: Relay) -> None:
    roster, bundles = throwaway_fleet(["a", "b", "c"])
    assert not RosterSigner(bundles["b"], roster).valid(relay)


def test_a_flipped_bit_anywhere_in_the_signature(signers: dict[str, RosterSigner], relay: Relay) -> None:
    for position in range(64):
        flipped = bytearray(relay.signature)
        flipped[position] ^= 1 << position % 8
        assert not signers["b"].valid(replace(relay, signature=bytes(flipped)))
