"""The key of a stolen meter at the control address of another device."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from tests.command_line import p2pclust

from p2pclust.errors import UsageError
from p2pclust.hosts import client
from p2pclust.peer.operate.server import Caller, ControlServer
from p2pclust.transport.bundle import load_bundle
from p2pclust.transport.keys import load_public_roster
from p2pclust.transport.zeromq import ZmqLinks

_VERBS = ["submit", "cancel", "job", "state", "status"]


@pytest.mark.parametrize(("options", "heard"), [((), []), (("--any-key",), _VERBS)], ids=["a new fleet", "any key"])
def test_a_stolen_meter_is_no_operator(options: tuple[str, ...], heard: list[str], tmp_path: Path) -> None:
    """Unless the fleet was made with that option: then it submits, cancels and reads."""
    keys = tmp_path / "fleet"
    for command in (("init", keys, "--no-passphrase", *options), ("device", "gate", "meter", "--fleet", keys)):
        with pytest.raises(SystemExit, match="0"):
            p2pclust("keys", *command)
    gate, meter = (load_bundle(keys / f"{name}.bundle") for name in ("gate", "meter"))
    roster = load_public_roster(keys)
    asked: list[str] = []

    def answer(caller: Caller, verb: str, fields: dict[str, Any]) -> None:
        asked.append(verb)
        caller.answer({})

    def ask(address: str) -> None:
        with client.Connection(f"gate@{address}", meter, roster) as door:
            for verb in _VERBS:
                with nullcontext() if heard else pytest.raises(UsageError, match="not as an operator"):
                    door.ask(verb)

    async def live() -> None:
        loop = asyncio.get_running_loop()
        links = ZmqLinks(gate, roster, "127.0.0.1:0", lambda *message: None)
        door = ControlServer(loop, links.context, answer)
        address = door.open_to_all("127.0.0.1:0", gate, lambda: roster)
        await loop.run_in_executor(None, ask, address)
        door.close()
        links.close()

    asyncio.run(live())
    assert asked == heard
