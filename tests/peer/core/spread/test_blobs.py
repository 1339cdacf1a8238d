"""Large objects: pulled in chunks, within a window, resumed, verified."""

from __future__ import annotations

import numpy as np
import pytest
from harness import Net, alone, toy

from p2pclust.peer.core.context import Context
from p2pclust.peer.core.core import StoreContents
from p2pclust.peer.core.effects import Compute, DropBlob, Effect, Send, SendChunk, StoreChunk
from p2pclust.peer.core.events import Arrived
from p2pclust.peer.core.job_messages import Adopted
from p2pclust.peer.core.messages import BlobChunk, BlobMissing, BlobRequest, Message
from p2pclust.peer.core.spread.blobs import Blobs
from p2pclust.peer.core.timing import PRESETS, Limits
from p2pclust.protocols.engine.workspace import digest_of

CHUNK, WINDOW = 100, 3
DATA = bytes(range(256)) * 4  # 1024 bytes: ten chunks of 100 and one of 24
DIGEST = digest_of(DATA)
CHUNKS = [DATA[i : i + CHUNK] for i in range(0, len(DATA), CHUNK)]


class Puller:
    """A `Blobs` machine by itself."""

    def __init__(
        self, stored: dict[bytes, tuple[int, tuple[int, ...]]] | None = None, *, adopted: frozenset[bytes] = frozenset(),
        blob_bytes: int = 4096,
    ) -> None:  # fmt: skip
        limits = Limits(chunk_bytes=CHUNK, window=WINDOW, blob_bytes=blob_bytes)
        self.ctx = Context("p1", PRESETS["fast"], limits, np.random.default_rng(0), "s")
        self.blobs = Blobs(self.ctx, stored or {}, adopted)

    def effects(self) -> list[Effect]:
        effects, self.ctx.effects = self.ctx.effects, []
        return effects

    def pull(self, *sources: str, size: int = len(DATA)) -> list[tuple[str, int]]:
        self.blobs.pull(DIGEST, size, list(sources))
        return self.asked()

    def asked(self) -> list[tuple[str, int]]:
        return [
            (e.to, e.message.index) for e in self.effects()
            if isinstance(e, Send) and isinstance(e.message, BlobRequest)
        ]  # fmt: skip

    def hear(self, message: Message, source: str = "p2") -> None:
        self.blobs.receive(source, message)

    def come(self, index: int, source: str = "p2", *, after: float) -> None:
        """A chunk comes that many usual time-outs after the last thing that happened."""
        self.ctx.now += after * PRESETS["fast"].chunk_timeout_s
        self.hear(BlobChunk(DIGEST, index, (CHUNKS[index],)), source)

    def time_out(self) -> list[tuple[str, int]]:
        self.ctx.now = self.ctx.timers.next_at
        key = self.ctx.timers.pop_due(self.ctx.now)
        assert key is not None
        self.blobs.fire(key[0:])
        return self.asked()


