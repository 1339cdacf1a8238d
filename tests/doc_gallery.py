"""The gallery, `docs/gallery.md`, is made from the scenarios, the sweeps, and the questions of the two notebooks.

``python -m tests.doc_lists`` writes its lists anew; ``python -m tests.doc_pictures`` takes the pictures of scenarios.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.doc_pictures import LABELS

from p2pclust.lab.scenario.file.examples import examples

__all__ = ["Entry", "entries", "rows_of_experiments", "rows_of_scenarios"]

ROOT = Path(__file__).parents[1]

_ENTRY = re.compile(r"^### (?P<title>.+?)\n(?P<body>.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(
    r"^(?:\$ )?(?P<command>p2pclust (?:run|audit|topology sweep) (?:\w+/)?(?P<name>[\w-]+).*)$", re.MULTILINE
)
_PARAGRAPH = r"^\*{word}\.\*(.+?)(?:\n\n|\Z)"


@dataclass(frozen=True)
class Entry:
    """What a notebook says of one experiment."""

    name: str
    heading: str
    question: str
    command: str
    #: Of the notebook's own pictures the first one, with its text; empty if there is none.
    picture: str


def entries(notebook: str) -> dict[str, Entry]:
    """Return the entries of a notebook by the name of the file that they are about."""
    found = {}
    for match in _ENTRY.finditer(notebook):
        command = _COMMAND.search(match["body"])
        if "*Question.*" not in match["body"] or command is None:
            continue
        picture = re.search(r"!\[[^\]]*\]\([^)]+\)", match["body"])
        found[command["name"]] = Entry(
            command["name"], match["title"], _paragraph(match["body"], "Question"), command["command"],
            picture[0] if picture else "",
        )  # fmt: skip
    return found


def rows_of_scenarios() -> list[str]:
    """Return the entries of all scenarios that are installed with the package."""
    notebook = entries((ROOT / "scenarios" / "README.md").read_text(encoding="utf-8"))
    rows: list[str] = []
    for example in sorted(examples(ROOT / "scenarios"), key=lambda example: list(notebook).index(example.name)):
        entry = notebook[example.name]
        picture = f"![{LABELS[example.name]}](gallery/{example.name}.png)"
        rows += _shown(picture, entry, "../scenarios/README.md")
    return rows


def rows_of_experiments() -> list[str]:
    """Return the entries of all sweeps over overlays."""
    notebook = entries((ROOT / "topology" / "README.md").read_text(encoding="utf-8"))
    rows: list[str] = []
    for entry in notebook.values():
        rows += _shown(entry.picture.replace("](", "](../topology/"), entry, "../topology/README.md")
    return rows


def _shown(picture: str, entry: Entry, page: str) -> list[str]:
    anchor = re.sub(r"[^\w\- ]", "", entry.heading.lower()).strip().replace(" ", "-")
    parts = (f"### {entry.heading}", picture, entry.question, f"`{entry.command}` ([finding]({page}#{anchor}))")
    return [line for part in parts for line in ("", part)]


def _paragraph(body: str, word: str) -> str:
    """Return the paragraph that begins with this word, in one line, without links."""
    match = re.search(_PARAGRAPH.replace("{word}", word), body, re.MULTILINE | re.DOTALL)
    assert match is not None, f"an entry of a notebook has no *{word}.*:\n{body[:200]}"
    return re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", " ".join(match[1].split()))
