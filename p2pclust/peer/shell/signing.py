"""Signatures of what other peers pass on: relayed messages, and facts if the fleet roster says that peers sign them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from p2pclust.peer.core.messages import Relay
from p2pclust.peer.core.spread.facts import Fact
from p2pclust.transport.bundle import Bundle
from p2pclust.transport.roster import Roster
from p2pclust.transport.wire import fact_statement, statement, verified

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_RELAY = b"p2pclust relay"
_MOST_SIGNED = 2048  # signatures of own facts that are kept; a fact without one is signed again


class RosterSigner:
    """Signs with the device's Ed25519 key, and checks against the keys of the fleet roster.

    `cryptography`, which takes 8 MB, is imported with the first relayed message or signed fact: a peer of a fleet that
    does not sign facts most often needs neither.
    """

    def __init__(self, bundle: Bundle, roster: Roster) -> None:
        self._bundle = bundle
        self._fleet_id = roster.fleet_id
        self._secret: Ed25519PrivateKey | None = None
        self.signs_facts = roster.signs_facts  # whether all peers of the fleet sign their facts
        self._signed: dict[str, tuple[int, bytes]] = {}  # by key of an own fact: its newest version, and the signature
        self.set_roster(roster)

    def set_roster(self, roster: Roster) -> None:
        """Replace the roster: signatures of peers that are not on it are invalid."""
        self._keys = {peer.name: peer.sign_public for peer in roster.peers}

    def sign(self, target: str, frames: Sequence[bytes]) -> bytes:
        return self._key().sign(statement(_RELAY, self._fleet_id, self._bundle.name, target, frames))

    def valid(self, relay: Relay) -> bool:
        """Return True if the origin signed this message, to this target, in this fleet."""
        signed = statement(_RELAY, self._fleet_id, relay.origin, relay.target, relay.inner)
        return verified(self._keys.get(relay.origin, b""), relay.signature, signed)

    def sign_fact(self, fact: Fact) -> bytes:
        """Sign a fact of this peer; each version once."""
        version, signature = self._signed.get(fact.key, (0, b""))
        if version != fact.version:
            signature = self._key().sign(self._statement(fact))
            self._signed.pop(fact.key, None)
            self._signed[fact.key] = (fact.version, signature)
            if len(self._signed) > _MOST_SIGNED:
                del self._signed[next(iter(self._signed))]
        return signature

    def enrolled(self, owner: str) -> bool:
        return owner in self._keys

    def fact_valid(self, fact: Fact) -> bool:
        """Return True if its owner signed this fact, in this fleet."""
        return verified(self._keys.get(fact.owner, b""), fact.signature, self._statement(fact))

    def _statement(self, fact: Fact) -> bytes:
        return fact_statement(self._fleet_id, fact.owner, fact.key, fact.version, fact.value)

    def _key(self) -> Ed25519PrivateKey:
        if self._secret is None:
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

            self._secret = Ed25519PrivateKey.from_private_bytes(self._bundle.sign_secret)
        return self._secret
