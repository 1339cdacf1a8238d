"""What a peer has beside its work: what is wrong with one part of it stops no other."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from p2pclust.peer.operate.services import _door
from p2pclust.peer.shell.shell import Shell
from p2pclust.transport.keys import throwaway_fleet
from p2pclust.transport.zeromq import ZmqLinks


def test_the_door_on_the_network_opens_where_the_one_on_this_device_cannot(tmp_path: Path) -> None:
    roster, bundles = throwaway_fleet(["a", "b"])
    told: list[str] = []

    def watch(verb: str, fields: Mapping[str, Any]) -> None:
        told.append(verb)

    async def live() -> None:
        links = ZmqLinks(bundles["a"], roster, "127.0.0.1:0", lambda *message: None)
        shell = cast("Shell", SimpleNamespace(version="", listen=lambda listener: None))
        config = {"state_dir": str(tmp_path / "absent"), "door": "127.0.0.1:0"}
        door = _door(config, shell, links, bundles["a"], watch)
        door.close()
        links.close()

    asyncio.run(live())
    assert told == ["no-door", "door"]
