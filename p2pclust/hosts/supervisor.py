"""Keeps the peers of one host running: ``python -m p2pclust.hosts.supervisor FOLDER``, as `p2pclust fleet up` starts it.

It starts the peers of FOLDER/plan.json, answers requests (a line of JSON) on the socket FOLDER/ask, and writes
FOLDER/state.json for the next supervisor. It imports the standard library only, and does not poll.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from p2pclust.errors import FleetError
from p2pclust.hosts.guard import die_with_parent, last_line, only_one, shorten, woken_by_signals
from p2pclust.hosts.restarts import ORDERS, SupervisedPeer
from p2pclust.tools.files import replacing

PLAN, STATE, ASK, LOG = "plan.json", "state.json", "ask", "supervisor.log"
_DOWN_S: Final = 10.0  # a peer that was asked to leave is killed after this, unless an operator says otherwise
#: A peer whose event loop has not run for so long hangs, and is killed; computations run in another process.
WATCHDOG_S: Final = 60.0
_LOOK_S: Final = 60.0  # between two checks of the size of the logs
_LONGEST_REQUEST: Final = 1 << 16
_PATIENCE_S: Final = 1.0  # with a client that connects and sends nothing
_LONGEST_PATH: Final = 100  # of a Unix socket; the kernel takes 107 bytes, others a few less


class Supervisor:
    """Supervises the peers of the current folder."""

    def __init__(self) -> None:
        self._peers: dict[str, SupervisedPeer] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._log_began: dict[str, int] = {}
        self._notify_sockets: dict[str, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._die_with_us = die_with_parent()
        self._ending = False
        self._look_at = time.monotonic() + _LOOK_S
        self._since = _clock()
        self._signalled = False
        self._written = ""
        self._stopped: set[str] = set()  # by an operator, while the previous supervisor ran
        with contextlib.suppress(FileNotFoundError):
            known = json.loads(Path(STATE).read_text(encoding="utf-8"))["peers"]
            self._stopped = {name for name, peer in known.items() if peer.get("stopped")}

    def run(self) -> None:
        """Supervise the peers until ordered to end; raise FleetError if another supervisor runs in this folder."""
        with only_one(), woken_by_signals(self._selector, self._signal):
            Path(ASK).unlink(missing_ok=True)  # left by a supervisor that was killed: this one holds the lock
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
                listener.bind(ASK)
                try:
                    Path(ASK).chmod(0o600)
                    listener.listen()
                    listener.setblocking(False)
                    self._selector.register(listener, selectors.EVENT_READ, partial(self._serve, listener))
                    self._take_plan()
                    while not (self._ending and not self._processes):
                        self._turn()
                    say("all peers have left")
                finally:
                    for process in self._processes.values():  # an error here must not leave children behind
                        process.kill()
                        process.wait()
                    for name in list(self._notify_sockets):
                        self._close_notify_socket(name)
                    self._write_state()
                    Path(ASK).unlink(missing_ok=True)

    def _turn(self) -> None:
        self._write_state()
        due = min([self._look_at, *map(self._deadline, self._peers.values())])
        for key, _ in self._selector.select(max(0.0, due - time.monotonic())):
            key.data()  # a request, a notification, or a signal, which is handled below
        if self._signalled:
            self._signalled = False
            self._end()
        for name, process in list(self._processes.items()):
            code = process.poll()
            if code is not None:
                self._exited(self._peers[name], code)
        now = time.monotonic()
        for peer in [peer for peer in self._peers.values() if now >= self._deadline(peer)]:
            match peer.status:
                case "waiting":
                    self._start(peer)
                case "leaving":
                    say(f"{peer.name} did not leave in time: killed")
                    self._processes[peer.name].kill()
                    peer.due = float("inf")
                case "starting":
                    peer.ready()
                case _:
                    say(f"{peer.name} has not moved for {WATCHDOG_S:g} s: killed")
                    self._processes[peer.name].kill()
                    peer.fed_at = 0.0
        if now >= self._look_at:
            self._look_at = now + _LOOK_S
            for log in (Path(LOG), *map(_log, self._processes)):
                shorten(log)

    @staticmethod
    def _deadline(peer: SupervisedPeer) -> float:
        """Return when something is to be done with a peer; a paused one has no deadline."""
        fed = peer.fed_at + WATCHDOG_S if peer.fed_at else float("inf")
        awake = {} if peer.paused else {"leaving": peer.due, "starting": peer.ready_at, "running": fed}
        return ({"waiting": peer.due} | awake).get(peer.status, float("inf"))

    def _start(self, peer: SupervisedPeer) -> None:
        home = Path("peers", peer.name)
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        inherited = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
        environment = {name: value for name, value in os.environ.items() if name not in inherited}
        # The folder may lie deep. Linux has a short absolute name for it, which the peer can use, since it is started here.
        path = home / "notify"
        short = f"/proc/self/cwd/{path}" if sys.platform == "linux" else str(path.absolute())
        if len(os.fsencode(short)) <= _LONGEST_PATH:
            path.unlink(missing_ok=True)
            notify_socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            notify_socket.bind(str(path))
            notify_socket.setblocking(False)
            self._notify_sockets[peer.name] = notify_socket
            self._selector.register(notify_socket, selectors.EVENT_READ, partial(self._read_notification, peer))
            environment |= {"NOTIFY_SOCKET": short, "WATCHDOG_USEC": f"{int(WATCHDOG_S * 1e6)}"}
        with _log(peer.name).open("ab") as log:
            self._log_began[peer.name] = log.seek(0, os.SEEK_END)
            process = subprocess.Popen(
                [sys.executable, *peer.command], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=environment, preexec_fn=self._die_with_us,  # noqa: PLW1509 (this process has no threads)
            )  # fmt: skip
        self._processes[peer.name] = process
        peer.started(time.monotonic(), process.pid, _clock())
        say(f"{peer.name} started, pid {process.pid}")

    def _exited(self, peer: SupervisedPeer, code: int) -> None:
        del self._processes[peer.name]
        self._close_notify_socket(peer.name)
        peer.exited(time.monotonic(), code, last_line(_log(peer.name), self._log_began[peer.name]))
        say(f"{peer.name} ended: {peer.ended}" + (f": {peer.last_line}" if peer.last_line else ""))
        if peer.status == "given-up":
            say(
                f"{peer.name} is given up: it failed {peer.quick} times in a row; fix the cause, then run fleet up again"
            )
        elif peer.status == "left" and not self._ending:
            del self._peers[peer.name]

    def _ask_to_leave(self, peer: SupervisedPeer, deadline_s: float = _DOWN_S) -> None:
        peer.leave(time.monotonic(), deadline_s)
        if peer.name in self._processes:
            self._processes[peer.name].send_signal(signal.SIGCONT)  # a stopped process would not see SIGTERM
            self._processes[peer.name].terminate()

    def _read_notification(self, peer: SupervisedPeer) -> None:
        peer.heard(time.monotonic())
        with contextlib.suppress(BlockingIOError):
            for line in self._notify_sockets[peer.name].recv(4096).decode("utf-8", "replace").splitlines():
                if line == "READY=1":
                    peer.ready()
                elif line == "WATCHDOG=1":
                    peer.fed_at = time.monotonic()
                elif line.startswith("STATUS="):
                    peer.says = line.removeprefix("STATUS=")

    def _close_notify_socket(self, name: str) -> None:
        notify_socket = self._notify_sockets.pop(name, None)
        if notify_socket is not None:
            self._selector.unregister(notify_socket)
            notify_socket.close()
            Path("peers", name, "notify").unlink(missing_ok=True)

    def _take_plan(self) -> dict[str, list[str]]:
        """Apply the plan; return the peers that are new, changed, removed, tried again, stopped and unchanged."""
        plan = json.loads(Path(PLAN).read_text(encoding="utf-8"))
        now = time.monotonic()
        done: dict[str, list[str]] = {key: [] for key in ("new", "changed", "removed", "again", "stopped", "unchanged")}
        for name, entry in plan["peers"].items():
            peer, command = self._peers.get(name), tuple(entry["command"])
            if peer is None:
                self._peers[name] = SupervisedPeer(name, command, entry["print"], due=now)
                if name in self._stopped:
                    self._peers[name].stop(now)
                done["stopped" if name in self._stopped else "new"].append(name)
                continue
            same = peer.print == entry["print"] and peer.wanted
            peer.command, peer.print, peer.wanted = command, entry["print"], True
            if peer.stopped:  # an operator stopped it, and has to start it again
                done["stopped"].append(name)
            elif same and peer.status != "given-up":
                done["unchanged"].append(name)
            else:
                if name in self._processes and peer.status != "leaving":
                    self._ask_to_leave(peer)
                peer.again(now)
                done["again" if same else "changed"].append(name)
        for name, peer in list(self._peers.items()):
            if name not in plan["peers"]:
                peer.wanted = False
                self._ask_to_leave(peer)
                done["removed"].append(name)
                if peer.status == "left":
                    del self._peers[name]
        return done

    def _serve(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except BlockingIOError:
            return
        with connection:
            connection.settimeout(_PATIENCE_S)
            try:
                answer = self._answer(json.loads(connection.makefile("rb").readline(_LONGEST_REQUEST)))
                connection.sendall(json.dumps(answer).encode() + b"\n")
            except (OSError, ValueError, KeyError, TypeError) as error:
                say(f"a request that was not understood: {type(error).__name__}: {error}")

    def _answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if request["do"] == "reload":
            return {"ending": True} if self._ending else self._take_plan()
        if request["do"] == "down":
            self._end(float(request["deadline_s"]))
        elif request["do"] in ORDERS:
            if self._ending:
                return {"ending": True}
            return self._obey(request["do"], request["names"], request["deadline_s"])
        answer, now = self._state(), time.monotonic()
        for name, peer in self._peers.items():
            answer["peers"][name]["up_s"] = round(now - peer.began, 1) if peer.pid else 0.0
        return answer

    def _obey(self, order: str, names: Sequence[str], deadline_s: float) -> dict[str, Any]:
        """Carry out an order on all of these peers, or on no peer if one of them is refused."""
        unknown = "is not supervised here: run `p2pclust fleet up` first"
        refused = {name: self._peers[name].problem_with(order) if name in self._peers else unknown for name in names}
        refused = {name: why for name, why in refused.items() if why}
        for name in () if refused else names:
            say(f"{name}: {order}, ordered by an operator")
            now, peer, process = time.monotonic(), self._peers[name], self._processes.get(name)
            if order in ("stop", "restart"):
                if process is not None:
                    self._ask_to_leave(peer, deadline_s)
                (peer.stop if order == "stop" else peer.start_again)(now)
            elif process is not None:
                process.send_signal({"kill": signal.SIGKILL, "pause": signal.SIGSTOP, "resume": signal.SIGCONT}[order])
                peer.hold(now, paused=order == "pause")
        return {"refused": refused}

    def _end(self, deadline_s: float | None = None) -> None:
        self._ending = True
        for peer in self._peers.values():
            peer.wanted = False
            peer.stopped &= deadline_s is None  # after `fleet down`, the next `fleet up` starts all peers
            if peer.status != "leaving" or deadline_s is not None:
                self._ask_to_leave(peer, _DOWN_S if deadline_s is None else deadline_s)

    def _signal(self) -> None:
        self._signalled = True

    def _state(self) -> dict[str, Any]:
        peers = {name: peer.to_dict() for name, peer in sorted(self._peers.items())}
        return {"pid": os.getpid(), "since": self._since, "ending": self._ending, "peers": peers}

    def _write_state(self) -> None:
        text = json.dumps(self._state(), indent=1) + "\n"
        if text != self._written:
            with replacing(Path(STATE)) as file:
                file.write(text.encode())
            self._written = text


def _log(name: str) -> Path:
    return Path("peers", name, "peer.log")


def say(line: str) -> None:
    sys.stderr.write(f"{_clock()} supervisor {line}\n")
    sys.stderr.flush()


def _clock() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")


def main() -> int:
    os.umask(0o077)  # files of the supervisor and the peers are private to their owner
    os.chdir(sys.argv[1])
    try:
        Supervisor().run()
    except FleetError as error:
        say(str(error))
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
