from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cli.conftest import Cli


def a_result(rounds: int) -> dict[str, Any]:
    peers = {"a": {"finished": True, "bytes_sent": 3000}}
    return {"scenario": "s", "jobs": [{"protocol": "llf-cm", "rounds": rounds}], "peers": peers}


def results(folder: Path, *rounds: int) -> None:
    for number, of_run in enumerate(rounds):
        (folder / f"run-{number}").mkdir()
        text = json.dumps(a_result(of_run))
        (folder / f"run-{number}" / "result.json").write_text(text, encoding="utf-8")


def test_side_by_side(cli: Cli, tmp_path: Path) -> None:
    results(tmp_path, 12, 24)
    ended = cli("compare", "run-0", "run-1")
    assert (ended.code, ended.err) == (0, "")
    lines = [line.split() for line in ended.out.splitlines()]
    assert lines[0] == ["run-0", "run-1", "differs"]
    assert ["rounds", "12", "24", "×", "2"] in lines
    assert ["bytes", "sent", "3.0", "kB", "3.0", "kB"] in lines


def test_what_is_the_same_can_be_left_out(cli: Cli, tmp_path: Path) -> None:
    results(tmp_path, 12, 24, 24)
    told = json.loads(cli("compare", "run-0", "run-1", "run-2", "--differing", "--json").out)
    assert told["runs"] == ["run-0", "run-1", "run-2"]
    assert told["lines"] == [
        {"part": "job", "what": "rounds", "values": [12, 24, 24], "unit": "", "differs": True, "ratio": 2.0}
    ]
    assert "nothing differs" in cli("compare", "run-1", "run-2", "--differing").out


def test_a_page(cli: Cli, tmp_path: Path) -> None:
    results(tmp_path, 12, 24)
    ended = cli("compare", "run-0", "run-1", "--out", "c.html")
    assert ended.code == 0
    assert "page: c.html" in ended.err
    assert "2 runs side by side" in (tmp_path / "c.html").read_text(encoding="utf-8")
    refused = cli("compare", "run-0", "run-1", "--out", "none/c.html")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "none/c.html: cannot be written" in refused.err


def test_bad_input_is_one_line(cli: Cli, tmp_path: Path) -> None:
    results(tmp_path, 12)
    for arguments in (("run-0",), ("run-0", "nowhere"), ("run-0", str(tmp_path))):
        ended = cli("compare", *arguments)
        assert ended.code == 2
        assert ended.err.startswith("error: ")
        assert ended.err.count("\n") == 1
