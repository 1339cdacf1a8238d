"""Messages as bytes, and the check that received ones must pass.

The annotations of a message are its schema: `decode` wants these fields, of exactly these types, within these limits, and
raises `WireError` otherwise. Fields of type `Frame` travel as raw frames behind the header. A field that is not known here
is ignored, so that a later release can add one that peers without it do not need.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final, get_args, get_origin, get_type_hints

from p2pclust.errors import WireError
from p2pclust.peer.core import job_messages  # noqa: F401 (its classes are message kinds)
from p2pclust.peer.core.messages import Digest, JobMessage, Message, Name, OptionalInt, Signature, Update, frames_field
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


def _name(value: Any) -> str:
    if type(value) is not str or not 0 < len(value) <= _MAX_NAME or not value.isprintable():
        raise WireError("expected a name")
    return value


def _text(value: Any) -> str:
    if type(value) is not str or len(value) > _MAX_TEXT:
        raise WireError("expected text")
    return printable(value)


def _short(value: Any) -> str:
    if type(value) is not str or len(value) > _MAX_SHORT or not value.isprintable():
        raise WireError("expected short text")
    return value


def _bytes(value: Any) -> bytes:
    if type(value) is not bytes or len(value) > _MAX_TEXT:
        raise WireError("expected bytes")
    return value


def _digest(value: Any) -> bytes:
    if type(value) is not bytes or len(value) not in (0, 32):
        raise WireError("expected a digest")
    return value


def _signature(value: Any) -> bytes:
    if type(value) is not bytes or len(value) not in (0, 64):
        raise WireError("expected a signature")
    return value


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


_UPDATE: Final[tuple[_Check, ...]] = (_name, _name, _int, _short, _short, _short)
_CHECKS: Final[dict[Any, _Check]] = {
    int: _int, bool: _bool, str: _text, bytes: _bytes, Name: _name, Digest: _digest, Update: _update, OptionalInt: _int,
    Signature: _signature,
}  # fmt: skip


def _absent_if_empty(cls: type[Message]) -> frozenset[str]:
    """The fields that are sent only where they are not 0 or empty."""
    absent = (OptionalInt, tuple[OptionalInt, ...], tuple[Signature, ...])
    return frozenset(name for name, hint in get_type_hints(cls, include_extras=True).items() if hint in absent)


def _schema(cls: type[Message]) -> tuple[tuple[tuple[str, _Check], ...], str | None]:
    """The header fields with their checks, and the name of the field that travels as frames."""
    hints = get_type_hints(cls, include_extras=True)
    fields: list[tuple[str, _Check]] = []
    frames = frames_field(cls)
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        if field.name == frames:
            continue
        if get_origin(hint) is tuple:
            fields.append((field.name, _tuple_of(_CHECKS[get_args(hint)[0]])))
        else:
            fields.append((field.name, _CHECKS[hint]))
    return tuple(fields), frames


#: The classes of messages, by kind.
KINDS: Final[dict[str, type[Message]]] = {
    cls.kind: cls for base in (Message, JobMessage) for cls in base.__subclasses__() if cls is not JobMessage
}
_SCHEMAS: Final = {kind: _schema(cls) for kind, cls in KINDS.items()}
_OPTIONAL: Final = {kind: _absent_if_empty(cls) for kind, cls in KINDS.items()}


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
    fields, frames = _SCHEMAS[message.kind]
    header = {}
    for name, _ in fields:
        value = getattr(message, name)
        updates = type(value) is tuple and value and type(value[0]) is Update  # a tuple has values of one type
        header[name] = [_plain(update) for update in value] if updates else value
    for name in _OPTIONAL[message.kind]:
        if not header[name]:
            del header[name]
    return pack(message.kind, header, getattr(message, frames) if frames else ())


def decode(parts: Sequence[bytes]) -> Message:
    """Decode and check what another peer sent.

    Raises
    ------
    WireError
        If anything about it is not as the schema says.
    """
    kind, values, frames = unpack(parts)
    if kind not in KINDS:
        raise WireError("unknown kind of message")
    fields, frames_name = _SCHEMAS[kind]
    checked: dict[str, Any] = {}
    for name, check in fields:
        if name in values:
            checked[name] = check(values[name])
        elif name not in _OPTIONAL[kind]:
            raise WireError(f"{kind}: field {name} is missing")
    if frames_name is not None:
        checked[frames_name] = tuple(frames)
    elif frames:
        raise WireError(f"{kind}: {len(frames)} frames, expected none of at most {MAX_FRAMES}")
    return KINDS[kind](**checked)
