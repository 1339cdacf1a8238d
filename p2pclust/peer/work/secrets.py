"""What one life of a peer keeps secret for secure sums: its keys of each job, and the device's signature.

Nothing here is ever on disk. The worker alone uses it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from p2pclust.peer.core.tasks import JobKeys
from p2pclust.protocols.engine import secure_rounds
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.secure_rounds import Terms
from p2pclust.protocols.private.ledger import PeerSet
from p2pclust.protocols.secure.key_list import FleetKeys, KeyEntry, KeyList
from p2pclust.protocols.secure.pads import ENTROPY_BYTES, KeyPair
from p2pclust.protocols.secure.secured import Secured

__all__ = ["Secrets"]

_MOST_JOBS: Final = 64  # to remember keys of; there are never as many unfinished ones


@dataclass
class Secrets:
    """The secrets of one life of a peer.

    Parameters
    ----------
    fleet : bytes
        The fleet's public key, 32 bytes.
    sign : callable
        Signs bytes with the device's Ed25519 key.
    entropy : callable
        Returns so many secret random bytes.
    insists : bool
        Whether this peer contributes only if it keeps pads itself.
    reserve : callable
        Notes in the device's ledger, on disk, a job, what it takes of the privacy budget (mu**2), its cohort, and, if
        asked for, the sets of peers whose sums may be revealed; returns why not, or an empty string.
    """

    fleet: bytes
    sign: Callable[[bytes], bytes] = field(repr=False)
    entropy: Callable[[int], bytes] = field(repr=False)
    insists: bool = False
    reserve: Callable[[str, float, int, Callable[[], Sequence[PeerSet]]], str] = field(
        default=lambda job, mu_squared, cohort, sets: "", repr=False
    )
    _pairs: dict[str, tuple[bytes, KeyPair]] = field(default_factory=dict, repr=False)
    _terms: dict[str, Terms] = field(default_factory=dict, repr=False)
    _keepers: dict[str, tuple[tuple[KeyEntry, ...], int, dict[int, bytes]]] = field(default_factory=dict, repr=False)
    _believed: dict[str, tuple[KeyEntry, ...]] = field(default_factory=dict, repr=False)
    _rows: tuple[Local, bytes] | None = field(default=None, repr=False)

    def terms(self, keys: JobKeys) -> Terms:
        """Return what all peers know of a job from its document."""
        if keys.job not in self._terms:
            assert keys.secure is not None, "a job without secure sums"
            self._terms[keys.job] = Terms(keys.job, keys.secure, self.fleet_keys(keys))
            _forget_oldest(self._terms)
        return self._terms[keys.job]

    def fleet_keys(self, keys: JobKeys) -> FleetKeys:
        """Return the keys that a job's document names."""
        return FleetKeys.pinned(self.fleet, keys.pins)

    def renew(self, keys: JobKeys, state: bytes, index: int, columns: int) -> KeyEntry:
        """Return this peer's entry for a state that is open for keys; the keys of an earlier state are forgotten.

        Asked again for the same state, the keys are the same.
        """
        known = self._pairs.get(keys.job)
        if known is None or known[0] != state:
            self._pairs[keys.job] = (state, KeyPair(self.entropy(ENTROPY_BYTES)))
            _forget_oldest(self._pairs)
        public = self._pairs[keys.job][1].public
        bare = KeyEntry(index, public, columns, self.insists)
        return KeyEntry(index, public, columns, self.insists, self.sign(bare.statement(self.fleet, keys.job)))

    def pair(self, keys: JobKeys, public: bytes) -> KeyPair | None:
        """Return the key pair with that public key, or None if this life of the peer does not have it any more."""
        _, pair = self._pairs.get(keys.job, (b"", None))
        return pair if pair is not None and pair.public == public else None

    def digest_of(self, local: Local) -> bytes:
        """Return a digest of a peer's rows, which is made once as long as they are the same object."""
        if self._rows is None or self._rows[0] is not local:
            self._rows = (local, _digest_of(local))
        return self._rows[1]

    def flaw(self, keys: JobKeys, entries: tuple[KeyEntry, ...]) -> str:
        """Return why a list of keys is not believed, or an empty string; each list is checked once."""
        if self._believed.get(keys.job) == entries:
            return ""
        flaw = KeyList(entries).flaw(self.terms(keys).keys, keys.job)
        if not flaw:
            self._believed[keys.job] = entries
            _forget_oldest(self._believed)
        return flaw

    def keepers(self, keys: JobKeys, part: Secured) -> dict[int, bytes]:
        """Return who keeps pads of a padded state, with their public keys."""
        known = self._keepers.get(keys.job)
        if known is None or known[0] is not part.entries or known[1] != part.maker.index:
            keepers = secure_rounds.keepers(part, self.terms(keys))  # without the maker, which may be another by now
            known = self._keepers[keys.job] = (part.entries, part.maker.index, keepers)
            _forget_oldest(self._keepers)
        return known[2]


def _digest_of(local: Local) -> bytes:
    whole = hashlib.blake2b(digest_size=32)
    for array in [local.X] if local.weights is None else [local.X, local.weights]:
        whole.update(str(array.shape).encode())
        whole.update(np.ascontiguousarray(array).tobytes())
    return whole.digest()


def _forget_oldest(table: dict[str, Any]) -> None:
    while len(table) > _MOST_JOBS:
        del table[next(iter(table))]
