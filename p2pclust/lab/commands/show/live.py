"""Show a run while it continues: a live view on a terminal, otherwise one line for each event that matters."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from p2pclust.cli.show.output import table
from p2pclust.lab.run.events import RunEvent
from p2pclust.lab.run.state import RunState
from p2pclust.lab.run.views import GroupView, JobView
from p2pclust.tools.spelling import counted
from p2pclust.tools.units import size

_BARS = "▁▂▃▄▅▆▇█"
_PLAIN_BARS = "_.:-=+*#"
_STYLES = {
    "starting": "dim", "alive": "green", "finished": "bold green", "paused": "yellow", "down": "yellow", "lost": "red",
    "left": "dim", "asleep": "blue", "suspect": "yellow",
}  # fmt: skip
_LAST_EVENTS = 6
_BAR = 24  # columns of the bar of a class of devices
_STRUCK = {
    "fault": "bold red", "exited": "red", "waiting": "yellow", "elected": "bold", "drained": "red", "resumed": "green",
}  # fmt: skip


class Watch:
    """Show a run; a context manager whose `take` gets every event.

    `tol` has for each job the movement of its centers below which it ends. With `clock` the events are in real time, not in
    virtual time.
    """

    def __init__(
        self, console: Console, title: str, details: str, run: RunState, tol: Sequence[float] = (),
        *, clock: bool = True,
    ) -> None:  # fmt: skip
        self._console = console
        self._title, self._details = title, details
        self.run = run
        self._tol = tuple(tol)
        # Another thread draws the view; it must not see half of a change.
        self._lock = threading.Lock()
        self._live: Live | None = None
        self._clock = clock
        self._last_event_at = time.monotonic()

    def __enter__(self) -> Watch:
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live = Live(
                console=self._console, get_renderable=self.render, refresh_per_second=8, transient=True,
                redirect_stdout=False, redirect_stderr=False,
            )  # fmt: skip
            self._live.start()
        else:
            self._say(self._title, self._details)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the live view, if there is one, so that later output stays on the terminal."""
        if self._live is not None:
            self._live.stop()

    def take(self, event: RunEvent) -> None:
        with self._lock:
            line = self.run.take(event)
            self._last_event_at = time.monotonic()
        if line and self._live is None:
            self._say(f"{event.t:8.2f} s  {line}")

    def _say(self, *lines: str) -> None:
        for line in lines:
            self._console.print(Text(line), soft_wrap=True)

    # -- the live view ----------------------------------------------------------------------------------------------

    def render(self) -> RenderableType:
        """Draw everything, as wide and as high as the terminal allows."""
        with self._lock:
            job = self.run.job
            head = Text(self._title, style="bold", overflow="ellipsis", no_wrap=True)
            details = Text(self._details, style="dim", overflow="ellipsis", no_wrap=True)
            # Virtual time advances with events only, real time also between them.
            passed_s = time.monotonic() - self._last_event_at if self._clock else 0.0
            details.append(f"   {self.run.t + passed_s:.1f} s")
            parts: list[RenderableType] = [head, details, Text(""), self._job_line(job)]
            parts += [self._graph(job) if job is not None and job.graph else self._moves(job), self._load(), Text("")]
            parts += [self._group(group) for group in self.run.groups[: max(1, self._console.height // 5)]]
            parts.append(Text(""))
            # Rounds are shown above; their lines would push out all others.
            told = [line for line in self.run.lines if line.verb != "combined"][-_LAST_EVENTS:]
            events = [_line((f"{line.t:7.2f} s  ", "dim"), (line.text, _STRUCK.get(line.verb, ""))) for line in told]
            room = max(3, self._console.height - len(parts) - len(events) - 3)
            parts += [self._peers(room), Text(""), *events]
            return Group(*parts)

    @property
    def _unicode(self) -> bool:
        return (self._console.encoding or "").lower().startswith("utf")

    def _job_line(self, job: JobView | None) -> Text:
        if job is None:
            ready = sum(peer.status != "starting" for peer in self.run.peers.values())
            return _line(f"starting: {ready} of {len(self.run.peers)} peers")
        words = [f"job {self.run.job_number} of {len(self.run.jobs)}: {job.protocol}"]
        if job.round is not None:
            words.append(f"round {job.round}")
            words.append(f"stage {job.stage}" if job.stage != job.protocol else job.phase or "clustering")
        if job.term is not None:
            words.append(f"term {job.term}: {job.aggregator} aggregates")
        if job.finished:
            words.append(f"{len(job.finished)} finished")
        return _line("   ".join(words))

    def _moves(self, job: JobView | None) -> Text:
        shifts = [] if job is None else list(job.shift_of.values())
        if not shifts:
            return _line("centers move  ", ("-", "dim"))
        bars = sparkline(shifts[-40:], _BARS if self._unicode else _PLAIN_BARS)
        tol = dict(enumerate(self._tol, start=1)).get(self.run.job_number, 0.0)
        ends = f" (ends below {tol:g})" if tol > 0 else ""
        return _line("centers move  ", (bars, "cyan"), f"  {shifts[-1]:.3g}", (ends, "dim"))

    def _graph(self, job: JobView) -> Text:
        graph = job.graph
        words = (
            f"   {counted(graph.get('isolated', 0), 'clusters')} isolated   {counted(graph.get('links', 0), 'links')}"
        )
        words += f" among {graph['clusters']} clusters" if "clusters" in graph else ""
        words += f"   {graph['changed']} of {graph['rows']} rows changed" if "changed" in graph else ""
        return _line("communities   ", (f"{graph.get('groups', 0)}", "bold cyan"), words)

    def _load(self) -> Text:
        load = self.run.load
        if load is None:
            return _line("sent so far   ", ("-", "dim"))
        most = f"   most by {load.busiest}: {size(load.busiest_bytes)}"
        return _line(
            "sent so far   ", (size(load.bytes_sent), "cyan"), f" in {load.messages_sent:,} messages", (most, "dim")
        )

    def _group(self, group: GroupView) -> Text:
        wide = min(_BAR, group.total)
        finished, alive = (round(wide * part / group.total) for part in (group.finished, group.alive))
        alive = min(alive, wide - finished)
        full, empty = ("█", "░") if self._unicode else ("#", ".")
        counts = [f"{group.alive} alive", f"{group.away} away", f"{group.finished} finished"]
        shown = [text for text in counts if not text.startswith("0 ")]
        return _line(
            f"{(group.name or 'peers')[:18]:18} ", (full * finished, "bold green"), (full * alive, "green"),
            (empty * (wide - finished - alive), "red" if group.away else "dim"), f"  {group.total}: {', '.join(shown)}",
        )  # fmt: skip

    def _peers(self, room: int) -> Table:
        shown = table(("peer", "status", "role", "round"), right=("round",))
        peers = list(self.run.peers.values())
        kept = peers
        if len(peers) > room:  # those that need attention come first
            peers.sort(key=lambda peer: (peer.term is None, peer.status in ("alive", "finished"), peer.name))
            kept = peers[: room - 1]
        for peer in kept:
            again = f", life {peer.lives}" if peer.lives > 1 else ""
            status, role = Text(peer.status + again, style=_STYLES[peer.status]), Text("")
            if peer.term is not None:
                gone = peer.status in ("down", "lost", "left")
                verb, style = ("aggregated", "dim") if gone else ("aggregates", "bold")
                role = Text(f"{verb} term {peer.term}", style=style)
            shown.add_row(peer.name, status, role, "" if peer.round is None else str(peer.round))
        if len(kept) < len(peers):
            shown.add_row(f"and {len(peers) - len(kept)} more", "", "", "")
        return shown


def _line(*parts: str | tuple[str, str]) -> Text:
    """Return texts, or each with its style, in one line that is cut at the edge of the terminal."""
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def sparkline(values: Sequence[float], bars: str = _BARS) -> str:
    """Draw positive numbers as a row of bars on a logarithmic scale.

    >>> sparkline([1.0, 0.1, 0.01])
    '█▅▁'
    """
    least = min((value for value in values if value > 0), default=1.0)
    logs = [math.log(max(value, least)) for value in values]
    low, span = min(logs), max(logs) - min(logs)
    return "".join(bars[round((log - low) / span * (len(bars) - 1)) if span else 0] for log in logs)
