"""Every file in scenarios/ loads, tells a story, and means what its comments say."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from sklearn.metrics import adjusted_rand_score

from p2pclust.data.catalogue import find
from p2pclust.data.registry import available
from p2pclust.lab.scenario.file.load import check_backend, load_data, load_scenario, make_job
from p2pclust.protocols.centers.stream import drift_report
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import run_in_process

FOLDER = Path(__file__).parents[2] / "scenarios"
FILES = sorted(FOLDER.glob("**/*.toml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_loads_with_its_data(file: Path) -> None:
    scenario = load_scenario(file)
    assert len(scenario.title) > 30
    entry = find(scenario.data.source or "")
    if entry is not None and entry.name not in available():
        pytest.skip(f"{entry.name} is not here: p2pclust data fetch {entry.name}")
    shares = load_data(scenario)
    assert list(shares) == [device.name for device in scenario.fleet.members]
    check_backend(scenario, "processes")


def test_all_are_in_the_readme() -> None:
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert [file.name for file in FILES if f"`{file.name}`" not in readme] == []


def test_readme_names_every_key() -> None:
    from p2pclust.jobs import data_keys
    from p2pclust.lab.scenario.file import fleet_keys, schema

    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    words = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"`([^`]*)`", readme))))
    modules = (schema, data_keys, fleet_keys)
    models = [
        model for module in modules for name, model in vars(module).items()
        if hasattr(model, "model_fields") and model.__module__ == module.__name__ and not name.startswith("_")
    ]  # fmt: skip
    assert len(models) == 16
    keys = {field.alias or key for model in models for key, field in model.model_fields.items()}
    assert keys - set(schema.ScenarioJob.model_fields) - words == set()  # those of a job are in docs/options.md


def test_quickstart_gives_no_peer_every_digit() -> None:
    shares = load_data(load_scenario(FOLDER / "quickstart.toml"))
    assert len(shares) == 8
    for share in shares.values():
        assert share.y is not None
        assert len(np.unique(share.y)) == 3
        assert 215 <= share.n_rows <= 235
    assert len(np.unique(np.concatenate([share.y for share in shares.values() if share.y is not None]))) == 10


def test_lost_majority_kills_a_majority() -> None:
    scenario = load_scenario(FOLDER / "lost-majority.toml")
    victims = scenario.victims(scenario.faults[0], np.random.default_rng(0))
    assert victims == ("cellar-01", "cellar-02", "cellar-03")
    assert len(victims) > len(scenario.fleet.members) / 2


def in_process(name: str, *overrides: str) -> tuple[JobState, float]:
    """Run a scenario's job without its faults; return the final state and the adjusted Rand index."""
    scenario = load_scenario(FOLDER / name, overrides)
    shares = list(load_data(scenario).values())
    job = make_job(scenario, 0, shares[0].n_features)
    locals = [Local(share.X) for share in shares]
    state = run_in_process(job, locals)
    labels = np.concatenate([engine.conclude(job, state, local)["labels"] for local in locals])
    truth = np.concatenate([share.y for share in shares if share.y is not None])
    return state, float(adjusted_rand_score(truth, labels))


@pytest.mark.parametrize(
    ("name", "ari"), [("quickstart.toml", 0.6), ("iris-kmeans.toml", 0.6), ("lost-majority.toml", 0.8)]
)
def test_faults_meet_a_job_that_is_clustering(name: str, ari: float) -> None:
    state, reached = in_process(name)
    assert state.converged
    assert reached > ari
    scenario = load_scenario(FOLDER / name)
    main = make_job(scenario, 0, 1).main
    clustering = [number for number, record in enumerate(state.log) if record.stage == main]
    for fault in scenario.faults:
        assert fault.at.round is not None
        assert clustering[0] < fault.at.round < clustering[-2]


def test_the_usual_fuzzifier_would_collapse_the_quickstart() -> None:
    def least_distance(*overrides: str) -> float:
        centers = in_process("quickstart.toml", *overrides)[0].arrays["centers"]
        return float(pdist(centers).min())

    assert least_distance() > 1
    assert least_distance("jobs.0.fuzzifier=2.0") < 0.01


def test_the_machines_drift_twice() -> None:
    def drifting(*overrides: str) -> list[int]:
        state = in_process("stream-machines.toml", *overrides)[0]
        return [batch.batch for batch in drift_report(state.arrays) if batch.reasons]

    assert drifting() == [4, 6]
    assert drifting("data.options.leap=0.0") == [6]
    assert drifting("data.options.leap=0.0", "data.options.growth=0.3333") == []
    scenario = load_scenario(FOLDER / "stream-machines.toml")
    for share in load_data(scenario).values():
        assert share.y is not None
        assert share.n_rows == 320
        assert (np.bincount(share.y[240:])).argmax() == 2, "the rows are in their order"
