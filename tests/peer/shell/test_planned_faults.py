"""A victim that stops itself: a peer that hears its last words may let it continue before it has stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

PROGRAM = """
import os, signal
from pathlib import Path
from p2pclust.lab.testbed.peer.conditions import PlannedFault, PlannedFaults

fault = PlannedFault(0, "pause", 1, "opening", ("a",), {claim!r})
{words}
PlannedFaults("a", (fault,), last_words, print).check("opening", 1, aggregates=False, within=False)
print("went on", signal.getsignal(signal.SIGCONT) is signal.SIG_DFL, flush=True)
"""
SAYS = "def last_words(verb, fields): print('last words', flush=True)"
IS_WOKEN_FIRST = "def last_words(verb, fields): os.kill(os.getpid(), signal.SIGCONT)"


@pytest.mark.slow
def test_stops_until_it_is_woken(tmp_path: os.PathLike[str]) -> None:
    program = PROGRAM.format(claim=f"{os.fspath(tmp_path)}/claim", words=SAYS)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == "last words\n"
        assert os.WIFSTOPPED(os.waitpid(victim.pid, os.WUNTRACED)[1])
        victim.send_signal(signal.SIGCONT)
        assert victim.stdout.read() == "went on True\n"
        assert victim.wait(60) == 0


@pytest.mark.slow
def test_does_not_stop_any_more_once_it_was_woken(tmp_path: os.PathLike[str]) -> None:
    program = PROGRAM.format(claim=f"{os.fspath(tmp_path)}/claim", words=IS_WOKEN_FIRST)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "went on True\n"
