"""The documents as a site: strict links, nothing from the network, the same on a code host, and a notebook that runs.

`make docs` builds the same into `build/site`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator, FormatChecker
from tests import doc_gallery, doc_pictures

import p2pclust
from p2pclust import errors, metrics, protocols

ROOT = Path(__file__).parents[1]
FOLDERS = ("benchmarks", "docs", "peers", "scenarios", "topology")
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).glob("**/*.md"))])
NOTEBOOK = ROOT / "docs" / "tutorials" / "three-hospitals.ipynb"
LONGEST_ROW = 400  # characters: code hosts show wider tables badly
LARGEST = 1.5e6  # bytes of all pictures of the gallery


# -- the sources --------------------------------------------------------------------------------------------------------


def test_rows_of_tables_are_short() -> None:
    long = [
        f"{page.relative_to(ROOT)}:{line}: {len(row)} characters"
        for page in PAGES
        for line, row in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1)
        if row.startswith("|") and len(row) > LONGEST_ROW
    ]
    assert long == [], "write shorter rows, or a list below the table"


def test_every_scenario_and_sweep_is_in_the_gallery() -> None:
    text = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    scenarios = {file.stem for file in (ROOT / "scenarios").glob("*.toml")}
    assert {name for name in scenarios if f"](gallery/{name}.png)" in text} == scenarios
    assert set(doc_pictures.LABELS) == scenarios
    sweeps = {file.name for file in (ROOT / "topology").glob("*.toml")}
    assert {name for name in sweeps if f"`p2pclust topology sweep topology/{name}" in text} == sweeps


def test_pictures_of_the_gallery_are_few_bytes_and_all_used() -> None:
    pictures = list(doc_pictures.PICTURES.iterdir())
    assert {file.name for file in pictures} == {f"{name}.png" for name in doc_pictures.LABELS}
    assert sum(file.stat().st_size for file in pictures) < LARGEST


def test_an_entry_of_a_notebook_is_read() -> None:
    text = (
        "## Notebook\n\n### A title?\n\n*Question.* Does [it](x.md)\nwork?\n\n```\np2pclust run scenarios/one.toml\n```\n"
        "![a picture](p.svg)\n\n*Found.* Yes. It works, as follows:\n\n| | |\n\n### No question\n\ntext\n"
    )
    assert doc_gallery.entries(text) == {
        "one": doc_gallery.Entry(
            "one", "A title?", "Does it work?", "p2pclust run scenarios/one.toml", "![a picture](p.svg)"
        )
    }


def test_every_public_name_has_a_place_in_the_reference() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").glob("*.md"))
    shown = re.findall(r"^::: (\S+)$", text, re.MULTILINE)
    assert len(set(shown)) == len(shown)
    names = {name.rpartition(".")[2] for name in shown}
    own = {name for name, it in vars(errors).items() if getattr(it, "__module__", "") == errors.__name__}
    public = {*p2pclust.__all__, *metrics.__all__, *protocols.__all__, *own} - {"metrics", "__version__"}
    assert public - names == set()


def test_the_citation_follows_the_schema() -> None:
    document = yaml.load((ROOT / "CITATION.cff").read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    for reference in document["references"]:
        reference.update({key: int(reference[key]) for key in ("year", "volume", "issue") if key in reference})
    schema = (Path(__file__).parent / "schemas" / "cff-1.2.0.json").read_text(encoding="utf-8")
    checker = Draft7Validator(yaml.safe_load(schema), format_checker=FormatChecker())
    assert [error.message for error in checker.iter_errors(document)] == []
    assert document["version"] == p2pclust.__version__
    assert len(document["references"]) == 5
    del document["authors"]
    assert not checker.is_valid(document)


# -- the notebook -------------------------------------------------------------------------------------------------------


def outputs(notebook: Any) -> list[tuple[str, list[str]]]:
    """Return for each cell of code what it printed, in one piece however it came, and the kinds of what else it shows."""
    found = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            printed = "".join(output.get("text", "") for output in cell.outputs)
            shown = [" ".join(sorted(output["data"])) for output in cell.outputs if "data" in output]
            found.append((printed, shown))
    return found


@pytest.mark.slow
@pytest.mark.processes
def test_the_notebook_prints_what_it_shows(tmp_path: Path) -> None:
    nbclient, nbformat = (
        pytest.importorskip("nbclient", reason="pip install 'p2pclust[docs]'"),
        pytest.importorskip("nbformat"),
    )
    shown = nbformat.read(NOTEBOOK, as_version=4)
    run = nbformat.read(NOTEBOOK, as_version=4)
    for cell in run.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    nbclient.NotebookClient(run, timeout=100, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert outputs(run) == outputs(shown)
    assert ("", ["image/png text/plain"]) in outputs(shown)


# -- the site -----------------------------------------------------------------------------------------------------------


class Article(HTMLParser):
    """The elements inside a page's article, and all addresses that a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = False
        self.elements: Counter[str] = Counter()
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.inside = self.inside or tag == "article"
        if self.inside:
            self.elements[tag] += 1
        address = named.get("href") if tag == "link" else named.get("src")
        if tag in ("link", "script", "img", "iframe", "source") and address and named.get("rel") != "canonical":
            self.loaded.append(address)

    def handle_endtag(self, tag: str) -> None:
        if tag == "article":
            self.inside = False


