"""The shell decides nothing: it performs effects in order, feeds back what happens, and ends loudly."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.throwaway import throwaway_fleet

from p2pclust.errors import FleetError
from p2pclust.lab.testbed.peer.conditions import PlannedFault, PlannedFaults
from p2pclust.lab.testbed.processes.children import write_fleet
from p2pclust.peer.core.codec import decode, encode
from p2pclust.peer.core.effects import (
    CheckLink,
    Compute,
    Connect,
    DropBlob,
    Effect,
    Persist,
    Send,
    SendChunk,
    StoreChunk,
)  # fmt: skip
from p2pclust.peer.core.events import Arrived, Computed, Event, Leave, LinkChecked, Started, Woken
from p2pclust.peer.core.job_messages import Heartbeat
from p2pclust.peer.core.messages import BlobChunk, BlobMissing, Message, Relay
from p2pclust.peer.core.reports import JobFinished, Refuted
from p2pclust.peer.core.round_reports import Deposed, Elected, PhaseBegun, WaitsForMajority
from p2pclust.peer.core.tasks import BeginJob, NoResult, TermToken
from p2pclust.peer.shell.shell import Shell, explain
from p2pclust.peer.shell.store import Store
from p2pclust.transport.links import Counters, Lane

BEAT = Heartbeat("j", 1, 2)
INFINITY = float("inf")


@dataclass
class Identity:
    name: str = "me"


@dataclass
class ScriptedCore:
    """Answers each event with the effects that a test prepared for its kind."""

    answers: dict[type[Event], list[Effect] | Exception] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    identity: Identity = field(default_factory=Identity)
    wake_at: float = INFINITY

    def step(self, now: float, event: Event) -> list[Effect]:
        self.events.append(event)
        answer = self.answers.get(type(event), [])
        if isinstance(answer, Exception):
            raise answer
        return answer


@dataclass
class FakeLinks:
    diary: list[Any]
    counters: Counters = field(default_factory=Counters)
    refuses: bool = True

    def send(self, peer: str, frames: Sequence[bytes], lane: Lane) -> bool:
        self.diary.append(("send", peer, decode(frames), lane))
        return True

    def connect(self, peer: str, address: str) -> None:
        self.diary.append(("connect", peer, address))

    async def refused(self, peer: str, timeout_s: float) -> bool:
        return self.refuses


@dataclass
class FakeWorker:
    diary: list[Any]

    def submit(self, effect: Compute) -> None:
        self.diary.append(("compute", effect.token))


class SpyStore(Store):
    diary: list[Any]

    def write(self, rows: Any, *, sync: bool = True) -> None:
        rows = list(rows)
        if hasattr(self, "diary"):
            self.diary.append(("write", [(table, key) for table, key, _ in rows]))
        super().write(rows)


class FakeSigner:
    def sign(self, target: str, frames: Sequence[bytes]) -> bytes:
        return b"good"

    def valid(self, relay: Relay) -> bool:
        return relay.signature == b"good"

    signs_facts = False


class Bench:
    """A shell with everything around it in a test's hand."""

    def __init__(self, home: Path, faults: tuple[PlannedFault, ...] = ()) -> None:
        self.diary: list[Any] = []
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.core = ScriptedCore()
        self.store = SpyStore(home)
        self.store.diary = self.diary
        self.links = FakeLinks(self.diary)
        allow_list = SimpleNamespace(close=lambda: None, perform=lambda effect: None)
        self.shell = Shell(self.core, self.store, FakeSigner(), self._watch, allow_list)  # type: ignore[arg-type]
        self.shell.listen(PlannedFaults("me", faults, self._watch, lambda fault: None).take)

    def _watch(self, verb: str, fields: Mapping[str, Any]) -> None:
        self.told.append((verb, dict(fields)))

    def start(self, *effects: Effect) -> None:
        self.core.answers[Started] = list(effects)
        self.shell.start(self.links, FakeWorker(self.diary))  # type: ignore[arg-type]

    def hear(self, message: Message, source: str = "other") -> None:
        self.shell.receive(source, encode(message), Lane.CONTROL)

    @property
    def error(self) -> BaseException | None:
        assert self.shell.ended.done()
        return self.shell.ended.result()


Test = Callable[[Bench], Coroutine[Any, Any, None]]


