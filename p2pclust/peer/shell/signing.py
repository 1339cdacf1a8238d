"""Signatures of relayed messages, for which the CURVE key of the connection is not that of the sender."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from p2pclust.peer.core.messages import Relay
from p2pclust.transport.bundle import Bundle
from p2pclust.transport.roster import Roster

__all__ = ["RosterSigner"]


class RosterSigner:
    """Signs with the device's Ed25519 key, and checks against the keys of the fleet roster.

    `cryptography`, which takes 8 MB, is imported with the first relayed message: most peers never receive one.
    """

    def __init__(self, bundle: Bundle, roster: Roster) -> None:
        self._bundle = bundle
        self._fleet_id = roster.fleet_id
        self.set_roster(roster)

    def set_roster(self, roster: Roster) -> None:
        """Replace the roster: signatures of peers that are not on it are invalid."""
        self._keys = {peer.name: peer.sign_public for peer in roster.peers}

    def sign(self, target: str, frames: Sequence[bytes]) -> bytes:
        """Sign a message from this peer to `target`."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

        key = Ed25519PrivateKey.from_private_bytes(self._bundle.sign_secret)
        return key.sign(self._digest(self._bundle.name, target, frames))

    def valid(self, relay: Relay) -> bool:
        """Return True if the origin signed this message, to this target, in this fleet."""
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

        public = self._keys.get(relay.origin)
        if public is None:
            return False
        try:
            key = Ed25519PublicKey.from_public_bytes(public)
            key.verify(relay.signature, self._digest(relay.origin, relay.target, relay.inner))
        except InvalidSignature:
            return False
        return True

    def _digest(self, origin: str, target: str, frames: Sequence[bytes]) -> bytes:
        whole = hashlib.blake2b(person=b"p2pclust relay")
        for part in (self._fleet_id.encode(), origin.encode(), target.encode(), *frames):
            whole.update(len(part).to_bytes(8, "little"))  # so that no two messages have the same bytes
            whole.update(part)
        return whole.digest()
