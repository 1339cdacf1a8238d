"""The job document: what a job is, fixed at its submission and the same at every peer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from functools import cached_property
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

import msgpack
import numpy as np

from p2pclust.errors import UsageError, WireError
from p2pclust.peer.core.fleet_roster import HeldRosters, RosterName
from p2pclust.peer.core.routing import Routing
from p2pclust.peer.core.tasks import JobKeys
from p2pclust.peer.core.treatment import Treatment
from p2pclust.tools.bit_sets import as_mask

if TYPE_CHECKING:
    from p2pclust.protocols.gossip.push_sum import GossipLinks


def majority(n_peers: int) -> int:
    """Return how many of a fixed roster, dead or alive, are a majority.

    Examples
    --------
    >>> [majority(n) for n in (1, 2, 3, 4, 5)]
    [1, 2, 2, 3, 3]
    """
    return n_peers // 2 + 1


def has_majority(names: Iterable[str], roster: tuple[str, ...]) -> bool:
    """Return whether the names are a majority of the roster; a name counts once, and only if it is on the roster.

    Examples
    --------
    >>> has_majority(["a", "a", "z"], ("a", "b", "c")), has_majority(["a", "c"], ("a", "b", "c"))
    (False, True)
    """
    needed, different = majority(len(roster)), set(names)
    return len(different) >= needed and len(different & set(roster)) >= needed


#: In the place of a job's mathematics: the roster agrees on the next document of a series (peer/core/spread/series.py).
CENSUS: Final = b"census"

#: The values of the treatment, in the order of a document, with their types.
_TREATMENT: Final = {field.name: type(field.default) for field in dataclass_fields(Treatment)}
_MAX_PEERS: Final = 4096
_DIGEST_BYTES: Final = 32
_MAX_NAME: Final = 64
_MAX_BYTES: Final = 56 * 1024
#: Of a gossip job on a full mesh, whose links are not written down: in each tick every peer sends to every other.
_MOST_IN_MESH: Final = 128


@dataclass(frozen=True, slots=True)
class Turn:
    """Which job of a series a document is; the next one begins `Treatment.every_s` after it has ended."""

    series: str
    number: int  # from 0
    fixed: bool  # whether the submitter named the job roster; otherwise it is all peers present when a turn begins

    def __post_init__(self) -> None:
        if type(self.series) is not str or not 0 < len(self.series) <= _MAX_NAME:
            raise UsageError("series: expected a name")
        if type(self.number) is not int or self.number < 0:
            raise UsageError("series: expected a number from 0")
        if type(self.fixed) is not bool:
            raise UsageError("fixed: expected true or false")


@dataclass(frozen=True)
class Document:
    """A job as the fleet sees it. Peers are known by their index in the sorted roster."""

    mathematics: bytes  # opaque to the core
    roster: tuple[str, ...]
    store_ids: tuple[str, ...]  # of each roster peer, at submission
    treatment: Treatment
    submitter: str  # empty: a round of another job wants it, and every peer of the roster derives this document
    #: Distinguishes equal jobs; a colon and the client's request id may follow. Of a child job: the parent's id, the round
    #: and a name, separated by slashes.
    nonce: str
    links: bytes = b""  # of collect = "gossip": the overlay as the submitter knew it, see `links_of`
    turn: Turn | None = None  # of a job that is repeated
    fleet_roster: RosterName | None = None  # with the keys of the job roster; None in a fleet without keys

    def __post_init__(self) -> None:
        if not self.roster or list(self.roster) != sorted(set(self.roster)) or len(self.roster) > _MAX_PEERS:
            raise UsageError("roster: expected different names, sorted")
        if len(self.store_ids) != len(self.roster):
            raise UsageError("store_ids: expected one for each roster peer")
        self.treatment.check()
        if self.treatment.aggregator and self.treatment.aggregator not in self.roster:
            raise UsageError(f"aggregator = {self.treatment.aggregator!r} is not on the roster")
        if (self.turn is None) != (self.treatment.every_s == 0):
            raise UsageError("every_s: for a job that is repeated, and for no other")
        if self.treatment.secure:
            self.treatment.secure_sums.check(len(self.roster))
        named = self.fleet_roster
        if named is None and self.treatment.keyed:
            raise UsageError("secure, verify: for fleets with keys, where the document names a fleet roster")
        if named is not None and (named.serial < 0 or len(named.digest) != _DIGEST_BYTES):
            raise UsageError("fleet_roster: expected a serial and a SHA-256")
        if self.treatment.collect != "gossip":
            if self.links:
                raise UsageError(f"links are for collect = 'gossip', not {self.treatment.collect!r}")
            return
        if not self.links and len(self.roster) > _MOST_IN_MESH:  # before the links are made: a liar may name thousands
            raise UsageError(
                f"collect = 'gossip': {len(self.roster)} peers on a full mesh, where at most {_MOST_IN_MESH} can average: "
                "give the fleet an overlay, or collect = 'tree'"
            )
        if not self.peers_links.connected:
            needs = "links between the peers of the roster that connect all of them, and the submitter to know these"
            raise UsageError(f"collect = 'gossip' needs {needs}")
        from p2pclust.protocols.gossip.averaging import problem_with_tolerance  # noqa: PLC0415 - of gossip jobs only

        if problem := problem_with_tolerance(self.treatment.gossip_tolerance, self.peers_links.hops):
            raise UsageError(problem)

    @cached_property
    def peers_links(self) -> GossipLinks:
        """The links of a gossip job, by roster index."""
        from p2pclust.protocols.gossip.push_sum import GossipLinks  # noqa: PLC0415 - of gossip jobs only

        n = len(self.roster)
        if not self.links:
            others = [[other for other in range(n) if other != peer] for peer in range(n)]
            return GossipLinks(others, self.treatment.mixing)
        if len(self.links) % 4:
            raise UsageError("links: expected pairs of roster indices")
        pairs = np.frombuffer(self.links, "<u2").reshape(-1, 2).tolist()
        if not all(a < b < n for a, b in pairs) or pairs != sorted(pairs):
            raise UsageError("links: expected pairs of roster indices, sorted")
        near: list[list[int]] = [[] for _ in range(n)]
        for a, b in pairs:
            near[a].append(b)
            near[b].append(a)
        return GossipLinks(near, self.treatment.mixing)

    @cached_property
    def id(self) -> str:
        """The name of the job: a digest of the document; remembered, because every message of the job bears it."""
        return "job-" + hashlib.blake2b(self.encode(), digest_size=16).hexdigest()

    @cached_property
    def parent(self) -> str:
        """The parent of a child job; empty for a submitted job."""
        return "" if self.submitter else self.nonce.split("/")[0]

    @property
    def request(self) -> str:
        """The client's id for the submission; empty if it gave none. Later turns of a series have that of the first."""
        return (self.series or self.nonce).partition(":")[2] if self.submitter else ""

    @cached_property
    def series(self) -> str | None:
        """The series that the job is a turn of."""
        return None if self.turn is None else self.turn.series

    @property
    def number(self) -> int:
        """The number of the turn; 0 for a job that is not repeated."""
        return 0 if self.turn is None else self.turn.number

    @cached_property
    def census(self) -> bool:
        """Whether the job is a census: it only agrees on the next document of a series."""
        return self.mathematics == CENSUS

    @property
    def parent_round(self) -> int:
        """The round of the parent that a child job belongs to."""
        return int(self.nonce.split("/")[1])

    def keys(self, rosters: HeldRosters, barred: Sequence[str] = ()) -> JobKeys | None:
        """Return what tasks need where devices sign; None elsewhere. `barred` are peers of the roster."""
        treatment, named = self.treatment, self.fleet_roster
        if not treatment.keyed or named is None:
            return None
        devices = rosters.held[named.digest].devices
        return JobKeys(
            self.id, treatment.secure_sums if treatment.secure else None, named.digest,
            tuple(devices[name] for name in self.roster),
            bool(treatment.verify), as_mask(self.index(name) for name in barred),
        )  # fmt: skip

    @cached_property
    def majority(self) -> int:
        """How many peers of the roster, dead or alive, are a majority."""
        return majority(len(self.roster))

    @cached_property
    def named(self) -> tuple[str, str | None]:
        """The first two fields of all reports on the job: its id, and its parent if it has one."""
        return self.id, self.parent or None

    def __contains__(self, name: str) -> bool:
        return name in self._indices

    def index(self, name: str) -> int:
        """The roster index of a peer."""
        return self._indices[name]

    @cached_property
    def _indices(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.roster)}

    def counts(self, name: str, store_id: str) -> bool:
        """Return whether a peer counts for a majority: only with the store that it had at submission."""
        # A peer that lost its store may have voted, or adopted a state, and no longer know it.
        index = self._indices.get(name, -1)
        return index >= 0 and self.store_ids[index] == store_id

    def encode(self) -> bytes:
        """Return canonical bytes; raise `UsageError` if the document is too large to be a fact."""
        turn = None if self.turn is None else [self.turn.series, self.turn.number, self.turn.fixed]
        named = None if self.fleet_roster is None else [self.fleet_roster.serial, self.fleet_roster.digest]
        fields = [
            self.mathematics, self.roster, self.store_ids, [getattr(self.treatment, name) for name in _TREATMENT],
            self.submitter, self.nonce, self.links, turn, named,
        ]  # fmt: skip
        data: bytes = msgpack.packb(fields)
        if len(data) > _MAX_BYTES:
            raise UsageError(f"the job document has {len(data)} bytes, at most {_MAX_BYTES} are possible")
        return data

    @classmethod
    def decode(cls, data: bytes) -> Document:
        """Read a document that may be hostile; raise `WireError` if it is not one."""
        if (known := _read.get(data)) is not None:
            return known
        if len(data) > _MAX_BYTES:
            raise WireError("job document too large")
        try:
            fields = msgpack.unpackb(data, raw=False, strict_map_key=True, max_ext_len=0)
            mathematics, roster, stores, treated, submitter, nonce, links, turn, named = fields
            serial, digest = (None, b"") if named is None else named
            if (
                [type(value) for value in treated] != list(_TREATMENT.values())
                or not all(type(value) is str for value in (*roster, *stores, submitter, nonce))
                or not all(type(value) is bytes for value in (mathematics, links, digest))
                or type(serial) not in (int, type(None))
            ):
                raise WireError("job document: wrong types")
            document = _read[data] = cls(
                mathematics, tuple(roster), tuple(stores), Treatment(*treated), submitter, nonce, links,
                None if turn is None else Turn(*turn), None if serial is None else RosterName(serial, digest),
            )  # fmt: skip
        except (ValueError, TypeError, UsageError, msgpack.UnpackException, RecursionError) as error:
            raise WireError(f"job document: {error}") from None
        return document