@pytest.fixture
def bench(tmp_path: Path) -> Callable[..., None]:
    """Run a coroutine over a bench inside an event loop."""

    def run(test: Test, *faults: PlannedFault) -> None:
        async def live() -> None:
            bench = Bench(tmp_path / "state", faults)
            try:
                async with asyncio.timeout(60):
                    await test(bench)
            finally:
                bench.shell.close()
                bench.store.close()

        asyncio.run(live())

    return run


Run = Callable[..., None]
BEGIN = TermToken("j", "begin", 1)


class TestEffects:
    def test_are_performed_in_their_order_and_rows_are_synced_before_what_follows_them(self, bench: Run) -> None:
        async def test(b: Bench) -> None:
            b.start(
                Persist("ballot", "j", b"1"), Persist("register", "j", b"2"), Send("other", BEAT), Connect("other", "h:1"),
                Persist("job", "j", b"3"), Compute(BEGIN, BeginJob(b"", 1)), Persist("self", "incarnation", b"4"),
            )  # fmt: skip
            assert b.diary == [
                ("write", [("ballot", "j"), ("register", "j")]), ("send", "other", BEAT, Lane.CONTROL),
                ("connect", "other", "h:1"), ("write", [("job", "j")]), ("compute", BEGIN),
                ("write", [("self", "incarnation")]),
            ]  # fmt: skip
            assert b.store.load().incarnation == 4

        bench(test)

    def test_bulk_takes_its_own_lane(self, bench: Run) -> None:
        async def test(b: Bench) -> None:
            b.start(Send("other", BEAT, bulk=True))
            assert b.diary == [("send", "other", BEAT, Lane.BULK)]

        bench(test)

    def test_a_detour_is_signed_and_given_to_every_relay(self, bench: Run) -> None:
        async def test(b: Bench) -> None:
            b.start(Send("far", BEAT, via=("x", "y")))
            relay = Relay("me", "far", b"good", tuple(encode(BEAT)))
            assert b.diary == [("send", "x", relay, Lane.CONTROL), ("send", "y", relay, Lane.CONTROL)]

        bench(test)

    def test_chunks_are_stored_sent_missed_and_dropped(self, bench: Run) -> None:
        digest = b"d" * 32

        async def test(b: Bench) -> None:
            b.start(StoreChunk(digest, 0, 1, b"abc"), SendChunk("other", digest, 0), SendChunk("other", digest, 1))
            assert b.diary == [
                ("send", "other", BlobChunk(digest, 0, (b"abc",)), Lane.BULK),
                ("send", "other", BlobMissing(digest), Lane.CONTROL),
            ]
            b.core.answers[Leave] = [DropBlob(digest)]
            b.shell.leave()
            assert b.store.blobs.chunk(digest, 0) is None

        bench(test)

    @pytest.mark.parametrize("refuses", [True, False])
    def test_a_link_is_checked_and_the_answer_fed_back(self, bench: Run, refuses: bool) -> None:
        async def test(b: Bench) -> None:
            b.links.refuses = refuses
            answered = asyncio.get_running_loop().create_future()
            b.core.answers[LinkChecked] = [Refuted(1)]
            b.shell.watch = lambda verb, fields: answered.set_result(verb)
            b.start(CheckLink("other"))
            assert await answered == "refuted"
            assert b.core.events == [Started(), LinkChecked("other", refuses)]

        bench(test)

    def test_reports_go_to_whoever_watches(self, bench: Run) -> None:
        async def test(b: Bench) -> None:
            b.start(WaitsForMajority("j", None, 1, 3))
            assert b.told == [("waiting", {"job": "j", "present": 1, "of": 3})]

        bench(test)


