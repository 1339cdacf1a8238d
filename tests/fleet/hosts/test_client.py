"""The control address: questions from outside, answered on a peer's event loop."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import pytest
import zmq
from tests.throwaway import throwaway_fleet

from p2pclust.errors import FleetError, P2PClustError, UsageError
from p2pclust.hosts import client
from p2pclust.peer.operate import server as inside
from p2pclust.transport.bundle import Bundle
from p2pclust.transport.roster import OPERATOR, PEER, Roster
from p2pclust.transport.wire import pack, unpack
from p2pclust.transport.zeromq import ZmqLinks


@pytest.fixture(scope="module")
def fleet() -> tuple[Roster, dict[str, Bundle]]:
    return throwaway_fleet(["a", "b"])


def serve(
    answer: Callable[[inside.Caller, str, dict[str, Any]], None], ask: Callable[[str], Any], home: Path,
    fleet: tuple[Roster, dict[str, Bundle]], on_malformed: Callable[[str, str], None] = lambda name, reason: None,
) -> Any:  # fmt: skip
    """Ask in a thread what a peer's loop answers; returns what `ask` returned."""
    roster, bundles = fleet

    async def live() -> Any:
        loop = asyncio.get_running_loop()
        links = ZmqLinks(bundles["a"], roster, "127.0.0.1:0", lambda *message: None)
        door = inside.ControlServer(loop, links.context, answer, on_malformed)
        try:
            door.open_here(home)
            address = door.open_to_all("127.0.0.1:0", bundles["a"], lambda: links.roster)
            async with asyncio.timeout(60):
                return await loop.run_in_executor(None, ask, address)
        finally:
            door.close()
            links.close()

    return asyncio.run(live())


def echo(asker: inside.Asker, verb: str, fields: dict[str, Any]) -> None:
    asker.answer({"by": asker.name, "verb": verb, **fields})


def test_the_state_directory_leads_to_the_door(tmp_path: Path, fleet: Any) -> None:
    def ask(address: str) -> Any:
        assert (tmp_path / "control").stat().st_mode & 0o777 == 0o600
        with client.Connection(tmp_path) as by_folder, client.Connection(tmp_path / "control") as by_socket:
            return [door.ask("say", what=number) for number, door in enumerate((by_folder, by_folder, by_socket))]

    assert serve(echo, ask, tmp_path, fleet) == [
        {"by": "this device", "verb": "say", "what": number} for number in range(3)
    ]


def test_a_key_on_the_roster_may_ask_over_the_network(tmp_path: Path, fleet: Any) -> None:
    roster, bundles = fleet

    def ask(address: str) -> Any:
        told = []
        for where in (address, f"a@{address}"):  # whose door it is need not be said
            with client.Connection(where, bundles["b"], roster) as door:
                told.append(door.ask("say")["by"])
        return told

    assert serve(echo, ask, tmp_path, fleet) == ["b", "b"]


def test_an_operator_may_ask_though_it_is_no_peer(tmp_path: Path, fleet: Any) -> None:
    roster, bundles = fleet
    entries = tuple(replace(peer, role=OPERATOR) if peer.name == "b" else peer for peer in roster.peers)
    with_operator = replace(roster, peers=entries)

    def ask(address: str) -> Any:
        with client.Connection(f"a@{address}", bundles["b"], with_operator) as door:
            return door.ask("say")["by"]

    assert serve(echo, ask, tmp_path, (with_operator, bundles)) == "b"


