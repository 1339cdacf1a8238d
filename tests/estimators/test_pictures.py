"""What pictures of estimators show: the data of lines, dots and bars, and what is written beside them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError

from p2pclust import (
    UIFCA,
    FederatedClustering,
    LosslessCMeans,
    LosslessFuzzyCMeans,
    P2PClustError,
    UsageError,
    VerticalFuzzyCMeans,
)
from p2pclust.errors import LeftOutWarning
from p2pclust.lab.pictures.palette import CLUSTERS
from p2pclust.lab.pictures.scatter import DRAWN, plane_of
from p2pclust.lab.testbed import Backend
from p2pclust.lab.testbed.faults import Fault
from p2pclust.lab.testbed.spec import FleetResult, FleetSpec, OnEvent

X = load_iris().data
PEERS = [np.concatenate([X[start::3] for start in (number, number + 1)]) for number in range(3)]
BLOBS = [np.array([[0.0, 1.0], [1.0, 0.0], [8.0, 9.0]]), np.array([[9.0, 8.0], [0.0, 0.0], [9.0, 9.0]])]
ROWS = np.concatenate(BLOBS)


@pytest.fixture(autouse=True)
def _no_window() -> Iterator[None]:
    mpl.use("Agg")
    from matplotlib import pyplot

    yield
    pyplot.close("all")


def colour(artist: Any) -> str:
    from matplotlib.colors import to_hex

    return to_hex(artist.get_facecolor()[0])


def of_two_columns(**more: Any) -> LosslessCMeans:
    return LosslessCMeans(n_clusters=2, init=[[0.0, 0.0], [9.0, 9.0]], **more).fit(BLOBS)


# -- centers ------------------------------------------------------------------------------------------------------------


def test_two_columns_are_drawn_as_they_are() -> None:
    model = of_two_columns()
    ax = model.plot_centers(ROWS)
    assert [dots.get_offsets().tolist() for dots in ax.collections] == [
        ROWS[[0, 1, 4]].tolist(), ROWS[[2, 3, 5]].tolist(), *([center] for center in model.cluster_centers_.tolist()),
    ]  # fmt: skip
    assert [colour(dots) for dots in ax.collections] == 2 * list(CLUSTERS[:2])
    assert [text.get_text() for text in ax.texts] == ["0", "1"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("column 0", "column 1")


def test_without_rows_only_the_centers_are_drawn() -> None:
    ax = of_two_columns().plot_centers()
    assert len(ax.collections) == 2
    assert [text.get_text() for text in ax.texts] == ["0", "1"]
    assert ax.get_title(loc="left") == "the centers"


@pytest.mark.parametrize("scaling", ["none", "minmax"])
def test_more_columns_are_projected_as_in_a_report(scaling: str) -> None:
    model = LosslessFuzzyCMeans(n_clusters=3, random_state=0, scaling=scaling).fit(PEERS)
    ax = model.plot_centers(X)
    plane = plane_of(X, [""] * 4, scaled=scaling != "none")
    drawn = np.concatenate([np.asarray(dots.get_offsets()) for dots in ax.collections])
    rows = plane(X)[np.argsort(model.predict(X), kind="stable")]
    assert drawn == pytest.approx(np.concatenate([rows, plane(model.cluster_centers_)]))
    assert ax.get_xlabel() == plane.titles[0]


def test_one_column_is_drawn_along_a_line() -> None:
    model = LosslessCMeans(n_clusters=2, init=[[0.0], [9.0]]).fit([[[0.0], [1.0], [0.5]], [[8.0], [9.0], [8.5]]])
    ax = model.plot_centers([[0.0], [9.0]])
    assert [dots.get_offsets().tolist() for dots in ax.collections[:2]] == [[[0.0, 0.0]], [[9.0, 0.0]]]


def test_names_of_columns_are_written() -> None:
    model = of_two_columns()
    model.feature_names_in_ = np.array(["watt", "volt"], dtype=object)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        ax = model.plot_centers(ROWS)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("watt", "volt")


def test_of_many_rows_some_are_drawn() -> None:
    many = np.tile(ROWS, (1000, 1))
    ax = of_two_columns().plot_centers(many)
    assert sum(len(dots.get_offsets()) for dots in ax.collections) == DRAWN + 2, "and two centers"


def test_it_draws_where_it_is_asked_to() -> None:
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2)
    assert of_two_columns().plot_centers(ROWS, ax=right) is right
    assert not left.collections
    assert pyplot.get_fignums() == [figure.number]


# -- memberships --------------------------------------------------------------------------------------------------------


def test_memberships_are_stacked_and_sorted_by_cluster() -> None:
    peers = [[[0.0], [0.2], [9.0], [9.2], [0.1]], [[0.1], [0.3], [9.1], [9.3], [9.2]]]
    model = LosslessFuzzyCMeans(n_clusters=2, init=[[0.0], [9.0]]).fit(peers)
    rows = [[9.1], [3.0], [0.1], [6.0]]
    ax = model.plot_memberships(rows)
    found = model.memberships(rows)
    order = [2, 1, 0, 3]  # of cluster 0 the surer one first, then those of cluster 1
    for number, band in enumerate(ax.collections):
        (path,) = band.get_paths()
        corners = {(x, round(y, 9)) for x, y in path.vertices.tolist()}
        tops = found[order, : number + 1].sum(axis=1).round(9).tolist()
        wanted = {(x, top) for row, top in enumerate(tops) for x in (row, row + 1)}
        assert wanted <= corners
    assert [text.get_text() for text in ax.texts] == ["0", "1"]
    assert [line.get_xdata()[0] for line in ax.lines] == [2], "the end of cluster 0"
    assert ax.get_xlim() == (0, 4)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["0", "1"]


def test_of_many_rows_some_memberships_are_drawn() -> None:
    model = LosslessFuzzyCMeans(n_clusters=3, random_state=0).fit(PEERS)
    ax = model.plot_memberships(np.tile(X, (20, 1)))
    assert ax.get_xlim() == (0, DRAWN)
    assert f"{DRAWN} of 3000 rows" in ax.get_title(loc="left")


# -- convergence --------------------------------------------------------------------------------------------------------


def test_convergence_is_the_history() -> None:
    model = LosslessFuzzyCMeans(n_clusters=3, random_state=0).fit(PEERS)
    ax = model.plot_convergence()
    assert ax.lines[0].get_ydata().tolist() == model.history_
    assert np.diff(ax.lines[0].get_xdata()).tolist() == [1] * (len(model.history_) - 1)
    assert [text.get_text() for text in ax.texts] == ["ends below 0.005"]
    assert len(ax.figure.axes) == 1


def test_the_objective_is_that_of_each_rounds_centers() -> None:
    model = LosslessFuzzyCMeans(n_clusters=3, random_state=0).fit(PEERS)
    ax = model.plot_convergence(X)
    moved, (worth,) = ax.lines[0], ax.figure.axes[1].lines
    assert worth.get_xdata()[:-1].tolist() == moved.get_xdata().tolist(), "and once more for the last centers"
    assert worth.get_ydata()[-1] == pytest.approx(model.objective(X))
    assert (np.diff(worth.get_ydata()) <= 0).sum() >= len(model.history_) - 1


def test_a_fleet_knows_no_centers_of_earlier_rounds_but_its_terms() -> None:
    model = LosslessCMeans(n_clusters=3, random_state=0, fleet=Harsh("simulated"))
    with pytest.warns(LeftOutWarning):
        model.fit(PEERS)
    ax = model.plot_convergence()
    assert "term 2" in [text.get_text() for text in ax.texts]
    with pytest.raises(UsageError, match=r"^LosslessCMeans does not know the centers of each round of its fit"):
        model.plot_convergence(X)


@pytest.mark.parametrize(
    "model",
    [
        LosslessCMeans(n_clusters=3, n_init=3, random_state=0),
        VerticalFuzzyCMeans(n_clusters=3, n_peers=2, random_state=0),
    ],
)
def test_of_several_starts_or_of_columns_the_centers_of_a_round_are_not_known(model: Any) -> None:
    model.fit(X)
    assert model.plot_convergence().lines[0].get_ydata().tolist() == [step for step in model.history_ if step > 0]
    with pytest.raises(UsageError, match=r"does not know the centers of each round of its fit"):
        model.plot_convergence(X)


def test_what_moves_is_named() -> None:
    model = VerticalFuzzyCMeans(n_clusters=3, random_state=0).fit([X[:, :2], X[:, 2:]])
    assert model.plot_convergence().get_title(loc="left") == "how far the distances moved"


# -- the fleet ----------------------------------------------------------------------------------------------------------


class Harsh(Backend):
    """A backend on which the first aggregator dies."""

    def carry_out(self, spec: FleetSpec, on_event: OnEvent) -> FleetResult:
        return super().carry_out(replace(spec, faults=(Fault("kill", (), round=7),)), on_event)


def test_the_overlay_has_every_link_and_the_aggregator() -> None:
    model = of_two_columns(fleet="simulated")
    ax = model.plot_overlay()
    names = [text.get_text() for text in ax.texts]
    assert sorted(name.split("\n")[0] for name in names) == ["peer-0", "peer-1"]
    assert [name.split("\n")[1] for name in names if "\n" in name] == ["term 1"]
    assert len(ax.lines) == 1
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert legend == ["peer (2)", "aggregated"]


def test_a_peer_that_died_is_marked() -> None:
    model = LosslessCMeans(n_clusters=3, random_state=0, fleet=Harsh("simulated"))
    with pytest.warns(LeftOutWarning):
        model.fit(PEERS)
    ax = model.plot_overlay()
    assert "gone for good" in [text.get_text() for text in ax.get_legend().get_texts()]
    assert sorted(text.get_text().partition("\n")[2] for text in ax.texts) == ["", "term 1", "term 2"]


def test_a_later_fit_in_this_process_has_no_overlay() -> None:
    model = of_two_columns(fleet="simulated")
    model.set_params(fleet=None).fit(BLOBS)
    with pytest.raises(UsageError, match=r"^LosslessCMeans was not fitted by a fleet"):
        model.plot_overlay()


def test_a_copied_estimator_draws_the_same() -> None:
    """A copy is made of what would be saved."""
    model = copy.deepcopy(of_two_columns(fleet="simulated"))
    assert len(model.plot_overlay().texts) == 2


# -- what cannot be drawn -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("picture", "given"),
    [("plot_centers", ()), ("plot_memberships", (X,)), ("plot_convergence", ()), ("plot_overlay", ())],
)
@pytest.mark.parametrize("kind", [LosslessCMeans, LosslessFuzzyCMeans, FederatedClustering, UIFCA])
def test_an_estimator_that_is_not_fitted_says_so(kind: Any, picture: str, given: tuple[Any, ...]) -> None:
    with pytest.raises(NotFittedError):
        getattr(kind(), picture)(*given)


@pytest.mark.parametrize(
    ("picture", "given", "said"),
    [
        ("plot_memberships", (ROWS,), "LosslessCMeans has no memberships to draw: a row belongs to one cluster only"),
        ("plot_overlay", (), "LosslessCMeans was not fitted by a fleet"),
        ("plot_centers", (X,), "X has 4 features, but LosslessCMeans is expecting 2 features"),
    ],
)
def test_what_is_not_there_is_said_in_one_line(picture: str, given: tuple[Any, ...], said: str) -> None:
    with pytest.raises(P2PClustError) as caught:
        getattr(of_two_columns(), picture)(*given)
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


def test_without_matplotlib_it_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("p2pclust.lab.pictures.canvas.can_draw", lambda: False)
    with pytest.raises(UsageError, match=r"pip install 'p2pclust\[plots\]'$"):
        of_two_columns().plot_centers()
