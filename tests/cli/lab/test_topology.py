from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Cli

from p2pclust.lab.data.shares import peer_names
from p2pclust.lab.topology import measure
from p2pclust.overlay import KINDS, make_overlay, make_trace, read_overlay, read_trace
from p2pclust.protocols.engine.random_streams import gossiping, linking


def test_kinds(cli: Cli) -> None:
    ended = cli("topology", "kinds")
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0].split() == ["kind", "option", "default", "what"]
    assert max(map(len, lines)) <= 120
    first = [line.split()[0] for line in lines[1:] if not line.startswith(" ")]
    assert first == list(KINDS)
    assert any(line.split()[:3] == ["rewire", "0.1", "the"] for line in lines)


def test_kinds_as_json(cli: Cli) -> None:
    listed = {kind["name"]: kind for kind in json.loads(cli("topology", "kinds", "--json").out)["kinds"]}
    assert list(listed) == list(KINDS)
    assert listed["expander"]["fewest_peers"] == 4
    assert listed["small-world"]["options"][1] == {
        "name": "rewire", "type": "float", "default": 0.1, "otherwise": None, "least": 0.0, "most": 1.0,
        "what": "the probability with which a link is rewired",
    }  # fmt: skip


def test_show(cli: Cli) -> None:
    ended = cli("topology", "show", "star", "--peers", 5, "--set", "center=peer-02")
    assert (ended.code, ended.err) == (0, "")
    lines = [line.rstrip() for line in ended.out.splitlines()]
    assert lines[:12] == [
        "star",
        "peers                   5",
        "links                   4",
        "links of a peer         1 to 4, 1.6 on average",
        "diameter, radius        2, 1",
        "average path            1.6",
        "clustering              0",
        "algebraic connectivity  1",
        "second eigenvalue       0.8, gap 0.2 (Metropolis-Hastings)",
        "edge connectivity       1",
        "node connectivity       1",
        "cut vertices            1: peer-02",
    ]
    assert lines[12].startswith("gossip rounds           ")
    assert len(lines) == 13


def test_show_as_json_is_the_overlay_that_the_seed_draws(cli: Cli) -> None:
    ended = cli("topology", "show", "geometric", "--peers", 9, "--seed", 3, "--set", "radius=0.9", "--json")
    assert ended.code == 0, ended.err
    document = json.loads(ended.out)
    overlay = make_overlay("geometric", peer_names(9), linking(3), radius=0.9)
    assert document["links"] == [list(link) for link in overlay.links]
    assert document["peers"] == list(overlay.names)
    assert document["positions"] == {name: list(place) for name, place in (overlay.positions or {}).items()}
    assert document["measures"] == measure(overlay, gossiping(3)).to_dict()
    assert (document["kind"], document["seed"], document["options"]) == ("geometric", 3, {"radius": 0.9})
    assert json.loads(cli("topology", "show", "ring", "--json").out)["positions"] is None


@pytest.mark.parametrize("suffix", [".graphml", ".edges", ".adj"])
def test_what_was_written_can_be_shown(cli: Cli, tmp_path: Path, suffix: str) -> None:
    ended = cli("topology", "show", "random", "--peers", 10, "-o", f"made/o{suffix}", "--json")
    assert ended.code == 0, ended.err
    assert ended.err.splitlines()[-1] == f"written: made/o{suffix}"
    made = json.loads(ended.out)
    assert made["files"] == [f"made/o{suffix}"]
    again = json.loads(cli("topology", "show", f"made/o{suffix}", "--json").out)
    assert again["links"] == made["links"]
    assert again["kind"] == "file"
    assert read_overlay(tmp_path / "made" / f"o{suffix}").names == tuple(made["peers"])


