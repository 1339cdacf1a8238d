"""What the page of a run says."""

from __future__ import annotations

import csv
import dataclasses
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.happened import happened

from p2pclust.errors import FleetError
from p2pclust.lab.run.state import RunState
from p2pclust.lab.scenario.file.load import load_scenario
from p2pclust.lab.scenario.outcome.measures import MeasuredEvidence
from p2pclust.lab.scenario.page.job_pages import _objective, _without, centers_table
from p2pclust.lab.scenario.page.page import Section
from p2pclust.lab.scenario.page.rows import JobRows
from p2pclust.lab.scenario.page.run_pages import _changing, _number
from p2pclust.lab.scenario.page.story import JobStory
from p2pclust.lab.scenario.run import carry_out
from p2pclust.lab.testbed import backend
from p2pclust.lab.testbed.spec import FleetResult, FleetSpec, OnEvent
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.runner import Trail

Write = Callable[..., str]

FUZZY = """
title = "Meters & gateways"
[data]
source = "iris"
scaling = "minmax"
[[fleet.devices]]
name = "gateway"
[[fleet.devices]]
name = "meter"
count = 3
[fleet.overlay]
kind = "ring"
[[jobs]]
protocol = "llf-fcm"
clusters = 3
secure = false
[[faults]]
at = { round = 4 }
do = "kill"
who = "aggregator"
[expect]
finished_at_least = 3
rounds_at_most = 2
"""
FUZZY_JOB = '[[jobs]]\nprotocol = "llf-fcm"\nclusters = 2\n'
VERTICAL = """
[data]
source = "wine"
scaling = "zscore"
partition = { scheme = "vertical" }
[fleet]
peers = 3
[[jobs]]
protocol = "vertical-fcm"
clusters = 3
"""


def page(path: str, out: Path, name: str = "in-process", **more: Any) -> str:
    carry_out(load_scenario(path), name, out=out, **more)
    return (out / "report.html").read_text(encoding="utf-8")


def headings(text: str) -> list[str]:
    return re.findall(r"<h2>(.*?)</h2>", text)


class Refuses:
    """A backend that cannot begin."""

    def carry_out(self, spec: FleetSpec, on_event: OnEvent) -> FleetResult:
        on_event({"t": 0.5, "peer": "meter-01", "verb": "started"})
        raise FleetError("two peers want one port")


STRANGER = """
[data]
source = "iris"
[[fleet.devices]]
name = "meter"
count = 3
[[fleet.devices]]
name = "laptop"
enrolled = false
[[jobs]]
protocol = "llf-cm"
clusters = 3
"""


def test_a_stranger_does_not_count_as_a_peer_that_did_not_finish(scenario_file: Write, tmp_path: Path) -> None:
    text = page(scenario_file(base=STRANGER), tmp_path / "out", "simulated")
    assert '<p class="facts">3 peers and 1 stranger, simulated' in text
    assert "<b>3 of 3</b> <span>peers finished</span>" in text
    assert '<li class="good"><b>1 of 1</b> <span>strangers kept out</span>' in text
    assert "laptop is not on the fleet roster and could not join" in text
    assert "<summary>the same as a table</summary>" in text


def test_bytes_are_whole_numbers() -> None:
    assert [_number(value) for value in (None, 1161760.0, 0.25)] == ["-", "1,161,760", "0.25"]


