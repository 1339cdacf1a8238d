"""Planted bugs of the control address: only what clients see breaks a promise, and the peers agree among themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from p2pclust.peer.core.ledger import JobTable
from p2pclust.peer.operate.questions import Questions
from p2pclust.peer.operate.status import outcome_of
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.arrays import State


class _Changed:
    """A caller whose answers are changed on the way."""

    def __init__(self, caller: Any, changed: Mapping[str, Any], *, last: bool | None = None) -> None:
        self._caller, self._changed, self._last = caller, changed, last
        self.name = caller.name

    def answer(self, fields: Mapping[str, Any], *, last: bool = True) -> bool:
        return bool(self._caller.answer({**fields, **self._changed}, last=last if self._last is None else self._last))

    def refuse(self, reason: str, code: int = 2) -> bool:
        return bool(self._caller.refuse(reason, code))


def _knows_no_request(table: JobTable, request: str) -> None:
    return None


def _cancelled_at_once(questions: Questions, caller: Any, fields: dict[str, Any]) -> None:
    """A final state that was opened before is not undone, so the job may still be done."""
    _CANCEL(questions, _Changed(caller, {"outcome": "cancelled", "reason": ""}, last=True), fields)  # type: ignore[arg-type]


_CANCEL: Final = Questions._cancel


def _ends_with_the_final_state(questions: Questions, caller: Any, fields: dict[str, Any]) -> None:
    """No majority may hold that state yet."""
    register = questions._find(fields["job"], ended=True).ledger.register
    if register.final and register.ref is not None:
        phase = outcome_of(register.ref, questions._shell.store.blobs.read).phase
        caller = _Changed(caller, {"finished": True, "phase": phase})
    _JOB(questions, caller, fields)


_JOB: Final = Questions._job


def _end_shown_by_its_aggregator_only(questions: Questions, caller: Any, fields: dict[str, Any]) -> None:
    job = questions._find(fields["job"], ended=True)
    if job.terms.get(job.ledger.term) != questions._shell.core.identity.name:
        caller = _Changed(caller, {"finished": False, "phase": "following"})
    _JOB(questions, caller, fields)


def _failed_after_a_restart(questions: Questions, caller: Any, fields: dict[str, Any]) -> None:
    job = questions._find(fields["job"], ended=True)
    if job.ledger.finished and not job.terms:
        caller = _Changed(caller, {"phase": "failed"})
    _JOB(questions, caller, fields)


def _cancel_confirmed_and_forgotten(questions: Questions, caller: Any, fields: dict[str, Any]) -> None:
    job = questions._find(fields["job"])
    caller.answer({"job": job.id, "outcome": "cancelled", "reason": "", "late": False})


def _labels_of_sorted_centers(job: Any, state: Any, local: Any, workspace: Any = None) -> Any:
    centers = state.arrays["centers"]
    arrays = State({**state.arrays, "centers": centers[centers[:, 0].argsort()]})
    return _CONCLUDE(job, replace(state, arrays=arrays), local, workspace)


_CONCLUDE: Final = engine.conclude


CLIENT_MUTANTS: Final[dict[str, tuple[tuple[Any, str, Any], ...]]] = {
    "request-id-not-looked-up": ((JobTable, "requested", _knows_no_request),),
    "cancelled-before-all-agreed": ((Questions, "_cancel", _cancelled_at_once),),
    "ended-before-a-majority": ((Questions, "_job", _ends_with_the_final_state),),
    "end-shown-by-its-aggregator-only": ((Questions, "_job", _end_shown_by_its_aggregator_only),),
    "failed-after-a-restart": ((Questions, "_job", _failed_after_a_restart),),
    "cancel-confirmed-and-forgotten": ((Questions, "_cancel", _cancel_confirmed_and_forgotten),),
    "labels-of-other-centers": ((engine, "conclude", _labels_of_sorted_centers),),
}
