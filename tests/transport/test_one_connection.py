"""A pair of peers shares one connection for each lane, whoever opened it."""

from __future__ import annotations

from typing import Any

import pytest

from p2pclust.transport import channel as channel_module
from p2pclust.transport.links import Lane
from p2pclust.transport.wire import MAX_FRAME_BYTES

NOWHERE = "127.0.0.1:9"  # nothing listens there


def dials(links: Any, peer: str) -> bool:
    return links._links[peer].control._socket is not None


async def talk(net: Any, *pair: Any, lane: Lane = Lane.CONTROL) -> None:
    """Each of two sends the other a message, again and again, until one arrives."""
    (a, to_a), (b, to_b) = pair
    before = len(net.inbox[to_a]), len(net.inbox[to_b])

    def heard() -> bool:
        arrived = [len(net.inbox[name]) > n for name, n in zip((to_a, to_b), before, strict=True)]
        for there, links, peer in zip(arrived, (b, a), (to_a, to_b), strict=True):
            if not there:
                links.send(peer, [b"are you there"], lane)
        return all(arrived)

    await net.until(heard)


def test_the_later_in_the_alphabet_dials_and_both_send(net: Any) -> None:
    async def test() -> None:
        a, b = net.open("a"), net.open("b")
        a.connect("b", b.address)
        b.connect("a", a.address)
        assert a.send("b", [b"1"], Lane.CONTROL)
        assert b.send("a", [b"2"], Lane.CONTROL)
        await net.until(lambda: net.inbox["a"] and net.inbox["b"])
        assert (list(a._arrivals.of), list(b._arrivals.of)) == (["b"], [])
        assert not a.problem_with("b")
        assert not b.problem_with("a")
        assert not a.counters.dropped

    net.run(test())


def test_a_port_that_never_answered_may_be_that_of_a_peer_that_only_dials(net: Any) -> None:
    async def test() -> None:
        a = net.open("a")
        a.connect("b", NOWHERE)
        assert not await a.refused("b", 5.0)

    net.run(test())


@pytest.mark.parametrize("unreachable", ["a", "b"])
@pytest.mark.parametrize("lane", list(Lane))
def test_a_peer_that_cannot_be_dialled_is_reached_on_its_own_connection(net: Any, unreachable: str, lane: Lane) -> None:
    other = "b" if unreachable == "a" else "a"
    message = [b"header", bytes(MAX_FRAME_BYTES if lane == Lane.BULK else 10)]

    async def test() -> None:
        links = {name: net.open(name) for name in "ab"}
        links[other].connect(unreachable, NOWHERE)
        assert links[other].send(unreachable, message, lane)
        links[unreachable].connect(other, links[other].address)
        await net.until(lambda: not links[other].problem_with(unreachable))
        for source, target in ((unreachable, other), (other, unreachable)):
            net.inbox[target].clear()
            for number in range(20):
                await net.send(links[source], target, [bytes([number]), *message], lane)
            await net.until(lambda target=target: len(net.inbox[target]) >= 20)
            assert net.inbox[target][-20:] == [(source, [bytes([number]), *message], lane) for number in range(20)]
        assert not await links[other].refused(unreachable, 5.0), "its connection shows that it lives"
        links[unreachable].close()
        await net.until(lambda: links[other].problem_with(unreachable))
        assert await links[other].refused(unreachable, 5.0)

    net.run(test())


def test_of_two_that_dial_at_once_one_connection_stays(net: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_module, "_TURN_S", 0.0)

    async def test() -> None:
        a, b = net.open("a"), net.open("b")
        a.connect("b", b.address)
        b.connect("a", a.address)
        for number in range(50):
            await net.send(a, "b", [b"%d" % number])
            await net.send(b, "a", [b"%d" % number])
        await net.until(lambda: len(net.inbox["a"]) == len(net.inbox["b"]) == 50)
        await net.until(lambda: dials(a, "b") != dials(b, "a"))
        await talk(net, (a, "a"), (b, "b"))

    net.run(test())


