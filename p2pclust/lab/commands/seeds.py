"""``p2pclust simulate``: test simulated fleets in virtual time, over many seeds on all cores."""

from __future__ import annotations

import contextlib
import gc
import json
import re
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer
from rich.console import Console
from threadpoolctl import threadpool_limits

from p2pclust.cli.show.options import AsJson, OnScheduler, flag, option
from p2pclust.cli.show.output import put_json, stderr, stdout, table
from p2pclust.clustering.stacks import require_torch
from p2pclust.errors import UsageError
from p2pclust.lab.commands.show.bar import progress_bar
from p2pclust.lab.simulation.deaths import PHASES, Death
from p2pclust.lab.simulation.deaths import deaths as deaths_of
from p2pclust.lab.simulation.fleets.bugs import BUGS, planted
from p2pclust.lab.simulation.fleets.plan import broken
from p2pclust.lab.simulation.fleets.run import OF_ANY_KIND, RECOVERIES, explained, kind_of, least, planned, rare, run
from p2pclust.lab.workers import Scheduler, kept_in, spread
from p2pclust.protocols.secure.parameters import LEAST_PEERS
from p2pclust.tools.platforms import n_cores
from p2pclust.tools.spelling import command

_STORIES: Final = 3


@dataclass(frozen=True)
class Finding:
    """The result of one seed; `failure` is empty if it passed."""

    seed: int
    failure: str
    trace: str
    virtual_s: float
    n_events: int
    counts: Mapping[str, int]
    cpu_s: float = 0.0


class Asked(NamedTuple):
    """The options of ``p2pclust simulate`` that choose what is tried."""

    protocol: str | None = None  # one of `PROTOCOLS`; otherwise llf-cm or llf-fcm on few peers
    mutant: str | None = None
    overlay: str | None = None  # "sparse" or "moving"; otherwise a full mesh


_DIED: Final = "run again with --jobs 1 to see why"
#: A simulated fleet is many objects that stay, and looking at them often takes a tenth of the time.
_OBJECTS_BETWEEN_COLLECTIONS: Final = 50_000
_simulating = threading.Lock()
#: Each seed belongs to one of the others.
ALL: Final = "all"
PROTOCOLS: Final = (
    ALL, "any", "any-core", "any-long", "cuts", "terms", "disks", "disks-core", "forgers", "liars", "rosters", "fedcref",
    "leaderless", "cancel", "series", "turns", "lasting", "secure", "secure_groups", "gaps", "mixture", "describe",
    "verified", "clients",
)  # fmt: skip


