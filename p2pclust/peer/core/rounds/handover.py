"""Versions of a job's state, and how one peer sends its state to another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from p2pclust.peer.core.context import Context
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.job_messages import AskState, Close, HeldState, Open
from p2pclust.peer.core.ledger import Register
from p2pclust.peer.core.round_reports import StateCorrupt
from p2pclust.peer.core.spread.blobs import Blobs
from p2pclust.peer.core.tasks import Ref
from p2pclust.protocols.engine.workspace import digest_of
from p2pclust.transport.wire import MAX_CONTROL_BYTES


@dataclass(frozen=True)
class Version:
    """A state, ordered by round, then by the epoch in which it was adopted."""

    round: int
    epoch: int
    digest: bytes

    @property
    def rank(self) -> tuple[int, int, bytes]:
        """The key that versions are compared by."""
        return (self.round, self.epoch, self.digest)


def _version_of(message: HeldState) -> Version:
    return Version(message.entry_round, message.entry_epoch, message.digest)


def close_message(job: str, register: Register) -> Close:
    """Return the message of a finished peer, with the final state."""
    assert register.ref is not None
    state = () if register.ref.payload is None else (register.ref.payload,)
    return Close(job, register.term, register.round, register.ref.digest, register.ref.size_bytes, state)


def state_of(
    context: Context, blobs: Blobs, document: Document, message: Open | HeldState | Close, source: str,
    others: Callable[[], Sequence[str]],
) -> Ref | None:  # fmt: skip
    """Return the state that a message names; None while it is fetched, or if its digest is wrong.

    A blob is asked of its sender, the `source`, and of the `others`.
    """
    if message.state:
        if digest_of(message.state[0]) != message.digest:
            context.report(StateCorrupt(*document.named, peer=source))
            return None
        return Ref(message.digest, len(message.state[0]), message.state[0])
    if blobs.has(message.digest):
        return Ref(message.digest, message.size_bytes, None)
    if message.size_bytes > context.limits.inline_bytes:
        more = [name for name in others() if name not in (source, context.me)]
        blobs.pull(message.digest, message.size_bytes, [source, *more] if source else more)
    return None


class Handover:
    """Asks for states, sends them, and fetches those that are blobs."""

    def __init__(self, context: Context, blobs: Blobs, document: Document) -> None:
        self._ctx = context
        self._blobs = blobs
        self._document = document
        self._asked_at = float("-inf")
        self._waiting: HeldState | Close | None = None  # for a blob
        self._refused: dict[bytes, None] = {}

    def ask(self, source: str, epoch: int, version: Version) -> None:
        """Ask a neighbour in the same epoch for the state that it entered with, unless as new a one is being fetched.

        An older one may never come: its holders may have taken the newer state meanwhile, and dropped it.
        """
        if self._is_newer(version) and self._ctx.now - self._asked_at >= self._ctx.timing.heartbeat_s:
            self._asked_at = self._ctx.now
            self._ctx.send(source, AskState(self._document.id, epoch))

    def give(self, target: str, epoch: int, version: Version, ref: Ref) -> None:
        """Send a state, or the name of its blob."""
        state = () if ref.payload is None else (ref.payload,)
        held = HeldState(
            self._document.id, epoch, version.epoch, version.round, ref.digest, ref.size_bytes, state
        )  # fmt: skip
        self._ctx.send(target, held, bulk=ref.payload is not None and len(ref.payload) > MAX_CONTROL_BYTES // 2)

    def forget(self) -> None:
        """Stop waiting for a state."""
        self._waiting = None

    def refuse(self, digest: bytes) -> None:
        """Ignore this digest from now on: it is not a valid state."""
        self._refused[digest] = None

    def resolve(self, source: str, message: HeldState | Close, known: Sequence[Ref | None]) -> Ref | None:
        """Return the state that a message names; None while it is fetched, or if its digest is wrong."""
        for ref in known:
            if ref is not None and ref.digest == message.digest:
                return ref
        if message.digest in self._refused:
            return None
        others = [name for name in self._document.roster if name not in (source, self._ctx.me)]
        ref = state_of(self._ctx, self._blobs, self._document, message, source, lambda: others)
        newer = isinstance(message, Close) or self._is_newer(_version_of(message))
        if newer and not message.state and self._blobs.fetching(message.digest):
            self._waiting = message
        return ref

    def _is_newer(self, version: Version) -> bool:
        waiting = self._waiting
        return waiting is None or (isinstance(waiting, HeldState) and _version_of(waiting).rank < version.rank)

    def ready(self, digest: bytes) -> HeldState | Close | None:
        """Return the message that waited for this blob, if any."""
        if self._waiting is None or self._waiting.digest != digest:
            return None
        message, self._waiting = self._waiting, None
        return message

    def in_use(self) -> list[bytes]:
        """Return the blob that is on its way."""
        return [] if self._waiting is None else [self._waiting.digest]
