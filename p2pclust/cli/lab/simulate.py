"""``p2pclust simulate``: test simulated fleets in virtual time, over many seeds on all cores."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from p2pclust.cli.lab.seeds import Asked, Finding, explore
from p2pclust.cli.show.bar import progress_bar
from p2pclust.cli.show.options import AsJson
from p2pclust.cli.show.output import put_json, stderr, stdout
from p2pclust.errors import UsageError
from p2pclust.tools.workers import n_cores

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["simulate"]

_STORIES = 3


def simulate(
    seeds: Annotated[str, typer.Option(metavar="A:B", help="The seeds from A to B - 1.")],
    mutant: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Plant this bug, to check that it is found; a wrong name lists all."),
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="fedcref: peers run child jobs; leaderless: gossip without an aggregator; cancel: the job is cancelled; "
            "series: it is repeated; lasting: only a majority recovers, and the others hang, flap or stay cut off; "
            "secure: secure sums; verified: all check each state, and one lies; by default llf-cm or llf-fcm, as drawn.",
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
    seed_trace: Annotated[
        bool, typer.Option("--seed-trace", help="Print each seed with the hash of its trace.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Test fleets of simulated peers under message loss, cuts, crashes and lost disks.

    Each seed draws a fleet, its network and its faults; invariants are checked all the time. Prints how often each fault
    happened, and for a seed that fails the reason and the command that replays it. Exits with 1 if a seed failed.

    \b
    Examples:
      p2pclust simulate --seeds 0:20
      p2pclust simulate --seeds 17:18
      p2pclust simulate --seeds 0:100 --protocol fedcref
      p2pclust simulate --seeds 0:100 --overlay sparse
    """
    first, last = _range(seeds)
    asked = Asked(protocol, mutant, overlay)
    _check(asked)
    if seed_trace and as_json:
        raise UsageError("--seed-trace and --json both write to standard output: choose one")
    findings: list[Finding] = []
    n_workers = min(jobs or n_cores(), last - first)
    with progress_bar("seeds", last - first) as advance:
        for finding in explore(first, last, asked, n_workers):
            findings.append(finding)
            if advance is not None:
                advance(len(findings))
    findings.sort(key=lambda finding: finding.seed)
    if seed_trace:
        for finding in findings:
            typer.echo(f"{finding.seed} {finding.trace}")
    if as_json:
        put_json(_summary(first, last, asked, findings))
    else:
        _show(stderr() if seed_trace else stdout(), findings, asked)
    if any(finding.failure for finding in findings):
        raise typer.Exit(1)


def _range(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,18}):(\d{1,18})", text)
    if match is None or int(match[1]) >= int(match[2]):
        raise UsageError(f"--seeds {text}: expected A:B with A below B, such as 0:300")
    return int(match[1]), int(match[2])


def _check(asked: Asked) -> None:
    protocol, mutant = asked.protocol, asked.mutant
    if asked.overlay not in (None, "sparse", "moving"):
        raise UsageError(f"--overlay {asked.overlay}: expected sparse or moving, or nothing for a full mesh")
    if protocol == "fedcref":
        from p2pclust.clustering.stacks import require_torch  # noqa: PLC0415

        require_torch()
    elif protocol not in (None, "leaderless", "cancel", "series", "lasting", "secure", "verified"):
        raise UsageError(
            f"--protocol {protocol}: expected fedcref, leaderless, cancel, series, lasting, secure, verified, or nothing"
        )
    if mutant is None:
        return
    from p2pclust.simulation.swarms import mutants  # noqa: PLC0415

    own = {
        None: {}, "cancel": mutants.CANCEL_MUTANTS, "lasting": mutants.LASTING_MUTANTS, "series": mutants.SERIES_MUTANTS,
        "secure": mutants.SECURE_MUTANTS, "verified": mutants.VERIFIED_MUTANTS,
    }  # fmt: skip
    known = mutants.MUTANTS | own.get(protocol, mutants.WORKSPACE_MUTANTS)
    if mutant not in known:
        raise UsageError(f"--mutant {mutant}: expected one of {', '.join(known)}")


def _replay(seed: int, asked: Asked) -> str:
    options = "".join(f" --{name} {value}" for name, value in asked._asdict().items() if value)
    return f"p2pclust simulate --seeds {seed}:{seed + 1}{options}"


def _counts(findings: list[Finding]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for finding in findings:
        total.update(finding.counts)
    return dict(sorted(total.items()))


def _summary(first: int, last: int, asked: Asked, findings: list[Finding]) -> dict[str, Any]:
    return {
        "seeds": [first, last],
        **asked._asdict(),
        "counts": _counts(findings),
        "virtual_seconds": sum(finding.virtual_s for finding in findings),
        "events": sum(finding.n_events for finding in findings),
        "failed": [
            {"seed": finding.seed, "failure": finding.failure, "replay": _replay(finding.seed, asked)}
            for finding in findings
            if finding.failure
        ],
    }


def _show(console: Console, findings: list[Finding], asked: Asked) -> None:
    from rich.text import Text  # noqa: PLC0415

    from p2pclust.cli.show.tables import table  # noqa: PLC0415

    rows = ((what, f"{times}") for what, times in _counts(findings).items())
    console.print(table(("what happened", "times"), rows, right=("times",)))
    failed = [finding for finding in findings if finding.failure]
    for finding in failed[:_STORIES]:
        console.print(Text(f"\nseed {finding.seed} failed: {finding.failure}"), soft_wrap=True)
        console.print(Text(f"replay it: {_replay(finding.seed, asked)}", style="bold"), soft_wrap=True)
    if len(failed) > _STORIES:
        seeds = ", ".join(f"{finding.seed}" for finding in failed[_STORIES:])
        console.print(Text(f"\nthese failed too: {seeds}"), soft_wrap=True)
    virtual_h = sum(finding.virtual_s for finding in findings) / 3600
    console.print(f"\n{len(findings)} seeds, {virtual_h:.1f} hours of virtual time: {len(failed)} failed")
