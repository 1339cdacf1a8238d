"""Planted bugs that let a peer that speaks out of turn be believed; and, planted alike, lies that are believed today."""

from __future__ import annotations

from typing import Any, Final

from p2pclust.lab.simulation.swarms import out_of_turn
from p2pclust.peer.core.rounds.follower import Follower
from p2pclust.peer.core.rounds.job import AggregatedJob
from p2pclust.peer.core.tasks import StateChecked
from p2pclust.peer.work import endings, tasks, verified
from p2pclust.peer.work.verified import Verifier


def _as_it_says(job: AggregatedJob, source: str, message: Any) -> str:
    shown = getattr(message, "aggregator", -1)
    return job.document.roster[shown] if shown >= 0 else source


def _reads_no_end(*of: Any) -> StateChecked:
    return StateChecked(True)


def _never(*of: Any, **named: Any) -> bool:
    return False


def _always(*of: Any) -> bool:
    return True


def _nothing(*of: Any) -> None:
    pass


def _only(kind: str) -> tuple[tuple[Any, str, Any], ...]:
    """Let the liar say only what nothing stops yet."""
    return ((out_of_turn, "KINDS", {kind: out_of_turn.KNOWN[kind]}), (out_of_turn, "_PAUSE_S", (0.005, 0.02)))


#: By name: the swarm that should find it, and what is replaced.
LIAR_MUTANTS: Final[dict[str, tuple[str, tuple[tuple[Any, str, Any], ...]]]] = {
    "open-in-anothers-name": ("cancel", ((AggregatedJob, "_asker", _as_it_says),)),
    "second-aggregator-followed": ("cancel", ((AggregatedJob, "_aggregates_another", _never),)),
    "second-successor-adopted": ("verified", ((Verifier, "_comes_after", _always),)),
    "rounds-after-the-last": ("cancel", ((Follower, "_is_second", _never),)),
    "end-not-read": ("cancel", ((tasks, "check_end", _reads_no_end),)),
    "cancel-not-checked": ("cancel", ((endings, "check_cancel", _nothing),)),
    "verified-cancel-not-checked": ("verified", ((verified, "check_cancel", _nothing),)),
    # No bugs: the page on security says that these lies are believed. A mend makes them fail to be found.
    "liar-makes-up-an-end": ("secure", _only("made-up end")),
    "liar-deposes-aggregators": ("verified", _only("stale term")),
}
