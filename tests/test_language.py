"""Retired words stay out of documents, messages, docstrings and comments.

``tests/language_allowance.toml`` says how many are left in each part, and may only shrink: ``python -m tests.test_language``
writes lower numbers into it, and refuses higher ones.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
ALLOWANCE = Path(__file__).with_name("language_allowance.toml")

#: Say instead: "a peer that", "no peer", "every peer", "fault", "workspace", "control address", "report", "is not a".
RETIRED = (
    "whoever", "whomever", "whom", "nobody", "everybody", "somebody", "anybody", "misfortunes?", "suffering", "desks?",
    "offices?", "doors?", "(?:is|are|was|were) no (?!longer)", "tells?", "told", "telling", "as far as is known",
)  # fmt: skip
_RETIRED = re.compile(rf"\b(?:{'|'.join(RETIRED)})(?!\w)", re.IGNORECASE)
_HEADER = "# How many retired words are left in each part; written by: python -m tests.test_language\n\n"


_TEXT = re.compile(
    r"""(?P<comment>\#[^\n]*)
    |(?:"{3}|'{3})(?:\\.|[^\\])*?(?:"{3}|'{3})
    |"(?:\\.|[^"\\\n])*"
    |'(?:\\.|[^'\\\n])*'""",
    re.VERBOSE | re.DOTALL,
)


def language_of(source: str) -> Iterator[tuple[int, str]]:
    """Yield the comments and texts of a module, with where each begins; a text without a space is a name."""
    for match in _TEXT.finditer(source):
        if _RETIRED.search(match[0]) and (match["comment"] or " " in match[0].strip()):
            yield match.start(), re.sub(r"`[^`\n]*`|\{[^{}\n]*\}", "", match[0])  # without code, in either


def without_code(text: str) -> str:
    """Return a page without what stands between backticks, links' targets and generated lists, its lines where they were."""
    for pattern in (r"<!-- generated: .*?<!-- end -->", r"^```.*?^```$", r"`[^`\n]*`", r"\]\([^)\n]*\)"):
        text = re.sub(pattern, lambda m: "\n" * m[0].count("\n"), text, flags=re.DOTALL | re.MULTILINE)
    return text


@cache
def found_in(path: Path) -> list[tuple[int, str]]:
    """Return the line and the word of each retired word in a file."""
    text = path.read_text(encoding="utf-8")
    pieces = language_of(text) if path.suffix == ".py" else [(0, without_code(text))]
    return [
        (text.count("\n", 0, start) + piece.count("\n", 0, match.start()) + 1, match[0].lower().strip())
        for start, piece in pieces
        for match in _RETIRED.finditer(piece)
    ]


def part_of(path: Path) -> str:
    """Return the part that a file is counted in: a page itself, or a package, two levels deep."""
    inside = path.relative_to(ROOT)
    if path.suffix == ".md":
        return inside.parent.as_posix() if inside.parts[1:2] in (("decisions",), ("protocols",)) else inside.as_posix()
    return "/".join(inside.parts[: min(3, len(inside.parts) - 1)])


def files() -> list[Path]:
    """Return what is read: the package and the documents. The command line's page is made from the package."""
    folders = ("docs", "scenarios", "topology", "peers", "benchmarks")
    pages = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "SECURITY.md",
        *(page for folder in folders for page in sorted((ROOT / folder).glob("**/*.md"))),
    ]
    return [*sorted((ROOT / "p2pclust").glob("**/*.py")), *(page for page in pages if page.name != "cli.md")]


@cache
def parts() -> dict[str, list[Path]]:
    """Return the parts, with their files."""
    found: dict[str, list[Path]] = {}
    for path in files():
        found.setdefault(part_of(path), []).append(path)
    return dict(sorted(found.items()))


def allowed() -> dict[str, int]:
    """Return how many retired words each part may have; none where it is not named."""
    numbers: dict[str, int] = tomllib.loads(ALLOWANCE.read_text(encoding="utf-8"))["left"] if ALLOWANCE.exists() else {}
    return numbers


def test_no_retired_word_comes_back() -> None:
    wrong = []
    for part, paths in parts().items():
        found = [f"{path.relative_to(ROOT)}:{line}: {word}" for path in paths for line, word in found_in(path)]
        limit = allowed().get(part, 0)
        if len(found) > limit:
            wrong += [f"{part}: {len(found)} retired words instead of {limit}; use plain words:", *found]
        elif len(found) < limit:
            wrong.append(f"{part}: {len(found)} are left, not {limit}: python -m tests.test_language lowers it")
    assert not wrong, "\n".join(wrong)


def test_every_allowance_is_of_a_part() -> None:
    assert set(allowed()) <= set(parts())


def test_what_is_found() -> None:
    source = '"""Told to nobody."""\ndesk = "told"  # whoever\nraise ValueError(f"is no {desk}")\n# is no longer here\n'
    found = [match[0].lower() for _, text in language_of(source) for match in _RETIRED.finditer(text)]
    assert found == ["told", "nobody", "whoever", "is no "]
    page = "Who\ntells `nobody`\n```\ntold\n```\n[text](told.md) whom\n"
    assert [match[0] for match in _RETIRED.finditer(without_code(page))] == ["tells", "whom"]


def main() -> None:
    """Write the numbers of now, where they are lower."""
    old = allowed()
    now = {part: number for part, paths in parts().items() if (number := sum(len(found_in(path)) for path in paths))}
    higher = {part: number for part, number in now.items() if old and number > old.get(part, 0)}
    if higher:
        sys.exit(f"more retired words than before: {higher}")
    lines = "".join(f'"{part}" = {number}\n' for part, number in now.items())
    ALLOWANCE.write_text(f"{_HEADER}[left]\n{lines}", encoding="utf-8")


if __name__ == "__main__":
    main()
