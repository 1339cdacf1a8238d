"""The ledger: windows, jobs that come again, and bytes that anybody may have changed."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from itertools import pairwise

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.errors import DataError, UsageError
from p2pclust.protocols.private.accounting import epsilon_of, mu_for
from p2pclust.protocols.private.ledger import Budget, LedgerMark, MostJobs, PeerSet, PrivacyLedger, Reservation

MONTH = Budget(epsilon=2.0, delta=1e-6, days=30)
HALF = mu_for(2.0, 1e-6) ** 2 / 2
JOBS = st.lists(st.tuples(st.sampled_from("abcdef"), st.floats(1e-6, 10.0), st.integers(0, 200)), max_size=8)


def ledger_of(jobs: list[tuple[str, float, int]]) -> PrivacyLedger:
    ledger = PrivacyLedger()
    for job, mu_squared, day in jobs:
        ledger = ledger.with_job(job, mu_squared, day)
    return ledger


def test_a_budget_holds_so_many_jobs_in_a_window() -> None:
    ledger = ledger_of([("a", HALF, 10), ("b", HALF, 20)])
    assert ledger.problem_with_budget("c", 1e-6, 39, MONTH)
    assert ledger.problem_with_budget("c", HALF, 40, MONTH) == ""  # the first day that does not reach back to day 10
    assert ledger.problem_with_budget("c", HALF * 1.01, 40, MONTH)
    assert ledger.problem_with_budget("c", HALF * 2, 50, MONTH) == ""


def test_a_clock_that_was_set_back_frees_nothing() -> None:
    assert ledger_of([("a", HALF, 100), ("b", HALF, 100)]).problem_with_budget("c", HALF, 1, MONTH)


def test_a_job_that_comes_again_is_counted_once() -> None:
    ledger = ledger_of([("a", HALF * 2, 10)])
    assert ledger.problem_with_budget("a", HALF * 2, 11, MONTH) == ""
    assert ledger.with_job("a", HALF, 5) == ledger
    assert ledger.problem_with_budget("a", HALF * 2.1, 11, MONTH)
    # It continues when its reservation has left the window: the later day counts from then on.
    assert ledger.with_job("a", HALF, 50).reserved(79, 30) == HALF * 2


def test_the_refusal_names_epsilon() -> None:
    ledger = ledger_of([("a", HALF, 10)])
    before, after = (epsilon_of(1e-6, math.sqrt(HALF * times)) for times in (1, 3))
    assert f"{before:.2f} is reserved, with this job it would be {after:.2f}" in ledger.problem_with_budget(
        "b", 2 * HALF, 10, MONTH
    )


@pytest.mark.parametrize(
    "given_",
    [
        None,
        {},
        {"epsilon": 2, "delta": 1e-6},
        {"epsilon": 2, "delta": 1e-6, "per": 30},
        {"epsilon": 2, "delta": 1e-6, "per": "30h"},
        {"epsilon": 2, "delta": 1e-6, "per": "0d"},
        {"epsilon": -2, "delta": 1e-6, "per": "30d"},
        {"epsilon": 2, "delta": 1, "per": "30d"},
        {"epsilon": 1e9, "delta": 1e-6, "per": "30d"},
        {"epsilon": 2, "delta": 1e-6, "per": "30d", "more": 1},
    ],
)
def test_budgets_that_are_none(given_: object) -> None:
    with pytest.raises(UsageError, match="expected"):
        Budget.from_dict(given_)


@given(jobs=JOBS)
def test_bytes_and_back(jobs: list[tuple[str, float, int]]) -> None:
    ledger = ledger_of(jobs)
    ledger = ledger.with_set(PeerSet.of("a", bytes(32), [bytes([k] * 32) for k in (9, 3, 5)]))
    assert PrivacyLedger.decode(ledger.encode()) == ledger
    ledger = ledger_of(jobs)
    assert ledger_of(jobs).encode() == ledger.encode()


@pytest.mark.slow
@given(jobs=JOBS, day=st.integers(0, 250))
def test_no_window_holds_more_than_the_budget(jobs: list[tuple[str, float, int]], day: int) -> None:
    ledger = PrivacyLedger()
    for job, mu_squared, when in sorted(jobs, key=lambda one: one[2]):
        if not ledger.problem_with_budget(job, mu_squared, when, MONTH):
            ledger = ledger.with_job(job, mu_squared, when)
    within = [one.mu_squared for one in ledger.reservations if day - 30 < one.day <= day]
    assert math.fsum(within) <= MONTH.mu_squared * (1 + 1e-12)


@pytest.mark.slow
@given(jobs=JOBS, day=st.integers(0, 250))
def test_what_is_older_can_be_dropped(jobs: list[tuple[str, float, int]], day: int) -> None:
    ledger = ledger_of(jobs)
    assert ledger.since(day - 29).reserved(day, 30) == ledger.reserved(day, 30)


@pytest.mark.slow
@given(jobs=JOBS, position=st.integers(0, 10**6), bit=st.integers(0, 7), cut=st.integers(0, 10**6))
def test_changed_bytes_are_refused(jobs: list[tuple[str, float, int]], position: int, bit: int, cut: int) -> None:
    data = bytearray(ledger_of(jobs).encode())
    data[position % len(data)] ^= 1 << bit
    for garbled in (bytes(data), bytes(data)[: cut % len(data)]):
        with pytest.raises(DataError, match=r"\Aprivacy ledger: [^\n]+\Z"):
            PrivacyLedger.decode(garbled)


ROW = [3, "a", 0.5, ""]
FORMAT, BEGUN = "p2pclust privacy ledger 2", [0.5, 1, 3]
SET = ["a", bytes(32), bytes(range(16))]


@pytest.mark.parametrize(
    "plain",
    [
        None,
        [],
        ["p2pclust privacy ledger 1", [], [], BEGUN],
        [FORMAT, 7, [], BEGUN],
        [FORMAT, [], 7, BEGUN],
        [FORMAT, [], [], 7],
        [FORMAT, [], [], [0.5, 1]],
        [FORMAT, [], [], [0.5, 1, -1]],
        [FORMAT, [], [], [math.nan, 1, 3]],
        [FORMAT, [], [], [0.5, True, 3]],
        [FORMAT, [], []],
        *([FORMAT, rows, [], BEGUN] for rows in (
            [7], [[3, "a"]], [[3, "a", 0.5]], [[True, "a", 0.5, ""]], [[-1, "a", 0.5, ""]], [["3", "a", 0.5, ""], ROW],
            [[3, "", 0.5, ""]], [[3, b"a", 0.5, ""]], [[3, "a", 1, ""]], [[3, "a", -0.5, ""]], [[3, "a", math.nan, ""]],
            [[3, "a", math.inf, ""]], [[3, "a", 0.5, b""]], [ROW, ROW], [[4, "b", 0.5, ""], ROW],
            [ROW, [4, "a", 0.5, ""]],
        )),
        *([FORMAT, [], [one], BEGUN] for one in (
            7, ["a", bytes(32)], [7, bytes(32), b""], ["a", bytes(31), b""], ["a", "", b""], ["a", bytes(32), bytes(15)],
            ["a", bytes(32), bytes(32)], ["a", bytes(32), ""],
        )),
    ],
)  # fmt: skip
def test_hostile_contents_are_refused(plain: object) -> None:
    body = msgpack.packb(plain)
    with pytest.raises(DataError, match=r"\Aprivacy ledger: [^\n]+\Z"):
        PrivacyLedger.decode(hashlib.sha256(body).digest() + body)


@given(data=st.binary(max_size=60))
def test_any_bytes_are_refused_in_one_line(data: bytes) -> None:
    for given_ in (data, hashlib.sha256(data).digest() + data):
        with pytest.raises(DataError, match=r"\Aprivacy ledger: [^\n]+\Z"):
            PrivacyLedger.decode(given_)


def test_another_way_to_write_the_same_is_refused() -> None:
    body = msgpack.packb([FORMAT, [], [], [0.0, 0, 0]])
    longer = b"\xdc\x00\x04" + body[1:]  # a list of four with a longer header
    with pytest.raises(DataError, match="not those that this program writes"):
        PrivacyLedger.decode(hashlib.sha256(longer).digest() + longer)


def test_what_is_no_reservation() -> None:
    for bad in (("", 1.0, 1), ("a", -1.0, 1), ("a", 1.0, -1), ("a" * 201, 1.0, 1)):
        with pytest.raises(UsageError, match="expected"):
            PrivacyLedger().with_job(*bad)
    with pytest.raises(UsageError, match="not in order"):
        PrivacyLedger((Reservation(2, "a", 1.0), Reservation(1, "b", 1.0)))


def test_a_device_takes_part_in_so_many_jobs_of_a_window() -> None:
    rule = MostJobs.from_dict({"most": 2, "per": "30d"})
    ledger = ledger_of([("a", 0.0, 10), ("b", 0.5, 20)])
    assert ledger.problem_with_jobs("c", 39, rule) == "this device takes part in 2 jobs in 30 days, and it has"
    assert (ledger.problem_with_jobs("a", 39, rule), ledger.problem_with_jobs("c", 40, rule)) == ("", "")


@pytest.mark.parametrize("given_", [None, 3, {"most": 3}, {"most": 0, "per": "30d"}, {"most": 3, "per": 30}])
def test_rules_of_jobs_that_are_none(given_: object) -> None:
    with pytest.raises(UsageError, match="expected"):
        MostJobs.from_dict(given_)


@given(jobs=JOBS)
def test_what_a_ledger_has_come_to_only_grows(jobs: list[tuple[str, float, int]]) -> None:
    marks = [ledger_of(jobs[:n]).mark for n in range(len(jobs) + 1)]
    assert not any(later.below(earlier) for earlier, later in pairwise(marks))
    assert all(LedgerMark.decode(mark.encode()) == mark for mark in marks)


PEERS = [bytes([k] * 32) for k in range(12)]


def a_set(job: str, peers: Iterable[int], rows: bytes = bytes(32)) -> PeerSet:
    return PeerSet.of(job, rows, [PEERS[k] for k in peers])


@pytest.mark.parametrize(
    ("peers", "refused"),
    [
        (range(10), False),
        (range(9), True),
        (range(5), False),
        (range(6), True),
        (range(11), True),
        ([*range(9), 10], True),
    ],
)
def test_sets_of_peers_whose_difference_is_small_are_refused(peers: Iterable[int], refused: bool) -> None:
    ledger = PrivacyLedger().with_set(a_set("a", range(10)))
    assert bool(ledger.problem_with_sets([a_set("b", peers)], 5)) is refused
    assert ledger.problem_with_sets([a_set("a", peers)], 5) == "", "within a job its own rules hold"
    assert ledger.problem_with_sets([a_set("b", peers, bytes([1] * 32))], 5) == "", "the device has other rows now"


def test_sets_are_compared_all_together() -> None:
    """No two of these differ by fewer than five peers, and of the third only one peer is in none of the two others."""
    ledger = PrivacyLedger().with_set(a_set("a", range(10))).with_set(a_set("b", range(5)))
    assert ledger.problem_with_sets([a_set("c", [0, 1, 2, 3, *range(5, 9)])], 5)