def test_when_the_one_that_is_to_dial_does_not_know_the_address_the_other_dials(net: Any) -> None:
    async def test() -> None:
        a, b = net.open("a"), net.open("b")
        a.connect("b", b.address)
        assert a.send("b", [b"here I am"], Lane.CONTROL)
        await net.until(lambda: net.inbox["b"])
        b.connect("a", a.address)
        assert b.send("a", [b"welcome"], Lane.CONTROL)
        await net.until(lambda: net.inbox["a"])
        assert dials(a, "b")
        assert not dials(b, "a")

    net.run(test())


@pytest.mark.parametrize("restarted", ["a", "b"])
@pytest.mark.parametrize("lane", list(Lane))
def test_after_a_restart_of_either_both_send_again(net: Any, restarted: str, lane: Lane) -> None:
    async def test() -> None:
        links = {name: net.open(name) for name in "ab"}
        address = {name: one.address for name, one in links.items()} | {"a": NOWHERE}  # only a can dial
        links["a"].connect("b", address["b"])
        links["b"].connect("a", address["a"])
        await talk(net, (links["a"], "a"), (links["b"], "b"), lane=lane)
        links[restarted] = net.restart(restarted, links[restarted])
        links["a"].connect("b", address["b"])
        links["b"].connect("a", address["a"])
        await talk(net, (links["a"], "a"), (links["b"], "b"), lane=lane)

    net.run(test())


def test_a_bulk_connection_that_was_idle_is_opened_again_for_the_peer_that_cannot_dial(net: Any) -> None:
    async def test() -> None:
        a, b = net.open("a", bulk_idle_s=0.1), net.open("b")
        b.connect("a", NOWHERE)
        a.connect("b", b.address)
        for _ in range(2):
            await talk(net, (a, "a"), (b, "b"), lane=Lane.BULK)
            await net.until(lambda: a._links["b"].bulk is None)

    net.run(test())


def test_messages_wait_while_a_connection_is_full(net: Any) -> None:
    """On the connection of the other peer too, where libzmq does not say when there is room."""

    async def test() -> None:
        a, b = net.open("a"), net.open("b")
        b.connect("a", NOWHERE)
        a.connect("b", b.address)
        await net.until(lambda: not b.problem_with("a"))
        for number in range(500):
            await net.send(b, "a", [number.to_bytes(4, "big"), bytes(60_000)])
        await net.until(lambda: len(net.inbox["a"]) == 500)
        assert [int.from_bytes(frames[0], "big") for _, frames, _ in net.inbox["a"]] == list(range(500))

    net.run(test())


def test_what_was_sent_before_the_roster_ended_the_connection_arrives(net: Any) -> None:
    async def test() -> None:
        a, b = net.open("a"), net.open("b")
        b.connect("a", NOWHERE)
        a.connect("b", b.address)
        await net.until(lambda: not b.problem_with("a"))
        b.send("a", [b"you are revoked"], Lane.CONTROL)
        b.set_roster(type(net.roster)(net.roster.fleet_id, 9, tuple(p for p in net.roster.peers if p.name != "a"), b""))
        await net.until(lambda: net.inbox["a"])
        await net.until(lambda: "not admitted: stranger" in b.counters.dropped)

    net.run(test())


def test_the_answer_goes_where_the_question_came_from(net: Any) -> None:
    """Two connections with one key: a copied device is heard, and answered, like the other."""

    async def test() -> None:
        heard: list[list[bytes]] = [[], []]
        first, second = (net.open("a", receive=lambda _, frames, lane, to=to: to.append(frames[0])) for to in heard)
        b = net.open("b", receive=lambda *message: b.send(*message))  # noqa: PLW0108 - it is made now
        b.connect("a", NOWHERE)
        for number in (b"1", b"2", b"3"):
            for links, answers in ((first, heard[0]), (second, heard[1])):
                links.connect("b", b.address)
                assert links.send("b", [number], Lane.CONTROL)
                await net.until(lambda answers=answers, number=number: answers[-1:] == [number])
        assert heard == [[b"1", b"2", b"3"]] * 2

    net.run(test())
