"""What a new user may hand in by mistake: one line that says what to do, and never a wrong answer in silence."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pytest

from p2pclust import estimators
from p2pclust.errors import DataError, LeftOutWarning, UsageError
from p2pclust.estimators import FFCM, LosslessCMeans, LosslessFuzzyCMeans, VerticalCMeans
from p2pclust.estimators.base import FederatedEstimator

pytestmark = pytest.mark.slow

# Those that end with centers; test_models.py has the others.
ALL = [
    kind for kind in (getattr(estimators, name) for name in estimators.__all__) if issubclass(kind, FederatedEstimator)
]
RNG = np.random.default_rng(8)
X = RNG.normal(size=(60, 4)) + 1e3 + 9.0 * (np.arange(60) % 3)[:, np.newaxis]


def undivided(kind: Any) -> dict[str, int]:
    """A stream's batches would be too small for the privacy gate: one holds all rows."""
    return {"n_batches": 1} if "n_batches" in kind().get_params() else {}


class Frame:
    """As much of a table with names as anybody looks at: pandas is not needed to refuse one."""

    def __init__(self, values: Any, columns: str, index: Any = None) -> None:
        self._values = np.asarray(values)
        self.columns = list(columns)
        self.index = np.arange(len(self._values)) if index is None else index
        self.shape, self.ndim = self._values.shape, self._values.ndim

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(self._values, dtype=dtype)

    def __len__(self) -> int:
        return len(self._values)


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ([["1", "2"], ["3", "4"]], "X: expected numbers, and there is text"),
        (np.array([[1.0, "a"]], dtype=object), "X: expected numbers, and there is text"),
        (np.array([["2020-01-01"]] * 9, dtype="M8[D]"), "text or a time: convert or drop"),
        ([[10**400, 1], [1, 2]], "X: a whole number is too large"),
        (np.array([[np.longdouble("1e4000")], [1]]), "X: row 0, column 0 is (inf|too large)"),
        (np.ma.array(X, mask=X > 1010), "X: values are masked"),
        ([[1.0, None], [2.0, 3.0]], "X: row 0, column 1 is NaN"),
        ([X[:9], [["x"] * 4] * 9], "peer 1: expected numbers"),
        ({"a": 1}, r"X: expected numbers.*got a dict: pass list\(X.values\(\)\)"),
        (iter([X]), r"X: expected numbers.*got an iterator: pass list\(X\)"),
        ([X[:, 0], X[:, 1]], r"X is a list of arrays of one dimension: pass np.array\(X\) if each is a row, or \[np"),
        (np.stack([X, X]), r"X: expected 2D array .*got 3 dimension\(s\). Pass list\(X\) to fit if each X\[i\]"),
        (None, "X: expected 2D array"),
    ],
)
def test_what_is_no_matrix_of_numbers_is_refused(data: Any, line: str) -> None:
    for kind in ALL:
        with pytest.raises(DataError, match=line) as caught:
            kind(n_clusters=2, random_state=0).fit(data)
        assert "\n" not in str(caught.value), kind


class Typed(Frame):
    """A table whose columns have types, as those of polars; as an array, times are the microseconds of polars."""

    def __init__(self, types: list[str], values: Any = X[:20, :2]) -> None:
        super().__init__(values, "ab")
        del self.ndim
        self.dtypes = types

    def __getitem__(self, name: str) -> Any:
        return np.asarray(self)[:, "ab".index(name)]


class Schema:
    """The types of the columns of an Arrow table."""

    def __init__(self, types: list[str]) -> None:
        self.types = types


class Arrow:
    """As much of an Arrow table as anybody looks at: with a time it is no array at all."""

    def __init__(self, types: list[str]) -> None:
        self.column_names, self.schema = ["a", "b"], Schema(types)
        self.columns, self.shape = [[1.0] * 20] * 2, (20, 2)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise TypeError("no common type")


