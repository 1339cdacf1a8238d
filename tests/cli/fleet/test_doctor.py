from __future__ import annotations

import json

import pytest
from tests.cli.conftest import Cli

from p2pclust.cli.fleet.doctor import Check, examine


def test_this_machine_can_run_peers(cli: Cli) -> None:
    ended = cli("doctor", "--json")
    assert ended.err == ""
    told = json.loads(ended.out)
    names = ["versions", "libzmq", "CURVE", "loopback", "ports", "open files", "BLAS", "kernel", "disk"]
    assert [check["what"] for check in told["checks"]] == names
    assert ended.code == (0 if told["ok"] else 1)
    for check in told["checks"]:
        if check["what"] in ("CURVE", "loopback", "libzmq"):
            assert check["ok"]


def test_what_is_wrong_comes_with_advice(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = [Check("disk", "900 ms to sync", "keep the store elsewhere"), Check("CURVE", "available")]
    monkeypatch.setattr("p2pclust.cli.fleet.doctor.examine", lambda: checks)
    ended = cli("doctor")
    assert (ended.code, ended.err) == (1, "")
    assert [line.split() for line in ended.out.splitlines()] == [
        ["warn", "disk", "900", "ms", "to", "sync:", "keep", "the", "store", "elsewhere"],
        ["ok", "CURVE", "available"],
    ]


def test_low_limit_of_files_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("p2pclust.cli.fleet.doctor.resource.getrlimit", lambda what: (256, 4096))
    (files,) = (check for check in examine() if check.what == "open files")
    assert not files.ok
    assert "ulimit -n" in files.advice
