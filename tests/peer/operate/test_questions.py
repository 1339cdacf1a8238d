"""What operators may ask, without sockets: fields are checked, and nothing that is asked or watched ends a peer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest

from p2pclust.errors import UsageError
from p2pclust.peer.core.events import Leave
from p2pclust.peer.core.reports import JobAccepted
from p2pclust.peer.operate.questions import Questions, checked
from p2pclust.peer.shell.shell import Shell
from p2pclust.peer.shell.store import Store
from p2pclust.protocols.engine.job import Job, Stage

MATHEMATICS = bytes(msgpack.packb(Job((Stage("llf-cm", {"n_clusters": 2}),), seed=1).to_dict()))


class FakeCaller:
    """Remembers what it was told."""

    def __init__(self, name: str = "this device") -> None:
        self.name = name
        self.told: list[Any] = []

    def answer(self, fields: Any, *, last: bool = True) -> bool:
        self.told.append((fields, last))
        return True

    def refuse(self, reason: str, code: int = 2) -> bool:
        self.told.append((reason, code))
        return True


class FakeShell:
    """A shell without any job."""

    def __init__(self) -> None:
        self.core = SimpleNamespace(
            jobs=SimpleNamespace(jobs={}),
            identity=SimpleNamespace(name="me"),
            membership=SimpleNamespace(members={"b": 0}),
            problem_with_size=lambda job, n_peers: "",
        )
        self.steps: list[Any] = []

    def listen(self, listener: Any) -> Any:
        self.tell = listener

    def step(self, event: Any) -> None:
        self.steps.append(event)


@pytest.mark.parametrize(
    ("verb", "fields", "reason"),
    [
        ("dance", {}, "this peer does not know 'dance': is its p2pclust older than yours?"),
        ("status", {"x": 1}, "status: unknown field 'x'"),
        ("job", {}, "job: field 'job' is missing"),
        ("job", {"job": 1}, "job: job: expected str"),
        ("read", {"job": "j", "part": True}, "read: part: expected int"),
        ("job", {"job": ""}, "me does not know the job: ''"),
        ("submit", {"mathematics": b"", "roster": [1]}, "submit: roster: expected names"),
        ("submit", {"mathematics": b""}, "submit: this peer cannot do that (job: not msgpack: ValueError)"),
        ("submit", {"mathematics": b"\x80"}, "submit: this peer cannot do that (job: key 'stages' is missing)"),
        (
            "submit",
            {"mathematics": MATHEMATICS.replace(b"llf-cm", b"llf-zz")},
            "submit: this peer cannot do that (unknown",
        ),
        (
            "submit",
            {"mathematics": MATHEMATICS, "id": "two words"},
            "submit: id: expected 1 to 64 letters, digits, '.', '_' or '-', not 'two words'",
        ),
        (
            "submit",
            {"mathematics": b"", "roster": ["b", "q"]},
            "submit: roster: not on me's fleet roster: q; expected some of b, me",
        ),
    ],
)
def test_what_is_refused(verb: str, fields: dict[str, Any], reason: str) -> None:
    asker = FakeCaller()
    Questions(FakeShell()).take(asker, verb, fields)  # type: ignore[arg-type]
    ((told, code),) = asker.told
    assert told.startswith(reason)
    assert code == 2


def test_a_whole_number_is_taken_for_seconds() -> None:
    assert checked("submit", {"mathematics": b"x", "patience_s": 3})["patience_s"] == 3.0
    with pytest.raises(UsageError):
        checked("submit", {"mathematics": b"x", "patience_s": "3"})


def test_each_submission_gets_its_own_answer() -> None:
    shell = FakeShell()
    asked, (one, two) = Questions(shell), (FakeCaller(), FakeCaller())  # type: ignore[arg-type]
    for asker in (one, two):
        asked.take(asker, "submit", {"mathematics": MATHEMATICS})  # type: ignore[arg-type]
    first, second = (step.asked for step in shell.steps)
    shell.tell("refused", {"reason": "no", "asked": second})
    shell.tell("submitted", {"job": "job-1", "roster": ["me"], "asked": first})
    shell.tell("accepted", {"job": "job-1"})
    assert two.told == [("no", 3)]
    assert one.told == [
        ({"job": "job-1", "roster": ["me"], "accepted": False}, False),
        ({"job": "job-1", "accepted": True}, True),
    ]


def test_both_callers_of_one_request_are_answered() -> None:
    """The first may still wait when the second asks with the same id."""
    shell = FakeShell()
    asked, callers = Questions(shell), (FakeCaller(), FakeCaller())  # type: ignore[arg-type]
    for caller in callers:
        asked.take(caller, "submit", {"mathematics": MATHEMATICS, "id": "mine"})  # type: ignore[arg-type]
        shell.tell("submitted", {"job": "job-1", "roster": ["me"], "asked": shell.steps[-1].asked})
    shell.tell("accepted", {"job": "job-1"})
    assert [step.request for step in shell.steps] == ["mine", "mine"]
    assert [caller.told[-1] for caller in callers] == [({"job": "job-1", "accepted": True}, True)] * 2


def test_who_waits_for_a_job_that_is_dropped_is_told() -> None:
    shell = FakeShell()
    asked, asker = Questions(shell), FakeCaller()  # type: ignore[arg-type]
    asked._watching["job-1"] = [asker]  # type: ignore[list-item]
    shell.tell("phase", {"job": "job-1", "phase": "opening"})
    ((told, last),) = asker.told
    assert (told["outcome"], last) == ("unknown", True)


def test_a_listener_that_fails_does_not_end_the_peer(tmp_path: Path) -> None:
    failed: list[str] = []

    async def live() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: failed.append(context["message"]))
        core = SimpleNamespace(
            step=lambda now, event: [JobAccepted("x")] if isinstance(event, Leave) else [],
            wake_at=float("inf"),
            identity=SimpleNamespace(name="me"),
        )
        store = Store(tmp_path)
        shell = Shell(core, store, None, lambda verb, fields: None, SimpleNamespace(perform=None))  # type: ignore[arg-type]
        shell.listen(lambda verb, fields: 1 / 0)  # type: ignore[arg-type,return-value]
        shell.start(None, None)  # type: ignore[arg-type]
        shell.leave()
        assert shell.ended.result() is None
        store.close()

    asyncio.run(live())
    assert failed == ["a listener failed"]