@pytest.mark.parametrize(
    ("table", "named"),
    [
        (Typed(["Float64", "Datetime(time_unit='us', time_zone=None)"]), "column 'b'"),
        (Typed(["Date", "Int64"]), "column 'a'"),
        (Typed(["Duration(time_unit='ms')", "Time"]), "columns 'a', 'b'"),
        (Typed(["Float64", "String"]), "column 'b'"),
        (Typed(["float64", "datetime64[ns, UTC]"]), "column 'b'"),
        (Arrow(["double", "timestamp[us]"]), "column 'b'"),
        (Arrow(["date32[day]", "large_string"]), "columns 'a', 'b'"),
        (Typed(["float64", "object"], [[1.0, dt.datetime(2024, 1, k)] for k in range(1, 9)]), "column 'b'"),
        (Typed(["object", "float64"], [[dt.timedelta(k), 1.0] for k in range(1, 9)]), "column 'a'"),
    ],
)  # fmt: skip
def test_times_and_text_of_a_table_are_refused_by_column(table: Any, named: str) -> None:
    for data, where in ((table, "X"), ([table, table], "peer 0")):
        with pytest.raises(DataError) as caught:
            FFCM(n_clusters=2).fit(data)
        told = f"{where}: expected numbers, and there is text or a time in {named}: convert or drop these columns"
        assert str(caught.value) == told


def test_a_list_of_tables_that_do_not_say_their_dimensions() -> None:
    tables = [Typed(["Float64", "Int64"]), Typed(["Float64", "Int64"], X[20:40, :2])]
    found = LosslessCMeans(n_clusters=2, random_state=0).fit(tables)
    plain = LosslessCMeans(n_clusters=2, random_state=0).fit([X[:20, :2], X[20:40, :2]])
    assert found.cluster_centers_.tobytes() == plain.cluster_centers_.tobytes()


def test_rows_of_several_peers_are_predicted_one_peer_at_a_time() -> None:
    model = LosslessCMeans(n_clusters=2, random_state=0).fit([X[:20], X[20:]])
    for several in ([X[:20], X[20:]], (X[:30], X[30:])):
        with pytest.raises(DataError, match=r"X is a list of 2 arrays: give one at a time, or np.concatenate\(X\)"):
            model.predict(several)
    assert len(model.predict([row.tolist() for row in X])) == len(model.predict(list(X))) == 60


def test_tables_with_their_columns_in_another_order_are_refused() -> None:
    shuffled = [Frame(X[:30], "abcd"), Frame(X[30:], "abdc")]
    with pytest.raises(DataError, match="peer 1 has the columns a, b, d, c where peer 0 has a, b, c, d: give every"):
        LosslessCMeans(n_clusters=2).fit(shuffled)
    lacking = [X[:10], Frame(X[10:30], "abcd"), Frame(X[30:], "abce")]
    with pytest.raises(DataError, match="peer 2 has no column 'd', which peer 1 has: give every peer the same columns"):
        LosslessCMeans(n_clusters=2).fit(lacking)
    same = [Frame(X[:30], "abcd"), X[30:40], Frame(X[40:], "abcd")]
    assert LosslessCMeans(n_clusters=2, random_state=0).fit(same).n_rounds_ > 0


def test_tables_of_columns_with_their_rows_in_another_order_are_refused() -> None:
    with pytest.raises(DataError, match="peer 1 has rows of another index than peer 0: give"):
        VerticalCMeans(n_clusters=2).fit([Frame(X[:, :2], "ab"), Frame(X[::-1, 2:], "cd", np.arange(60)[::-1])])
    parts = [Frame(X[:, :2], "ab"), Frame(X[:, 2:], "cd")]
    assert VerticalCMeans(n_clusters=2, random_state=0).fit(parts).n_features_in_ == 4


@pytest.mark.parametrize("kind", ALL)
def test_results_do_not_depend_on_the_order_of_memory_or_the_type(kind: Any) -> None:
    options: dict[str, Any] = {"n_clusters": 3, "random_state": 1, "n_peers": 2, **undivided(kind)}
    model = kind(**options).fit(X)
    read_only = X.copy()
    read_only.setflags(write=False)
    for same in (
        np.asfortranarray(X),
        np.ascontiguousarray(X[::-1])[::-1],
        np.repeat(X, 2, axis=1)[:, ::2],
        X.astype(">f8"),
        X.astype(object),
        X.tolist(),
        read_only,
    ):
        other = kind(**options).fit(same)
        assert other.cluster_centers_.tobytes() == model.cluster_centers_.tobytes()
        assert other.labels_.tolist() == model.labels_.tolist()
        assert other.transform(same).tobytes() == model.transform(X).tobytes()
        assert other.score(same) == model.score(X)
    for dtype in (np.float32, np.int16, np.bool_):
        narrow = (X > 1009).astype(dtype) if dtype is np.bool_ else X.astype(dtype)
        one, other = kind(**options).fit(narrow), kind(**options).fit(narrow.astype(np.float64))
        assert one.cluster_centers_.tobytes() == other.cluster_centers_.tobytes()


