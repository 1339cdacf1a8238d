"""Messages as bytes, and the check that received ones must pass.

The annotations of a message are its schema. Fields of type `Frame` travel as raw frames behind the header. A field that is
not known here is ignored, so that a later release can add one that peers without it do not need.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Sequence
from operator import attrgetter
from typing import Any, Final, get_args, get_origin, get_type_hints

from p2pclust.errors import WireError
from p2pclust.peer.core import job_messages  # noqa: F401 (its classes are message kinds)
from p2pclust.peer.core.messages import Digest, JobMessage, Message, Name, OptionalInt, Signature, SignedBytes, Update
from p2pclust.tools.spelling import printable
from p2pclust.transport.wire import MAX_FRAMES, pack, unpack

_MAX_NAME: Final = 64
_MAX_COUNT: Final = 2**62
_MAX_TEXT: Final = 1024
_MAX_SHORT: Final = 80  # an address, a store's id

_Check = Callable[[Any], Any]


def _int(value: Any) -> int:
    if type(value) is not int or not -1 <= value <= _MAX_COUNT:
        raise WireError("expected an integer")
    return value


def _bool(value: Any) -> bool:
    if type(value) is not bool:
        raise WireError("expected true or false")
    return value


def _sized(kind: type[Any], lengths: Container[int], what: str) -> _Check:
    """The check of texts on one line, or of bytes, with one of these lengths."""

    def checked(value: Any) -> Any:
        if type(value) is not kind or len(value) not in lengths or not (kind is bytes or value.isprintable()):
            raise WireError(f"expected {what}")
        return value

    return checked


def _text(value: Any) -> str:
    if type(value) is not str or len(value) > _MAX_TEXT:
        raise WireError("expected text")
    return value if value.isprintable() else printable(value)


def _tuple_of(check: _Check) -> _Check:
    def checked(value: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise WireError("expected a list")
        return tuple(check(item) for item in value)

    return checked


def _update(value: Any) -> Update:
    if type(value) is not list or len(value) != len(_UPDATE):
        raise WireError("expected a member update")
    return Update(*(check(item) for check, item in zip(_UPDATE, value, strict=True)))


_NAME: Final = _sized(str, range(1, _MAX_NAME + 1), "a name")
_SHORT: Final = _sized(str, range(_MAX_SHORT + 1), "short text")
_UPDATE: Final[tuple[_Check, ...]] = (_NAME, _NAME, _int, _SHORT, _SHORT, _SHORT)
_CHECKS: Final[dict[Any, _Check]] = {
    int: _int, bool: _bool, str: _text, bytes: _sized(bytes, range(_MAX_TEXT + 1), "bytes"), Name: _NAME,
    Digest: _sized(bytes, (0, 32), "a digest"), Signature: _sized(bytes, (0, 64), "a signature"), OptionalInt: _int,
    SignedBytes: _sized(bytes, range(_MAX_TEXT + 1), "bytes"), Update: _update,
}  # fmt: skip
#: The kinds of fields that are sent only where they are not 0 or empty.
_OPTIONAL: Final = (OptionalInt, tuple[OptionalInt, ...], tuple[Signature, ...], SignedBytes)


def _schema(cls: type[Message]) -> tuple[tuple[str, _Check, bool], ...]:
    """The fields of the header, with their checks, and whether each may be absent."""
    hints = get_type_hints(cls, include_extras=True)
    names = [field.name for field in dataclasses.fields(cls) if field.name != cls.frames_field]
    return tuple(
        (name, _tuple_of(_CHECKS[get_args(hint)[0]]) if get_origin(hint) is tuple else _CHECKS[hint], hint in _OPTIONAL)
        for name, hint in ((name, hints[name]) for name in names)
    )


#: The classes of messages, by kind.
KINDS: Final[dict[str, type[Message]]] = {
    cls.kind: cls for base in (Message, JobMessage) for cls in base.__subclasses__() if cls is not JobMessage
}
_SCHEMAS: Final = {kind: _schema(cls) for kind, cls in KINDS.items()}


#: An update as it is sent.
_plain = attrgetter("name", "status", "incarnation", "address", "store_id", "by")


def encode(message: Message) -> list[bytes]:
    """Encode a message into a header and its frames.

    Examples
    --------
    >>> from p2pclust.peer.core.job_messages import Heartbeat
    >>> decode(encode(Heartbeat(job="j", term=2, round=5)))
    Heartbeat(job='j', term=2, round=5)
    """
    header = {}
    for name, _, optional in _SCHEMAS[message.kind]:
        value = getattr(message, name)
        if optional and not value:
            continue
        updates = type(value) is tuple and value and type(value[0]) is Update  # a tuple has values of one type
        header[name] = [_plain(update) for update in value] if updates else value
    return pack(message.kind, header, message.frames)


def decode(parts: Sequence[bytes]) -> Message:
    """Decode what another peer sent, or raise `WireError` if anything about it is not as the schema says."""
    kind, values, frames = unpack(parts)
    if kind not in KINDS:
        raise WireError("unknown kind of message")
    checked: dict[str, Any] = {}
    for name, check, optional in _SCHEMAS[kind]:
        if name in values:
            checked[name] = check(values[name])
        elif not optional:
            raise WireError(f"{kind}: field {name} is missing")
    if (frames_name := KINDS[kind].frames_field) is not None:
        checked[frames_name] = tuple(frames)
    elif frames:
        raise WireError(f"{kind}: {len(frames)} frames, expected none of at most {MAX_FRAMES}")
    return KINDS[kind](**checked)
