"""Check the evidence that a job has ended, of a running peer or from a file, with the fleet's public key alone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Final

import msgpack

from p2pclust.errors import FleetError, UsageError, WireError
from p2pclust.hosts.client import Connection
from p2pclust.hosts.submission import fetch
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.evidence import PROOF_FORMAT, Evidence, Majority, Signers, Statement
from p2pclust.transport.roster import Roster, signed_by
from p2pclust.transport.wire import verified

CONTRADICTS: Final = "signed two contradictory statements (it lies, or an old copy of its store was restored)"


@dataclass(frozen=True)
class ShownEnd:
    """The end of a job, with all that is needed to check it: its document, the fleet roster that this names, evidence."""

    document: Document
    roster: Roster
    evidence: Evidence

    @property
    def end(self) -> Statement:
        assert self.evidence.end is not None
        return self.evidence.end.statement

    def names(self, majority: Majority) -> list[str]:
        return [self.document.roster[index] for index in majority.signatures]

    def statements(self) -> Iterator[Statement]:
        """Yield all that single devices have signed here."""
        shown = (self.evidence.votes, self.evidence.end)
        for majority in (one for one in shown if one is not None):
            for index, signature in majority.signatures.items():
                store_id = self.document.store_ids[index]  # that of the majority's statement is of its first signer
                yield replace(majority.statement, by=index, store_id=store_id, signature=signature)

    def to_dict(self, in_force: Roster | None) -> dict[str, Any]:
        """Return plain values for people and scripts."""
        votes, end = self.evidence.votes, self.evidence.end
        assert end is not None
        since = {} if in_force is None else {entry.name: entry.sign_public for entry in in_force.peers}
        then = {entry.name: entry.sign_public for entry in self.roster.peers}
        signers = sorted({*self.names(end), *([] if votes is None else self.names(votes))})
        return {
            "job": self.document.id, "term": self.end.term, "round": self.end.round, "state": self.end.digest.hex(),
            "aggregator": self.document.roster[self.end.aggregator], "acknowledged": self.names(end),
            "voted": [] if votes is None else self.names(votes), "of": len(self.document.roster),
            "revoked_since": [name for name in signers if since and name not in since],
            "new_keys_since": [name for name in signers if name in since and since[name] != then[name]],
        }  # fmt: skip


def fetch_proof(client: Connection, job: str) -> bytes:
    """Read the evidence that a job has ended from a running peer, as ``--proof`` writes it."""
    return fetch(client, job, "evidence")


def read_proof(data: bytes, fleet_public: bytes, where: str) -> ShownEnd:
    """Read and check evidence, which may be hostile; raise `FleetError` with the reason if anything about it is wrong."""
    try:
        fields = msgpack.unpackb(data, raw=False, max_ext_len=0)
        if not isinstance(fields, list) or len(fields) != 4 or fields[0] != PROOF_FORMAT:
            raise WireError("it does not prove the end of a job")
        if any(type(value) is not bytes for value in fields[1:]):
            raise WireError("wrong types")
        document, roster, evidence = (
            Document.decode(fields[1]),
            signed_by(fields[2], fleet_public),
            Evidence.decode(fields[3]),
        )
        named = document.fleet_roster
        if named is None or named.digest != hashlib.sha256(fields[2]).digest():
            raise WireError("its fleet roster is not the one that the job names")
        keys = {entry.name: (entry.sign_public,) for entry in roster.peers}
        if strange := [name for name in document.roster if name not in keys]:
            raise WireError(f"{strange[0]} is not on the fleet roster that the job names")
        own = document.treatment.aggregator
        signers = Signers(
            document.id, document.store_ids, tuple(keys[name] for name in document.roster),
            document.index(own) if own else -1,
        )  # fmt: skip
        problem = "it has no end" if evidence.end is None else evidence.problem_with(signers, verified)
        if problem:
            raise WireError(problem)
    except (ValueError, TypeError, RecursionError, UsageError, WireError, msgpack.UnpackException) as error:
        raise FleetError(f"{where}: not proved: {error}") from None
    return ShownEnd(document, roster, evidence)


def contradictions(shown: Iterable[ShownEnd]) -> dict[str, str]:
    """Return the devices that have signed two statements of one job that cannot both be true, each with the two."""
    found: dict[str, str] = {}
    by_job: dict[str, list[ShownEnd]] = {}
    for one in shown:
        by_job.setdefault(one.document.id, []).append(one)
    for ends in by_job.values():
        roster = ends[0].document.roster
        distinct = dict.fromkeys(replace(one, signature=b"") for end in ends for one in end.statements())
        for a, b in combinations(sorted(distinct, key=lambda one: (one.by, one.term, one.is_vote)), 2):
            if a.by == b.by and _contradict(a, b):
                found.setdefault(roster[a.by], f"{_words(a, roster)}; and {_words(b, roster)}")
    return found


def _contradict(a: Statement, b: Statement) -> bool:
    """Return whether one device cannot truly have signed both; `a` is not of a later term."""
    if a.is_vote and b.is_vote:
        return a.term == b.term
    if a.is_vote:
        return False
    if b.is_vote:  # what it has acknowledged as final, it votes for no older register
        return b.term > a.term and b.rank < a.rank
    return a.term == b.term


def _words(one: Statement, roster: tuple[str, ...]) -> str:
    who, state = roster[one.aggregator], one.digest.hex()[:8] or "none"
    if one.is_vote:
        return (
            f"a vote in term {one.term} for {who} with the state {state} of term {one.register_term}, round {one.round}"
        )
    return f"an acknowledgement of the last state {state} of {who}, term {one.term}, round {one.round}"
