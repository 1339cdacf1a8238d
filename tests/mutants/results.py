"""The results of mutations, in a file to which each is added as soon as it is known."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.mutants.judged import Judged

SURVIVED = "survived"
TESTS, SEEDS, TIMEOUT = "tests", "seeds", "time-out"


@dataclass(frozen=True)
class Result:
    """What came of one mutation."""

    key: str
    module: str
    function: str
    number: int  # the line in the file
    operator: str
    before: str
    after: str
    outcome: str  # killed by "tests", "seeds" or "time-out", or "survived"
    by: str  # the test or seed
    why: str  # its error in one line
    n_tests: int
    n_seeds: int
    wall_s: float
    tree: str  # of which tree: see `digest`


class Results:
    """The file, and what it holds; only in memory without a path."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.known: dict[str, Result] = {}
        if path is not None and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    result = Result(**json.loads(line))
                except (ValueError, TypeError):
                    continue  # a run that was stopped while it wrote
                self.known[result.key] = result

    def add(self, result: Result) -> None:
        """Keep one more."""
        self.known[result.key] = result
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(result)) + "\n")

    def done(self, key: str, tree: str, judged: Iterable[Judged] = ()) -> bool:
        """Whether a mutation need not run again: it was killed, or survived in this very tree, or was judged since."""
        known = self.known.get(key)
        if known is None:
            return False
        return known.outcome != SURVIVED or known.tree == tree or judged_as(known, judged) is not None


def digest(root: Path, folders: Iterable[str] = ("p2pclust", "tests/peer")) -> str:
    """Return a digest of the sources that decide what survives."""
    made = hashlib.sha256()
    for folder in folders:
        for file in sorted((root / folder).rglob("*.py")):
            made.update(f"{file.relative_to(root)}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return made.hexdigest()[:16]


def judged_as(result: Result, judged: Iterable[Judged]) -> Judged | None:
    """Return what was written about a survivor."""
    names = (result.module, result.function, result.before, result.after)
    return next((one for one in judged if (one.module, one.function, one.before, one.after) == names), None)
