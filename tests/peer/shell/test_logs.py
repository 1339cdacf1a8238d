"""The log: each line one line, whatever stands in it; every word explained; a full disk ends no peer."""

from __future__ import annotations

import ast
import json
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doc_lists import report_classes

import p2pclust
from p2pclust.peer.shell.logs import LEVEL_OF, LEVELS, Log

PEER = Path(p2pclust.__file__).parent / "peer"
PAGE = Path(p2pclust.__file__).parents[1] / "docs" / "logs.md"


def noon() -> datetime:
    return datetime(2026, 1, 2, 12, tzinfo=UTC)


def words_of_the_code() -> set[str]:
    """Every word that is reported: those of the core's reports, and those in calls of the shell."""
    found = {cls.verb for cls in report_classes()}
    for file in sorted(PEER.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if name in ("watch", "_watch", "tell", "report", "line"):
                    found.add(str(node.args[0].value))
    return found


HEADINGS = {"Errors": "error", "Warnings": "warning", "Information": "info", "Debugging": "debug"}


def explained(page: str) -> list[tuple[str, str, str, str]]:
    """Every word that the page explains: its level, what it means, and what to do about it.

    One item of a list may explain several words; what is to be done about all of a list stands above it.
    """
    found = []
    for section in page.split("\n## ")[1:]:
        heading, _, text = section.partition("\n")
        if heading not in HEADINGS:
            continue
        general = ""
        for block in re.split(r"\n(?=- )|\n\n", text):
            item = re.match(r"- ((?:`[a-z-]+`,?\s)*`[a-z-]+`): (.+)", block, re.DOTALL)
            if item is None:
                general = block.partition("*Do:*")[2]
                continue
            meaning, _, advice = item[2].partition("*Do:*")
            words = re.findall(r"`([a-z-]+)`", item[1])
            found += [(word, HEADINGS[heading], meaning, advice or general) for word in words]
    return found


@pytest.mark.slow
def test_every_word_has_a_level_and_a_line_in_the_page() -> None:
    rows = explained(PAGE.read_text(encoding="utf-8"))
    assert {word: level for word, level, _, _ in rows} == dict(LEVEL_OF)
    assert len(rows) == len(LEVEL_OF), "a word stands there twice"
    assert set(LEVEL_OF.values()) <= set(LEVELS)
    words = words_of_the_code()
    assert {"elected", "combined", "data-refused", "phase", "member"} <= words, "the search finds what is there"
    assert words <= set(LEVEL_OF), f"docs/logs.md and LEVEL_OF say nothing of {sorted(words - set(LEVEL_OF))}"
    for word, level, meaning, advice in rows:
        assert meaning.strip(), word
        assert advice.strip() or level in ("info", "debug") or word == "fault", f"{word}: what is to be done about it?"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple),
    max_leaves=4,
)


@pytest.mark.slow
@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), values, max_size=4))
def test_whatever_is_told_is_one_line_without_signs_that_move_a_cursor(fields: dict[str, Any]) -> None:
    line = Log("p", clock=noon).line("elected", fields)
    assert line.startswith("2026-01-02T12:00:00.000+00:00 p elected")
    assert line.isprintable()
    told = json.loads(Log("p", "json", clock=noon).line("elected", fields), parse_constant=pytest.fail)
    assert (told["peer"], told["verb"], told["level"]) == ("p", "elected", "info")
    assert told["fields"].keys() == fields.keys()


def test_values_are_words_or_stand_in_quotes() -> None:
    line = Log("p", clock=noon).line(
        "x", {"a": "two words", "b": ["c", "d"], "e": 1.5, "f": 'say "so"', "g": "", "h": b"\1", "i": {"k": "no data"}}
    )
    assert line.split(" x ")[1] == r'a="two words" b=c,d e=1.5 f="say \"so\"" g="" h=01 i="k: no data"'


def read(reading: int) -> list[str]:
    os.set_blocking(reading, False)
    return os.read(reading, 1 << 16).decode().splitlines()


def test_what_matters_less_is_left_out() -> None:
    reading, writing = os.pipe()
    log = Log("p", level="warning", fd=writing, clock=noon)
    for word in ("phase", "elected", "left-out", "failed", "a-word-of-tomorrow"):
        log.tell(word, {})
    assert [line.split()[-1] for line in read(reading)] == ["left-out", "failed"]
    for end in (reading, writing):
        os.close(end)


def test_who_sends_garbage_without_end_gets_a_line_a_minute_with_a_count() -> None:
    reading, writing = os.pipe()
    now = noon()
    log = Log("p", fd=writing, clock=lambda: now)
    for second in range(100):
        now = noon() + timedelta(seconds=second)
        for _ in range(50):
            log.tell("malformed", {"from": "b", "reason": "no header"})
        log.tell(
            "malformed", {"from": "c", "reason": "no header"} if second in (5, 99) else {"from": "b", "reason": "x"}
        )
        log.tell("finished", {"job": "a"})
    lines = [line.split(" p ")[1] for line in read(reading)]
    assert [line for line in lines if "malformed" in line] == [
        'malformed from=b reason="no header"',
        'malformed from=c reason="no header"',
        'malformed from=b reason="no header" unsaid=3058',
        'malformed from=c reason="no header"',
    ]
    assert lines.count("finished job=a") == 100
    for end in (reading, writing):
        os.close(end)


def test_a_clock_that_is_put_back_keeps_nobody_silent() -> None:
    reading, writing = os.pipe()
    now = noon()
    log = Log("p", fd=writing, clock=lambda: now)
    log.tell("malformed", {"from": "b"})
    now -= timedelta(days=1)
    log.tell("malformed", {"from": "b"})
    assert len(read(reading)) == 2
    for end in (reading, writing):
        os.close(end)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a disk that is always full")
@pytest.mark.parametrize("form", ["text", "json"])
def test_a_disk_that_is_full_loses_lines_and_says_so_later(form: Any) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    log = Log("p", form, fd=full, clock=noon)
    for _ in range(3):
        log.tell("elected", {})
    assert log.lost == 3
    reading, writing = os.pipe()
    os.dup2(writing, full)
    log.tell("elected", {"job": "a"})
    log.tell("elected", {"job": "b"})
    lines = read(reading)
    assert len(lines) == 3
    assert "lines-lost" in lines[0]
    assert "3" in lines[0]
    for end in (reading, writing, full):
        os.close(end)
