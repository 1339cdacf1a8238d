"""``p2pclust simulate``: test simulated fleets in virtual time, over many seeds on all cores."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from p2pclust._version import __version__
from p2pclust.cli.show.options import AsJson, OnScheduler
from p2pclust.cli.show.output import put_json, stderr, stdout, table
from p2pclust.errors import UsageError
from p2pclust.lab.commands.seeds import (
    ALL,
    PROTOCOLS,
    Asked,
    Finding,
    KeptFindings,
    asked_of,
    explore,
    in_worker,
    try_seeds,
)
from p2pclust.lab.commands.show.bar import progress_bar
from p2pclust.lab.simulation.mixture import RECOVERIES, least, rare
from p2pclust.tools.dask import Scheduler
from p2pclust.tools.spelling import command
from p2pclust.tools.workers import in_processes, n_cores

if TYPE_CHECKING:
    from rich.console import Console

_STORIES = 3


def simulate(
    seeds: Annotated[str, typer.Option(metavar="A:B", help="The seeds from A to B - 1.")],
    mutant: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Plant this bug, to check that it is found in its swarm; a wrong name lists all."
        ),
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="all: each seed belongs to one of the following. any: it draws a world of its own, with any jobs and "
            "faults; any-core: only a majority of it recovers; any-long: it lasts for 10,000 s; cuts, terms, disks, "
            "disks-core, forgers, rosters: many faults of a few kinds. Of one kind of job: fedcref: peers run child jobs; "
            "leaderless: gossip without an aggregator; cancel: the job is cancelled; series: it is repeated; lasting: only "
            "a majority recovers, and the others hang, flap or stay cut off; secure: secure sums; secure_groups: those of "
            "fixed groups; verified: all check each state, and one lies; clients: several of them ask different peers, and "
            "answers are lost; by default llf-cm or llf-fcm, as drawn.",
        ),
    ] = None,
    overlay: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="sparse: lines, rings, stars and trees; moving: links appear and disappear; by default a full mesh.",
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Processes at the same time; default one per core.")
    ] = None,
    scheduler: OnScheduler = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keep the results of seeds in this file, and run only those that it lacks."),
    ] = None,
    minimise: Annotated[
        bool,
        typer.Option("--minimise", help="Of the first seed of any that fails: find the smallest world that fails too."),
    ] = False,
    seed_trace: Annotated[
        bool, typer.Option("--seed-trace", help="Print each seed with the hash of its trace.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Test fleets of simulated peers under message loss, cuts, crashes and lost disks.

    Each seed draws a fleet, its network and its faults; invariants are checked all the time. Prints how often each fault
    happened, and for a seed that fails the reason and the command that replays it. Exits with 1 if a seed failed, or if
    1,000 or more seeds of all swarms met a way of recovering less often than 20 times in 1,000. With --mutant all, each
    planted bug is looked for in the swarm that should find it, and a table has the seeds.

    \b
    Examples:
      p2pclust simulate --seeds 0:20
      p2pclust simulate --seeds 17:18
      p2pclust simulate --seeds 0:100 --protocol fedcref
      p2pclust simulate --seeds 0:100 --overlay sparse
      p2pclust simulate --seeds 0:30000 --protocol all --resume seeds.jsonl
      p2pclust simulate --seeds 0:30000 --protocol all --resume seeds.jsonl --scheduler tcp://10.0.0.1:8786
      p2pclust simulate --seeds 0:300 --mutant all
    """
    first, last = _range(seeds)
    if seed_trace and as_json:
        raise UsageError("--seed-trace and --json both write to standard output: choose one")
    if scheduler is not None and jobs is not None:
        raise UsageError("--jobs is for this machine, --scheduler has its own workers: choose one")
    workers = jobs or n_cores() if scheduler is None else Scheduler(scheduler)
    if mutant == "all":
        raise typer.Exit(_all_bugs(range(first, last), workers, as_json=as_json))
    asked = _checked(Asked(protocol, mutant, overlay))
    if last == first + 1 and not as_json:
        _show_world(first, asked)
    findings = _findings(range(first, last), asked, workers, resume)
    if seed_trace:
        for finding in findings:
            typer.echo(f"{finding.seed} {finding.trace}")
    if as_json:
        put_json(_summary(first, last, asked, findings))
    else:
        _show(stderr() if seed_trace else stdout(), findings, asked)
    failed = [finding for finding in findings if finding.failure]
    if minimise and failed:
        _show_smallest(failed[0], asked)
    if failed or _rare(findings, asked):
        raise typer.Exit(1)