@pytest.mark.slow
def test_a_peer_without_a_part_in_the_result_is_named_with_the_reason(
    scenario_file: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[JobStory] = []

    def keep(story: JobStory) -> list[Section]:
        told.append(story)
        return []

    monkeypatch.setattr("p2pclust.lab.scenario.page.run_pages.job_sections", keep)
    for name, rows in (("a", 3), ("b", 20), ("c", 22)):
        (tmp_path / f"{name}.csv").write_text(
            "w,h\n" + "".join(f"{n % 5},{n}\n" for n in range(rows)), encoding="utf-8"
        )
    page(
        scenario_file(base='[data]\nfiles = ["a.csv", "b.csv", "c.csv"]\n[fleet]\npeers = 3\n' + FUZZY_JOB),
        tmp_path / "out",
    )
    (story,) = told
    why = story.absent["peer-01"]
    assert list(story.absent) == ["peer-01"]
    assert why.startswith("privacy gate: C (F + 1) / F = 3 rows or fewer: add rows, ")
    assert _without(story) == (f" Not shown are the 3 rows of peer-01 ({why}), which had no part in the clustering.")
    page(scenario_file(), tmp_path / "out")
    assert _without(told[1]) == "", "every peer is there"
    page(scenario_file(base=VERTICAL), tmp_path / "out")
    assert _without(told[2]) == "", "every row belongs to all peers"


@pytest.mark.parametrize(
    ("contributors", "values", "said"),
    [
        # Peer a has the rows 0 and 2, peer b the row 10; the centers are 0, 1 and 2.
        ([["a", "b"], ["a", "b"]], [104.0, 83.0, 68.0], "over all rows, for the centers"),
        ([["a", "b"], ["a"]], [104 / 3, 1.0, 2.0], "mean over the rows of the peers that did"),
        ([[], ["a"]], [1.0, 2.0], "mean over the rows of the peers that did"),
    ],
)
def test_the_objective_counts_the_rows_that_contributed_in_that_round(
    monkeypatch: pytest.MonkeyPatch, contributors: list[list[str]], values: list[float], said: str
) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr("p2pclust.lab.scenario.page.job_pages.objective_drawing", lambda *told: drawn.append(told))
    monkeypatch.setattr("p2pclust.lab.scenario.page.job_pages.picture_of", lambda drawing, alt, caption: caption)
    rows = JobRows(
        ("a", "b"), np.array([0, 0, 1]), np.zeros(3, np.int64), None, np.array([[0.0], [2.0], [10.0]]), np.arange(3),
        ("x",), ("0",),
    )  # fmt: skip
    state = SimpleNamespace(round=2, arrays={"origin": np.zeros(1), "scale": np.ones(1)})
    story = SimpleNamespace(
        evidence=MeasuredEvidence(np.array([[2.0]]), None, Trail([(0, np.array([[0.0]])), (1, np.array([[1.0]]))])),
        rows=rows, state=state, job=cluster_job("llf-cm", n_clusters=1), absent={},
        entry={"contributors": contributors},
    )  # fmt: skip
    caption: Any = _objective(story)  # type: ignore[arg-type]
    assert drawn[0][1] == pytest.approx(values)
    assert said in caption


@pytest.mark.parametrize(
    ("events", "shown"),
    [
        ([], ""),
        (["elected"], ""),
        (["elected", "elected"], "who aggregated"),
        (["kill"], "who was away"),
        (["elected", "kill"], "who aggregated and who was away"),
        (["kill", "link"], "who was away and which links there were"),
        (["elected", "kill", "link"], "who aggregated, who was away and which links there were"),
    ],
)
def test_the_slider_says_what_it_shows(events: list[str], shown: str) -> None:
    made = {
        "elected": {"verb": "elected", "job": "j", "term": 1},
        "kill": {"verb": "fault", "do": "kill"},
        "link": {"verb": "link", "to": "b", "up": False},
    }
    told = [{"t": float(number), "peer": "a", **made[verb]} for number, verb in enumerate(events, start=1)]
    told.append({"t": 9.0, "peer": "b", "verb": "left"})
    assert _changing(RunState.of(map(happened, told), "ab", links=[("a", "b")])) == shown


def test_a_page_needs_no_matplotlib(scenario_file: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    text = page(scenario_file(), tmp_path / "out")
    assert headings(text) == [
        "How it went, round by round", "What it found", "Whose rows, and how sure", "Compared with pooling all rows",
        "The job in figures", "The log, shortened",
    ]  # fmt: skip
    assert text.count('<svg class="drawing"') > 8
    assert "A real fleet cannot produce this page" in text


def test_a_fleet_that_could_not_begin_has_a_page_that_says_so(scenario_file: Write, tmp_path: Path) -> None:
    text = page(scenario_file(base=FUZZY), tmp_path / "out", "simulated", backend=Refuses())
    assert '<p class="alarm" role="alert">The fleet could not finish: two peers want one port</p>' in text
    assert re.search(r'<li class="bad"><b>0 of 4</b> <span>peers finished</span>', text)
    assert text.count("✗ did not hold") == 2, "a value that a run does not have is not held"


def test_what_did_not_hold_is_at_the_top(scenario_file: Write, tmp_path: Path) -> None:
    more = "[expect]\nrounds_at_most = 1\nfinished_at_least = 4\n"
    text = page(scenario_file(more), tmp_path / "out")
    assert "1 of 2 expectations did not hold</p>" in text
    assert text.index("1 of 2 expectations") < text.index("at most 1 rounds in each job")
    rows = re.findall(r'<tr class="(good|bad)"><td>(.) ', text)
    assert rows == [("good", "✓"), ("bad", "✗")]


def test_what_is_written_by_others_is_no_markup(scenario_file: Write, tmp_path: Path) -> None:
    path = scenario_file()
    Path(path).write_text(
        f'title = "<script>alert(1)</script>"\n{Path(path).read_text(encoding="utf-8")}', encoding="utf-8"
    )
    text = page(path, tmp_path / "out")
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert "http" not in re.sub(r"&[a-z]+;", "", text), "nothing is fetched from anywhere"


def test_an_earlier_page_is_replaced(scenario_file: Write, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "report.html").write_text("old", encoding="utf-8")
    assert page(scenario_file(), tmp_path / "out").startswith("<!doctype html>")
    assert not [file for file in (tmp_path / "out").iterdir() if file.name.startswith(".")]


@pytest.mark.slow
def test_all_parts_of_a_run_are_drawn(scenario_file: Write, tmp_path: Path) -> None:
    late = FUZZY.replace("round = 4", "round = 9")  # of fuzzy c-means: first centers are found before
    text = page(scenario_file(base=late), tmp_path / "out", "simulated")
    assert headings(text) == [
        "The fleet", "What was expected", "What happened when", "How it went, round by round",
        "Who aggregated, and why it ended", "What it found",
        "Whose rows, and how sure", "Compared with pooling all rows", "The job in figures", "What it cost each device",
        "The log, shortened",
    ]  # fmt: skip
    labels = re.findall(r'<svg class="drawing" role="img" aria-label="([^"]*)"', text)
    assert labels == [
        "the overlay with roles and failures",
        "time line of all peers", "time line of all peers", "how far the centers moved", "objective",
        "who contributed to each round", "who contributed to each round", "rows in a plane: clusters found",
        "rows in a plane: true classes", "rows in a plane: whose rows they are", "the centers",
        "what each peer holds", "what each peer holds",
        "cluster against true class", "how sure rows are of their cluster", "the fleet&#x27;s centers against pooled ones",
        "largest difference for each feature", "bytes sent by peer", "bytes received by peer", "messages sent by peer",
        "bytes by kind of message",
    ]  # fmt: skip
    assert "the path of the centers" in text
    assert "the mean over the rows of the peers that did, so the line may rise." in text
    assert len(text) < 600_000
    assert "1 of 3 expectations did not hold" in text
    assert "<title>Meters &amp; gateways</title>" in text


@pytest.mark.slow
def test_of_peers_that_hold_columns(scenario_file: Write, tmp_path: Path) -> None:
    text = page(scenario_file(base=VERTICAL), tmp_path / "out")
    labels = re.findall(r'aria-label="([^"]*)"', text)
    assert "how far the distances moved" in labels
    assert "what each peer holds" not in labels, "every row belongs to all peers"
    assert "the fleet&#x27;s centers against pooled ones" in labels
    assert "178 rows, in their two principal axes" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "more"),
    [("fkm", {}), ("k-fed", {}), ("llf-cm", {"participation": 0.5, "secure": "false"})],
)
def test_every_protocol_has_a_page(
    scenario_file: Write, tmp_path: Path, protocol: str, more: Mapping[str, Any]
) -> None:
    path = scenario_file()
    overrides = [f"jobs.0.protocol={protocol}", *(f"jobs.0.{key}={value}" for key, value in more.items())]
    carry_out(load_scenario(path, overrides), "in-process", out=tmp_path / "out")
    text = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "rows in a plane: clusters found" in text
    assert ("This protocol does not promise to equal pooling" in text) == (protocol != "llf-cm")


