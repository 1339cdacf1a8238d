"""A peer's metrics and its status page over read-only HTTP, on the event loop."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from html import escape

from p2pclust.errors import UsageError
from p2pclust.peer.operate.status import ENDED, PeerStatus
from p2pclust.tools.spelling import first_few
from p2pclust.tools.units import duration, size
from p2pclust.transport.links import parse_address

Answer = Callable[[], tuple[str, bytes]]  # returns the content type and the content

_MAX_REQUEST = 8 * 1024
_DEADLINE_S = 5.0
_MOST_AT_ONCE = 8
_HEADERS = (
    "Connection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
    "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\n"
)
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


class Web:
    """Serves a few read-only pages, by path.

    Requests that are too long, too slow or too many are dropped, so that they cannot keep the peer busy. A request for
    another host name is refused, so that a page of another site in a user's browser cannot read the peer's pages.
    """

    def __init__(self, address: str, pages: Mapping[str, Answer], loop: asyncio.AbstractEventLoop) -> None:
        self._pages = pages
        self._host = address.rpartition(":")[0].strip("[]")
        host, port = parse_address(address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, port), family=family, backlog=16)
        except OSError as error:
            what = os.strerror(error.errno) if error.errno else str(error)
            raise UsageError(f"metrics: cannot listen on {address} ({what}): choose another port") from None
        self.address = address
        self._open: dict[asyncio.StreamWriter, None] = {}
        self._serving = loop.create_task(asyncio.start_server(self._serve, sock=self._socket, limit=_MAX_REQUEST))

    def close(self) -> None:
        """Stop listening. Closing twice does nothing."""
        self._serving.cancel()
        for writer in self._open:
            writer.transport.abort()
        if self._serving.done() and not self._serving.cancelled() and self._serving.exception() is None:
            self._serving.result().close()
        self._socket.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open[writer] = None
        try:
            if len(self._open) <= _MOST_AT_ONCE:
                async with asyncio.timeout(_DEADLINE_S):
                    request = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self._answer(request))
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client is gone, or its request is invalid
        finally:
            del self._open[writer]
            writer.close()

    def _answer(self, request: bytes) -> bytes:
        head, *headers = request.decode("latin-1").split("\r\n")
        method, _, rest = head.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return _response("405 Method Not Allowed", "text/plain", b"only GET\n")
        hosts = [line.partition(":")[2].strip() for line in headers if line.lower().startswith("host:")]
        if not all(names_this_host(host, self._host) for host in hosts):
            return _response("403 Forbidden", "text/plain", b"use the address of this device\n")
        page = self._pages.get(path)
        if page is None:
            known = ", ".join(self._pages)
            return _response("404 Not Found", "text/plain", f"there are {known}\n".encode())
        kind, content = page()
        return _response("200 OK", kind, content, body=method == "GET")


def names_this_host(host: str, own: str) -> bool:
    """Return whether a request's ``Host`` is a number, or this host's name.

    Another site can let its own name lead here, and so have its page read ours; it cannot do that with a number.

    >>> [names_this_host(host, "gateway") for host in ("127.0.0.1:80", "[::1]", "gateway", "localhost:80", "other.org")]
    [True, True, True, True, False]
    """
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    name = name.strip("[]")
    if name in ("localhost", own):
        return True
    try:
        return bool(ipaddress.ip_address(name))
    except ValueError:
        return False


def _response(status: str, kind: str, content: bytes, *, body: bool = True) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n{_HEADERS}\r\n"
    return head.encode("latin-1") + (content if body else b"")


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
    job_rows = []
    for job in jobs:
        waits_for = f"waits for {first_few(job.waits_for, 5)}" if job.waits_for else ""
        job_rows.append(
            (
                f"<code>{escape(f'{job.series[:15]}/{job.number + 1}' if job.series else job.job[:12])}</code>",
                escape(job.protocol) + (f", {job.clusters} clusters" if job.clusters else ""),
                _dot(job.phase, "warn" if job.reason else "good"),
                str(job.round),
                str(job.term),
                escape(job.aggregator),
                escape(job.reason or waits_for),
            )
        )
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
        _table("Jobs", ("job", "what", "phase", "#round", "#term", "aggregator", ""), job_rows, "No job yet."),
        _table("Peers", ("name", "status", "#heard", "address", ""), members, "No other peer is enrolled."),
        _table("Dropped messages", ("why", "#how many"), dropped, "None."),
        f"<footer>As this peer sees it; the page loads itself again every {_REFRESH_S} seconds.</footer>",
        "</body></html>",
    ])  # fmt: skip


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
