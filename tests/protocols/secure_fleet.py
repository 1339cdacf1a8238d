"""A fleet with device keys for tests of secure sums, without peers: what all know, and what each would answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from p2pclust.peer.core.tasks import JobKeys
from p2pclust.protocols.engine.secure_rounds import Terms
from p2pclust.protocols.secure.key_list import FleetKeys, KeyEntry, keeper_order
from p2pclust.protocols.secure.pads import ENTROPY_BYTES, KeyPair
from p2pclust.protocols.secure.parameters import SecureSums

__all__ = ["ASKS", "FLEET", "JOB", "SecureFleet"]

FLEET = b"f" * 32
JOB = "job-1"
#: The digest of the state that asks for keys.
ASKS = b"a" * 32


class SecureFleet:
    """`n_peers` devices, and the terms of one job."""

    def __init__(
        self, n_peers: int, keepers: int = 3, cohort: int = 3, burnt: str = "groups", leave: str = "alone",
        groups: int = 0,
    ) -> None:  # fmt: skip
        rng = np.random.default_rng(11)
        self.n_peers = n_peers
        self.devices = [Ed25519PrivateKey.from_private_bytes(rng.bytes(32)) for _ in range(n_peers)]
        self.pairs = [KeyPair(rng.bytes(ENTROPY_BYTES)) for _ in range(n_peers)]
        self.secure = SecureSums(keepers, cohort, burnt, leave, groups, colluders=min(keepers - 1, cohort - 2))
        known = FleetKeys(FLEET, b"s" * 32, [device.public_key().public_bytes_raw() for device in self.devices])
        self.terms = Terms(JOB, self.secure, known)
        #: All peers in the order in which they become keepers.
        self.order = keeper_order(known, range(n_peers))

    def job_keys(self, secure: SecureSums | None, *, verify: bool = False, barred: int = 0) -> JobKeys:
        """What tasks are given."""
        known = self.terms.keys
        return JobKeys(JOB, secure, known.roster, tuple(known.devices), verify, barred)

    def answer(
        self, peer: int, *, columns: int = 2, refusal: str = "", taken: int | None = 0, sets: tuple[int, ...] = ()
    ) -> KeyEntry:  # fmt: skip
        """What a peer answers when the state `ASKS` asks it for a key."""
        columns = 0 if refusal else columns
        bare = KeyEntry(
            peer, self.pairs[peer].public, columns, insists=False, refusal=refusal, taken=taken, sets=sets
        )  # fmt: skip
        return replace(bare, signature=self.devices[peer].sign(bare.statement(FLEET, JOB, ASKS)))

    def answers(self, peers: Sequence[int] | None = None, *, taken: int | None = 0) -> dict[int, KeyEntry]:
        """What these peers answer, or all."""
        return {peer: self.answer(peer, taken=taken) for peer in (range(self.n_peers) if peers is None else peers)}
