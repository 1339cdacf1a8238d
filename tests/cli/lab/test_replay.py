from __future__ import annotations

import http.client
import importlib
import io
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console
from tests.cli.conftest import Cli

from p2pclust.tools import distribution

SMALL = """
[data]
source = "gaussians"
options = { n_rows = 60, n_clusters = 3, n_features = 2 }
[fleet]
peers = 3
[[jobs]]
protocol = "llf-cm"
clusters = 3
"""


@pytest.fixture
def run(tmp_path: Path, cli: Cli) -> Path:
    (tmp_path / "s.toml").write_text(SMALL, encoding="utf-8")
    assert cli("run", "s.toml", "--backend", "simulated", "--out", "run").code == 0
    return tmp_path / "run"


#: What a process that is started now does on Ctrl-C at first: scripts start those in the background so that they ignore it.
STARTED = pytest.mark.parametrize(
    "usual",
    [pytest.param(signal.SIG_DFL, id="at-a-terminal"), pytest.param(signal.SIG_IGN, id="in-the-background")],
)


@contextmanager
def started_with(usual: signal.Handlers) -> Iterator[None]:
    """Let processes that start now inherit what SIGINT does."""
    before = signal.signal(signal.SIGINT, usual)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def served(*words: object, usual: signal.Handlers) -> Iterator[tuple[subprocess.Popen[str], int, str]]:
    """A command that serves a page: the process, its port, and the path that opens it."""
    command = [sys.executable, "-m", "p2pclust", *map(str, words)]
    with started_with(usual):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        assert process.stderr is not None
        found = None
        for line in process.stderr:
            if found := re.fullmatch(r"see http://[^:]+:(\d+)(/\S*)\n", line):
                break
        assert found is not None
        try:
            yield process, int(found[1]), found[2]
        finally:
            process.kill()


