"""A real peer on real sockets, and those who mean it harm: strangers, a revoked device, a stolen name, a recording.

`make fuzz` has the same attacks in large (tests/fuzz/live.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq
from tests.fuzz.live import MOST_GROWTH_MB, Target, at_once, enrolled, in_sequence
from tests.throwaway import throwaway_fleet
from zmq.utils.monitor import recv_monitor_message

from p2pclust.peer.core.codec import decode, encode
from p2pclust.peer.core.job_messages import Heartbeat
from p2pclust.peer.core.messages import Ack, FactDelta, FactDigest, Gossip, Message, Ping, Relay, Update
from p2pclust.peer.core.spread.facts import Fact
from p2pclust.peer.shell.signing import RosterSigner
from p2pclust.transport.keys import revoke

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.xdist_group("hostile")]

CONTROL, BULK = b"\x00", b"\x01"
LONG_S = 60.0
ENDED = (
    zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
)  # fmt: skip


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with Target(tmp_path_factory.mktemp("hostile")) as made:
        yield made


def serves(target: Target) -> None:
    """The peer runs, and answers a friend."""
    assert target.process.poll() is None
    asyncio.run(target.friend.served(LONG_S))


def on_wire(message: Message) -> list[bytes]:
    """A message as a peer sends it on the control lane."""
    head, *rest = encode(message)
    return [CONTROL + head, *rest]


def answers(socket: zmq.Socket[bytes], within_ms: int = 0) -> Iterator[Message]:
    """The messages that the peer has sent on this connection, and those that come soon."""
    while socket.poll(within_ms):
        first, *rest = socket.recv_multipart()
        if first[1:]:
            yield decode([first[1:], *rest])


def test_garbage_of_strangers(target: Target) -> None:
    before, rng = target.memory_mb, np.random.default_rng(1)
    in_sequence(target, 50, rng)
    serves(target)
    with at_once(target, 50, rng) as connections:
        assert len(connections) == 50
        serves(target)
        for raw in connections:  # also those that said one byte and then nothing: a handshake has three seconds
            raw.settimeout(LONG_S)
            with suppress(ConnectionError):
                while raw.recv(4096):
                    pass
    serves(target)
    assert target.memory_mb - before < MOST_GROWTH_MB


def test_a_stranger_is_refused_and_named(target: Target) -> None:
    _, others = throwaway_fleet(["p01"])
    with enrolled(others["p01"], target.address, target.their_key) as sender:
        monitor = sender.get_monitor_socket(ENDED)
        with suppress(zmq.Again):
            sender.send_multipart(on_wire(Ping(4711, ())), zmq.NOBLOCK)
        assert monitor.poll(LONG_S * 1000)
        target.until(lambda: target.said("refused-stranger"), "it is not named")
        sender.disable_monitor()
        monitor.close(linger=0)
    assert target.said("refused-stranger")[-1]["key"] == others["p01"].curve_public.decode()
    serves(target)
    assert not target.friend.answers(4711)


def test_an_enrolled_liar_that_floods_and_never_ends_a_message(target: Target) -> None:
    """Frames of one message without an end are held until its connection ends; nothing of it arrives."""
    before = len(target.said("malformed"))
    with enrolled(target.bundle("p02"), target.address, target.their_key) as sender:
        for number in range(3000):
            sender.send_multipart([CONTROL + b"\xc1" * (number % 50)])
        target.until(lambda: len(target.said("malformed")) > before, "the flood is not named")
        for _ in range(200):
            sender.send(BULK + bytes(64 * 1024), zmq.SNDMORE)
        serves(target)
    serves(target)
    assert target.said("malformed")[-1]["from"] == "p02"


def test_a_stolen_name_gives_nothing(target: Target) -> None:
    """The key of p03 says that it is p01, and where that is: p01 is answered, and p03 hears nothing meant for p01."""
    keys = target.bundle("p03")
    with zmq.Context() as context, context.socket(zmq.ROUTER) as impostor:
        impostor.linger = 0
        impostor.curve_server = True
        impostor.curve_secretkey = keys.curve_secret
        address = f"127.0.0.1:{impostor.bind_to_random_port('tcp://127.0.0.1')}"
        monitor = impostor.get_monitor_socket(ENDED)
        claim = Update("p01", "alive", 1000, address, "store-p03", "")
        lies = [
            Ping(4712, (claim,)),
            Gossip((claim,)),
            FactDelta("p01", 0, ("links",), (2**40,), (b"\x90",)),
            Relay("p01", "p00", bytes(64), tuple(encode(Ping(4713, ())))),
            Heartbeat("job-x", 1, 1),
        ]
        with enrolled(keys, target.address, target.their_key) as sender:
            for lie in lies:
                sender.send_multipart(on_wire(lie))
            target.until(lambda: "valid signature" in str(target.said("malformed")), "the forged relay is not named")
            assert monitor.poll(LONG_S * 1000), "the peer never tried the false address"
            assert recv_monitor_message(monitor)["event"] & ENDED
            assert not impostor.poll(0)
        impostor.disable_monitor()
        monitor.close(linger=0)
    target.friend.seq += 1000  # as the real p01 refutes what was said of it
    serves(target)
    assert not target.friend.answers(4712)
    assert not target.friend.answers(4713)


def test_a_forged_fact_is_refused_and_its_sender_named(target: Target) -> None:
    """p02 passes on facts of p01: without a signature, with its own, and then with that of p01, changed and as it was."""
    signers = {name: RosterSigner(target.bundle(name), target.roster) for name in ("p01", "p02")}
    fact = Fact("p01", "fitness", 2**21, b"70")
    good, own = signers["p01"].sign_fact(fact), signers["p02"].sign_fact(fact)
    lies = [FactDelta("p01", 0, (fact.key,), (fact.version,), (fact.value,), given) for given in ((), (own,))]
    lies.append(FactDelta("p01", 0, (fact.key,), (fact.version,), (b"99",), (good,)))
    # Of the peer itself, as if it had lost its store: it would publish it in its own name.
    lies.append(FactDelta("p00", 0, ("cancel/job-1",), (2**40,), (b"p02",), (own,)))
    genuine = FactDelta("p01", 0, (fact.key,), (fact.version,), (fact.value,), (good,))

    def sent_facts(owner: str) -> dict[int, FactDelta]:
        """The facts of that owner that the peer has sent the friend, by the version of the first of a message."""
        deltas = [one for one in target.friend.heard if isinstance(one, FactDelta) and one.owner == owner]
        return {delta.versions[0]: delta for delta in deltas if delta.versions}

    def named() -> list[dict[str, Any]]:
        return [line for line in target.said("forged-fact") if line["peer"] == "p02"]

    def came() -> bool:
        """Ask the peer for all facts, with the key of the friend; it answers on the same connection."""
        with enrolled(target.bundle("p01"), target.address, target.their_key) as asking:
            asking.send_multipart(on_wire(FactDigest(False, (), (), ())))
            serves(target)
            for message in answers(asking, 1000):
                target.friend.heard.append(message)
                if fact.version in sent_facts("p01"):
                    return True
        return False

    with enrolled(target.bundle("p02"), target.address, target.their_key) as sender:
        for lie in (*lies, genuine):
            sender.send_multipart(on_wire(lie))
        target.until(named, "the forged fact is not named")
        target.until(came, "the genuine fact was not taken")
    assert (named()[0]["owner"], named()[0]["key"]) == ("p01", "fitness")
    assert sent_facts("p01") == {fact.version: replace(genuine, serial=1)}, (
        "with its signature, and nothing that p02 made up"
    )
    assert all(version < 2**40 for version in sent_facts("p00"))


async def recorded(target: Target, message: Ping) -> tuple[list[bytes], list[bytes]]:
    """Send a message as the friend through a proxy; return all that went to the peer, and back, in pieces as they came."""
    host, port = target.address.rsplit(":", 1)
    pieces: list[bytes] = []
    back: list[bytes] = []
    ended = asyncio.Event()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: list[bytes]) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                kept.append(data)
                writer.write(data)
                await writer.drain()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_peer, to_peer = await asyncio.open_connection(host, int(port))
        await asyncio.gather(pass_on(reader, to_peer, pieces), pass_on(from_peer, writer, back))
        ended.set()

    async with asyncio.timeout(LONG_S), await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        address = ":".join(map(str, server.sockets[0].getsockname()))
        with enrolled(target.bundle("p01"), address, target.their_key) as sender:
            sender.send_multipart(on_wire(message))
            while not any(isinstance(answer, Ack) and answer.seq == message.seq for answer in answers(sender)):
                await target.friend.served(LONG_S)
        await ended.wait()
    return pieces, back


def test_a_recording_of_a_connection_is_worth_nothing(target: Target) -> None:
    pieces, back = asyncio.run(recorded(target, Ping(4714, ())))
    assert sum(map(len, pieces)) > 300  # greeting, hello, initiate, and the message
    assert b"READY" in b"".join(back)
    for at_a_time in (1, len(pieces)):
        with target.dial() as raw:
            raw.settimeout(LONG_S)
            with suppress(ConnectionError):
                for start in range(0, len(pieces), at_a_time):
                    raw.sendall(b"".join(pieces[start : start + at_a_time]))
                while heard := raw.recv(4096):  # until the peer hangs up: its key for this connection is another one
                    assert b"READY" not in heard
        serves(target)


def test_a_device_that_is_revoked_while_it_is_connected(target: Target) -> None:
    """Its connection ends, the next one is refused, and what it sends is not answered."""
    with enrolled(target.bundle("p02"), target.address, target.their_key) as sender:
        monitor = sender.get_monitor_socket(ENDED | zmq.EVENT_HANDSHAKE_SUCCEEDED)
        sender.send_multipart(on_wire(Ping(1, ())))
        assert monitor.poll(LONG_S * 1000)
        assert recv_monitor_message(monitor)["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED
        serves(target)
        revoke(target.keys, ["p02"])
        target.tell_roster()
        target.until(lambda: target.said("revoked"), "the roster was not taken")
        assert monitor.poll(LONG_S * 1000), "its connection did not end"
        assert recv_monitor_message(monitor)["event"] & ENDED
        target.until(lambda: target.said("refused-revoked"), "its next handshake was not refused")
        sender.disable_monitor()
        monitor.close(linger=0)
    assert target.said("refused-revoked")[-1]["member"] == "p02"
    serves(target)


def test_the_peer_outlives_more_connections_than_it_may_have_files(tmp_path: Path) -> None:
    """A stranger has 200 connections, and the peer 96 files: those without a message are ended, and the peer continues."""
    with Target(tmp_path, n_peers=2, most_files=96) as target:

        def crowd() -> bool:
            with at_once(target, 200, np.random.default_rng(2)):
                serves(target)
                return bool(target.said("crowded"))

        target.until(crowd, "it does not say so")
        assert target.said("crowded")[0]["connections"] > 0
        serves(target)
