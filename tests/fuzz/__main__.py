"""`make fuzz`: attack this version for a set time, and print what it withstood."""
from __future__ import annotations

import argparse
import sys
import time

from tests.fuzz import frames
from tests.fuzz.meter import Meter


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("part", nargs="?", choices=["frames"])
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--episode")
    given = parser.parse_args()
    meter = Meter()
    meter.settle()
    first = int(time.time()) if given.seed is None else given.seed
    print("seed", first)
    if given.episode:
        kind, _, seed = given.episode.rpartition(":")
        frames.run(frames.Episode(kind, int(seed)), meter); return 0
    until = time.monotonic() + given.seconds
    n = 0; reached = 0; bad = 0
    while time.monotonic() < until:
        try:
            reached += frames.run(frames.Episode.numbered(first + n), meter)
        except frames.Finding as finding:
            print(finding); bad += 1
        n += 1
    print(n, "episodes", reached, "reached")
    for what, cost in meter.costs.items():
        print(what, cost)
    return bad > 0

if __name__ == "__main__":
    sys.exit(main())
