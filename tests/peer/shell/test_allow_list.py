"""The roster in force at one peer: what it verifies, whom the calendar shuts out, and what it says about strangers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.throwaway import throwaway_fleet

from p2pclust.errors import FleetError, UsageError
from p2pclust.peer.core.effects import CheckRoster, Effect, Send, SendRoster, TakeRoster
from p2pclust.peer.core.enrolment import rows_in_force
from p2pclust.peer.core.events import Event, Expired, RosterRead
from p2pclust.peer.core.messages import RosterCopy
from p2pclust.peer.shell.allow_list import AllowList, begin
from p2pclust.peer.shell.store import Store
from p2pclust.transport.bundle import Bundle, load_bundle
from p2pclust.transport.keys import add_devices, init_fleet, load_public_roster, revoke, rotate
from p2pclust.transport.roster import OPERATOR, Roster, RosterPeer, fingerprint

DAY = 86400.0


class Host:
    """A shell in the test's hand: it remembers events, takes every newer roster, and follows rosters."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.effects: list[Effect] = []
        self.error: BaseException | None = None
        self.rosters: list[Roster] = []
        self.allow_list: AllowList
        self.performer = self

    def step(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, RosterRead) and event.valid and event.serial > self.allow_list.roster.serial:
            self.allow_list.perform(TakeRoster(event.data))

    def perform(self, effect: Effect) -> None:
        self.effects.append(effect)

    def failed(self, error: BaseException) -> None:
        self.error = error

    def set_roster(self, roster: Roster) -> None:
        self.rosters.append(roster)


class Fleet:
    """A fleet's directory, and the allow-list of its peer a."""

    def __init__(self, home: Path, expires: str = "") -> None:
        self.home = home
        init_fleet(home)
        add_devices(home, ["a", "b"])
        add_devices(home, ["c"], expires=expires)
        add_devices(home, ["desk"], role="operator")
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.now = 0.0

    @property
    def bundle(self) -> Bundle:
        return load_bundle(self.home / "a.bundle")

    @property
    def roster(self) -> Roster:
        return load_public_roster(self.home)

    def watch(self, verb: str, fields: Mapping[str, Any]) -> None:
        self.told.append((verb, dict(fields)))

    def said(self, verb: str) -> list[dict[str, Any]]:
        return [fields for told, fields in self.told if told == verb]

    def run(self, test: Callable[[Host, AllowList], Coroutine[Any, Any, None]]) -> None:
        async def go() -> None:
            loop = asyncio.get_running_loop()
            host = Host()
            host.allow_list = AllowList(self.bundle, self.roster, self.watch, loop, lambda: self.now)
            host.allow_list.follow(host, host.set_roster)  # type: ignore[arg-type]
            try:
                async with asyncio.timeout(60):
                    await test(host, host.allow_list)
            finally:
                host.allow_list.close()

        asyncio.run(go())


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path / "fleet", "2097-01-31")


LAST = RosterPeer("c", b"", b"", expires="2097-01-31").expires_at


def test_operators_and_peers_are_told_apart(fleet: Fleet) -> None:
    async def test(host: Host, allow_list: AllowList) -> None:
        assert allow_list.admitted.names == ("a", "b", "c")
        assert [peer.name for peer in allow_list.admitted.peers if peer.role == OPERATOR] == ["desk"]
        assert sorted(allow_list.keys) == ["a", "b", "c"]
        key = allow_list.admitted.curve_key("desk")
        assert key is not None
        assert allow_list.admitted.name_of(key) is None
        allow_list.stranger(key)
        assert fleet.said("refused-operator") == [
            {"member": "desk", "key": fingerprint(key), "hint": "operators ask at the control address"}
        ]

    fleet.run(test)


def test_what_a_peer_sends_is_verified_before_the_core_sees_it(fleet: Fleet) -> None:
    async def test(host: Host, allow_list: AllowList) -> None:
        revoke(fleet.home, ["b"])
        data = (fleet.home / "roster.json").read_bytes()
        stranger, _ = throwaway_fleet(["a", "b", "x"])
        forged = data.replace(b'"serial": 4', b'"serial": 9')
        for sent in (stranger.to_bytes(), forged, b"{}", b"", b"\xff", b"[" * 5000):
            allow_list.perform(CheckRoster("b", sent))
        await asyncio.sleep(0)
        assert [event.valid for event in host.events] == [False] * 6  # type: ignore[attr-defined]
        assert all(event.reason for event in host.events)  # type: ignore[attr-defined]
        assert allow_list.roster.serial == 3
        allow_list.perform(CheckRoster("b", data))
        await asyncio.sleep(0)
        event = host.events[-1]
        assert isinstance(event, RosterRead)
        assert (event.valid, event.serial, sorted(event.peers)) == (True, 4, ["a", "c"])
        assert host.rosters[-1].names == ("a", "c")

    fleet.run(test)


