"""Which tests and seeds run a line, and how long they take: measured once, without a mutation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from tests.mutants.child import Note, Order
from tests.mutants.places import Lines
from tests.mutants.tree import Tree

if TYPE_CHECKING:
    from coverage import CoverageData

#: Those of the step machines and of what they compute; tests of sockets and files wait for a busy machine.
_TESTS = ("tests/peer/core", "tests/peer/test_regressions.py", "tests/peer/test_transcripts.py", "tests/peer/work")
_MARKS = "not processes and not pictures and not long and not soak and not swarms"
#: Slower tests would take most of the time of all.
_SLOWEST_S = 2.0
_BASELINE_S = 3600.0


@dataclass(frozen=True)
class Steps:
    """What a mutation is tried on: the tests of its module, the other tests that run its lines, and such seeds.

    The quickest of each come first.
    """

    own: tuple[str, ...]
    others: tuple[str, ...]
    seeds: tuple[int, ...]


class Covered:
    """The tests and seeds of each line."""

    def __init__(self, data: CoverageData, root: Path, notes: Iterable[Note]) -> None:
        self._took = {note.name: note for note in notes}
        self._root = root
        self._data = data

    def seconds(self, names: Iterable[str]) -> float:
        """Return how long these took."""
        return sum(self._took[name].wall_s for name in names)

    def steps(self, module: str, statement: Lines) -> Steps:
        """Return what runs one of these lines; what runs any line of the module, if they run when it is imported."""
        by_line = self._data.contexts_by_lineno(str(self._root / module))
        lines = range(statement.first, statement.last + 1)
        names = {name for line in lines for name in by_line.get(line, ())}
        if not names or "" in names:
            names = {name for found in by_line.values() for name in found}
        quickest = sorted(names - {""}, key=lambda name: (self._took[name].cpu_s, name))
        seeds = [int(name.removeprefix("seed ")) for name in quickest if name.startswith("seed ")]
        tests = [name for name in quickest if "::" in name and self._took[name].cpu_s <= _SLOWEST_S]
        own = [name for name in tests if _is_of(module, name)]
        return Steps(tuple(own), tuple(name for name in tests if not _is_of(module, name)), tuple(seeds))


def measured(tree: Tree, home: Path, n_seeds: int) -> Covered:
    """Run all tests and seeds without a mutation. Raises RuntimeError if one fails."""
    from coverage import CoverageData

    data_file = home / "covered"
    order = Order(_TESTS, _MARKS, tuple(range(n_seeds)), cover=str(data_file))
    ran = tree.run(order, _BASELINE_S, writes_bytecode=True)
    if not ran.passed:
        failed = ran.failed
        raise RuntimeError(f"{failed.name} fails without a mutation: {failed.why}; mend it first\n{ran.output[-2000:]}")
    data = CoverageData(str(data_file))
    data.read()
    return Covered(data, tree.root, ran.done)


def _is_of(module: str, test: str) -> bool:
    """Whether a test is in the file of a module, or, if that has none, in the files of its folder.

    Examples
    --------
    >>> _is_of("p2pclust/peer/core/rounds/job.py", "tests/peer/core/rounds/test_rounds.py::test_one")
    True
    """
    parts = PurePosixPath(module).relative_to("p2pclust/peer/core")
    file = PurePosixPath(test.partition("::")[0])
    if parts.parent == PurePosixPath("."):
        return file.name == f"test_{parts.name}"
    return file.parent == PurePosixPath("tests/peer/core") / parts.parent
