"""Try many seeds of the simulator, on many cores, and show the findings."""

from __future__ import annotations

import contextlib
import gc
import json
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.console import Console

from p2pclust._version import __version__
from p2pclust.cli.show.output import put_json, stderr, stdout, table
from p2pclust.clustering.stacks import require_torch
from p2pclust.errors import UsageError
from p2pclust.lab.commands.show.bar import progress_bar
from p2pclust.lab.simulation.fleets.bugs import BUGS, planted
from p2pclust.lab.simulation.fleets.plan import broken
from p2pclust.lab.simulation.fleets.run import OF_ANY_KIND, RECOVERIES, explained, kind_of, least, planned, rare, run
from p2pclust.lab.workers import Scheduler, in_processes
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


Task = list[Any]

#: In a worker: a simulated fleet is many objects that stay, and looking at them often takes a tenth of the time.
_OBJECTS_BETWEEN_COLLECTIONS: Final = 50_000
_alone = threading.Lock()
#: Each seed belongs to one of the others.
ALL: Final = "all"
PROTOCOLS: Final = (
    ALL, "any", "any-core", "any-long", "cuts", "terms", "disks", "disks-core", "forgers", "rosters", "fedcref",
    "leaderless", "cancel", "series", "lasting", "secure", "secure_groups", "verified", "clients",
)  # fmt: skip


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
    advice = "--resume FILE keeps those that are finished"
    for found in spread(_try_one, [[seed, *asked] for seed in seeds], workers, what="a seed", advice=advice):
        yield Finding(**found)


def _try_one(task: Task) -> dict[str, Any]:
    seed, *asked = task
    return asdict(next(try_seeds(range(seed, seed + 1), Asked(*asked))))


def spread(
    do: Callable[[Task], Any], tasks: Sequence[Task], workers: int | Scheduler, *, what: str, advice: str
) -> Iterator[Any]:
    """Do tasks, in any order, and yield their results; tasks and results are plain values, and `do` is in a module.

    With one worker it happens in this process, for a debugger; with more in processes, or through Dask.
    """
    if isinstance(workers, Scheduler):
        where = [do.__module__, do.__name__]
        texts = {
            f"p2pclust-{__version__}-{do.__name__}-{json.dumps(task)}": json.dumps([*where, task]) for task in tasks
        }
        for _, line in workers.do(_in_dask, texts, what=what, advice=advice):
            yield json.loads(line)
    elif workers <= 1:
        yield from map(do, tasks)
    else:
        local = partial(_in_process, do)
        for _, found in in_processes(local, tasks, workers, advice="run again with --jobs 1 to see why"):
            yield found


def _in_process(do: Callable[[Task], Any], task: Task) -> Any:
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    return do(task)


def _in_dask(text: str) -> str:
    """Do the task that a text names, in a worker of Dask; return the result as a line of JSON.

    Such a worker may have several threads, and a planted bug changes the modules of the whole process: so nothing else
    simulates here at the same time, and linear algebra has one thread.
    """
    from threadpoolctl import threadpool_limits  # noqa: PLC0415 - loads the libraries that it limits

    module, name, task = json.loads(text)
    before = gc.get_threshold()
    with _alone, threadpool_limits(limits=1):
        gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
        try:
            return json.dumps(getattr(import_module(module), name)(task))
        finally:
            gc.set_threshold(*before)


def _kept(path: Path | None, asked: Asked) -> list[Finding]:
    """Read the results of a file, a line of JSON for each; a last line that is not whole is left out."""
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines() if path and path.exists() else (), 1):
        try:
            plain = json.loads(line)
            others, finding = plain.pop("asked"), Finding(**plain)
        except (ValueError, TypeError, KeyError, AttributeError):
            continue  # a run that was stopped while it wrote
        if others != asked._asdict():
            raise UsageError(f"--resume {path}: line {number} is of other options: {others}")
        found.append(finding)
    return found


