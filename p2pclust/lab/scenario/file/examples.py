"""The scenarios and sweeps that are installed with the package, found by name: ``p2pclust run quickstart``.

In a checkout ``p2pclust/lab/scenario/shipped`` is a link to ``scenarios/``, and ``p2pclust/lab/sweep/shipped`` one to
``topology/``; a wheel has copies of the files.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from p2pclust.errors import UsageError
from p2pclust.tools.spelling import did_you_mean, nearest
from p2pclust.tools.toml_files import read_toml

SCENARIOS: Final = Path(__file__).parents[1] / "shipped"
SWEEPS: Final = Path(__file__).parents[2] / "sweep" / "shipped"
"""The folders of what is installed with the package."""
_MODELS: Final = frozenset(("fedcref", "uifca"))


@dataclass(frozen=True)
class Example:
    """A file that is installed with the package; `needs` is the command that installs or fetches what it lacks."""

    name: str
    title: str
    needs: str


def examples(folder: Path) -> tuple[Example, ...]:
    """Return the files of a folder: first those that can run here at once, each group sorted by name.

    >>> next(example.title for example in examples(SCENARIOS) if example.name == "quickstart")
    'Eight peers with at most three digits each; the aggregator is killed at round 27'
    """
    documents = {file.stem: read_toml(file) for file in folder.glob("*.toml")}
    found = [Example(name, str(one.get("title", "")), needs(one)) for name, one in documents.items()]
    return tuple(sorted(found, key=lambda example: (example.needs != "", example.name)))


def find_example(given: Path, folder: Path, command: str) -> Path:
    """Return the given file, or the installed one of that name; one with a suffix or a folder is a file of the caller.

    `command` takes such a name, and lists all names without one.

    >>> find_example(Path("quickstart"), SCENARIOS, "p2pclust run").name
    'quickstart.toml'
    """
    if given.exists() and not given.is_dir():
        return given
    installed = folder / f"{given.stem}.toml"
    if given.suffix or len(given.parts) > 1:
        if given.suffix == ".toml" and not given.exists() and installed.is_file():
            raise UsageError(f"{given}: no such file; the installed one is run by its name: {command} {given.stem}")
        return given
    if installed.is_file():
        return installed
    names = sorted(file.stem for file in folder.glob("*.toml"))
    near = nearest(given.name, names)
    meant = f"did you mean {near!r}? " if near else ""
    raise UsageError(f"{given}: no such file, and no installed one of that name ({meant}{command} lists them)")


def copy_example(name: str, to: Path) -> tuple[Path, ...]:
    """Copy an installed scenario or sweep, and the files that it names, into a folder; return the copies, it first.

    No file is replaced.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [copy.name for copy in copy_example("rice-mill", Path(folder))]
    ['rice-mill.toml', 'rice-mill.adj']
    """
    known = {file.stem: file for folder in (SWEEPS, SCENARIOS) for file in sorted(folder.glob("*.toml"))}
    if name not in known:
        raise UsageError(
            f"{name}: no installed example of this name{did_you_mean(name, known)}: p2pclust examples list shows all"
        )
    files = [known[name].name, *_named_files(read_toml(known[name]), known[name].parent)]
    copies = tuple(to / file for file in files)
    if there := [copy for copy in copies if copy.exists()]:
        raise UsageError(f"{there[0]}: it exists: choose another folder")
    try:
        for file, copy in zip(files, copies, strict=True):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(known[name].parent / file, copy)
    except OSError as error:
        raise UsageError(f"{to}: cannot be written ({error.strerror}): choose another folder") from None
    return copies


def _named_files(value: Any, folder: Path) -> list[str]:
    if isinstance(value, str):
        return [value] if not Path(value).is_absolute() and Path(value).suffix and (folder / value).is_file() else []
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return list(dict.fromkeys(name for item in items for name in _named_files(item, folder)))


def needs(document: Mapping[str, Any]) -> str:
    """Return the command that installs or fetches what a scenario or a sweep lacks, if anything."""
    from p2pclust.data.catalogue import canonical  # noqa: PLC0415 - imports NumPy
    from p2pclust.data.registry import BUILT_IN, cached  # noqa: PLC0415

    source = document.get("data", {}).get("source", "")
    if source and canonical(source) not in BUILT_IN:
        try:
            cached(source)
        except UsageError:
            return f"p2pclust data fetch {canonical(source)}"
    named = document.get("grid", {}).get("protocol", ())  # of a sweep
    protocols = {job["protocol"] for job in document.get("jobs", ())} | {
        *([named] if isinstance(named, str) else named)
    }
    if protocols & _MODELS and importlib.util.find_spec("torch") is None:
        return "pip install 'p2pclust[models]'"
    return ""
