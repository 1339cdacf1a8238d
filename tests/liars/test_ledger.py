"""The ledger of a device's jobs: an older copy, a missing file, a clock that leaps, and two peers over the same rows."""

from __future__ import annotations

import math
import threading
from pathlib import Path

import pytest

from p2pclust.peer.shell.privacy_file import LEDGER, PrivacyFile
from p2pclust.peer.shell.store import Store
from p2pclust.protocols.private.accounting import epsilon_of, mu_for
from p2pclust.protocols.private.ledger import Budget, MostJobs, PrivacyLedger

pytestmark = pytest.mark.slow

BUDGET = Budget(2.0, 1e-6, 30)
EACH = mu_for(2.0, 1e-6) ** 2
OLDER = "privacy ledger: it is older than this device's store, or missing: put back its newest copy"


class Device:
    """A ledger whose peer keeps how far it has come, and clocks that a test sets."""

    def __init__(self, folder: Path, budget: Budget | None = BUDGET, jobs: MostJobs | None = None) -> None:
        self.folder, self.budget, self.jobs = folder, budget, jobs
        self.kept: list[bytes] = []
        self.day, self.elapsed_s = 20_000, 0.0
        self.start()

    def start(self, peer: str = "") -> PrivacyFile:
        store = (lambda: self.kept[-1] if self.kept else None, self.kept.append)
        self.file = PrivacyFile(
            self.path, peer=peer, budget=self.budget, jobs=self.jobs, today=lambda: self.day,
            elapsed_s=lambda: self.elapsed_s, store=store,
        )  # fmt: skip
        return self.file

    @property
    def path(self) -> Path:
        return self.folder / LEDGER

    def promised(self, n_jobs: int = 6) -> int:
        """Ask for so many jobs, each as large as the budget; return how many were promised."""
        return sum(not self.file.reserve(f"job-{k}", EACH) for k in range(n_jobs))


def test_one_job_spends_the_budget(tmp_path: Path) -> None:
    assert Device(tmp_path).promised() == 1
    assert epsilon_of(1e-6, math.sqrt(EACH)) == pytest.approx(2.0)


def test_a_ledger_that_was_removed_promises_nothing(tmp_path: Path) -> None:
    device = Device(tmp_path)
    assert device.promised(1) == 1
    device.path.unlink()
    assert device.file.reserve("job-b", EACH) == OLDER
    assert device.file.reserve("job-0", EACH) == OLDER, "nor does the job that it had"


def test_an_older_copy_promises_nothing(tmp_path: Path) -> None:
    device = Device(tmp_path, Budget(4.0, 1e-6, 30))
    assert device.file.reserve("job-a", EACH) == ""
    before = device.path.read_bytes()
    assert device.file.reserve("job-b", EACH) == ""
    newest = device.path.read_bytes()
    device.path.write_bytes(before)
    assert device.start().reserve("job-c", EACH / 100) == OLDER
    device.path.write_bytes(newest)
    assert device.start().reserve("job-c", EACH / 100) == "", "the newest copy continues"


def test_an_empty_ledger_in_its_place_promises_nothing(tmp_path: Path) -> None:
    device = Device(tmp_path, None)
    assert device.file.reserve("job-a", EACH) == ""
    device.path.write_bytes(PrivacyLedger().encode())
    assert device.file.reserve("job-b", EACH) == OLDER


def test_an_older_copy_of_the_jobs_that_a_device_was_in_promises_nothing(tmp_path: Path) -> None:
    device = Device(tmp_path, None, MostJobs(1, 30))
    assert device.file.reserve("job-a", 0.0) == ""
    device.path.unlink()
    assert device.file.reserve("job-b", 0.0) == OLDER


def test_a_clock_that_leaps_ahead_while_the_peer_runs_frees_nothing(tmp_path: Path) -> None:
    device = Device(tmp_path)
    for k in range(6):
        refusal = device.file.reserve(f"job-{k}", EACH)
        assert bool(refusal) is (k > 0)
        device.day += 30


def test_days_that_pass_while_the_peer_runs_do(tmp_path: Path) -> None:
    device = Device(tmp_path)
    assert device.promised(1) == 1
    device.day, device.elapsed_s = device.day + 30, 30 * 86400.0
    assert device.file.reserve("job-b", EACH) == ""


def test_a_clock_that_is_set_back_frees_nothing(tmp_path: Path) -> None:
    """A reservation has no earlier day than those before it."""
    device = Device(tmp_path, None)
    assert device.promised(1) == 1
    device.day = 10
    assert device.start().reserve("job-b", EACH) == ""
    assert [one.day for one in PrivacyLedger.decode(device.path.read_bytes()).reservations] == [20_000, 20_000]


def test_a_job_that_reveals_for_longer_than_a_window_reserves_again(tmp_path: Path) -> None:
    device = Device(tmp_path)
    assert device.file.reserve("job-a", EACH) == ""
    device.day += 31
    assert device.start().reserve("job-a", EACH) == "", "it is still the same job"
    assert device.file.reserve("job-b", EACH), "its reservation came along into the present window"
    device.day += 31
    device.start()
    assert device.file.reserve("job-b", EACH) == ""
    assert device.file.reserve("job-a", EACH), "another job took the budget meanwhile"


def test_two_peers_over_the_same_rows_share_one_budget(tmp_path: Path) -> None:
    assert Device(tmp_path).start("meter-1").reserve("job-a", EACH) == ""
    assert "privacy budget of epsilon 2" in Device(tmp_path).start("meter-2").reserve("job-b", EACH)


def test_two_peers_over_the_same_rows_are_not_in_one_job(tmp_path: Path) -> None:
    assert Device(tmp_path, None).start("meter-1").reserve("job-a", EACH) == ""
    assert Device(tmp_path, None).start("meter-2").reserve("job-a", EACH) == (
        "another peer with the same ledger takes part in this job: its rows would count twice"
    )
    assert Device(tmp_path, None).start("meter-1").reserve("job-a", EACH) == ""


def test_two_peers_that_write_at_once_lose_no_reservation(tmp_path: Path) -> None:
    def reserve(name: str) -> None:
        ledger = PrivacyFile(tmp_path / LEDGER, peer=name, today=lambda: 20_000)
        for k in range(20):
            assert ledger.reserve(f"job-{name}-{k}", 0.1) == ""

    threads = [threading.Thread(target=reserve, args=(name,)) for name in ("a", "b", "c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert PrivacyLedger.decode((tmp_path / LEDGER).read_bytes()).mark.jobs == 60


def test_the_store_keeps_how_far_the_ledger_has_come(tmp_path: Path) -> None:
    """It survives the peer, and a store that is closed and opened again."""
    for job, refusal in (("job-a", ""), ("job-b", OLDER)):
        store = Store(tmp_path)
        kept = (
            lambda store=store: store.row("self", LEDGER),
            lambda data, store=store: store.write([("self", LEDGER, data)]),
        )
        ledger = PrivacyFile(tmp_path / LEDGER, today=lambda: 20_000, store=kept)
        assert ledger.reserve(job, 0.1) == refusal
        store.load()
        store.close()
        (tmp_path / LEDGER).unlink(missing_ok=True)
