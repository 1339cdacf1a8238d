"""What a steady round of 20 peer processes calls, in Python: a measure that other work on the machine does not change.

Each peer counts, with `cProfile`, from its own adoption of one round to that of a later one: its shell, its core and its
tasks, all on its loop. What is called less than once a round, as heartbeats, is left out, and so is what a testbed adds.

    python benchmarks/steady_calls.py [--peers 20] [--rounds 40] [--functions 30]

``calls`` and ``code objects`` are of the package `p2pclust`, ``others`` are calls of asyncio, pyzmq, NumPy and all else that
is written in Python, ``C`` those of functions that are not.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import CodeType
from typing import Any
from unittest import mock

from p2pclust.lab.testbed.peer import attached
from p2pclust.lab.testbed.processes import fleet
from p2pclust.peer.core.effects import Compute, Effect
from p2pclust.peer.core.round_reports import PHASES
from p2pclust.peer.core.tasks import Contribute, TakePads, TermToken
from p2pclust.peer.shell import compute

_FIRST = 12  # rounds before this one are left out: the first ones load code, and have other stages
_OUT = "P2PCLUST_STEADY_CALLS"  # the folder into which peers write, and how many rounds they count
_ROUNDS = "P2PCLUST_STEADY_ROUNDS"
_PACKAGE = os.sep + "p2pclust" + os.sep


class Counted(attached.Driven):
    """A peer of a testbed that counts what some of its rounds call."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self.unread_phases = PHASES  # as on a device
        compute._QUICK_S = 1.0  # counting takes time: each task stays on the loop all the same
        self._profile = cProfile.Profile()
        self._adopted, self._role, self._most = 0, "follower", int(os.environ[_ROUNDS])

    def begin(self, *of: Any) -> None:
        shell = of[0]
        super().begin(*of)
        driven = shell.before

        def before(effect: Effect) -> None:
            driven(effect)
            if isinstance(effect, Compute):
                if isinstance(effect.token, TermToken):
                    self._role = "aggregator"
                elif isinstance(effect.task, TakePads):
                    self._role = "keeper"
                if isinstance(effect.task, Contribute):
                    self._round()

        shell.before = before

    def _round(self) -> None:
        self._adopted += 1
        if self._adopted == _FIRST:
            self._profile.enable()
        elif self._adopted == _FIRST + self._most:
            self._profile.disable()
            counts = []
            for entry in self._profile.getstats():
                code = entry.code
                of = [code.co_filename, code.co_firstlineno, code.co_qualname] if isinstance(code, CodeType) else None
                counts.append([of, entry.callcount])
            name = str(self.config["name"])
            Path(os.environ[_OUT], name).write_text(json.dumps([self._role, counts]))


def counted_rounds(folder: Path, n_peers: int, n_rounds: int, *, secure: bool) -> dict[str, list[Any]]:
    """Run a job on real peers; return by role what each peer counted."""
    from rounds import peers_of, request_of

    from p2pclust.lab.testbed.spec import FleetSpec

    folder.mkdir()
    os.environ |= {_OUT: str(folder), _ROUNDS: str(n_rounds), "PYTHONPATH": str(Path(__file__).parent)}
    request = request_of(2 * _FIRST + n_rounds, secure=secure)
    preload = fleet.preload
    with mock.patch.object(fleet, "preload", lambda jobs: (*preload(jobs), "steady_calls")):
        result = fleet.carry_out(FleetSpec(peers_of(n_peers), (request,), timing="wan"), lambda event: None)
    assert not result.failure, result.failure
    found: dict[str, list[Any]] = {}
    for path in sorted(folder.iterdir()):
        role, counts = json.loads(path.read_text())
        found.setdefault(role, []).append(counts)
    return found


def per_round(counts: list[Any], n_rounds: int) -> dict[str, Any]:
    """Return the sums of what one peer counted, and its functions by calls in a round."""
    calls = dict.fromkeys(("calls", "code objects", "others", "C"), 0.0)
    functions: dict[str, float] = {}
    for code, count in counts:
        each = count / n_rounds
        where = "" if code is None else code[0]
        if count < n_rounds or f"{_PACKAGE}lab{os.sep}" in where or where == __file__:
            continue
        if code is None:
            calls["C"] += each
        elif _PACKAGE in where:
            calls["calls"] += each
            calls["code objects"] += 1
            functions[f"{where.rpartition(_PACKAGE)[2]}:{code[1]} {code[2]}"] = each
        else:
            calls["others"] += each
    return {**calls, "functions": functions}


def main() -> None:
    """Print the table, and with `--functions` what is called most."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--functions", type=int, default=0)
    options = parser.parse_args()
    print(f"{'':22}{'calls':>9}{'code objects':>14}{'others':>9}{'C':>9}")
    for secure in (False, True):
        kind = "secured" if secure else "plain"
        with tempfile.TemporaryDirectory() as directory:
            found = counted_rounds(Path(directory, kind), options.peers, options.rounds, secure=secure)
        for role, peers in sorted(found.items()):
            each = [per_round(counts, options.rounds) for counts in peers]
            row = [statistics.median(one[name] for one in each) for name in ("calls", "code objects", "others", "C")]
            print(f"{role + ', ' + kind:22}{row[0]:9.0f}{row[1]:14.0f}{row[2]:9.0f}{row[3]:9.0f}", flush=True)
            functions = sorted(each[0]["functions"].items(), key=lambda item: -item[1])
            for name, count in functions[: options.functions]:
                print(f"    {count:7.1f} {name}")


if __name__ == "__main__":
    main()
elif _OUT in os.environ:  # in a process that forks peers
    attached.Driven = Counted  # type: ignore[misc]
    attached.RoundViews = lambda *of: None  # type: ignore[misc, assignment] - it reads states for the testbed
