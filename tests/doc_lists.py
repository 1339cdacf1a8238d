"""Lists in the documents that are made from the code; ``tests/test_doc_lists.py`` compares them.

``python -m tests.doc_lists`` writes them anew, each between ``<!-- generated: NAME -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import UnionType
from typing import Annotated, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from tests import doc_gallery

from p2pclust.jobs import job_keys
from p2pclust.peer.core import round_reports  # noqa: F401 - its classes are found through their base
from p2pclust.peer.core.reports import JobReport, Report
from p2pclust.protocols.engine import exclusions, registry

ROOT = Path(__file__).parents[1]

_MARKED = re.compile(r"(?P<begin><!-- generated: (?P<name>\S+) -->\n).*?(?P<end><!-- end -->)", re.DOTALL)


def report_classes() -> list[type[Report]]:
    """Return the reports of the core, by their words."""
    found = {cls.verb: cls for base in (Report, JobReport) for cls in base.__subclasses__()}
    return [found[verb] for verb in sorted(found) if verb != JobReport.verb]


def name_rows() -> list[str]:
    """Return the names on the pages of the Python reference, an item of a list for each page."""
    rows: list[str] = []
    for page in sorted((ROOT / "docs" / "reference").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        names = re.findall(r"^::: \S+\.(\w+)$", text, re.MULTILINE)
        if names:
            item = f"- [{text.splitlines()[0].removeprefix('# ')}]({page.name}): {', '.join(f'`{name}`' for name in names)}"
            rows += textwrap.wrap(item, 140, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return rows


def key_rows(model: type[BaseModel]) -> list[str]:
    """Return a table of the keys of a TOML table: name, values, meaning."""
    schema = model.model_json_schema()["properties"]
    rows = [
        f"| `{name}` | {_values(key)} | {schema[name]['description']} |" for name, key in model.model_fields.items()
    ]
    return ["| key | values | meaning |", "|---|---|---|", *rows]


_TYPES = {bool: "`true`, `false`", int: "integer", float: "number", str: "text"}


def _values(field: FieldInfo) -> str:
    """Return the words that a key takes, or the type of its value; and its default."""
    annotation = field.annotation
    kinds = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    shown = []
    for kind in kinds:
        bare = get_args(kind)[0] if get_origin(kind) is Annotated else kind
        if get_origin(bare) is Literal:
            shown += [f"`{value}`" for value in get_args(bare)]
        elif bare in _TYPES:
            shown.append(_TYPES[bare])
        elif bare is not type(None):
            shown.append("table" if isinstance(bare, type) and issubclass(bare, BaseModel) else "text or list")
    words, default = ", ".join(shown), None if field.is_required() else field.get_default()
    return words if default is None else f"{words}; default `{str(default).lower()}`"


#: Parameters that are keys of every job, or of the data.
_ASKED = ("n_clusters", "scaling", "tol", "max_rounds")


def own_rows() -> list[str]:
    """Return a list of the parameters that are each protocol's own."""
    rows = []
    for name in registry.CLUSTERING:
        own = registry.parameters_of(registry.protocol_class(name)).items()
        shown = [
            f"`{key}`" if value is None else f"`{key} = {json.dumps(value)}`" for key, value in own if key not in _ASKED
        ]
        rows.append(f"- `{name}`: {', '.join(shown)}")
    return rows


def exclusion_rows() -> list[str]:
    """Return a table of the options that exclude or need each other."""
    rows = ["| rule | why | instead |", "|---|---|---|"]
    return rows + [f"| {one.words} | {one.why} | {one.instead} |" for one in exclusions.EXCLUSIONS]


LISTS: dict[str, Callable[[], list[str]]] = {
    "job": lambda: key_rows(job_keys.JobSpec),
    "secure": lambda: key_rows(job_keys.SecureSpec),
    "own": own_rows,
    "exclusions": exclusion_rows,
    "names": name_rows,
    "scenarios": doc_gallery.rows_of_scenarios,
    "experiments": doc_gallery.rows_of_experiments,
}


def pages() -> list[Path]:
    """Return the pages that hold such lists."""
    return [
        page for page in sorted((ROOT / "docs").glob("**/*.md")) if _MARKED.search(page.read_text(encoding="utf-8"))
    ]


def renewed(text: str) -> str:
    """Return a page with its lists as the code has them."""

    def put(match: re.Match[str]) -> str:
        return "\n".join([match["begin"], *LISTS[match["name"]](), "", match["end"]])

    return _MARKED.sub(put, text)


def main() -> None:
    """Write all lists anew."""
    for page in pages():
        page.write_text(renewed(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