class TestPace:
    """One chunk at first; what comes soon lets more follow, what comes late fewer."""

    def test_of_one_blob_no_more_than_the_window_is_asked_for(self) -> None:
        puller = Puller()
        asked = puller.pull("p2")
        waiting = [len(asked)]
        for index in range(5):
            puller.hear(BlobChunk(DIGEST, index, (CHUNKS[index],)))
            asked += puller.asked()
            waiting.append(len(asked) - index - 1)
        assert waiting == [1, 2, 3, 3, 3, 3]
        assert asked == [("p2", index) for index in range(8)]

    def test_of_several_blobs_together_the_pace_is_the_same(self) -> None:
        puller = Puller()
        others = [bytes([number]) * 600 for number in range(2)]
        asked = puller.pull("p2")
        for data in others:
            puller.blobs.pull(digest_of(data), len(data), ["p3"])
        assert (asked, puller.asked()) == ([("p2", 0)], [])
        puller.come(0, after=0.1)
        assert puller.asked() == [("p2", 1), ("p2", 2)]
        puller.come(1, after=0.1)
        assert puller.asked() == [("p2", 3), ("p2", 4)]
        puller.come(2, after=0.1)
        assert puller.asked() == [("p2", 5), ("p3", 0)], "the first has its window full"

    def test_what_comes_neither_soon_nor_late_changes_nothing(self) -> None:
        puller = Puller()
        puller.pull("p2")
        puller.come(0, after=0.7)
        assert puller.asked() == [("p2", 1)]

    def test_late_chunks_halve_it(self) -> None:
        puller = Puller()
        puller.pull("p2")
        puller.come(0, after=0.1)
        puller.come(1, after=0.1)
        assert len(puller.asked()) == 4  # three on their way
        for index in (2, 3, 4):  # each within the time-out of the one before, but not of its question
            puller.come(index, after=0.9)
        assert puller.asked() == [("p2", 5)], "three were asked for at once before"

    def test_what_was_asked_for_twice_says_nothing(self) -> None:
        puller = Puller()
        puller.pull("p2", "p3")
        puller.time_out()
        puller.come(0, "p3", after=0.01)  # it may have come for the first question
        assert puller.asked() == [("p3", 1)]
        puller.come(1, "p3", after=0.01)
        assert puller.asked() == [("p3", 2), ("p3", 3)]

    def test_a_silent_source_keeps_nobody_else_waiting(self) -> None:
        puller = Puller()
        puller.pull("p9")
        for _ in range(3):
            puller.time_out()
        others = [bytes([number]) * 600 for number in range(2)]
        for data in others:
            puller.blobs.pull(digest_of(data), len(data), ["p3"])
        assert puller.asked() == [("p3", 0)], "the room for one is not taken by a question that nobody answers"
        usual_s = PRESETS["fast"].chunk_timeout_s
        assert puller.ctx.timers.next_at == puller.ctx.now + usual_s, "p3 is given no more time for that"

    def test_sources_that_were_silent_take_no_room_from_those_that_answer(self) -> None:
        """Four of them once had all the room, each for eight chunk time-outs, and so every round of the job."""
        puller = Puller()
        rooms = puller.ctx.limits.pulls
        sick = [f"p{number}" for number in range(10, 11 + rooms)]
        for round_ in range(2):
            for name in sick:
                data = name.encode() * (100 + round_)
                puller.blobs.pull(digest_of(data), len(data), [name])
            while round_ == 0 and {puller.blobs.silent(digest_of(name.encode() * 100)) for name in sick} != {True}:
                puller.time_out()
        later = [digest_of(name.encode() * 101) for name in sick]
        assert [puller.blobs.silent(digest) for digest in later] == [True] * len(sick), "from the beginning"
        assert not any(puller.blobs.held_up(digest) for digest in later), "it is not this peer that lets them wait"
        puller.effects()
        assert puller.pull("p2") == [("p2", 0)]
        puller.come(0, after=0.1)
        assert puller.asked() == [("p2", 1), ("p2", 2)]

    def test_a_source_that_was_silent_and_answers_is_as_the_others_again(self) -> None:
        puller = Puller()
        puller.pull("p2")
        puller.time_out()
        puller.blobs.keep_only(frozenset(), unfinished=False)
        assert puller.pull("p2") == [("p2", 0)]
        assert puller.blobs.silent(DIGEST)
        puller.come(0, after=0.1)
        assert not puller.blobs.silent(DIGEST)
        assert puller.asked() == [("p2", 1), ("p2", 2)]

    def test_of_a_silent_source_and_one_with_a_wrong_copy_the_silent_one_is_asked(self) -> None:
        """It may answer again; but it was silent before, so it was once taken for one that does not."""
        puller = Puller()
        for source in ("p2", "p3"):
            puller.blobs.pull(digest_of(source.encode()), 600, [source])
        while not (puller.blobs.silent(digest_of(b"p2")) and puller.blobs.silent(digest_of(b"p3"))):
            puller.time_out()
        puller.effects()
        assert puller.pull("p2") == [("p2", 0)]
        for index in range(len(CHUNKS)):
            puller.come(index, after=0.7)
        puller.blobs.verified(DIGEST, False)
        puller.effects()
        for _ in range(4):  # p3 is as slow as p2 now
            puller.blobs._pace.timed_out(["p2", "p3"])
        assert puller.pull("p2", "p3") == [("p3", 0)]

    def test_a_blob_that_finds_no_room_is_held_up_here(self) -> None:
        puller = Puller()
        rooms = puller.ctx.limits.pulls
        blobs = [bytes([number]) * 600 for number in range(rooms + 1)]
        for data in blobs:
            puller.blobs.pull(digest_of(data), len(data), ["p2"])
        assert [puller.blobs.held_up(digest_of(data)) for data in blobs] == [False] * rooms + [True]

    def test_what_a_slow_source_needed_is_given_to_all(self) -> None:
        puller = Puller()
        puller.pull("p2")
        for _ in range(3):
            puller.time_out()
        puller.come(0, after=0.5)  # so it lives, and perhaps our own link is the slow one
        puller.blobs.keep_only(frozenset(), unfinished=False)
        puller.effects()
        assert puller.pull("p3") == [("p3", 0)]
        usual_s = PRESETS["fast"].chunk_timeout_s
        assert puller.ctx.timers.next_at == puller.ctx.now + 8 * usual_s

    def test_after_soon_answers_others_are_waited_for_less_long_again(self) -> None:
        puller, usual_s = Puller(), PRESETS["fast"].chunk_timeout_s
        puller.pull("p2")
        for _ in range(3):
            puller.time_out()
        waits = []
        for index in range(5):
            puller.come(index, after=0.1)
            waits.append(round((puller.ctx.timers.next_at - puller.ctx.now) / usual_s, 9))
        assert waits == [8, 4, 2, 1, 1]


