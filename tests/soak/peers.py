"""Peer processes of a soak: each has a control socket, and is struck by real signals and real cuts."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tests.throwaway import throwaway_fleet

from p2pclust.errors import UsageError
from p2pclust.lab.links.shaping import Shape
from p2pclust.lab.testbed.processes import namespaces
from p2pclust.lab.testbed.processes.children import ReservedPorts, write_fleet
from p2pclust.lab.testbed.processes.fleet import DeviceNetwork
from p2pclust.protocols.engine.local import Local

_ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
#: The light entry point; a soak that is killed leaves no peer behind.
_PROGRAM = (
    "import sys; from p2pclust.peer.main import die_with_parent; from p2pclust.lab.testbed.peer.attached import main; "
    "die_with_parent(); sys.exit(main())"
)
_ENDS_S = 30.0
_NOWHERE = "02:00:00:00:00:01"  # no device has this address: frames to it are lost without a word


@contextlib.contextmanager
def network_for(names: Sequence[str], *, isolated: bool) -> Iterator[DeviceNetwork]:
    """Give each peer an address: in a network namespace of its own, or on loopback."""
    if isolated:
        namespaces.require()
        namespaces.remove_leftovers()
        with namespaces.device_network(names) as network:
            yield network
        return
    ports = ReservedPorts(len(names))
    try:
        hosts = zip(names, ports.numbers, strict=True)
        yield DeviceNetwork({name: f"127.0.0.1:{port}" for name, port in hosts}, {})
    finally:
        ports.release()


def can_isolate() -> bool:
    """Return whether network namespaces can be made here."""
    try:
        namespaces.require()
    except UsageError:
        return False
    return True


@dataclass
class _Process:
    """One life of a peer."""

    process: subprocess.Popen[bytes]
    stopped: bool = False


class Peers:
    """The processes. One thread starts all of them: on Linux they are killed when it ends."""

    def __init__(self, home: Path, rows: Mapping[str, Local], network: DeviceNetwork, nice: int) -> None:
        self.home, self.names, self.rows = home, list(rows), rows
        self._network, self._nice = network, nice
        self._lives: dict[str, _Process] = {}
        self.lives = dict.fromkeys(rows, 0)
        self._rates: dict[str, float] = {}
        write_fleet(home / "keys", *throwaway_fleet(self.names))
        for name, local in rows.items():
            (home / name).mkdir()
            np.save(home / name / "rows.npy", local.X, allow_pickle=False)

    def state_dir(self, name: str) -> Path:
        """Where a peer has its store, and its control socket."""
        return self.home / name / "state"

    def config(self, name: str, link: Shape | None, seed: int) -> dict[str, Any]:
        """Return the configuration of a peer's next life, with that link."""
        addresses, keys = self._network.addresses, self.home / "keys"
        if link is not None and math.isfinite(link.up.rate):
            self._rates[name] = link.up.rate
        shaped = None if link is None else {"shape": link.to_dict(), "seed": [seed], "rates": dict(self._rates)}
        return {
            "name": name, "listen": addresses[name], "join": {o: addresses[o] for o in self.names if o != name},
            "bundle": str(keys / f"{name}.bundle"), "roster": str(keys / "roster.json"), "log": "json",
            "data": str(self.home / name / "rows.npy"), "state_dir": str(self.state_dir(name)), "timing": "fast",
            "fitness": 0.5, "faults": [], "link": shaped, "nice": self._nice,
            "network_namespace": self._network.namespaces.get(name),
        }  # fmt: skip

    def start(self, name: str, link: Shape | None = None, seed: int = 0) -> None:
        """Begin a life of a peer."""
        folder = self.home / name
        (folder / "peer.json").write_text(json.dumps(self.config(name, link, seed)), encoding="utf-8")
        self.lives[name] += 1
        with (folder / "peer.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(folder / "peer.json")], stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, env=_ENVIRONMENT,
            )  # fmt: skip
        self._lives[name] = _Process(process)

    def runs(self, name: str) -> bool:
        """Whether a process runs, stopped or not."""
        return name in self._lives and self._lives[name].process.poll() is None

    def stopped(self, name: str) -> bool:
        """Whether a process is stopped."""
        return self.runs(name) and self._lives[name].stopped

    def bugs(self) -> list[str]:
        """Return what the peers that ended by themselves said last."""
        ended = {name: life.process.returncode for name, life in self._lives.items() if life.process.poll() is not None}
        wrong = {name: code for name, code in ended.items() if code not in (0, -signal.SIGKILL, -signal.SIGTERM)}
        return [f"{name} ended with {code}: {self._last_line(name)}" for name, code in wrong.items()]

    def _last_line(self, name: str) -> str:
        lines = (self.home / name / "peer.log").read_text(errors="replace").splitlines()
        return lines[-1] if lines else "its log is empty"

    def kill(self, name: str) -> None:
        """kill -9."""
        self._lives[name].process.kill()
        self._lives[name].process.wait(_ENDS_S)

    def leave(self, name: str) -> None:
        """Let a peer end in order."""
        self.resume(name)
        self._lives[name].process.terminate()
        self._lives[name].process.wait(_ENDS_S)

    def stop(self, name: str) -> int:
        """Stop a process (SIGSTOP); return its life's number."""
        self._lives[name].process.send_signal(signal.SIGSTOP)
        self._lives[name].stopped = True
        return self.lives[name]

    def resume(self, name: str, life: int = 0) -> None:
        """Let a stopped process continue; with a life's number, only if that life is not over."""
        if self.runs(name) and life in (0, self.lives[name]):
            self._lives[name].process.send_signal(signal.SIGCONT)
            self._lives[name].stopped = False

    def kill_all(self) -> None:
        """End all processes."""
        for name in self._lives:
            if self.runs(name):
                self.kill(name)

    # -- cuts ------------------------------------------------------------------------------------------------------------

    @property
    def can_cut(self) -> bool:
        """Whether links between peers can be cut."""
        return bool(self._network.namespaces)

    def cut(self, source: str, target: str) -> None:
        """Let all packets from one peer to another be lost without a word."""
        self._neighbour(source, f"replace {self._host(target)} lladdr {_NOWHERE} dev eth0 nud permanent")

    def heal(self, source: str, target: str) -> None:
        """Let packets through again."""
        self._neighbour(source, f"del {self._host(target)} dev eth0")

    def _host(self, name: str) -> str:
        return self._network.addresses[name].rpartition(":")[0]

    def _neighbour(self, name: str, what: str) -> None:
        space = Path(self._network.namespaces[name]).name
        subprocess.run(["ip", "-n", space, "neigh", *what.split()], check=True, capture_output=True, timeout=_ENDS_S)