def simulate(
    seeds: Annotated[str, option("A:B", "The seeds from A to B - 1.")],
    mutant: Annotated[
        str | None, option("NAME", "Plant this bug, to check that it is found in its swarm; a wrong name lists all.")
    ] = None,
    protocol: Annotated[
        str | None,
        option(
            "ID",
            "all: each seed belongs to one of the following. any: it draws a world of its own, with any jobs and "
            "faults; any-core: only a majority of it recovers; any-long: it lasts for 10,000 s; cuts, terms, disks, "
            "disks-core, forgers, liars (up to a minority), rosters: many faults of a few kinds. Of one kind of job: "
            "fedcref: peers run child jobs; leaderless: gossip without an aggregator; cancel: the job is cancelled; "
            "series: it is repeated; turns: and liars make up turns; lasting: only a majority recovers, and the others "
            "hang, flap or stay cut off; secure: secure sums; secure_groups: those of fixed groups; gaps: rows with "
            "missing cells; mixture: mixtures of Gaussians; describe: a description of the table; verified: all check each "
            "state, and one lies; clients: several of them ask different peers, and answers are lost; by default llf-cm or "
            "llf-fcm, as drawn.",
        ),
    ] = None,
    overlay: Annotated[
        str | None,
        option(
            "KIND", "sparse: lines, rings, stars and trees; moving: links appear and disappear; by default a full mesh."
        ),
    ] = None,
    jobs: Annotated[int | None, option("N", "Processes at the same time; default one per core.", min=1)] = None,
    scheduler: OnScheduler = None,
    resume: Annotated[
        Path | None, option("FILE", "Keep the results of seeds in this file, and run only those that it lacks.")
    ] = None,
    minimise: Annotated[
        bool, flag("--minimise", "Of the first seed of any that fails: find the smallest world that fails too.")
    ] = False,
    seed_trace: Annotated[bool, flag("--seed-trace", "Print each seed with the hash of its trace.")] = False,
    deaths: Annotated[
        str | None,
        option(
            "N,N",
            "Instead: let one peer die in each phase of a job with default options, in fleets of these sizes, and of "
            "the same job without secure sums.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Test fleets of simulated peers under message loss, cuts, crashes and lost disks.

    Each seed draws a fleet, its network and its faults; each event is checked. Prints how often each fault
    happened, and for a seed that fails the reason and the command that replays it. Exits with 1 if a seed failed, or if
    1,000 or more seeds of all swarms met a way of recovering less often than 20 times in 1,000. With --mutant all, each
    planted bug is looked for in the swarm that should find it, and a table has the seeds. With --deaths, a table has the
    jobs that the others did not end, those whose results list the dead peer as exposed, and another one, and those that
    failed.

    \b
    Examples:
      p2pclust simulate --seeds 0:20
      p2pclust simulate --seeds 17:18
      p2pclust simulate --seeds 0:100 --protocol fedcref
      p2pclust simulate --seeds 0:100 --overlay sparse
      p2pclust simulate --seeds 0:30000 --protocol all --resume seeds.jsonl
      p2pclust simulate --seeds 0:30000 --protocol all --resume seeds.jsonl --scheduler tcp://10.0.0.1:8786
      p2pclust simulate --seeds 0:300 --mutant all
      p2pclust simulate --seeds 0:60 --deaths 4,7,20
    """
    match = re.fullmatch(r"(\d{1,18}):(\d{1,18})", seeds)
    if match is None or int(match[1]) >= int(match[2]):
        raise UsageError(f"--seeds {seeds}: expected A:B with A below B, such as 0:300")
    tried = range(int(match[1]), int(match[2]))
    if seed_trace and as_json:
        raise UsageError("--seed-trace and --json both write to standard output: choose one")
    if scheduler is not None and jobs is not None:
        raise UsageError("--jobs is for this machine, --scheduler has its own workers: choose one")
    workers = jobs or n_cores() if scheduler is None else Scheduler(scheduler)
    if deaths is not None:
        raise typer.Exit(_show_deaths(tried, deaths, workers, as_json=as_json))
    if mutant == "all":
        raise typer.Exit(_find_all_bugs(tried, workers, as_json=as_json))
    asked = _checked(Asked(protocol, mutant, overlay))
    if len(tried) == 1 and not as_json:
        _show_world(tried[0], asked)
    findings = _findings_of(tried, asked, workers, resume)
    if seed_trace:
        for finding in findings:
            typer.echo(f"{finding.seed} {finding.trace}")
    if as_json:
        put_json(_summary(tried, asked, findings))
    else:
        _show(stderr() if seed_trace else stdout(), findings, asked)
    failed = [finding for finding in findings if finding.failure]
    if minimise and failed:
        _show_world(failed[0].seed, asked, failed[0].failure)
    if failed or _met_rarely(findings, asked):
        raise typer.Exit(1)


def asked_of(seed: int, asked: Asked) -> Asked:
    """Return the options that run a seed without ``all``.

    >>> asked_of(3, Asked("all"))
    Asked(protocol=None, mutant=None, overlay='sparse')
    """
    protocol, overlay = kind_of(seed)
    return Asked(protocol, asked.mutant, overlay) if asked.protocol == ALL else asked


def try_seeds(seeds: range, asked: Asked = Asked()) -> Iterator[Finding]:  # noqa: B008 - immutable
    """Run seeds one after another in this process.

    >>> [finding.failure for finding in try_seeds(range(1))]
    ['']
    """
    with planted(asked.mutant) if asked.mutant else contextlib.nullcontext():
        for seed in seeds:
            begun = time.process_time()
            try:
                of = asked_of(seed, asked)
                outcome = run(seed, of.protocol or "", of.overlay or "")
            except ModuleNotFoundError:
                raise  # the worker's machine lacks an extra
            except Exception:  # noqa: BLE001 - a crash of the agent is a finding, reported with its traceback
                yield Finding(seed, traceback.format_exc(), "", 0.0, 0, {}, time.process_time() - begun)
            else:
                yield Finding(
                    seed, outcome.failure, outcome.trace, outcome.virtual_s, outcome.n_events, dict(outcome.counts),
                    time.process_time() - begun,
                )  # fmt: skip


def explore(seeds: Sequence[int], asked: Asked, workers: int | Scheduler) -> Iterator[Finding]:
    """Run seeds, in any order."""
    texts = [json.dumps([seed, *asked]) for seed in seeds]
    advice = "--resume FILE keeps those that are finished"
    for _, found in spread(_try_one, texts, workers, what="a seed", advice=advice, died=_DIED):
        yield found


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Let nothing else simulate in this process, and linear algebra have one thread.

    A worker of Dask may have several threads, and a planted bug changes the modules of the whole process.
    """
    before = gc.get_threshold()
    with _simulating, threadpool_limits(limits=1):
        gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
        try:
            yield
        finally:
            gc.set_threshold(*before)


def _try_one(text: str) -> Finding:
    seed, *asked = json.loads(text)
    with _alone():
        return next(try_seeds(range(seed, seed + 1), Asked(*asked)))


def _show_world(seed: int, asked: Asked, failure: str = "") -> None:
    """Print the world of a seed; or of a failure, the story of the smallest one that breaks the same promise."""
    of = asked_of(seed, asked)
    console = stderr() if failure else stdout()
    if failure:
        console.print(f"\nthe smallest world found in which {broken(failure)} is broken:")
        lines = explained(seed, of.protocol or "", of.overlay or "", failure, asked.mutant)
    else:
        lines = planned(seed, of.protocol or "", of.overlay or "").lines()
    for line in lines:
        console.print(line, soft_wrap=True)


def _findings_of(seeds: range, asked: Asked, workers: int | Scheduler, resume: Path | None) -> list[Finding]:
    """Run the seeds that a file of earlier results lacks, and return all findings in the order of seeds."""
    findings: list[Finding] = []

    def read(number: int, line: dict[str, Any]) -> None:
        others, finding = line.pop("asked"), Finding(**line)
        if others != asked._asdict():
            raise UsageError(f"--resume {resume}: line {number} is of other options: {others}")
        if finding.seed in seeds:
            findings.append(finding)

    kept = (
        kept_in(resume, read, of="simulation", option="--resume") if resume else contextlib.nullcontext(lambda _: None)
    )
    with progress_bar("seeds", len(seeds)) as advance, kept as keep:
        known = {finding.seed for finding in findings}
        left = [seed for seed in seeds if seed not in known]
        for finding in explore(left, asked, workers) if left else ():
            findings.append(finding)
            keep({"asked": asked._asdict(), **asdict(finding)})
            advance(completed=len(findings))
    return sorted(findings, key=lambda finding: finding.seed)


def _find_all_bugs(seeds: range, workers: int | Scheduler, *, as_json: bool) -> int:
    """Look for each bug in the swarm that should find it, seed after seed; print where it was found; 1 if one was not."""
    found: list[BugFound] = []
    texts = [json.dumps([name, seeds.start, seeds.stop]) for name in BUGS]
    what, advice = "a planted bug", "try fewer seeds"
    with progress_bar("bugs", len(texts)) as advance:
        for _, one in spread(_look_for, texts, workers, what=what, advice=advice, died=_DIED):
            found.append(one)
            advance(completed=len(found))
    if as_json:
        put_json([one._asdict() for one in found])
    else:
        columns = ("planted bug", "swarm", "seed", "promise broken")
        rows = (
            (one.bug, one.swarm or "default", f"{'-' if one.seed is None else one.seed}", one.broken) for one in found
        )
        stdout().print(table(columns, rows, right=("seed",), wrap=(columns[0], columns[-1])))
    return int(any(one.seed is None for one in found))


def _checked(asked: Asked) -> Asked:
    """Return what is asked for; a planted bug is looked for in its own swarm, if no other is named."""
    if asked.mutant is not None and asked.mutant not in BUGS:
        raise UsageError(f"--mutant {asked.mutant}: expected all, or one of {', '.join(BUGS)}")
    swarm = BUGS.get(asked.mutant or "", "")
    asked = asked._replace(protocol=asked.protocol or swarm or None)
    protocol = asked.protocol
    if asked.overlay not in (None, "sparse", "moving"):
        raise UsageError(f"--overlay {asked.overlay}: expected sparse or moving, or nothing for a full mesh")
    if protocol in ("fedcref", ALL) or (protocol in OF_ANY_KIND and not OF_ANY_KIND[protocol].jobs):
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


def _met_rarely(findings: list[Finding], asked: Asked) -> dict[str, int]:
    """Return the ways of recovering that the seeds of all swarms have met too rarely to prove anything."""
    return rare(_counts(findings), len(findings)) if asked.protocol == ALL and not asked.mutant else {}


def _counts(findings: list[Finding]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for finding in findings:
        total.update(finding.counts)
    return dict(sorted(total.items()))


def _summary(seeds: range, asked: Asked, findings: list[Finding]) -> dict[str, Any]:
    """Return the object of ``--json``."""
    failed = [
        {"seed": finding.seed, "failure": finding.failure, "replay": _replay(finding.seed, asked)}
        for finding in findings
        if finding.failure
    ]
    return {
        "seeds": [seeds.start, seeds.stop], **asked._asdict(),
        "counts": _counts(findings), "rare": _met_rarely(findings, asked),
        "virtual_seconds": sum(finding.virtual_s for finding in findings),
        "events": sum(finding.n_events for finding in findings),
        "cpu_seconds": round(sum(finding.cpu_s for finding in findings), 1), "failed": failed,
    }  # fmt: skip


def _show(console: Console, findings: list[Finding], asked: Asked) -> None:
    """Print how often each fault happened, the seeds that failed, and how to repeat them."""
    n = least(len(findings)) if asked.protocol == ALL and not asked.mutant else 0
    needed = dict.fromkeys(RECOVERIES, f"{n}") if n else {}
    counts = dict.fromkeys(needed, 0) | _counts(findings)
    rows = ((what, f"{times}", needed.get(what, "")) for what, times in sorted(counts.items()))
    headings = ("what happened", "times", "at least") if needed else ("what happened", "times")
    console.print(table(headings, (row[: len(headings)] for row in rows), right=headings[1:]))
    for what, times in _met_rarely(findings, asked).items():
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
    bug: str
    swarm: str  # as ``--protocol`` has it; empty: the default one
    seed: int | None  # None: it was not found
    broken: str  # the promise that it broke, and how


def _look_for(text: str) -> BugFound:
    name, first, last = json.loads(text)
    swarm = BUGS[name]
    with _alone():
        for finding in try_seeds(range(first, last), Asked(swarm or None, name)):
            if finding.failure:
                lines = finding.failure.splitlines()
                return BugFound(name, swarm, finding.seed, lines[-1 if lines[0].startswith("Traceback") else 0][:60])
    return BugFound(name, swarm, None, "")


def _show_deaths(seeds: range, sizes: str, workers: int | Scheduler, *, as_json: bool) -> int:
    """Let one peer die in each phase of jobs; print a table; 1 if a job stalled or failed."""
    if re.fullmatch(r"\d{1,3}(,\d{1,3})*", sizes) is None or min(map(int, sizes.split(","))) < 3:
        raise UsageError(f"--deaths {sizes}: expected numbers of peers, 3 or more, such as 4,7,20")
    fleets = [
        (n, secure) for n in map(int, sizes.split(",")) for secure in (True, False) if n >= LEAST_PEERS or not secure
    ]
    texts = [json.dumps([seed, n, secure]) for n, secure in fleets for seed in seeds]
    found: dict[tuple[int, bool, str], list[Death]] = {}
    with progress_bar("jobs", len(texts)) as advance:
        runs = spread(_die, texts, workers, what="a job", advice="try fewer seeds", died=_DIED)
        for done, (text, outcomes) in enumerate(runs, 1):
            _, n, secure = json.loads(text)
            for one in outcomes:
                found.setdefault((n, secure, one.phase), []).append(one)
            advance(completed=done)
    rows = [
        {"peers": n, "secure": secure, "phase": phase, "runs": len(ones), **_died_of(ones)}
        for (n, secure) in fleets for phase in PHASES if (ones := found.get((n, secure, phase)))
    ]  # fmt: skip
    if as_json:
        put_json(rows)
    else:
        columns = [name.replace("_", " ") for name in rows[0]]
        shown = (
            [("secured" if row["secure"] else "plain") if name == "secure" else f"{row[name]}" for name in row]
            for row in rows
        )
        stdout().print(table(columns, shown, right=[name for name in columns if name not in ("secure", "phase")]))
    return int(any(one.stalled or one.lost for ones in found.values() for one in ones))


def _died_of(ones: Sequence[Death]) -> dict[str, int]:
    names = ("stalled", "exposed", "others_exposed", "lost")
    return {name: sum(getattr(one, name) for one in ones) for name in names}


def _die(text: str) -> list[Death]:
    seed, n_peers, secure = json.loads(text)
    with _alone():
        return list(deaths_of(seed, n_peers, secure=secure))
