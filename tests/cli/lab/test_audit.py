from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.cli.conftest import Cli


@pytest.mark.slow
def test_what_comes_back_is_listed(cli: Cli, tmp_path: Path) -> None:
    ended = cli("audit", "iris-kmeans", "--json")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert found["scenario"] == "iris-kmeans"
    first = found["attacks"][0]
    assert (first["job"], first["observer"]) == (1, "aggregator")
    assert (first["attack"], first["rows"]) == ("rows that move alone", 150)
    assert first["recovered"] == sum(first["peers"].values()) > 0
    assert set(first["peers"]) <= {"greenhouse-01", "greenhouse-02", "greenhouse-03", "office"}
    assert [one["observer"] for one in found["attacks"]].count("totals") == 1
    assert not list(tmp_path.iterdir()), "nothing is written"


@pytest.mark.slow
def test_every_backend_shows_the_same(cli: Cli) -> None:
    backends = ("simulated", "in-process")
    simulated, alone = (
        cli("audit", "iris-kmeans", "--set", "faults=[]", "--json", "--backend", name) for name in backends
    )
    counts = [[one["recovered"] for one in json.loads(ended.out)["attacks"]] for ended in (simulated, alone)]
    assert counts[0] == counts[1]


def test_columns_are_refused(cli: Cli) -> None:
    ended = cli("audit", "vertical-wine")
    assert ended.code == 2
    assert "error: audit: the attacks are on rows; in job 1 the peers hold columns" in ended.err


@pytest.mark.slow
def test_people_get_a_table_and_a_report_with_a_section_for_each_job(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "audited"
    ended = cli("audit", "iris-kmeans", "--out", str(out))
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert lines[0].split() == ["job", "observer", "attack", "rows", "found", "seconds", "most,", "by", "peer"]
    assert "rows that move alone" in lines[1]
    assert "greenhouse-" in lines[1]
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.count("<h2>What a curious peer could read</h2>") == 1
    section = page[page.index("<h2>What a curious peer could read</h2>") :]
    rows = re.findall(r"<tr>(.*?)</tr>", section[: section.index("</table>")], re.DOTALL)
    assert {len(re.findall(r"<t[hd]", row)) for row in rows} == {5}, "as many cells as headings"
    assert "<td>any peer</td><td>rows between two centers</td><td>150</td>" in page
    found = json.loads((out / "audit.json").read_text(encoding="utf-8"))["attacks"]
    assert {one["observer"] for one in found} == {"aggregator", "totals", "any peer", "two runs", "two turns"}
    again = cli("audit", "iris-kmeans", "--out", str(out))
    assert again.code == 2
    assert "audit.json of an earlier run" in again.err
    assert cli("audit", "iris-kmeans", "--out", str(out), "--overwrite").code == 0


def test_a_fleet_that_cannot_finish_is_named(cli: Cli) -> None:
    ended = cli("audit", "lost-majority")
    assert ended.code == 3
    assert "did not finish, so it was not attacked" in ended.err


def test_a_private_job_is_refused_before_it_runs(cli: Cli, tmp_path: Path) -> None:
    job = '{protocol="llf-cm", clusters=3, secure=true, privacy={epsilon=2.0, delta=1e-6}}'
    private = [f"jobs=[{job}]", "data.bounds=[[0.0, 8.0]]", "faults=[]", "expect={}"]
    overrides = [part for one in private for part in ("--set", one)]
    ended = cli("audit", "iris-kmeans", "--out", str(tmp_path / "out"), *overrides)
    assert ended.code == 2
    assert "audit: the noise of job 1 cannot be drawn again" in ended.err
    assert not (tmp_path / "out").exists()
