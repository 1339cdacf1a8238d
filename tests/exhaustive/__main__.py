"""All histories of three peers within bounds, and planted bugs that must be found: `make exhaustive`."""

from __future__ import annotations

import argparse
import resource
import sys

from tests.exhaustive.explore import Bounds, explore

from p2pclust.lab.simulation.fleets.bugs import planted

#: The last three are larger than most machines have time for: they are cut off, and say so.
ROWS = {
    "one round, tasks end at any time": Bounds(),
    "one round, one crash": Bounds(crashes=1, at_once=True),
    "two rounds, one crash": Bounds(rounds=2, crashes=1, at_once=True),
    "one round, two elections": Bounds(elections=2, at_once=True, again=True),
    "a liar, about votes": Bounds(at_once=True, liar=1),
    "a liar, about ends": Bounds(at_once=True, liar=1, ends=True),
}
#: Bugs of the simulator, the bounds within which each breaks a promise, and that promise.
BUGS = {
    "vote-not-synced": (Bounds(at_once=True), "S6"),
    "register-not-synced": (Bounds(at_once=True), "S6"),
    "finished-before-a-majority": (Bounds(at_once=True), "S8"),
    "term-without-a-certificate": (Bounds(at_once=True, liar=1), "W1"),
    "end-without-acknowledgements": (Bounds(at_once=True, liar=1, ends=True), "W1"),
}


def main() -> int:
    """Print a table; return 1 if a promise is broken, or a planted bug is not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.exhaustive", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="of processor time, for each row")
    asked = parser.parse_args()
    wrong = 0
    for name, bounds in ROWS.items():
        found = explore(bounds, asked.seconds)
        seen = f", all of {found.steps - 1} steps" if bounds.liar else ""
        outcome = found.broken or ("complete, nothing broken" if found.complete else f"stopped, nothing broken{seen}")
        memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        sys.stdout.write(
            f"{name:34} {found.states:>10,} states {found.finished:>9,} with all ended {found.seconds:7.1f} s "
            f"{memory_mb:6.0f} MB  {outcome}\n"
        )
        sys.stdout.flush()
        wrong += bool(found.broken)
    for name, (bounds, promise) in BUGS.items():
        with planted(name):
            found = explore(bounds, asked.seconds)
        outcome = found.broken or f"NOT FOUND, expected {promise}"
        sys.stdout.write(f"planted: {name:25} {found.states:>10,} states {outcome}\n")
        wrong += not found.broken.startswith(promise)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
