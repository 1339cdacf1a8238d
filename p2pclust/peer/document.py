"""The job document: what a job is, fixed at its submission and the same at every peer."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import msgpack

from p2pclust.errors import UsageError, WireError

__all__ = ["COLLECT", "MISSING", "Document"]

#: What happens when a peer of the roster does not answer (docs/architecture.md, "Missing peers").
MISSING: Final = ("all", "wait", "drop")

#: How contributions come together (docs/architecture.md, "Sums along a tree").
COLLECT: Final = ("star", "tree")

_MAX_PEERS: Final = 4096
_FOREVER_S: Final = 1e9
_MAX_BYTES: Final = 40 * 1024


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
    nonce: str  # tells two otherwise equal jobs apart; of a job within another: its id, round and name, by slashes
    collect: str = "star"  # each contribution goes to the aggregator; or sums of them go up a tree

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

    @cached_property
    def id(self) -> str:
        """The name of the job: a digest of the document; remembered, because every message of the job bears it."""
        return "job-" + hashlib.blake2b(self.encode(), digest_size=16).hexdigest()

    @property
    def parent(self) -> str:
        """The job in one of whose rounds this one is wanted; empty for a job that somebody submitted."""
        return "" if self.submitter else self.nonce.split("/")[0]

    @property
    def parent_round(self) -> int:
        """Which round of the parent wants it."""
        return int(self.nonce.split("/")[1])

    @cached_property
    def told(self) -> dict[str, str]:
        """How reports name it, and the job in one of whose rounds it is wanted."""
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
        """Whether the peer's word counts for a majority: only with the store that it had at submission.

        A peer that lost its store may have voted, or adopted, something that it no longer knows.
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
            fields = msgpack.unpackb(data, raw=False, strict_map_key=True, max_ext_len=0)
            job, roster, stores, missing, patience_s, deadline_s, aggregator, submitter, nonce, collect = fields
            if not isinstance(job, bytes) or not all(type(x) is str for x in (*roster, *stores)):
                raise WireError("job document: wrong types")
            if not all(type(x) is str for x in (missing, aggregator, submitter, nonce, collect)):
                raise WireError("job document: wrong types")
            if type(patience_s) is not float or type(deadline_s) is not float:
                raise WireError("job document: wrong types")
            return cls(
                job, tuple(roster), tuple(stores), missing, patience_s, deadline_s, aggregator,
                submitter, nonce, collect,
            )  # fmt: skip
        except (ValueError, TypeError, UsageError, msgpack.UnpackException, RecursionError) as error:
            raise WireError(f"job document: {error}") from None
