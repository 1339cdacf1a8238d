"""Names of jobs for people: an id or its beginning; for a repeated job the name of its series, perhaps with a turn.

``series-3f2a`` is a series, ``series-3f2a/3`` its third turn. The census between two turns has no name and is not shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from p2pclust.errors import UsageError
from p2pclust.peer.core.document import Document

if TYPE_CHECKING:
    from p2pclust.peer.core.gossip.job import GossipJob
    from p2pclust.peer.core.rounds.job import AggregatedJob

    AnyJob = AggregatedJob | GossipJob
    Jobs = Mapping[str, AnyJob]

_JOB, _SERIES = "job-", "series-"


def name_of(document: Document) -> str:
    """Return the name that commands show and accept."""
    turn = document.turn
    return document.id if turn is None else f"{turn.series}/{turn.number + 1}"


def find(jobs: Jobs, named: str, peer: str, *, ended: bool) -> AnyJob:
    """Return the job of this peer with that name, or the only one whose name begins with it.

    A series without a turn means its newest turn that has `ended`, if there is one. Otherwise it means the running turn, or
    the newest.

    Raises
    ------
    UsageError
        If no job has that name, or several do.
    """
    shown = {job_id: job for job_id, job in jobs.items() if not job.document.census}
    exact = shown.get(named)
    if exact is not None:
        return exact
    if (turns := _series(shown, named)) is not None:
        return _turn(turns, named, peer, ended=ended)
    found = [
        job for job_id, job in shown.items() if named and job_id.removeprefix(_JOB).startswith(named.removeprefix(_JOB))
    ]
    if len(found) != 1:
        why = "knows several jobs of that name" if found else "does not know the job"
        raise UsageError(f"{peer} {why}: {named!r:.80}: `p2pclust jobs` lists what it knows")
    return found[0]


def _series(shown: Jobs, named: str) -> dict[int, AnyJob] | None:
    """Return the turns of the only series with that beginning, by number from 0; None if no series has it."""
    beginning = named.partition("/")[0]
    if not beginning.removeprefix(_SERIES):
        return None
    found: dict[str, dict[int, AnyJob]] = {}
    for job in shown.values():
        turn = job.document.turn
        if turn is not None and turn.series.startswith((beginning, _SERIES + beginning)):
            found.setdefault(turn.series, {})[turn.number] = job
    whole = found.get(beginning) or found.get(_SERIES + beginning)
    if whole is not None:
        return whole
    return next(iter(found.values())) if len(found) == 1 else None


def _turn(turns: Mapping[int, AnyJob], named: str, peer: str, *, ended: bool) -> AnyJob:
    series, slash, number = named.partition("/")
    if not slash:
        candidates = [number for number, job in turns.items() if job.ledger.finished is ended]
        return turns[max(candidates or turns)]
    if not re.fullmatch(r"[1-9]\d{0,17}", number):
        raise UsageError(f"{named!r:.80}: expected the number of a turn after the slash, from 1")
    wanted = int(number) - 1
    if wanted in turns:
        return turns[wanted]
    why = (
        "has not begun" if wanted > max(turns) else "is not kept any more: of a series a peer keeps the last two turns"
    )
    there = " and ".join(f"turn {number + 1}" for number in sorted(turns))
    raise UsageError(f"turn {number} of {series:.80} {why}; {peer} has {there}")
