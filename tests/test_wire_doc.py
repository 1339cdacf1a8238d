"""The page on the wire format names every kind of message and every field with its type, as the code has them."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from p2pclust.peer.core import (
    codec,
    job_messages,  # noqa: F401 (its classes are message kinds)
)
from p2pclust.peer.core.messages import (
    Digest,
    Frame,
    JobMessage,
    Message,
    Name,
    OptionalInt,
    Signature,
    SignedBytes,
    Update,
)
from p2pclust.transport import wire

PAGE = (Path(__file__).parents[1] / "docs" / "wire.md").read_text(encoding="utf-8")
# A dataclass with slots is made twice; the second class is the one that is used.
ALL = [cls for base in (Message, JobMessage) for cls in base.__subclasses__() if cls is not JobMessage]
KINDS = list({cls.kind: cls for cls in ALL}.values())

#: What the page calls the types of fields.
WORDS: dict[Any, str] = {
    int: "int", bool: "bool", str: "text", bytes: "bytes", Name: "name", Digest: "digest", Update: "update",
    Frame: "frame", OptionalInt: "optional", Signature: "signature",
    SignedBytes: "signed",
}  # fmt: skip


def fields_of(cls: type) -> str:
    """The page's list of the fields of a message, in order; a field without a type is an int. `job` is left out."""
    hints = get_type_hints(cls, include_extras=True)
    words = []
    for field in dataclasses.fields(cls)[1 if issubclass(cls, JobMessage) else 0 :]:
        hint = hints[field.name]
        many = get_origin(hint) is tuple
        word = WORDS[get_args(hint)[0] if many else hint]
        words.append(f"`{field.name}`" + (f" {word}{'s' if many else ''}" if many or word != "int" else ""))
    return ", ".join(words)


def listed() -> list[tuple[str, str]]:
    """The kinds of messages that the page lists, each with its fields."""
    messages = PAGE.partition("\n## Messages\n")[2].partition("\n## ")[0]
    items = re.findall(r"^- `([a-z-]+)`(?: \(([^)]*)\))?:", messages, re.MULTILINE)
    return [(kind, " ".join(fields.split())) for kind, fields in items]


def test_the_page_has_the_fields_of_every_message() -> None:
    wrong = []
    for cls in KINDS:
        found = [fields for kind, fields in listed() if kind == cls.kind]
        if len(found) != 1:
            wrong.append(f"docs/wire.md: {len(found)} items for {cls.kind}, expected one")
        elif found[0] != fields_of(cls):
            wrong.append(f"docs/wire.md: the fields of {cls.kind} are: {fields_of(cls)}")
    assert not wrong, "\n".join(wrong)


def test_the_page_has_no_kind_that_the_code_lacks() -> None:
    assert {kind for kind, _ in listed()} == {cls.kind for cls in KINDS}


def test_the_page_has_the_parts_of_an_update() -> None:
    assert fields_of(Update) in " ".join(PAGE.split())


def test_the_page_has_the_limits() -> None:
    limits = {
        "version": wire.WIRE_VERSION,
        "frames behind the header": wire.MAX_FRAMES,
        "header, bytes": wire.MAX_HEADER_BYTES,
        "control message, bytes": wire.MAX_CONTROL_BYTES,
        "frame, bytes": wire.MAX_FRAME_BYTES,
        "name, letters": codec._MAX_NAME,
    }
    for what, value in limits.items():
        assert f"| {what} | {value} |" in PAGE, f"docs/wire.md: {what} is {value}"
