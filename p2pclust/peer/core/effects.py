"""Effects: the only outputs of a core's `step`, performed in order by a shell or by the simulator."""

from __future__ import annotations

from p2pclust.peer.core.messages import Message
from p2pclust.peer.core.structs import Struct
from p2pclust.peer.core.tasks import Task, Token


class Effect(Struct):
    """Base of all effects."""


class Send(Effect):
    """Send a message, which may be lost. With `via`, sign it and send it through those peers."""

    to: str
    message: Message
    bulk: bool = False
    via: tuple[str, ...] = ()


class Connect(Effect):
    """Open or move the link to a peer."""

    peer: str
    address: str


class Disconnect(Effect):
    """Close the link to a peer, and drop what waits to be sent over it."""

    peer: str


class CheckLink(Effect):
    """Try a plain TCP connect to the peer, and report in `LinkChecked` whether it was refused."""

    peer: str


class Persist(Effect):
    """Write one row; with `sync` it must be on disk before the next effect is performed."""

    table: str
    key: str
    value: bytes | None
    sync: bool = True


class StoreChunk(Effect):
    """Keep one chunk of a blob; a crash may lose it until the blob was verified."""

    digest: bytes
    index: int
    n_chunks: int
    data: bytes


class SendChunk(Effect):
    """Read one chunk of a blob from the store and send it; if it is not there, send `BlobMissing`."""

    to: str
    digest: bytes
    index: int


class DropBlob(Effect):
    """Delete a blob that no job needs now."""

    digest: bytes


class CheckRoster(Effect):
    """Verify the fleet's signature of a roster that a peer sent, and return its content in `RosterRead`."""

    source: str
    data: bytes


class TakeRoster(Effect):
    """Use this fleet roster, whose signature was verified, from now on."""

    data: bytes


class SendRoster(Effect):
    """Send a fleet roster to a peer, as it was signed."""

    to: str
    digest: bytes = b""  # of the roster; empty: the one in force
    via: tuple[str, ...] = ()  # as in `Send`


class Compute(Effect):
    """Do the task away from the event loop; the outcome comes in a `Computed` with the same token."""

    token: Token
    task: Task


class Reload(Effect):
    """Read this peer's rows again before the next task: a job begins with the present rows."""
