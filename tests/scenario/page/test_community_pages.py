from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from p2pclust.data import DataSet
from p2pclust.jobs.request import JobRequest
from p2pclust.lab.run.events import RunEvent
from p2pclust.lab.scenario.file.load import load_data, load_scenario, make_job
from p2pclust.lab.scenario.page.community_pages import CommunityStory, sections, short_names
from p2pclust.lab.scenario.page.story import RunStory
from p2pclust.lab.scenario.run import CheckedRun, carry_out, fleet_spec
from p2pclust.lab.testbed.spec import FleetResult, FleetSpec

TINY = """
title = "Six peers & some digits"
seed = 3
[data]
source = "digits"
scaling = "minmax"
bounds = [[0.0, 16.0]]
[data.partition]
scheme = "by-class"
rows_per_class = 20
classes_per_peer = [2, 3]
[fleet]
peers = 6
[[jobs]]
protocol = "fedcref"
initial = "given"
dirtiness = 0.1
epochs = 20
batch = 8
learning_rate = 0.01
hidden = [16, 8, 16]
"""


def test_communities_that_are_left_have_the_colours_of_the_rows() -> None:
    nothing: Any = None
    one = CommunityStory(nothing, 0)
    one.__dict__["agreed"] = SimpleNamespace(alive=np.array([0, 2]), n_groups=4)
    one.__dict__["rows"] = SimpleNamespace(hues=[4, 0])
    assert one.colours == [4, 5, 0, 6]
    one.__dict__["rows"] = None
    assert one.colours is None


def story(file: str, mode: str, *, labels: bool = True, number: int = 0) -> CommunityStory:
    from p2pclust.lab.testbed import backend

    more = [] if mode == "refined" else ["jobs.0.theta=0.5", "jobs.0.max_iterations=2"]
    scenario = load_scenario(file, [f"jobs.0.mode={mode}", *more])
    shares = load_data(scenario)
    job = make_job(scenario, 0, 64)
    peers = fleet_spec(CheckedRun(scenario, shares, [job], {})).peers
    found = backend("in-process").carry_out(FleetSpec(peers, (JobRequest(job),)), lambda event: None)
    if not labels:
        shares = {name: DataSet(name, share.X) for name, share in shares.items()}
    n_jobs = number + 1
    whole = FleetResult(n_jobs * found.jobs, found.peers, found.wall_seconds, events=found.events)
    groups = dict.fromkeys(shares, "peer")
    events = [*map(RunEvent.of, found.events)]
    return CommunityStory(RunStory({}, n_jobs * [job], whole, shares, groups, (), None, (), events), number)


@pytest.mark.slow
def test_a_run_leaves_a_page(scenario_file: Callable[..., str], tmp_path: Path) -> None:
    scenario = load_scenario(scenario_file(base=TINY), ["jobs.0.max_refinements=2"])
    result = carry_out(scenario, "in-process", out=tmp_path / "out")
    text = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "<h1>Six peers &amp; some digits</h1>" in text
    headings = re.findall(r"<h2>(.*?)</h2>", text)
    assert headings == [
        "How it went, round by round", "Which clusters are the same", "How the communities came about",
        "What each community&#39;s model draws", "What was sent", "What it found", "Whose rows, and how sure",
        "The job in figures", "The log, shortened",
    ]  # fmt: skip
    assert len(re.findall(r'<image [^>]*href="data:image/png;base64,', text)) > 10
    assert "<img" not in text
    assert 'aria-label="community against true class"' in text
    assert "http" not in re.sub(r'href="[^"]*"', "", text)
    # What the page shows is what the result says.
    (job,) = result["jobs"]
    assert json.loads((tmp_path / "out" / "result.json").read_text(encoding="utf-8"))["jobs"] == [job]


@pytest.mark.slow
def test_curves_of_the_refined_mode(scenario_file: Callable[..., str]) -> None:
    told = story(scenario_file(base=TINY), "refined")
    curves, history = told.curves, told.agreed.history
    n_clusters = told.agreed.clusters.total
    assert curves["isolated"][0] == n_clusters
    assert curves["isolated"][1:] == history[:, 3].tolist()
    assert curves["communities"][1:] == history[:, 2].tolist()
    assert np.isnan(curves["communities"][0])
    # Dirty labels: a tenth of the rows is wrong to begin with.
    assert 0.8 < curves["accuracy"][0] < 1.0
    assert 0.0 < curves["accuracy"][-1] <= 1.0
    assert np.isnan(curves["accuracy"][1:-1]).all()
    assert "active" not in curves
    assert len({len(curve) for curve in curves.values()}) == 1
    alive = told.agreed.alive.tolist()
    called = {label for labels in told.labels.values() for label in labels.tolist() if label < len(alive)}
    assert called == {told.label_of(group) for group in alive}
    assert len(told.exchanges) == 1
    assert told.exchanges[0][1].digest == told.agreed.association.digest


@pytest.mark.slow
def test_of_the_paper_mode_each_iteration_has_its_graph(scenario_file: Callable[..., str]) -> None:
    told = story(scenario_file(base=TINY), "paper", number=1)
    assert [number for number, _ in told.exchanges] == list(range(1, told.agreed.iteration + 1))
    assert told.curves["active"][0] == 6
    assert told.curves["active"][1:] == told.agreed.history[:, 7].tolist()
    graphs = sections(told)[0]
    assert graphs.heading == "Job 2: Which clusters are the same"
    assert len(graphs.steps) == told.agreed.iteration


@pytest.mark.slow
def test_without_labels(scenario_file: Callable[..., str]) -> None:
    told = story(scenario_file(base=TINY), "refined", labels=False)
    assert np.isnan(told.curves["accuracy"]).all()
    assert np.isnan(told.curves["wrong"]).all()
    captions = {section.heading: [*section.pictures, *section.steps][0].caption for section in sections(told)}
    assert "dashed" not in captions["How the communities came about"]
    assert captions["What each community's model draws"].startswith("Left: one row of each community")


def test_names_that_have_nothing_in_common() -> None:
    assert short_names(["a", "b"]) == ["a", "b"]
    assert short_names(["alpha", "beta"]) == ["0", "1"]
    assert short_names(["solo"]) == ["0"]
    assert short_names(["m-1", "m-12"]) == ["1", "12"]
