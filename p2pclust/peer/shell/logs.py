"""A peer's log: one line for each event, for people or for programs. `docs/logs.md` has the meaning of each word."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

Watch = Callable[[str, Mapping[str, Any]], None]  # called with the word and the fields of each report

#: Every word that a peer reports, by its level.
_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "debug": (
        "averaged", "circle", "fenced", "floor", "late-answer", "mixing", "outside", "phase", "pulling", "took",
    ),
    "info": (
        "accepted", "cancel", "cancelling", "catches-up", "combined", "control", "data", "deposed", "document-held",
        "elected", "finished",
        "job", "keys-exchanged", "left", "link-mended", "mdns", "member", "metrics", "not-checked", "proposer", "refuted",
        "relayed", "replaced", "roster", "roster-unchanged", "series-ended", "started", "submitted",
        "without",
    ),
    "warning": (
        "abstains", "bad-document", "bad-evidence", "bad-links", "bad-part", "bad-tree", "blob-corrupt",
        "contradiction", "corrupt", "crowded", "damaged", "data-doubtful", "differs", "expired", "expires-soon",
        "exposed", "fault", "forged-fact", "job-gone", "keys-renewed", "left-out", "link-broken", "malformed",
        "no-answer", "no-job", "no-next", "not-reloaded", "out-of-reach", "refused", "refused-expired",
        "refused-operator", "refused-revoked", "refused-stranger", "refuses-pads", "refutes-state",
        "reports-sets", "revoked", "roster-refused", "round-leap", "second-aggregator", "stands-still",
        "term-leap", "too-few-keys", "too-large", "too-many-facts", "twin", "unable", "unread", "waiting",
    ),
    "error": (
        "data-refused", "failed", "insecure", "lines-lost", "no-control", "no-mdns", "no-metrics", "other-version",
        "store-damaged", "store-forgot",
    ),
}  # fmt: skip
LEVELS: Final = tuple(_WORDS)
#: The level of every word.
LEVEL_OF: Final[Mapping[str, str]] = {word: level for level, words in _WORDS.items() for word in words}

#: Words that others can cause with each message or connection: seconds between two lines about one sender.
_SELDOM_S: Final[Mapping[str, float]] = {
    "malformed": 60.0, "crowded": 60.0, "forged-fact": 60.0, "second-aggregator": 60.0,
}  # fmt: skip


@dataclass(eq=False)
class Log:
    """Writes one line for each event to a descriptor; levels below `level` are left out.

    A line is ``TIME PEER WORD KEY=VALUE ...``, or a JSON object with ``time``, ``peer``, ``level``, ``verb`` and ``fields``.

    Examples
    --------
    >>> from datetime import UTC
    >>> log = Log("meter-01", fd=1, clock=lambda: datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    >>> log.line("elected", {"job": "ab12", "reason": "two words"})
    '2026-01-02T03:04:05.000+00:00 meter-01 elected job=ab12 reason="two words"'
    """

    peer: str
    form: Literal["text", "json"] = "text"
    level: str = "info"
    fd: int = 2
    clock: Callable[[], datetime] = lambda: datetime.now().astimezone()
    #: For words that are limited, by word and sender: when a line was written, and how many were left out since.
    _seldom: dict[tuple[str, str], tuple[datetime | None, int]] = field(default_factory=dict, init=False)
    lost: int = field(default=0, init=False)  # lines that could not be written

    def tell(self, verb: str, fields: Mapping[str, Any]) -> None:
        """Write a line, if its level is high enough; a line that cannot be written does not end the peer.

        Words that a sender can cause with each message are limited to one line a minute; `unsaid` counts the lines left out.
        """
        if LEVELS.index(LEVEL_OF.get(verb, "info")) < LEVELS.index(self.level):
            return
        if verb in _SELDOM_S:
            who = (verb, str(fields.get("from", fields.get("peer", ""))))
            now = self.clock()
            last, unsaid = self._seldom.get(who, (None, 0))
            if last is not None and 0 <= (now - last).total_seconds() < _SELDOM_S[verb]:
                self._seldom[who] = (last, unsaid + 1)
                return
            self._seldom[who] = (now, 0)
            if unsaid:
                fields = {**fields, "unsaid": unsaid}
        lines = [self.line("lines-lost", {"lines": self.lost})] if self.lost else []
        data = "".join(line + "\n" for line in (*lines, self.line(verb, fields))).encode("utf-8", "replace")
        try:
            while data:
                data = data[os.write(self.fd, data) :]
        except OSError:
            self.lost += 1
        else:
            self.lost = 0

    def line(self, verb: str, fields: Mapping[str, Any]) -> str:
        time = self.clock().isoformat(timespec="milliseconds")
        if self.form == "json":
            level = LEVEL_OF.get(verb, "info")
            whole = {"time": time, "peer": self.peer, "level": level, "verb": verb, "fields": dict(fields)}
            try:
                return json.dumps(whole, default=plain, allow_nan=False)
            except ValueError:  # JSON knows neither NaN nor infinity
                return json.dumps(_finite(whole), default=plain)
        words = [f"{key}={_word(value)}" for key, value in fields.items()]
        return " ".join([time, self.peer, verb, *words])


def _word(value: Any) -> str:
    if isinstance(value, Mapping):
        text = "; ".join(f"{key}: {inner}" for key, inner in value.items())
    else:
        text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(plain(value))
    if text and text.isprintable() and not any(sign in text for sign in ' "='):
        return text
    return json.dumps(text)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def plain(value: Any) -> Any:
    """Convert what JSON does not know: for the `default` of `json.dumps`."""
    if isinstance(value, tuple | set | frozenset):
        return list(value)
    return value.hex() if isinstance(value, bytes) else str(value)
