"""The status page of one peer, for a browser."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from p2pclust.peer.operate.status import ENDED, JobStatus, PeerStatus
from p2pclust.tools.units import duration, size

_REFRESH_S = 5
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --dim: #57606a; --line: #d0d7de; --paper: #ffffff; --card: #f6f8fa;
  --good: #1a7f37; --warn: #9a6700; --bad: #cf222e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --dim: #8d96a0; --line: #30363d; --paper: #0d1117;
  --card: #161b22; --good: #3fb950; --warn: #d29922; --bad: #f85149; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0 auto; padding: 1.5rem;
  max-width: 70rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { margin: .25rem 0; color: var(--dim); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .75rem; margin-top: 1.25rem; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .75rem 1rem; }
.tile b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums; } .tile span { color: var(--dim); }
.alarm { border: 1px solid var(--bad); border-radius: .5rem; padding: .6rem 1rem; color: var(--bad); margin-top: 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; color: var(--dim); } th, td { padding: .35rem .75rem .35rem 0; vertical-align: top;
  border-bottom: 1px solid var(--line); } td.number, th.number { text-align: right;
  padding-right: 2rem; }
footer { margin-top: 2rem; color: var(--dim); }
td, th { white-space: nowrap; } td:last-child { white-space: normal; min-width: 14rem; }
code { font: .9em ui-monospace, monospace; }
.good::before, .warn::before, .bad::before, .none::before { content: "\\25CF\\00A0"; }
.good::before { color: var(--good); } .warn::before { color: var(--warn); } .bad::before { color: var(--bad); }
.none::before { color: var(--dim); }
"""
_COLOURS = {
    "alive": "good", "suspect": "warn", "dead": "bad", "left": "none", "unknown": "none", "done": "good", "failed": "bad",
    "cancelled": "none",
}  # fmt: skip


def status_page(status: PeerStatus, kind: str = "") -> str:
    """Return the page, a self-contained HTML document, for a peer whose device is of this class. Values are escaped."""
    fleet, counters, jobs = status.fleet, status.counters, status.jobs
    going = sum(job.phase not in ENDED for job in jobs)
    tiles = [
        (f"{fleet.alive} of {fleet.enrolled}", f"peers here; a majority is {fleet.majority}"),
        (str(going), f"of {len(jobs)} jobs running"),
        (duration(status.uptime_s), "since it started"),
        (f"{status.rss_mb:.0f} MB", f"of memory; {status.max_rss_mb:.0f} at most"),
        (size(counters.bytes_sent), f"sent in {counters.messages_sent} messages"),
        (size(counters.bytes_received), f"received in {counters.messages_received}"),
    ]
    dropped = [(escape(reason), str(count)) for reason, count in sorted(counters.dropped.items())]
    members = [
        (
            escape(member.name),
            _dot(member.status, "none"),
            "" if member.heard_s is None else f"{duration(member.heard_s)} ago",
            f"<code>{escape(member.address)}</code>",
            escape(member.why),
        )
        for member in status.members
    ]
    device = f"{kind}, " if kind else ""
    return "\n".join([
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="refresh" content="{_REFRESH_S}">',
        f"<title>{escape(status.peer)}: {fleet.alive} of {fleet.enrolled} peers</title>",
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>{escape(status.peer)}</h1>",
        f"<p>{escape(device)}at <code>{escape(status.address)}</code>, fleet <code>{escape(fleet.id)}</code>, roster "
        f"{fleet.serial}, p2pclust {escape(status.version) or 'of unknown version'}</p>",
        f'<div class="alarm">Waiting: {escape(status.waiting)}</div>' if status.waiting else "",
        f'<div class="alarm">{escape(status.twin)}</div>' if status.twin else "",
        '<div class="tiles">',
        *(f'<div class="tile"><b>{escape(figure)}</b><span>{escape(what)}</span></div>' for figure, what in tiles),
        "</div>",
        _jobs(jobs),
        _table("Peers", ("name", "status", "#heard", "address", ""), members, "No other peer is enrolled."),
        _table("Dropped messages", ("why", "#how many"), dropped, "None."),
        f"<footer>As this peer sees it; the page loads itself again every {_REFRESH_S} seconds.</footer>",
        "</body></html>",
    ])  # fmt: skip


def _jobs(jobs: Sequence[JobStatus]) -> str:
    def waits(names: Sequence[str]) -> str:
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        return f"waits for {', '.join(names[:5])}{more}" if names else ""

    rows = [
        (
            f"<code>{escape(f'{job.series[:15]}/{job.number + 1}' if job.series else job.job[:12])}</code>",
            escape(job.protocol) + (f", {job.clusters} clusters" if job.clusters else ""),
            _dot(job.phase, "warn" if job.reason else "good"),
            str(job.round),
            str(job.term),
            escape(job.aggregator),
            escape(job.reason or waits(job.waits_for)),
        )
        for job in jobs
    ]
    return _table("Jobs", ("job", "what", "phase", "#round", "#term", "aggregator", ""), rows, "No job yet.")


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], empty: str) -> str:
    """Return a table of HTML cells; columns whose head begins with ``#`` hold numbers."""
    if not rows:
        return f"<h2>{title}</h2><p>{empty}</p>"
    kinds = [' class="number"' if head.startswith("#") else "" for head in heads]
    top = "".join(f"<th{kind}>{head.removeprefix('#')}</th>" for head, kind in zip(heads, kinds, strict=True))
    body = "\n".join(
        "<tr>" + "".join(f"<td{kind}>{cell}</td>" for cell, kind in zip(row, kinds, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<h2>{title}</h2><div class="wide"><table><tr>{top}</tr>\n{body}</table></div>'


def _dot(word: str, otherwise: str) -> str:
    return f'<span class="{_COLOURS.get(word, otherwise)}">{escape(word)}</span>'