@pytest.mark.slow
def test_of_a_mixture_the_page_shows_no_objective_of_centers(scenario_file: Write, tmp_path: Path) -> None:
    """A mixture minimises no distances, and no movement of its means ends it."""
    carry_out(load_scenario(scenario_file(), ["jobs.0.protocol=mixture"]), "in-process", out=tmp_path / "out")
    text = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "how far the centers moved" in text
    assert "The objective that the algorithm minimises" not in text
    assert "ends below" not in text


@pytest.mark.slow
@pytest.mark.long
def test_many_peers_are_drawn_with_less(scenario_file: Write, tmp_path: Path) -> None:
    scenario = load_scenario(scenario_file(), ["fleet.peers=60", "jobs.0.max_rounds=2"])
    carry_out(scenario, "simulated", out=tmp_path / "out")
    text = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "A dot for each peer" in text
    assert "40 of 60 peers" in text
    assert len(text) < 900_000


def test_a_job_that_no_peer_finished_has_a_page(scenario_file: Write, tmp_path: Path) -> None:
    class Lost:
        def carry_out(self, spec: FleetSpec, on_event: OnEvent) -> FleetResult:
            found = backend("in-process").carry_out(spec, on_event)
            job = dataclasses.replace(found.jobs[0], state=None, digests={})
            return dataclasses.replace(found, jobs=(job,), failure="no peer is left")

    text = page(scenario_file(), tmp_path / "out", backend=Lost())
    assert "no peer is left" in text
    assert "rows in a plane" not in text


