"""Peers started one by one with `p2pclust peer`, as on devices: nobody is their parent but the test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.throwaway import throwaway_fleet

from p2pclust.hosts.client import Connection
from p2pclust.hosts.submission import fetch, submit
from p2pclust.jobs.request import JobRequest
from p2pclust.lab.testbed.processes.children import ReservedPorts, write_fleet
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.job import Job, JobState

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def toml(value: Any) -> str:
    """Write a value as TOML does."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(inner)}" for key, inner in value.items()) + " }"
    return json.dumps(value)


class Fleet:
    """Peers p00, p01, ... over these arrays, each with a folder, a TOML file and a log of its own."""

    def __init__(
        self, home: Path, arrays: Sequence[NDArray[np.float64]],
        settings: Callable[[str], Mapping[str, Any]] = lambda name: {}, joins: int = 2,
    ) -> None:  # fmt: skip
        self.home = home
        self.names = [f"p{number:02d}" for number in range(len(arrays))]
        write_fleet(home / "keys", *throwaway_fleet(self.names))
        self.ports = ReservedPorts(len(arrays))
        self.listen = dict(zip(self.names, (f"127.0.0.1:{port}" for port in self.ports.numbers), strict=True))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._said: dict[str, tuple[list[dict[str, Any]], int]] = {}
        for number, name in enumerate(self.names):
            folder = home / name
            folder.mkdir()
            (folder / "peer.log").touch()
            np.save(folder / "rows.npy", arrays[number])
            first = [other for other in self.names if other != name][:joins]
            values = {
                "name": name, "listen": self.listen[name], "join": [f"{o}@{self.listen[o]}" for o in first],
                "roster": "../keys/roster.json", "bundle": f"../keys/{name}.bundle", "data": "rows.npy",
                "state_dir": "state", "timing": "fast", "log": "json", **settings(name),
            }  # fmt: skip
            text = "".join(f"{key} = {toml(value)}\n" for key, value in values.items())
            (folder / "peer.toml").write_text(text, encoding="utf-8")

    def __enter__(self) -> Fleet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill(*self.processes)
        self.ports.release()

    def start(self, *names: str) -> None:
        """Start these peers, or all."""
        for name in names or self.names:
            folder = self.home / name
            command = [sys.executable, "-m", "p2pclust", "peer", "--config", str(folder / "peer.toml")]
            with (folder / "peer.log").open("ab") as log:
                self.processes[name] = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=ENVIRONMENT
                )

    def submit(self, job: Job, **more: Any) -> str:
        """Hand a job in at the first peer; its id, when a majority has it."""
        with Connection(self.home / self.names[0] / "state") as connection:
            return submit(connection, JobRequest(job, Treatment(**({"missing": "all"} | more))))

    def state(self, job: str) -> JobState:
        """The state of a job in the first peer's register."""
        with Connection(self.home / self.names[0] / "state") as connection:
            return JobState.decode(fetch(connection, job, "state"))

    def said(self, name: str) -> list[dict[str, Any]]:
        """All that a peer logged so far, over all its lives: the verb and its fields."""
        found, read = self._said.setdefault(name, ([], 0))
        with (self.home / name / "peer.log").open("rb") as log:
            log.seek(read)
            new = log.read()
        whole = new[: new.rfind(b"\n") + 1]
        for line in whole.splitlines():
            if line.startswith(b"{"):
                told = json.loads(line)
                found.append({"verb": told["verb"], **told.get("fields", told)})
        self._said[name] = (found, read + len(whole))
        return found

    def verbs(self, name: str, verb: str) -> list[dict[str, Any]]:
        """Of this, what has that verb."""
        return [line for line in self.said(name) if line["verb"] == verb]

    def status(self, name: str) -> dict[str, Any]:
        """What a peer knows."""
        with Connection(self.home / name / "state") as connection:
            return connection.ask("status")

    def rounds(self) -> list[int]:
        """The rounds that were combined, whoever did it."""
        return [line["round"] for name in self.names for line in self.verbs(name, "combined")]

    def linked(self) -> bool:
        """Whether everybody has heard of everybody."""
        n = len(self.names)
        heard = ({line["member"] for line in self.verbs(name, "member")} for name in self.names)
        return all(len(names) == n - 1 for names in heard)

    def finished(self, *names: str) -> dict[str, str]:
        """The digests of the final state, by the peers that said that they finished."""
        ends = {name: self.verbs(name, "finished") for name in names or self.names}
        return {name: lines[-1]["digest"] for name, lines in ends.items() if lines}

    def kill(self, *names: str) -> None:
        """kill -9 these peers, or all, at once."""
        for name in names or self.processes:
            self.processes[name].send_signal(signal.SIGKILL)
        for name in names or self.processes:
            self.processes[name].wait(60)
