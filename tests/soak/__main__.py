"""``python -m tests.soak``: jobs one after another on real processes, while peers are killed, stopped and cut off.

Everything is drawn from one seed, which is printed; instants depend on the machine. Each job's bits are compared with the
replay of its record, and what all clients saw is checked as in ``p2pclust simulate --protocol clients``. With ``--kills N``
peers are only killed (SIGKILL, at random moments), until that many were; ``--resume FILE`` keeps a line for each job, so
that the kills can be made in pieces. Exits with 1 if a promise was broken.

    python -m tests.soak --seconds 600
    python -m tests.soak --kills 200 --resume kills.jsonl --seconds 300
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.soak.faults import KILLS, Mix
from tests.soak.peers import can_isolate
from tests.soak.run import JobLine, Options, Report, Soak, kept_lines

from p2pclust.cli.show.output import stdout, table

_INSIDE = "P2PCLUST_SOAK_INSIDE"  # set in a process that has namespaces of its own


def main(words: Sequence[str] | None = None) -> int:
    """Run a soak, print its table, and return the exit code."""
    asked = _arguments(words)
    isolated = asked.backend != "processes" and not asked.kills
    if isolated and not can_isolate():
        _enter_namespaces(required=asked.backend == "namespaces")
        isolated = False
    lines = _kept(asked.resume)
    done = sum(line.kills for line in lines)
    if asked.kills and done >= asked.kills:
        _say(f"{done} of {asked.kills} kills are in {asked.resume}, {_bad(lines)} of {len(lines)} jobs broke a promise")
        return int(bool(_bad(lines)))
    seed = asked.seed if asked.seed is not None else secrets.randbelow(10**6)
    options = Options(
        seed, asked.seconds, KILLS if asked.kills else Mix(), max(0, asked.kills - done), asked.peers, isolated=isolated,
        cancels=0.0 if asked.kills else 0.2, nice=asked.nice,
    )  # fmt: skip
    where = "network namespaces" if isolated else "loopback, without cuts"
    sys.stderr.write(f"seed {seed}; {asked.peers} peers on {where}; {asked.seconds:g} s\n")
    home = Path(tempfile.mkdtemp(prefix="p2pclust-soak-"))
    with kept_lines(asked.resume) as keep:
        report = Soak(options, home, keep).go()
        for violation in report.violations:
            if not any(line.violation in violation for line in report.jobs if line.violation):
                keep(JobLine(seed, "", "", "", 0, violation))  # of no single job
    _show(report)
    if asked.kills:
        lines = _kept(asked.resume) or report.jobs
        kills = sum(line.kills for line in lines)
        _say(f"{kills} of {asked.kills} kills in {len(lines)} jobs, {_bad(lines)} of them broke a promise")
    if report.violations:
        _say(f"the logs, stores and the list of faults are kept in {home}")
        return 1
    shutil.rmtree(home)
    return 0


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=600.0, help="how long faults happen; default 600")
    parser.add_argument("--seed", type=int, help="default: a random one, which is printed")
    parser.add_argument("--peers", type=int, default=5)
    parser.add_argument("--kills", type=int, default=0, help="only kill -9, and end after so many")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="keep each job's line, and count its kills")
    parser.add_argument("--backend", choices=["namespaces", "processes"], help="default: namespaces where possible")
    parser.add_argument("--nice", type=int, default=0, help="of the peers")
    return parser.parse_args(words)


def _enter_namespaces(*, required: bool) -> None:
    """Run again as root of a user namespace, where network namespaces can be made; return if that is impossible."""
    if os.environ.get(_INSIDE) is None and shutil.which("unshare") and shutil.which("ip"):
        within = 'mount -t tmpfs none /run && exec "$@"'
        again = [sys.executable, "-m", "tests.soak", *sys.argv[1:]]
        os.environ[_INSIDE] = "1"
        os.execvp("unshare", ["unshare", "-Urnm", "sh", "-c", within, "sh", *again])
    if required:
        sys.exit("network namespaces cannot be made here: run it as root, or choose --backend processes")


def _kept(path: Path | None) -> list[JobLine]:
    if path is None or not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(JobLine(**json.loads(line)))
        except (ValueError, TypeError):
            continue  # a run that was stopped while it wrote
    return found


def _bad(lines: list[JobLine]) -> int:
    return sum(bool(line.violation) for line in lines)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


def _show(report: Report) -> None:
    """Print what came of a soak."""
    outcomes = [line.outcome for line in report.jobs]
    rows = [
        ("jobs, one after another", f"{len(report.jobs)}"),
        ("of these cancelled", f"{outcomes.count('cancelled')}"),
    ]
    rows += [(what, f"{times}") for what, times in sorted(report.counts.items())]
    rows += [("jobs of clients, meanwhile", f"{report.other_jobs}")]
    rows += [("operations of clients", f"{report.operations}"), ("violations", f"{len(report.violations)}")]
    console = stdout()
    console.print(table(("what happened", "times"), rows, right=("times",)))
    shown = []
    for name in sorted(report.meters.samples):
        drift, last = report.meters.drift_mb_per_hour(name), report.meters.last(name)
        if last is not None:
            slope = "-" if drift is None else f"{drift:+.1f}"
            figures = (f"{last.rss_mb:.0f}", slope, f"{last.descriptors}", f"{last.tasks}", f"{last.store_mb:.1f}")
            shown.append((name, f"{last.life}", *figures))
    head = ("peer", "lives", "MB", "MB per hour", "descriptors", "tasks", "store MB")
    console.print(table(head, shown, right=head[1:]))
    for violation in report.violations:
        _say(violation)
    _say(report.processor.line())
    verdict = "broken" if report.violations else "every promise was kept"
    _say(f"seed {report.options.seed}, {report.seconds:.0f} s: {verdict}")


if __name__ == "__main__":
    sys.exit(main())