def test_a_stranger_is_not_let_in(tmp_path: Path, fleet: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_ENTER_S", 0.2)
    roster, _ = fleet
    _, strangers = throwaway_fleet(["b"])

    def ask(address: str) -> Any:
        with (
            pytest.raises(FleetError, match="does not let us in"),
            client.Connection(address, strangers["b"], roster) as door,
        ):
            door.ask("say")
        with (
            pytest.raises(FleetError, match="it is not b's control address"),
            client.Connection(f"b@{address}", fleet[1]["b"], roster) as door,
        ):
            door.ask("say")

    serve(echo, ask, tmp_path, fleet)


def test_who_left_the_roster_is_refused_on_the_connection_that_stands(tmp_path: Path, fleet: Any) -> None:
    roster, bundles = fleet
    present = [roster]

    async def live() -> None:
        loop = asyncio.get_running_loop()
        links = ZmqLinks(bundles["a"], roster, "127.0.0.1:0", lambda *message: None)
        door = inside.ControlServer(loop, links.context, echo)
        address = door.open_to_all("127.0.0.1:0", bundles["a"], lambda: present[0])

        def ask() -> None:
            with client.Connection(f"a@{address}", bundles["b"], roster) as door:
                assert door.ask("say")["by"] == "b"
                present[0] = Roster(roster.fleet_id, roster.serial + 1, roster.peers[:1], b"")
                with pytest.raises(UsageError, match="not on this peer's fleet roster"):
                    door.ask("say")

        await loop.run_in_executor(None, ask)
        door.close()
        links.close()

    asyncio.run(live())


def test_a_roster_may_let_operators_alone_ask(tmp_path: Path, fleet: Any) -> None:
    roster, bundles = fleet
    roles = {"b": PEER}

    def present() -> Roster:
        peers = tuple(replace(peer, role=roles.get(peer.name, peer.role)) for peer in roster.peers)
        return replace(roster, peers=peers, operators_only=True)

    async def live() -> None:
        loop = asyncio.get_running_loop()
        links = ZmqLinks(bundles["a"], roster, "127.0.0.1:0", lambda *message: None)
        door = inside.ControlServer(loop, links.context, echo)
        address = door.open_to_all("127.0.0.1:0", bundles["a"], present)

        def ask() -> None:
            with client.Connection(f"a@{address}", bundles["b"], roster) as door:
                with pytest.raises(UsageError, match="not as an operator: `p2pclust keys device NAME --operator`"):
                    door.ask("say")
                roles["b"] = OPERATOR
                assert door.ask("say")["by"] == "b"

        await loop.run_in_executor(None, ask)
        door.close()
        links.close()

    asyncio.run(live())


def test_refusals_and_large_answers_and_several(tmp_path: Path, fleet: Any) -> None:
    def answer(asker: inside.Asker, verb: str, fields: dict[str, Any]) -> None:
        match verb:
            case "large":
                asker.answer({"bytes": bytes(3 * 2**20)})
            case "too-large":
                asker.answer({"bytes": bytes(9 * 2**20)})
            case "many":
                for number in range(3):
                    asker.answer({"number": number}, last=number == 2)
            case _:
                asker.refuse("not so", fields["code"])

    def ask(address: str) -> Any:
        with client.Connection(tmp_path) as door:
            errors = []
            for code in (2, 3):
                with pytest.raises(P2PClustError, match="not so") as caught:
                    door.ask("?", code=code)
                errors.append(type(caught.value))
            with pytest.raises(FleetError, match="more than one answer"):
                door.ask("too-large")
            return errors, len(door.ask("large")["bytes"]), [told["number"] for told in door.follow("many")]

    assert serve(answer, ask, tmp_path, fleet) == ([UsageError, FleetError], 3 * 2**20, [0, 1, 2])


def test_who_goes_away_is_noticed(tmp_path: Path, fleet: Any) -> None:
    left: list[inside.Asker] = []

    def ask(address: str) -> Any:
        with client.Connection(tmp_path) as door:
            assert next(door.follow("watch")) == {}
        with client.Connection(tmp_path) as door:
            while door.ask("gone?")["heard"]:
                pass
        return True

    def answer(asker: inside.Asker, verb: str, fields: dict[str, Any]) -> None:
        if verb == "watch":
            left.append(asker)
            asker.answer({}, last=False)
        else:
            asker.answer({"heard": left[0].answer({}, last=False)})

    assert serve(answer, ask, tmp_path, fleet)


@pytest.mark.parametrize(
    "frames",
    [
        [b"\xc1"],
        pack("ask", {"number": 1, "verb": "status"}),
        pack("ask", {"number": 1, "verb": "status"}, [b"\x93"]),
        pack("ask", {"number": 1, "verb": "status"}, [msgpack.packb([1])]),
        pack("ask", {"number": 1, "verb": "status"}, [msgpack.packb({1: 2})]),
        pack("ask", {"number": 1, "verb": "status"}, [b"\x81" * 2000]),
        pack("ask", {"number": True, "verb": "status"}, [b"\x80"]),
        pack("ask", {"number": 1}, [b"\x80"]),
        pack("tell", {"number": 1, "verb": "status"}, [b"\x80"]),
        pack("ask", {"number": 1, "verb": "status"}, [b"\x80"] * 10),
    ],
)
def test_what_is_malformed_is_refused_and_harms_nobody(tmp_path: Path, fleet: Any, frames: list[bytes]) -> None:
    def ask(address: str) -> Any:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        with context.socket(zmq.DEALER) as raw:
            raw.linger = 0
            raw.connect(f"ipc://{tmp_path}/control")
            raw.send_multipart(frames)
            assert raw.poll(60_000)
            kind, _, (reason,) = unpack(raw.recv_multipart())
        context.term()
        with client.Connection(tmp_path) as door:
            door.ask("say")
        return kind, reason.decode()

    told: list[tuple[str, str]] = []
    kind, reason = serve(echo, ask, tmp_path, fleet, lambda *whose: told.append(whose))
    assert kind == "refused"
    assert reason.startswith("cannot read the question: ")
    assert told == [("this device", reason.removeprefix("cannot read the question: "))]


def test_nobody_is_there(tmp_path: Path, fleet: Any) -> None:
    roster, bundles = fleet
    with pytest.raises(FleetError, match=f"no peer listens at {tmp_path}: is it running"):
        client.Connection(tmp_path).ask("status")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(FleetError, match=f"no peer listens at {address}"):
        client.Connection(address, bundles["b"], roster).ask("status")
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(UsageError, match="is not the socket of a peer"):
        client.Connection(tmp_path / "file").ask("status")


def test_where_no_peer_was_named_it_is_said_how_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        FleetError, match=r"no peer listens at state/control: is it running.* --peer, or P2PCLUST_CONTROL"
    ):
        client.Connection(client.DEFAULT).ask("status")