@pytest.mark.parametrize("scaling", ["none", "minmax", "zscore"])
@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize(
    "data",
    [
        np.ones((30, 2)),
        np.column_stack([X, np.full(60, 7.0)]),
        np.repeat(X[:3], 20, axis=0),
        X + 1e14,
        X * 1e110,
        (X - 1e3) * 1e-300,
        (X - 1e3) * 1e-320,
        np.vstack([X, [[1e30] * 4]]),
    ],
    ids=["constant", "constant-column", "repeated", "offset", "huge", "tiny", "subnormal", "outlier"],
)
@pytest.mark.filterwarnings("ignore::p2pclust.errors.SuspectResultWarning")  # two clusters of equal rows are suspect
def test_odd_but_sound_data_give_finite_centers_and_no_other_warning(kind: Any, data: np.ndarray, scaling: str) -> None:
    model = kind(n_clusters=2, random_state=3, n_peers=2, scaling=scaling, **undivided(kind)).fit(data)
    assert np.isfinite(model.cluster_centers_).all()
    assert np.isfinite(model.transform(data)).all()
    assert model.labels_.shape == (len(data),)
    if hasattr(model, "memberships"):
        assert model.memberships(data).sum(axis=1) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("partition", "line"),
    [
        ({"scheme": "dirichlet", "beta": "0.5"}, "beta = '0.5': expected a number of more than 0"),
        ({"scheme": "dirichlet", "beta": np.nan}, "beta = nan: expected a number"),
        ({"scheme": "dirichlet", "beta": 1e308}, "beta = 1e.308: expected a number"),
        ({"scheme": "labels", "labels_per_peer": 1.5}, "labels_per_peer = 1.5: expected a whole number of at least 1"),
        ({"scheme": "distance", "beta": 1.0, "locations": [1, 2]}, "expected 2 locations, one for each peer, of 4"),
        ({"scheme": "distance", "beta": 1.0, "locations": [["a"] * 4] * 2}, "expected 2 locations"),
        ({"scheme": "distance", "beta": 1.0, "locations": [[np.nan] * 4] * 2}, "expected 2 locations"),
        (np.array([1, 2]), "expected a scheme's name, or a mapping"),
    ],
)
def test_odd_partitions_are_refused(partition: Any, line: str) -> None:
    with pytest.raises(UsageError, match=line) as caught:
        LosslessCMeans(n_clusters=2, n_peers=2, partition=partition).fit(X, np.arange(60) % 3)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("y", "line"),
    [([None, "a", 1] * 20, "labels of different types"), ([[1], [1, 2]] * 30, "y: expected one label per row")],
)
def test_odd_labels_are_refused(y: Any, line: str) -> None:
    with pytest.raises(UsageError, match=line):
        LosslessCMeans(n_clusters=2, n_peers=2, partition={"scheme": "dirichlet", "beta": 1.0}).fit(X, y)


@pytest.mark.parametrize("partition", [5, ["1", "3"], [1.5, 2.5], {"scheme": "iid"}, None, "odd"])
def test_odd_widths_are_refused(partition: Any) -> None:
    with pytest.raises(UsageError, match="expected 'even', or the number of columns of each peer"):
        VerticalCMeans(n_clusters=2, partition=partition).fit(X)


def test_a_partition_beside_a_list_of_peers_is_refused_whatever_it_is() -> None:
    for kind in (LosslessCMeans, VerticalCMeans):
        with pytest.raises(UsageError, match="a list of 2 arrays was given: leave it out"):
            kind(n_clusters=2, partition=np.array([2, 2])).fit([X, X])


