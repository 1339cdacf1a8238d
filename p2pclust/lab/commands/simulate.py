"""``p2pclust simulate``: test simulated fleets in virtual time, over many seeds on all cores."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from p2pclust.cli.show.options import AsJson, OnScheduler, flag, option
from p2pclust.cli.show.output import put_json, stderr, stdout
from p2pclust.errors import UsageError
from p2pclust.lab.workers import Scheduler
from p2pclust.tools.platforms import n_cores


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
            "disks-core, forgers, rosters: many faults of a few kinds. Of one kind of job: fedcref: peers run child jobs; "
            "leaderless: gossip without an aggregator; cancel: the job is cancelled; series: it is repeated; lasting: only "
            "a majority recovers, and the others hang, flap or stay cut off; secure: secure sums; secure_groups: those of "
            "fixed groups; verified: all check each state, and one lies; clients: several of them ask different peers, and "
            "answers are lost; by default llf-cm or llf-fcm, as drawn.",
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
    from p2pclust.lab.commands import seeds as trying  # noqa: PLC0415 - the whole simulator

    match = re.fullmatch(r"(\d{1,18}):(\d{1,18})", seeds)
    if match is None or int(match[1]) >= int(match[2]):
        raise UsageError(f"--seeds {seeds}: expected A:B with A below B, such as 0:300")
    tried = range(int(match[1]), int(match[2]))
    if seed_trace and as_json:
        raise UsageError("--seed-trace and --json both write to standard output: choose one")
    if scheduler is not None and jobs is not None:
        raise UsageError("--jobs is for this machine, --scheduler has its own workers: choose one")
    workers = jobs or n_cores() if scheduler is None else Scheduler(scheduler)
    if mutant == "all":
        raise typer.Exit(trying.find_all_bugs(tried, workers, as_json=as_json))
    asked = trying.checked(trying.Asked(protocol, mutant, overlay))
    if len(tried) == 1 and not as_json:
        trying.show_world(tried[0], asked)
    findings = trying.findings_of(tried, asked, workers, resume)
    if seed_trace:
        for finding in findings:
            typer.echo(f"{finding.seed} {finding.trace}")
    if as_json:
        put_json(trying.summary(tried, asked, findings))
    else:
        trying.show(stderr() if seed_trace else stdout(), findings, asked)
    failed = [finding for finding in findings if finding.failure]
    if minimise and failed:
        trying.show_world(failed[0].seed, asked, failed[0].failure)
    if failed or trying.met_rarely(findings, asked):
        raise typer.Exit(1)
