"""Print the result of a run: centers, cost, and whether the expectations held."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from p2pclust.cli.show.tables import table
from p2pclust.lab.testbed.peer.lies import LIES
from p2pclust.protocols.engine.reasons import LEFT_OUT
from p2pclust.protocols.engine.summaries import array_in_words, suspect_in_words
from p2pclust.tools.units import size

_PEERS_SHOWN = 24
_FILES_SHOWN = 8
_EXPOSED_SHOWN = 3
_PARAMETERS_SHOWN = 4
_OF_EVERY_JOB = ("participation", "scaling", "missing", "init")

Result = Mapping[str, Any]
Fact = tuple[str, str | Text]


def summarise(console: Console, result: Result) -> None:
    """Print the summary of a run from what ``result.json`` holds."""
    facts = Table.grid(padding=(0, 3, 0, 0))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    for number, job in enumerate(result["jobs"], start=1):
        if number > 1:
            facts.add_row("", "")
        for name, value in _job_facts(job, number, len(result["jobs"]), result["peers"]):
            facts.add_row(name, value)
    if result["left_out"]:
        facts.add_row("left out", f"{_left_out(result['left_out'])}: a value is missing there")
    if result["reading"]:
        facts.add_row("read", " · ".join(result["reading"][:_FILES_SHOWN]))
    facts.add_row("seconds", _seconds(result))
    console.print()
    if console.is_terminal:
        # Where there was a live view, it is gone now, and the title with it.
        console.print(Text(result["title"] or result["scenario"], style="bold"))
        console.print(Text(f"{len(result['peers'])} peers, {result['backend']}, seed {result['seed']}", style="dim"))
        console.print()
    console.print(facts)
    console.print()
    _peers(console, result["peers"])
    if result["expectations"]:
        console.print()
        _expectations(console, result["expectations"])
    for fault in result["unfired_faults"]:
        console.print(Text(f"warning: this fault never happened: {fault}", style="yellow"), soft_wrap=True)
    if any(job["replay_identical"] is False for job in result["jobs"]):
        warning = "warning: the replay of the record has other bits than the fleet: please report this"
        console.print(Text(warning, style="yellow"), soft_wrap=True)
    console.print()
    console.print(Text(f"report: {Path(result['output']) / 'report.html'}"), soft_wrap=True)
    console.print(Text(f"output: {result['output']}"), soft_wrap=True)


def _left_out(files: Sequence[Result]) -> str:
    """Return how many rows no device holds, and of which files."""
    parts = [f"{one['rows']} of {one['file']}" + (f" ({one['device']})" if one["device"] else "") for one in files]
    more = f" and of {len(parts) - _FILES_SHOWN} more files" if len(parts) > _FILES_SHOWN else ""
    n_rows = sum(one["rows"] for one in files)
    return f"{n_rows} row{'' if n_rows == 1 else 's'}: {', '.join(parts[:_FILES_SHOWN])}{more}"


def _what(job: Result) -> str:
    """Return the protocol with its number of clusters, its mode, or what else its parameters are."""
    parameters = job["parameters"]
    if "n_clusters" in parameters:
        return f"{job['protocol']}, {parameters['n_clusters']} clusters"
    named = ["mode"] if "mode" in parameters else [name for name in parameters if name not in _OF_EVERY_JOB]
    return ", ".join([job["protocol"], *(f"{name} {parameters[name]}" for name in named[:_PARAMETERS_SHOWN])])


def _limit(job: Result) -> str:
    """Return the parameter that ends a job that does not come to rest."""
    names = ("max_refinements", "max_iterations", "max_rounds")
    return next((name for name in names if name in job["parameters"]), "its last round")


def _job_facts(job: Result, number: int, n_jobs: int, peers: Result) -> Iterator[Fact]:
    name = f"job {number}" if n_jobs > 1 else "job"
    yield name, _what(job)
    if job["failure"]:
        yield "failed", Text(job["failure"], style="red")
    if job["rounds"] is not None:
        how = job["stops"] if job["converged"] else f"{_limit(job)} was reached"
        yield "rounds", f"{job['rounds']}" + ("" if job["failure"] else f" ({how})")
    if job["terms"]:
        yield "terms", " · ".join(f"{term['term']}: {term['aggregator']}" for term in job["terms"])
    yield from _agreed(job)
    yield "lost", ", ".join(name for name, peer in peers.items() if peer["lost"]) or "none"
    for reason, names in _abstained(job).items():
        if reason.startswith(LEFT_OUT):
            why = reason.removeprefix(LEFT_OUT).removeprefix(": ")
            yield "left out", f"{', '.join(names)} ({why})"
        else:
            yield "abstained", f"{', '.join(names)}: {reason}"
    yield from _suspected(job)
    yield from _damaged(job)
    for name, warning in job["warnings"].items():
        yield "warning", Text(f"{name}: {warning}", style="yellow")
    if job["suppressed"]:
        yield "suppressed", f"{job['suppressed']} times, by privacy rules"
    if job["coarse"]:
        of_all = f"{job['coarse']} of {job['parameters'].get('n_clusters', 'all')} centers"
        yield "coarse", f"{of_all}: too far from all rows for the grid of the sums, so they may be inexact"
    yield from _without_centers(job)
    yield from _drift(job)
    if job["metrics"]:
        yield _scores(job["metrics"])
    yield from _compared(job)
    if job["digests"]:
        distinct = len(set(job["digests"].values()))
        bits = "the same bits" if distinct == 1 else Text(f"{distinct} different results", style="red")
        yield "identical", Text.assemble(f"{len(job['digests'])} peers finished with ", bits)


def _without_centers(job: Result) -> Iterator[Fact]:
    """Return what a protocol without centers found: the communities of FedCRef, or what a plug-in declares."""
    if "communities" in job:
        found, alone = job["communities"], len(job["isolated"])
        words = f"{len(found)} of {sum(map(len, found))} clusters, {alone} isolated"
        yield "communities", words if found else f"none: {alone} clusters, all isolated"
    for name, values in job["declared"].items():
        yield name, array_in_words(values)


def _compared(job: Result) -> Iterator[Fact]:
    """Say how near the result is to what pooling all rows would have found, and what is suspect about it."""
    if job["pooled"]:
        relative = job["pooled"]["relative_difference"]
        words = "not a number" if relative is None else f"{relative:.1e}"
        why = f": {job['pooled']['why']}" if job["pooled"]["why"] else ""
        yield "pooled", f"differs by {words} of a feature's range at most, over the same contributors{why}"
    if job["best_pooled"]:
        own = "" if job["objective"] is None else f"{job['objective']:.6g}, "
        yield "objective", own + job["best_pooled"]["words"]
    if exposed := job.get("exposed"):
        for name, why in list(exposed.items())[:_EXPOSED_SHOWN]:
            yield "exposed", f"{name}: {why}"
        if len(exposed) > _EXPOSED_SHOWN:
            yield "exposed", f"and {len(exposed) - _EXPOSED_SHOWN} more devices"
    for doubt in job["doubts"]:
        yield "doubt", Text(doubt, style="yellow")
    if job["gap"]:
        gap = job["gap"]
        words = f"{gap['center_distance']:.2g} of the features' ranges from {gap['to']} (best matching)"
        yield "gap", f"the centers end {words}; no equality is promised"


def _suspected(job: Result) -> Iterator[Fact]:
    """Name the peers that sent impossible numbers, and those whose weight was limited."""
    for one in job.get("suspects", ()):
        yield "suspect", Text(suspect_in_words(one), style="yellow")
    if job.get("limited"):
        most = max(job["limited"].values())
        yield "limited", f"{', '.join(job['limited'])}: max_weight was reached, in up to {most} rounds"


def _damaged(job: Result) -> Iterator[Fact]:
    """Whose rows were damaged on purpose, whether the fleet could see it, and what it did to the centers."""
    for one in job.get("damaged", ()):
        seen = f"named: {one['named']}" if one["named"] else Text("no peer could detect it", style="yellow")
        since = f"from round {one['round']} on, " if one["round"] else ""
        yield "lies" if one["how"] in LIES else "damaged", Text.assemble(f"{one['peer']}: {one['how']}, {since}", seen)
    if job.get("harm"):
        apart = f"{job['harm']['center_distance']:.2g} of the features' ranges"
        yield "harm", f"the centers lie {apart} from those of the sound rows (best matching)"


def _agreed(job: Result) -> Iterator[Fact]:
    """Return how closely peers agreed on sums that gossip approximates."""
    if job.get("tolerance") is not None and job["ticks"]:
        words = f"every sum within {job['tolerance']:.1g} (found: {job['reached']:.1e})"
        yield "agreed", f"{words}, in {max(job['ticks'])} ticks of a round at most"


def _scores(metrics: Result) -> tuple[str, str]:
    if "ari" in metrics:
        own = f", {metrics['peer_accuracy']:.3f} in the mean over peers" if "peer_accuracy" in metrics else ""
        return "ARI", f"{metrics['ari']:.3f} (accuracy {metrics['accuracy']:.3f}{own})"
    return (
        "accuracy",
        f"{metrics['accuracy']:.3f} (mean over peers), {100 * metrics['wrong_links']:.1f} % of links wrong",
    )


def _drift(job: Result) -> Iterator[Fact]:
    """Return one line for each batch of a stream in which something changed, or one that says that nothing did."""
    batches = job["drift"]
    changed = [batch for batch in batches if batch["verdict"].startswith("drift: ")]
    if batches and not changed:
        yield "drift", f"none in {len(batches)} batches"
    for batch in changed:
        verdict = batch["verdict"].removeprefix("drift: ")
        yield "drift", f"batch {batch['batch']} of 0 to {len(batches) - 1}: {verdict}"


def _abstained(job: Result) -> dict[str, list[str]]:
    """Return the peers that did not contribute to some round, by reason."""
    found: dict[str, dict[str, None]] = {}
    for of_round in job["abstained"]:
        for name, reason in of_round.items():
            found.setdefault(reason, {})[name] = None
    return {reason: list(names) for reason, names in found.items()}


def _seconds(result: Result) -> str:
    wall = f"{result['wall_seconds']:.1f}"
    virtual = result["virtual_seconds"]
    return wall if virtual is None else f"{virtual:.1f} of virtual time, in {wall}"


def _peers(console: Console, peers: Result) -> None:
    numbers = ("rows", "messages", "sent", "received", "memory")
    shown = table(("peer", "rows", "finished", *numbers[1:]), right=numbers)
    for name, peer in list(peers.items())[:_PEERS_SHOWN]:
        sent, memory = peer.get("messages_sent"), peer.get("max_rss_mb")
        status = Text("lost", style="red") if peer["lost"] else Text("yes" if peer["finished"] else "no")
        shown.add_row(
            name, f"{peer['n_rows']}", status, "-" if sent is None else str(sent), size(peer.get("bytes_sent")),
            size(peer.get("bytes_received")), "-" if memory is None else f"{memory:.0f} MB",
        )  # fmt: skip
    if len(peers) > _PEERS_SHOWN:
        shown.add_row(f"and {len(peers) - _PEERS_SHOWN} more", *[""] * 6)
    console.print(shown)


def _expectations(console: Console, expectations: Sequence[Result]) -> None:
    shown = table(("expected", "found", "held"), right=("found",))
    for item in expectations:
        held = Text("yes", style="green") if item["held"] else Text("NO", style="bold red")
        why = f"\n({item['why']})" if item.get("why") else ""
        shown.add_row(item["what"] + why, _value(item["value"]), held)
    console.print(shown)


def _value(value: float | bool | str | None) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
