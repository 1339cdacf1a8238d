"""Planted bugs of the part of the shell that the simulator runs: effects, the order of rows and messages, and blobs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from p2pclust.peer.core.effects import Effect, Persist, Send
from p2pclust.peer.core.tasks import Verified, VerifyBlob
from p2pclust.peer.shell.performer import Performer
from p2pclust.peer.work import tasks
from p2pclust.peer.work.states import BlobAccess

_ALL: Final = Performer.perform_all
_SEND: Final = Performer._send
_VERIFIED: Final = tasks._verified


def _rows_last(performer: Performer, effects: Iterable[Effect]) -> None:
    """Write all rows of a step in one transaction, which costs fewer syncs."""
    listed = list(effects)
    rows = [effect for effect in listed if isinstance(effect, Persist)]
    _ALL(performer, [*(effect for effect in listed if not isinstance(effect, Persist)), *rows])


def _messages_first(performer: Performer, effects: Iterable[Effect]) -> None:
    """Let messages leave at once, and take time for the disk afterwards."""
    listed = list(effects)
    messages = [effect for effect in listed if isinstance(effect, Send)]
    _ALL(performer, [*messages, *(effect for effect in listed if not isinstance(effect, Send))])


def _one_effect_late(performer: Performer, effects: Iterable[Effect]) -> None:
    """Perform the effect after some rows before they are written."""
    rows: list[Persist] = []
    for effect in effects:
        if isinstance(effect, Persist):
            rows.append(effect)
        else:
            _ALL(performer, [effect])
            _ALL(performer, rows)
            rows = []
    _ALL(performer, rows)


def _last_rows_forgotten(performer: Performer, effects: Iterable[Effect]) -> None:
    """Write rows when another effect follows only."""
    rows: list[Effect] = []
    for effect in effects:
        rows.append(effect)
        if not isinstance(effect, Persist):
            _ALL(performer, rows)
            rows = []


def _encoded_once_a_kind(performer: Performer, effect: Send) -> None:
    """Send the frames of the last message of that kind again."""
    before, frames = performer._encoded
    if before is not None and before.kind == effect.message.kind:
        performer._encoded = (effect.message, frames)
    _SEND(performer, effect)


def _not_synced(task: VerifyBlob, blobs: BlobAccess) -> Verified:
    """Hash a blob, and leave its chunks to the operating system."""
    return _VERIFIED(task, BlobAccess(blobs.read, blobs.store, lambda digest: None, blobs.limits))


_Patch = tuple[Any, str, Any]

#: Name of the bug -> the attributes that it replaces.
SHIPPED_MUTANTS: Final[dict[str, tuple[_Patch, ...]]] = {
    "rows-written-last": ((Performer, "perform_all", _rows_last),),
    "messages-sent-first": ((Performer, "perform_all", _messages_first),),
    "rows-one-effect-late": ((Performer, "perform_all", _one_effect_late),),
    "last-rows-forgotten": ((Performer, "perform_all", _last_rows_forgotten),),
    "old-frames-sent": ((Performer, "_send", _encoded_once_a_kind),),
    "fetched-blob-not-synced": ((tasks, "_verified", _not_synced),),
}