class TestTime:
    def test_the_core_is_woken_when_it_asked_to_be(self, bench: Run) -> None:
        async def test(b: Bench) -> None:
            loop = asyncio.get_running_loop()
            woken = loop.create_future()
            b.core.wake_at = asked = loop.time() + 0.05
            b.core.answers[Woken] = [Refuted(1)]

            def watch(verb: str, fields: Mapping[str, Any]) -> None:
                b.core.wake_at = INFINITY
                woken.set_result(loop.time())

            b.shell.watch = watch
            b.start()
            assert await woken >= asked - 0.001
            assert b.core.events == [Started(), Woken()]

        bench(test)

    def test_the_newest_wish_counts(self, bench: Run) -> None:
        async def test(b: Bench) -> None:
            loop = asyncio.get_running_loop()
            b.core.wake_at = loop.time() + 1000
            b.start()
            first = b.shell._wake
            b.core.wake_at = loop.time() + 500
            b.hear(BEAT)
            assert first is not None
            assert first.cancelled()
            assert b.shell._wake is not None
            assert b.shell._wake.when() == b.core.wake_at
            b.core.wake_at = INFINITY
            b.hear(BEAT)
            assert b.shell._wake is None

        bench(test)

    def test_a_later_wish_leaves_the_timer_which_then_wakes_nobody_too_early(self, bench: Run) -> None:
        async def test(b: Bench) -> None:
            loop = asyncio.get_running_loop()
            b.core.wake_at = loop.time() + 1000
            b.start()
            first = b.shell._wake
            b.core.wake_at += 500
            b.hear(BEAT)
            assert b.shell._wake is first
            before = list(b.core.events)
            b.shell._on_wake()
            assert b.core.events == before
            assert b.shell._wake is not None
            assert b.shell._wake.when() == b.core.wake_at

        bench(test)


class TestReceiving:
    def test_a_message_becomes_an_event_with_its_sender(self, bench: Run) -> None:
        async def test(b: Bench) -> None:
            b.start()
            b.hear(BEAT, "somebody")
            assert b.core.events[1:] == [Arrived("somebody", BEAT)]

        bench(test)

    def test_another_major_version_is_said_once_with_both(self, bench: Run) -> None:
        header = b"\x93\x02" + encode(BEAT)[0][2:]

        async def test(b: Bench) -> None:
            b.start()
            for _ in range(3):
                b.shell.receive("other", [header], Lane.CONTROL)
            b.shell.receive("another", [b"\x93\xc3" + header[2:]], Lane.CONTROL)
            assert b.links.counters.dropped == {"malformed": 4}
            assert [(verb, fields["member"], fields["theirs"], fields["ours"]) for verb, fields in b.told] == [
                ("other-version", "other", "2", "1"), ("other-version", "another", "True", "1"),
            ]  # fmt: skip
            assert b.core.events == [Started()]

        bench(test)

    @pytest.mark.parametrize(
        "frames",
        [
            [], [b""], [b"garbage"], [b"\xc1"], [b"\x80"], [b"\x91" * 2000], encode(BEAT) * 2, [*encode(BEAT), b"more"],
            [encode(BEAT)[0][:-1]], [encode(BEAT)[0] + b"\0"], [b"x" * 60_000],
        ],
        ids=range(11),
    )  # fmt: skip
    def test_what_is_malformed_is_counted_and_harmless(self, bench: Run, frames: list[bytes]) -> None:
        async def test(b: Bench) -> None:
            b.start()
            b.shell.receive("other", frames, Lane.CONTROL)
            assert b.links.counters.dropped == {"malformed": 1}
            ((verb, fields),) = b.told
            assert (verb, fields["from"]) == ("malformed", "other")
            assert "\n" not in fields["reason"]
            assert b.core.events == [Started()], "the core never sees it"
            b.hear(BEAT)
            assert b.core.events[1:] == [Arrived("other", BEAT)], "the next one is heard"
            assert not b.shell.ended.done()

        bench(test)

    def test_noise_of_every_kind(self, bench: Run) -> None:
        async def test(b: Bench) -> None:
            rng = np.random.default_rng(0)
            good = encode(Relay("a", "b", b"s", (b"1", b"2")))
            b.start()
            for _ in range(2000):
                frames = [bytearray(frame) for frame in good]
                for frame in frames:
                    for _ in range(int(rng.integers(0, 3))):
                        frame[int(rng.integers(len(frame)))] = int(rng.integers(256))
                b.shell.receive("other", [bytes(frame) for frame in frames], Lane.CONTROL)
            assert not b.shell.ended.done()
            assert b.links.counters.dropped["malformed"] > 500

        bench(test)

    def test_a_message_that_was_carried_here_comes_from_its_origin(self, bench: Run) -> None:
        async def test(b: Bench) -> None:
            b.start()
            b.hear(Relay("far", "me", b"good", tuple(encode(BEAT))), "carrier")
            assert b.core.events[1:] == [Arrived("far", BEAT, via="carrier")]

        bench(test)

    def test_without_a_good_signature_it_is_dropped(self, bench: Run) -> None:
        async def test(b: Bench) -> None:
            b.start()
            b.hear(Relay("far", "me", b"bad", tuple(encode(BEAT))), "carrier")
            assert b.core.events == [Started()]
            assert b.links.counters.dropped == {"malformed": 1}
            assert b.told == [("malformed", {"from": "carrier", "reason": "relayed message without a valid signature"})]

        bench(test)

    def test_a_relay_in_a_relay_is_dropped(self, bench: Run) -> None:
        async def test(b: Bench) -> None:
            b.start()
            inner = Relay("far", "me", b"good", tuple(encode(BEAT)))
            b.hear(Relay("far", "me", b"good", tuple(encode(inner))), "carrier")
            b.hear(Relay("far", "me", b"good", (b"garbage",)), "carrier")
            assert b.core.events == [Started()]
            assert b.links.counters.dropped == {"malformed": 2}

        bench(test)

    def test_what_is_for_another_is_the_cores_affair(self, bench: Run) -> None:
        async def test(b: Bench) -> None:
            b.start()
            relay = Relay("far", "third", b"whatever", tuple(encode(BEAT)))
            b.hear(relay, "carrier")
            assert b.core.events[1:] == [Arrived("carrier", relay)]

        bench(test)

    def test_the_worker_is_heard_too(self, bench: Run) -> None:
        async def test(b: Bench) -> None:
            b.start()
            b.shell.step(Computed(BEGIN, NoResult("gate")))
            assert b.core.events[1:] == [Computed(BEGIN, NoResult("gate"))]

        bench(test)


