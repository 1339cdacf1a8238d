"""What a testbed's peer reports of its rounds beyond its log, which never has values: centers, and who is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from p2pclust.peer.core.core import Core
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.engine.summaries import raw_centers

if TYPE_CHECKING:
    from p2pclust.peer.shell.shell import Shell

_MOST_NUMBERS: Final = 1_000  # of all coordinates; larger centers are not reported
_AFTER_S: Final = 0.5  # without a report of the round: shorter waits are not worth a line
_MOST_NAMED: Final = 50
_IN_FULL: Final = 20  # the first rounds of a job, all of whose centers are written
_SELDOM_S: Final = (
    0.1  # between the centers of later ones: to read a state anew in each round would slow the round down
)
_MOVES: Final = ("elected", "phase", "combined")


def centers_of(core: Core | None, job_id: str) -> dict[str, Any] | None:
    """Return the fields of the event ``centers`` for the state that a peer holds of a job; None if it has no such state."""
    job = None if core is None else core.jobs.jobs.get(job_id)
    ref = None if job is None else job.ledger.register.ref
    return None if ref is None or ref.payload is None else centers_in(JobState.decode(ref.payload))


def centers_in(state: JobState) -> dict[str, Any] | None:
    """Return the fields of a testbed's event ``centers``; None if a state has none, too many coordinates, or infinite ones.

    ``round`` is that of the state, ``centers`` has a list for each, in the data's own units, with five digits.
    """
    arrays = state.arrays
    if "centers" not in arrays or arrays["centers"].ndim != 2 or not 0 < arrays["centers"].size <= _MOST_NUMBERS:
        return None
    found = raw_centers(state) if "origin" in arrays and "scale" in arrays else arrays["centers"]
    if not np.isfinite(found).all():
        return None
    return {"round": state.round, "centers": [[float(f"{value:.5g}") for value in row] for row in found.tolist()]}


class RoundViews:
    """Listens to a peer's reports; writes ``centers`` after rounds that it combined, and ``waits`` while one lasts."""

    def __init__(self, shell: Shell, write: Callable[[Mapping[str, Any]], None]) -> None:
        self._shell, self._write = shell, write
        self._loop = asyncio.get_running_loop()
        self._combined = ""  # the job of the last round that was combined here
        self._shown = (0, 0.0)  # how many centers of that job were written, and when the last ones
        self._moved = ("", 0.0)  # the job that last moved on, and when
        self._looks = False  # a timer is set; moving on does not set another, which would cost more than all else here
        self._named: list[str] = []  # that were reported to be waited for
        shell.listen(self.take)

    def take(self, verb: str, fields: Mapping[str, Any]) -> None:
        if "within" in fields:
            return
        if verb in _MOVES:
            self._named = []
            self._moved = (fields["job"], self._loop.time())
            if not self._looks:
                self._looks = True
                self._loop.call_later(_AFTER_S, self._look)
        if verb == "combined" and self._combined != fields["job"]:
            self._combined, self._shown = fields["job"], (0, 0.0)
        if verb not in ("combined", "finished") or fields["job"] != self._combined:
            return
        (n_shown, shown_at), now = self._shown, self._loop.time()
        due = n_shown < _IN_FULL or now - shown_at >= _SELDOM_S or verb == "finished"
        # The centers that a round began with; at the end those that are final.
        if due and (centers := centers_of(self._shell.core, fields["job"])) is not None:
            self._shown = (n_shown + 1, now)
            self._write({"t": now, "verb": "centers", "job": fields["job"], **centers})

    def _look(self) -> None:
        """Report whose answer is missing, if this peer aggregates and that has changed; look again as long as it does."""
        job_id, moved_at = self._moved
        left_s = moved_at + _AFTER_S - self._loop.time()
        if left_s <= 0:
            job = self._shell.core.jobs.jobs.get(job_id)
            _, aggregator, waits_for = ("", "", []) if job is None else job.standing()
            self._looks = aggregator == self._shell.core.identity.name
            if not self._looks:
                return
            named = waits_for[:_MOST_NAMED]
            if named != self._named:
                self._named = named
                self._write({"t": self._loop.time(), "verb": "waits", "job": job_id, "peers": named})
        self._loop.call_later(left_s if left_s > 0 else _AFTER_S, self._look)
