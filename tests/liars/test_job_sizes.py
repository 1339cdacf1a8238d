"""A small document may ask for more memory than a device has: such a job is refused before any task, in one line."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest
from tests.peer.harness import Net, toy

from p2pclust.errors import FleetError
from p2pclust.peer.core.effects import Compute
from p2pclust.peer.core.events import Computed, Submit
from p2pclust.peer.core.tasks import Contributed, HashBlob, NoResult, Outcome, Ref, TermToken
from p2pclust.peer.core.timing import Limits
from p2pclust.peer.operate import device
from p2pclust.peer.operate.questions import Questions
from p2pclust.peer.shell.compute import DEATHS_FILE, TaskDeaths, Worker
from p2pclust.peer.shell.store import Store
from p2pclust.peer.work.floor import bytes_of, problem_with_size
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.measuring.measure import measured

pytestmark = pytest.mark.slow

BOX = ([-9.0] * 2, [9.0] * 2)
POISON = cluster_job("llf-cm", n_clusters=2**20, n_init=100, bounds=BOX, init="uniform", tol=0.0, max_rounds=5)
SMALL_DEVICE = 400e6


def packed(job: Job) -> bytes:
    return bytes(msgpack.packb(job.to_dict()))


def small_device(job: bytes, n_peers: int) -> str:
    return problem_with_size(job, n_peers, 2, SMALL_DEVICE)


def test_a_job_of_a_few_bytes_is_too_large() -> None:
    assert len(packed(POISON)) < 400
    said = problem_with_size(packed(POISON), 3, 2, SMALL_DEVICE)
    assert said.startswith("the job is too large for this device: states and contributions of 3 peers take about 35,2")
    assert "half of its memory is 200 MB: fewer clusters, starts (n_init) or peers" in said
    assert "\n" not in said


@pytest.mark.parametrize("protocol", ["llf-cm", "llf-fcm", "fkm", "ffcm", "k-fed", "vertical-cm", "stream-fcm"])
def test_jobs_of_every_protocol_with_so_many_clusters_are_too_large(protocol: str) -> None:
    job = cluster_job(protocol, n_clusters=2**20)
    assert problem_with_size(packed(job), 3, 20, SMALL_DEVICE)


@pytest.mark.parametrize(("clusters", "features", "peers"), [(10, 784, 100), (2, 2, 4096), (50, 64, 300)])
def test_jobs_as_people_have_them_fit_into_a_small_device(clusters: int, features: int, peers: int) -> None:
    assert problem_with_size(packed(cluster_job("llf-cm", n_clusters=clusters)), peers, features, SMALL_DEVICE) == ""
    assert problem_with_size(packed(measured(cluster_job("llf-fcm", n_clusters=clusters))), peers, features, 2e9) == ""


def test_what_is_no_job_is_for_other_checks() -> None:
    assert problem_with_size(b"census", 3, 2, 1.0) == ""
    assert problem_with_size(packed(cluster_job("fedcref")), 3, 2, 1e9) == ""


@pytest.mark.parametrize(("more", "grows"), [({"n_clusters": 20}, 2), ({"n_clusters": 10, "n_init": 3}, 3)])
def test_it_grows_with_clusters_and_starts(more: dict[str, int], grows: int) -> None:
    one = cluster_job("llf-cm", n_clusters=10, init="uniform", bounds=BOX)
    assert bytes_of(cluster_job("llf-cm", init="uniform", bounds=BOX, **more), 3, 2) == grows * bytes_of(one, 3, 2)


def test_an_operator_is_refused_with_an_exit_code() -> None:
    answers: list[Any] = []
    core = SimpleNamespace(
        membership=SimpleNamespace(members={"b": 0}), identity=SimpleNamespace(name="a"), problem_with_size=small_device
    )
    shell = SimpleNamespace(core=core, listen=lambda listener: None)
    caller = SimpleNamespace(name="desk", refuse=lambda reason, code: answers.append((reason, code)))
    Questions(shell).take(caller, "submit", {"mathematics": packed(POISON)})  # type: ignore[arg-type]
    ((reason, code),) = answers
    assert reason.startswith("submit: the job is too large for this device: states and contributions of 2 peers")
    assert code == 2


def net_of(too_large: str) -> Net:
    """Three linked peers, of which these find every job too large."""
    net = Net(3)
    net.meet()
    for name in too_large.split():
        net.core(name)._ctx.problem_with_size = lambda job, n_peers: "the job is too large"
    return net


def test_a_submission_is_refused_at_the_peer() -> None:
    net = net_of("p1")
    net.step("p1", Submit(toy()))
    assert [fields["reason"] for _, fields in net.verbs("refused")] == ["the job is too large"]
    assert not any(net.core(name).jobs.jobs for name in ("p1", "p2", "p3"))


def test_a_document_that_comes_is_not_kept_and_the_others_go_on() -> None:
    """A submitter that checks nothing itself cannot put the job on this device's disk."""
    net = net_of("p3")
    job = net.submit("p1")
    net.until(lambda: len(net.finished(job)) == 2)
    refused = [(name, fields) for name, fields in net.verbs("too-large")]
    assert refused == [("p3", {"job": job, "owner": "p1", "reason": "the job is too large"})]
    assert job not in net.core("p3").jobs.jobs
    assert job not in net.core("p3").jobs.table.documents


