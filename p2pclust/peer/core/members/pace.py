"""How long answers take at present, so that slow processors are not taken for dead peers.

If the processes of a machine have less processor time than they need, every answer comes late, and so do this peer's own
timers. A verdict after a fixed time would then be wrong about many members at once, and the suspicions, their refutations
and the exchange of both would take what processor time is left.
"""

from __future__ import annotations

from typing import Final

from p2pclust.peer.core.timing import Timing

_GAIN: Final = 0.25  # the weight of the newest observation
_KEPT: Final = 0.9  # of what is usual, with each probe
_MOST_LATE: Final = 2.0  # in probe periods: of one delay of this peer's own; what is longer also prolongs suspicions
_ROUND_TRIPS: Final = 3.0  # the usual time of an answer is exceeded so many times before silence means anything
#: At its start a peer shakes hands with all that it links to, and they with it. For each beyond the first few it expects so
#: much delay, until answers show how long they take.
_START_S: Final = 0.005
_FEW: Final = 16
_MOST_PERIODS: Final = 20.0  # in probe periods: the longest additional time


class AnswerPace:
    """Observes answers to probes and delays of this peer's timers; `n_links` is the number of peers that it links to.

    Examples
    --------
    >>> from p2pclust.peer.core.timing import preset
    >>> pace, timing = AnswerPace(n_links=5), preset("fast")
    >>> pace.answered(0.02)
    >>> pace.more_s(timing)
    0.0
    >>> pace.was_late(0.4, timing)
    >>> round(pace.more_s(timing), 2)
    1.1
    """

    def __init__(self, n_links: int) -> None:
        self._usual_s = _START_S * max(0, n_links - _FEW)

    def answered(self, after_s: float) -> None:
        """Take note of how long a member took to answer a probe, in time or not."""
        self._usual_s += _GAIN * (after_s - self._usual_s)

    def was_late(self, by_s: float, timing: Timing) -> None:
        """Take note that a timer of this peer was late: answers are at least as late."""
        self._usual_s = max(self._usual_s, min(by_s, _MOST_LATE * timing.probe_period_s))

    def forget(self) -> None:
        """Give former observations less weight; to be called with each probe. If no answers come any more, none is slow."""
        self._usual_s *= _KEPT

    @property
    def usual_s(self) -> float:
        """How long an answer usually takes at present; less than the truth rather than more."""
        return self._usual_s

    def more_s(self, timing: Timing) -> float:
        """Return how much longer than usual to wait for an answer; 0 if answers come well within `probe_timeout_s`."""
        more_s = _ROUND_TRIPS * self._usual_s - timing.probe_timeout_s
        return min(max(0.0, more_s), _MOST_PERIODS * timing.probe_period_s)
