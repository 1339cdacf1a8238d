"""Tables with words: their columns' types decide the kinds, and results have words again."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pytest

from p2pclust import FFCM, LosslessCMeans, LosslessKPrototypes
from p2pclust.data.schema import Column, Schema
from p2pclust.errors import DataError

RNG = np.random.default_rng(0)
KIND = RNG.integers(0, 2, 90)
COLUMNS: dict[str, Any] = {
    "watt": np.where(KIND, 400.0, 50.0) + RNG.normal(0, 5, 90),
    "mode": np.where(KIND, "boost", "eco"),
    "on": KIND == 1,
}
CODES = np.column_stack([COLUMNS["watt"], 1 - KIND, KIND])  # eco stands behind boost
SCHEMA = Schema((Column("watt", "number"), Column("mode", "category", ("boost", "eco")), Column("on", "flag")))


def pandas(columns: dict[str, Any]) -> Any:
    return pytest.importorskip("pandas", reason="tables of pandas").DataFrame(columns)


def polars(columns: dict[str, Any]) -> Any:
    return pytest.importorskip("polars", reason="tables of polars").DataFrame(columns)


def arrow(columns: dict[str, Any]) -> Any:
    return pytest.importorskip("pyarrow", reason="tables of Arrow").table(columns)


def records(columns: dict[str, Any]) -> Any:
    return np.rec.fromarrays([np.asarray(values) for values in columns.values()], names=list(columns))


TABLES: dict[str, Any] = {
    "pandas": pandas,
    "pandas-object": lambda columns: pandas(columns).astype({"mode": object, "on": object}),
    "pandas-category": lambda columns: pandas(columns).astype({"mode": "category", "on": "boolean"}),
    "polars": polars,
    "polars-category": lambda columns: polars(columns).cast({"mode": pytest.importorskip("polars").Categorical}),
    "arrow": arrow,
    "arrow-dictionary": lambda columns: arrow(columns).set_column(
        1, "mode", arrow(columns)["mode"].dictionary_encode()
    ),
    "records": records,
}


@pytest.fixture(params=TABLES)
def make(request: pytest.FixtureRequest) -> Any:
    return TABLES[request.param]


def parts(make: Any, n: int = 3) -> list[Any]:
    return [make({name: np.asarray(values)[part] for name, values in COLUMNS.items()}) for part in shares(n)]


def shares(n: int = 3) -> list[Any]:
    return np.array_split(np.arange(90), n)


@pytest.mark.parametrize("kind", [LosslessCMeans, LosslessKPrototypes])
def test_types_decide_the_kinds(make: Any, kind: Any) -> None:
    found = kind(n_clusters=2, scaling="minmax", random_state=0).fit(parts(make))
    assert found.schema_ == SCHEMA
    plain = kind(n_clusters=2, scaling="minmax", random_state=0, levels=(0, 2, 2)).fit(
        [CODES[part] for part in shares()]
    )
    assert [own.tolist() for own in found.labels_] == [own.tolist() for own in plain.labels_]
    assert plain.schema_ is None
    labels = found.predict(make(COLUMNS))
    assert labels.tolist() == np.concatenate(found.labels_).tolist()


def test_centers_have_the_share_of_each_value_or_the_value_itself(make: Any) -> None:
    shown = LosslessCMeans(n_clusters=2, scaling="minmax", random_state=0).fit(parts(make))
    assert shown.center_columns_ == ("watt", "mode=boost", "mode=eco", "on=false", "on=true")
    assert sorted(shown.cluster_centers_[:, 1:].round(9).tolist()) == [[0, 1, 1, 0], [1, 0, 0, 1]]
    modes = LosslessKPrototypes(n_clusters=2, scaling="minmax", random_state=0).fit(parts(make))
    assert sorted(center[1:] for center in modes.cluster_centers_.tolist()) == [["boost", True], ["eco", False]]


def test_other_estimators_cluster_numbers_and_refuse_words(make: Any) -> None:
    with pytest.raises(DataError, match=r"expected numbers, and there is text or a time in column 'mode'"):
        FFCM(n_clusters=2).fit(parts(make))


def test_the_order_of_a_type_stays() -> None:
    kind = pytest.importorskip("pandas", reason="tables of pandas").CategoricalDtype
    tables = [part.astype({"mode": kind(["eco", "dry", "boost"])}) for part in parts(pandas)]
    found = LosslessCMeans(n_clusters=2, random_state=0).fit(tables)
    assert found.schema_.columns[1].values == ("eco", "dry", "boost")
    tables[0] = tables[0].astype({"mode": kind(["boost", "eco"])})
    assert LosslessCMeans(n_clusters=2, random_state=0).fit(tables).schema_.columns[1].values == ("boost", "eco")


def test_a_table_of_numbers_has_no_schema() -> None:
    tables = [part[["watt"]] for part in parts(records)]
    found = LosslessCMeans(n_clusters=2, random_state=0).fit(tables)
    assert found.schema_ is None
    plain = LosslessCMeans(n_clusters=2, random_state=0).fit([COLUMNS["watt"][part, np.newaxis] for part in shares()])
    assert found.cluster_centers_.tobytes() == plain.cluster_centers_.tobytes()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"mode": ["dry"] * 90}, "X: column 'mode' has a value that the schema does not declare"),
        ({"mode": np.arange(90)}, "X: column 'mode' holds numbers: the schema says category"),
        ({"watt": ["a"] * 90}, "X: column 'watt' holds text: the schema says number"),
        ({"watt": [dt.datetime(2024, 1, 1)] * 90}, "X: column 'watt' holds times: the schema says number"),
        ({"on": ["yes", "maybe"] * 45}, "X: column 'on' has a value that the schema does not declare"),
        ({"mode": None}, "X: column 'mode' is absent: the schema names it"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_rows_that_do_not_fit_name_the_column(changes: dict[str, Any], problem: str) -> None:
    found = LosslessCMeans(n_clusters=2, scaling="minmax", random_state=0).fit(parts(records))
    table = {name: values for name, values in (COLUMNS | changes).items() if values is not None}
    with pytest.raises(DataError) as refused:
        found.predict(records(table))
    assert str(refused.value) == problem


@pytest.mark.parametrize(
    ("cells", "problem"),
    [
        ([" eco", "boost"], "column 'mode': values: expected a list of text, without empty text and without spaces"),
        (["eco", None], "peer 0: row 1, column 1 is NaN: mend or leave out that row"),
    ],
    ids=["spaces", "missing"],
)  # fmt: skip
def test_cells_that_cannot_be_values_are_refused(cells: list[Any], problem: str) -> None:
    table = records({"watt": np.arange(8.0), "mode": np.array(cells * 4, dtype=object)})
    with pytest.raises(DataError) as refused:
        LosslessCMeans(n_clusters=2).fit([table, table])
    assert str(refused.value).startswith(problem)


@pytest.mark.parametrize("fleet", ["simulated"])
def test_on_a_fleet_it_has_the_same_bits(fleet: str) -> None:
    tables = parts(records, 4)
    here = LosslessCMeans(n_clusters=2, scaling="minmax", random_state=0).fit(tables)
    there = LosslessCMeans(n_clusters=2, scaling="minmax", random_state=0, fleet=fleet).fit(tables)
    assert here.cluster_centers_.tobytes() == there.cluster_centers_.tobytes()
