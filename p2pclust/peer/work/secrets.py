"""What one life of a peer keeps secret for secure sums: its keys of each job, and the device's signature.

Nothing here is ever on disk, and what belongs to a job is forgotten when the job ends. The worker alone uses it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from p2pclust.peer.core.tasks import JobKeys, PadsKept
from p2pclust.protocols.engine import secure_rounds
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.secure_rounds import Terms
from p2pclust.protocols.private.ledger import PeerSet
from p2pclust.protocols.secure.check_words import CheckedRound
from p2pclust.protocols.secure.key_list import FleetKeys, KeyEntry, KeyList
from p2pclust.protocols.secure.secured import Secured

if TYPE_CHECKING:
    from p2pclust.protocols.secure.pads import KeyPair

_Entries = tuple[KeyEntry, ...]


@dataclass
class _OfJob:
    terms: Terms
    asks: bytes = b""  # the digest of the state that asked for the key pair
    pair: KeyPair | None = field(default=None, repr=False)
    opened: bytes = b""  # the private key of check words that this peer shows to that state
    bound: _Entries = ()  # the only list of keys with which the pair may be used; empty: none yet
    believed: _Entries = ()  # the list that was checked last
    keepers: tuple[_Entries, int, dict[int, bytes]] = ((), -1, {})  # for a list of keys and a maker
    given: dict[int, None] = field(default_factory=dict)  # with leave = "groups": sets that it contributed to
    last: tuple[bytes, tuple[int, ...]] = (b"", ())  # the same of the last context, with the digest of its state


@dataclass
class Secrets:
    """The secrets of one life of a peer."""

    fleet: bytes  # the fleet's public key, 32 bytes
    sign: Callable[[bytes], bytes] = field(repr=False)  # with the device's Ed25519 key
    entropy: Callable[[int], bytes] = field(repr=False)  # returns this many secret random bytes
    insists: bool = False  # whether this peer contributes only if it keeps pads itself
    #: Notes in the device's ledger, on disk, a job, what it takes of the privacy budget (mu**2), its cohort, and, if asked
    #: for, the sets of peers whose sums may be revealed; returns why not, or an empty string.
    reserve: Callable[[str, float, int, Callable[[], Sequence[PeerSet]]], str] = field(
        default=lambda job, mu_squared, cohort, sets: "", repr=False
    )
    _jobs: dict[str, _OfJob] = field(default_factory=dict, repr=False)
    _rows: tuple[Local, bytes] | None = field(default=None, repr=False)

    def _of(self, keys: JobKeys) -> _OfJob:
        if keys.job_id not in self._jobs:
            assert keys.secure is not None, "a job without secure sums"
            self._jobs[keys.job_id] = _OfJob(Terms(keys.job_id, keys.secure, self.fleet_keys(keys)))
        return self._jobs[keys.job_id]

    def forget(self, job: str) -> None:
        self._jobs.pop(job, None)

    def terms(self, keys: JobKeys) -> Terms:
        """Return what all peers know of a job from its document."""
        return self._of(keys).terms

    def problem_with_state(self, keys: JobKeys, state: JobState) -> str:
        """Return why a state that arrived cannot be one of the job, or an empty string."""
        return secure_rounds.problem_with_state(state, self.terms(keys))

    def fleet_keys(self, keys: JobKeys) -> FleetKeys:
        """Return the keys of a job's peers."""
        return FleetKeys(self.fleet, keys.fleet_roster_digest, keys.devices)

    def renew(self, keys: JobKeys, asks: bytes, bare: KeyEntry, checked: CheckedRound | None = None) -> KeyEntry:
        """Return this peer's answer to a state that is open for keys, signed; the keys of an earlier state are forgotten.

        Asked again for the same state, the key is the same, unless it was used with a list of keys meanwhile. `asks` is the
        digest of the state, `bare` the answer without its key, and `checked` the round of which the state asks for keys of
        check words.
        """
        from p2pclust.protocols.secure.pads import ENTROPY_BYTES, KeyPair  # noqa: PLC0415 - takes 8 MB

        known = self._of(keys)
        if known.asks != asks:
            own = None if known.pair is None or checked is None else known.pair.check
            known.opened = own.private if own and checked and own.public == checked.public.get(bare.index) else b""
        if known.pair is None or known.asks != asks or known.bound:
            known.asks, known.pair, known.bound = asks, KeyPair(self.entropy(ENTROPY_BYTES)), ()
        entry = replace(bare, public=known.pair.public, insists=self.insists, opened=known.opened)
        return replace(entry, signature=self.sign(entry.statement(self.fleet, keys.job_id, asks)))

    def pair(self, keys: JobKeys, me: int, part: Secured) -> KeyPair | None:
        """Return the key pair that this peer has on the list of keys of a padded state, and bind it to that list.

        None if this life of the peer does not have it any more, or has used it with another list: that one may have other
        keepers, which do not know what those of this one have released.
        """
        known = self._of(keys)
        mine = [entry for entry in part.entries if entry.index == me]
        if not mine or known.pair is None or mine[0].public != known.pair.public:
            return None
        if known.bound and known.bound != part.entries:
            return None
        known.bound = part.entries
        return known.pair

    def known_sets(self, keys: JobKeys, part: Secured, pads: PadsKept) -> tuple[int, ...]:
        """Return the sets of a job that this peer knows, whatever a state names.

        These are the sets for which it took pads away. With ``leave = "groups"`` only the sum of all that are asked is
        revealed; so these are also the sets that it was asked in when it contributed, unless the keepers
        of that context say, on a list of keys that this peer believes, that they took no pads away.
        """
        known = self._of(keys)
        digest, sets = known.last
        if part.wants_keys and part.unsettled is not None and part.unsettled.state == digest:
            sets = ()  # what is reported about this context is another part of the answer
        return tuple(dict.fromkeys((*pads.released, *known.given, *sets)))

    def contributed(self, keys: JobKeys, state: bytes, sets: tuple[int, ...]) -> None:
        """Note that this peer contributed to a state in which the sums of these sets may be revealed."""
        known = self._of(keys)
        if known.terms.secure.leave == "groups" and known.last[0] != state:
            known.given |= dict.fromkeys(known.last[1])
            known.last = (state, sets)

    def digest_of(self, local: Local) -> bytes:
        """Return a digest of a peer's rows, which is made once as long as they are the same object."""
        if self._rows is None or self._rows[0] is not local:
            whole = hashlib.blake2b(digest_size=32)
            for array in [local.X] if local.weights is None else [local.X, local.weights]:
                whole.update(str(array.shape).encode())
                whole.update(np.ascontiguousarray(array).tobytes())
            self._rows = (local, whole.digest())
        return self._rows[1]

    def problem_with(self, keys: JobKeys, part: Secured) -> str:
        """Return why the list of keys of a padded state is not believed, or an empty string; each list is checked once.

        If its keepers say that nothing was revealed of this peer's last contribution, the sets of that one are forgotten.
        """
        known = self._of(keys)
        if known.believed != part.entries:
            if problem := KeyList(part.entries).problem_with(known.terms.keys, keys.job_id, part.asks):
                return problem
            u = part.unsettled
            if (
                u is not None
                and u.state == known.last[0]
                and secure_rounds.settles(part.entries, u, known.terms.secure)
            ):
                known.last = (b"", ())
        known.believed = part.entries  # this object: most states have the same one
        return ""

    def keepers(self, keys: JobKeys, part: Secured) -> dict[int, bytes]:
        """Return who keeps pads of a padded state, with their public keys."""
        known = self._of(keys)
        entries, maker, found = known.keepers
        if (entries, maker) != (part.entries, part.maker.index):
            # Without the maker, which may be another by now.
            found = secure_rounds.keepers(part, known.terms)
        known.keepers = (part.entries, part.maker.index, found)
        return found
