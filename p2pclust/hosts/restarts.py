"""When a supervised peer is started again, and when it is given up. Times are seconds of a monotonic clock."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Any, Final

ORDERS: Final = ("stop", "restart", "kill", "pause", "resume")  # what an operator can order for one peer

#: A life that ends sooner is a failure to start; after so many of them in a row, the peer is given up.
QUICK_S: Final = 10.0
MOST_QUICK: Final = 5
_FIRST_WAIT_S: Final = 0.5  # how long a peer stays down after a failure; doubles with each failure
_LONGEST_WAIT_S: Final = 30.0
#: A running peer counts as ready after waiting so long for others, or, if it sends no notification, after so long.
_ALONE_S: Final = 10.0
_SILENT_S: Final = 60.0


@dataclass(slots=True)
class SupervisedPeer:
    """One peer of the plan."""

    name: str
    command: tuple[str, ...]  # arguments of the interpreter
    #: A digest of everything that the peer was started with. If the plan's differs, the peer is started again.
    print: str
    status: str = "waiting"  # waiting (for `due`), starting, running, given-up, leaving, left, stopped
    wanted: bool = True
    stopped: bool = False  # whether an operator stopped it: it stays down until it is started again by name
    paused: bool = False  # whether an operator paused its process
    pid: int = 0
    since: str = ""
    restarts: int = 0
    ended: str = ""  # how its last life ended
    last_line: str = ""  # that it wrote
    says: str = ""  # the status line that the peer sent (`sd_notify`)
    due: float = 0.0  # when a waiting peer is started, or a leaving one is killed
    began: float = 0.0
    ready_at: float = 0.0  # when it counts as ready without having said so
    fed_at: float = 0.0  # when its event loop last sent a watchdog message; 0: never
    quick: int = 0
    failed: bool = False  # whether its last life failed, and no later one was ready

    def started(self, now: float, pid: int, since: str) -> None:
        self.status, self.pid, self.since, self.began, self.says = "starting", pid, since, now, ""
        self.paused = False
        self.ready_at, self.fed_at = now + _SILENT_S, 0.0

    def heard(self, now: float) -> None:
        """Note that it runs; from now on it waits for other peers only, for a limited time."""
        self.ready_at = min(self.ready_at, now + _ALONE_S)

    def ready(self) -> None:
        """Note that the peer has joined its fleet, or has waited long enough."""
        if self.status == "starting":
            self.status, self.failed = "running", False

    def leave(self, now: float, deadline_s: float) -> None:
        """Note that it was asked to leave; without a process, it has left."""
        self.due = now + deadline_s if self.pid else now
        self.status, self.paused = "leaving" if self.pid else "left", False

    def exited(self, now: float, code: int, last_line: str) -> None:
        """End a life; a negative code is minus the number of the signal that killed it."""
        asked = self.status == "leaving"
        self.pid, self.paused = 0, False
        known = {-item.value: item.name for item in signal.Signals}
        self.ended = f"killed by {known.get(code, f'signal {-code}')}" if code < 0 else f"exit code {code}"
        # After SIGKILL the last line says nothing about the end.
        self.last_line = "" if code == -signal.SIGKILL else last_line
        if not self.wanted:
            self.status = "left"
            return
        if self.stopped:
            self.stop(now)
            return
        self.status, self.due, self.failed = "waiting", now, not asked
        if asked:  # its entry changed: the next life begins at once
            return
        self.quick = self.quick + 1 if now - self.began < QUICK_S else 0
        self.due = now + min(_FIRST_WAIT_S * 2.0 ** max(self.quick - 1, 0), _LONGEST_WAIT_S)
        if self.quick >= MOST_QUICK:
            self.status = "given-up"
        else:
            self.restarts += 1

    def again(self, now: float) -> None:
        """Start a peer that was given up, or that has left, as if it were new."""
        if self.status in ("given-up", "left"):
            self._anew("waiting", now)

    def _anew(self, status: str, now: float) -> None:
        self.status, self.due, self.quick, self.failed = status, now, 0, False

    def problem_with(self, order: str) -> str:
        """Return why this peer cannot carry out an order; empty if it can."""
        if order == "stop" and self.stopped:
            return "is stopped already"
        if order in ("kill", "pause", "resume") and not self.pid:
            return f"does not run: it is {self.to_dict()['status']}"
        if order == "pause" and self.paused:
            return "is paused already"
        if order == "resume" and not self.paused:
            return "is not paused"
        return ""

    def stop(self, now: float) -> None:
        """Stay down after its process has ended, until `start_again`."""
        self.stopped = True
        if not self.pid:
            self._anew("stopped", now)

    def start_again(self, now: float) -> None:
        """Start a new life: at once, or as soon as its process, which was asked to leave, has ended."""
        self.stopped = False
        if not self.pid:
            self._anew("waiting", now)

    def hold(self, now: float, *, paused: bool) -> None:
        """Note that it was paused or resumed; paused time counts against no deadline."""
        self.paused = paused
        self.fed_at = now if self.fed_at else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that `p2pclust fleet status` shows."""
        shown = ("status", "pid", "since", "restarts", "failed", "ended", "last_line", "says", "print", "stopped")
        return {key: getattr(self, key) for key in shown} | ({"status": "paused"} if self.paused else {})
