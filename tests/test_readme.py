"""Python examples in the documents run, and the README is short and has a map of all folders."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_the_examples_run(page: str) -> None:
    failed, tried = doctest.testfile(str(ROOT / page), module_relative=False)
    assert tried > 0
    assert failed == 0


def test_it_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) < 1500


def test_every_folder_is_on_the_map() -> None:
    mapped = set(re.findall(r"^\| \[`(\w+)/`\]", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE))
    # A folder with a page or a module of its own; what a build, a run or a tool leaves behind has neither.
    there = {
        folder.name
        for folder in ROOT.iterdir()
        if folder.is_dir() and not folder.name.startswith(".") and folder.name not in ("runs", "build", "dist")
        if any((folder / name).exists() for name in ("README.md", "__init__.py", "architecture.md", "conftest.py"))
    }
    assert mapped == there
