from __future__ import annotations

import io
import re

import pytest
from rich.live import Live
from rich.table import Table
from rich.text import Text

from p2pclust.cli.show.output import complain, stdout

#: A title for the terminal, a cleared screen, hidden text, 8-bit CSI, a bell, text from right to left.
HOSTILE = "\x1b]0;OWNED\x07\x1b[2J\x1b[1;1Hjob-1: done\x1b[8m \x9b2J \u202egnp"
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]")


def test_no_text_of_a_peer_reaches_the_terminal_as_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    console = stdout()
    table = Table(HOSTILE, title=HOSTILE)
    table.add_row(HOSTILE)
    for shown in (HOSTILE, Text(HOSTILE), table):
        console.print(shown, soft_wrap=True)
    complain(HOSTILE)
    seen = capsys.readouterr()
    assert seen.out.count("job-1: done") == 5
    assert seen.err.count("job-1: done") == 1
    assert CONTROL.findall(seen.out) == CONTROL.findall(seen.err) == []


def test_colours_and_the_live_view_still_reach_a_terminal() -> None:
    console = stdout()
    console.file, console._force_terminal, console._color_system = io.StringIO(), True, None
    with Live("first", console=console, auto_refresh=False) as live:
        live.update(HOSTILE, refresh=True)
    written = console.file.getvalue()
    assert "\x1b[?25l" in written  # the live view hides the cursor
    assert "\x1b]0;" not in written
    assert "\x1b[8m" not in written


def test_lines_stay_lines(capsys: pytest.CaptureFixture[str]) -> None:
    stdout().print("one\ntwo")
    assert capsys.readouterr().out == "one\ntwo\n"
