"""The reasons for which a peer does not contribute, or a job ends, that more than people look at.

All others are sentences for people. Each of these is a whole reason, or how one begins.
"""

from __future__ import annotations

from typing import Final

__all__ = ["CANCELLED", "HELD", "LEFT_OUT", "MAX_REASON", "NOT_ASKED", "NOT_DRAWN", "NO_DATA"]

#: A longer reason is cut off.
MAX_REASON: Final = 200

#: Of a peer that does not take part in a round because others were drawn: no event worth recording.
NOT_DRAWN: Final = "not drawn"
#: Of a peer in a round in which one other peer is asked: no event worth recording.
NOT_ASKED: Final = "not asked"
#: Of a peer that did not answer: it did not abstain by itself, and may contribute again.
LEFT_OUT: Final = "left out"
#: Of a peer that has no row.
NO_DATA: Final = "no data"
#: Of a peer with too few rows in this stage; it may contribute to a later one.
HELD: Final = "privacy gate"
#: Of a cancelled job; and, in a job without an aggregator, the answer of a peer that knows of the cancel.
CANCELLED: Final = "cancelled by "
