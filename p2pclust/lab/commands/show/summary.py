"""Print the result of a run: centers, cost, and whether the expectations held."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from p2pclust.cli.show.output import table
from p2pclust.lab.scenario.outcome.compare import shown as in_words
from p2pclust.lab.scenario.outcome.lines import Result, job_lines
from p2pclust.tools.spelling import counted
from p2pclust.tools.units import size

_PEERS_SHOWN = 24
_FILES_SHOWN = 8


def summarise(console: Console, result: Result) -> None:
    """Print the summary of a run from what ``result.json`` holds."""
    lines = Table.grid(padding=(0, 3, 0, 0))
    lines.add_column(style="dim", no_wrap=True)
    lines.add_column(overflow="fold")
    for number, job in enumerate(result["jobs"], start=1):
        if number > 1:
            lines.add_row("", "")
        for line in job_lines(job, number, len(result["jobs"]), result["peers"]):
            lines.add_row(line.name, Text(line.words, style=line.mood))
    if left := result["left_out"]:
        parts = [f"{one['rows']} of {one['file']}" + (f" ({one['device']})" if one["device"] else "") for one in left]
        more = f" and of {len(parts) - _FILES_SHOWN} more files" if len(parts) > _FILES_SHOWN else ""
        n_rows = counted(sum(one["rows"] for one in left), "rows")
        lines.add_row("left out", f"{n_rows}: {', '.join(parts[:_FILES_SHOWN])}{more}: a value is missing there")
    if result["reading"]:
        lines.add_row("read", " · ".join(result["reading"][:_FILES_SHOWN]))
    wall, virtual = f"{result['wall_seconds']:.1f}", result["virtual_seconds"]
    lines.add_row("seconds", wall if virtual is None else f"{virtual:.1f} of virtual time, in {wall}")
    console.print()
    if console.is_terminal:
        # Where there was a live view, it is gone now, and the title with it.
        console.print(result["title"] or result["scenario"], style="bold")
        console.print(f"{len(result['peers'])} peers, {result['backend']}, seed {result['seed']}", style="dim")
        console.print()
    console.print(lines)
    console.print()
    numbers = ("rows", "messages", "sent", "received", "memory")
    peers = table(("peer", "rows", "finished", *numbers[1:]), right=numbers)
    for name, peer in list(result["peers"].items())[:_PEERS_SHOWN]:
        sent, memory = peer.get("messages_sent"), peer.get("max_rss_mb")
        status = Text("lost", style="red") if peer["lost"] else Text("yes" if peer["finished"] else "no")
        peers.add_row(
            name, f"{peer['n_rows']}", status, "-" if sent is None else str(sent), size(peer.get("bytes_sent")),
            size(peer.get("bytes_received")), "-" if memory is None else f"{memory:.0f} MB",
        )  # fmt: skip
    if len(result["peers"]) > _PEERS_SHOWN:
        peers.add_row(f"and {len(result['peers']) - _PEERS_SHOWN} more", *[""] * 6)
    console.print(peers)
    if result["expectations"]:
        console.print()
        shown = table(("expected", "found", "held"), right=("found",))
        for item in result["expectations"]:
            held = Text("yes", style="green") if item["held"] else Text("NO", style="bold red")
            why = f"\n({item['why']})" if item.get("why") else ""
            shown.add_row(item["what"] + why, "unknown" if item["value"] is None else in_words(item["value"]), held)
        console.print(shown)
    for fault in result["unfired_faults"]:
        console.print(f"warning: this fault never happened: {fault}", style="yellow", soft_wrap=True)
    if any(job["replay_identical"] is False for job in result["jobs"]):
        warning = "warning: the replay of the record has other bits than the fleet: please report this"
        console.print(warning, style="yellow", soft_wrap=True)
    console.print()
    console.print(f"report: {Path(result['output']) / 'report.html'}", soft_wrap=True)
    console.print(f"output: {result['output']}", soft_wrap=True)
