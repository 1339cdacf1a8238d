"""`p2pclust fleet up`: what it says of peers that do not come up, and how it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from p2pclust.transport.keys import throwaway_fleet, write_fleet

from .conftest import Cli

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

    monkeypatch.setattr("p2pclust.fleet.remote.ask", ask)
    ended = cli("fleet", "up", "fleet.toml")
    assert (ended.code, ended.out.strip()) == (code, said)
