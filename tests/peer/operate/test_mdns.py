"""Hints of where peers are: what a core does with them, and what an announcement on this machine's loopback leads to."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from harness import alone

from p2pclust.peer.core.core import Core
from p2pclust.peer.core.effects import Connect, Effect, Send
from p2pclust.peer.core.events import Arrived, Hinted, Woken
from p2pclust.peer.core.messages import Gossip, Ping, Update
from p2pclust.peer.core.timing import PRESETS

TIMING = PRESETS["default"]


def connects(effects: list[Effect]) -> list[Connect]:
    return [effect for effect in effects if isinstance(effect, Connect)]


def until(core: Core, instant: float) -> list[Effect]:
    effects: list[Effect] = []
    while core.wake_at <= instant:
        effects += core.step(core.wake_at, Woken())
    return effects


def heard(core: Core, name: str, status: str, now: float) -> list[Effect]:
    claim = Update(name, status, 1, f"{name}:1", f"store-{name}", "")
    return core.step(now, Arrived("p3" if status == "dead" else name, Gossip((claim,))))


class TestHints:
    def test_a_peer_that_is_not_known_is_tried_and_greeted_until_it_answers(self) -> None:
        core = alone(fleet=3, timing=TIMING)
        effects = core.step(0.0, Hinted("p2", "10.0.0.2:7000"))
        assert connects(effects) == [Connect("p2", "10.0.0.2:7000")]
        assert core.membership.status("p2") == "unknown", "a hint proves nothing"
        assert core.membership.members["p2"].address == ""
        greeted = [e for e in until(core, 3.0) if isinstance(e, Send) and isinstance(e.message, Ping)]
        assert len(greeted) >= 2
        assert connects(heard(core, "p2", "alive", 3.0)) == [Connect("p2", "p2:1")], "where it says itself that it is"
        assert core.membership.status("p2") == "alive"

    @pytest.mark.parametrize("name", ["p1", "p9", ""])
    def test_nobody_else_is_tried(self, name: str) -> None:
        core = alone(fleet=3, timing=TIMING)
        assert core.step(0.0, Hinted(name, "10.0.0.2:7000")) == []

    def test_whoever_is_here_stays_where_it_is(self) -> None:
        core = alone(fleet=3, timing=TIMING)
        heard(core, "p2", "alive", 0.0)
        assert connects(core.step(1.0, Hinted("p2", "6.6.6.6:1"))) == []

    def test_a_flood_of_hints_costs_a_few_connections_and_keeps_nobody_from_being_found(self) -> None:
        core = alone(fleet=3, timing=TIMING)
        heard(core, "p2", "alive", 0.0)
        heard(core, "p2", "dead", 1.0)
        tried: list[str] = []
        now, at_true_s, at = 1.0, 0.0, "p2:1"
        while now < 101.0:
            for number in range(5):
                for effect in core.step(now, Hinted("p2", f"6.6.6.{number}:{int(now)}")):
                    if isinstance(effect, Connect):
                        tried.append(effect.address)
                        at = effect.address
            now += 0.5
            for effect in until(core, now):
                if isinstance(effect, Connect) and effect.peer == "p2":
                    at = effect.address
            at_true_s += 0.5 * (at == "p2:1")
        assert 3 <= len(tried) <= 6, "one in each four turns of five seconds"
        assert at_true_s > 60.0, "most of the time it is looked for where it was"


# -- on the network ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.xdist_group("mdns")  # what one of them announces, the other would find
class TestOnThisMachine:
    @pytest.fixture(autouse=True)
    def zeroconf(self) -> None:
        pytest.importorskip("zeroconf", reason="needs zeroconf: pip install 'p2pclust[mdns]'")

    def find(self, *announced: tuple[str, str, str], by: tuple[str, str] = ("a", "f" * 32), want: int) -> Any:
        """The hints that `by` gets of these, as soon as there are so many."""
        from p2pclust.peer.operate.mdns import Discovery

        async def live() -> Any:
            hints: dict[tuple[str, str], None] = {}
            enough = asyncio.Event()

            def hint(name: str, address: str) -> None:
                hints[name, address] = None
                if len(hints) >= want:
                    enough.set()

            finder = Discovery(by[0], by[1], "127.0.0.1:7001", hint)
            others = [Discovery(name, fleet, address, lambda *told: None) for name, fleet, address in announced]
            try:
                for discovery in (*others, finder):
                    try:
                        await discovery.start()
                    except OSError as error:
                        pytest.skip(
                            f"no multicast on the loopback interface here ({error}): ip link set lo multicast on"
                        )
                async with asyncio.timeout(60):
                    await enough.wait()
            finally:
                for discovery in (finder, *others):
                    await discovery.close()
            return sorted(hints)

        return asyncio.run(live())

    def test_peers_of_one_fleet_find_each_other_and_not_those_of_another(self) -> None:
        ours, theirs = "f" * 32, "0" * 32
        found = self.find(
            ("x", theirs, "127.0.0.1:7009"), ("b", ours, "127.0.0.1:7002"), ("c", ours, "127.0.0.1:7003"), want=2
        )  # fmt: skip
        assert found == [("b", "127.0.0.1:7002"), ("c", "127.0.0.1:7003")]

    def test_a_hostile_announcement_in_our_fleet_s_name_is_a_hint_like_any_other(self) -> None:
        found = self.find(("b", "f" * 32, "127.0.0.1:7002"), ("b", "f" * 32, "127.0.0.1:6666"), want=2)
        assert found == [("b", "127.0.0.1:6666"), ("b", "127.0.0.1:7002")], "which of them is b, its key will tell"
