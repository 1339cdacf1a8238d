"""Labels that follow from a result: of own rows, of other rows, as CSV in and out."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from p2pclust.data.table import Choice
from p2pclust.errors import DataError, UsageError
from p2pclust.hosts import labels
from p2pclust.hosts.submission import FinishedJob, drift
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.compose import cluster_job, continued
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import Workspaces, conclude, run_in_process

ROSTER = ["a", "b"]


def finished(
    protocol: str, rows: list[Local], features: tuple[str, ...] = ("x", "y"), **parameters: Any
) -> FinishedJob:
    job = cluster_job(protocol, **parameters)
    workspaces = Workspaces(1) if job.has_workspace else None
    state = run_in_process(job, rows, None, *([workspaces] if workspaces else []))
    assert state.status == "done", state.reason
    told = {"roster": ROSTER, "features": list(features), "number": 0}
    if workspaces is None:
        return FinishedJob("job-1", told, job, state)
    blobs = {digest: workspaces.blobs[digest] for digest in engine.results(job, state)}
    return FinishedJob("job-1", told, job, state, blobs, workspaces.of(0).note)


@pytest.fixture
def rows() -> list[Local]:
    rng = np.random.default_rng(0)
    return [Local(np.concatenate([rng.normal(at, 0.2, (9, 2)) for at in ((0, 0), (5, 5))])) for _ in ROSTER]


def test_a_hard_clustering_has_labels_only(rows: list[Local]) -> None:
    found = finished("llf-cm", rows, n_clusters=2, scaling="minmax")
    told, degrees, _ = labels.labelled(found, rows[0], own=0)
    assert told.tolist() == conclude(found.job, found.state, rows)[0]["labels"].tolist()
    assert degrees is None
    assert labels.labelled(found, Local([[5.0, 5.0], [0.0, 0.1]]))[0].tolist() == [told[9], told[0]]


def test_a_fuzzy_one_has_memberships(rows: list[Local]) -> None:
    found = finished("llf-fcm", rows, n_clusters=2, scaling="zscore", fuzzifier=1.5)
    told, degrees, _ = labels.labelled(found, rows[0], own=0)
    assert degrees is not None
    assert degrees.sum(axis=1) == pytest.approx(1.0)
    assert told.tolist() == degrees.argmax(axis=1).tolist()


def test_a_vertical_one_labels_the_rows_of_the_job_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(at, 0.2, (9, 2)) for at in ((0, 0), (5, 5))])
    parts = [Local(X[:, [0]], ids=np.arange(18)), Local(X[:, [1]], ids=np.arange(18))]
    found = finished("vertical-cm", parts, ("x",), n_clusters=2)
    told, *_ = labels.labelled(found, parts[0], own=0)
    assert len(set(told[:9])) == len(set(told[9:])) == 1
    assert told[0] != told[9]
    monkeypatch.setattr(labels, "result_of", lambda door, job: found)
    with pytest.raises(UsageError, match="no complete centers"):
        labels.label_file(None, "job-1", tmp_path / "rows.csv")  # type: ignore[arg-type]


@pytest.mark.slow
def test_fedcref_labels_others_by_the_model_that_fits_best(rows: list[Local]) -> None:
    pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    many = [Local(np.concatenate([rng.normal(at, 0.05, (30, 2)) for at in ((0.2, 0.2), (0.8, 0.8))])) for _ in ROSTER]
    found = finished(
        "fedcref", many, scaling="minmax", initial="kmeans", n_local_clusters=2, hidden=[4], output="linear", epochs=40,
        batch=16, rounds=2, min_rows=4, learning_rate=0.02, federated_rate=0.02, max_refinements=2,
    )  # fmt: skip
    own, *_ = labels.labelled(found, many[0], own=0)
    assert own.shape == (60,)
    if found.blobs:
        others, *_ = labels.labelled(found, many[0])
        assert others.shape == (60,)
        assert set(others.tolist()) <= set(range(10))


def test_the_cells_of_a_file_stay_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[Local]
) -> None:
    found = finished("llf-fcm", rows, n_clusters=2)
    monkeypatch.setattr(labels, "result_of", lambda door, job: found)
    file = tmp_path / "rows.csv"
    file.write_text("label,y,x\n007,5.00,4.9\n008,0.1,0\n", encoding="utf-8")
    table = labels.label_file(None, "job-1", file)  # type: ignore[arg-type]
    assert table.header == ["label", "y", "x", "row", "label_", "distance", "membership_0", "membership_1"]
    (first, second) = list(table.rows())
    assert (first[:4], second[:4]) == (["007", "5.00", "4.9", "0"], ["008", "0.1", "0", "1"])
    assert first[4] != second[4]
    file.write_text("a,b,c\n1,2,3\n", encoding="utf-8")
    with pytest.raises(DataError, match="3 columns, but the job has 2 features"):
        labels.label_file(None, "job-1", file)  # type: ignore[arg-type]
    assert len(list(labels.label_file(None, "job-1", file, Choice([1, 2])).rows())) == 1  # type: ignore[arg-type]


@pytest.mark.parametrize("scaling", ["none", "minmax"])
def test_a_file_of_a_run_labels_other_rows_and_says_how_far_they_are(
    tmp_path: Path, rows: list[Local], scaling: str
) -> None:
    found = finished("llf-cm", rows, n_clusters=2, scaling=scaling)
    (tmp_path / "model.msgpack").write_bytes(found.to_bytes())
    (tmp_path / "new.csv").write_text("y,x\n5,5\n0,0\n", encoding="utf-8")
    table = labels.label_by_run(tmp_path / "model.msgpack", tmp_path / "new.csv")
    assert table.header == ["y", "x", "row", "label", "distance"]
    centers = found.state.arrays["centers"] * found.state.arrays["scale"] + found.state.arrays["origin"]
    for row, point in zip(table.rows(), ([5.0, 5.0], [0.0, 0.0]), strict=True):
        away = np.sqrt((((point - centers) / found.state.arrays["scale"]) ** 2).sum(axis=1))
        assert int(row[3]) == away.argmin()
        assert float(row[4]) == pytest.approx(away.min())


@pytest.mark.parametrize("protocol", ["llf-cm", "llf-fcm"])
def test_rows_with_missing_values_are_labelled_by_a_job_that_keeps_them(tmp_path: Path, protocol: str) -> None:
    rows = [Local([[0.0, 0.5], [0.2, np.nan], [np.nan, 0.1], [5.0, 5.5], [5.2, np.nan], [np.nan, 5.1]] * 2)] * 2
    (tmp_path / "new.csv").write_text("x,y\n,5\n0,\nNA,?\n", encoding="utf-8")
    file, keep = tmp_path / "model.msgpack", Choice(missing_values="keep")
    file.write_bytes(finished(protocol, rows, n_clusters=2, missing_values="keep", seed=1).to_bytes())
    table = labels.label_by_run(file, tmp_path / "new.csv", keep)
    found = list(table.rows())
    assert [row[:3] for row in found] == [["", "5", "0"], ["0", "", "1"]]
    assert found[0][3] != found[1][3]
    assert table.distances is not None
    assert (table.distances < 0.5).all()
    if protocol == "llf-fcm":
        np.testing.assert_allclose(table.memberships.sum(axis=1), 1.0)
    whole = [Local(np.nan_to_num(one.X)) for one in rows]
    file.write_bytes(finished(protocol, whole, n_clusters=2, seed=1).to_bytes())
    with pytest.raises(DataError, match="row 0, column 0 is nan"):
        labels.label_by_run(file, tmp_path / "new.csv", keep)


@pytest.mark.parametrize("content", [b"", b"\x80", b"\x81\xa5state\xc0", b"{}"])
def test_what_is_no_result_of_a_run_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.msgpack").write_bytes(content)
    with pytest.raises(UsageError, match="not the result of a run of this version"):
        labels.label_by_run(tmp_path / "model.msgpack", tmp_path / "new.csv")
    with pytest.raises(UsageError, match="is it in the folder of a run"):
        labels.label_by_run(tmp_path / "absent.msgpack", tmp_path / "new.csv")


def test_drift_is_measured_between_turns(rows: list[Local]) -> None:
    found = finished("llf-cm", rows, n_clusters=2, tol=0.0, max_rounds=3)
    assert drift(found) is None
    moved = [Local(local.X + np.array([0.3, 0.4])) for local in rows]
    job = continued(found.job, found.state)
    state = run_in_process(job, moved)
    told = drift(FinishedJob("job-2", {**found.told, "number": 1}, job, state))
    assert told is not None
    width = state.arrays["unit"]
    assert told["of"] == "range, rounded up to a power of two"
    assert told["features"] == pytest.approx({"x": 0.3 / width[0], "y": 0.4 / width[1]}), "of each feature's own width"
    assert told["each"] == pytest.approx([max(told["features"].values())] * 2)
    assert told["largest"] == pytest.approx(max(told["features"].values()))


@pytest.mark.parametrize(("scaling", "of"), [("minmax", "range"), ("zscore", "standard deviation")])
def test_drift_does_not_depend_on_the_units_of_columns(rows: list[Local], scaling: str, of: str) -> None:
    told = []
    for factor in (1.0, 1000.0):
        here = [Local(local.X * np.array([1.0, factor])) for local in rows]
        found = finished("llf-cm", here, n_clusters=2, scaling=scaling, tol=0.0, max_rounds=3)
        moved = [Local(local.X + np.array([0.3, 0.4 * factor])) for local in here]
        job = continued(found.job, found.state)
        told.append(drift(FinishedJob("job-2", {**found.told, "number": 1}, job, run_in_process(job, moved))))
    assert told[0] is not None
    assert told[1] is not None
    assert told[0]["of"] == told[1]["of"] == of
    assert told[0]["features"] == pytest.approx(told[1]["features"])
    if scaling == "minmax":
        ranges = np.ptp(np.concatenate([local.X for local in rows]), axis=0)
        assert told[0]["features"] == pytest.approx({"x": 0.3 / ranges[0], "y": 0.4 / ranges[1]})


def test_rows_that_were_left_out_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[Local]
) -> None:
    found = finished("llf-cm", rows, n_clusters=2)
    monkeypatch.setattr(labels, "result_of", lambda door, job: found)
    file = tmp_path / "rows.csv"
    file.write_text("site;y;x\na;5;5\n\nb;NA;5\nc;0;0\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"row 4, column 2 \(y\): .* \(--missing-values drop\) does$"):
        labels.label_file(None, "job-1", file)  # type: ignore[arg-type]
    table = labels.label_file(None, "job-1", file, Choice(missing_values="drop"))  # type: ignore[arg-type]
    assert table.header == ["site", "y", "x", "row", "label", "distance"]
    assert [row[:4] for row in table.rows()] == [["a", "5", "5", "0"], ["c", "0", "0", "2"]]
    assert len({row[4] for row in table.rows()}) == 2


def test_rows_of_a_folder_have_the_name_of_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[Local]
) -> None:
    found = finished("llf-cm", rows, n_clusters=2)
    monkeypatch.setattr(labels, "result_of", lambda door, job: found)
    (tmp_path / "a.csv").write_text("x,y\n5,5\n", encoding="utf-8")
    (tmp_path / "b.csv").write_text("x,y\nNA,0\n0,0\n", encoding="utf-8")
    table = labels.label_file(None, "job-1", tmp_path, Choice(missing_values="drop"))  # type: ignore[arg-type]
    assert table.header == ["x", "y", "file", "row", "label", "distance"]
    assert [row[:4] for row in table.rows()] == [["5.0", "5.0", "a.csv", "0"], ["0.0", "0.0", "b.csv", "1"]]


def test_rows_of_a_file_are_called_by_its_id_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[Local]
) -> None:
    found = finished("llf-cm", rows, n_clusters=2)
    monkeypatch.setattr(labels, "result_of", lambda door, job: found)
    file = tmp_path / "rows.csv"
    file.write_text("x,meter,y\n5,31,5\n0,7,\n0,12,0\n", encoding="utf-8")
    table = labels.label_file(None, "job-1", file, Choice(missing_values="drop", id_column="meter"))  # type: ignore[arg-type]
    assert table.header == ["x", "meter", "y", "row", "label", "distance"]
    assert [row[:4] for row in table.rows()] == [["5", "31", "5", "31"], ["0", "12", "0", "12"]]


def test_a_column_of_the_rows_own_names_is_written_once(
    tmp_path: Path, rows: list[Local], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = finished("llf-cm", rows, n_clusters=2)
    monkeypatch.setattr(labels, "result_of", lambda door, job: found)
    file = tmp_path / "rows.csv"
    file.write_text("row,y,x\n007,5,5\n008,0.10,0\n", encoding="utf-8")
    table = labels.label_file(None, "job-1", file, Choice(id_column="row"))  # type: ignore[arg-type]
    assert table.header == ["y", "x", "row", "label", "distance"]
    assert [row[:3] for row in table.rows()] == [["5", "5", "007"], ["0.10", "0", "008"]]
    table = labels.label_file(None, "job-1", file)  # type: ignore[arg-type]
    assert table.header == ["row", "y", "x", "row_", "label", "distance"]


def test_own_rows_are_called_as_the_peers_configuration_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[Local]
) -> None:
    found = finished("llf-cm", rows, n_clusters=2)
    monkeypatch.setattr(labels, "result_of", lambda door, job, own: found)
    (tmp_path / "rows.csv").write_text("meter,x,y\nm31,5,5\nm7,0,0\n", encoding="utf-8")
    config = {"name": "a", "data": str(tmp_path / "rows.csv"), "id_column": "meter"}
    (tmp_path / "peer.json").write_text(json.dumps(config), encoding="utf-8")
    table = labels.label_own(SimpleNamespace(state_dir=tmp_path), "job-1")  # type: ignore[arg-type]
    assert [row[:4] for row in table.rows()] == [["m31", "5", "5", "m31"], ["m7", "0", "0", "m7"]]