def read(page: str) -> Article:
    """Return what is in a page."""
    article = Article()
    article.feed(page)
    return article


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does."""
    if shutil.which("mkdocs", path=str(Path(sys.executable).parent)) is None:
        pytest.skip("no mkdocs here: pip install 'p2pclust[docs]'")
    out = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "--quiet", "build", "--strict", "--site-dir", out], cwd=ROOT, capture_output=True,
        text=True, check=False, timeout=110, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert built.returncode == 0, built.stderr[-3000:]
    return out


@pytest.mark.slow
@pytest.mark.xdist_group("site")  # it is built once
def test_the_site(site: Path) -> None:
    pages = {path: path.read_text(encoding="utf-8") for path in site.glob("**/*.html")}
    foreign = {
        f"{path.relative_to(site)}: {address}"
        for path, text in pages.items()
        for address in read(text).loaded
        if re.match(r"(?:https?:)?//", address)
    }
    assert foreign == set(), "the site loads nothing from the network"
    assert "unpkg.com/iframe-worker" not in pages[site / "index.html"]
    assert "https://fonts." not in pages[site / "index.html"]
    assert "LosslessFuzzyCMeans" in pages[site / "reference" / "lossless.html"]
    assert "hospital 0: 207 rows" in pages[site / "tutorials" / "three-hospitals.html"]


@pytest.mark.slow
@pytest.mark.xdist_group("site")
def test_pages_have_the_same_parts_as_on_a_code_host(site: Path) -> None:
    """Lists, rows and blocks: Python-Markdown reads some that CommonMark knows as text."""
    markdown = pytest.importorskip("markdown_it").MarkdownIt("commonmark").enable("table")
    outside = {
        "README.md": "install.html", "CHANGELOG.md": "changelog.html", "CONTRIBUTING.md": "contributing.html",
        "SECURITY.md": "security-policy.html",
    }  # fmt: skip
    different = {}
    for page in PAGES:
        path, text = page.relative_to(ROOT).as_posix(), page.read_text(encoding="utf-8")
        if "::: p2pclust" in text:
            continue
        address = outside.get(path) or re.sub(
            r"README\.html$", "index.html", re.sub(r"\.md$", ".html", path.removeprefix("docs/"))
        )
        there, here = (
            read((site / address).read_text(encoding="utf-8")),
            read(f"<article>{markdown.render(text)}</article>"),
        )
        counted = {
            tag: (here.elements[tag], there.elements[tag])
            for tag in ("li", "tr", "pre", "h2", "h3", "h4", "blockquote", "img")
        }
        different |= {f"{path}: {tag}": pair for tag, pair in counted.items() if pair[0] != pair[1]}
    assert different == {}
