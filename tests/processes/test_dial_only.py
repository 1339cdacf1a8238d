"""A device that no other device can connect to: behind a NAT or a firewall, or in a mobile network."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from by_hand import ENVIRONMENT, Fleet
from runs import a_job, rows, until

pytestmark = [pytest.mark.processes, pytest.mark.slow]

#: Python imports a module of this name when it starts: the peer announces its address, but listens at another.
SITECUSTOMIZE = """
from p2pclust.transport import zeromq

def bind_elsewhere(router, host, port, bind=zeromq.bind):
    bind(router, host, 0)
    return f"{host}:{port}"

zeromq.bind = bind_elsewhere
"""


@pytest.mark.parametrize("unreachable", ["p00", "p01", "p03"])
def test_a_device_that_can_only_dial_takes_part_in_everything(
    home: Path, unreachable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "sitecustomize.py").write_text(SITECUSTOMIZE)
    arrays = rows(4)
    with Fleet(home, arrays, joins=3) as fleet:
        fleet.start(*(name for name in fleet.names if name != unreachable))
        monkeypatch.setitem(ENVIRONMENT, "PYTHONPATH", str(home))
        fleet.start(unreachable)
        until(fleet.linked, 60.0, "not linked")
        host, port = fleet.listen[unreachable].rsplit(":", 1)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)))
        fleet.submit(a_job())
        until(lambda: len(fleet.finished()) == 4, 60.0, "not finished")
        assert len(set(fleet.finished().values())) == 1
        for name in fleet.names:
            assert {line["status"] for line in fleet.verbs(name, "member")} == {"alive"}, name
        members = {member["name"]: member for member in fleet.status("p02")["members"]}
        assert members[unreachable]["linked"]
