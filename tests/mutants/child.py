"""``python -m tests.mutants.child ORDER NOTES``: run tests, then seeds of the simulator, until the first that fails.

A process of its own, in a copy of the project. Each test and seed is noted before it begins, so that the notes also name the
one in which the process was ended.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import coverage
    import pytest
_MOST_MEMORY = 4 << 30


@dataclass(frozen=True)
class Order:
    """What to run."""

    tests: tuple[str, ...] = ()  # as pytest takes them, in this order
    marks: str = ""  # pytest's -m
    seeds: tuple[int, ...] = ()
    most_cpu_s: float = 0.0  # a test or seed that takes more ends the process; 0: no limit
    cover: str = ""  # a file for the lines that each test and seed ran; empty: not measured


@dataclass(frozen=True)
class Note:
    """What came of one test or seed; or that it begins."""

    name: str
    result: str  # "begins", "passed" or "failed"
    cpu_s: float = 0.0
    wall_s: float = 0.0
    why: str = ""


class Notes:
    """The file of notes, and the contexts of the coverage."""

    def __init__(self, path: Path, cover: coverage.Coverage | None, most_cpu_s: float) -> None:
        self._file = path.open("a", encoding="utf-8")
        self._cover = cover
        self._most_cpu_s = most_cpu_s
        self.failed: dict[str, str] = {}  # why, by test or seed

    def run(self, name: str) -> Callable[[], bool]:
        """Note that a test or seed begins; return what notes its end, and whether it passed."""
        self._write(Note(name, "begins"))
        if self._cover is not None:
            self._cover.switch_context(name)
        signal.setitimer(signal.ITIMER_PROF, self._most_cpu_s)  # nothing handles the signal: it ends the process
        cpu, wall = time.process_time(), time.monotonic()

        def ended() -> bool:
            cpu_s, wall_s = time.process_time() - cpu, time.monotonic() - wall
            if self._cover is not None:
                self._cover.switch_context("")
            result = "failed" if name in self.failed else "passed"
            self._write(Note(name, result, round(cpu_s, 3), round(wall_s, 3), self.failed.get(name, "")))
            return result == "passed"

        return ended

    def refused(self, name: str, why: str) -> None:
        """Note what cannot even be collected."""
        self._write(Note(name, "failed", why=why))

    def _write(self, note: Note) -> None:
        self._file.write(json.dumps(asdict(note)) + "\n")
        self._file.flush()


def main(order: Order, notes_file: Path) -> int:
    """Run all of it; return 1 after a failure."""
    resource.setrlimit(resource.RLIMIT_DATA, (_MOST_MEMORY, _MOST_MEMORY))
    cover = None
    if order.cover:
        import coverage

        cover = coverage.Coverage(data_file=order.cover, source=["p2pclust/peer/core"], config_file=False)
        cover.start()
    notes = Notes(notes_file, cover, order.most_cpu_s)
    passed = (not order.tests or _tests(order, notes)) and _seeds(order, notes)
    if cover is not None:
        cover.stop()
        cover.save()
    return int(not passed)


def _tests(order: Order, notes: Notes) -> bool:
    import pytest

    class Watch:
        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
            ended = notes.run(item.nodeid)
            result = yield
            ended()
            return result

        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed:
                notes.failed[report.nodeid] = _error(report.longreprtext)

        def pytest_collectreport(self, report: pytest.CollectReport) -> None:
            if report.failed:
                notes.refused(report.nodeid, _error(report.longreprtext))

    options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", "--tb", "short"]
    code = pytest.main([*options, *(["-m", order.marks] if order.marks else []), *order.tests], [Watch()])
    return code == pytest.ExitCode.OK


def _seeds(order: Order, notes: Notes) -> bool:
    if not order.seeds:
        return True
    from p2pclust.lab.commands.seeds import ALL, Asked, try_seeds

    for seed in order.seeds:
        ended = notes.run(f"seed {seed}")
        for finding in try_seeds(range(seed, seed + 1), Asked(ALL)):
            if finding.failure:
                notes.failed[f"seed {seed}"] = _error(finding.failure)
        if not ended():
            return False
    return True


def _error(text: str) -> str:
    """Return the line of an error: the first that pytest marks as one, or the last of a traceback."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    marked = [line.removeprefix("E ").strip() for line in lines if line.startswith("E ")]
    return (marked[:1] or lines[-1:] or [""])[0][:300]


if __name__ == "__main__":
    sys.exit(main(Order(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))), Path(sys.argv[2])))