def test_a_blob_is_here_when_a_worker_has_hashed_it() -> None:
    puller = Puller()
    puller.pull("p2")
    for index, chunk in enumerate(CHUNKS):
        assert not puller.blobs.has(DIGEST)
        puller.hear(BlobChunk(DIGEST, index, (chunk,)))
    effects = puller.effects()
    assert [e.index for e in effects if isinstance(e, StoreChunk)] == list(range(11))
    assert [e.task.kind for e in effects if isinstance(e, Compute)] == ["hash"]
    assert not puller.blobs.has(DIGEST)
    puller.blobs.verified(DIGEST, True)
    assert puller.blobs.has(DIGEST)
    assert puller.ctx.timers.next_at == float("inf"), "no timer is left behind"


@pytest.mark.parametrize(
    ("index", "data"),
    [
        pytest.param(0, (CHUNKS[0][:-1],), id="too-short"),
        pytest.param(0, (CHUNKS[0] + b"x",), id="too-long"),
        pytest.param(10, (bytes(CHUNK),), id="the-last-as-long-as-the-others"),
        pytest.param(11, (CHUNKS[0],), id="behind-the-end"),
        pytest.param(-1, (CHUNKS[0],), id="before-the-beginning"),
        pytest.param(0, (), id="nothing"),
        pytest.param(0, (CHUNKS[0], CHUNKS[0]), id="two"),
    ],
)
def test_a_chunk_of_the_wrong_size_is_ignored(index: int, data: tuple[bytes, ...]) -> None:
    puller = Puller()
    puller.pull("p2")
    puller.hear(BlobChunk(DIGEST, index, data))
    assert puller.effects() == []


def test_a_chunk_twice_is_stored_once() -> None:
    puller = Puller()
    puller.pull("p2")
    puller.hear(BlobChunk(DIGEST, 0, (CHUNKS[0],)))
    puller.effects()
    puller.hear(BlobChunk(DIGEST, 0, (CHUNKS[0],)))
    assert puller.effects() == []


def test_what_nobody_asked_for_is_ignored() -> None:
    puller = Puller()
    puller.hear(BlobChunk(DIGEST, 0, (CHUNKS[0],)))
    puller.hear(BlobMissing(DIGEST))
    assert puller.effects() == []


def test_a_wrong_hash_is_dropped_and_fetched_again() -> None:
    puller = Puller()
    puller.pull("p2")
    for index, chunk in enumerate(CHUNKS):
        puller.hear(BlobChunk(DIGEST, index, (chunk if index else bytes(CHUNK),)))
    puller.effects()
    puller.blobs.verified(DIGEST, False)
    assert DropBlob(DIGEST) in puller.effects()
    assert not puller.blobs.has(DIGEST)
    assert puller.pull("p3") == [("p3", 0), ("p3", 1), ("p3", 2)]


def _spoil(puller: Puller, source: str) -> None:
    """Let a blob come from one source, with a wrong bit."""
    for index, chunk in enumerate(CHUNKS):
        puller.hear(BlobChunk(DIGEST, index, (chunk if index else bytes(CHUNK),)), source)
    puller.blobs.verified(DIGEST, False)
    puller.effects()


