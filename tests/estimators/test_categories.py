"""LosslessKPrototypes on tables with words, and categories as indices in the c-means family."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from p2pclust import LosslessCMeans, LosslessFuzzyCMeans, LosslessKPrototypes
from p2pclust.errors import DataError, UsageError

CELLS = {
    "age": [31.0, 33.0, 32.0, 70.0, 72.0, 71.0],
    "ward": ["birth", "birth", "birth", "heart", "heart", "bones"],
    "smokes": [False, True, False, True, True, False],
}
RECORDS = np.array(list(zip(*CELLS.values(), strict=True)), dtype=[("age", "f8"), ("ward", "U8"), ("smokes", "?")])
KEPT = {"n_clusters": 2, "random_state": 0, "suppress_singletons": False, "tol": 1e-9}


def tables() -> list[Any]:
    """One table each of NumPy's records, Arrow, pandas and polars, as far as they are installed."""
    made: list[Any] = [pytest.param(RECORDS, id="records")]
    for name in ("pyarrow", "pandas", "polars"):
        try:
            library = __import__(name)
        except ImportError:
            continue
        made.append(pytest.param(library.table(CELLS) if name == "pyarrow" else library.DataFrame(CELLS), id=name))
    return made


@pytest.mark.parametrize("table", tables())
def test_a_table_with_words_gets_words_back(table: Any) -> None:
    model = LosslessKPrototypes(**KEPT).fit([table, table, table])
    assert sorted(model.cluster_centers_.tolist()) == [[32.0, "birth", False], [71.0, "heart", True]]
    assert model.center_columns_ == ("age", "ward", "smokes")
    assert model.predict(table).tolist() == model.labels_[1].tolist()
    # Squares 1 + 1 in each cluster; other values in 1 + 2 cells of a table.
    assert model.cost_ == pytest.approx(3 * (4.0 + 3 * model.gamma_), rel=1e-12)
    assert model.gamma_ == pytest.approx(0.5 * np.std(CELLS["age"]), rel=1e-12)
    assert model.n_rounds_ >= 1


def test_the_order_of_declared_categories_decides_ties() -> None:
    pandas = pytest.importorskip("pandas")
    for order in (["a", "b", "unused"], ["b", "a", "unused"]):
        table = pandas.DataFrame({"x": [0.0] * 4, "kind": pandas.Categorical(["a", "b", "a", "b"], categories=order)})
        model = LosslessKPrototypes(**{**KEPT, "n_clusters": 1}).fit([table, table])
        assert model.cluster_centers_.tolist() == [[0.0, order[0]]]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"ward": ["birth"] * 5 + ["eyes"]}, "X: column 'ward' has a value that the schema does not declare"),
        ({"age": [1.0] * 5 + [float("nan")]}, "X: row 5, column 0 is NaN"),
    ],
)
def test_rows_that_do_not_fit_are_named_by_their_column(changed: dict[str, Any], message: str) -> None:
    pandas = pytest.importorskip("pandas")
    model = LosslessKPrototypes(**KEPT).fit([pandas.DataFrame(CELLS)] * 2)
    with pytest.raises(DataError, match=message):
        model.predict(pandas.DataFrame({**CELLS, **changed}))
    with pytest.raises(DataError, match="X has no names of columns: expected age, ward, smokes"):
        model.predict(np.zeros((2, 3)))


@pytest.mark.parametrize("kind", [LosslessCMeans, LosslessFuzzyCMeans, LosslessKPrototypes])
def test_indices_are_categories_where_levels_say_so(kind: Any) -> None:
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, 3, 120)
    X = np.column_stack([5.0 * kinds + rng.normal(size=120), (kinds + (rng.random(120) < 0.1)) % 3])
    here = kind(n_clusters=3, levels=(0, 3), weights=(0.0, 2.0), n_peers=4, random_state=0).fit(X)
    assert here.labels_.tolist() == here.predict(X).tolist()
    assert here.objective(X) == pytest.approx(here.cost_ if kind is LosslessKPrototypes else -here.score(X))
    if kind is LosslessKPrototypes:
        assert here.cluster_centers_.shape == (3, 2)
        assert set(here.cluster_centers_[:, 1]) == {0.0, 1.0, 2.0}
    else:
        assert here.center_columns_ == ("x0", "x1=0", "x1=1", "x1=2")
        assert here.cluster_centers_[:, 1:].sum(axis=1) == pytest.approx(1.0)
    with pytest.raises(DataError, match="X: row 1, column 1 is not a declared value"):
        here.predict([[0.0, 1.0], [0.0, 3.0]])
    with pytest.raises(UsageError, match="cannot be drawn"):
        here.plot_centers()


def test_of_sample_weights_the_heavier_value_is_the_mode() -> None:
    model = LosslessKPrototypes(**{**KEPT, "n_clusters": 1}, levels=(2,))
    rows = [[[0.0], [0.0], [1.0]], [[0.0], [1.0], [1.0]]]
    assert model.fit(rows).cluster_centers_.tolist() == [[0.0]]
    assert model.fit(rows, sample_weight=[[1, 1, 2], [1, 1, 1]]).cluster_centers_.tolist() == [[1.0]]
