"""Virtual time: order, lives, freezing, and what a crash in the middle of a list of effects takes with it."""

from __future__ import annotations

import msgpack
import numpy as np
import pytest

from p2pclust.lab.simulation.world.network import Conditions, Network
from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.lab.simulation.world.world import Observer, World
from p2pclust.peer.core.effects import CheckLink, Effect, Persist, Send
from p2pclust.peer.core.events import Arrived, Event, Submit
from p2pclust.peer.core.messages import BlobMissing
from p2pclust.peer.core.reports import Report
from p2pclust.peer.core.timing import Limits, preset
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.local import Local

WORD = BlobMissing(b"w" * 32)


class Diary(Observer):
    """Remembers when each peer took a step, and its lives and reports."""

    def __init__(self) -> None:
        self.steps: list[tuple[float, str]] = []
        self.lives: list[tuple[str, str]] = []
        self.reports: list[tuple[float, str, Report]] = []

    def stepped(self, world: World, peer: Peer) -> None:
        self.steps.append((world.now, peer.name))

    def started(self, world: World, peer: Peer) -> None:
        self.lives.append(("start", peer.name))

    def crashed(self, world: World, peer: Peer, lost_writes: int) -> None:
        self.lives.append(("crash", peer.name))

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        if isinstance(effect, Report):
            self.reports.append((world.now, peer.name, effect))

    def verbs(self, verb: str) -> list[tuple[float, str, Report]]:
        return [item for item in self.reports if item[2].verb == verb]


@pytest.fixture
def diary() -> Diary:
    return Diary()


@pytest.fixture
def world(diary: Diary) -> World:
    rng = np.random.default_rng(0)
    locals_ = {name: Local(rng.normal(size=(8, 2))) for name in ("a", "b", "c")}
    network = Network(Conditions(), np.random.default_rng(1))
    return World(locals_, network, preset("fast"), Limits(), np.random.default_rng(2), (diary,))


def all_linked(world: World) -> bool:
    return all(p.core is not None and len(p.core.membership.alive()) == 3 for p in world.peers.values())


def start(world: World) -> None:
    for name in world.peers:
        world.start(name)
    assert world.run_until(10.0, lambda: all_linked(world))


def submit(world: World, name: str = "a") -> None:
    job = cluster_job("llf-cm", n_clusters=2, tol=0.0, max_rounds=3, suppress_singletons=False)
    world.step(world.peers[name], Submit(msgpack.packb(job.to_dict())))


class TestTime:
    def test_equal_instants_happen_in_the_order_in_which_they_were_planned(self, world: World) -> None:
        happened: list[int] = []
        for number in (3, 1, 2):
            world.at(1.0, lambda number=number: happened.append(number))  # type: ignore[misc]
        world.at(0.5, lambda: happened.append(0))
        world.run_until(2.0)
        assert happened == [0, 3, 1, 2]
        assert world.now == 2.0

    def test_what_is_planned_for_later_waits(self, world: World) -> None:
        happened: list[float] = []
        world.at(1.5, lambda: happened.append(world.now))
        world.run_until(1.0)
        assert (world.now, happened) == (1.0, [])
        world.run_until(1.5)
        assert happened == [1.5]

    def test_a_condition_stops_time_at_the_event_that_made_it_true(self, world: World) -> None:
        happened: list[int] = []
        world.at(1.0, lambda: happened.append(1))
        world.at(1.0, lambda: happened.append(2))
        assert world.run_until(9.0, lambda: bool(happened))
        assert (world.now, happened) == (1.0, [1])
        assert not world.run_until(3.0, lambda: False)