def test_after_a_wrong_hash_another_source_is_asked_first() -> None:
    """A source with a bad disk was asked again and again, and no other."""
    puller = Puller()
    assert puller.pull("p2", "p3") == [("p2", 0)]
    _spoil(puller, "p2")
    assert {name for name, _ in puller.pull("p2", "p3")} == {"p3"}
    for index in range(len(CHUNKS)):
        puller.come(index, "p3", after=0.1)
    puller.blobs.verified(DIGEST, True)
    assert puller.blobs.has(DIGEST)


def test_a_source_that_spoiled_a_blob_is_asked_if_there_is_no_other() -> None:
    puller = Puller()
    puller.pull("p2")
    _spoil(puller, "p2")
    assert puller.blobs.spoiled_by(DIGEST, "p2")
    assert {name for name, _ in puller.pull("p2")} == {"p2"}


def test_a_source_that_spoiled_a_blob_is_asked_if_the_others_are_silent() -> None:
    """The others may be dead or out of reach: a peer asked them indefinitely, and never again the one that had the blob."""
    puller = Puller()
    puller.pull("p2", "p3")
    _spoil(puller, "p2")
    assert {name for name, _ in puller.pull("p2", "p3")} == {"p3"}
    assert ("p2", 0) in [asked for _ in range(2) for asked in puller.time_out()]
    for index in range(len(CHUNKS)):
        puller.come(index, "p2", after=0.1)
    puller.blobs.verified(DIGEST, True)
    assert puller.blobs.has(DIGEST)


def test_sources_that_all_spoiled_a_blob_take_turns() -> None:
    """One of two bad disks was mended, and the other, faster disk was asked indefinitely."""
    puller = Puller()
    assert puller.pull("p2", "p3") == [("p2", 0)]
    assert puller.time_out() == [("p3", 0)]  # so p2 is the slower one
    _spoil(puller, "p3")
    asked = []
    for _ in range(4):
        ((source, _),) = puller.pull("p2", "p3")[:1]
        asked.append(source)
        _spoil(puller, source)
    assert asked == ["p2", "p3", "p2", "p3"]


def test_sources_that_spoiled_a_blob_take_turns_if_the_others_are_silent() -> None:
    puller = Puller()
    for source in ("p3", "p4"):
        puller.pull(source)
        _spoil(puller, source)
    asked = []
    for _ in range(3):
        assert puller.pull("p2", "p3", "p4")[0] == ("p2", 0)
        source = puller.time_out()[0][0]
        asked.append(source)
        _spoil(puller, source)
    assert asked == ["p3", "p4", "p3"]


def test_after_chunks_of_two_sources_one_is_asked_for_all() -> None:
    """Of a mixture it is not known whose chunks were wrong."""
    puller = Puller()
    puller.pull("p2", "p3")
    puller.hear(BlobChunk(DIGEST, 0, (bytes(CHUNK),)), "p2")
    for index in range(1, len(CHUNKS)):
        puller.hear(BlobChunk(DIGEST, index, (CHUNKS[index],)), "p3")
    puller.blobs.verified(DIGEST, False)
    puller.effects()
    assert not puller.blobs.spoiled_by(DIGEST, "p2")
    ((first, _),) = puller.pull("p2", "p3")[:1]
    puller.come(0, first, after=0.1)
    assert {name for name, _ in puller.asked()} == {first}
    asked = puller.time_out()
    assert (asked[0][1], asked[0][0] != first) == (0, True), "another one is asked for all, from the first chunk on"


def test_after_a_restart_only_what_is_missing_is_asked_for() -> None:
    puller = Puller({DIGEST: (11, (0, 1, 2, 5))})
    asked = puller.pull("p2")
    for index in (3, 4, 6, 7, 8, 9, 10):
        puller.hear(BlobChunk(DIGEST, index, (CHUNKS[index],)))
        effects = puller.effects()
        asked += [
            ("p2", e.message.index) for e in effects if isinstance(e, Send) and isinstance(e.message, BlobRequest)
        ]
    assert asked == [("p2", index) for index in (3, 4, 6, 7, 8, 9, 10)]
    assert any(isinstance(e, Compute) for e in effects)


