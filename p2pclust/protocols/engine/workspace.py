"""What a peer does for a round beside its own mathematics: fetch blobs of other peers, run jobs with some of them.

Most contributions are a pure function of the state and of the peer's rows. FedCRef's need more: the models of others,
and federated training among some peers. Such a protocol is a ``WithWorkspace``. It is asked what it wants; the caller puts
that into the workspace, or as much of it as can be had, and then asks for the contribution.

The agreed state is the only program counter: a peer that restarts finds in its register where the job is and in its
note what it had done itself. A protocol says in its contribution what it could do without what could not be fetched, and so
nothing waits indefinitely.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from p2pclust.protocols.engine.arrays import Arrays

if TYPE_CHECKING:
    from p2pclust.protocols.engine.job import Job, JobState

DIGEST_BYTES: Final = 32


def digest_of(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


@dataclass(frozen=True, slots=True)
class Fetch:
    """A blob that the workspace needs.

    The owners are roster indices of the peers that said that they have it, the first to be asked first. This peer itself
    may be among them: then the blob is to be kept.
    """

    digest: bytes
    size_bytes: int
    owners: tuple[int, ...]


@dataclass(frozen=True)
class Run:
    """A job among some peers of the roster: every one of them derives the same from the agreed state."""

    name: str  # unique among the jobs of one parent, over all its rounds
    job: Job
    roster: tuple[int, ...]  # indices in the parent's roster, sorted
    aggregator: int  # the first one; index in the parent's roster


@dataclass(frozen=True)
class Wants:
    """What a contribution to the present round is made with."""

    fetches: tuple[Fetch, ...] = ()
    runs: tuple[Run, ...] = ()


@dataclass
class Workspace:
    """What one peer finds when it contributes to one round, and what it leaves.

    >>> workspace = Workspace(0)
    >>> workspace.publish(b"model") == digest_of(b"model"), workspace.published, workspace.read(b"unknown") is None
    (True, [b'model'], True)
    """

    peer: int  # its index in the roster
    # What it kept in the last round before this one in which it kept something. A job that was started by another job
    # finds the note that its parent's contribution will find.
    note: Arrays = field(default_factory=Arrays)
    # Returns the bytes of a blob, or None if it is not here.
    blob: Callable[[bytes], bytes | None] = field(default=lambda digest: None)
    # Of the jobs that were wanted, by name: those that ended in time.
    results: Mapping[str, JobState] = field(default_factory=dict)
    published: list[bytes] = field(default_factory=list, init=False)  # in order
    kept: Arrays | None = field(default=None, init=False)  # the new note, if there is one

    def read(self, digest: bytes) -> bytes | None:
        """Return a blob's bytes, or None if it could not be fetched. What was just published can be read as well."""
        own = next((data for data in self.published if digest_of(data) == digest), None)
        return self.blob(digest) if own is None else own

    def result(self, name: str) -> JobState | None:
        """Return the last state of a job that was wanted, or None if it did not end in time, or failed."""
        state = self.results.get(name)
        return state if state is not None and state.status == "done" else None

    def publish(self, data: bytes) -> bytes:
        """Keep bytes for other peers to fetch, and return their digest."""
        self.published.append(data)
        return digest_of(data)

    def keep(self, note: Arrays) -> None:
        self.kept = note