def test_the_roster_that_the_core_takes_is_the_one_in_force(fleet: Fleet) -> None:
    """Of two copies that came in a row, the one that was read last was taken, in place of the one that the core took."""

    async def test(host: Host, allow_list: AllowList) -> None:
        add_devices(fleet.home, ["d"])
        older = fleet.roster.to_bytes()
        rotate(fleet.home, "c")
        newer = fleet.roster.to_bytes()
        for data in (newer, older):
            allow_list.perform(CheckRoster("b", data))
        allow_list.perform(TakeRoster(newer))
        assert allow_list.roster.to_bytes() == newer

    fleet.run(test)


def test_a_copy_is_cut_into_frames(fleet: Fleet) -> None:
    async def test(host: Host, allow_list: AllowList) -> None:
        allow_list.perform(SendRoster("b"))
        (effect,) = host.effects
        assert isinstance(effect, Send)
        assert isinstance(effect.message, RosterCopy)
        assert effect.bulk
        assert b"".join(effect.message.parts) == fleet.roster.to_bytes()

    fleet.run(test)


def test_who_was_revoked_is_named_when_it_knocks(fleet: Fleet) -> None:
    async def test(host: Host, allow_list: AllowList) -> None:
        key = allow_list.roster.curve_key("b")
        assert key is not None
        revoke(fleet.home, ["b"])
        assert allow_list.take((fleet.home / "roster.json").read_bytes())
        assert fleet.said("revoked") == [{"member": "b", "key": fingerprint(key)}]
        for _ in range(3):
            allow_list.stranger(key)
            allow_list.stranger(b"0" * 40)
        assert fleet.said("refused-revoked") == [{"member": "b", "key": fingerprint(key)}]
        assert list(allow_list.outdated) == ["b"]
        assert [fields["print"] for fields in fleet.said("refused-stranger")] == [fingerprint(b"0" * 40)]

    fleet.run(test)


def test_who_knocks_with_its_keys_of_before_is_known_until_the_next_roster(fleet: Fleet) -> None:
    async def test(host: Host, allow_list: AllowList) -> None:
        key = allow_list.roster.curve_key("b")
        assert key is not None
        rotate(fleet.home, ["b"])
        assert allow_list.take((fleet.home / "roster.json").read_bytes())
        assert not allow_list.outdated
        allow_list.stranger(key)
        assert list(allow_list.outdated) == ["b"]
        add_devices(fleet.home, ["d"])
        assert allow_list.take((fleet.home / "roster.json").read_bytes())
        assert not allow_list.outdated, "it may have its new keys by now"

    fleet.run(test)


def test_no_more_strangers_are_named_than_a_log_can_bear(fleet: Fleet) -> None:
    async def test(host: Host, allow_list: AllowList) -> None:
        for number in range(1000):
            allow_list.stranger(b"%040d" % number)
        assert len(fleet.told) == 100

    fleet.run(test)


def test_a_key_is_good_until_its_last_day_is_over(fleet: Fleet) -> None:
    fleet.now = LAST - 1.0

    async def test(host: Host, allow_list: AllowList) -> None:
        assert "c" in allow_list.admitted.names
        key = allow_list.roster.curve_key("c")
        assert key is not None
        fleet.now = LAST
        allow_list._look()
        assert host.events == [Expired(("c",))]
        assert host.rosters[-1].names == ("a", "b")
        allow_list.stranger(key)
        assert fleet.said("refused-expired") == [{"member": "c", "key": fingerprint(key), "last_day": "2097-01-31"}]
        assert host.error is None

    fleet.run(test)


@pytest.mark.parametrize(("days_before", "warned"), [(15.0, False), (13.9, True), (0.1, True)])
def test_it_warns_in_time_and_once_a_day(fleet: Fleet, days_before: float, warned: bool) -> None:
    fleet.now = LAST - days_before * DAY

    async def test(host: Host, allow_list: AllowList) -> None:
        for _ in range(3):
            allow_list._look()
        assert len(fleet.said("expires-soon")) == warned
        if warned:
            assert fleet.said("expires-soon")[0]["member"] == "c"

    fleet.run(test)


