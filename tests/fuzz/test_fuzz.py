"""A fixed share of `make fuzz`: the same fleets, files and connections in every run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from tests.fuzz import attack, files, frames
from tests.fuzz.__main__ import main
from tests.fuzz.fleets import FLEETS, HONEST, Fleet
from tests.fuzz.liars import KINDS, Liar
from tests.fuzz.live import MOST_GROWTH_MB
from tests.fuzz.meter import MOST_BYTES, Meter
from tests.fuzz.mutations import Mutator

from p2pclust.errors import WireError
from p2pclust.lab.simulation.world import device
from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.lab.simulation.world.world import Observer, World
from p2pclust.peer.core.codec import decode
from p2pclust.peer.core.effects import Effect
from p2pclust.peer.core.members.verdicts import Refusals
from p2pclust.peer.core.reports import Report


@pytest.mark.slow
@pytest.mark.parametrize("kind", FLEETS)
def test_messages_of_a_liar(kind: str) -> None:
    """Nothing but the wire error comes of them, and none needs much memory. Times are measured by `make fuzz` only."""
    meter = Meter(memory=True)
    episode = frames.Episode(kind, 7)
    frames.attack(episode, meter, 150)
    assert 0 < meter.costs["frame"].bytes < MOST_BYTES


class Said(Observer):
    """Counts the words of reports."""

    def __init__(self) -> None:
        self.verbs: Counter[str] = Counter()

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        if isinstance(effect, Report) and peer.name in HONEST:
            self.verbs[effect.verb] += 1


@pytest.mark.slow
def test_the_liar_gets_far() -> None:
    """Its messages are of every kind, most of them are read, and they have effects of many kinds."""
    kinds: Counter[str] = Counter()
    refused, said = 0, Said()
    for seed, kind in enumerate(("star", "tree of blobs", "secure", "repeated")):
        fleet = Fleet(kind, seed)
        fleet.world.watch(said)
        liar = Liar(fleet, np.random.default_rng(seed))
        fleet.world.tamper = liar.tampered
        for _ in range(300):
            victim = str(liar.pick(HONEST))
            message = liar.frames(victim)
            fleet.deliver(victim, message)
            try:
                kinds[decode(message).kind] += 1
            except WireError:
                refused += 1
            if liar.chance(0.2):
                fleet.advance(0.02)
    assert set(kinds) == set(KINDS)
    assert 0 < refused < sum(kinds.values())
    wanted = {
        "job",
        "cancel",
        "bad-document",
        "refuted",
        "late-answer",
        "round-leap",
        "term-leap",
        "malformed",
        "corrupt",
        "bad-links",
    }
    assert len(wanted & set(said.verbs)) > len(wanted) / 2, said.verbs


@pytest.mark.slow
def test_a_planted_bug_is_found_printed_and_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    """A handler that raises for some message: the finding has the message, and the command finds it again."""

    def fragile(self: Refusals, name: str, incarnation: int, by: str) -> None:
        raise KeyError(name)

    with mock.patch.object(Refusals, "heard", fragile):
        with pytest.raises(frames.FindingError, match="KeyError") as found:
            frames.run(frames.Episode("star", 0), Meter())
        again = found.value.episode.again
        assert again == "python -m tests.fuzz frames --episode 'star:0'"
        assert main(["frames", "--episode", "star:0"]) == 1
    told = capsys.readouterr().out
    assert "KeyError" in told
    assert "after message " in told
    assert again in told


@pytest.mark.slow
def test_a_message_that_costs_too_much_is_found() -> None:
    with (
        mock.patch.object(Refusals, "heard", side_effect=lambda *words: bytearray(MOST_BYTES + 1)),
        pytest.raises(frames.FindingError, match="MiB for one message"),
    ):
        frames.run(frames.Episode("star", 0), Meter())


def test_two_runs_of_an_episode_are_the_same() -> None:
    """What it prints can be repeated: nothing depends on the order of a set, or on the time of day."""

    def trace() -> str:
        fleet = Fleet("blobs", 5)
        liar = Liar(fleet, np.random.default_rng(1))
        for _ in range(60):
            victim = str(liar.pick(HONEST))
            fleet.deliver(victim, liar.frames(victim))
            fleet.advance(0.01)
        return fleet.world.trace

    assert trace() == trace()
    assert device.perform.__module__ == "p2pclust.peer.work.tasks"


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> files.Files:
    return files.Files(tmp_path_factory.mktemp("files"), Meter())


@pytest.mark.slow
@pytest.mark.parametrize("kind", files.KINDS)
def test_damaged_files(damaged: files.Files, kind: str) -> None:
    """`run` raises FileFindingError where anything but an error of the library comes of a file."""
    for seed in range(25):
        damaged.run(kind, seed)


@pytest.mark.slow
def test_a_store_with_a_wrong_byte_here_and_there(damaged: files.Files, tmp_path: Path) -> None:
    """`make fuzz` draws the places, and `python -m tests.fuzz files --only store --each` tries every byte."""
    sound = damaged.sound
    assert {file.suffix or "blob" for file in sound.files} >= {".sqlite3", ".sqlite3-wal", ".commits", "blob"}
    mutator = Mutator(np.random.default_rng(3))
    for place in range(0, sound.size, 600):
        sound.rotten(tmp_path / "store", mutator, place)


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.xdist_group("hostile")
def test_fifty_connections_of_strangers(tmp_path: Path) -> None:
    outcome = attack.attacked(tmp_path, 3, 50, 50, within_s=60.0)
    assert (outcome.in_sequence, outcome.at_once) == (50, 50)
    assert outcome.growth_mb < MOST_GROWTH_MB
    assert len(outcome.served_s) == 3
