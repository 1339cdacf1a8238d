"""What share of a processor a soak had: a process asks for a little of one, again and again, as a peer does.

Where the machine has other work, or its host takes processor time away, peers answer late; a soak that does not know so
would blame them.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Final

_ASKED_S: Final = 0.005  # of processor time, each time
_EVERY_S: Final = 0.1
_WINDOW_S: Final = 60.0
#: With less than this share in some minute, a soak is starved.
ENOUGH: Final = 0.5
#: Prints when it had what it asked for, and how long after it should have begun.
_PROBE: Final = f"""
import os, time
os.nice(%d)
while True:
    due = time.monotonic() + {_EVERY_S}
    time.sleep({_EVERY_S})
    began = time.thread_time()
    while time.thread_time() - began < {_ASKED_S}:
        pass
    now = time.monotonic()
    print(now, now - due, flush=True)
"""


class Processor:
    """The observations: when the processor time that was asked for had come, and after how long.

    Examples
    --------
    >>> processor = Processor()
    >>> processor.share() is None, processor.line()
    (True, 'the share of the processor was not measured')
    >>> for second in range(1, 121):
    ...     processor.add(float(second), 0.005 if second <= 60 else 0.05)
    >>> round(processor.share(), 2), round(processor.share(since=60.0), 2), processor.starved
    (0.18, 0.1, True)
    >>> processor.line()
    'starved of processor time: it had 18 % of what it asked for, in the worst minute 10 %; a late job may come from that'
    """

    def __init__(self) -> None:
        self._seen: list[tuple[float, float]] = []

    def add(self, at: float, took_s: float) -> None:
        """Keep one observation."""
        self._seen.append((at, took_s))

    def share(self, since: float = float("-inf"), until: float = float("inf")) -> float | None:
        """Return which share of a processor was had when one was asked for; None without an observation."""
        took = [took_s for at, took_s in list(self._seen) if since < at <= until]
        return min(1.0, _ASKED_S * len(took) / sum(took)) if took else None

    def worst(self) -> float | None:
        """Return the share in the worst minute."""
        ends = list(dict.fromkeys(at // _WINDOW_S for at, _ in list(self._seen)))
        shares = (self.share(end * _WINDOW_S, (end + 1) * _WINDOW_S) for end in ends)
        return min((share for share in shares if share is not None), default=None)

    @property
    def starved(self) -> bool:
        """Whether there was a minute with too little."""
        worst = self.worst()
        return worst is not None and worst < ENOUGH

    def line(self) -> str:
        """Return what to print."""
        share, worst = self.share(), self.worst()
        if share is None or worst is None:
            return "the share of the processor was not measured"
        had = f"it had {share:.0%} of what it asked for, in the worst minute {worst:.0%}".replace("%", " %")
        return (
            f"starved of processor time: {had}; a late job may come from that" if self.starved else f"processor: {had}"
        )


@contextlib.contextmanager
def observed(processor: Processor, nice: int = 0) -> Iterator[None]:
    """Observe for as long as the context lasts, with a process as nice as the peers."""
    with subprocess.Popen([sys.executable, "-c", _PROBE % nice], stdout=subprocess.PIPE, text=True) as probe:
        assert probe.stdout is not None
        lines = probe.stdout

        def read() -> None:
            for line in lines:
                at, took_s = map(float, line.split())
                processor.add(at, took_s)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            yield
        finally:
            probe.kill()
            reader.join()
