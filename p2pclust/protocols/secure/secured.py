"""What a secured job's state has beside a plain one: the list of keys, and which sets of peers were revealed so far.

docs/secure-sums.md, "From context to context". Sets of peers are bit masks by roster index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import msgpack

from p2pclust.errors import WireError
from p2pclust.protocols.secure.check_words import CheckedRound
from p2pclust.protocols.secure.key_list import KeyEntry
from p2pclust.tools.bit_sets import packed, unpacked

MOST_SETS: Final = 4096  # different sets that are remembered of one job
MOST_PROOFS: Final = 16  # of wrong check words in one job: every peer looks at all of them
_MOST_COUNT: Final = 2**53
_DIGEST_BYTES: Final = 32
_LIST_OF_16: Final = b"\xdc\x00\x10"  # the header of a list of 16 items in msgpack


@dataclass(frozen=True, slots=True)
class Maker:
    """The peer that made a padded state, by roster index, and the term and round in which it opens it."""

    index: int = 0
    term: int = 0
    round: int = 0


@dataclass(frozen=True, slots=True)
class Unsettled:
    """A context of which it was not known whether a set was revealed, when new keys were asked for."""

    state: bytes  # the digest of its padded state
    maker: int  # the roster index of the peer that made it
    # asked, keepers: sets: whose contributions it was open for, and who keeps pads.
    asked: int
    keepers: int
    checked: CheckedRound | None = None  # its signed check words, of which at least one is wrong; then keys are shown


@dataclass(frozen=True)
class Secured:
    """The secured part of a state. Without `entries` the state is open for keys, otherwise for padded contributions.

    Of the states of a stage mostly nothing but the round of the maker differs.
    """

    cohort: int = 0  # the fewest peers whose sum may be revealed in this job
    entries: tuple[KeyEntry, ...] = ()  # the list of keys
    maker: Maker = field(default_factory=Maker)
    asked: int = 0  # the set of peers whose contributions the state is open for
    columns: int = 0  # the number of columns that the peers agree on; 0 before the first list of keys
    absent: Mapping[int, str] = field(default_factory=dict)  # peers of the job roster that are not asked, with reasons
    # Peers that did not answer in time in this stage, as contributors or keepers, or did not show their key of check
    # words: they are on no list until the next stage.
    silent: int = 0
    # In a padded state, the context that the entries on its list of keys report about.
    unsettled: Unsettled | None = None
    revealed: tuple[int, ...] = ()  # the different sets that were revealed so far in this job
    burnt: tuple[int, ...] = ()  # those that were, or may have been, revealed of contributions to these very arrays
    unknown: tuple[int, ...] = ()  # sets of which an unknown part may have been revealed
    renewals: int = 0  # how often new keys were asked for since the last total
    # The fixed groups whose totals are revealed one by one in some stages; empty: there are none.
    groups: tuple[int, ...] = ()
    asks: bytes = b""  # of a padded state, the digest of the state that asked for its list of keys
    strict: bool = False  # whether check words are signed: a total of this stage was wrong
    proofs: tuple[CheckedRound, ...] = ()  # which peers sent wrong check words: they are on no list of this job

    @property
    def wants_keys(self) -> bool:
        return not self.entries

    @cached_property
    def _around(self) -> tuple[bytes, bytes]:
        """The bytes before and after those of the maker."""
        absent = [part for peer, reason in sorted(self.absent.items()) for part in (peer, reason)]
        pending: list[Any] = []
        if (u := self.unsettled) is not None:
            checked = [] if u.checked is None else u.checked.packed()
            pending = [u.state, u.maker, *map(packed, (u.asked, u.keepers)), checked]
        sets = [[packed(mask) for mask in masks] for masks in (self.revealed, self.burnt, self.unknown)]
        before = [self.cohort, [entry.packed() for entry in self.entries]]
        after = [
            packed(self.asked), self.columns, absent, packed(self.silent), pending, *sets, self.renewals,
            [packed(mask) for mask in self.groups], self.asks, self.strict, [proof.packed() for proof in self.proofs],
        ]  # fmt: skip
        return _LIST_OF_16 + b"".join(map(msgpack.packb, before)), b"".join(map(msgpack.packb, after))

    def encode(self) -> bytes:
        """Return canonical bytes, as an encoded state has them."""
        before, after = self._around
        return before + bytes(msgpack.packb([self.maker.index, self.maker.term, self.maker.round])) + after

    def revealing(self, sets: Sequence[int]) -> Secured:
        """Return the part after a total: the sums over these sets are revealed, of arrays that no later state has."""
        revealed = tuple(dict.fromkeys((*self.revealed, *sets)))
        same = revealed == self.revealed and not self.burnt and not self.renewals
        return self if same else replace(self, revealed=revealed, burnt=(), renewals=0)

    def made_by(self, maker: Maker) -> Secured:
        """Return the same part of another padded state."""
        made = Secured.__new__(Secured)
        made.__dict__.update(self.__dict__, maker=maker)  # also the bytes around the maker, if they are known
        return made

    def following(self, data: bytes) -> Secured | None:
        """Return the part of :meth:`encode` if its maker made it one round later and nothing else differs; else None."""
        later = self.made_by(Maker(self.maker.index, self.maker.term, self.maker.round + 1))
        return later if data == later.encode() else None

    @classmethod
    def unpacked(cls, fields: object) -> Secured:
        """Read what :meth:`encode` packed, which may be hostile. Raises WireError if it is anything else.

        The caller compares the bytes of the result with those that arrived: only then were all types right.
        """
        try:
            if not isinstance(fields, list):
                raise ValueError("it is no list")
            (
                cohort, entries, maker, asked, columns, absent, silent, pending, revealed, burnt, unknown, renewals, groups,
                asks, strict, proofs,
            ) = fields  # fmt: skip
            lists = (entries, maker, absent, pending, revealed, burnt, unknown, groups, proofs)
            if any(type(each) is not list for each in lists):
                raise ValueError("a part that is no list")
            if type(strict) is not bool:
                raise ValueError("expected true or false")
            if len(proofs) > MOST_PROOFS:
                raise ValueError("too many proofs")
            index, term, round_ = map(_count, maker)
            peers, reasons = absent[0::2], absent[1::2]
            if len(peers) != len(reasons) or not all(isinstance(reason, str) for reason in reasons):
                raise ValueError("peers that are absent without a reason")
            unsettled = None
            if pending:
                state, by, of, keepers, checked = pending
                if not isinstance(state, bytes) or len(state) != _DIGEST_BYTES or not isinstance(checked, list):
                    raise ValueError("a context that cannot be")
                words = CheckedRound.unpacked(checked) if checked else None
                unsettled = Unsettled(state, _count(by), _mask(of), _mask(keepers), words)
            for masks in (revealed, burnt, unknown, groups):
                if len(masks) > MOST_SETS:
                    raise ValueError("too many sets")
            if not all(before < peer for before, peer in pairwise(map(_count, peers))):
                raise ValueError("absent peers that are not in roster order")
            return cls(
                _count(cohort), tuple(map(KeyEntry.unpacked, entries)), Maker(index, term, round_), _mask(asked),
                _count(columns), {_count(peer): reason for peer, reason in zip(peers, reasons, strict=True)},
                _mask(silent), unsettled, tuple(map(_mask, revealed)), tuple(map(_mask, burnt)),
                tuple(map(_mask, unknown)), _count(renewals), tuple(map(_mask, groups)), _bytes(asks), strict,
                tuple(map(CheckedRound.unpacked, proofs)),
            )  # fmt: skip
        except (TypeError, ValueError, LookupError) as error:
            raise WireError(f"job state: its secured part is malformed: {error}") from None


def _mask(data: object) -> int:
    known = _bytes(data)
    if known.endswith(b"\0"):
        raise ValueError("a set with more bytes than it needs")
    return unpacked(known)


def _bytes(data: object) -> bytes:
    if not isinstance(data, bytes) or len(data) > MOST_SETS:
        raise ValueError("expected bytes")
    return data


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value < _MOST_COUNT:
        raise ValueError("expected a count")
    return value
