"""The log of a job: one record per round, as bytes that grow only at their end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import msgpack

from p2pclust.errors import WireError
from p2pclust.protocols.engine.fixed_point import MAX_PEERS
from p2pclust.tools.bit_sets import as_mask, members_of, packed, unpacked

MAX_ITEMS = 2 * MAX_PEERS  # of one list on the wire: a reason for every peer
MAX_TEXT = 1000
_MAX_COUNT = 2**53


@dataclass(frozen=True)
class RoundRecord:
    """The peers that took part in one round.

    Parameters
    ----------
    stage : int
    contributors : tuple of int
        Sorted indices in the roster.
    abstained : mapping of int to str
        Peers that answered without contributing, and why; those that were merely not drawn are not among them.
    forgot : bool
        Whether the aggregator lacked the memory that the protocol would have used: it was elected since the round
        before, or restarted.
    """

    stage: int
    contributors: tuple[int, ...]
    abstained: Mapping[int, str] = field(default_factory=dict)
    forgot: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "contributors", tuple(self.contributors))
        object.__setattr__(self, "abstained", dict(sorted(self.abstained.items())))

    @cached_property
    def packed(self) -> bytes:
        """Its bytes in an encoded state; remembered, because every round encodes the whole log again."""
        abstained = [part for item in self.abstained.items() for part in item]
        contributors = packed(as_mask(self.contributors))
        # The flag is there only where it is set: the logs of most protocols never have it.
        flag = [True] if self.forgot else []
        return bytes(msgpack.packb([self.stage, contributors, abstained, *flag], use_bin_type=True))


class _LogReader:
    """Reads packed logs. The log only grows, so of the next state's log only the end has to be read and checked."""

    def __init__(self) -> None:
        #: The bytes, their records, and the highest stage of any.
        self._last: tuple[bytes, tuple[RoundRecord, ...], int] = (b"", (), 0)

    def read(self, data: bytes) -> tuple[tuple[RoundRecord, ...], int]:
        """Return the records of a packed log and their highest stage.

        Raise WireError for a log that is malformed, or not in canonical form.
        """
        known, records, last_stage = self._last
        if not data.startswith(known):
            known, records, last_stage = b"", (), 0
        end = data[len(known) :]
        unpacker = msgpack.Unpacker(
            raw=False, strict_map_key=True, max_buffer_size=max(len(end), 1), max_array_len=MAX_ITEMS, max_map_len=0,
            max_ext_len=0, max_str_len=MAX_TEXT * 4, max_bin_len=MAX_PEERS // 8,
        )  # fmt: skip
        unpacker.feed(end)
        try:
            added = tuple(_record(item) for item in unpacker)
        except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
            raise WireError(f"job state: malformed log: {type(error).__name__}") from None
        if b"".join([record.packed for record in added]) != end:
            raise WireError("job state: its log is not in canonical form")
        last_stage = max([last_stage, *[record.stage for record in added]])
        self._last = (data, (*records, *added), last_stage)
        return self._last[1:]


read_log = _LogReader().read


def _record(item: object) -> RoundRecord:
    if not isinstance(item, list) or len(item) not in (3, 4) or (len(item) == 4 and item[3] is not True):
        raise WireError("job state: malformed log")
    stage, mask, abstained = item[:3]
    if not is_count(stage) or not isinstance(mask, bytes) or not isinstance(abstained, list):
        raise WireError("job state: malformed log")
    return _checked_record(stage, mask, tuple(abstained), len(item) == 4)


@lru_cache(maxsize=1024)
def _checked_record(stage: int, mask: bytes, abstained: tuple[Any, ...], forgot: bool) -> RoundRecord:
    """Most rounds of a job have the same record, and every state brings all of them again."""
    peers, reasons = abstained[0::2], abstained[1::2]
    if len(peers) != len(reasons) or not all(is_count(peer) and peer < MAX_PEERS for peer in peers):
        raise WireError("job state: malformed log")
    if not all(isinstance(reason, str) and len(reason) <= MAX_TEXT for reason in reasons):
        raise WireError("job state: malformed log")
    return RoundRecord(stage, members_of(unpacked(mask)), dict(zip(peers, reasons, strict=True)), forgot)


def is_count(value: object) -> bool:
    """Return True for a whole number that a state may hold as a count."""
    return type(value) is int and 0 <= value < _MAX_COUNT
