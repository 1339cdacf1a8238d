from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from p2pclust.errors import FleetError
from p2pclust.lab.reproduce import frame
from p2pclust.lab.reproduce.frame import Measured, Plan, Repetition, measure, table
from p2pclust.lab.reproduce.peers import JobFailedError, Peers, stream
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import JobState

TABLE = "001-table2"  # small, and its data are generated
ROW = "avg_2 (case 1)"


def samples(measured: dict[str, Measured], table_id: str = TABLE) -> list[float]:
    values: list[float] = measured[table_id].found.samples(ROW, "wsse").tolist()
    return values


@pytest.mark.slow
def test_a_seed_gives_the_same_again_and_another_seed_something_else() -> None:
    one, again, other = (samples(measure([table(TABLE)], Plan(repeats=2, seed=seed))) for seed in (0, 0, 1))
    assert one == again
    assert one != other
    assert len(set(one)) == 2


@pytest.mark.slow
def test_a_repetition_does_not_depend_on_how_many_there_are() -> None:
    few, many = (samples(measure([table(TABLE)], Plan(repeats=repeats))) for repeats in (1, 2))
    assert many[:1] == few


@pytest.mark.slow
def test_workers_find_the_same() -> None:
    alone, together = (samples(measure([table(TABLE)], Plan(repeats=3, workers=workers))) for workers in (1, 2))
    assert alone == together


@pytest.mark.slow
def test_simulated_peers_find_the_same() -> None:
    alone, fleet = (
        samples(measure([table(TABLE)], Plan(repeats=1, backend=backend))) for backend in ("in-process", "simulated")
    )
    assert alone == fleet


def test_what_tables_share_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Repetition] = []
    monkeypatch.setattr(frame, "do_task", lambda task: done.append(task) or {ROW: {"wsse": 1.0}})
    told: list[tuple[int, int]] = []
    tables = [table("001-table5"), table("001-figure4")]
    measured = measure(tables, Plan(repeats=2, quick=True), lambda number, of: told.append((number, of)))
    assert len(done) == len(set(done)) == 2 * len(tables[0].setups(quick=True))
    assert samples(measured, "001-table5") == samples(measured, "001-figure4") == [1.0, 1.0]
    assert told == [(number, len(done)) for number in range(len(done) + 1)]


def test_missing_data_are_left_out_with_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("P2PCLUST_DATA", str(tmp_path))
    measured = measure([table("000-figure1")], Plan())["000-figure1"]
    assert measured.found.rows == ()
    assert measured.skipped == {"xclara": f"data set xclara is not in {tmp_path}: p2pclust data fetch xclara"}
    assert [claim.held for claim in table("000-figure1").claims(measured.found)] == [None]


def test_repeats_of_a_plan() -> None:
    one = table("000-table1")
    assert Plan().repeats_of(one) == 10
    assert Plan(quick=True).repeats_of(one) == one.quick_repeats
    assert Plan(quick=True, repeats=7).repeats_of(one) == 7


@pytest.mark.slow
def test_what_fails_in_a_worker_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [Repetition("ffcm-cases", "case 1", number, 0, "nowhere", quick=True) for number in range(2)]
    with pytest.raises(FleetError, match=r"case 1, repetition .: backend = 'nowhere': expected one of"):
        list(frame._results(tasks, 2))


def dying(_: Repetition) -> None:
    os._exit(1)


@pytest.mark.slow
def test_a_worker_that_ends_in_the_middle_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame, "_do_alone", dying)
    tasks = [Repetition("ffcm-cases", "case 1", number, 0, "in-process", quick=True) for number in range(2)]
    with pytest.raises(FleetError, match="a worker process died: run again with --jobs 1 to see why"):
        list(frame._results(tasks, 2))


class TestPeers:
    ROWS = (np.array([[0.0], [1.0], [9.0]]), np.array([[8.0], [9.0], [0.5]]))

    def test_states_are_shown_round_by_round(self) -> None:
        seen: list[JobState] = []
        job = cluster_job("llf-cm", n_clusters=2, init=[[0.0], [9.0]], tol=0.0, max_rounds=3)
        final = Peers().run(job, self.ROWS, seen.append)
        assert [state.round for state in seen] == [1, 2, 3, 4, 5]
        assert seen[-1] == final

    def test_of_simulated_peers_too(self) -> None:
        seen: list[JobState] = []
        job = cluster_job("llf-cm", n_clusters=2, init=[[0.0], [9.0]], tol=0.0, max_rounds=3)
        final = Peers("simulated").run(job, self.ROWS, seen.append)
        assert seen[-1].encode() == final.encode() == Peers().run(job, self.ROWS).encode()

    def test_a_job_that_fails(self) -> None:
        job = cluster_job("llf-cm", n_clusters=9)
        with pytest.raises(JobFailedError, match="ask for at most 6"):
            Peers().run(job, self.ROWS)


def test_streams_are_told_apart_by_name_and_repetition() -> None:
    draws = {stream(seed, name, number).random() for seed in (0, 1) for name in ("a", "b") for number in (0, 1)}
    assert len(draws) == 8
