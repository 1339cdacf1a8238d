"""Files and names of code that the documents mention exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("**/*.md")])

#: Files that a page asks its reader to write.
INVENTED = {"p2pclust/protocols/noisy_cm.py", "noisy_cm.py", "hist_medians.py", "p2pclust.protocols.noisy_cm"}
#: Words with a dot whose first part is the name of a module by chance.
NO_NAMES = {
    "fleet.overlay", "fleet.devices", "data.partition", "fleet.bundle", "points.X", "local.X", "local.n_samples",
    "local.n_features", "local.weights", "local.min_cell",
}  # fmt: skip
_ENDINGS = "bundle|csv|gz|html|json|jsonl|key|log|md|msgpack|npy|npz|parquet|pub|py|request|sock|svg|toml|txt|wal|whl"

_CODE = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"(?:p2pclust|tests|scenarios|topology|peers|benchmarks)/[\w./-]*\w/?")
_FILE = re.compile(r"\w+\.py")
_NAME = re.compile(r"(?:p2pclust\.)?[a-z_]\w*(?:\.\w+)+")


@cache
def modules() -> dict[str, list[Path]]:
    """Return the modules of the package, by their last name; a package has the name of its folder."""
    found: dict[str, list[Path]] = {}
    for path in (ROOT / "p2pclust").glob("**/*.py"):
        found.setdefault(path.parent.name if path.stem == "__init__" else path.stem, []).append(path)
    return found


@cache
def names_in(path: Path) -> frozenset[str]:
    """Return what a module defines or imports at its top level, and ``Class.attribute`` of its classes."""
    found = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body:
        found |= _defined(node)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for inner in node.body for name in _defined(inner)}
            found |= {
                f"{node.name}.{inner.attr}"
                for inner in ast.walk(node)
                if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store)
            }
        elif isinstance(node, ast.Assign) and any(getattr(t, "id", "") == "__all__" for t in node.targets):
            found |= {element.value for element in getattr(node.value, "elts", []) if isinstance(element, ast.Constant)}
    return frozenset(str(name) for name in found)


def _defined(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name for alias in node.names}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {target.id for target in targets if isinstance(target, ast.Name)}


def wrong_name(dotted: str) -> bool:
    """Whether a dotted name starts with a module of the package, and continues with what it does not have."""
    parts = dotted.removeprefix("p2pclust.").split(".")
    whole = dotted.startswith("p2pclust.")
    places = modules().get(parts[0], [])
    if not places:
        return whole and parts[0] not in names_in(ROOT / "p2pclust" / "__init__.py")
    # The longest part that is a module, wherever it lies; then a name of it.
    for size in range(len(parts), 0, -1):
        for path in modules().get(parts[size - 1], []):
            folders = [part for part in path.relative_to(ROOT / "p2pclust").with_suffix("").parts if part != "__init__"]
            if folders[-size:] != parts[:size]:
                continue
            if size == len(parts) or ".".join(parts[size : size + 2]) in names_in(path):
                return False
    return True


def wrong(text: str) -> list[str]:
    """Return what a page mentions and the checkout lacks."""
    found = []
    for code in _CODE.findall(re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)):
        if code in INVENTED:
            continue
        if _FILE.fullmatch(code):
            if not any(path.name == code for paths in modules().values() for path in paths):
                found.append(code)
        elif re.match(_PATH, code) and (match := re.fullmatch(_PATH, code)):
            if not (ROOT / match[0]).exists():
                found.append(code)
        elif _NAME.fullmatch(code) and not re.search(rf"\.(?:{_ENDINGS})$", code) and code not in NO_NAMES:
            found += [code] * wrong_name(code)
    return found


def test_what_pages_mention_exists() -> None:
    texts = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in PAGES}
    assert {page: found for page, text in texts.items() if (found := wrong(text))} == {}


def test_what_is_not_there_is_found() -> None:
    text = (
        "`p2pclust/peer/gone.py` `gone.py` `follower.py` `engine.gone` `engine.advance` `result.json`\n"
        "`p2pclust/peer/core/` `p2pclust.peer.core.rounds.gone` `p2pclust.peer.core.rounds.follower` `engine.Memory.value`\n"
        "`base.Protocol.gone`\n```\n`gone.py` in an example\n```\n"
    )
    assert wrong(text) == [
        "p2pclust/peer/gone.py", "gone.py", "engine.gone", "p2pclust.peer.core.rounds.gone", "base.Protocol.gone",
    ]  # fmt: skip


_REFERENCE = re.compile(r'(?P<page>docs/[\w/-]+\.md)`*(?:, "(?P<heading>[^"\n]+)")?')


def test_pages_that_the_code_mentions_exist() -> None:
    """Also their headings: a heading of its own, or the bold beginning of a paragraph or an item."""
    wrong_references = []
    for path in [*(ROOT / "p2pclust").glob("**/*.py"), *(ROOT / "tests").glob("**/*.py")]:
        source = path.read_text(encoding="utf-8")
        for match in _REFERENCE.finditer(source) if "docs/" in source else ():
            page = ROOT / match["page"]
            known = page.read_text(encoding="utf-8") if page.exists() else None
            heading = re.escape(match["heading"] or "")
            if known is None or not re.search(rf"^(?:#+ |- \*|\*\*){heading}", known, re.MULTILINE | re.IGNORECASE):
                wrong_references.append(f"{path.relative_to(ROOT)}: {match[0]}")
    assert wrong_references == []


def test_the_glossary_is_in_alphabetical_order() -> None:
    words = re.findall(r"^\*\*(.+?)\.\*\*", (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(words) > 40
    assert words == sorted(words, key=str.casefold)
    assert len(set(words)) == len(words)
