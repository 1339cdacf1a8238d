"""Jobs in which every peer has clusters of its own: where they start, and how they are judged."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from p2pclust.data import DataSet
from p2pclust.errors import DataError, UsageError
from p2pclust.lab.scenario.file.load import load_data, load_scenario, make_job
from p2pclust.lab.scenario.file.schema import ScenarioJob
from p2pclust.lab.scenario.outcome.communities import first_labels, own_numbers, wrong_links
from p2pclust.lab.scenario.run import CheckedRun, carry_out, fleet_spec
from p2pclust.metrics import accuracy
from p2pclust.protocols.models.association import Association, Clusters

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[3] / "scenarios"
OVERRIDES = ("faults=[]", "jobs.0.epochs=4", "jobs.0.hidden=[8, 4, 8]", "jobs.0.max_refinements=1")


def shares(y: np.ndarray | None) -> dict[str, DataSet]:  # type: ignore[type-arg]
    n = 40 if y is None else len(y)
    return {name: DataSet("made", np.zeros((n, 2)), y=y) for name in ("a", "b")}


def test_labels_made_dirty_are_the_peer_s_own_affair() -> None:
    spec = ScenarioJob(protocol="fedcref", initial="given", dirtiness=0.3)
    y = np.repeat([3, 5], 200)
    labels = first_labels(spec, shares(y), seed=1)
    assert [float(np.mean(own == (y == 5))) for own in labels.values()] == pytest.approx([0.7, 0.7], abs=0.08)
    assert (labels["a"] != labels["b"]).any()
    assert first_labels(spec, shares(y), seed=1)["a"].tolist() == labels["a"].tolist()
    assert first_labels(ScenarioJob(protocol="fedcref"), shares(y), seed=1) == {}


def test_numbers_of_clusters_from_labels() -> None:
    spec = ScenarioJob(protocol="fedcref", n_local_clusters="classes")
    assert own_numbers(spec, shares(np.array([7, 8, 8, 9]))) == {"a": 3, "b": 3}
    with pytest.raises(UsageError, match="n_local_clusters = 'classes' needs labels, and a has none"):
        own_numbers(spec, shares(None))
    with pytest.raises(UsageError, match="initial = 'given' needs labels"):
        first_labels(ScenarioJob(protocol="fedcref", initial="given"), shares(None), seed=0)


def test_links_of_unknown_clusters_are_not_judged() -> None:
    association = Association(Clusters((1, 1, 1)), [(0, 1), (1, 2), (0, 2)])
    assert wrong_links(association, ["x", "x", None]) == 0.0
    assert wrong_links(association, ["x", "y", "x"]) == pytest.approx(2 / 3)


def test_the_digits_come_by_class() -> None:
    scenario = load_scenario(FOLDER / "fedcref-digits.toml")
    held = load_data(scenario)
    for share in held.values():
        assert share.y is not None
        assert set(np.unique(share.y, return_counts=True)[1].tolist()) == {50}
    spec = fleet_spec(CheckedRun(scenario, held, [make_job(scenario, 0, 64)], {}))
    assert [peer.n_clusters for peer in spec.peers] == [len(np.unique(held[peer.name].y)) for peer in spec.peers]  # type: ignore[arg-type]
    assert spec.faults[0].within


def test_a_class_without_enough_rows_is_refused() -> None:
    scenario = load_scenario(FOLDER / "fedcref-digits.toml", ["data.partition.rows_per_class=170"])
    with pytest.raises(DataError, match="rows"):
        load_data(scenario)


@pytest.mark.parametrize("backend", ["in-process", "simulated"])
def test_a_run_tells_its_communities(backend: str, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="autoencoders need torch: pip install 'p2pclust[models]'")
    scenario = load_scenario(FOLDER / "fedcref-digits.toml", OVERRIDES)
    job = carry_out(scenario, backend, out=tmp_path)["jobs"][0]
    clusters = [tuple(member) for members in job["communities"] for member in members]
    assert len(clusters) == len(set(clusters))
    # Those of communities that no row belongs to in the end are in neither list.
    assert len(clusters) + len(job["isolated"]) <= sum(len(np.unique(s.y)) for s in load_data(scenario).values())  # type: ignore[arg-type]
    assert len(job["communities"]) == job["refinements"][-1]["groups"]
    assert [row["refinement"] for row in job["refinements"]] == [0, 1]
    assert job["parameters"]["mode"] == "refined"
    assert 0.2 < job["metrics"]["accuracy"] <= 1.0
    assert job["centers"] is None
    assert not (tmp_path / "centers.csv").exists()
    with (tmp_path / "labels.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == job["n_rows"]
    own = {name: [(row["class"], row["label"]) for row in rows if row["device"] == name] for name in job["digests"]}
    scores = [accuracy(*map(np.array, zip(*pairs, strict=True))) for pairs in own.values()]
    assert np.mean(scores) == pytest.approx(job["metrics"]["accuracy"])


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("jobs.0.clusters=3", "protocol 'fedcref' finds the number of clusters itself"),
        ("jobs.0.fuzzifier=2.0", "protocol 'fedcref' has no fuzzifier"),
        ("jobs.0.mode=best", "mode"),
        ("data.partition.scheme=iid", "rows_per_class is for scheme = 'by-class'"),
    ],
)
def test_what_does_not_fit_is_refused(override: str, line: str) -> None:
    with pytest.raises(UsageError, match=line):
        load_scenario(FOLDER / "fedcref-digits.toml", [override])
