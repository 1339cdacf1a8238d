"""Few open files: one line says how many are needed."""

from __future__ import annotations

import errno
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zmq
from tests.cli.conftest import Cli
from tests.throwaway import throwaway_fleet

from p2pclust.errors import UsageError
from p2pclust.lab.testbed.processes.children import write_fleet
from p2pclust.tools.platforms import allow_files


class TestOpenFiles:
    @pytest.fixture
    def limits(self, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
        """The limit of this process, the newest one last."""
        found = [(40, 100)]
        monkeypatch.setattr(resource, "getrlimit", lambda what: found[-1])
        monkeypatch.setattr(resource, "setrlimit", lambda what, limit: found.append(limit))
        return found

    @pytest.mark.parametrize(
        ("needed", "most", "soft"),
        [(30, False, 40), (60, False, 60), (100, False, 100), (30, True, 100), (60, True, 100)],
    )
    def test_the_limit_is_raised_where_it_may_be(
        self, limits: list[tuple[int, int]], needed: int, most: bool, soft: int
    ) -> None:
        allow_files(needed, "3 peers", most=most)
        assert limits[-1] == (soft, 100)

    def test_where_it_may_not_the_number_is_named(self, limits: list[tuple[int, int]]) -> None:
        with pytest.raises(UsageError) as refused:
            allow_files(101, "3 peers")
        assert str(refused.value) == (
            "3 peers need about 101 open files at a time, and 100 are allowed here: raise the limit (`ulimit -n 101`; "
            "LimitNOFILE of a service)"
        )
        assert limits == [(40, 100)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("allowed", "command", "says"),
    [
        pytest.param(40, "run s.toml --out o", "3 peers on this machine need about 56 open files", id="a-fleet"),
        pytest.param(24, "peer --config peer.toml", "this peer and its links need about 30 open files", id="a-peer"),
    ],
)
def test_few_open_files_are_no_bug(tmp_path: Path, allowed: int, command: str, says: str) -> None:
    scenario = '[data]\nsource = "gaussians"\n[fleet]\npeers = 3\n[[jobs]]\nprotocol = "llf-cm"\nclusters = 3\n'
    (tmp_path / "s.toml").write_text(scenario, encoding="utf-8")
    write_fleet(tmp_path / "keys", *throwaway_fleet(["m1"]))
    np.save(tmp_path / "rows.npy", np.zeros((3, 1)))
    peer = (
        'name = "m1"\nlisten = "127.0.0.1:1"\ndata = "rows.npy"\nbundle = "keys/m1.bundle"\n'
        'roster = "keys/roster.json"\nstate_dir = "state"\n'
    )
    (tmp_path / "peer.toml").write_text(peer, encoding="utf-8")
    line = f"ulimit -n {allowed}; exec {sys.executable} -m p2pclust {command}"
    done = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    (error,) = errors
    assert says in error
    assert "ulimit -n " in error
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "error", [OSError(errno.EMFILE, "Too many open files"), OSError(errno.ENFILE, "x"), zmq.ZMQError(errno.EMFILE)]
)
def test_anywhere_else_the_limit_is_named(cli: Cli, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fails() -> None:
        raise error

    monkeypatch.setattr("p2pclust.lab.commands.data.listing", fails)
    monkeypatch.setattr(resource, "getrlimit", lambda what: (64, 64))
    done = cli("data", "list")
    assert done.code == 3
    assert done.err == "error: too many open files: 64 are allowed here at a time: raise the limit (`ulimit -n 256`)\n"
