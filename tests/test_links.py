"""Links between the pages lead somewhere: to a file of the checkout, and to a heading that is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("benchmarks", "docs", "peers", "scenarios", "topology")
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).glob("**/*.md"))])

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """The anchors that a page's headings get where it is shown."""
    without_code = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", without_code, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def broken(page: Path) -> list[str]:
    """What is wrong with the links of a page, one line each."""
    # A link's text may be code; what looks like a link inside of code is none.
    text = _CODE.sub(lambda match: "code", page.read_text(encoding="utf-8"))
    wrong = []
    for link in _LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue  # elsewhere on the net: no test goes there
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            wrong.append(f"{link}: there is no {target.relative_to(ROOT) if target.is_relative_to(ROOT) else target}")
        elif not target.is_relative_to(ROOT):
            wrong.append(f"{link}: leads out of the checkout")
        elif anchor and anchor not in anchors(target.read_text(encoding="utf-8")):
            wrong.append(f"{link}: no such heading")
    return wrong


def test_every_link_leads_somewhere() -> None:
    assert {str(page.relative_to(ROOT)): wrong for page in PAGES if (wrong := broken(page))} == {}


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    (tmp_path / "b.md").write_text("# What it's\n```\n# no heading\n```\n")
    (tmp_path / "a.md").write_text(
        "[1](b.md) [2](b.md#what-its) [3](https://example.org/x) `[4](code.md)` [`5`](b.md)\n"
        "[6](c.md) [7](b.md#no-heading) [8](../..)\n```\n[9](code.md)\n```\n"
    )
    assert [line.split(":")[0] for line in broken(tmp_path / "a.md")] == ["c.md", "b.md#no-heading", "../.."]


def test_pages_are_found() -> None:
    assert {ROOT / "README.md", ROOT / "docs" / "wire.md", ROOT / "peers" / "README.md"} <= set(PAGES)
