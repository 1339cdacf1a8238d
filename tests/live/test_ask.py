"""The answers of a standing fleet become the events of a run."""

from __future__ import annotations

from typing import Any

from p2pclust.errors import FleetError
from p2pclust.lab.live.ask import AnswerReader, FleetFollower
from p2pclust.lab.live.shown import FollowedRun, snapshot
from p2pclust.lab.run.scene import Scene

ROSTER = ["a", "b", "c"]


def job(**more: Any) -> dict[str, Any]:
    return {
        "job": "job-1", "name": "job-1", "series": "", "within": "", "protocol": "llf-cm", "roster": ROSTER,
        "submitter": "a", "term": 0, "round": 0, "phase": "electing", "aggregator": "", "waits_for": [], "absent": [],
        "reason": "", **more,
    }  # fmt: skip


def answer(peer: str = "a", jobs: list[dict[str, Any]] | None = None, **statuses: str) -> dict[str, Any]:
    members = [{"name": name, "status": statuses.get(name, "alive")} for name in ROSTER if name != peer]
    return {"peer": peer, "members": members, "jobs": jobs or [], "counters": {"bytes_sent": 10}, "links": []}


def verbs(told: AnswerReader, answered: dict[str, Any]) -> list[str]:
    return [event.verb for event in told.events(1.0, answered)]


def test_only_changes_are_events() -> None:
    told = AnswerReader()
    assert verbs(told, answer()).count("enrolled") == 3
    assert verbs(told, answer()) == ["sent"]
    assert verbs(told, answer(b="dead")) == ["member", "sent"]
    assert verbs(told, answer(b="alive")) == ["started", "sent"]
    assert verbs(told, answer(b="left")) == ["exited", "sent"]


def test_the_links_of_an_overlay_are_an_event_when_they_change() -> None:
    told = AnswerReader()
    scene = Scene("a fleet", "", {}, links=(), testbed=False)
    progress = scene.begun()

    def links(answered: dict[str, Any]) -> Any:
        for event in told.events(1.0, answered):
            progress.take(event)
        return snapshot(scene, progress)["links"]

    assert links(answer()) == []
    assert links({**answer(), "links": [["a", "b"], ["b", "c"]]}) == [[0, 1], [1, 2]]
    assert verbs(told, {**answer(), "links": [["a", "b"], ["b", "c"]]}) == ["sent"]
    assert links({**answer(), "links": [["a", "b"]]}) == [[0, 1]]
    assert links({**answer(), "links": None}) is None, "a full mesh"


def test_a_job_is_followed_from_its_submission_to_its_end() -> None:
    told = AnswerReader()
    verbs(told, answer())
    assert verbs(told, answer(jobs=[job()])) == ["submitted", "waits", "sent"]
    assert verbs(told, answer(jobs=[job(term=1, aggregator="b")])) == ["elected", "waits", "sent"]
    assert verbs(told, answer(jobs=[job(term=1, aggregator="b", round=3)])) == ["combined", "waits", "sent"]
    assert verbs(told, answer(jobs=[job(term=2, aggregator="c", round=3)])) == ["elected", "waits", "sent"]
    over = job(term=2, aggregator="", round=5, phase="done")
    assert verbs(told, answer(jobs=[over])) == ["combined", "ended", "sent"]
    assert verbs(told, answer(jobs=[over])) == ["sent"]


def test_elections_between_two_answers_are_events_once() -> None:
    reader = AnswerReader()
    verbs(reader, answer(jobs=[job(term=1, aggregator="b")]))
    found = list(reader.elections(1.0, "job-1", [(1, "b"), (2, "a"), (3, "c")]))
    assert [(event.what.term, event.peer) for event in found] == [(2, "a"), (3, "c")]
    assert verbs(reader, answer(jobs=[job(term=3, aggregator="c")])) == ["waits", "sent"]


def test_a_job_waits_for_a_majority() -> None:
    told = AnswerReader()
    events = list(told.events(1.0, answer(jobs=[job(absent=["b", "c"])], b="dead", c="dead")))
    (waiting,) = [event for event in events if event.verb == "waiting"]
    assert (waiting.what.present, waiting.what.of) == (1, 3)


def test_of_earlier_jobs_only_the_running_one_is_shown() -> None:
    told = AnswerReader()
    old, running, newer = (
        job(job=f"job-{number}", phase=phase) for number, phase in ((1, "done"), (2, "electing"), (3, "done"))
    )
    events = list(told.events(1.0, answer(jobs=[old, running, newer])))
    assert [event.job for event in events if event.verb == "submitted"] == ["job-2"]
    later = list(told.events(2.0, answer(jobs=[old, running, newer, job(job="job-4")])))
    assert [event.job for event in later if event.verb == "submitted"] == ["job-4"]


def test_a_named_job_is_the_only_one() -> None:
    told = AnswerReader("series-9")
    events = list(
        told.events(1.0, answer(jobs=[job(job="job-1"), job(job="job-2", series="series-9", name="series-9/1")]))
    )
    assert [event.job for event in events if event.verb == "submitted"] == ["job-2"]


class Client:
    """A peer that answers while it lives."""

    def __init__(self, name: str, jobs: list[dict[str, Any]] | None = None) -> None:
        self.name, self.jobs, self.lives, self.asked, self.closed = name, jobs, True, 0, 0

    def ask(self, verb: str, within_s: float = 10.0, **fields: Any) -> dict[str, Any]:
        self.asked += 1
        if not self.lives:
            raise FleetError(f"the peer at {self.name} is gone")
        return answer(self.name, self.jobs)

    def close(self) -> None:
        self.closed += 1


def followed(*clients: Any) -> tuple[FleetFollower, FollowedRun, Scene, list[float]]:
    scene, now = Scene("fleet", "", {}, testbed=False), [0.0]
    run = FollowedRun(scene, scene.begun(), mode="watch")
    return FleetFollower(clients, run, lambda: now[0]), run, scene, now


def test_another_peer_is_asked_when_one_does_not_answer() -> None:
    a, b = Client("a"), Client("b")
    follower, run, _, _ = followed(a, b)
    follower.ask()
    assert '"asked":"a"' in run.to_json()
    a.lives = False
    follower.ask()
    follower.ask()
    assert '"asked":"b"' in run.to_json()
    assert (a.asked, a.closed, b.asked) == (2, 1, 2), "the one that is gone is not asked again"
    b.lives = False
    follower.ask()
    assert '"trouble":"no peer answers: the peer at b is gone"' in run.to_json()
    a.lives = True
    follower.ask()
    assert '"trouble":""' in run.to_json()
    assert '"asked":"a"' in run.to_json()


def test_the_others_say_what_only_they_know_and_a_silent_one_is_left_alone_for_a_while() -> None:
    leads = [job(term=1, aggregator="b", waits_for=["c"])]
    a, b = Client("a", [job(term=1, aggregator="b", absent=[])]), Client("b", leads)
    follower, run, scene, now = followed(a, b)
    follower.ask()
    follower.ask_another()
    with run.changing() as progress:
        found = snapshot(scene, progress)
        assert {device["name"]: device["role"] for device in found["devices"]} == {
            "a": "",
            "b": "aggregates",
            "c": "waited",
        }
        assert {device["name"]: device["bytes_sent"] for device in found["devices"]} == {"a": 10, "b": 10, "c": None}
    b.lives = False
    follower.ask_another()
    follower.ask_another()
    asked = b.asked
    follower.ask_another()
    follower.ask_another()
    assert b.asked == asked
    now[0] = 30.0
    follower.ask_another()
    follower.ask_another()
    assert b.asked == asked + 1
