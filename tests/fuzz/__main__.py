"""Attack this version for a set time, and print what it withstood: `make fuzz`.

Parts: ``frames`` (messages of an enrolled liar to real cores), ``files`` (damaged files, stores and questions), ``live``
(strangers at a real peer on 127.0.0.1). Without a part all of them run. Each finding is printed with the command that
repeats it; then the exit code is 1.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz import attack, files, frames
from tests.fuzz.meter import MOST_BYTES, MOST_S, Meter

_SHARE_OF_FILES = 0.1
_SHOWN_EVERY = 50  # fleets
_MOST_MEMORY_BYTES = 8 * 1024**3  # of the fuzzer itself: what asks for more fails instead of filling the machine


@dataclass
class Asked:
    """The words of the command."""

    part: str
    seconds: float
    seed: int
    episode: str
    only: str
    inputs: int
    each: bool
    frames: int


def main(words: Sequence[str] | None = None) -> int:
    """Run the parts that are asked for."""
    asked = _asked(words)
    print(f"seed {asked.seed}", flush=True)
    parts: dict[str, Callable[[Asked], int]] = {"live": _live, "files": _files, "frames": _frames}
    began = time.monotonic()
    findings = 0
    for name, run in parts.items():
        if asked.part in ("", name):
            findings += run(asked)
            asked.seconds = max(1.0, asked.seconds - (time.monotonic() - began))
            began = time.monotonic()
    print(f"{findings} findings", flush=True)
    return int(findings > 0)


def _asked(words: Sequence[str] | None) -> Asked:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("part", nargs="?", choices=["frames", "files", "live"])
    parser.add_argument("--seconds", type=float, default=120.0, help="how long to continue")
    parser.add_argument("--seed", type=int, help="by default a new one, which is printed")
    parser.add_argument("--episode", default="", help="of frames: repeat this one, 'KIND:SEED'")
    parser.add_argument(
        "--frames", type=int, default=0, help="send this number of frames, instead of sending for a time"
    )
    parser.add_argument("--only", default="", choices=["", *files.KINDS], help="of files: only this kind")
    parser.add_argument("--inputs", type=int, default=0, help="of files: so many, not for a time")
    parser.add_argument("--each", action="store_true", help="of files: every byte of a store, one after the other")
    given = parser.parse_args(words)
    seed = int.from_bytes(os.urandom(4), "little") if given.seed is None else given.seed
    return Asked(
        given.part or "", given.seconds, seed, given.episode, given.only, given.inputs, given.each, given.frames
    )


def _frames(asked: Asked) -> int:
    meter = Meter()
    meter.settle()
    if asked.episode:
        kind, _, seed = asked.episode.rpartition(":")
        return _found(lambda: frames.run(frames.Episode(kind, int(seed)), meter))
    until, findings, number = time.monotonic() + asked.seconds, 0, 0
    while meter.n("frame") < asked.frames if asked.frames else time.monotonic() < until:
        episode = frames.Episode.numbered(asked.seed, number)
        findings += _found(lambda episode=episode: frames.run(episode, meter))  # type: ignore[misc]
        number += 1
        if number % _SHOWN_EVERY == 0:
            print(f"frames: {meter.n('frame'):,} messages so far, {findings} findings", flush=True)
    print(
        f"frames: {number} fleets; each limit is {MOST_BYTES / 2**20:.0f} MiB and {1000 * MOST_S:.0f} ms of process time"
    )
    print(f"  messages: {meter.told('frame')}")
    print(f"  tasks of workers that followed: {meter.told('task')}", flush=True)
    return findings


def _files(asked: Asked) -> int:
    meter, findings, number = Meter(), 0, 0
    kinds = [asked.only] if asked.only else list(files.KINDS)
    until = time.monotonic() + (asked.seconds if asked.part else _SHARE_OF_FILES * asked.seconds)
    with tempfile.TemporaryDirectory(prefix="p2pclust-fuzz-") as folder:
        made = files.Files(Path(folder), meter)
        if asked.each:
            return sum(_found(lambda place=place: made.rotten(place)) for place in range(made.sound.size))  # type: ignore[misc]
        while number < asked.inputs if asked.inputs else time.monotonic() < until:
            kind, seed = kinds[number % len(kinds)], asked.seed + number
            findings += _found(lambda kind=kind, seed=seed: made.run(kind, seed))  # type: ignore[misc]
            number += 1
    print(f"files: {number} inputs of {len(kinds)} kinds", flush=True)
    return findings


def _live(asked: Asked) -> int:
    with tempfile.TemporaryDirectory(prefix="p2pclust-fuzz-") as folder:
        try:
            outcome = attack.attacked(Path(folder), asked.seed)
        except (TimeoutError, AssertionError) as error:
            print(f"live: {error!r}\nrepeat it with: python -m tests.fuzz live --seed {asked.seed}", flush=True)
            return 1
    print(f"live: {outcome}", flush=True)
    return int(bool(outcome.failure))


def _found(run: Callable[[], object]) -> int:
    try:
        run()
    except (frames.FindingError, files.FileFindingError) as finding:
        print(f"\n{finding}\n", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    sys.exit(main())