def test_given_first_centers_of_clusters_that_end_empty_are_kept() -> None:
    init = np.vstack([X[:1], np.full((1, 4), 1e6)])
    model = VerticalCMeans(n_clusters=2, init=init, n_peers=2, scaling="none").fit(X)
    assert model.cluster_centers_[1].tolist() == [1e6] * 4
    assert set(model.labels_.tolist()) == {0}
    with pytest.raises(UsageError, match="init: expected finite numbers"):
        VerticalCMeans(n_clusters=2, init=init * np.nan, n_peers=2).fit(X)


def test_a_fuzzifier_that_is_set_after_the_fit_is_for_the_next_one() -> None:
    model = LosslessFuzzyCMeans(n_clusters=3, random_state=0).fit(X)
    shares, score = model.memberships(X).tobytes(), model.score(X)
    model.set_params(fuzzifier=3.0, n_clusters=7)
    assert (model.memberships(X).tobytes(), model.score(X)) == (shares, score)
    assert len(model.get_feature_names_out()) == 3


def test_names_of_columns_of_an_earlier_fit_are_forgotten() -> None:
    for kind in (LosslessCMeans, VerticalCMeans):
        model = kind(n_clusters=2, random_state=0).fit(X)
        model.feature_names_in_ = np.array(list("abcd"), dtype=object)
        halves = [X[:, :2], X[:, 2:]] if kind is VerticalCMeans else [X[:30], X[30:]]
        assert model.fit(halves).predict(X).shape == (60,)


def test_columns_of_tables_are_called_by_their_names() -> None:
    holed, mixed = X.copy(), X.astype(object)
    holed[7, 2] = np.nan
    mixed[:, 1], mixed[:, 3] = "a", "b"
    model = LosslessCMeans(n_clusters=2, random_state=0)
    with pytest.raises(DataError, match=r"^peer 1: row 7, column 2 \(c\) is NaN: mend or leave out that row$"):
        model.fit([Frame(X, "abcd"), Frame(holed, "abcd")])
    with pytest.raises(
        DataError, match=r"^peer 1: expected numbers, and there is text or a time in columns 'b', 'd': convert"
    ):
        model.fit([Frame(X, "abcd"), Frame(mixed, "abcd")])
    with pytest.raises(
        DataError, match=r"^X: expected numbers, and there is text or a time in columns 1, 3: convert or drop"
    ):
        model.fit(mixed)
    mixed[:, 1], mixed[:, 3] = 0.0, 0.0
    mixed[4, 3] = object  # as the missing value of a table with types of its own, it is not a number
    with pytest.raises(DataError, match=r"^X: row 4, column 3 \(d\) is .*, not a number: mend or leave out that row$"):
        model.fit(Frame(mixed, "abcd"))


def test_what_is_left_out_is_called_by_its_name() -> None:
    far = X.copy()
    far[3, 1] = 1e6
    model = LosslessCMeans(n_clusters=2, random_state=0, scaling="minmax", bounds=(0, 2000))
    with pytest.warns(LeftOutWarning, match=r"peer 1: row 3, column 1 \(b\) is outside the declared bounds"):
        model.fit([Frame(X, "abcd"), Frame(far, "abcd")])


RECORDS = [np.rec.fromarrays([X[:20, 0] + k, X[:20, 1]], names="temp,hum") for k in (0, 9)]


def test_records_are_rows_with_named_columns() -> None:
    fitted = LosslessCMeans(n_clusters=2, random_state=0).fit(RECORDS)
    plain = [np.column_stack([records.temp, records.hum]) for records in RECORDS]
    np.testing.assert_array_equal(
        fitted.cluster_centers_, LosslessCMeans(n_clusters=2, random_state=0).fit(plain).cluster_centers_
    )
    np.testing.assert_array_equal(fitted.predict(RECORDS[0]), fitted.predict(plain[0]))
    with pytest.raises(DataError, match="peer 1 has the columns hum, temp where peer 0 has temp, hum"):
        LosslessCMeans(n_clusters=2).fit([RECORDS[0], RECORDS[1][["hum", "temp"]]])


@pytest.mark.parametrize("kind", ["U3", "S3", "M8[s]", "m8[s]"])
def test_text_or_a_time_in_records_is_named(kind: str) -> None:
    records = np.zeros(20, dtype=[("temp", "f8"), ("when", kind)])
    with pytest.raises(DataError, match="there is text or a time in column 'when'"):
        LosslessCMeans(n_clusters=2).fit([records, records])
