"""The ledger of a device's privacy budget outlives the peer; what cannot be read promises nothing more."""

from __future__ import annotations

from pathlib import Path

from p2pclust.peer.shell.privacy_file import LEDGER, PrivacyFile
from p2pclust.protocols.private.ledger import Budget

BUDGET = Budget(epsilon=2.0, delta=1e-6, days=30)
HALF = BUDGET.mu_squared * 0.6


def ledger_at(folder: Path, day: int) -> PrivacyFile:
    return PrivacyFile(folder / LEDGER, budget=BUDGET, today=lambda: day)


def test_a_spent_budget_refuses_the_next_job_after_a_restart_too(tmp_path: Path) -> None:
    assert ledger_at(tmp_path, 100).reserve("job-a", HALF) == ""
    again = ledger_at(tmp_path, 100)
    assert again.reserve("job-a", HALF) == "", "a job counts once"
    assert again.reserve("job-b", HALF).startswith("privacy budget of epsilon 2 in 30 days: ")
    assert ledger_at(tmp_path, 130).reserve("job-b", HALF) == "", "after the window it is free again"


def test_a_clock_that_goes_back_frees_nothing(tmp_path: Path) -> None:
    assert ledger_at(tmp_path, 200).reserve("job-a", HALF) == ""
    assert ledger_at(tmp_path, 100).reserve("job-b", HALF) != ""


def test_without_a_budget_everything_is_written_down(tmp_path: Path) -> None:
    ledger = PrivacyFile(tmp_path / LEDGER, today=lambda: 100)
    assert [ledger.reserve(f"job-{number}", 10.0) for number in range(3)] == ["", "", ""]
    assert ledger_at(tmp_path, 101).reserve("job-x", 0.001) != "", "a budget that comes later counts them"


def test_a_garbled_ledger_promises_nothing(tmp_path: Path) -> None:
    assert ledger_at(tmp_path, 100).reserve("job-a", HALF) == ""
    file = tmp_path / LEDGER
    file.write_bytes(file.read_bytes()[:-1])
    assert ledger_at(tmp_path, 100).reserve("job-b", 0.001) == (
        "privacy ledger: it cannot be read or written: mend its disk, or put back its newest copy"
    )


def test_a_ledger_that_cannot_be_written_promises_nothing(tmp_path: Path) -> None:
    assert ledger_at(tmp_path / "absent", 100).reserve("job-a", HALF).startswith("privacy ledger: it cannot be")
