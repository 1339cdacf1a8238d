"""A copy of the project, in which one module at a time is mutated and tests and seeds are run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.mutants.child import Note, Order

#: What tests of the core read.
_COPIED = ("p2pclust", "tests", "peers", "scenarios", "topology", "docs", "pyproject.toml")


@dataclass(frozen=True)
class Ran:
    """What came of a run: the notes on each test and seed, and whether the run was ended because it took too long."""

    notes: tuple[Note, ...]
    passed: bool
    timed_out: bool
    output: str

    @property
    def done(self) -> list[Note]:
        """The tests and seeds that ended."""
        return [note for note in self.notes if note.result != "begins"]

    @property
    def failed(self) -> Note:
        """The test or seed that failed, or in which the run was ended."""
        for note in self.notes:
            if note.result == "failed":
                return note
        return self.notes[-1] if self.notes else Note("start", "failed", why=_tail(self.output))


class Tree:
    """The copy."""

    def __init__(self, project: Path, home: Path) -> None:
        self.root = home / "project"
        self._home = home
        self.root.mkdir()
        for name in _COPIED:
            if (project / name).is_dir():
                no_bytecode = shutil.ignore_patterns("__pycache__", ".hypothesis")
                shutil.copytree(project / name, self.root / name, symlinks=True, ignore=no_bytecode)
            else:
                shutil.copy2(project / name, self.root / name)

    @contextmanager
    def mutated(self, module: str, text: str) -> Iterator[None]:
        """Have another text in a module for a while.

        Bytecode is of a text with a time in whole seconds and a size. So the time is another one while the text is, and the
        same one afterwards.
        """
        path = self.root / module
        was, times = path.read_text(encoding="utf-8"), path.stat()
        path.write_text(text, encoding="utf-8")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns + 10 * 10**9))
        try:
            yield
        finally:
            path.write_text(was, encoding="utf-8")
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def run(self, order: Order, wall_s: float, *, writes_bytecode: bool = False) -> Ran:
        """Run tests and seeds in a process of its own, until the first that fails, or until so long."""
        order_file, notes_file = self._home / "order.json", self._home / "notes.jsonl"
        order_file.write_text(json.dumps(asdict(order)), encoding="utf-8")
        notes_file.write_text("", encoding="utf-8")
        scratch = self._home / "scratch"
        scratch.mkdir()
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.mutants.child", str(order_file), str(notes_file)],
            cwd=self.root, env=self._environment(scratch, writes_bytecode=writes_bytecode), stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
        late = False
        try:
            output, _ = process.communicate(timeout=wall_s)
        except subprocess.TimeoutExpired:
            late = True
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            shutil.rmtree(scratch, ignore_errors=True)
        notes = tuple(Note(**json.loads(line)) for line in notes_file.read_text(encoding="utf-8").splitlines())
        late = late or process.returncode in (-signal.SIGPROF, -signal.SIGKILL)
        return Ran(notes, process.returncode == 0, late, output)

    def _environment(self, scratch: Path, *, writes_bytecode: bool) -> dict[str, str]:
        given = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        path = os.pathsep.join([str(self.root), *filter(None, [os.environ.get("PYTHONPATH")])])
        ours = {"PYTHONPATH": path, "PYTHONHASHSEED": "0", "P2PCLUST_HYPOTHESIS": "mutants", "TMPDIR": str(scratch)}
        return {**given, **ours, **({} if writes_bytecode else {"PYTHONDONTWRITEBYTECODE": "1"})}


def _tail(text: str) -> str:
    return " ".join(text.split())[-300:]