def snapshots(port: int) -> Iterator[dict[str, object]]:
    """What the page is sent, one picture after another."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/events")
    answer = connection.getresponse()
    try:
        while line := answer.readline():
            if line.startswith(b"data: "):
                yield dict(json.loads(line.removeprefix(b"data: ")))
        pytest.fail("the server ended")
    finally:
        connection.close()
        answer.close()


def test_without_a_page_the_events_are_printed(cli: Cli, run: Path) -> None:
    ran = cli("replay", run, "--speed", 1000)
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[1] == "3 peers, simulated, timing default, seed 0"
    assert lines[-1].endswith("job 1 is finished: a majority holds the final state")


@pytest.mark.slow
@pytest.mark.processes
@STARTED
def test_a_page_is_served_until_ctrl_c(run: Path, usual: signal.Handlers) -> None:
    pytest.importorskip("aiohttp", reason="pip install 'p2pclust[live]' installs aiohttp")
    with served("replay", run, "--serve", "127.0.0.1:0", usual=usual) as (process, port, path):
        assert path == "/"
        found = next(snapshots(port))
        assert (found["mode"], found["ended"]) == ("replay", False)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


@pytest.mark.slow
@pytest.mark.processes
@STARTED
def test_the_page_of_a_fleet_is_served_until_ctrl_c(usual: signal.Handlers) -> None:
    pytest.importorskip("aiohttp", reason="pip install 'p2pclust[live]' installs aiohttp")
    nowhere = "tcp://127.0.0.1:1"
    with served("watch", "--serve", "127.0.0.1:0", "--peer", nowhere, usual=usual) as (process, port, _):
        assert next(snapshots(port))["mode"] == "watch"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.skipif(not hasattr(os, "fork"), reason="peers are forks")
def test_a_run_is_served_while_it_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp", reason="pip install 'p2pclust[live]' installs aiohttp")
    (tmp_path / "s.toml").write_text(SMALL, encoding="utf-8")
    out = tmp_path / "out"
    with served("run", tmp_path / "s.toml", "--serve", "0.0.0.0:0", "--out", out, usual=signal.SIG_DFL) as (
        process,
        _,
        path,
    ):
        assert re.fullmatch(r"/\?token=[\w-]{32}", path)
        _, said = process.communicate(timeout=100)
        assert process.returncode == 0
    assert f"the page has ended; p2pclust replay {out} --serve shows the run again" in said
    assert path.partition("=")[2] not in (out / "events.jsonl").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.skipif(not hasattr(os, "fork"), reason="it needs a terminal of a Unix")
@STARTED
def test_on_a_terminal_the_page_of_a_run_stays_until_ctrl_c(tmp_path: Path, usual: signal.Handlers) -> None:
    """A short run was over, and its page gone, before a person could open it."""
    pytest.importorskip("aiohttp", reason="pip install 'p2pclust[live]' installs aiohttp")
    (tmp_path / "s.toml").write_text(SMALL, encoding="utf-8")
    ours, theirs = os.openpty()
    words = ("run", "s.toml", "--backend", "simulated", "--out", "out", "--serve", "127.0.0.1:0")
    with started_with(usual):
        process = subprocess.Popen(
            [sys.executable, "-m", "p2pclust", *words], cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs
        )
    os.close(theirs)
    said, until = b"", time.monotonic() + 100.0
    try:
        while b"the page stays until Ctrl-C" not in said:
            assert time.monotonic() < until, said
            if select.select([ours], [], [], 1.0)[0]:
                said += os.read(ours, 65536)
        found = re.search(rb"see http://127\.0\.0\.1:(\d+)/", said)
        assert found is not None, said
        assert any(shown["ended"] for shown in snapshots(int(found[1]))), "the last picture may come a moment later"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait(30)
        os.close(ours)


@pytest.mark.slow
def test_ctrl_c_while_the_page_is_announced_ends_it_without_an_error(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine Ctrl-C came before the line had been written: exit code 130."""
    pytest.importorskip("aiohttp", reason="pip install 'p2pclust[live]' installs aiohttp")
    module = importlib.import_module("p2pclust.lab.commands.run")

    def announce(line: str) -> None:
        assert line.startswith("the page stays until Ctrl-C")
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "note", announce)
    monkeypatch.setattr(module, "stderr", lambda: Console(file=io.StringIO(), force_terminal=True))
    (tmp_path / "s.toml").write_text(SMALL, encoding="utf-8")
    assert cli("run", "s.toml", "--backend", "simulated", "--out", "out", "--serve", "127.0.0.1:0").code == 0


def test_what_is_not_a_run_is_refused(cli: Cli, tmp_path: Path) -> None:
    ran = cli("replay", tmp_path, "--serve")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"error: {tmp_path}: no events.jsonl there: name the output directory of `p2pclust run`\n"


def test_without_the_extra_one_line_names_it(cli: Cli, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    monkeypatch.delitem(sys.modules, "p2pclust.lab.live.server", raising=False)
    ran = cli("replay", run, "--serve")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"error: --serve needs aiohttp: {distribution.install_line('live')}\n"


@pytest.mark.parametrize("address", ["here:99999", "127.0.0.1:70000"])
def test_an_address_that_is_none_is_refused(cli: Cli, run: Path, address: str) -> None:
    pytest.importorskip("aiohttp", reason="pip install 'p2pclust[live]' installs aiohttp")
    ran = cli("replay", run, "--serve", address)
    assert ran.code == 2
    assert ran.err == f"error: --serve {address}: expected HOST:PORT, such as 127.0.0.1:7480\n"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["watch"], "watch: name a JOB, or add --serve"),
        (["watch", "job-1", "--peer", "a", "--peer", "b"], "watch: more than one --peer goes with --serve only"),
        (["watch", "--serve", "--json"], "watch: --serve shows a page until Ctrl-C: omit --json and --within"),
    ],
)
def test_options_of_the_page_are_checked(cli: Cli, words: list[str], line: str) -> None:
    ran = cli(*words)
    assert ran.code == 2
    assert f"error: {line}" in ran.err
