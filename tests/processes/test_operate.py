"""All commands for operators, one after another, against three real peers that `p2pclust peer` started."""

from __future__ import annotations

import contextlib
import io
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.command_line import p2pclust
from tests.throwaway import throwaway_fleet

from p2pclust.errors import FleetError
from p2pclust.hosts.client import Connection
from p2pclust.lab.testbed.processes.children import ReservedPorts, write_fleet

pytestmark = [pytest.mark.processes, pytest.mark.slow]

NAMES = ("a", "b", "c")
CENTERS = ((0.0, 0.0), (4.0, 4.0), (0.0, 5.0))


class Ran(NamedTuple):
    code: int
    out: str
    err: str


class Fleet:
    """Three peers and a command line."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.peers: dict[str, subprocess.Popen[bytes]] = {}
        rng = np.random.default_rng(0)
        write_fleet(home / "fleet", *throwaway_fleet([*NAMES, "z"]))
        self.ports = ReservedPorts(len(NAMES) + 1)
        self.address = {
            name: f"127.0.0.1:{port}" for name, port in zip((*NAMES, "control"), self.ports.numbers, strict=True)
        }
        for name in NAMES:
            rows = np.concatenate([rng.normal(center, 0.3, (20, 2)) for center in CENTERS])
            lines = [f"{name}{number},{x!r},{y!r}" for number, (x, y) in enumerate(rows.tolist())]
            (home / f"{name}.csv").write_text("who,x,y\n" + "\n".join(lines) + "\n", encoding="utf-8")

    def start(self, name: str) -> None:
        join = [word for other in NAMES if other != name for word in ("--join", f"{other}@{self.address[other]}")]
        control = ["--control", self.address["control"]] if name == "b" else []
        words = [
            "peer", "--name", name, "--listen", self.address[name], *join, *control, "--roster", "fleet/roster.json",
            "--bundle", f"fleet/{name}.bundle", "--data", f"{name}.csv", "--columns", "x,y", "--state-dir", name,
            "--timing", "fast",
        ]  # fmt: skip
        with (self.home / f"{name}.log").open("ab") as log:
            command = [sys.executable, "-m", "p2pclust", *words]
            self.peers[name] = subprocess.Popen(command, cwd=self.home, stdout=log, stderr=log)

    def end(self, name: str, number: int = signal.SIGTERM) -> None:
        peer = self.peers.pop(name)
        peer.send_signal(number)
        peer.wait(60)

    def run(self, *words: str, code: int = 0) -> Ran:
        """Run a command in this process: each would take a second to start."""
        out, err = io.StringIO(), io.StringIO()
        ended = pytest.raises(SystemExit)
        with (
            contextlib.chdir(self.home),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            ended as end,
        ):
            p2pclust(*words)
        ran = Ran(int(end.value.code or 0), out.getvalue(), err.getvalue())
        assert ran.code == code, f"{words}: {ran}"
        assert "Traceback" not in ran.err
        return ran

    def json(self, *words: str, code: int = 0) -> Any:
        return json.loads(self.run(*words, "--json", code=code).out)

    def until_alive(self, *names: str, at: str = "a") -> None:
        """Wait until the peer is there, has read its rows, and sees these alive."""
        until, told = time.monotonic() + 60, {}
        while time.monotonic() < until:
            with contextlib.chdir(self.home), contextlib.suppress(FleetError), Connection(at) as client:
                told = client.ask("status")
                alive = {member["name"] for member in told["members"] if member["status"] == "alive"}
                if alive == set(names) and told["data"]["rows"]:
                    return
            threading.Event().wait(0.1)
        raise AssertionError(told)

    def until_heard(self, job: str, at: str, phase: str = "") -> Any:
        """Wait until that peer knows the job, in that phase, and return what it knows of it."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            found = [told for told in self.json("jobs", "--peer", at)["jobs"] if told["job"] == job]
            if found and phase in ("", found[0]["phase"]):
                return found[0]
            threading.Event().wait(0.1)
        raise AssertionError(self.json("jobs", "--all", "--peer", at))

    def until_turn(self, number: int) -> Any:
        """Wait until such a turn of a series has ended, and return what is known of it."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            for job in self.json("jobs")["jobs"]:
                if job["series"] and job["number"] >= number and job["phase"] == "done":
                    return job
            threading.Event().wait(0.2)
        raise AssertionError(self.json("jobs", "--all"))


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    monkeypatch.setenv("P2PCLUST_CONTROL", "a")
    monkeypatch.delenv("P2PCLUST_BUNDLE", raising=False)
    made = Fleet(tmp_path)
    try:
        for name in NAMES:
            made.start(name)
        yield made
    finally:
        for name in list(made.peers):
            made.end(name, signal.SIGKILL)
        made.ports.release()


@pytest.mark.timeout(300)
def test_a_walk_through_all_commands(fleet: Fleet) -> None:
    fleet.until_alive("b", "c")
    fleet.until_alive("a", "c", at="b")  # there a job will be handed in, of whoever is seen
    assert "z" in {m["name"]: m["why"] for m in fleet.json("peers")["views"][0]["members"]}
    matrix = fleet.run("peers", "--peer", "a", "--peer", "b").out
    assert "its address is not known yet" in matrix

    # A job from its beginning to its end, asked over the network and on the device.
    done = fleet.json(
        "submit", "llf-fcm", "--clusters", "3", "--scaling", "minmax", "--fuzzifier", "1.5", "--tol", "0", "--max-rounds",
        "8", "--wait", "--peer", f"b@{fleet.address['control']}", "--bundle", "fleet/c.bundle",
    )  # fmt: skip
    assert done["outcome"] == "done"
    job = done["job"]
    assert [told["phase"] for told in fleet.json("jobs")["jobs"]] == ["done"]
    assert fleet.json("watch", job[:10])["outcome"] == "done"
    told = fleet.json("result", job, "-o", "centers.csv", "--peer", "c")
    assert told["contributors"] == list(NAMES)
    assert (told["rounds"], told["features"]) == (8, ["x", "y"])
    near = [min(np.hypot(x - p, y - q) for p, q in told["centers"]) for x, y in CENTERS]
    assert max(near) < 0.3
    header, *rows = (fleet.home / "centers.csv").read_text().splitlines()
    assert header == "x,y"
    assert [[float(cell) for cell in row.split(",")] for row in rows] == told["centers"]

    # Who has signed the end: two peers may show other signatures, and no device contradicts itself.
    fleet.run("result", job, "--proof", "end.proof", "--peer", "c")
    checked = fleet.json("result", job, "--check", "--against", "end.proof", "--bundle", "fleet/z.bundle")
    assert not checked["contradictions"]
    assert [len(end["acknowledged"]) for end in checked["ends"]] == [2, 2]
    assert "acknowledged by 2 of 3" in fleet.run("result", "end.proof", "--check", "--bundle", "fleet/z.bundle").out

    # Labels: of the device's own rows as they stand in the file, and of others.
    header, *rows = fleet.run("assign", job).out.splitlines()
    assert header == "who,x,y,row,label,distance,membership_0,membership_1,membership_2"
    assert len(rows) == 60
    first = rows[0].split(",")
    assert (first[0], first[3], first[4]) == ("a0", "0", str(int(np.argmax([float(cell) for cell in first[6:]]))))
    assert sum(map(float, first[6:])) == pytest.approx(1.0)
    (fleet.home / "new.csv").write_text("y,note,x\n5.1,up,0.1\n", encoding="utf-8")
    fleet.run("assign", job, "--data", "new.csv", "-o", "labelled.csv")
    header, row = (fleet.home / "labelled.csv").read_text().splitlines()
    assert (fleet.home / "labelled.csv").stat().st_mode & 0o777 == 0o600
    assert header == "y,note,x,row,label,distance,membership_0,membership_1,membership_2"
    x, y = told["centers"][int(row.split(",")[4])]
    assert np.hypot(x - 0.1, y - 5.1) < 0.5
    network = ("--peer", f"b@{fleet.address['control']}", "--bundle", "fleet/c.bundle")
    assert "never leave it" in fleet.run("assign", job, *network, code=2).err

    # Who is offline learns of a job when it returns; it is cancelled by a peer that did not hand it in.
    fleet.end("c")
    slow = fleet.run(
        "submit", "llf-cm", "--clusters", "3", "--tol", "0", "--max-rounds", "100000", "--missing", "all", "--roster",
        "a,b,c",
    ).out.strip()  # fmt: skip
    assert "llf-cm, round" in fleet.run("watch", slow, "--within", "3", code=3).out
    (standing,) = [told for told in fleet.json("jobs")["jobs"] if told["job"] == slow]
    assert standing["absent"] == ["c"]
    fleet.start("c")
    fleet.until_alive("a", "b", at="c")
    fleet.until_heard(slow, at="c")
    assert "c" in fleet.json("cancel", slow, "--peer", "c")["reason"]
    for name in NAMES:
        assert fleet.until_heard(slow, name, "cancelled")["reason"] == "cancelled by c"
    assert "too late" in fleet.run("cancel", slow, code=3).err
    assert "cancelled by c" in fleet.run("result", slow, code=3).err

    # A job that is repeated, on rows that grow, until somebody ends it. On a busy machine commands take seconds, and only
    # the last two turns are kept.
    series = fleet.run(
        "submit", "llf-cm", "--clusters", "3", "--every", "4s", "--max-rounds", "5", "--peer", "b"
    ).out.strip()
    with (fleet.home / "a.csv").open("a", encoding="utf-8") as rows:
        rows.writelines(f"new{number},9,9\n" for number in range(20))
    turn = fleet.until_turn(2)
    told = fleet.json("result", turn["job"])
    assert told["drift"]["largest"] == max(told["drift"]["each"]) == max(told["drift"]["features"].values())
    assert fleet.json("status")["data"]["rows"] == 80
    fleet.end("b", signal.SIGKILL)  # who handed it in; two of four enrolled begin nothing without it
    fleet.start("b")
    turn = fleet.until_turn(turn["number"] + 2)
    assert turn["roster"] == ["a", "b", "c"]
    assert fleet.json("result", series)["name"].startswith(f"{series}/")
    assert "failed" not in [told["phase"] for told in fleet.json("jobs", "--all")["jobs"]], "a census is not shown"
    ended = fleet.json("cancel", series, "--peer", "c")
    assert ended["outcome"] == "cancelled"
    assert {told["series"] for told in fleet.json("jobs", series)["jobs"]} == {series}
    assert "is no longer kept" in fleet.run("result", f"{series}/1", code=2).err

    # A peer that was killed left its socket behind; its next life takes the place.
    fleet.end("a", signal.SIGKILL)
    assert "is it running?" in fleet.run("status", code=3).err
    fleet.start("a")
    fleet.until_alive("b", "c")
    assert fleet.run("jobs", "--peer", "b").out  # who was away hears that the series is over

    # What is wrong is said in one line.
    for words, code, line in [
        (("submit", "llf-cm"), 2, "submit: protocol 'llf-cm' needs clusters"),
        (("submit", "llf-cm", "--clusters", "3", "--fuzzifier", "2"), 2, "submit: protocol 'llf-cm' has no fuzzifier"),
        (
            ("submit", "llf-cm", "--clusters", "3", "--roster", "a,q"),
            2,
            "submit: roster: not on a's fleet roster: q; expected some of a, b, c, z",
        ),
        (("watch", "job-x"), 2, "a does not know the job: 'job-x'"),
        (("status", "--peer", "nowhere"), 3, "no peer listens at nowhere: is it running?"),
    ]:
        assert fleet.run(*words, code=code).err.startswith(f"error: {line}")
