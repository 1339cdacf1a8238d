"""Ctrl-C and its like, wherever a command was started: also in the background, where it is ignored at first."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def ended_like_ctrl_c() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a command as Ctrl-C does; a run ends after every peer has ended."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.raise_signal(signal.SIGINT)

    ends = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]  # Windows has no SIGHUP
    before = {number: signal.signal(number, interrupt) for number in ends}
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # In the background of a script, Ctrl-C is ignored: without a handler SIGTERM would end nothing either.
        before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