def test_the_next_source_is_asked_when_the_first_does_not_have_it() -> None:
    puller = Puller()
    puller.pull("p2", "p3")
    puller.hear(BlobMissing(DIGEST), "p2")
    assert puller.asked() == [("p3", 0)]
    puller.hear(BlobMissing(DIGEST), "p4")  # who was never asked
    assert puller.asked() == []
    puller.hear(BlobMissing(DIGEST), "p3")  # the last source is kept: it may have it later
    assert puller.time_out() == [("p3", 0)]


def test_the_next_source_is_asked_when_the_first_is_silent() -> None:
    puller = Puller()
    puller.pull("p2", "p3")
    assert puller.time_out() == [("p3", 0)]
    assert puller.time_out() == [("p2", 0)]


def test_silent_sources_have_their_turns_for_ever() -> None:
    puller = Puller()
    puller.pull("p2", "p3")
    for _ in range(8):  # until both are waited for as long as any peer may be
        puller.time_out()
    asked = [source for _ in range(6) for source, _ in puller.time_out()]
    assert asked in (["p2", "p3"] * 3, ["p3", "p2"] * 3)


def test_the_next_blob_is_asked_of_a_source_that_answers_first() -> None:
    """Behind one link that works, each blob once began with a source that cannot be heard, and waited longer each time."""
    puller = Puller()
    puller.pull("p2", "p3")
    assert puller.time_out() == [("p3", 0)]
    puller.come(0, "p3", after=0.1)
    puller.blobs.keep_only(frozenset(), unfinished=False)
    puller.effects()
    assert puller.pull("p2", "p3") == [("p3", 0)]


def test_no_peer_is_let_wait_for_a_source_that_may_not_have_the_blob() -> None:
    """Two peers that each wait for the other's source would wait for each other."""
    puller = Puller()
    puller.pull("p3", "p2")
    assert puller.time_out() == [("p2", 0)]
    puller.hear(BlobRequest(DIGEST, 0), "p9")
    assert puller.effects() == [Send("p9", BlobMissing(DIGEST))]


def test_a_source_that_did_not_have_a_blob_is_asked_again_soon_if_the_others_are_out_of_reach() -> None:
    """A peer behind one link that works heard of a blob before its neighbour had it, and then waited for eight time-outs."""
    puller = Puller()
    puller.pull("p2")
    for _ in range(4):
        puller.time_out()
    puller.blobs.keep_only(frozenset(), unfinished=False)
    puller.effects()
    began = puller.ctx.now
    assert puller.pull("p3", "p2") == [("p3", 0)]
    puller.hear(BlobMissing(DIGEST), "p3")
    assert puller.asked() == [("p2", 0)]
    assert puller.time_out() == [("p3", 0)]
    puller.hear(BlobMissing(DIGEST), "p3")
    assert puller.time_out() == [("p3", 0)]
    assert puller.ctx.now - began == pytest.approx(2 * PRESETS["fast"].chunk_timeout_s)
    puller.hear(BlobChunk(DIGEST, 0, (CHUNKS[0],)), "p3")
    assert {source for source, _ in puller.asked()} == {"p3"}, "all the rest is asked of the source that has it"
    assert puller.blobs._pulls[DIGEST].sources == ["p3", "p2"]


def test_a_source_that_does_not_have_a_blob_is_not_asked_again_while_another_answers() -> None:
    puller = Puller()
    puller.pull("p2", "p3")
    puller.hear(BlobMissing(DIGEST), "p2")
    assert puller.asked() == [("p3", 0)]
    assert puller.time_out() == [("p3", 0)]


def test_a_peer_that_fetches_a_blob_itself_sends_it_on_when_it_comes() -> None:
    """It once said that it had nothing: a peer behind one link that works then asked peers that it cannot hear."""
    puller = Puller()
    puller.pull("p2")
    puller.effects()
    puller.hear(BlobRequest(DIGEST, 1), "p9")
    puller.hear(BlobRequest(DIGEST, 0), "p9")
    assert puller.effects() == []
    puller.hear(BlobRequest(DIGEST, 99), "p9")  # there is no such chunk
    puller.hear(BlobRequest(DIGEST, 0), "p2")  # the peer that this one waits for: both would wait
    assert puller.effects() == [Send("p9", BlobMissing(DIGEST)), Send("p2", BlobMissing(DIGEST))]
    puller.hear(BlobChunk(DIGEST, 0, (CHUNKS[0],)))
    sent = [effect for effect in puller.effects() if isinstance(effect, SendChunk)]
    assert sent == [SendChunk("p9", DIGEST, 0)]
    puller.blobs.made(DIGEST)
    assert puller.effects() == [SendChunk("p9", DIGEST, 1)]
    assert puller.blobs._askers == {}


