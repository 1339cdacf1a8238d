"""Planted bugs: the simulator must find each of them, or it proves nothing.

Each is the smallest change that a tired engineer might make, applied to the production classes while a run lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgpack

from p2pclust.peer import rounds
from p2pclust.peer.document import Document
from p2pclust.peer.ledger import Ledger

__all__ = ["MUTANTS", "planted"]


def _vote_not_synced(ledger: Ledger) -> None:
    row = msgpack.packb([ledger.term, ledger.voted_for])
    ledger._ctx.persist("ballot", ledger._id, row, sync=False)


def _no_fence(ledger: Ledger, term: int) -> bool:
    return False


def _adopts_any_term(ledger: Ledger, term: int, round_: int) -> bool:
    return (term, round_) >= ledger.register.position


def _one_is_a_majority(names: Any, roster: tuple[str, ...]) -> bool:
    return len(set(names)) >= 1


def _every_store_counts(document: Document, name: str, store_id: str) -> bool:
    return name in document.roster


_Patch = tuple[Any, str, Callable[..., Any]]

#: Name of the bug -> the attributes that it replaces.
MUTANTS: Final[dict[str, tuple[_Patch, ...]]] = {
    "vote-not-synced": ((Ledger, "_save_ballot", _vote_not_synced),),
    "no-fence-by-term": ((Ledger, "stale", _no_fence), (Ledger, "may_adopt", _adopts_any_term)),
    "finished-before-a-majority": ((rounds, "has_majority", _one_is_a_majority),),
    "wiped-store-counted": ((Document, "counts", _every_store_counts),),
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Plant one bug for as long as the context lasts.

    Examples
    --------
    >>> from p2pclust.peer.document import Document
    >>> before = Document.counts
    >>> with planted("wiped-store-counted"):
    ...     Document.counts is before
    False
    >>> Document.counts is before
    True
    """
    patches = MUTANTS[name]
    originals = [getattr(owner, attribute) for owner, attribute, _ in patches]
    for owner, attribute, replacement in patches:
        setattr(owner, attribute, replacement)
    try:
        yield
    finally:
        for (owner, attribute, _), original in zip(patches, originals, strict=True):
            setattr(owner, attribute, original)