def _show_world(seed: int, asked: Asked) -> None:
    from p2pclust.lab.simulation.fleets.run import planned  # noqa: PLC0415

    asked = asked_of(seed, asked)
    for line in planned(seed, asked.protocol or "", asked.overlay or "").lines():
        stdout().print(line, soft_wrap=True)


def _show_smallest(failed: Finding, asked: Asked) -> None:
    """Find the smallest world that breaks the same promise, and print its story."""
    from p2pclust.lab.simulation.fleets.minimise import broken  # noqa: PLC0415
    from p2pclust.lab.simulation.fleets.run import explained  # noqa: PLC0415

    asked = asked_of(failed.seed, asked)
    stderr().print(f"\nthe smallest world found in which {broken(failed.failure)} is broken:")
    story = explained(failed.seed, asked.protocol or "", asked.overlay or "", failed.failure, asked.mutant)
    for line in story:
        stderr().print(line, soft_wrap=True)


def _findings(seeds: range, asked: Asked, workers: int | Scheduler, resume: Path | None) -> list[Finding]:
    """Run the seeds that a file of earlier results lacks, and return all findings in the order of seeds."""
    kept = KeptFindings(resume, asked)
    findings = [finding for finding in kept.load() if finding.seed in seeds]
    known = {finding.seed for finding in findings}
    left = [seed for seed in seeds if seed not in known]
    few = workers if isinstance(workers, Scheduler) else min(workers, len(left))
    running = explore(left, asked, few) if left else iter(())
    with progress_bar("seeds", len(seeds)) as advance, kept:
        for finding in running:
            findings.append(finding)
            kept.add(finding)
            advance(completed=len(findings))
    return sorted(findings, key=lambda finding: finding.seed)


def _all_bugs(seeds: range, workers: int | Scheduler, *, as_json: bool) -> int:
    found: list[BugFound] = []
    with progress_bar("bugs", len(bug_names())) as advance:
        for one in look_for_all(seeds, workers):
            found.append(one)
            advance(completed=len(found))
    if as_json:
        put_json([one._asdict() for one in found])
    else:
        columns = ("planted bug", "swarm", "seed", "promise broken")
        made = table(columns, right=("seed",), wrap=(columns[0], columns[-1]))
        for one in found:
            made.add_row(one.bug, one.swarm or "default", "-" if one.seed is None else f"{one.seed}", one.broken)
        stdout().print(made)
    return int(any(one.seed is None for one in found))


def _range(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,18}):(\d{1,18})", text)
    if match is None or int(match[1]) >= int(match[2]):
        raise UsageError(f"--seeds {text}: expected A:B with A below B, such as 0:300")
    return int(match[1]), int(match[2])


def _checked(asked: Asked) -> Asked:
    """Return what is asked for; a planted bug is looked for in its own swarm, if no other is named."""
    from p2pclust.lab.simulation.swarms.bugs import BUGS  # noqa: PLC0415

    if asked.mutant is not None and asked.mutant not in BUGS:
        raise UsageError(f"--mutant {asked.mutant}: expected all, or one of {', '.join(BUGS)}")
    swarm = BUGS.get(asked.mutant or "", "")
    asked = asked._replace(protocol=asked.protocol or swarm or None)
    protocol = asked.protocol
    if asked.overlay not in (None, "sparse", "moving"):
        raise UsageError(f"--overlay {asked.overlay}: expected sparse or moving, or nothing for a full mesh")
    from p2pclust.lab.simulation.fleets.run import OF_ANY_KIND  # noqa: PLC0415

    if protocol in ("fedcref", ALL) or (protocol in OF_ANY_KIND and not OF_ANY_KIND[protocol].jobs):
        from p2pclust.clustering.stacks import require_torch  # noqa: PLC0415

        require_torch()
    elif protocol not in (None, *PROTOCOLS):
        raise UsageError(f"--protocol {protocol}: expected one of {', '.join(PROTOCOLS)}, or nothing")
    if asked.overlay and protocol in (ALL, *OF_ANY_KIND):
        raise UsageError(f"--overlay: each seed of {protocol} draws its own")
    if swarm not in ("", protocol) and protocol not in OF_ANY_KIND:
        raise UsageError(f"--mutant {asked.mutant}: --protocol {protocol} cannot find it: leave --protocol out")
    return asked


def _replay(seed: int, asked: Asked) -> str:
    asked = asked if asked.mutant else asked_of(seed, asked)
    options = [(f"--{name}", value) for name, value in asked._asdict().items() if value]
    return command("p2pclust", "simulate", "--seeds", f"{seed}:{seed + 1}", *chain(*options))


