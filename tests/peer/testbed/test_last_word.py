"""A peer says nothing after it has said that it left: rows that were being read meanwhile are not reported any more."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from p2pclust.peer.main import _loader


@pytest.mark.parametrize("left", [False, True])
def test_rows_are_reported_unless_the_peer_has_left_meanwhile(tmp_path: Path, left: bool) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n3,4\n")
    told: list[str] = []

    def watch(verb: str, fields: Mapping[str, Any]) -> None:
        told.append(verb)

    async def read() -> None:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        shell: Any = SimpleNamespace(ended=ended)
        reading = Thread(target=_loader({"data": str(tmp_path / "rows.csv")}, shell, watch))
        reading.start()
        reading.join(30.0)  # the loop stands still meanwhile, as it does while a peer that leaves waits for its worker
        if left:
            ended.set_result(None)
        heard = asyncio.Event()
        asyncio.get_running_loop().call_soon(heard.set)
        await heard.wait()

    asyncio.run(read())
    assert told == ([] if left else ["data"])