def test_a_trail_has_a_bounded_length() -> None:
    class State:
        def __init__(self, number: int) -> None:
            self.round = number
            self.arrays = {"centers": np.full((2, 1), float(number)), "origin": np.zeros(1), "scale": np.ones(1)}

    trail: Any = Trail()
    for number in range(300):
        trail.follow(State(number))
    numbers = [number for number, _ in trail.steps]
    assert 32 <= len(numbers) <= 64
    assert numbers[0] == 0
    assert numbers[-1] >= 290
    assert all(float(centers[0, 0]) == number for number, centers in trail.steps)


def test_pooled_centers_are_kept_in_the_fleets_order() -> None:
    evidence = MeasuredEvidence()
    evidence.compare(np.array([[0.0], [10.0]]), np.array([[9.0], [1.0]]), np.ones(1))
    assert evidence.pooled is not None
    assert evidence.pooled.tolist() == [[1.0], [9.0]]
    evidence.compare(np.array([[0.0], [np.nan]]), np.array([[9.0], [1.0]]), np.ones(1))


# -- tables -------------------------------------------------------------------------------------------------------------


def rows_below(text: str, heading: str) -> list[list[str]]:
    """The cells of the first table of a section."""
    section = text[text.index(f"<h2>{heading}</h2>") :]
    table = section[: section.index("</table>")]
    return [re.findall(r"<t[hd]>([^<]*)</t[hd]>", row) for row in table[table.index("<table>") :].split("<tr>")[1:]]


def test_the_centers_of_the_page_are_those_of_the_file(scenario_file: Write, tmp_path: Path) -> None:
    text = page(scenario_file(), tmp_path / "out")
    features, *centers = csv.reader((tmp_path / "out" / "centers.csv").read_text(encoding="utf-8").splitlines())
    heading, *lines = rows_below(text, "What it found")
    assert heading[1:] == ["0", "1", "2"]
    assert [line[0] for line in lines] == features
    wanted = [[float(f"{float(value):.6g}") for value in column] for column in zip(*centers, strict=True)]
    assert [[float(cell) for cell in line[1:]] for line in lines] == wanted


def test_of_many_features_the_first_ones_have_a_line() -> None:
    share = SimpleNamespace(feature_names=tuple(f"f{number}" for number in range(130)))
    found = SimpleNamespace(
        entry={"centers": np.ones((2, 130)).tolist()},
        run=SimpleNamespace(shares={"a": share}),
        job=SimpleNamespace(by_columns=False),
    )
    table = centers_table(found)  # type: ignore[arg-type] # nothing else is looked at
    assert len(table) == 102
    assert table[-1] == ["and 30 more features, in centers.csv", "", ""]
    assert table[100] == ["f99", "1", "1"]


@pytest.mark.slow
def test_a_term_that_failed_is_explained(scenario_file: Write, tmp_path: Path) -> None:
    killed = '[[faults]]\nat = { round = 3 }\ndo = "kill"\nwho = "aggregator"\n'
    text = page(scenario_file(killed), tmp_path / "out", "simulated")
    heading, first, second = rows_below(text, "Who aggregated, and why it ended")
    assert heading == ["term", "aggregator", "from (s)", "to (s)", "rounds closed", "why it ended"]
    assert first[5] == f"{first[1]} was killed while opening round 3"
    assert second[5] == "the job was finished: a majority held the final state"
    assert "why it ended" not in page(scenario_file(), tmp_path / "calm", "simulated"), (
        "one term, from beginning to end"
    )
