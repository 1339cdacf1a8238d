"""Lists in the documents equal what the code has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests import doc_lists


@pytest.mark.parametrize("page", doc_lists.pages(), ids=lambda page: page.name)
def test_the_lists_of(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert doc_lists.renewed(text) == text, "write the lists anew: python -m tests.doc_lists"


def test_every_list_is_in_one_page() -> None:
    texts = [page.read_text(encoding="utf-8") for page in doc_lists.pages()]
    found = [name for text in texts for name in re.findall(r"<!-- generated: (\S+) -->", text)]
    assert sorted(found) == sorted(doc_lists.LISTS)


def test_a_list_is_written_anew() -> None:
    old = "# Page\n<!-- generated: secure -->\n- `gone`: `peer`\n<!-- end -->\nText.\n"
    new = doc_lists.renewed(old)
    assert "| `keepers` | " in new
    assert "`gone`" not in new
    assert new.startswith("# Page\n<!-- generated: secure -->\n")
    assert new.endswith("\n<!-- end -->\nText.\n")
    assert doc_lists.renewed(new) == new
