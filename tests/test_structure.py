"""The structure of the package: import contracts by folder, the size of folders, and one meaning for each class name."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import p2pclust

PACKAGE = Path(p2pclust.__file__).parent
ROOT = PACKAGE.parent
MOST_MODULES = 25


#: By new file: what it has in it, and how the contract begins that holds it.
NEWCOMERS = {
    "peer/core/members/newcomer.py": ("import asyncio\n", "The core and its mathematics know neither"),
    "peer/core/rounds/newcomer.py": ("", "One job at one peer"),  # a part of a job without a place
    "peer/work/newcomer.py": ("import socket\n", "The core and its mathematics know neither"),
    "peer/core/spread/newcomer.py": ("import p2pclust.peer.core.jobs.jobs\n", "The core: all jobs on one job"),
    "protocols/engine/newcomer.py": ("import p2pclust.protocols.centers.llf_cm\n", "Protocols stand on the engine"),
    "clustering/newcomer.py": ("import zmq\n", "Mathematics knows no network"),
    "peer/shell/newcomer.py": ("import p2pclust.lab.links.shaping\n", "Imports go one way, and the laboratory"),
    "tools/newcomer.py": ("from p2pclust.lab import testbed\n", "Imports go one way, and the laboratory"),
    "newcomer.py": ("", "Imports go one way, and the laboratory"),
}


@pytest.mark.slow
def test_a_new_file_is_held_by_the_contract_of_its_folder_and_by_no_other(tmp_path: Path) -> None:
    """All new files at once: a run of the contracts reads all modules."""
    shutil.copytree(PACKAGE, tmp_path / "p2pclust", ignore=shutil.ignore_patterns("__pycache__", "shipped"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for file, (text, _) in NEWCOMERS.items():
        (tmp_path / "p2pclust" / file).write_text(text, encoding="utf-8")
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run(
        [sys.executable, "-c", code, "--no-cache"], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False,
        env=os.environ | {"COLUMNS": "200"},  # names are not wrapped
    )  # fmt: skip
    assert done.returncode != 0
    _, *sections = re.split(r"^(.+)\n-{9,}\n", done.stdout.partition("Broken contracts\n")[2], flags=re.MULTILINE)
    broken: dict[str, list[str]] = {}
    for name, text in zip(sections[::2], sections[1::2], strict=True):
        for module in re.findall(r"^- +(\S+)", text, re.MULTILINE):
            broken.setdefault(f"{module.removeprefix('p2pclust.').replace('.', '/')}.py", []).append(name)
    assert broken.keys() == NEWCOMERS.keys()
    for file, (_, contract) in NEWCOMERS.items():
        assert [name[: len(contract)] for name in broken[file]] == [contract], done.stdout


def test_no_folder_holds_more_modules_than_a_reader_can_keep_in_mind() -> None:
    counts = {folder: len(list(folder.glob("*.py"))) for folder in [PACKAGE, *PACKAGE.rglob("*")] if folder.is_dir()}
    assert {str(folder): count for folder, count in counts.items() if count > MOST_MODULES} == {}


@pytest.mark.slow
def test_one_class_name_stands_for_one_class() -> None:
    places: dict[str, list[str]] = {}
    for file in sorted((ROOT / "p2pclust").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(str(file.relative_to(ROOT)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_only_one_module_of_the_product_names_modules_of_the_laboratory() -> None:
    """Imports by name are seen by no contract."""
    named = [
        file.relative_to(PACKAGE).as_posix()
        for file in sorted(PACKAGE.rglob("*.py"))
        if PACKAGE / "lab" not in file.parents
        and re.search(r"import_module\(f?\"p2pclust\.lab", file.read_text("utf-8"))
    ]
    assert named == ["tools/distribution.py"]


@pytest.mark.parametrize("file", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda file: file.stem)
def test_what_a_benchmark_imports_is_there(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("p2pclust"):
            module = importlib.import_module(node.module or "")
            missing = [one.name for one in node.names if not hasattr(module, one.name)]
            assert all(importlib.util.find_spec(f"{node.module}.{name}") for name in missing), (node.module, missing)
