"""Ends of log files, what is added to them, and how they stay small."""

from __future__ import annotations

from pathlib import Path

from p2pclust.hosts.guard import added, last_line, shorten, tail


def test_a_log_that_grows_too_large_is_begun_anew_under_the_writer(tmp_path: Path) -> None:
    log = tmp_path / "peer.log"
    with log.open("a") as writer:
        writer.write("old line\n" * 10)
        writer.flush()
        shorten(log, most=50)
        writer.write("new line\n")
    assert log.read_text() == "new line\n"
    assert (tmp_path / "peer.log.1").read_text() == "old line\n" * 10
    shorten(log, most=50)
    assert log.read_text() == "new line\n"


def test_the_last_line_is_of_this_life_only(tmp_path: Path) -> None:
    log = tmp_path / "peer.log"
    log.write_text("a life before\n")
    began = log.stat().st_size
    assert last_line(log, began) == ""
    log.write_text("a life before\nerror: the port is taken\n\n")
    assert last_line(log, began) == "the port is taken"
    log.write_text("new\n")  # shorter than where this life began: begun anew meanwhile
    assert last_line(log, began) == "new"


def test_the_last_line_of_json_lines_is_their_reason(tmp_path: Path) -> None:
    log = tmp_path / "peer.log"
    log.write_text('{"verb": "failed", "fields": {"reason": "the disk is full"}}\n')
    assert last_line(log, 0) == "the disk is full"
    log.write_text('{"verb": "left", "fields": {}}\n')
    assert last_line(log, 0) == "left"
    log.write_text('{"verb": 1}\n')
    assert last_line(log, 0) == '{"verb": 1}'


def test_the_end_of_a_long_file(tmp_path: Path) -> None:
    log = tmp_path / "peer.log"
    assert tail(log, 3) == ([], 0)
    lines = [f"line {number} " + "x" * 100 for number in range(5000)]
    log.write_text("\n".join(lines) + "\n")
    size = log.stat().st_size
    assert tail(log, 2000) == (lines[-2000:], size)
    assert tail(log, 0) == ([], size)
    assert tail(log, 9999) == (lines, size)


def test_what_is_added_comes_in_whole_lines(tmp_path: Path) -> None:
    log = tmp_path / "peer.log"
    assert added(log, 0) == ([], 0)
    log.write_text("a\nb\nhal")
    assert added(log, 0) == (["a", "b"], 4)
    log.write_text("a\nb\nhalf\n")
    assert added(log, 4) == (["half"], 9)
    log.write_text("c\n")  # begun anew
    assert added(log, 9) == (["c"], 2)
