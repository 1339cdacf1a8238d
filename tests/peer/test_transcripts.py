"""Runs `tests/transcripts/*.txt`: commands, `----`, and exactly what they make happen.

To regenerate after a change that you can explain: ``pytest tests/peer/test_transcripts.py --rewrite``. Read the diff before
you commit it.

Commands: ``cores N``, ``submit PEER [rounds=N] [one] [within=ROUND:PEER,PEER...] [KEY=VALUE]...``, ``deliver [FILTER]...``,
``drop [FILTER]...``, ``advance SECONDS``, ``until-elected [within]``, ``crash PEER``, ``wipe PEER``, ``restart PEER``,
``states``. A filter is a kind of message, ``PEER->``, ``->PEER``, ``PEER->PEER`` or ``within``. With ``submit ... within``
that round of the job runs a job of one round among those peers, of whom the first aggregates; its messages are marked.

Messages of elections and rounds wait until they are delivered; heartbeats, membership, facts and work take no time and are
not shown. States read ``s2[0,1]``: round 2, combined from the contributions of the roster's first and second peer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from desks import DeskNet, run
from harness import Packet, is_of_job, toy

from p2pclust.peer.core.job_messages import (
    Adopted,
    Close,
    CloseReply,
    Heartbeat,
    HeartbeatReply,
    Open,
    PreVote,
    PreVoteReply,
    RequestVote,
    StaleTerm,
    Synced,
    VoteReply,
)  # fmt: skip
from p2pclust.peer.core.messages import Message
from p2pclust.peer.core.timing import Limits

FILES = sorted((Path(__file__).parent.parent / "transcripts").glob("*.txt"))
_HIDDEN = ("phase", "job", "submitted", "pulling")
_LEFT_OUT = ("job", "within", "digest", "stage", "final", "asked", "one")


def _shown(message: Message) -> bool:
    return is_of_job(message) and not isinstance(message, (Heartbeat, HeartbeatReply, Synced))


def _payload(frames: tuple[bytes, ...]) -> str:
    return frames[0].decode() if frames else "-"


def render(message: Message) -> str:  # noqa: PLR0911
    """One message, compactly: t is a term, r a round, reg a register."""
    match message:
        case PreVote() | RequestVote():
            return f"{message.kind}(t{message.term} reg=t{message.register_term}r{message.register_round})"
        case PreVoteReply() | VoteReply():
            return f"{message.kind}(t{message.term} {'granted' if message.granted else 'denied'})"
        case StaleTerm():
            return f"stale-term(t{message.term})"
        case Open():
            final = " final" if message.final else ""
            proposer = f" asks={message.proposer}" if message.proposer >= 0 else ""
            return f"open(t{message.term} r{message.round} {_payload(message.state)}{final}{proposer})"
        case Adopted():
            said = message.abstains or _payload(message.payload)
            return f"adopted(t{message.term} r{message.round} {said})"
        case Close():
            return f"close(t{message.term} r{message.round} {_payload(message.state)})"
        case CloseReply():
            return f"close-reply({'needs state' if message.needs_state else 'finished'})"
        case _:
            raise AssertionError(message)


class Stage:
    """Performs commands and tells what they made happen."""

    def __init__(self) -> None:
        self.net = DeskNet(1)
        self.job = ""
        self._seen = (0, 0)

    def perform(self, line: str) -> list[str]:
        """One command and its output."""
        words = line.split()
        printed: list[str] | None = getattr(self, "do_" + words[0].replace("-", "_"))(*words[1:])
        return self._news() if printed is None else printed

    def do_cores(self, n: str) -> list[str]:
        self.net = DeskNet(int(n), manual=_shown, limits=Limits())
        self.net.meet()
        self._seen = (len(self.net.sent), len(self.net.reports))
        return [f"{', '.join(self.net.names)} see one another"]

    def do_submit(self, at: str, *options: str) -> None:
        given = dict(option.partition("=")[::2] for option in options)
        job = toy(int(given.pop("rounds", "1")), one=given.pop("one", None) is not None)
        if "within" in given:
            round_, _, names = given.pop("within").partition(":")
            roster = [self.net.names.index(name) for name in names.split(",")]
            self.net.parent = job
            self.net.wants[int(round_)] = run(*sorted(roster), aggregator=roster[0])
        fields: dict[str, Any] = {k: float(v) if k.endswith("_s") else v for k, v in given.items()}
        self.job = self.net.submit(at, job, **fields)

    def do_deliver(self, *filters: str) -> None:
        assert self.net.deliver(self._fits(filters)), "nothing to deliver"

    def do_drop(self, *filters: str) -> list[str]:
        dropped = self.net.drop(self._fits(filters))
        assert dropped, "nothing to drop"
        return [f"lost: {packet.source}->{packet.target} {self._told(packet.message)}" for packet in dropped]

    def do_advance(self, seconds: str) -> None:
        self.net.advance(float(seconds))

    def do_until_elected(self, *where: str) -> None:
        """Elections need no hand here: their messages are delivered as time passes."""
        elections = (PreVote, PreVoteReply, RequestVote, VoteReply)
        living = [name for name in self.net.names if self.net.peers[name].core is not None]
        inner = [job.id for name in living for job in self.net.within(name)]
        job = inner[0] if where == ("within",) else self.job

        def elected() -> bool:
            self.net.deliver(lambda packet: isinstance(packet.message, elections))
            return self.net.aggregator(job) != ""

        self.net.until(elected)

    def do_crash(self, name: str) -> None:
        self.net.crash(name)

    def do_wipe(self, name: str) -> None:
        self.net.crash(name, wiped=True)

    def do_restart(self, name: str) -> None:
        self.net.start(name)

    def do_states(self) -> list[str]:
        ended = self.net.finished(self.job)
        return [
            f"{name}: {state or 'nothing yet'}{' finished' if name in ended else ''}"
            for name, state in self.net.states(self.job).items()
        ]

    def _fits(self, filters: tuple[str, ...]) -> Any:
        def fits(packet: Packet) -> bool:
            for wanted in filters:
                if wanted == "within":
                    if not self._within(packet.message):
                        return False
                    continue
                source, arrow, target = wanted.partition("->")
                if arrow and (source not in ("", packet.source) or target not in ("", packet.target)):
                    return False
                if not arrow and wanted != packet.message.kind:
                    return False
            return True

        return fits

    def _within(self, message: Message) -> bool:
        return message.job != self.job  # type: ignore[attr-defined]

    def _told(self, message: Message) -> str:
        return f"{'within: ' if self._within(message) else ''}{render(message)}"

    def _news(self) -> list[str]:
        sent, reports = self.net.sent[self._seen[0] :], self.net.reports[self._seen[1] :]
        self._seen = (len(self.net.sent), len(self.net.reports))
        lines = [self._report(name, r.verb, dict(r.fields)) for name, r in reports if r.verb not in _HIDDEN]
        lines += [f"{p.source}->{p.target} {self._told(p.message)}" for p in sent if _shown(p.message)]
        return lines or ["nothing"]

    def _report(self, name: str, verb: str, fields: dict[str, Any]) -> str:
        if verb == "member":
            return f"{name}: {fields['member']} {fields['before']} -> {fields['status']}({fields['incarnation']})"
        kept = {k: v for k, v in fields.items() if k not in _LEFT_OUT}
        shown = (f"{k}={','.join(v) if isinstance(v, list) else v}" for k, v in kept.items())
        within = "within: " if fields.get("job", self.job) != self.job else ""
        return f"{name}: {within}{' '.join([verb, *shown])}"


def replayed(text: str) -> str:
    """The transcript as it runs now."""
    stage, lines = Stage(), []
    expecting = False
    for line in text.splitlines():
        if expecting:  # the old output, up to an empty line
            expecting = bool(line)
            if line:
                continue
        if line == "----":
            expecting = True
            continue
        lines.append(line)
        if line and not line.startswith("#"):
            lines += ["----", *stage.perform(line)]
    return "\n".join(lines) + "\n"


def test_there_are_transcripts() -> None:
    assert {"aggregator_crash", "fault_free", "finished_answers_late"} <= {path.stem for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_transcript(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text(encoding="utf-8")
    now = replayed(text)
    if request.config.getoption("--rewrite"):
        path.write_text(now, encoding="utf-8")
        text = now
    assert now == text, f"{path.name} runs otherwise; if that is right, pytest --rewrite regenerates it"
