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
from p2pclust.peer.core.messages import Digest, Frame, JobMessage, Later, Message, Name, Signature, Update
from p2pclust.transport import wire

PAGE = (Path(__file__).parents[1] / "docs" / "wire.md").read_text(encoding="utf-8")
# A dataclass with slots is made twice; the second class is the one that is used.
ALL = [cls for base in (Message, JobMessage) for cls in base.__subclasses__() if cls is not JobMessage]
KINDS = list({cls.kind: cls for cls in ALL}.values())

#: What the page calls the types of fields.
WORDS: dict[Any, str] = {
    int: "int", bool: "bool", str: "text", bytes: "bytes", Name: "name", Digest: "digest", Update: "update",
    Frame: "frame", Later: "later", Signature: "signature",
}  # fmt: skip


def fields_of(cls: type) -> str:
    """The cell of the page's table that lists the fields of a message, in order."""
    hints = get_type_hints(cls, include_extras=True)
    words = []
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        many = get_origin(hint) is tuple
        word = WORDS[get_args(hint)[0] if many else hint]
        words.append(f"`{field.name}` {word}{'s' if many else ''}")
    return ", ".join(words)


def rows_of(kind: str) -> list[str]:
    return re.findall(rf"^\| `{re.escape(kind)}` \|.*$", PAGE, re.MULTILINE)


def test_the_page_has_the_fields_of_every_message() -> None:
    wrong = []
    for cls in KINDS:
        rows = rows_of(cls.kind)
        if len(rows) != 1:
            wrong.append(f"docs/wire.md: {len(rows)} rows for {cls.kind}, expected one")
        elif rows[0].strip("|").split("|")[1].strip() != fields_of(cls):
            wrong.append(f"docs/wire.md: the fields of {cls.kind} are: {fields_of(cls)}")
    assert not wrong, "\n".join(wrong)


def test_the_page_has_no_kind_that_the_code_lacks() -> None:
    messages = PAGE.partition("\n## Messages\n")[2].partition("\n## ")[0]
    listed = set(re.findall(r"^\| `([a-z-]+)` \| `", messages, re.MULTILINE))
    assert listed == {cls.kind for cls in KINDS}


def test_the_page_has_the_parts_of_an_update() -> None:
    assert fields_of(Update) in PAGE


def test_the_page_has_the_limits() -> None:
    limits = {
        "major version": wire.WIRE_VERSION,
        "minor version": wire.WIRE_MINOR,
        "frames behind the header": wire.MAX_FRAMES,
        "header, bytes": wire.MAX_HEADER_BYTES,
        "control message, bytes": wire.MAX_CONTROL_BYTES,
        "frame, bytes": wire.MAX_FRAME_BYTES,
        "name, letters": codec._MAX_NAME,
    }
    for what, value in limits.items():
        assert f"| {what} | {value} |" in PAGE, f"docs/wire.md: {what} is {value}"