class TestFreezing:
    def test_a_frozen_peer_notices_nothing_and_then_everything(self, world: World, diary: Diary) -> None:
        start(world)
        began = world.now
        world.freeze("b", 3.0)
        sent_before = world.peers["b"].counters["messages_sent"]
        world.run_until(began + 2.999)
        assert not [t for t, name in diary.steps if name == "b" and t > began]
        assert world.peers["b"].counters["messages_sent"] == sent_before
        assert [t for t, name in diary.steps if name == "a" and t > began], "the others live on"
        world.run_until(began + 3.0)
        assert [t for t, name in diary.steps if name == "b" and t > began] != []
        assert world.run_until(began + 20.0, lambda: all_linked(world))

    def test_two_freezes_last_as_long_as_the_longer(self, world: World) -> None:
        start(world)
        now = world.now
        world.freeze("b", 3.0)
        world.freeze("b", 1.0)
        assert world.peers["b"].frozen_until == now + 3.0

    def test_a_restart_thaws_and_forgets_what_waited(self, world: World, diary: Diary) -> None:
        start(world)
        world.freeze("b", 50.0)
        world.run_until(world.now + 1.0)
        world.crash("b")
        world.start("b")
        restarted = world.now
        assert world.peers["b"].frozen_until == 0.0
        assert world.run_until(restarted + 10.0, lambda: all_linked(world))


class TestLives:
    def test_a_peer_that_is_down_hears_nothing_and_refuses_connections(self, world: World, diary: Diary) -> None:
        start(world)
        world.crash("c")
        received = world.peers["c"].counters["messages_received"]
        assert world.run_until(
            world.now + 10.0, lambda: "c" not in world.peers["a"].core.membership.alive()  # type: ignore[union-attr]
        )  # fmt: skip
        assert world.peers["c"].counters["messages_received"] == received
        assert diary.lives[-1] == ("crash", "c")

    def test_a_restart_goes_on_from_the_disk_with_a_higher_incarnation(self, world: World) -> None:
        start(world)
        for expected in (1, 2, 3):
            assert world.peers["c"].disk.load().incarnation == expected
            world.crash("c")
            world.start("c")
        assert world.peers["c"].life == 4

    def test_starting_or_crashing_twice_changes_nothing(self, world: World, diary: Diary) -> None:
        start(world)
        world.start("c")
        world.crash("c")
        world.crash("c")
        assert diary.lives[-2:] == [("start", "c"), ("crash", "c")]

    def test_a_wiped_store_has_another_id(self, world: World) -> None:
        start(world)
        world.crash("c")
        before = world.peers["c"].disk.store_id
        world.wipe("c")
        assert world.peers["c"].disk.store_id != before
        assert world.peers["c"].disk.load().incarnation == 0
        assert world.peers["c"].wiped

    def test_the_store_of_a_peer_that_runs_cannot_be_wiped(self, world: World) -> None:
        start(world)
        with pytest.raises(AssertionError, match="c runs"):
            world.wipe("c")


class TestCrashPoints:
    def test_what_comes_after_the_crash_in_a_list_of_effects_never_happens(self, world: World, diary: Diary) -> None:
        start(world)
        seen: list[Effect] = []

        def at_first_send_of_the_job(peer: Peer, effect: Effect) -> bool:
            if peer.name == "a":
                seen.append(effect)
            return peer.name == "a" and isinstance(effect, Report) and effect.verb == "job"

        world.crash_point = at_first_send_of_the_job
        submit(world)
        assert world.peers["a"].core is None
        assert isinstance(seen[-1], Report)
        assert not [effect for effect in seen if isinstance(effect, Send)], "nobody heard of it"
        assert not diary.verbs("job")

    def test_a_row_that_was_written_but_not_synced_is_lost(self, world: World) -> None:
        start(world)
        written: list[Persist] = []

        def right_after_the_row(peer: Peer, effect: Effect) -> bool:
            if peer.name == "a" and written:
                return True
            if isinstance(effect, Persist) and effect.table == "job":
                written.append(effect)
            return False

        world.crash_point = right_after_the_row
        submit(world)
        assert len(written) == 1
        assert world.peers["a"].disk.read_synced("job", written[0].key) is None

    def test_a_job_runs_to_its_end(self, world: World, diary: Diary) -> None:
        start(world)
        submit(world)
        assert world.run_until(world.now + 20.0, lambda: len(diary.verbs("finished")) == 3)
        digests = {item[2].fields["digest"] for item in diary.verbs("finished")}
        assert len(digests) == 1


def test_the_trace_tells_two_worlds_apart() -> None:
    def trace(seed: int) -> str:
        locals_ = {name: Local(np.zeros((2, 1))) for name in ("a", "b", "c")}
        network = Network(Conditions(), np.random.default_rng(seed))
        world = World(locals_, network, preset("fast"), Limits(), np.random.default_rng(0))
        for name in world.peers:
            world.start(name)
        world.run_until(2.0)
        return world.trace

    assert trace(1) == trace(1)
    assert trace(1) != trace(2)