@pytest.mark.slow
def test_pictures(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    ended = cli("topology", "show", "grid", "--set", "torus=true", "-o", "o.svg", "-o", "o.PNG")
    assert ended.code == 0, ended.err
    assert b"<svg" in (tmp_path / "o.svg").read_bytes()
    assert (tmp_path / "o.PNG").read_bytes().startswith(b"\x89PNG")


def test_measure(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "two.edges").write_text("a b\n")
    command = ("topology", "measure", "ring", "two.edges", "regular", "--peers", 20, "--set", "neighbours=4")
    ended = cli(*command)
    assert (ended.code, ended.err) == (0, "")
    head, *rows = (line.split() for line in ended.out.splitlines())
    assert head[:5] == ["overlay", "peers", "links", "degree", "diameter"]
    assert [row[:5] for row in rows[:2]] == [["ring", "20", "20", "2", "10"], ["two.edges", "2", "1", "1", "1"]]
    assert rows[2][:4] == ["regular", "20", "40", "4"]  # the option is of those that have it
    assert max(map(len, ended.out.splitlines())) <= 120
    found = json.loads(cli(*command, "--json").out)["overlays"]
    assert [row["what"] for row in found] == ["ring", "two.edges", "regular"]
    assert found[0] == {
        "what": "ring", **measure(make_overlay("ring", peer_names(20), linking(0)), gossiping(0)).to_dict()
    }  # fmt: skip


def test_what_was_not_computed_is_said(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("p2pclust.lab.topology.measures._FLOW_WORK", 0)
    assert "node connectivity       not computed" in cli("topology", "show", "ring").out
    ended = cli("topology", "measure", "ring", "--json")
    assert ended.err.splitlines()[1].split()[9:11] == ["-", "-"]
    assert json.loads(ended.out)["overlays"][0]["edge_connectivity"] is None


REFUSED = {
    "an unknown kind": (("show", "rign"), "overlay: unknown kind 'rign' (did you mean 'ring'?)"),
    "an unknown kind among others": (
        ("measure", "ring", "gird"),
        "overlay: unknown kind 'gird' (did you mean 'grid'?)",
    ),
    "no file": (("show", "o.graphml"), "o.graphml: no such file"),
    "another file": (("show", "o.csv"), "o.csv: expected a name that ends with .graphml, .edges, .adj"),
    "the word file": (("show", "file"), "file: expected the name of a file that ends with .graphml, .edges or .adj"),
    "a bad file": (("show", "bad.edges"), "bad.edges: line 2: peer 'b' is linked to itself: leave that link out"),
    "parts": (
        ("measure", "parts.edges"),
        "parts.edges: not connected, but in 2 parts, of 2 peers ('a', ...) and 2 ('c', ...): link them",
    ),
    "peers of a file": (
        ("show", "bad.edges", "--peers", 3),
        "--peers is for a kind of overlay, and bad.edges is a file",
    ),
    "options of a file": (
        ("show", "bad.edges", "--set", "a=1"),
        "--set is for a kind of overlay, and bad.edges is a file",
    ),
    "too many peers": (("show", "ring", "--peers", 5001), "--peers 5001: expected 1 to 5000"),
    "no peers": (("show", "ring", "--peers", 0), "--peers 0: expected 1 to 5000"),
    "a negative seed": (("show", "ring", "--seed", -1), "--seed -1: expected 0 or more"),
    "an option without a value": (("show", "tree", "--set", "children"), "--set children: expected KEY=VALUE, such as"),
    "a foreign option": (
        ("show", "tree", "--set", "neighbours=3"),
        "overlay 'tree': no option 'neighbours': it has children",
    ),
    "an option of none": (
        ("measure", "tree", "ring", "--set", "rewire=0.1"),
        "--set rewire: not an option of tree, ring: they have children",
    ),
    "a degree that cannot be": (
        ("show", "regular", "--peers", 5, "--set", "neighbours=3"),
        "overlay 'regular': neighbours = 3 with 5 peers: an odd number of ends of links: expected an even number of "
        "neighbours, such as 2 or 4",
    ),
    "a picture of no known kind": (
        ("show", "ring", "-o", "o.gif"),
        "-o o.gif: expected a name that ends with .svg, .png, .graphml, .edges, .adj",
    ),
}


@pytest.mark.parametrize(("arguments", "line"), REFUSED.values(), ids=REFUSED)
def test_refused(cli: Cli, tmp_path: Path, arguments: tuple[object, ...], line: str) -> None:
    (tmp_path / "bad.edges").write_text("a b\nb b\n")
    (tmp_path / "parts.edges").write_text("a b\nc d\n")
    ended = cli("topology", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"error: {line}")
    assert ended.err.count("\n") == 1
    assert sorted(file.name for file in tmp_path.iterdir()) == ["bad.edges", "parts.edges"]


def test_a_picture_that_cannot_be_drawn_leaves_nothing_behind(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("p2pclust.lab.pictures.canvas.can_draw", lambda: False)
    ended = cli("topology", "show", "ring", "-o", "o.edges", "-o", "o.svg")
    assert (ended.code, ended.err) == (
        2,
        "error: a picture needs matplotlib, which is not installed: pip install 'p2pclust[plots]'\n",
    )
    (tmp_path / "o").write_text("")
    ended = cli("topology", "show", "ring", "-o", "o/o.edges")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert ended.err.startswith("error: o/o.edges: cannot be written (")
    assert [file.name for file in tmp_path.iterdir()] == ["o"]


def test_the_same_seed_draws_the_same(cli: Cli) -> None:
    one, same, other = (cli("topology", "show", "random", "--seed", seed, "--json").out for seed in (1, 1, 2))
    assert one == same
    assert one != other


def test_help(cli: Cli) -> None:
    assert "p2pclust topology show small-world" in cli("topology").out
    assert np.array([kind in cli("topology", "show", "--help").out for kind in ("small-world", "expander")]).all()


def test_show_writes_the_trace_of_peers_that_walk_and_of_nobody_else(cli: Cli, tmp_path: Path) -> None:
    assert cli("topology", "show", "mobility", "--peers", 5, "--seed", 2, "-o", "walk.csv").code == 0
    overlay = make_overlay("mobility", peer_names(5), linking(2))
    trace = read_trace(tmp_path / "walk.csv", overlay)
    assert trace == make_trace("mobility", peer_names(5), linking(2))
    ended = cli("topology", "show", "ring", "-o", "walk.csv")
    assert ended.code == 2
    assert "walk.csv: expected a name that ends with" in ended.err
