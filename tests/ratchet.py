"""The size of p2pclust, held: no change makes one of these figures larger without saying so in this table.

python -m tests.ratchet [ROOT]

It prints each figure beside its ceiling, and exits with 1 if one is above it. A change that needs a higher ceiling raises it
in the same commit, and says why there; one that makes a figure smaller lowers its ceiling. With ROOT, the figures of
another checkout are printed and not judged; it needs a built copy of the kernels as this one does.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np

_HERE: Final = Path(__file__).parents[1]
_SHORT: Final = 100  # lines
_DEADLINE_S: Final = 60.0

#: By figure: the ceiling.
CEILINGS: Final[dict[str, int]] = {
    "product: lines": 55712,
    "laboratory: lines": 28824,
    "statements": 54209,
    "functions": 5378,
    "modules under 100 lines": 63,
    "__all__ outside packages": 0,
    "a peer after one job: own modules": 140,
    "a peer after one job: their lines": 26433,
    "files that name `groups`": 81,
    "files that name `collect`": 38,
    "files that name `n_init`": 31,
    "words of documents": 77063,
    "lines of CHANGELOG.md": 96,
}

_NOTES_ITS_MODULES: Final = """
import atexit, os, sys
def note():
    if "p2pclust.peer.main" in sys.modules or getattr(sys.modules["__main__"], "__spec__", None) is not None:
        names = sorted(name for name in sys.modules if name == "p2pclust" or name.startswith("p2pclust."))
        with open(os.environ["RATCHET_MODULES"] + "." + str(os.getpid()), "w") as out:
            out.write("\\n".join(getattr(sys.modules[name], "__file__", None) or "" for name in names))
atexit.register(note)
"""


@dataclass
class Tree:
    """One checkout."""

    root: Path

    @cached_property
    def modules(self) -> dict[Path, str]:
        """The text of each module of the package."""
        found = sorted((self.root / "p2pclust").rglob("*.py"))
        return {path: path.read_text(encoding="utf-8") for path in found}

    def figures(self) -> dict[str, int]:
        """Measure everything."""
        laboratory = self.root / "p2pclust" / "lab"
        lines = {path: len(text.splitlines()) for path, text in self.modules.items()}
        inside = {path for path in lines if laboratory in path.parents}
        nodes = [node for text in self.modules.values() for node in ast.walk(ast.parse(text))]
        peer = self._peer()
        return {
            "product: lines": sum(n for path, n in lines.items() if path not in inside),
            "laboratory: lines": sum(lines[path] for path in inside),
            "statements": sum(isinstance(node, ast.stmt) for node in nodes),
            "functions": sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in nodes),
            "modules under 100 lines": sum(n < _SHORT for path, n in lines.items() if path.name != "__init__.py"),
            "__all__ outside packages": sum(
                "\n__all__ = " in text for path, text in self.modules.items() if path.name != "__init__.py"
            ),
            "a peer after one job: own modules": len(peer),
            "a peer after one job: their lines": sum(len(path.read_text("utf-8").splitlines()) for path in peer),
            **{f"files that name `{option}`": self._naming(option) for option in ("groups", "collect", "n_init")},
            "words of documents": sum(len(path.read_text("utf-8").split()) for path in self.root.glob("docs/**/*.md")),
            "lines of CHANGELOG.md": len((self.root / "CHANGELOG.md").read_text("utf-8").splitlines()),
        }

    def _naming(self, option: str) -> int:
        """Count the modules in which the word stands."""
        word = re.compile(rf"\b{option}\b")
        return sum(bool(word.search(text)) for text in self.modules.values())

    def _peer(self) -> list[Path]:
        """Return the modules that a peer has loaded after one job of `llf-fcm`, on two peers by hand."""
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as peers:
            home = Path(folder)
            (home / "sitecustomize.py").write_text(_NOTES_ITS_MODULES)
            path = os.pathsep.join([str(home), str(self.root)])
            env = {**os.environ, "PYTHONPATH": path, "RATCHET_MODULES": str(home / "modules")}
            command = [sys.executable, "-m", "p2pclust"]
            ports = list(_free_ports(2))
            started = []
            for number, port in enumerate(ports):
                data, state = home / f"{number}.npy", home / f"state-{number}"
                np.save(data, np.random.default_rng(number).normal(size=(30, 2)))
                line = [
                    *command,
                    "peer",
                    "--name",
                    f"peer-{number}",
                    "--listen",
                    f"127.0.0.1:{port}",
                    "--data",
                    str(data),
                ]
                line += ["--state-dir", str(state), "--timing", "fast"]
                line += ["--join", f"peer-{1 - number}@127.0.0.1:{ports[1 - number]}"]
                started.append(peers.enter_context(subprocess.Popen(line, env=env, cwd=home, stderr=subprocess.PIPE)))
                peers.callback(started[-1].kill)
            job = [*command, "submit", "llf-fcm", "--clusters", "2", "--roster", "peer-0,peer-1", "--missing", "all"]
            _submit([*job, "--wait", "--peer", str(home / "state-0")], env, home)
            for process in started:
                process.send_signal(signal.SIGTERM)
                process.wait(_DEADLINE_S)
            noted = [home / f"modules.{process.pid}" for process in started]
            largest = max((note.read_text().split("\n") for note in noted), key=len)
            return [Path(name) for name in largest if name.endswith(".py")]


def _free_ports(count: int) -> Iterator[int]:
    with contextlib.ExitStack() as held:
        for _ in range(count):
            one = held.enter_context(socket.socket())
            one.bind(("127.0.0.1", 0))
            yield one.getsockname()[1]


def _submit(command: list[str], env: dict[str, str], home: Path) -> None:
    """Run a job to its end; the peers may still be about to start."""
    ends = time.monotonic() + _DEADLINE_S
    while (
        done := subprocess.run(
            command, env=env, cwd=home, capture_output=True, text=True, timeout=_DEADLINE_S, check=False
        )
    ).returncode:
        if time.monotonic() > ends:
            raise RuntimeError(f"the job was not done: {done.stderr}")


def main() -> int:
    """Print the figures, and judge those of this checkout."""
    other = [Path(one).resolve() for one in sys.argv[1:]]
    figures = Tree(other[0] if other else _HERE).figures()
    above = [name for name, figure in figures.items() if not other and figure > CEILINGS[name]]
    print(f"{'':36}{'now':>9}{'' if other else '  ceiling':>9}")
    for name, figure in figures.items():
        note = "" if other else f"{CEILINGS[name]:9}{'  too many' if name in above else ''}"
        print(f"{name:36}{figure:9}{note}")
    if above:
        print("raise a ceiling in tests/ratchet.py only with the reason in the same commit", file=sys.stderr)
    return bool(above)


if __name__ == "__main__":
    sys.exit(main())