@contextlib.contextmanager
def _keeping(path: Path | None, asked: Asked) -> Iterator[Callable[[Finding], None]]:
    """Yield a function that adds a result to the file; without a path it does nothing."""
    if path is None:
        yield lambda finding: None
        return
    try:
        whole = not path.exists() or path.read_bytes()[-1:] in (b"", b"\n")
        file = path.open("a", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--resume {path}: {error.strerror}") from error

    def keep(finding: Finding) -> None:
        file.write(json.dumps({"asked": asked._asdict(), **asdict(finding)}) + "\n")
        file.flush()

    with file:
        if not whole:
            file.write("\n")
        yield keep


def show_world(seed: int, asked: Asked, failure: str = "") -> None:
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


def findings_of(seeds: range, asked: Asked, workers: int | Scheduler, resume: Path | None) -> list[Finding]:
    """Run the seeds that a file of earlier results lacks, and return all findings in the order of seeds."""
    findings = [finding for finding in _kept(resume, asked) if finding.seed in seeds]
    known = {finding.seed for finding in findings}
    left = [seed for seed in seeds if seed not in known]
    few = workers if isinstance(workers, Scheduler) else min(workers, len(left))
    with progress_bar("seeds", len(seeds)) as advance, _keeping(resume, asked) as keep:
        for finding in explore(left, asked, few) if left else ():
            findings.append(finding)
            keep(finding)
            advance(completed=len(findings))
    return sorted(findings, key=lambda finding: finding.seed)


def find_all_bugs(seeds: range, workers: int | Scheduler, *, as_json: bool) -> int:
    """Look for each bug in the swarm that should find it, seed after seed; print where it was found; 1 if one was not."""
    found: list[BugFound] = []
    tasks = [[name, seeds.start, seeds.stop] for name in BUGS]
    with progress_bar("bugs", len(tasks)) as advance:
        for one in spread(_look_for, tasks, workers, what="a planted bug", advice="try fewer seeds"):
            found.append(BugFound(*one))
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


def checked(asked: Asked) -> Asked:
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


def met_rarely(findings: list[Finding], asked: Asked) -> dict[str, int]:
    """Return the ways of recovering that the seeds of all swarms have met too rarely to prove anything."""
    return rare(_counts(findings), len(findings)) if asked.protocol == ALL and not asked.mutant else {}


def _counts(findings: list[Finding]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for finding in findings:
        total.update(finding.counts)
    return dict(sorted(total.items()))


def summary(seeds: range, asked: Asked, findings: list[Finding]) -> dict[str, Any]:
    """Return the object of ``--json``."""
    failed = [
        {"seed": finding.seed, "failure": finding.failure, "replay": _replay(finding.seed, asked)}
        for finding in findings
        if finding.failure
    ]
    return {
        "seeds": [seeds.start, seeds.stop], **asked._asdict(),
        "counts": _counts(findings), "rare": met_rarely(findings, asked),
        "virtual_seconds": sum(finding.virtual_s for finding in findings),
        "events": sum(finding.n_events for finding in findings),
        "cpu_seconds": round(sum(finding.cpu_s for finding in findings), 1), "failed": failed,
    }  # fmt: skip


def show(console: Console, findings: list[Finding], asked: Asked) -> None:
    """Print how often each fault happened, the seeds that failed, and how to repeat them."""
    n = least(len(findings)) if asked.protocol == ALL and not asked.mutant else 0
    needed = dict.fromkeys(RECOVERIES, f"{n}") if n else {}
    counts = dict.fromkeys(needed, 0) | _counts(findings)
    rows = ((what, f"{times}", needed.get(what, "")) for what, times in sorted(counts.items()))
    headings = ("what happened", "times", "at least") if needed else ("what happened", "times")
    console.print(table(headings, (row[: len(headings)] for row in rows), right=headings[1:]))
    for what, times in met_rarely(findings, asked).items():
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


def _look_for(task: Task) -> BugFound:

    name, first, last = task
    swarm = BUGS[name]
    for finding in try_seeds(range(first, last), Asked(swarm or None, name)):
        if finding.failure:
            lines = finding.failure.splitlines()
            return BugFound(name, swarm, finding.seed, lines[-1 if lines[0].startswith("Traceback") else 0][:60])
    return BugFound(name, swarm, None, "")
