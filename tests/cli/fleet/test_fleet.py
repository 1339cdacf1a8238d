"""`p2pclust fleet`: what it says of peers that do not come up, of orders to single peers, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Cli
from tests.throwaway import throwaway_fleet

from p2pclust.errors import FleetError
from p2pclust.lab.testbed.processes.children import write_fleet

FLEET = """
keys = "fleet"
state_dir = "devices"

[[devices]]
name = "a"
port = 7001
data = "a.npz"
"""


@pytest.mark.parametrize(
    ("status", "failed", "code", "said"),
    [
        ("running", False, 0, "a on local: started"),
        ("starting", False, 0, "a on local: started; not ready yet"),
        ("starting", True, 3, "a on local: started; is being tried again: exit code 3: the port is in use"),
        ("waiting", True, 3, "a on local: started; will be tried again: exit code 3: the port is in use"),
        ("given-up", True, 3, "a on local: started; given up: exit code 3: the port is in use"),
    ],
)
def test_one_that_has_failed_and_does_not_run_is_no_success(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str, failed: bool, code: int, said: str
) -> None:
    """Also where the wait ends while it is being tried again."""
    write_fleet(tmp_path / "fleet", *throwaway_fleet(["a"]))
    (tmp_path / "fleet.toml").write_text(FLEET)
    peer = {"status": status, "failed": failed, "ended": "exit code 3", "last_line": "the port is in use"}

    def ask(_host: object, verb: str, *_given: Any, **_more: Any) -> dict[str, Any]:
        return {"peers": {}} if verb == "status" else {"changes": {"new": ["a"]}, "roster": {}, "peers": {"a": peer}}

    monkeypatch.setattr("p2pclust.hosts.remote.ask", ask)
    ended = cli("fleet", "up", "fleet.toml")
    assert (ended.code, ended.out.strip()) == (code, said)


TWO = (
    FLEET
    + """
[[devices]]
name = "b"
host = "far"
port = 7002
data = "/srv/b.npz"
"""
)


def a_peer(status: str, **more: Any) -> dict[str, Any]:
    return {"status": status, "pid": 7, "restarts": 0, "ended": "exit code 0", "last_line": "", "failed": False} | more


class TestSinglePeers:
    """What two hosts answer is made up here."""

    @pytest.fixture
    def asked(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, list[str]]]:
        (tmp_path / "fleet.toml").write_text(TWO)
        asked: list[tuple[str, str, list[str]]] = []

        def ask(host: Any, verb: str, arguments: list[str], **_more: Any) -> dict[str, Any]:
            asked.append((host.name, verb, arguments))
            answer = self.answers[host.name]
            if isinstance(answer, FleetError):
                raise answer
            return answer

        monkeypatch.setattr("p2pclust.hosts.remote.ask", ask)
        self.answers: dict[str, dict[str, Any] | FleetError] = {}
        return asked

    def test_each_host_is_asked_for_its_own(self, cli: Cli, asked: list[tuple[str, str, list[str]]]) -> None:
        self.answers = {
            "local": {"refused": {}, "peers": {"a": a_peer("running")}},
            "far": {"refused": {}, "peers": {"b": a_peer("starting")}},
        }
        ended = cli("fleet", "restart", "fleet.toml", "b", "a", "--wait", 5)
        assert (ended.code, ended.err) == (0, "")
        assert ended.out.splitlines() == ["a on local: started again", "b on far: started again; not ready yet"]
        options = ["--wait", "5", "--deadline", "10"]
        assert sorted(asked) == [("far", "restart", ["b", *options]), ("local", "restart", ["a", *options])]

    @pytest.mark.parametrize(
        ("arguments", "status", "said"),
        [
            (("stop", "fleet.toml", "a"), "stopped", "stopped: `p2pclust fleet restart` starts it again"),
            (("fault", "fleet.toml", "a", "kill"), "waiting", "killed: its supervisor starts it again"),
            (("fault", "fleet.toml", "a", "pause"), "paused", "paused: `resume` continues it"),
            (("fault", "fleet.toml", "a", "resume"), "running", "continued"),
        ],
    )
    def test_what_was_done(
        self, cli: Cli, asked: list[Any], arguments: tuple[str, ...], status: str, said: str
    ) -> None:
        self.answers = {"local": {"refused": {}, "peers": {"a": a_peer(status)}}}
        ended = cli("fleet", *arguments)
        assert (ended.code, ended.out) == (0, f"a on local: {said}\n")
        assert asked[0][1] == (arguments[-1] if arguments[0] == "fault" else arguments[0])
        told = json.loads(cli("fleet", *arguments, "--json").out)
        peer = {"host": "local", "status": status, "pid": 7, "restarts": 0, "ended": "exit code 0"}
        assert told == {"well": True, "errors": {}, "peers": {"a": peer}}

    def test_one_without_a_process_has_no_pid(self, cli: Cli, asked: list[Any]) -> None:
        self.answers = {"local": {"refused": {}, "peers": {"a": a_peer("stopped", pid=0)}}}
        assert json.loads(cli("fleet", "stop", "fleet.toml", "a", "--json").out)["peers"]["a"]["pid"] is None

    def test_one_that_is_refused_is_bad_usage(self, cli: Cli, asked: list[Any]) -> None:
        self.answers = {"local": {"refused": {"a": "is paused already"}, "peers": {"a": a_peer("paused")}}}
        ended = cli("fleet", "fault", "fleet.toml", "a", "pause")
        assert (ended.code, ended.out, ended.err) == (2, "", "error: a: is paused already\n")
        told = json.loads(cli("fleet", "fault", "fleet.toml", "a", "pause", "--json").out)
        assert (told["well"], told["errors"]) == (False, {"a": "a: is paused already"})

    def test_where_the_fleet_is_not_up(self, cli: Cli, asked: list[Any]) -> None:
        self.answers = {
            "local": FleetError("local: the fleet is not up: no supervisor runs there"),
            "far": {"refused": {}, "peers": {"b": a_peer("stopped")}},
        }
        ended = cli("fleet", "stop", "fleet.toml", "a", "b")
        assert (ended.code, ended.err) == (3, "error: local: the fleet is not up: no supervisor runs there\n")
        assert ended.out.startswith("b on far: stopped")

    def test_one_that_does_not_come_up_again(self, cli: Cli, asked: list[Any]) -> None:
        failed = a_peer("waiting", pid=0, failed=True, ended="exit code 2", last_line="rows.csv: no such file")
        self.answers = {"local": {"refused": {}, "peers": {"a": failed}}}
        ended = cli("fleet", "restart", "fleet.toml", "a")
        assert ended.code == 3
        assert ended.out == "a on local: started again; will be tried again: exit code 2: rows.csv: no such file\n"

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("stop", "fleet.toml", "aa"), "fleet.toml: no device is named 'aa': did you mean 'a'?"),
            (("restart", "fleet.toml", "z"), "fleet.toml: no device is named 'z': expected one of a, b"),
            (("logs", "fleet.toml", "z"), "fleet.toml: no device is named 'z': expected one of a, b"),
            (("fault", "fleet.toml", "a", "kil"), "expected kill, pause, resume (did you mean 'kill'?)"),
        ],
    )
    def test_bad_names(self, cli: Cli, asked: list[Any], arguments: tuple[str, ...], said: str) -> None:
        ended = cli("fleet", *arguments)
        assert ended.code == 2
        assert said in ended.err
        assert len(ended.err.splitlines()) == 1
        assert asked == []