#: The documents that some peer of this process uses, by their bytes: simulated peers share what they read.
_read: WeakValueDictionary[bytes, Document] = WeakValueDictionary()


def links_of(routing: Routing, treatment: Treatment, roster: tuple[str, ...]) -> bytes:
    """Return the links between the peers of a gossip job: sorted pairs of roster indices, two bytes each; or none."""
    if treatment.collect != "gossip" or routing.whole:
        return b""
    place = {name: number for number, name in enumerate(roster)}
    pairs = {(place[a], place[b]) for a in roster for b in routing.neighbours_of(a) if place[a] < place.get(b, -1)}
    if not pairs and len(roster) > 1:
        raise UsageError("collect = 'gossip': this peer knows no links between the peers of the roster")
    return np.array(sorted(pairs), dtype="<u2").tobytes()


def roster_for(rosters: HeldRosters, treatment: Treatment, peers: Sequence[str]) -> RosterName | None:
    """Return the fleet roster that the document of a new job names; None in a fleet without keys."""
    if rosters.in_force is None:
        if not treatment.keyed:
            return None
        asked, who = ("secure", "a keeper") if treatment.secure else ("verify", "any peer")
        why = f"this fleet has no keys, so any process could pretend to be {who}"
        raise UsageError(f"{asked}: {why}: `p2pclust keys init`{'; or set secure = false' * treatment.secure}")
    if strange := [name for name in peers if name not in rosters.in_force.devices]:
        raise UsageError(f"not on the fleet roster of this peer: {', '.join(strange)}")
    return rosters.in_force.name