def test_a_peer_that_asks_a_source_that_may_lack_a_blob_lets_no_peer_wait_for_it() -> None:
    """Peers that all find the aggregator slow would ask each other, and wait for each other."""
    puller = Puller()
    puller.pull("p2", "p3")
    assert puller.time_out() == [("p3", 0)]
    puller.hear(BlobRequest(DIGEST, 0), "p9")
    assert puller.effects() == [Send("p9", BlobMissing(DIGEST))]


def test_a_slow_link_is_given_twice_the_time_whenever_nothing_came_up_to_eight_times() -> None:
    puller, usual_s = Puller(), PRESETS["fast"].chunk_timeout_s
    puller.pull("p2")
    waits = []
    for _ in range(5):
        began = puller.ctx.now
        puller.time_out()
        waits.append(round((puller.ctx.now - began) / usual_s, 9))
    assert waits == [1, 2, 4, 8, 8]
    puller.hear(BlobChunk(DIGEST, 0, (CHUNKS[0],)))
    assert puller.ctx.timers.next_at == puller.ctx.now + 8 * usual_s, "one that came says what the link needs"


def test_a_new_source_goes_first_without_starting_anew() -> None:
    puller = Puller()
    puller.pull("p2")
    puller.hear(BlobChunk(DIGEST, 0, (CHUNKS[0],)))
    assert puller.asked() == [("p2", 1), ("p2", 2)]
    assert puller.pull("p3") == []
    puller.hear(BlobChunk(DIGEST, 1, (CHUNKS[1],)))
    assert puller.asked() == [("p3", 3), ("p3", 4)]


def test_a_blob_larger_than_allowed_is_not_pulled() -> None:
    puller = Puller(blob_bytes=1000)
    assert puller.pull("p2") == []
    assert puller.ctx.timers.next_at == float("inf")


def test_what_is_here_is_not_pulled() -> None:
    puller = Puller()
    puller.blobs.made(DIGEST)
    assert puller.pull("p2") == []


def test_what_nobody_needs_is_dropped_and_no_longer_pulled() -> None:
    puller = Puller()
    puller.pull("p2")
    puller.blobs.keep_only(frozenset(), unfinished=False)
    assert DropBlob(DIGEST) in puller.effects()
    assert puller.ctx.timers.next_at == float("inf")
    puller.hear(BlobChunk(DIGEST, 0, (CHUNKS[0],)))
    assert puller.effects() == []


def test_who_has_it_gives_it_and_who_has_not_says_so() -> None:
    core = alone(stored=StoreContents("s", 0, {}, {}))
    core.blobs.made(DIGEST)
    assert SendChunk("p2", DIGEST, 4) in core.step(1.0, Arrived("p2", BlobRequest(DIGEST, 4)))
    other = bytes(32)
    assert Send("p2", BlobMissing(other)) in core.step(1.0, Arrived("p2", BlobRequest(other, 0)))


# -- in a fleet -------------------------------------------------------------------------------------------------------

SMALL = Limits(inline_bytes=64, chunk_bytes=32)


def test_large_states_and_contributions_travel_as_blobs() -> None:
    net = Net(3, limits=SMALL)
    net.meet()
    job = net.submit("p1", toy(3, pad=200))
    net.until(lambda: len(net.finished(job)) == 3)
    assert set(net.states(job).values()) == {"s3[0,1,2]"}
    assert all(
        len(f) <= 64 for p in net.sent for f in getattr(p.message, "state", ()) + getattr(p.message, "payload", ())
    )