def test_the_limit_of_a_service_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control group of the service, or one around it, may have a limit."""
    group = tmp_path / "system.slice" / "peer.service"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("max\n")
    (tmp_path / "system.slice" / "memory.max").write_text("1000\n")
    monkeypatch.setattr(device, "_CGROUPS", tmp_path)
    monkeypatch.setattr(device, "_OWN_GROUPS", tmp_path / "cgroup")
    (tmp_path / "cgroup").write_text("0::/system.slice/peer.service\n")
    assert device.memory_bytes(None) == 1000
    assert device.memory_bytes(0.0005) == 500


def lives_of(folder: Path, outcomes: list[BaseException | None]) -> list[Any]:
    """What a worker answers in each life to the same task of a job; a task that fails ends that life."""
    asked = iter(outcomes)
    told: list[Any] = []

    def computed(*_: object) -> Outcome:
        error = next(asked)
        if error is not None:
            raise error
        return Contributed(Ref(b"", 0, b""))

    async def live() -> None:
        loop, store, answers = asyncio.get_running_loop(), Store(folder), asyncio.Queue[Any]()
        worker = Worker(
            lambda: Local([[0.0]]), store, Limits(), loop, answers.put_nowait, answers.put_nowait,
            deaths=TaskDeaths(folder / DEATHS_FILE),
        )  # fmt: skip
        try:
            worker.submit(Compute(TermToken("job-1", "contribute", 1), HashBlob(b"")))
            async with asyncio.timeout(60):
                answer = await answers.get()
            told.append(answer.outcome if isinstance(answer, Computed) else type(answer).__name__)
        finally:
            worker.close(20.0)
            store.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("p2pclust.peer.shell.compute.perform", computed)
        for _ in outcomes:
            asyncio.run(live())
    return told


DIED = NoResult(
    "a process of this device ended twice in this task of the job, perhaps for want of memory: it takes no part"
)
DONE = Contributed(Ref(b"", 0, b""))


def test_a_task_in_which_a_process_died_twice_is_not_begun_again(tmp_path: Path) -> None:
    told = lives_of(tmp_path, [MemoryError(), MemoryError(), None, None])
    assert told == ["MemoryError", "MemoryError", DIED, DIED]


def test_a_task_that_ends_well_in_between_begins_anew(tmp_path: Path) -> None:
    told = lives_of(tmp_path, [MemoryError(), None, MemoryError(), None])
    assert told == ["MemoryError", DONE, "MemoryError", DONE]


def test_a_full_disk_is_no_fault_of_a_task(tmp_path: Path) -> None:
    full = FleetError("the disk is full")
    assert lives_of(tmp_path, [full, full, full, None]) == ["FleetError"] * 3 + [DONE]


def test_a_process_that_is_killed_leaves_the_note(tmp_path: Path) -> None:
    """Nothing runs in it after the kill."""
    for life in range(3):
        code = (
            "import os, sys; from pathlib import Path; from p2pclust.peer.shell.compute import TaskDeaths\n"
            "deaths = TaskDeaths(Path(sys.argv[1])); print(deaths.of(('job-1', 'contribute')), flush=True)\n"
            "with deaths.watching(('job-1', 'contribute')): os.kill(os.getpid(), 9)\n"
        )
        ended = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / DEATHS_FILE)], capture_output=True, check=False
        )
        assert (ended.returncode, int(ended.stdout)) == (-9, life)


def test_deaths_are_counted_over_three_lives_until_such_a_task_ends_well(tmp_path: Path) -> None:
    kind, other = ("job-1", "contribute"), ("job-1", "state")
    counts = []
    for _ in range(3):
        deaths = TaskDeaths(tmp_path / DEATHS_FILE)
        with deaths.watching(other):  # another task of the job says nothing of this one
            pass
        with suppress(MemoryError), deaths.watching(kind):
            raise MemoryError
        deaths.close()  # the process ends as it can, after the error
        counts.append(TaskDeaths(tmp_path / DEATHS_FILE).of(kind))
    assert counts == [1, 2, 3]
    deaths = TaskDeaths(tmp_path / DEATHS_FILE)
    with deaths.watching(kind):
        pass
    assert (deaths.of(kind), TaskDeaths(tmp_path / DEATHS_FILE).of(kind)) == (0, 0)


def test_a_process_that_leaves_in_the_middle_of_a_task_did_not_die(tmp_path: Path) -> None:
    for _ in range(3):
        deaths = TaskDeaths(tmp_path / DEATHS_FILE)
        assert deaths.of(("job-1", "contribute")) == 0
        with deaths.watching(("job-1", "contribute")):
            deaths.leave()
            deaths = TaskDeaths(tmp_path / DEATHS_FILE)


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\xff\xff", bytes(40)])
def test_a_note_that_a_power_cut_left_is_none(data: bytes, tmp_path: Path) -> None:
    (tmp_path / DEATHS_FILE).write_bytes(data)
    assert TaskDeaths(tmp_path / DEATHS_FILE).of(("job-1", "contribute")) == 0


def test_a_turn_of_a_repeated_job_is_not_kept_either() -> None:
    net = net_of("p3")
    job = net.submit("p1", toy(), every_s=3600.0)
    net.until(lambda: len(net.finished(job)) == 2)
    assert [name for name, _ in net.verbs("too-large")] == ["p3"]
    assert not net.core("p3").jobs.table.documents
