"""The fork server: its peers are processes of their own, and begin with what it imported."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from runs import a_job, processes_alive, until

from p2pclust.errors import FleetError
from p2pclust.jobs.request import JobRequest
from p2pclust.lab.testbed.processes.children import Child, ForkServer
from p2pclust.lab.testbed.processes.fleet import preload

pytestmark = [pytest.mark.processes, pytest.mark.slow]


class Nest:
    """A server, and children that do nothing: each waits for somebody to write into its store."""

    def __init__(self, home: Path, server: ForkServer) -> None:
        self.home = home
        self.server = server
        self.codes: dict[str, int] = {}
        self.children: list[Child] = []

    async def child(self, name: str, **config: Any) -> Child:
        state_dir = self.home / name / "state"
        if not state_dir.exists():
            state_dir.mkdir(parents=True)
            os.mkfifo(state_dir / "store.sqlite3", 0o600)
        own = {"name": name, "state_dir": str(state_dir)}
        config = {"control": "", "timing": "fast"} | own | config
        child = Child(name, self.home / name, config, self.server, lambda child, line: None, self.ended)
        await child.start()
        self.children.append(child)
        return child

    def ended(self, child: Child, code: int) -> None:
        self.codes[child.name] = code


@asynccontextmanager
async def a_nest(home: Path, *modules: str) -> AsyncIterator[Nest]:
    async with asyncio.timeout(60):
        server = ForkServer(home, modules)
        nest = Nest(home, server)
        await server.start()
        try:
            yield nest
        finally:
            for child in nest.children:
                await child.end(0.0)
            await server.close()
            await server.close()
    until(lambda: not processes_alive(home))


def test_it_is_the_installed_package_whatever_lies_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """In a checkout after `pip install .`, peers once were of the checkout, without the compiled kernels."""
    (tmp_path / "p2pclust").mkdir()
    (tmp_path / "p2pclust" / "__init__.py").write_text("raise SystemExit('not this one')\n")
    monkeypatch.chdir(tmp_path)

    async def live() -> None:
        async with a_nest(tmp_path / "home") as nest:
            child = await nest.child("p1")
            assert child.process is not None

    asyncio.run(live())


def stat(pid: int) -> list[str]:
    """The process's own figures, from its state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def joints(pid: int) -> set[str]:
    """The pipes and sockets that a process holds."""
    held = [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    return {what for what in held if what.startswith(("pipe:", "socket:"))}


class TestPeers:
    def test_are_processes_with_streams_and_a_name_of_their_own(self, tmp_path: Path) -> None:
        async def live() -> None:
            async with a_nest(tmp_path) as nest:
                a, b = await asyncio.gather(nest.child("meter-a"), nest.child("meter-b"))
                assert a.process is not None
                assert b.process is not None
                assert a.process.pid != b.process.pid
                for child, name in ((a.process, "meter-a"), (b.process, "meter-b")):
                    folder = Path(f"/proc/{child.pid}")
                    until(lambda folder=folder, name=name: (folder / "comm").read_text() == f"{name}\n")
                    assert os.readlink(folder / "fd" / "2") == str(tmp_path / name / "peer.log")
                assert nest.server._process is not None
                pipes = [joints(pid) for pid in (a.process.pid, b.process.pid, nest.server._process.pid)]
                assert all(pipes)
                assert sum(map(len, pipes)) == len(set.union(*pipes)), "nothing of each other, nothing of the server"
                await asyncio.gather(a.end(0.0), b.end(0.0))
                assert nest.codes == {"meter-a": -signal.SIGKILL, "meter-b": -signal.SIGKILL}

        asyncio.run(live())

    def test_end_with_the_codes_of_processes(self, tmp_path: Path) -> None:
        async def live() -> None:
            async with a_nest(tmp_path) as nest:
                usage = await nest.child("usage", timing="hurried")
                bug = await nest.child("bug", timing=[])
                term = await nest.child("term")
                assert term.process is not None
                stopped = term.process.pid
                term.signal(signal.SIGSTOP)
                until(lambda: stat(stopped)[0] == "T")
                term.signal(signal.SIGTERM)
                assert stat(stopped)[0] == "T", "a stopped process waits with its end"
                term.signal(signal.SIGCONT)
                for child in (usage, bug, term):
                    await child.end(30.0)
                assert nest.codes == {"usage": 2, "bug": 1, "term": -signal.SIGTERM}
                assert usage.why() == "timing = 'hurried': expected one of default, wan, fast"
                assert "Traceback" in (tmp_path / "bug" / "peer.log").read_text()

        asyncio.run(live())

    def test_live_again_with_their_log_going_on(self, tmp_path: Path) -> None:
        async def live() -> None:
            async with a_nest(tmp_path) as nest:
                child = await nest.child("a", timing="hurried")
                await child.end(30.0)
                first = child.process
                await child.start()
                await child.end(30.0)
                assert first is not None
                assert child.process is not None
                assert first.pid != child.process.pid
                assert child.lives == 2
                assert len((tmp_path / "a" / "peer.log").read_text().splitlines()) == 2

        asyncio.run(live())


class TestServer:
    def test_imports_once_what_its_peers_share(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "heavy.py").write_text("import os\nos.write(2, b'imported by %d\\n' % os.getpid())\n")
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")

        async def live() -> int:
            async with a_nest(tmp_path, "heavy") as nest:
                for name in ("a", "b"):
                    await nest.child(name)
                assert nest.server._process is not None
                return nest.server._process.pid

        pid = asyncio.run(live())
        assert (tmp_path / "fork-server.log").read_text() == f"imported by {pid}\n"
        assert (tmp_path / "a" / "peer.log").read_text() == ""

    def test_has_one_thread_whatever_it_imports(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("torch")
        monkeypatch.setenv("OMP_NUM_THREADS", "4")

        async def live() -> None:
            async with a_nest(tmp_path, "p2pclust.clustering.stack_kernels", "networkx") as nest:
                child = await nest.child("a")
                assert nest.server._process is not None
                assert child.process is not None
                for pid in (nest.server._process.pid, child.process.pid):
                    assert len(list(Path(f"/proc/{pid}/task").iterdir())) == 1

        asyncio.run(live())

    def test_that_cannot_import_says_why_in_one_line(self, tmp_path: Path) -> None:
        async def live() -> None:
            async with a_nest(tmp_path, "nowhere") as nest:
                await nest.child("a")

        with pytest.raises(
            FleetError, match=r"^the fork server ended: ModuleNotFoundError: No module named 'nowhere'$"
        ):
            asyncio.run(live())

    def test_that_was_killed_takes_its_peers_with_it_and_begins_no_more(self, tmp_path: Path) -> None:
        async def live() -> None:
            async with a_nest(tmp_path) as nest:
                child = await nest.child("a")
                assert nest.server._process is not None
                assert child.process is not None
                pid = child.process.pid
                os.kill(nest.server._process.pid, signal.SIGKILL)
                await child.end(30.0)
                until(lambda: not Path(f"/proc/{pid}").exists() or stat(pid)[0] == "Z")
                assert nest.codes == {"a": -signal.SIGKILL}
                with pytest.raises(FleetError, match=r"^the fork server ended: "):
                    await nest.child("b")

        asyncio.run(live())


def test_a_fleet_of_k_means_needs_nothing_beforehand() -> None:
    assert preload([JobRequest(a_job("llf-cm")), JobRequest(a_job("llf-fcm"))]) == ()


FORKED = """
import os, sys
import p2pclust.peer.main  # sets the number of threads
import hashlib
import numpy as np
from p2pclust.clustering import stack_kernels
from p2pclust.clustering.autoencoders import Architecture, ModelStack
from p2pclust.clustering.stacks import train

def digest():
    rngs = [np.random.default_rng(number) for number in range(3)]
    stack = ModelStack.random(Architecture(40), rngs)
    rows = [rng.random((30 + 7 * number, 40)) for number, rng in enumerate(rngs)]
    return hashlib.blake2b(train(stack, rows, rngs=rngs, epochs=5).weights.tobytes()).hexdigest()

for forks in range(int(sys.argv[1])):
    sys.stdout.flush()
    if os.fork() == 0:
        break
    os.wait()
print(digest())
"""


def test_training_has_the_same_bits_before_and_after_a_fork() -> None:
    pytest.importorskip("torch")
    ran = [
        subprocess.run([sys.executable, "-c", FORKED, n], capture_output=True, text=True, timeout=100, check=True)
        for n in ("0", "2")
    ]
    plain, forked = ran[0].stdout.split(), ran[1].stdout.split()
    assert (len(plain), len(forked)) == (1, 3)
    assert len({*plain, *forked}) == 1