@pytest.mark.parametrize(("seed", "n_left"), [(0, 0), (10, 1), (2, 2), (1, 3)])
def test_a_pull_survives_a_crash_of_the_puller(seed: int, n_left: int) -> None:
    """Whatever the crash left of it is not asked for again."""
    net = Net(3, limits=SMALL, manual=lambda message: isinstance(message, BlobChunk))
    net.meet()
    job = net.submit("p1", toy(3, pad=200), aggregator="p1")
    for _ in range(2):  # one chunk, then two
        net.advance(0.1)
        net.deliver(lambda packet: packet.target == "p2")
    digest = next(p.message.digest for p in net.sent if p.target == "p1" and isinstance(p.message, BlobRequest))
    have = [i for i in range(7) if net.peers["p2"].disk.chunk(digest, i) is not None]
    assert 0 < len(have) < 7
    net.peers["p2"].disk._rng = np.random.default_rng(seed)
    net.crash("p2")
    left = [i for i in have if net.peers["p2"].disk.chunk(digest, i) is not None]
    assert len(left) == n_left
    net.drop()
    seen = len(net.sent)
    net.start("p2")
    net.manual = lambda message: False
    net.until(lambda: len(net.finished(job)) == 3)
    asked = [p.message.index for p in net.sent[seen:] if isinstance(p.message, BlobRequest)
             and p.source == "p2" and p.message.digest == digest]  # fmt: skip
    assert asked
    assert not set(asked) & set(left)


def test_a_state_is_fetched_from_others_when_the_aggregator_is_gone() -> None:
    """Whoever adopted a state can give it."""
    net = Net(5, limits=SMALL)
    net.meet()
    net.lost = lambda packet: packet.source == "p1" and packet.target == "p5" and isinstance(packet.message, BlobChunk)
    job = net.submit("p1", toy(2, pad=200), aggregator="p1")
    net.until(lambda: len(net.finished(job)) == 5)
    assert len(set(net.states(job).values())) == 1


def test_the_state_of_a_register_is_whole_after_a_restart() -> None:
    """Everybody restarts in the middle of a job with large states: nothing is fetched that is there."""
    net = Net(3, limits=SMALL, manual=lambda message: isinstance(message, Adopted))
    net.meet()
    job = net.submit("p1", toy(5, pad=200), aggregator="p1")
    net.advance(0.2)
    digests = {net.job(name, job).ledger.register.ref.digest for name in net.names}  # type: ignore[union-attr]
    for name in net.names:
        net.crash(name)
    net.drop()
    before = len(net.sent)
    net.start()
    net.manual = lambda message: False
    net.until(lambda: len(net.finished(job)) == 3)
    requests = [p.message.digest for p in net.sent[before:] if isinstance(p.message, BlobRequest)]
    assert not digests & set(requests)


@pytest.mark.parametrize("adopted", [False, True])
def test_after_a_restart_all_chunks_are_no_blob_until_they_are_hashed(adopted: bool) -> None:
    """A crash may have come before the worker compared them with their name; what was adopted was hashed before."""
    stored = {DIGEST: (len(CHUNKS), tuple(range(len(CHUNKS))))}
    puller = Puller(stored, adopted=frozenset((DIGEST,)) if adopted else frozenset())
    assert puller.blobs.has(DIGEST) is adopted
    puller.blobs.pull(DIGEST, len(DATA), ["p2"])
    assert [type(effect) for effect in puller.effects() if isinstance(effect, Compute)] == [Compute] * (not adopted)
    assert puller.blobs.has(DIGEST) is adopted


@pytest.mark.parametrize("size", [CHUNK - 1, CHUNK + 1, 0])
def test_a_chunk_of_another_size_is_not_kept(size: int) -> None:
    puller = Puller()
    assert puller.pull("p2") == [("p2", 0)]
    puller.hear(BlobChunk(DIGEST, 0, (bytes(size),)))
    assert not any(isinstance(effect, StoreChunk) for effect in puller.effects())
    assert puller.blobs.left(DIGEST) == len(CHUNKS)
    last = len(CHUNKS) - 1
    puller.hear(BlobChunk(DIGEST, last, (bytes(CHUNK),)))
    assert not any(isinstance(effect, StoreChunk) for effect in puller.effects()), "the last one is shorter"


def test_the_chunks_that_came_for_another_size_of_the_blob_are_dropped() -> None:
    puller = Puller()
    puller.pull("p2", size=len(DATA) + CHUNK)
    puller.come(0, after=0.1)
    puller.effects()
    puller.blobs.pull(DIGEST, len(DATA), ["p2"])
    effects = puller.effects()
    assert DropBlob(DIGEST) in effects
    assert puller.blobs.left(DIGEST) == len(CHUNKS)
