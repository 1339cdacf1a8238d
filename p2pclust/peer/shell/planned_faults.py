"""Faults that a scenario armed: carried out by the victim's own shell, between two effects, exactly once in the fleet.

Killing at "the aggregator, at round 3, while opening" from outside would always come too late. Here the peer meets the
moment in its own list of effects and ends itself there. A file made exclusively in the run's directory decides who is
the one victim when several could be.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Armed", "ArmedFault"]

_ENDS = ("kill", "restart")
# Whoever is drained stands still until the testbed decides, by its battery, whether it sleeps or is gone.
_STANDS_STILL = ("pause", "drain")


@dataclass(frozen=True)
class ArmedFault:
    """One fault by round. `claim` is the file whose making decides the victim."""

    number: int  # in the fleet's list of faults
    do: str  # one of _ENDS or _STANDS_STILL, or what a peer does or suffers without either
    round: int
    phase: str
    who: tuple[str, ...]  # names; empty: the aggregator
    claim: str
    within: bool = False  # whether rounds of jobs within the submitted one count, not its own
    #: What the peer that reads this begins to suffer, if it is the victim; see `p2pclust.peer.testbed.conditions`.
    suffers: Mapping[str, Any] = field(default_factory=dict)
    told: Mapping[str, Any] = field(default_factory=dict)  # what its event says besides number, kind and moment

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> ArmedFault:
        """Read what `dataclasses.asdict` made."""
        return cls(**{**fields, "who": tuple(fields["who"])})


class Armed:
    """The armed faults of one peer."""

    def __init__(self, me: str, faults: tuple[ArmedFault, ...]) -> None:
        self._me = me
        self._faults = faults
        #: Does what the victim of a fault does or suffers without ending.
        self.suffer: Callable[[ArmedFault], None] = lambda fault: None

    def check(
        self, phase: str, round_: int, *, aggregates: bool, within: bool,
        last_words: Callable[[ArmedFault, int], None],
    ) -> None:  # fmt: skip
        """This peer has come to `phase` of a round: if a fault waits for that, it strikes now.

        A fault at round r strikes at the first opportunity from r on: the round itself may have been another's.
        """
        for fault in self._faults:
            if fault.phase != phase or fault.within != within or (round_ < fault.round and phase != "closing"):
                continue
            if not (self._me in fault.who if fault.who else aggregates):
                continue
            if not _claim(Path(fault.claim)):
                continue
            if fault.do in _STANDS_STILL:
                _stand_still(lambda fault=fault: last_words(fault, round_))  # type: ignore[misc]
                continue
            last_words(fault, round_)
            if fault.do in _ENDS:
                os.kill(os.getpid(), signal.SIGKILL)
            else:
                self.suffer(fault)


def _stand_still(last_words: Callable[[], None]) -> None:
    """Say the last words, and stop until somebody lets this process go on.

    Whoever hears them may stop it as well, and let it go on, before it has stopped itself: then it must not do so any more,
    for nobody would wake it again.
    """
    went_on: list[int] = []
    before = signal.signal(signal.SIGCONT, lambda number, frame: went_on.append(number))
    try:
        last_words()
        if not went_on:
            os.kill(os.getpid(), signal.SIGSTOP)
    finally:
        signal.signal(signal.SIGCONT, before)


def _claim(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    return True