class TestEnd:
    def test_an_exception_of_the_core_ends_the_peer_at_once(self, bench: Run) -> None:
        async def test(b: Bench) -> None:
            b.start()
            b.core.answers[Arrived] = ValueError("third vote")
            b.hear(BEAT)
            assert isinstance(b.error, ValueError)
            assert explain(b.error) == "bug: ValueError: third vote"
            b.hear(BEAT)
            b.shell.leave()
            assert len(b.core.events) == 2, "it does not limp on"

        bench(test)

    def test_what_comes_after_a_row_that_could_not_be_written_never_happens(
        self, bench: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def test(b: Bench) -> None:
            def full(rows: object, *, sync: bool) -> None:
                raise FleetError("the disk is full; free some space, then start the peer again")

            monkeypatch.setattr(b.store, "write", full)
            b.start(Persist("ballot", "j", b"1"), Send("other", BEAT))
            assert b.diary == [], "no message reveals what is not on disk"
            assert b.error is not None
            assert explain(b.error) == "the disk is full; free some space, then start the peer again"

        bench(test)

    def test_an_effect_that_it_does_not_know(self, bench: Run) -> None:
        async def test(b: Bench) -> None:
            b.start(Effect())
            assert isinstance(b.error, AssertionError)

        bench(test)

    def test_a_task_that_failed(self, bench: Run) -> None:
        async def test(b: Bench) -> None:
            b.start()
            b.shell.failed(ZeroDivisionError("bad"))
            b.shell.failed(KeyError("later"))
            assert isinstance(b.error, ZeroDivisionError)

        bench(test)

    def test_leaving_says_good_bye_first_and_only_once(self, bench: Run) -> None:
        async def test(b: Bench) -> None:
            b.start()
            b.core.answers[Leave] = [Send("other", BEAT)]
            b.shell.leave()
            b.shell.leave()
            assert b.error is None
            assert b.diary == [("send", "other", BEAT, Lane.CONTROL)]
            assert b.core.events == [Started(), Leave()]

        bench(test)


class TestPlannedFaults:
    """What strikes is a signal to the own process; here it is only noted."""

    @pytest.fixture
    def kills(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        kills: list[int] = []
        monkeypatch.setattr(
            "p2pclust.lab.testbed.peer.conditions.os.kill", lambda pid, number: kills.append(int(number))
        )
        return kills

    @staticmethod
    def phase(name: str, round_: int) -> PhaseBegun:
        return PhaseBegun("j", None, name, 1, round_)

    def test_the_aggregator_is_struck_once_in_the_middle_of_its_effects(
        self, bench: Run, kills: list[int], tmp_path: Path
    ) -> None:
        async def test(b: Bench) -> None:
            b.start(self.phase("opening", 5))
            assert kills == [], "not the aggregator"
            b.core.answers[Arrived] = [
                Elected("j", None, 1, 0, 2, 3), self.phase("opening", 2), self.phase("combining", 4),
                self.phase("opening", 4), self.phase("opening", 5),
            ]  # fmt: skip
            b.hear(BEAT)
            assert kills == [9]
            assert ("fault", {"number": 0, "do": "kill", "phase": "opening", "planned": 3, "round": 4}) in b.told
            assert [verb for verb, _ in b.told].index("fault") == len(b.told) - 2, "at round 4, before round 5"

        bench(test, PlannedFault(0, "kill", 3, "opening", (), str(tmp_path / "claim")))

    def test_whoever_aggregates_no_more_is_not_struck(self, bench: Run, kills: list[int], tmp_path: Path) -> None:
        async def test(b: Bench) -> None:
            elected, over = Elected("j", None, 1, 0, 2, 3), JobFinished("j", None, 1, 5, "")
            b.start(elected, Deposed("j", None, 1), self.phase("adopting", 5))
            b.core.answers[Arrived] = [elected, over, self.phase("adopting", 5)]
            b.hear(BEAT)
            assert kills == []

        bench(test, PlannedFault(0, "kill", 3, "adopting", (), str(tmp_path / "claim")))

    def test_a_fault_that_another_claimed_is_over(self, bench: Run, kills: list[int], tmp_path: Path) -> None:
        (tmp_path / "claim").touch()

        async def test(b: Bench) -> None:
            b.start(self.phase("adopting", 5))
            assert kills == []

        bench(test, PlannedFault(0, "pause", 3, "adopting", ("me",), str(tmp_path / "claim")))

    def test_the_closing_of_a_job_comes_at_any_round(self, bench: Run, kills: list[int], tmp_path: Path) -> None:
        async def test(b: Bench) -> None:
            b.start(self.phase("closing", 2))
            assert kills == [19]

        bench(test, PlannedFault(0, "pause", 30, "closing", ("me",), str(tmp_path / "claim")))

    def test_from_a_dictionary(self) -> None:
        fields = {"number": 0, "do": "kill", "round": 3, "phase": "opening", "who": ["a"], "claim": "/x"}
        assert PlannedFault.from_dict(fields) == PlannedFault(0, "kill", 3, "opening", ("a",), "/x")


BROKEN = """
import json, sys
from p2pclust.errors import FleetError
from p2pclust.lab.testbed.peer import attached as main
from p2pclust.peer.core.core import Core
from p2pclust.peer.core.events import Woken
from p2pclust.peer.core.reports import JobFinished, Refuted
from p2pclust.peer.core.round_reports import Deposed, Elected, PhaseBegun, WaitsForMajority

step = Core.step

def broken(core, now, event):
    if isinstance(event, Woken):
        raise {error}
    return step(core, now, event)

Core.step = broken
sys.exit(main.run_attached(json.loads(open(sys.argv[1]).read())))
"""


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        ('ValueError("third vote")', 1, "error: p0: bug: ValueError: third vote"),
        ('FleetError("the disk is full; free some space")', 3, "error: p0: the disk is full; free some space"),
    ],
)
def test_a_peer_that_breaks_says_so_in_one_line_and_with_its_exit_code(
    tmp_path: Path, error: str, code: int, line: str
) -> None:
    roster, bundles = throwaway_fleet(["p0", "p1"])
    write_fleet(tmp_path / "keys", roster, bundles)
    np.save(tmp_path / "data.npy", np.zeros((3, 2)))
    config = {
        "name": "p0", "listen": "127.0.0.1:0", "join": {"p1": "127.0.0.1:9"}, "bundle": str(tmp_path / "keys/p0.bundle"),
        "roster": str(tmp_path / "keys/roster.json"), "data": str(tmp_path / "data.npy"),
        "state_dir": str(tmp_path / "state"), "timing": "fast", "fitness": 0.5, "faults": [], "stdio": True,
    }  # fmt: skip
    (tmp_path / "peer.json").write_text(json.dumps(config))
    with subprocess.Popen(
        [sys.executable, "-c", BROKEN.replace("{error}", error), str(tmp_path / "peer.json")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as ran:  # fmt: skip
        assert ran.wait(60) == code
        assert ran.stdout is not None
        assert ran.stderr is not None
        assert ran.stderr.read().splitlines() == [line]
        last = json.loads(ran.stdout.read().splitlines()[-1])
        assert last["verb"] == "failed"
        assert last["reason"] == line.removeprefix("error: p0: ")
