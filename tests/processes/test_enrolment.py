"""Real peers whose fleet roster changes while they run: a revocation in mid job, a newcomer, a key that expires."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from by_hand import Fleet
from runs import until

from p2pclust.lab.testbed.processes.children import ReservedPorts
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.transport.keys import add_devices, init_fleet, revoke

pytestmark = [pytest.mark.processes, pytest.mark.slow]


def arrays(n: int) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [rng.normal(size=(40, 2)) + 5 * rng.integers(0, 3, (40, 1)) for _ in range(n)]


def job(rounds: int):  # type: ignore[no-untyped-def]
    return cluster_job("llf-cm", n_clusters=3, tol=0.0, max_rounds=rounds, suppress_singletons=False)


@pytest.mark.timeout(180)
def test_a_fleet_whose_devices_change_while_it_runs(home: Path) -> None:
    keys = home / "fleet"
    init_fleet(keys)
    enrolled = [f"p{number:02d}" for number in range(5)]
    add_devices(keys, enrolled)

    def settings(name: str) -> dict[str, str]:
        return {"bundle": f"../fleet/{name}.bundle", "roster": "../fleet/roster.json"}

    with Fleet(home, arrays(6), settings) as fleet:
        fleet.names, newcomer = enrolled, "p05"
        fleet.start(*enrolled)
        until(fleet.linked, 60.0, "the peers did not find each other")
        fleet.submit(job(200), missing="wait")
        until(lambda: len(fleet.verbs("p01", "job")) == 1, 60.0, "the job did not begin")
        until(lambda: sum(len(fleet.verbs(name, "combined")) for name in enrolled) > 5, 60.0, "no rounds were combined")

        # One is revoked, and one peer is told.
        revoke(keys, ["p03"])
        fleet.processes["p01"].send_signal(signal.SIGHUP)
        left = [name for name in enrolled if name != "p03"]
        until(lambda: all(fleet.verbs(name, "roster") for name in left), 60.0, "the roster did not reach everybody")
        assert not fleet.finished(), "the job was over before anybody was revoked"
        until(lambda: len(fleet.finished(*left)) == 4, 90.0, "the job did not finish among those who are left")
        assert len(set(fleet.finished(*left).values())) == 1
        assert {line["member"] for line in fleet.verbs("p01", "revoked")} == {"p03"}
        assert fleet.processes["p03"].wait(60) == 3, "it ends"
        why = "p03 was revoked: it is not on fleet roster 2; stop it, or enrol it again"
        assert [line["reason"] for line in fleet.verbs("p03", "failed")] == [why]
        members = {member["name"] for member in fleet.status("p01")["members"]}
        assert members == {"p00", "p02", "p04"}
        contributors = [line["contributors"] for name in enrolled for line in fleet.verbs(name, "combined")]
        last = max((line for name in left for line in fleet.verbs(name, "combined")), key=lambda line: line["round"])
        assert last["contributors"] == left
        assert enrolled in contributors

        # Another is enrolled: its own bundle is all that it has.
        add_devices(keys, [newcomer])
        text = (home / newcomer / "peer.toml").read_text()
        (home / newcomer / "peer.toml").write_text(text.replace('roster = "../fleet/roster.json"\n', ""))
        fleet.start(newcomer)
        told = ["keys", "publish", "--fleet", str(keys), "--peer", str(home / "p02" / "state")]
        done = subprocess.run(
            [sys.executable, "-m", "p2pclust", *told], capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stderr) == (0, "p02 took roster 3\n")
        now = [*left, newcomer]

        def all_here() -> bool:
            return (
                all(
                    {line["member"] for line in fleet.verbs(name, "member") if line["status"] == "alive"} >= {newcomer}
                    for name in left
                )
                and len({line["member"] for line in fleet.verbs(newcomer, "member")}) == 4
            )

        until(all_here, 60.0, "the newcomer was not taken in")
        fleet.submit(job(5), missing="wait")
        until(lambda: len(fleet.finished(*now)) == 5, 60.0, "the newcomer's job did not finish")
        assert fleet.verbs(newcomer, "job")[0]["roster"] == now
        assert fleet.verbs("p00", "submitted")[-1]["roster"] == now


def test_peers_without_keys_meet_on_one_machine(home: Path) -> None:
    """And say so."""
    with Fleet(home, arrays(3)) as fleet:
        keyed, *keyless = fleet.names[::-1]
        for name in keyless:
            file = home / name / "peer.toml"
            lines = file.read_text().splitlines()
            lines = [line for line in lines if not line.startswith(("bundle", "roster", "join"))]
            others = [f"{other}@{fleet.listen[other]}" for other in fleet.names if other != name]
            file.write_text("\n".join([*lines, f"join = {others}"]) + "\n")
        for name in (keyed, *keyless):
            with (home / name / "peer.log").open("ab") as log:
                command = [sys.executable, "-m", "p2pclust", "peer", "--config", str(home / name / "peer.toml")]
                fleet.processes[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until(lambda: all(fleet.verbs(name, "member") for name in keyless), 60.0, "they did not meet")
        until(lambda: fleet.verbs(keyed, "no-answer"), 60.0, "the one with keys waits for no answer")
        assert all(fleet.verbs(name, "insecure") for name in keyless)
        assert {line["member"] for name in keyless for line in fleet.verbs(name, "member")} == set(keyless)
        assert not fleet.verbs(keyed, "member")


def test_a_device_that_was_copied_is_reported_by_both_and_by_the_others(home: Path) -> None:
    spare = ReservedPorts(1)
    with ExitStack() as ends, Fleet(home, arrays(3)) as fleet:
        ends.callback(spare.release)
        fleet.start()
        until(fleet.linked, 60.0, "the peers did not find each other")
        shutil.copytree(home / "p01", home / "copy", ignore=shutil.ignore_patterns("state", "peer.log"))
        elsewhere = f"127.0.0.1:{spare.numbers[0]}"
        file = home / "copy" / "peer.toml"
        file.write_text(file.read_text().replace(fleet.listen["p01"], elsewhere))
        fleet.start("copy")
        everywhere = [*fleet.names, "copy"]
        until(lambda: all(fleet.verbs(name, "twin") for name in everywhere), 90.0, "the copy was not noticed")
        both = {elsewhere, fleet.listen["p01"]}
        told = {
            name: [(line["member"], set(line["addresses"])) for line in fleet.verbs(name, "twin")]
            for name in everywhere
        }
        assert told == {name: [("p01", both)] * len(lines) for name, lines in told.items()}
        assert all(address in fleet.status(name)["twin"] for address in both for name in ("p01", "copy"))
        (why,) = [member["why"] for member in fleet.status("p00")["members"] if member["name"] == "p01"]
        assert all(address in why for address in both)
        assert fleet.status("p00")["twin"] == ""
