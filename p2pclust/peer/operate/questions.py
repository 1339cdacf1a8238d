"""The questions that operators may ask a running peer: each verb is checked, and answered from the shell.

No question can stop the peer: an error that is meant for people becomes the answer.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

import msgpack

from p2pclust.errors import P2PClustError, UsageError, WireError
from p2pclust.peer.core.enrolment import TABLE as ROSTERS
from p2pclust.peer.core.events import Cancel, Submit
from p2pclust.peer.core.evidence import PROOF_FORMAT
from p2pclust.peer.core.treatment import Treatment
from p2pclust.peer.operate.server import HERE, Caller
from p2pclust.peer.operate.status import find, job_snapshot, snapshot
from p2pclust.peer.shell.shell import Shell
from p2pclust.peer.work.states import job_of

if TYPE_CHECKING:
    from p2pclust.peer.operate.status import AnyJob

PART_BYTES: Final = 512 * 1024  # size of one part of a `read`; a whole number of a blob's chunks
_MOST_WAITING: Final = 256  # callers that wait for something to happen
_MOST_NAMED: Final = 20  # in one line
_REQUIRED: Final = object()
_JOB: Final[dict[str, tuple[type, Any]]] = {"job": (str, _REQUIRED)}
_REQUEST: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


#: The fields of each verb, with their types and, unless they must be given, their defaults.
VERBS: Final[dict[str, dict[str, tuple[type, Any]]]] = {
    "roster": {"data": (bytes, _REQUIRED)},
    "status": {},
    "submit": {
        "mathematics": (bytes, _REQUIRED), "roster": (list, []), "id": (str, ""),
        **{name: (type(default), default) for name, default in Treatment().to_dict().items()},
    },
    "job": _JOB,
    "read": {**_JOB, "what": (str, "state"), "digest": (bytes, b""), "part": (int, 0)},
    "watch": _JOB,
    "cancel": _JOB,
}  # fmt: skip


def checked(verb: str, given: Mapping[str, Any]) -> dict[str, Any]:
    if verb not in VERBS:
        raise UsageError(f"this peer does not know {verb!r:.80}: is its p2pclust older than yours?")
    for name in given:
        if name not in VERBS[verb]:
            raise UsageError(f"{verb}: unknown field {name!r}")
    fields = {}
    for name, (kind, default) in VERBS[verb].items():
        value: Any = given.get(name, default)
        if kind is float and type(value) is int:
            value = float(value)
        if value is _REQUIRED:
            raise UsageError(f"{verb}: field {name!r} is missing")
        # bool is an int to isinstance, hence the comparison of types.
        if type(value) is not kind:
            raise UsageError(f"{verb}: {name}: expected {kind.__name__}")
        fields[name] = value
    return fields


class Questions:
    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._n_tags = 0
        self._submitting: dict[str, Caller] = {}  # by the tag that comes back in the report
        self._cancelling: dict[str, Callable[[], None]] = {}  # by job or series: answers when the cancel is on disk
        # By job: callers that wait until it is accepted, for its end, and for all reports on it.
        self._accepting: dict[str, list[Caller]] = defaultdict(list)
        self._ending: dict[str, list[Caller]] = defaultdict(list)
        self._watching: dict[str, list[Caller]] = defaultdict(list)
        self._unread_phases: tuple[str, ...] | None = (
            None  # of this peer, while an operator watches a job and reads them
        )
        shell.listen(self._reported)

    def take(self, caller: Caller, verb: str, fields: dict[str, Any]) -> None:
        try:
            checked_fields = checked(verb, fields)
            answers = {
                "roster": self._roster, "status": self._status, "submit": self._submit, "job": self._job,
                "read": self._read, "watch": self._watch, "cancel": self._cancel,
            }  # fmt: skip
            answers[verb](caller, checked_fields)
        except P2PClustError as error:
            caller.refuse(str(error), error.exit_code)

    def _roster(self, caller: Caller, fields: dict[str, Any]) -> None:
        """Take a fleet roster, if it is newer and the fleet signed it."""
        allow_list = self._shell.allow_list
        newer = allow_list.take(fields["data"])
        caller.answer({"peer": self._shell.core.identity.name, "newer": newer, "serial": allow_list.roster.serial})

    def _find(self, named: str, *, ended: bool = False) -> AnyJob:
        core = self._shell.core
        return find(core.jobs.jobs, named, core.identity.name, ended=ended)

    def _status(self, caller: Caller, fields: dict[str, Any]) -> None:
        """Answer with this peer's view; the number of rows is exact on its own device only."""
        status = snapshot(self._shell)
        caller.answer(asdict(status if caller.name == HERE else replace(status, data=status.data.for_others())))

    def _submit(self, caller: Caller, fields: dict[str, Any]) -> None:
        """Submit a job. Two answers: its id and roster; then, when a majority has the document on disk, `accepted`."""
        if not all(isinstance(name, str) for name in fields["roster"]):
            raise UsageError("submit: roster: expected names")
        core = self._shell.core
        enrolled = sorted([core.identity.name, *core.membership.members])
        if unknown := [name for name in fields["roster"] if name not in enrolled]:
            raise UsageError(
                f"submit: roster: not on {core.identity.name}'s fleet roster: {', '.join(unknown)}; "
                f"expected some of {', '.join(enrolled[:_MOST_NAMED])}{' ...' if enrolled[_MOST_NAMED:] else ''}"
            )
        try:  # a job that this peer cannot begin would be voted on without end, and even a cancel could not end it
            job_of(fields["mathematics"])
        except (WireError, UsageError) as error:
            raise UsageError(f"submit: this peer cannot do that ({error}): is its p2pclust older than yours?") from None
        if fields["id"] and not _REQUEST.fullmatch(fields["id"]):
            raise UsageError(f"submit: id: expected 1 to 64 letters, digits, '.', '_' or '-', not {fields['id']!r:.80}")
        n_peers = len(fields["roster"]) or len(enrolled)
        if problem := core.problem_with_size(fields["mathematics"], n_peers):
            raise UsageError(f"submit: {problem}")
        tag = self._tag(caller)
        mathematics, roster, request = fields.pop("mathematics"), tuple(fields.pop("roster")), fields.pop("id")
        self._shell.step(Submit(mathematics, roster, Treatment(**fields), tag, request))

    def _cancel(self, caller: Caller, fields: dict[str, Any]) -> None:
        """End a job. Two answers: at once, and at its end with `outcome`, which may still be `done`."""
        job = self._find(fields["job"])
        turn = job.document.turn
        if job.ledger.finished and turn is None:
            status = job_snapshot(self._shell, job.id)
            caller.answer({"job": job.id, "outcome": status.phase, "reason": status.reason, "late": True})
            return
        jobs = self._shell.core.jobs  # it ends the job itself, or the newest of its series
        turns = [job] if turn is None else [jobs.jobs[d.id] for d in jobs.table.turns(turn.series) if d.id in jobs.jobs]
        running = next((one for one in turns if not one.ledger.finished and not one.document.census), None)
        named = {} if turn is None else {"series": turn.series}
        if turn is not None and running is None and (before := jobs.cancels.by(turn.series)):
            reason = f"the series was cancelled by {before}"
            caller.answer({"job": job.id, **named, "outcome": "cancelled", "reason": reason, "late": True})
            return
        tag, key = self._tag(caller), job.id if turn is None else turn.series
        by = self._shell.core.identity.name if caller.name == HERE else caller.name

        def answer() -> None:
            caller.answer({"job": job.id if running is None else running.id, **named, "by": by}, last=False)
            if running is not None:
                self._ending[running.id].append(caller)
                return
            reason = f"cancelled by {by}: no further job of {key} begins"
            caller.answer({"job": job.id, **named, "outcome": "cancelled", "reason": reason, "late": False})

        self._cancelling[key] = answer
        self._shell.step(Cancel(job.id, by, tag))
        # Neither is there if all went well. Refused: the caller knows. The peer ended: nothing was promised.
        self._cancelling.pop(key, None)
        self._submitting.pop(tag, None)

    def _tag(self, caller: Caller) -> str:
        """Return a new tag for what is handed to the core: its reports on that go to this caller."""
        self._check_room()
        self._n_tags += 1
        tag = str(self._n_tags)
        self._submitting[tag] = caller
        return tag

    def _job(self, caller: Caller, fields: dict[str, Any]) -> None:
        job = self._find(fields["job"], ended=True)
        ref = job.ledger.register.ref
        caller.answer({
            **asdict(job_snapshot(self._shell, job.id)), "finished": job.ledger.finished,
            "mathematics": job.document.mathematics,
            "digest": b"" if ref is None else ref.digest, "size_bytes": 0 if ref is None else ref.size_bytes,
            "terms": [[term, name] for term, name in sorted(job.terms.items())],
            "features": self._shell.worker.features, "peer": self._shell.core.identity.name,
        })  # fmt: skip

    def _read(self, caller: Caller, fields: dict[str, Any]) -> None:
        job, part = self._find(fields["job"], ended=True), fields["part"]
        if part < 0:
            raise UsageError("read: part: expected 0 or more")
        match fields["what"]:
            case "state":
                ref = job.ledger.register.ref
                if ref is None:
                    raise UsageError(f"{job.id} has no state yet")
                digest, whole = ref.digest, ref.payload
            case "blob":
                digest, whole = fields["digest"], None
                if not self._shell.core.blobs.has(digest):
                    raise UsageError("read: this peer does not have that blob: ask another of the roster")
            case "note" if caller.name != HERE:
                raise UsageError("read: a peer's note can be read on its own device only")
            case "note":
                digest, whole = b"", job.workspace.note
            case "evidence":
                digest, whole = b"", self._evidence(job)
            case what:
                raise UsageError(f"read: what = {what!r:.40}: expected state, blob, note or evidence")
        if whole is None:  # it is in a blob
            each = PART_BYTES // self._shell.core.limits.chunk_bytes
            chunks = (self._shell.store.blobs.chunk(digest, index) for index in range(part * each, (part + 1) * each))
            data = b"".join(chunk for chunk in chunks if chunk is not None)
        else:
            data = whole[part * PART_BYTES : (part + 1) * PART_BYTES]
        caller.answer({"data": data, "last": len(data) < PART_BYTES})

    def _evidence(self, job: AnyJob) -> bytes:
        """Return what proves the end of a job to anyone who has the fleet's public key (`p2pclust.hosts.evidence`)."""
        document, end = job.document, job.certificates.end
        if document.fleet_roster is None:
            raise UsageError(f"{job.id}: nothing is signed: this fleet has no keys")
        if document.treatment.collect == "gossip":
            raise UsageError(f"{job.id}: nothing is signed with collect = 'gossip'")
        if end is None:
            raise UsageError(f"{job.id} has not ended")
        roster = self._shell.store.row(ROSTERS, document.fleet_roster.digest.hex())
        if roster is None:
            raise UsageError(f"{job.id}: this peer no longer has the fleet roster that the job names: ask another peer")
        return bytes(msgpack.packb([PROOF_FORMAT, document.encode(), roster, end.encode()]))

    def _watch(self, caller: Caller, fields: dict[str, Any]) -> None:
        job = self._find(fields["job"])
        over = job.ledger.finished
        status = job_snapshot(self._shell, job.id)
        outcome = {"outcome": status.phase} if over else {}
        caller.answer({"verb": "standing", **asdict(status), **outcome}, last=over)
        if not over:
            self._check_room()
            self._watching[job.id].append(caller)
            if self._unread_phases is None:
                self._unread_phases, self._shell.core.unread_phases = self._shell.core.unread_phases, ()

    def _check_room(self) -> None:
        waiting = (*self._accepting.values(), *self._ending.values(), *self._watching.values())
        if len(self._submitting) + sum(map(len, waiting)) >= _MOST_WAITING:
            raise UsageError("too many operators wait for answers of this peer: ask another peer")

    def _reported(self, verb: str, fields: Mapping[str, Any]) -> None:
        tag = fields.get("asked", "")
        if isinstance(tag, str) and tag in self._submitting and verb in ("submitted", "refused"):
            caller = self._submitting.pop(tag)
            if verb == "refused":
                caller.refuse(str(fields["reason"]), 3)
            else:
                if len(self._accepting) >= _MOST_WAITING // 2:  # a majority never accepted these jobs
                    del self._accepting[next(iter(self._accepting))]
                self._accepting[fields["job"]].append(caller)
                named = {name: fields[name] for name in ("job", "series", "roster") if fields.get(name)}
                caller.answer({**named, "accepted": False}, last=False)
        elif verb == "accepted":
            for caller in self._accepting.pop(fields["job"], []):
                caller.answer({"job": fields["job"], "accepted": True})
        elif verb == "cancel" and fields["job"] in self._cancelling:
            self._cancelling.pop(fields["job"])()
        job_id = fields.get("job", "")
        if isinstance(job_id, str) and (self._watching or self._ending):
            self._answer_waiting(job_id, verb, fields)

    def _answer_waiting(self, job_id: str, verb: str, fields: Mapping[str, Any]) -> None:
        jobs = self._shell.core.jobs.jobs
        gone = {"outcome": "unknown", "reason": "this peer no longer keeps that job", "late": True}
        for waiting in (self._watching, self._ending):  # jobs are deleted for newer turns of a series, or newer jobs
            for deleted in [job_id for job_id in waiting if job_id not in jobs]:
                round_ = {"verb": "finished", "round": -1} if waiting is self._watching else {}
                for caller in waiting.pop(deleted):
                    caller.answer({"job": deleted, **gone, **round_})
        job = jobs.get(job_id)
        over = verb == "finished" and job is not None
        told: dict[str, Any] = {"verb": verb, **fields}
        if over and (job_id in self._watching or job_id in self._ending):
            status = job_snapshot(self._shell, job_id)
            told |= {"outcome": status.phase, "reason": status.reason}
            told |= {"secured": status.secured, "exposed": status.exposed}
        elif verb == "phase" and job is not None and job_id in self._watching:
            told["aggregator"] = job.standing()[1]
        for watched in (job_id, str(fields.get("within", ""))):
            last = over and watched == job_id
            stay = [caller for caller in self._watching.pop(watched, []) if caller.answer(told, last=last) and not last]
            if stay:
                self._watching[watched] = stay
        if self._unread_phases is not None and not self._watching:
            self._shell.core.unread_phases, self._unread_phases = self._unread_phases, None
        if over:
            for caller in self._ending.pop(job_id, []):
                caller.answer({"job": job_id, "outcome": told["outcome"], "reason": told["reason"], "late": False})