def test_another_user_is_told_which_ways_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_where: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(client.plain.socket, "connect", refuse)
    with pytest.raises(
        UsageError, match="ask as that user, or over the network through its control address, with an operator's key"
    ):
        client.Connection(tmp_path).ask("status")


def test_who_asks_where_peers_connect_is_told_of_the_door(tmp_path: Path, fleet: Any) -> None:
    roster, bundles = fleet

    def ask(address: str) -> Any:
        with (
            client.Connection(address, bundles["b"], roster) as door,
            pytest.raises(
                FleetError,
                match=r"does not answer within 0\.2 s: is that port its control address, not the one where peers",
            ),
        ):
            door.ask("say", within_s=0.2)
        with (
            client.Connection(tmp_path) as door,
            pytest.raises(FleetError, match=r"does not answer within 0\.2 s: is it very busy"),
        ):
            door.ask("say", within_s=0.2)

    serve(lambda asker, verb, fields: None, ask, tmp_path, fleet)


def test_a_socket_that_a_dead_peer_left(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "control"))
    with pytest.raises(FleetError, match="is it running"):
        client.Connection(tmp_path).ask("status")


def test_a_door_on_the_network_wants_keys(fleet: Any) -> None:
    with pytest.raises(UsageError, match="--bundle"):
        client.Connection("10.0.0.1:7400")
    with pytest.raises(UsageError, match="'c' is not on the fleet roster"):
        client.Connection("c@10.0.0.1:7400", fleet[1]["b"], fleet[0])


def deep_folder(tmp_path: Path) -> Path:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    return deep


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a short name for what lies in an open folder")
def test_a_door_in_a_folder_that_lies_deep(tmp_path: Path, fleet: Any) -> None:
    deep = deep_folder(tmp_path)

    def ask(address: str) -> Any:
        assert (deep / "control").stat().st_mode & 0o777 == 0o600
        with client.Connection(deep) as by_folder, client.Connection(deep / "control") as by_socket:
            return by_folder.ask("one"), by_folder.ask("two"), by_socket.ask("three")

    told = serve(echo, ask, deep, fleet)
    assert [answer["verb"] for answer in told] == ["one", "two", "three"]
    with pytest.raises(FleetError, match="is it running"):
        client.Connection(deep).ask("status")


def test_a_path_that_is_too_long_elsewhere(tmp_path: Path, fleet: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = deep_folder(tmp_path)
    monkeypatch.setattr(sys, "platform", "darwin")

    async def live() -> None:
        door = inside.ControlServer(asyncio.get_running_loop(), zmq.Context.instance(), echo)
        with pytest.raises(UsageError, match="choose a shorter state_dir"):
            door.open_here(deep)
        door.close()

    asyncio.run(live())
    with pytest.raises(UsageError, match="longer than a Unix socket's path"):
        client.Connection(deep).ask("status")


def test_the_mask_of_the_process_is_as_before(tmp_path: Path, fleet: Any) -> None:
    before = os.umask(0o022)
    try:
        serve(echo, lambda address: None, tmp_path, fleet)
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)


def test_a_connect_that_fails_fails_again_with_the_next_request(
    tmp_path: Path, fleet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next request once waited for ever on a socket that was not connected."""

    made: list[zmq.Socket[bytes]] = []

    class Unconnected(zmq.Socket[bytes]):
        def connect(self, address: str) -> Any:
            self.sndtimeo = 100  # where a request does wait, not for ever
            raise zmq.ZMQError(msg="no file descriptors")

    def dealer(self: client.Connection) -> zmq.Socket[bytes]:
        assert self._context is not None
        made.append(self._context.socket(zmq.DEALER, socket_class=Unconnected))
        return made[-1]

    def ask(address: str) -> Any:
        with client.Connection(tmp_path) as door:
            with monkeypatch.context() as patched:
                patched.setattr(client.Connection, "_dealer", dealer)
                for _ in range(2):
                    with pytest.raises(zmq.ZMQError, match="no file descriptors"):
                        door.ask("say")
            return door.ask("say")["by"]

    assert serve(echo, ask, tmp_path, fleet) == "this device"
    assert len(made) == 2
    for socket_ in made:
        socket_.close(linger=0)
        socket_.context.term()
