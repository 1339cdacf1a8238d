"""The reasons for which a peer does not contribute, or a job ends, that code compares too.

All other reasons are free text for people. Each of these is a whole reason, or its beginning.
"""

from __future__ import annotations

import re
from typing import Final

MAX_REASON: Final = 200  # characters; a longer reason is cut off

#: A peer that does not take part in a round because others were drawn; it is not recorded.
NOT_DRAWN: Final = "not drawn"
NOT_ASKED: Final = "not asked"  # a peer in a round in which one other peer is asked; it is not recorded
LEFT_OUT: Final = "left out"  # a peer that did not answer: it did not abstain by itself, and may contribute again
LATE: Final = f"{LEFT_OUT}: late"  # one that is alive, and did not answer in time
#: A peer that is not on the fleet roster any more, or has another key there than in the job: it is not waited for.
REVOKED: Final = "it was revoked, or has new keys"
#: With secure sums, a peer that was restarted: it does not contribute before keys are exchanged again.
NEW_KEYS: Final = f"{LEFT_OUT}: it was restarted and has new keys"
#: With secure sums, a peer that neither contributes nor takes its pads away.
SMALL_CLASS: Final = "with sets that it knows, sums of fewer peers than the cohort could be computed"
#: With secure sums and leave = "alone", a peer in no revealed set, without enough others that are in none.
WOULD_BE_EXPOSED: Final = f"{LATE}: its sums would be exposed"
NO_DATA: Final = "no data"  # a peer that has no row
#: With secure sums, a peer whose signature proves that it sent a wrong check word.
PROVED: Final = "it has signed a wrong check word"
#: A contribution that no rows can have led to: its peer is a suspect, and its contribution is left out.
IMPLAUSIBLE: Final = "implausible: "
#: Data that cannot be read. In private jobs nothing more is said, as a place in the data depends on values.
UNUSABLE: Final = "its data cannot be used"
HELD: Final = "privacy gate"  # a peer with too few rows in this stage; it may contribute to a later one
#: A cancelled job; and, in a job without an aggregator, the answer of a peer that has received the cancel.
CANCELLED: Final = "cancelled by "

_NUMBER: Final = re.compile(r"(?<!\w)(row |column )?[-+]?(?:\d[\d_,]*\.?\d*|\.\d+)(?:e[-+]?\d+)?", re.IGNORECASE)


def without_values(text: str) -> str:
    """Return an error's text without its numbers, but for those of rows and columns: they may come from a device's rows.

    >>> without_values("row 3, column 1 is 1.23e+14; 41 rows of 2-D data")
    'row 3, column 1 is ...; ... rows of ...-D data'
    """
    return _NUMBER.sub(lambda found: found[0] if found[1] else "...", text)
