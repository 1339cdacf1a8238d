"""What operators may ask a running peer: each verb of the door, checked, and answered from the shell.

A field that is missing, of another type or not known is refused in one line. Nobody who asks can stop the peer: whatever a
verb raises that is meant for people becomes the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from p2pclust.errors import P2PClustError, UsageError
from p2pclust.peer.door import Asker
from p2pclust.peer.shell import Shell
from p2pclust.peer.status import snapshot

__all__ = ["VERBS", "Asked", "Verb"]

_REQUIRED: Final = object()


@dataclass(frozen=True)
class Verb:
    """A question: its fields, each with its type and, unless it must be given, its default."""

    fields: Mapping[str, tuple[type, Any]]
    meaning: str

    def check(self, verb: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return all fields, or raise UsageError."""
        for name in given:
            if name not in self.fields:
                raise UsageError(f"{verb}: unknown field {name!r}")
        checked = {}
        for name, (kind, default) in self.fields.items():
            value: Any = given.get(name, default)
            if kind is float and type(value) is int:
                value = float(value)
            if value is _REQUIRED:
                raise UsageError(f"{verb}: field {name!r} is missing")
            # bool is an int to isinstance, hence the comparison of types.
            if type(value) is not kind:
                raise UsageError(f"{verb}: {name}: expected {kind.__name__}")
            checked[name] = value
        return checked


VERBS: Final[dict[str, Verb]] = {
    "status": Verb({}, "What this peer knows of itself, the fleet and its jobs."),
}


class Asked:
    """Answers the questions of one peer's door."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._answers: dict[str, Callable[[Asker, dict[str, Any]], None]] = {
            "status": self._status,
        }

    def take(self, asker: Asker, verb: str, fields: dict[str, Any]) -> None:
        """A question came."""
        try:
            if verb not in VERBS:
                raise UsageError(f"this peer does not know {verb!r:.80}: is its p2pclust older than yours?")
            self._answers[verb](asker, VERBS[verb].check(verb, fields))
        except P2PClustError as error:
            asker.refuse(str(error), error.exit_code)

    def _status(self, asker: Asker, fields: dict[str, Any]) -> None:
        asker.answer(snapshot(self._shell))
