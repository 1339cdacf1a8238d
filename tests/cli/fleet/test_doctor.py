from __future__ import annotations

import json

import pytest
from tests.cli.conftest import Cli

from p2pclust.cli.fleet import doctor
from p2pclust.cli.fleet.doctor import Check, examine


def test_this_machine_can_run_peers(cli: Cli) -> None:
    ended = cli("doctor", "--json")
    assert ended.err == ""
    told = json.loads(ended.out)
    names = "system installed versions extras libzmq CURVE loopback ports open-files BLAS kernel disk"
    assert [check["what"].replace(" ", "-") for check in told["checks"]] == names.split()
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
    monkeypatch.setattr("resource.getrlimit", lambda what: (256, 4096))
    (files,) = (check for check in examine() if check.what == "open files")
    assert not files.ok
    assert "ulimit -n" in files.advice


@pytest.mark.parametrize(
    ("found", "ok", "said"),
    [
        (("p2pclust",), True, "p2pclust 0"),
        (("p2pclust-device",), True, "p2pclust-device 0"),
        (("p2pclust", "p2pclust-device"), False, "pip uninstall --yes p2pclust p2pclust-device, then install the one"),
        ((), True, "on the path only"),
    ],
)
def test_which_distribution_is_here(
    monkeypatch: pytest.MonkeyPatch, found: tuple[str, ...], ok: bool, said: str
) -> None:
    monkeypatch.setattr("p2pclust.cli.fleet.doctor.installed", lambda: found)
    (check,) = (check for check in examine() if check.what == "installed")
    assert check.ok == ok
    assert said in f"{check.found}: {check.advice}"


def test_on_a_device_what_only_the_laboratory_needs_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("p2pclust.cli.fleet.doctor.installed", lambda: ("p2pclust-device",))
    (check,) = (check for check in examine() if check.what == "versions")
    assert check.ok
    assert "scipy" not in check.found


@pytest.mark.parametrize(
    ("system", "pointer", "found"),
    [
        ("Linux", 8, "Linux on armv7l, 64 bits"),
        ("Linux", 4, "Linux on armv7l, 32 bits (fits; much of what is installed has to be compiled)"),
        ("Darwin", 8, "Darwin on armv7l, 64 bits (not tested; without namespaces, memory_mb and cpus)"),
    ],
)
def test_the_system_is_named(monkeypatch: pytest.MonkeyPatch, system: str, pointer: int, found: str) -> None:
    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.setattr("platform.machine", lambda: "armv7l")
    monkeypatch.setattr("struct.calcsize", lambda what: pointer)
    assert doctor._system() == Check("system", found)


def test_without_fork_it_says_what_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("p2pclust.cli.fleet.doctor.is_unix", lambda: False)
    check = doctor._system()
    assert not check.ok
    assert check.advice.startswith("no peers and no local fleets: run them in WSL; estimators, run --backend simulated")
