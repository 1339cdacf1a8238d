from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Cli

from p2pclust.data import load, read, split
from p2pclust.protocols.engine.random_streams import splitting


def test_list(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("P2PCLUST_DATA", str(tmp_path / "here"))
    ended = cli("data", "list")
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0].split() == ["name", "rows", "columns", "classes", "groups", "here", "size", "what"]
    assert max(map(len, lines[:-1])) <= 120
    row = next(line for line in lines if line.startswith("xclara"))
    assert row.split()[:6] == ["xclara", "3000", "2", "3", "-", "no"]
    assert f"in {tmp_path / 'here'}; p2pclust data fetch NAME gets what is not" in lines[-1]


def test_list_as_json(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("P2PCLUST_DATA", str(tmp_path))
    ended = cli("data", "list", "--json")
    document = json.loads(ended.out)
    assert document["folder"] == str(tmp_path)
    mnist = next(item for item in document["data"] if item["name"] == "mnist")
    assert (mnist["rows"], mnist["columns"], mnist["here"]) == (70000, 784, "no")
    assert mnist["licence"]


def test_split(cli: Cli, tmp_path: Path) -> None:
    command = ("data", "split", "iris", "--scheme", "dirichlet", "--beta", "0.5", "--peers", 3, "--seed", 1)
    ended = cli(*command, "--out", "parts", "--json")
    assert ended.code == 0, ended.err
    manifest = json.loads(ended.out)
    assert manifest == json.loads((tmp_path / "parts" / "manifest.json").read_text())
    assert (manifest["scheme"], manifest["beta"], manifest["seed"]) == ("dirichlet", 0.5, 1)
    iris = load("iris")
    expected = split(iris.y, 150, 3, "dirichlet", splitting(1), beta=0.5)  # as a scenario with this seed deals
    for peer, rows in zip(manifest["peers"], expected, strict=True):
        assert np.array_equal(read(tmp_path / "parts" / peer["file"]).X, iris.X[rows])
    assert "150 rows, 4 features: parts" in ended.err
    modes = {file.stat().st_mode & 0o777 for file in (tmp_path / "parts").glob("*.npz")}
    assert (modes, (tmp_path / "parts").stat().st_mode & 0o777) == ({0o600}, 0o700), "rows are their owner's business"


@pytest.mark.slow
def test_split_with_a_picture(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    ended = cli("data", "split", "iris", "--peers", 3, "--out", "parts", "--picture", "parts/who.png")
    assert ended.code == 0, ended.err
    assert (tmp_path / "parts" / "who.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_cannot_be_drawn_leaves_nothing_behind(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("p2pclust.lab.pictures.canvas.can_draw", lambda: False)
    ended = cli("data", "split", "iris", "--peers", 3, "--out", "parts", "--picture", "who.png")
    assert (ended.code, ended.err) == (
        2,
        "error: a picture needs matplotlib, which is not installed: pip install 'p2pclust[plots]'\n",
    )
    assert list(tmp_path.iterdir()) == []


def test_split_a_generated_set_as_its_paper_does(cli: Cli) -> None:
    options = ("--option", "beta=10", "--option", "points=20")
    ended = cli("data", "split", "gaussian-grid", *options, "--scheme", "by-group", "--out", "p", "--json")
    manifest = json.loads(ended.out)
    assert len(manifest["peers"]) == 5
    assert sum(peer["rows"] for peer in manifest["peers"]) == 320
    assert manifest["options"] == {"beta": 10, "points": 20}


def test_split_by_columns(cli: Cli, tmp_path: Path) -> None:
    ended = cli("data", "split", "iris", "--scheme", "vertical", "--widths", "1,3", "--out", "p", "--json")
    assert [peer["columns"] for peer in json.loads(ended.out)["peers"]] == [1, 3]
    assert read(tmp_path / "p" / "peer-01.npz").feature_names == ("sepal length (cm)",)
    assert "sepal width (cm), petal length (cm)" in ended.err


def test_split_by_distance(cli: Cli) -> None:
    places = ("--location", "0,0", "--location", "10,10")
    ended = cli("data", "split", "absent-clusters", "--scheme", "distance", "--beta", 1, *places, "--peers", 2,
                "--out", "p", "--json")  # fmt: skip
    assert json.loads(ended.out)["locations"] == [[0.0, 0.0], [10.0, 10.0]]


def test_split_a_folder_by_file(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "meters").mkdir()
    (tmp_path / "meters" / "b.csv").write_text("w,site,note\n1,x,hm\n2,y,\n")
    (tmp_path / "meters" / "a.csv").write_text("w,site,note\n3,x,\n,y,\n")
    columns = ("--columns", "w", "--label-column", 2, "--missing-values", "drop")
    ended = cli("data", "split", "meters/", *columns, "--scheme", "by-file", "--out", "p", "--json")
    manifest = json.loads(ended.out)
    assert [peer["classes"] for peer in manifest["peers"]] == [{"x": 1}, {"x": 1, "y": 1}]
    assert manifest["dropped_rows"] == 1
    assert "3 rows, 1 features, 1 left out for a missing value: p" in ended.err


def test_split_keeps_the_ids_of_a_column(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text("w,meter\n1,a7\n2,b2\n3,c1\n")
    cli("data", "split", "m.csv", "--id-column", "meter", "--peers", 2, "--out", "p")
    named = {}
    for number in (1, 2):
        with np.load(tmp_path / "p" / f"peer-0{number}.npz") as part:
            named |= {str(id): float(row[0]) for id, row in zip(part["id"], part["X"], strict=True)}
    assert named == {"a7": 1.0, "b2": 2.0, "c1": 3.0}


REFUSED = {
    "no peers": (("iris",), "--peers is missing: give the number of peers"),
    "an unknown scheme": (
        ("iris", "--peers", 3, "--scheme", "idd"),
        "--scheme idd: expected iid, dirichlet, labels, distance, by-group, by-file, vertical",
    ),
    "an unknown set": (("irs", "--peers", 3), "unknown data set 'irs' (did you mean 'iris'?): "),
    "a foreign option": (("iris", "--peers", 3, "--beta", 1), "partition 'iid': has no option beta"),
    "widths without vertical": (("iris", "--peers", 2, "--widths", "1,3"), "partition 'iid': has no option widths"),
    "vertical with beta": (
        ("iris", "--scheme", "vertical", "--peers", 2, "--beta", 1),
        "partition 'vertical': has no option beta",
    ),
    "widths that are none": (
        ("iris", "--scheme", "vertical", "--widths", "1,x"),
        "--widths 1,x: expected numbers with commas between them",
    ),
    "half a column": (("iris", "--scheme", "vertical", "--widths", "1,2.5"), "--widths 1,2.5: expected whole numbers"),
    "too many peers": (
        ("iris", "--peers", 151),
        "partition: 150 rows for 151 peers: every peer needs at least one row",
    ),
    "a picture of no known kind": (
        ("iris", "--peers", 3, "--picture", "who.gif"),
        "--picture who.gif: expected a name that ends with .png, .svg, .pdf",
    ),
    "a negative seed": (("iris", "--peers", 3, "--seed", -1), "--seed -1: expected 0 or more"),
    "an option without a value": (("g2", "--peers", 3, "--option", "sd"), "--option sd: expected KEY=VALUE, such as"),
    "a misspelt option": (("g2", "--peers", 3, "--option", "sdd=1"), "g2: no option 'sdd' (did you mean 'sd'?); its"),
    "groups that there are not": (("iris", "--scheme", "by-group", "--peers", 3), "partition 'by-group': needs groups"),
    "a missing file": (("rows.csv", "--peers", 3), "rows.csv: no such file"),
    "a missing rule": (
        ("rows.csv", "--peers", 3, "--missing-values", "mean"),
        "missing_values = 'mean': a peer knows the mean of",
    ),
}


@pytest.mark.parametrize(("arguments", "line"), REFUSED.values(), ids=REFUSED)
def test_refused(cli: Cli, tmp_path: Path, arguments: tuple[object, ...], line: str) -> None:
    ended = cli("data", "split", *arguments, "--out", "parts")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"error: {line}")
    assert ended.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_fetch_what_was_given_by_hand(cli: Cli, tmp_path: Path) -> None:
    document = {"users": ["f0"], "user_data": {"f0": {"x": [[0.0] * 784] * 2, "y": [1, 2]}}}
    (tmp_path / "leaf.json").write_text(json.dumps(document))
    ended = cli("data", "fetch", "FEMNIST", "--from", "leaf.json", "--to", "data", "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out) == {"data": [{"name": "femnist", "file": "data/femnist.npz", "new": True}]}
    assert ended.err == "fetched femnist: data/femnist.npz\n"
    ended = cli("data", "fetch", "femnist", "--to", "data")
    assert (ended.code, ended.err) == (0, "femnist is here already: data/femnist.npz\n")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("xclra",), "unknown data set 'xclra' (did you mean 'xclara'?)"),
        (("femnist",), "femnist: there is no file to download: run data/femnist/preprocess.sh of"),
        (("xclara", "rice", "--from", "."), "--from is for one data set, and 2 were named"),
        (("xclara", "--from", "nowhere"), "nowhere: no such file or folder"),
        ((), "missing argument 'NAME...'"),
    ],
)
def test_fetch_refused(cli: Cli, tmp_path: Path, arguments: tuple[str, ...], line: str) -> None:
    ended = cli("data", "fetch", *arguments, "--to", "data")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.lower().startswith(f"error: {line}".lower())
    assert ended.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_help(cli: Cli) -> None:
    assert "p2pclust data fetch xclara" in cli("data").out