class TestLinks:
    """The line a - b - c, whose links may vanish."""

    @pytest.fixture
    def line(self, diary: Diary) -> World:
        rng = np.random.default_rng(0)
        locals_ = {name: Local(rng.normal(size=(8, 2))) for name in ("a", "b", "c")}
        overlay = {"a": ("b",), "b": ("a", "c"), "c": ("b",)}
        network = Network(Conditions(delay_s=(0.1, 0.1)), np.random.default_rng(1))
        world = World(locals_, network, preset("fast"), Limits(), np.random.default_rng(2), (diary,), overlay=overlay)
        start(world)
        return world

    @staticmethod
    def say(world: World, source: str, target: str) -> None:
        world.peers[source].performer.perform(Send(target, WORD))

    @pytest.fixture
    def heard(self, line: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Who heard the word."""
        found: list[str] = []
        step = line.step

        def listening(peer: Peer, event: Event) -> None:
            if isinstance(event, Arrived) and event.message == WORD:
                found.append(peer.name)
            step(peer, event)

        monkeypatch.setattr(line, "step", listening)
        return found

    def test_both_ends_know_at_once_and_the_other_does_not(self, line: World, diary: Diary) -> None:
        before, diary.steps = line.now, []
        assert line.relink("b", "a", up=False)
        assert diary.steps == [(before, "a"), (before, "b")]
        assert (line.overlay.linked("a", "b"), line.overlay.neighbours("b")) == (False, ("c",))
        assert not line.relink("a", "b", up=False), "it is gone already"

    def test_what_is_under_way_is_lost_even_if_the_link_comes_back(self, line: World, heard: list[str]) -> None:
        self.say(line, "a", "b")
        self.say(line, "b", "c")
        line.relink("a", "b", up=False)
        line.relink("a", "b", up=True)
        line.run_until(line.now + 0.5)
        assert heard == ["c"]

    def test_nobody_sends_over_a_link_of_which_it_was_told_that_it_is_gone(self, line: World) -> None:
        line.relink("a", "b", up=False)
        with pytest.raises(AssertionError, match="a sends to b, to which it has no link"):
            self.say(line, "a", "b")

    def test_who_was_paused_is_told_afterwards_in_order_and_until_then_speaks_to_nobody(
        self, line: World, heard: list[str]
    ) -> None:
        line.freeze("a", 1.0)
        line.relink("a", "b", up=False)
        line.relink("a", "c", up=True)
        line.run_until(line.now + 0.5)
        line.freeze("a", 1.0)
        line.relink("a", "c", up=False)
        line.relink("a", "b", up=True)
        line.relink("a", "b", up=False)
        self.say(line, "a", "b")
        assert list(line.peers["a"].links) == ["b"]
        line.run_until(line.now + 1.5)
        assert list(line.peers["a"].links) == []
        core = line.peers["a"].core
        assert core is not None
        assert not core.routing.linked("b")
        assert heard == []

    def test_a_new_life_finds_the_links_that_there_are(self, line: World) -> None:
        line.crash("a")
        line.relink("a", "b", up=False)
        line.relink("a", "c", up=True)
        line.start("a")
        core = line.peers["a"].core
        assert core is not None
        assert (core.routing.linked("b"), core.routing.linked("c")) == (False, True)
        assert line.run_until(line.now + 10, lambda: all_linked(line))

    def test_a_port_behind_a_link_that_is_gone_refuses_nothing(self, line: World, diary: Diary) -> None:
        line.crash("a")
        line.peers["b"].performer.perform(CheckLink("a"))
        line.relink("a", "b", up=False)
        line.run_until(line.now + 0.5)
        core = line.peers["b"].core
        assert core is not None
        assert core.membership.status("a") == "alive"

    def test_who_goes_on_before_its_pause_ends_hears_what_it_missed(self, line: World) -> None:
        line.freeze("a", 1e6)
        line.relink("a", "b", up=False)
        line.thaw("a")
        assert list(line.peers["a"].links) == []
