"""A description equals that of the pooled rows, and hides what few rows are behind."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from p2pclust import describe
from p2pclust.errors import DataError, FleetError, UsageError, WireError
from p2pclust.lab.testbed import backend
from p2pclust.peer.core.treatment import Treatment
from p2pclust.peer.work.floor import Floor
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import replay, run_in_process
from p2pclust.protocols.engine.wire import decode_state
from p2pclust.protocols.measuring.describe import merged_cells
from p2pclust.protocols.measuring.description import Description
from p2pclust.protocols.measuring.quantile import rows_needed
from p2pclust.protocols.secure.parameters import SecureSums

Floats = NDArray[np.float64]
SHARES = (0.25, 0.5, 0.75)


def ran(parts: list[Floats], *, secure: bool = False, **options: object) -> tuple[Job, JobState]:
    job = cluster_job("describe", secure=secure, **options)
    state = run_in_process(job, [Local(rows) for rows in parts])
    assert state.status == "done", state.reason
    return job, state


def exact_moments(values: Floats) -> tuple[float, float]:
    """Return mean and standard deviation without rounding errors before the last step."""
    fractions = [Fraction(value) for value in values.tolist()]
    mean = sum(fractions) / len(fractions)
    variance = sum((value - mean) ** 2 for value in fractions) / len(fractions)
    return float(mean), float(variance) ** 0.5


def assert_described(found: Description, X: Floats, *, quantiles: tuple[float, ...] = ()) -> None:
    """Compare with NumPy on the pooled rows (n, F), all columns of numbers."""
    least = found.min_cell
    assert found.rows == len(X)
    for column, pooled in zip(found.columns, X.T, strict=True):
        values = np.sort(pooled[~np.isnan(pooled)])
        n = len(values)
        assert (column.rows, column.missing) == (n, len(X) - n)
        if n < max(1, least):
            assert (column.mean, column.standard_deviation, column.histogram) == (None, None, ())
            continue
        mean, deviation = exact_moments(values)
        assert column.mean == pytest.approx(mean, rel=1e-12, abs=1e-12 * deviation)
        assert column.standard_deviation == pytest.approx(deviation, rel=1e-12)
        for one in column.quantiles:
            if one.value is not None:
                assert one.value == np.quantile(values, one.share, method="inverted_cdf")
        assert [one.share for one in column.quantiles] == [*SHARES, *quantiles]
        if n > 2 * least:
            assert (column.smallest, column.largest) == (values[least], values[n - 1 - least])
            assert sum(cell.rows for cell in column.histogram) == n
            assert all(cell.rows >= least for cell in column.histogram)
            for cell in column.histogram[1:-1]:
                assert cell.rows == np.count_nonzero((values >= cell.low) & (values < cell.high))
    for one in range(X.shape[1]):
        for other in range(X.shape[1]):
            both = X[~np.isnan(X[:, [one, other]]).any(axis=1)][:, [one, other]]
            value = found.correlations[one][other]
            if value is not None and len(both) >= max(2, least):
                both = both - both[0]  # an offset would cost the mean its digits
                both = both - both.mean(axis=0)
                both = both / np.abs(both).max(axis=0)  # squares of 1e-300 are 0
                expected = (both[:, 0] @ both[:, 1]) / np.sqrt((both[:, 0] @ both[:, 0]) * (both[:, 1] @ both[:, 1]))
                assert value == pytest.approx(expected, abs=1e-9)


def parts_of(seed: int, *sizes: int, n_features: int = 3, gaps: float = 0.0) -> list[Floats]:
    rng = np.random.default_rng(seed)
    mixed = rng.normal(size=(n_features, n_features))
    found = []
    for size in sizes:
        rows = rng.normal(size=(size, n_features)) @ mixed
        rows[rng.random(rows.shape) < gaps] = np.nan
        found.append(rows)
    return found


def test_by_hand() -> None:
    _, state = ran([np.array([[1.0, 0.0], [2.0, 0.0]]), np.array([[3.0, 6.0], [4.0, np.nan]])], min_cell=0, bins=3)
    found = Description.of(
        *ran([np.array([[1.0, 0.0], [2.0, 0.0]]), np.array([[3.0, 6.0], [4.0, np.nan]])], min_cell=0, bins=3)
    )
    first, second = found.columns
    assert (first.rows, first.missing, first.mean, first.smallest, first.largest) == (4, 0, 2.5, 1.0, 4.0)
    assert first.standard_deviation == pytest.approx(1.25**0.5, rel=1e-15)
    assert [cell.rows for cell in first.histogram] == [1, 1, 2]  # 1 to 2, 2 to 3, 3 to 4 with its end
    assert (second.rows, second.missing, second.mean) == (3, 1, 2.0)
    assert [one.value for one in second.quantiles] == [0.0, 0.0, 6.0]
    # Of the three rows with both: (1, 0), (2, 0), (3, 6).
    assert found.correlations[0][1] == pytest.approx(6.0 / (2.0 * 24.0) ** 0.5, rel=1e-15)
    assert state.log[-1].contributors == (0, 1)


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("gaps", [0.0, 0.3])
def test_equals_the_description_of_the_pooled_rows(secure: bool, gaps: float) -> None:
    parts = parts_of(3, 60, 40, 25, 90, gaps=gaps)
    found = Description.of(*ran(parts, secure=secure, quantiles=[0.1, 0.9]))
    assert_described(found, np.concatenate(parts), quantiles=(0.1, 0.9))


@settings(max_examples=40)
@given(
    st.integers(0, 2**31), st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(1, 4),
    st.sampled_from([0.0, 0.2, 0.9]), st.sampled_from([0.0, 1e3, -1e12]), st.sampled_from([1e-3, 1.0, 1e60]),
    st.sampled_from([0, 1, 5]), st.integers(1, 12),
)  # fmt: skip
def test_equals_the_description_of_any_pooled_rows(
    seed: int, sizes: list[int], n_features: int, gaps: float, offset: float, width: float, min_cell: int, bins: int
) -> None:
    parts = [offset + width * rows for rows in parts_of(seed, *sizes, n_features=n_features, gaps=gaps)]
    parts = [rows for rows in parts if not np.isnan(rows).all()]  # a peer without any value has no data
    if sum(map(len, parts)) < (rows_needed(n_features) if min_cell else 1):
        return
    options = {"min_cell": min_cell, "bins": bins, "privacy_gate": False, "secure": bool(seed % 2)}
    assert_described(Description.of(*ran(parts, **options)), np.concatenate(parts))


def test_offsets_and_constants_and_empty_columns() -> None:
    rng = np.random.default_rng(0)
    parts = [
        np.column_stack(
            [1e12 + rng.normal(size=40), np.full(40, 0.1), np.full(40, np.nan), 1e-300 * rng.normal(size=40)]
        )
        for _ in range(4)
    ]
    found = Description.of(*ran(parts, secure=True))
    X = np.concatenate(parts)
    assert_described(found, X)
    constant, empty = found.columns[1:3]
    assert (constant.mean, constant.standard_deviation, constant.smallest, constant.largest) == (0.1, 0.0, 0.1, 0.1)
    assert (empty.rows, empty.missing, empty.mean, empty.histogram) == (0, 160, None, ())
    assert found.correlations[1] == found.correlations[2] == (None, None, None, None)


def test_one_row() -> None:
    row = np.array([[7.0, -2.0]])
    found = describe([row], min_cell=0)
    assert [(column.mean, column.standard_deviation, column.smallest) for column in found.columns] == [
        (7.0, 0.0, 7.0), (-2.0, 0.0, -2.0),
    ]  # fmt: skip
    with pytest.raises(FleetError, match="privacy gate"):
        describe([row])


def test_categories_hide_their_rare_values() -> None:
    values = np.repeat([0.0, 1.0, 2.0, 3.0, np.nan], [30, 20, 6, 1, 4])
    parts = list(np.array_split(np.column_stack([values, np.arange(values.size)]), 3))
    mode, number = describe(parts, levels=[4, 0]).columns
    # One row is below 5; the others would tell it, so the next rare value is hidden with it.
    assert [one.rows for one in mode.values] == [30, 20, None, None]
    assert (mode.other_values, mode.rows, mode.missing) == (7, 57, 4)
    assert mode.mean is None
    assert number.mean == pytest.approx(30.0)
    open_ = describe(parts, levels=[4, 0], min_cell=0).columns[0]
    assert open_.values == tuple((str(number), rows) for number, rows in enumerate((30, 20, 6, 1)))
    with pytest.raises(FleetError, match="row 0, column 1 is no value of its category"):
        describe([parts[0] + 0.5], levels=[0, 4])


@given(st.lists(st.integers(0, 12), min_size=1, max_size=12), st.integers(0, 9))
def test_merged_cells_keep_their_rows_and_their_ends(cells: list[int], least: int) -> None:
    edges = np.arange(len(cells) + 1.0)
    kept, found = merged_cells(edges, np.array(cells), least)
    assert sum(found) == sum(cells)
    assert (kept[0], kept[-1], len(kept)) == (0.0, float(len(cells)), len(found) + 1)
    assert kept == sorted(set(kept))
    assert min(found) >= least or len(found) == 1
    if least == 0:
        assert found == cells
    for low, high, rows in zip(kept, kept[1:], found, strict=False):
        assert rows == sum(cells[int(low) : int(high)])


def test_the_last_state_has_no_small_cell_before_any_other_peer_gets_it() -> None:
    # 40 rows, and one alone in a cell between them.
    values = np.concatenate([np.linspace(0.0, 1.0, 20), [5.0], np.linspace(9.0, 10.0, 20)])
    job = cluster_job("describe", secure=True)
    states: list[JobState] = []
    run_in_process(job, [Local(values.reshape(-1, 1))], states.append)
    for state in states:
        if "cells" in state.arrays:
            cells = state.arrays["cells"]
            assert not ((cells > 0) & (cells < 5)).any()


@pytest.mark.parametrize("name", ["in-process", "simulated", pytest.param("processes", marks=pytest.mark.processes)])
@pytest.mark.parametrize("collect", ["star", "tree"])
@pytest.mark.parametrize("secure", [False, True])
def test_every_backend_has_the_same_bits(name: str, collect: str, secure: bool) -> None:
    parts = parts_of(5, 30, 20, 25, 40, gaps=0.1)
    job = cluster_job("describe", secure=secure, seed=3)
    treatment = Treatment(missing="", collect=collect, secure=secure and name != "in-process")
    if name == "in-process":
        treatment = Treatment(missing="")
    state = backend(name).run(job, parts, treatment=treatment)
    assert state.status == "done", state.reason
    assert state.plain().encode() == replay(job, [Local(rows) for rows in parts], state.log).encode()
    assert_described(Description.of(job, state), np.concatenate(parts))


def test_a_verified_fleet_describes_the_same() -> None:
    parts = parts_of(6, 30, 20, 25, 40)
    job = cluster_job("describe", seed=3)
    state = backend("simulated").run(job, parts, treatment=Treatment(missing="", verify="all"))
    assert state.plain().encode() == replay(job, [Local(rows) for rows in parts], state.log).encode()


def test_the_gate_counts_a_peer_alone_or_with_secure_sums_all() -> None:
    few = parts_of(7, 5, 30, 30, 30)  # three columns need 9 rows
    plain = ran(few)[1]
    assert "privacy gate" in plain.log[-1].abstained[0]
    assert Description.of(*ran(few, secure=True)).rows == 95
    job = cluster_job("describe", secure=True)
    failed = run_in_process(job, [Local(rows) for rows in parts_of(7, 2, 2, 2, 2)])
    assert (failed.status, "privacy gate: all peers together hold 8 rows" in failed.reason) == ("failed", True)


def test_a_death_between_the_rounds_leaves_the_rows_of_the_others() -> None:
    parts = parts_of(8, 50, 40, 30)
    job, locals_ = cluster_job("describe", privacy_gate=False), [Local(rows) for rows in parts]
    state = engine.begin(job)
    while state.status == "running":
        there = (0, 1, 2) if "means" not in state.arrays else (0, 2)
        given_ = [(peer, engine.contribution(job, state, locals_[peer], peer, 3)) for peer in there]
        gone = {peer: "left out: dead" for peer in range(3) if peer not in there}
        state = engine.advance(job, state, given_, gone, n_peers=3)
    found = Description.of(job, state)
    X = np.concatenate([parts[0], parts[2]])
    assert found.rows == 80
    for column, values in zip(found.columns, X.T, strict=True):
        assert column.mean == pytest.approx(values.mean(), rel=1e-12)
        assert column.standard_deviation == pytest.approx(values.std(), rel=1e-12)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"n_clusters": 3}, "finds the number of clusters itself"), ({"init": "uniform"}, "begins with no centers"),
        ({"scaling": "minmax"}, "own units"), ({"bounds": ([0.0], [1.0])}, "finds the ranges itself"),
        ({"participation": 0.5}, "describes the rows of all peers"), ({"bins": 0}, "bins"),
        ({"quantiles": [2.0]}, "quantiles"), ({"tol": 1.0}, "tol"),
    ],
)  # fmt: skip
def test_options_that_it_has_not_are_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        cluster_job("describe", **options)


def test_states_from_another_peer_are_checked() -> None:
    job, state = ran(parts_of(9, 30, 30))
    assert decode_state(job, state.encode()) == state
    arrays = state.arrays
    for hostile in (
        arrays.without("correlations"), arrays.replace(quantiles=np.zeros((1, 3))),
        arrays.replace(cells=np.zeros((3, 2), np.int64)),
    ):  # fmt: skip
        with pytest.raises(WireError):
            decode_state(job, replace(state, arrays=hostile).encode())


def test_in_python_a_table_has_its_names_and_words_are_counted() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    words = ["eco", "boost", None] * 10
    tables = {name: pyarrow.table({"watt": np.arange(30.0), "mode": words}) for name in ("a", "b")}
    watt, mode = describe(tables, fleet="simulated").columns
    assert (watt.name, watt.mean, mode.name, mode.missing) == ("watt", 14.5, "mode", 20)
    assert mode.values == (("boost", 20), ("eco", 20))
    with pytest.raises(DataError, match="one array per peer"):
        describe([])


def test_the_floor_of_init_takes_secured_descriptions_and_no_plain_ones() -> None:
    floor, sums = Floor(secure=True), SecureSums(keepers=3, cohort=3, colluders=1)
    assert floor.problem_with(cluster_job("describe", secure=True), sums, 100) == ""
    assert "only to jobs with secure sums" in floor.problem_with(cluster_job("describe"), None, 100)
    least = Floor(min_cell=5)
    assert "sends nothing of clusters with fewer" in least.problem_with(cluster_job("describe", secure=True), sums, 100)
