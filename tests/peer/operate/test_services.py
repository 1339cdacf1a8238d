"""Services of a peer: one that cannot start stops no other."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tests.throwaway import throwaway_fleet

from p2pclust.peer.operate.services import _control_server
from p2pclust.peer.shell.shell import Shell
from p2pclust.transport.zeromq import ZmqLinks


def test_the_control_address_opens_if_the_socket_of_this_device_cannot(tmp_path: Path) -> None:
    roster, bundles = throwaway_fleet(["a", "b"])
    told: list[str] = []

    def watch(verb: str, fields: Mapping[str, Any]) -> None:
        told.append(verb)

    async def live() -> None:
        links = ZmqLinks(bundles["a"], roster, "127.0.0.1:0", lambda *message: None)
        shell = cast("Shell", SimpleNamespace(version="", listen=lambda listener: None))
        config = {"state_dir": str(tmp_path / "absent"), "control": "127.0.0.1:0"}
        server = _control_server(config, shell, links, bundles["a"], watch)
        server.close()
        links.close()

    asyncio.run(live())
    assert told == ["no-control", "control"]
