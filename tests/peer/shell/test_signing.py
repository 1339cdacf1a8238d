"""Signatures on what others pass on: relayed messages and facts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.throwaway import throwaway_fleet

from p2pclust.peer.core.messages import Relay
from p2pclust.peer.core.spread.facts import Fact
from p2pclust.peer.shell.signing import RosterSigner

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


# -- facts ----------------------------------------------------------------------------------------------------------------


FACT = Fact("a", "links", 7, b"value")


@pytest.fixture(scope="module")
def strict() -> dict[str, RosterSigner]:
    """The signers of a fleet whose roster says that all peers sign their facts."""
    roster, bundles = throwaway_fleet(["a", "b", "c"])
    return {name: RosterSigner(bundle, replace(roster, signs_facts=True)) for name, bundle in bundles.items()}


def test_a_fact_with_its_owners_signature_is_valid_at_every_peer(strict: dict[str, RosterSigner]) -> None:
    fact = replace(FACT, signature=strict["a"].sign_fact(FACT))
    assert all(signer.signs_facts and signer.fact_valid(fact) for signer in strict.values())


@pytest.mark.parametrize(
    "changed",
    [
        {"owner": "b"},
        {"owner": "stranger"},
        {"key": "fitness"},
        {"key": "linksv", "value": b"alue"},
        {"version": 8},
        {"value": b"valuf"},
        {"signature": b""},
        {"signature": bytes(64)},
    ],
    ids=str,
)
def test_a_signature_is_valid_for_one_fact_only(strict: dict[str, RosterSigner], changed: dict[str, object]) -> None:
    fact = replace(FACT, signature=strict["a"].sign_fact(FACT))
    assert not strict["b"].fact_valid(replace(fact, **changed))  # type: ignore[arg-type]


def test_a_peer_cannot_sign_the_fact_of_another(strict: dict[str, RosterSigner]) -> None:
    assert not strict["b"].fact_valid(replace(FACT, signature=strict["c"].sign_fact(FACT)))


def test_a_newer_version_of_a_key_has_a_signature_of_its_own(strict: dict[str, RosterSigner]) -> None:
    """The signer remembers the last one of each key."""
    for version in (1, 2, 1):
        fact = replace(FACT, key="again", version=version)
        assert strict["b"].fact_valid(replace(fact, signature=strict["a"].sign_fact(fact)))


def test_few_signatures_are_kept(strict: dict[str, RosterSigner], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("p2pclust.peer.shell.signing._MOST_SIGNED", 3)
    for number in range(9):
        fact = replace(FACT, key=f"job/{number}")
        assert strict["b"].fact_valid(replace(fact, signature=strict["a"].sign_fact(fact)))
    assert list(strict["a"]._signed) == ["job/6", "job/7", "job/8"]


def test_a_signature_of_another_fleet_with_the_same_names_is_invalid(strict: dict[str, RosterSigner]) -> None:
    _, bundles = throwaway_fleet(["a"])
    roster, _ = throwaway_fleet(["a"])
    other = RosterSigner(bundles["a"], roster)
    assert not strict["b"].fact_valid(replace(FACT, signature=other.sign_fact(FACT)))
