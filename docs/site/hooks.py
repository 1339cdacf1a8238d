"""What MkDocs does differently here: pages outside of `docs/`, and files that pages link to.

In the site every file keeps the path that it has in the checkout, so links between pages work in both. Only addresses
are shorter: `docs/tour.md` becomes `tour.html`.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]

#: Pages outside of `docs/`, and where each is in the site. `index.html` is the start page, docs/index.md.
OUTSIDE = {
    "README.md": "install.html",
    "CHANGELOG.md": "changelog.html",
    "CONTRIBUTING.md": "contributing.html",
    "SECURITY.md": "security-policy.html",
    "benchmarks/README.md": "benchmarks/index.html",
    "peers/README.md": "peers/index.html",
    "peers/monitoring/README.md": "peers/monitoring/index.html",
    "scenarios/README.md": "scenarios/index.html",
    "topology/README.md": "topology/index.html",
}

_CODE = re.compile(r"^```.*?^```$|``[^\n]+?``|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<path>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)")


@event_priority(-100)
def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Give the files of `docs/` their paths in the checkout, and add the pages outside and linked files."""
    for file in files:
        if file.src_dir == config.docs_dir:
            file.src_dir, file.src_uri = str(ROOT), f"docs/{file.src_uri}"
    found = Files(list(files))
    for path, address in OUTSIDE.items():
        found.append(_file(path, config, address))
    for page in list(found.documentation_pages()):
        for target in _targets(page):
            if target not in found.src_uris and (ROOT / target).is_file():
                found.append(_file(target, config, target))
    return found


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leave the text of links to folders of the code, which the site does not have."""

    def without(match: re.Match[str]) -> str:
        return match["text"] if (ROOT / _resolved(page.file, match["path"])).is_dir() else match[0]

    return _LINK.sub(without, markdown)


def _file(path: str, config: MkDocsConfig, address: str) -> File:
    return File(path, str(ROOT), config.site_dir, use_directory_urls=False, dest_uri=address)


def _targets(page: File) -> list[str]:
    """Return the paths that a page links to, relative to the checkout."""
    if not page.src_uri.endswith(".md"):
        return []
    text = _CODE.sub(lambda match: "code" * ("\n" not in match[0]), page.content_string)
    return [_resolved(page, match["path"]) for match in _LINK.finditer(text)]


def _resolved(page: File, link: str) -> str:
    whole = (ROOT / PurePosixPath(page.src_uri).parent / link).resolve()
    return whole.relative_to(ROOT).as_posix() if whole.is_relative_to(ROOT) else ""