def _rare(findings: list[Finding], asked: Asked) -> dict[str, int]:
    """Return the ways of recovering that the seeds of all swarms have met too rarely to prove anything."""
    return rare(_counts(findings), len(findings)) if asked.protocol == ALL and not asked.mutant else {}


def _counts(findings: list[Finding]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for finding in findings:
        total.update(finding.counts)
    return dict(sorted(total.items()))


def _summary(first: int, last: int, asked: Asked, findings: list[Finding]) -> dict[str, Any]:
    failed = [
        {"seed": finding.seed, "failure": finding.failure, "replay": _replay(finding.seed, asked)}
        for finding in findings
        if finding.failure
    ]
    return {
        "seeds": [first, last], **asked._asdict(), "counts": _counts(findings), "rare": _rare(findings, asked),
        "virtual_seconds": sum(finding.virtual_s for finding in findings),
        "events": sum(finding.n_events for finding in findings),
        "cpu_seconds": round(sum(finding.cpu_s for finding in findings), 1), "failed": failed,
    }  # fmt: skip


def _show(console: Console, findings: list[Finding], asked: Asked) -> None:
    n = least(len(findings)) if asked.protocol == ALL and not asked.mutant else 0
    needed = dict.fromkeys(RECOVERIES, f"{n}") if n else {}
    counts = dict.fromkeys(needed, 0) | _counts(findings)
    rows = ((what, f"{times}", needed.get(what, "")) for what, times in sorted(counts.items()))
    headings = ("what happened", "times", "at least") if needed else ("what happened", "times")
    console.print(table(headings, (row[: len(headings)] for row in rows), right=headings[1:]))
    for what, times in _rare(findings, asked).items():
        console.print(f"too rare: {what}, {times} times, expected at least {needed[what]}", style="bold")
    failed = [finding for finding in findings if finding.failure]
    for finding in failed[:_STORIES]:
        console.print(f"\nseed {finding.seed} failed: {finding.failure}", soft_wrap=True)
        console.print(f"replay it: {_replay(finding.seed, asked)}", style="bold", soft_wrap=True)
    if len(failed) > _STORIES:
        seeds = ", ".join(f"{finding.seed}" for finding in failed[_STORIES:])
        console.print(f"\nthese failed too: {seeds}", soft_wrap=True)
    virtual_h = sum(finding.virtual_s for finding in findings) / 3600
    cpu_s, n_events = sum(finding.cpu_s for finding in findings), sum(finding.n_events for finding in findings)
    work = f"{n_events / 1e6:.1f} million events in {cpu_s:.0f} s of processor time"
    console.print(f"\n{len(findings)} seeds, {virtual_h:.1f} hours of virtual time, {work}: {len(failed)} failed")


class BugFound(NamedTuple):
    """Where a planted bug was found."""

    bug: str
    swarm: str  # as ``--protocol`` has it; empty: the default one
    seed: int | None  # None: it was not found
    broken: str  # the promise that it broke, and how


def bug_names() -> list[str]:
    """Return the names of all planted bugs."""
    from p2pclust.lab.simulation.swarms.bugs import BUGS  # noqa: PLC0415

    return list(BUGS)


def look_for_all(seeds: range, workers: int | Scheduler) -> Iterator[BugFound]:
    """Look for each bug in the swarm that should find it, seed after seed, until it is found."""
    tasks = [(name, seeds) for name in bug_names()]
    if isinstance(workers, Scheduler):
        edition = f"{__version__}-{seeds.start}:{seeds.stop}"
        texts = {f"p2pclust-bug-{edition}-{name}": json.dumps([name, seeds.start, seeds.stop]) for name, _ in tasks}
        for _, line in workers.do(_look_for_text, texts, what="a planted bug", advice="try fewer seeds"):
            yield BugFound(*json.loads(line))
    elif workers <= 1:
        yield from (_look_for(task) for task in tasks)
    else:
        for _, found in in_processes(_look_for, tasks, workers, advice="run again with --jobs 1 to see why"):
            yield found


def _look_for_text(text: str) -> str:
    """Look for the bug that a text names, in a worker of Dask; return what was found as a line of JSON."""
    name, first, last = json.loads(text)
    with in_worker():
        return json.dumps(_look_for((name, range(first, last))))


def _look_for(task: tuple[str, range]) -> BugFound:
    from p2pclust.lab.simulation.swarms.bugs import BUGS  # noqa: PLC0415

    name, seeds = task
    swarm = BUGS[name]
    for finding in try_seeds(seeds, Asked(swarm or None, name)):
        if finding.failure:
            lines = finding.failure.splitlines()
            return BugFound(name, swarm, finding.seed, lines[-1 if lines[0].startswith("Traceback") else 0][:60])
    return BugFound(name, swarm, None, "")
