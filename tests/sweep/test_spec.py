"""What a sweep file may say, and how it is refused: one line with the file, the table and the key."""

from __future__ import annotations

from pathlib import Path

import pytest
from files import JOB, MIXING, written

from p2pclust.errors import DataError, UsageError
from p2pclust.lab.sweep.cells import check, scenario_of
from p2pclust.lab.sweep.spec import load_sweep


def test_single_values_and_ranges(tmp_path: Path) -> None:
    grid = load_sweep(written(tmp_path)).grid
    assert grid.seed == (0, 1, 2)
    assert grid.peers == (5,)
    assert [choice.label for choice in grid.overlay] == ["ring", "star"]
    assert grid.latency_ms == (1.0,)


# ruff: noqa: E501 - a case is a line
REFUSED = {
    "no title": (JOB.replace('title = "A small sweep"', ""), "key 'title' is missing"),
    "unknown key": (JOB.replace("peers = 5", "peer = 5"), "[grid]: unknown key 'peer' (did you mean 'peers'?)"),
    "unknown measure": (JOB.replace('"job"', '"jobs"'), "measure = \"jobs\": expected 'job', 'facts', 'mixing' or"),
    "unknown kind": (JOB.replace('"ring"', '"rign"'), "[grid.overlay.0]: overlay: unknown kind 'rign' (did you mean 'ring'?)"),
    "no such option": (
        JOB.replace('"ring"', '{ kind = "ring", neighbours = 4 }'),
        "[grid.overlay.0]: overlay 'ring': no option 'neighbours': it has none",
    ),
    "peers that walk": (JOB.replace('"ring"', '"mobility"'), "[grid.overlay.0]: links of a sweep stay as they are"),
    "a trace": (JOB.replace('"ring"', '{ kind = "ring", trace = "a.trace" }'), "links of a sweep stay as they are"),
    "one name twice": (JOB.replace('"star"', '"ring"'), "[grid]: two overlays have the name 'ring': give one of them another name"),
    "a value twice": (JOB.replace("peers = 5", "peers = [5, 5]"), "[grid]: peers = [5, 5]: 5 is given twice: leave one of"),
    "no seeds": (JOB.replace('"0:3"', '"3:0"'), '[grid]: seed = "3:0": expected seeds such as [0, 1, 2], or "A:B" with A below B'),
    "no overlay": (JOB.replace('["ring", "star"]', "[]"), "[grid]: overlay: expected at least one"),
    "one peer": (JOB.replace("peers = 5", "peers = 1"), "[grid]: peers.0 = 1: expected at least 2"),
    "no such place": (JOB.replace("peers = 5", 'aggregator = "middle"'), "expected elected, or central, peripheral, random"),
    "unknown collect": (JOB.replace("peers = 5", 'collect = "bush"'), 'collect.0 = "bush": expected default, star, tree'),
    "foreign axis": (MIXING.replace("[grid]", "[grid]\nloss = 0.1"), "[grid]: loss is not for measure = 'mixing', which has"),
    "foreign table": (MIXING + "[job]\nclusters = 2\n", "[job] is not for measure = 'mixing'"),
    "no job": (JOB[: JOB.index("[job]")], "[job] is needed for measure = 'job'"),
    "foreign fault": (JOB + "[fault]\nround = 2\n", "[fault] is for measure = 'recovery', not 'job'"),
    "foreign tolerance": ("tolerance = 0.1" + JOB, "tolerance is for measure = 'mixing', not 'job'"),
    "no such column": (JOB + '[[plots]]\ntitle = "t"\nx = "peers"\ny = "ticks"\n', "[plots.0]: y = 'ticks': no such column: expected one of overlay"),
    "a column misspelt": (
        JOB + '[[plots]]\ntitle = "t"\nx = "peers"\ny = "job_byte"\n',
        "[plots.0]: y = 'job_byte': no such column (did you mean 'job_bytes'?)",
    ),
    "where": (JOB + '[[plots]]\ntitle = "t"\nx = "peers"\ny = "bytes"\nwhere = { a = 1 }\n', "[plots.0]: where: no column 'a'"),
    "too few for its kind": (JOB.replace("peers = 5", "peers = 2").replace('"star"', '"small-world"'), "expected at least 3"),
    "an impossible overlay": (
        JOB.replace('"star"', '{ kind = "regular", neighbours = 3 }'),
        "[grid]: overlay 'regular': neighbours = 3 with 5 peers: an odd number of ends of links",
    ),
    "a key of the job": (JOB.replace("clusters = 2\nm", "cluster = 2\nm"), "[job]: unknown key 'cluster'"),
    "a job without clusters": (JOB.replace("clusters = 2\nm", "m"), "[job]: protocol 'llf-cm' needs clusters"),
    "an unknown protocol": (JOB.replace("peers = 5", 'protocol = "llf"'), "protocol.0 = \"llf\""),
    "a file of rows": (JOB.replace('"gaussians"', '"rows.csv"'), "[data]: expected source = the name of a registered or"),
    "no such data": (JOB.replace('"gaussians"', '"gausians"'), "gausians"),
    "more clusters than rows": (JOB.replace("clusters = 2\nm", "clusters = 200\nm"), "[job]: clusters = 200: expected at most"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_line(case: str, tmp_path: Path) -> None:
    text, expected = REFUSED[case]
    path = written(tmp_path, text)
    with pytest.raises(UsageError) as refused:
        check(load_sweep(path), str(path))
    (line,) = str(refused.value).splitlines()
    assert line.startswith(f"{path}: ")
    assert expected in line


def test_what_data_refuse_stays_a_data_error(tmp_path: Path) -> None:
    path = written(tmp_path, REFUSED["more clusters than rows"][0])
    with pytest.raises(DataError):
        check(load_sweep(path), str(path))


def test_the_scenario_of_a_cell(tmp_path: Path) -> None:
    text = JOB.replace("peers = 5", 'peers = 5\nloss = 0.25\nlatency_ms = 7\ncollect = "tree"')
    path = written(tmp_path, text)
    cell = check(load_sweep(path), str(path))[-1]
    scenario = scenario_of(cell)
    assert (cell.overlay, scenario.seed) == ("star", 2)
    assert [device.name for device in scenario.fleet.members] == [f"peer-0{i}" for i in range(1, 6)]
    links = [device.spec.link for device in scenario.fleet.members]
    assert all(link is not None and (link.latency_ms, link.loss) == (7.0, 0.25) for link in links)
    assert (scenario.jobs[0].protocol, scenario.jobs[0].collect, scenario.jobs[0].clusters) == ("llf-cm", "tree", 2)
