"""The job document: what a job is, fixed at its submission and the same at every peer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import msgpack
import numpy as np

from p2pclust.errors import UsageError, WireError
from p2pclust.peer.core.timing import PRESETS
from p2pclust.protocols.gossip.averaging import tolerance_flaw
from p2pclust.protocols.gossip.push_sum import Links

__all__ = ["CENSUS", "COLLECT", "LEAST_PATIENCE_S", "MISSING", "Document", "Turn", "every_flaw", "pack_links"]

#: What happens when a peer of the roster does not answer (docs/peer/rounds.md, "Missing peers").
MISSING: Final = ("all", "wait", "drop")

#: How contributions come together (docs/peer/tree.md, "Sums along a tree").
COLLECT: Final = ("star", "tree", "gossip")

#: In the place of a job's mathematics: the roster agrees on the next document of a series (peer/core/spread/series.py).
CENSUS: Final = b"census"

#: Followers learn with the next heartbeat at the latest that a turn is over. The slowest heartbeat of all presets counts,
#: so that a document is valid at every peer or at none.
_LEAST_EVERY_S: Final = max(timing.heartbeat_s for timing in PRESETS.values())

#: A person may not set less: a peer would be passed over before a message to it could be repeated once. Documents that are
#: here already are read whatever they say.
LEAST_PATIENCE_S: Final = 0.1

_MAX_PEERS: Final = 4096
_FOREVER_S: Final = 1e9
_MAX_NAME: Final = 64
_MAX_BYTES: Final = 56 * 1024
_MOST_TICKS: Final = 10**6


@dataclass(frozen=True, slots=True)
class Turn:
    """Which job of a series a document is: the next one begins so long after it has ended."""

    series: str
    number: int  # from 0
    every_s: float
    fixed: bool  # whether the submitter named the job roster; otherwise it is all peers present when a turn begins

    def __post_init__(self) -> None:
        if not 0 < len(self.series) <= _MAX_NAME or type(self.number) is not int or self.number < 0:
            raise UsageError("series: expected a name and a number from 0")
        if type(self.every_s) is not float or type(self.fixed) is not bool:
            raise UsageError("every_s and fixed: expected seconds, and true or false")
        if flaw := every_flaw(self.every_s):
            raise UsageError(f"every_s = {self.every_s:g}: {flaw}")


def every_flaw(every_s: float) -> str:
    """Return why a job cannot be repeated so long after each end, or an empty string.

    Examples
    --------
    >>> every_flaw(3600.0), every_flaw(1e-9)
    ('', 'expected at least 1 s, and less than 1e+09 s')
    """
    if _LEAST_EVERY_S <= every_s < _FOREVER_S:
        return ""
    return f"expected at least {_LEAST_EVERY_S:g} s, and less than {_FOREVER_S:g} s"


@dataclass(frozen=True)
class Document:
    """A job as the fleet sees it. Peers are known by their index in the sorted roster."""

    job: bytes  # the mathematics, opaque to the core
    roster: tuple[str, ...]
    store_ids: tuple[str, ...]  # of each roster peer, at submission
    missing: str
    patience_s: float
    deadline_s: float
    aggregator: str  # of term 1, or empty: elected
    submitter: str  # empty: a round of another job wants it, and every peer of the roster derives this document
    nonce: str  # distinguishes equal jobs; of a child job: the parent's id, the round and a name, separated by slashes
    collect: str = (
        "star"  # each contribution goes to the aggregator; or sums of them go up a tree; or nobody aggregates
    )
    # Of collect = "gossip" only:
    tolerance: float = 0.0  # how closely all estimates of a sum must agree
    mixing: str = ""  # push-sum | metropolis-hastings
    links: bytes = b""  # see `pack_links`: the overlay as the submitter knew it
    ticks: int = 0  # of a round after which each goes on from its own mixture, in stages that allow it; 0: never
    turn: Turn | None = None  # of a job that is repeated

    def __post_init__(self) -> None:
        if self.missing not in MISSING:
            raise UsageError(f"missing = {self.missing!r}: expected one of {', '.join(MISSING)}")
        if self.collect not in COLLECT:
            raise UsageError(f"collect = {self.collect!r}: expected one of {', '.join(COLLECT)}")
        if not self.roster or list(self.roster) != sorted(set(self.roster)) or len(self.roster) > _MAX_PEERS:
            raise UsageError("roster: expected different names, sorted")
        if len(self.store_ids) != len(self.roster):
            raise UsageError("store_ids: expected one for each roster peer")
        if self.aggregator and self.aggregator not in self.roster:
            raise UsageError(f"aggregator = {self.aggregator!r} is not on the roster")
        durations = (self.patience_s, self.deadline_s)
        if not all(type(s) is float and 0 <= s < _FOREVER_S for s in durations) or self.patience_s == 0:
            raise UsageError("patience_s and deadline_s: expected seconds, patience_s above 0")
        if self.missing == "drop" and self.deadline_s == 0:
            raise UsageError("missing = 'drop' needs deadline_s above 0")
        if self.collect == "gossip":
            self._check_gossip()
        elif self.tolerance or self.mixing or self.links or self.ticks:
            raise UsageError(f"tolerance, mixing and ticks are for collect = 'gossip', not {self.collect!r}")

    def _check_gossip(self) -> None:
        if self.aggregator or self.missing == "drop":
            told = f"aggregator = {self.aggregator!r}" if self.aggregator else "missing = 'drop'"
            raise UsageError(f"{told}: collect = 'gossip' has no aggregator, and so no deadline")
        if not self.peers_links.connected:
            raise UsageError(
                "collect = 'gossip' needs links between the peers of the roster that connect all of them, and the submitter "
                "to know these"
            )
        if type(self.ticks) is not int or not 0 <= self.ticks <= _MOST_TICKS:
            raise UsageError(f"ticks = {self.ticks!r}: expected a whole number from 0 to {_MOST_TICKS}")
        if flaw := tolerance_flaw(self.tolerance, self.peers_links.hops):
            raise UsageError(flaw)

    @cached_property
    def peers_links(self) -> Links:
        """The links of a gossip job, by roster index."""
        n = len(self.roster)
        if not self.links:
            return Links([[other for other in range(n) if other != peer] for peer in range(n)], self.mixing)
        if len(self.links) % 4:
            raise UsageError("links: expected pairs of roster indices")
        pairs = np.frombuffer(self.links, "<u2").reshape(-1, 2).tolist()
        if not all(a < b < n for a, b in pairs) or pairs != sorted(pairs):
            raise UsageError("links: expected pairs of roster indices, sorted")
        near: list[list[int]] = [[] for _ in range(n)]
        for a, b in pairs:
            near[a].append(b)
            near[b].append(a)
        return Links(near, self.mixing)

    @cached_property
    def id(self) -> str:
        """The name of the job: a digest of the document; remembered, because every message of the job bears it."""
        return "job-" + hashlib.blake2b(self.encode(), digest_size=16).hexdigest()

    @property
    def parent(self) -> str:
        """The parent of a child job; empty for a submitted job."""
        return "" if self.submitter else self.nonce.split("/")[0]

    @property
    def census(self) -> bool:
        """Whether the job is a census: it only agrees on the next document of a series."""
        return self.job == CENSUS

    @property
    def parent_round(self) -> int:
        """The round of the parent that a child job belongs to."""
        return int(self.nonce.split("/")[1])

    @cached_property
    def told(self) -> dict[str, str]:
        """The fields by which reports name the job, and its parent if it has one."""
        return {"job": self.id} | ({"within": self.parent} if self.parent else {})

    def __contains__(self, name: str) -> bool:
        """Whether the peer is on the roster."""
        return name in self._indices

    def index(self, name: str) -> int:
        """The roster index of a peer."""
        return self._indices[name]

    @cached_property
    def _indices(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.roster)}

    def counts(self, name: str, store_id: str) -> bool:
        """Return whether a peer counts for a majority: only with the store that it had at submission.

        A peer that lost its store may have voted, or adopted a state, without knowing it any more.
        """
        return name in self and self.store_ids[self.index(name)] == store_id

    def encode(self) -> bytes:
        """Canonical bytes.

        Raises
        ------
        UsageError
            If the document is too large to be a fact.
        """
        fields = [
            self.job, list(self.roster), list(self.store_ids), self.missing, self.patience_s,
            self.deadline_s, self.aggregator, self.submitter, self.nonce, self.collect,
        ]  # fmt: skip
        if self.collect == "gossip":
            fields += [self.tolerance, self.mixing, self.links, self.ticks]
        if self.turn is not None:
            turn = self.turn
            fields.append([turn.series, turn.number, turn.every_s, turn.fixed])
        data: bytes = msgpack.packb(fields)
        if len(data) > _MAX_BYTES:
            raise UsageError(f"the job document has {len(data)} bytes, at most {_MAX_BYTES} are possible")
        return data

    @classmethod
    def decode(cls, data: bytes) -> Document:
        """Read a document that may be hostile.

        Raises
        ------
        WireError
            If it is not one.
        """
        if len(data) > _MAX_BYTES:
            raise WireError("job document too large")
        try:
            fields = list(msgpack.unpackb(data, raw=False, strict_map_key=True, max_ext_len=0))
            job, roster, stores, missing, patience_s, deadline_s, aggregator, submitter, nonce, collect = fields[:10]
            rest = fields[10:] if collect == "gossip" else [0.0, "", b"", 0, *fields[10:]]
            turn = _turn(*rest.pop()) if len(rest) == 5 else None
            tolerance, mixing, links, ticks = rest
            if not isinstance(job, bytes) or not all(type(x) is str for x in (*roster, *stores)):
                raise WireError("job document: wrong types")
            if not all(type(x) is str for x in (missing, aggregator, submitter, nonce, collect, mixing)):
                raise WireError("job document: wrong types")
            if not all(type(x) is float for x in (patience_s, deadline_s, tolerance)):
                raise WireError("job document: wrong types")
            if type(links) is not bytes or type(ticks) is not int:
                raise WireError("job document: wrong types")
            return cls(
                job, tuple(roster), tuple(stores), missing, patience_s, deadline_s, aggregator,
                submitter, nonce, collect, tolerance, mixing, links, ticks, turn,
            )  # fmt: skip
        except (ValueError, TypeError, UsageError, msgpack.UnpackException, RecursionError) as error:
            raise WireError(f"job document: {error}") from None


def _turn(series: Any, number: Any, every_s: Any, fixed: Any) -> Turn:
    if type(series) is not str:
        raise WireError("job document: wrong types")
    return Turn(series, number, every_s, fixed)


def pack_links(roster: Sequence[str], neighbours: Mapping[str, Sequence[str]]) -> bytes:
    """Return the links between roster peers as a document has them: pairs of roster indices, two bytes each, sorted.

    Empty bytes mean a full mesh.

    Examples
    --------
    >>> list(pack_links(("a", "b", "c"), {"a": ["b"], "b": ["a", "c"], "c": ["b", "z"]}))
    [0, 0, 1, 0, 1, 0, 2, 0]
    """
    place = {name: number for number, name in enumerate(roster)}
    pairs = {
        (place[name], place[other])
        for name in roster
        for other in neighbours.get(name, ())
        if other in place and place[name] < place[other]
    }
    return np.array(sorted(pairs), dtype="<u2").tobytes()