def test_whoever_was_expired_at_the_start_is_not_admitted(fleet: Fleet) -> None:
    fleet.now = LAST + 1.0

    async def test(host: Host, allow_list: AllowList) -> None:
        assert "c" not in allow_list.admitted.names
        assert "c" not in allow_list.keys

    fleet.run(test)


def test_a_peer_that_is_revoked_or_renewed_itself_ends(fleet: Fleet) -> None:
    async def test(host: Host, allow_list: AllowList) -> None:
        rotate(fleet.home, ["a"])
        assert allow_list.take((fleet.home / "roster.json").read_bytes())
        assert isinstance(host.error, FleetError)
        assert "a has new keys since fleet roster 4" in str(host.error)
        revoke(fleet.home, ["a"])
        assert allow_list.take((fleet.home / "roster.json").read_bytes())
        assert "a was revoked" in str(host.error)

    fleet.run(test)


def test_files_are_read_again(fleet: Fleet) -> None:
    bundle, file = fleet.home / "b.bundle", fleet.home / "roster.json"

    async def test(host: Host, allow_list: AllowList) -> None:
        allow_list.read_again(bundle, file)
        assert fleet.told == [("roster-unchanged", {"serial": 3})]
        allow_list.read_again(bundle, None)
        assert "no roster file is configured" in fleet.told.pop()[1]["hint"]
        add_devices(fleet.home, ["d"])
        allow_list.read_again(bundle, file)
        assert allow_list.roster.serial == 4
        file.write_text("{}")
        allow_list.read_again(bundle, file)
        assert allow_list.roster.serial == 4
        ((_, fields),) = fleet.told[1:]
        assert fields["peer"] == "this device"
        with pytest.raises(UsageError, match="not a roster of this fleet"):
            allow_list.take(b"{}")

    fleet.run(test)


class TestBegin:
    """Which roster a life begins with."""

    def config(self, fleet: Fleet) -> dict[str, str]:
        return {"bundle": str(fleet.home / "a.bundle"), "roster": ""}

    def test_the_newest_of_bundle_file_and_store(self, fleet: Fleet, tmp_path: Path) -> None:
        async def serial(**more: str) -> int:
            return begin(self.config(fleet) | more, store, fleet.watch)[1].roster.serial

        store = Store(tmp_path / "state")
        assert asyncio.run(serial()) == 1  # the bundle's own
        assert asyncio.run(serial(roster=str(fleet.home / "roster.json"))) == 3
        assert asyncio.run(serial()) == 3  # it was kept
        store.close()

    def test_another_fleets_roster_in_the_store_binds_nobody(self, fleet: Fleet, tmp_path: Path) -> None:
        other, _ = throwaway_fleet(["x"] + [f"y{number}" for number in range(9)])
        store = Store(tmp_path / "state")
        store.write(rows_in_force(other.to_bytes(), None))

        async def names() -> tuple[str, ...]:
            return begin(self.config(fleet), store, fleet.watch)[1].roster.names

        assert asyncio.run(names()) == ("a", "b")
        store.close()

    def test_who_is_on_it_no_more_does_not_start(self, fleet: Fleet, tmp_path: Path) -> None:
        secret = (fleet.home / "a.bundle").read_bytes()
        revoke(fleet.home, ["a"])
        (tmp_path / "a.bundle").write_bytes(secret)
        (tmp_path / "a.bundle").chmod(0o600)
        store = Store(tmp_path / "state")
        store.write(rows_in_force((fleet.home / "roster.json").read_bytes(), None))

        async def start() -> None:
            begin({"bundle": str(tmp_path / "a.bundle")}, store, fleet.watch)

        with pytest.raises(FleetError, match="a was revoked: it is not on fleet roster 4") as caught:
            asyncio.run(start())
        assert caught.value.exit_code == 3
        store.close()

    def test_an_operator_is_no_peer(self, fleet: Fleet, tmp_path: Path) -> None:
        store = Store(tmp_path / "state")

        async def start() -> None:
            begin({"bundle": str(fleet.home / "desk.bundle")}, store, fleet.watch)

        with pytest.raises(FleetError, match="desk is enrolled as operator: it can ask peers, but cannot be one"):
            asyncio.run(start())
        store.close()
