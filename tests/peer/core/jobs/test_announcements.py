"""Which jobs are told again, which are kept, and that what was forgotten never begins again."""

from __future__ import annotations

import pytest
from harness import Net, toy

from p2pclust.peer.core.document import Document
from p2pclust.peer.core.events import Submit
from p2pclust.peer.core.job_messages import Ended, PreVote
from p2pclust.peer.core.jobs import submission
from p2pclust.peer.core.messages import FactDelta
from p2pclust.peer.core.spread import facts

DAY_S = 40.0


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A day of forty seconds, and floors that come soon."""
    monkeypatch.setattr(submission, "_TELL_S", DAY_S)
    monkeypatch.setattr(facts, "_MOST_VOID", 2)


def fleet(n: int = 3) -> Net:
    net = Net(n)
    net.meet()
    return net


def done(net: Net, at: str = "p1", rounds: int = 1) -> str:
    """A job that all have ended."""
    job = net.submit(at, toy(rounds))
    net.until(lambda: len(net.finished(job)) == len(net.names))
    return job


def told(net: Net, at: str) -> list[str]:
    """Of which jobs any owner tells, as that peer knows it."""
    return sorted({fact.key for fact in net.core(at).facts.everything() if fact.key.startswith("job/")})


@pytest.mark.slow
def test_a_finished_job_is_told_again_for_a_day_in_which_the_peer_was_up() -> None:
    net = fleet()
    job = done(net)
    for _ in range(3):
        net.advance(DAY_S / 4)
        net.crash("p2")
        net.start("p2")
        net.advance(0.5)
        assert net.core("p2").facts.get("p2", f"job/{job}") is not None
    net.advance(DAY_S / 2)
    net.crash("p2")
    net.start("p2")
    net.advance(0.1)
    assert net.core("p2").facts.get("p2", f"job/{job}") is None
    assert job in net.core("p2").jobs.jobs, "its result is kept"


@pytest.mark.slow
def test_after_its_day_a_job_is_told_by_no_peer_whatever_restarts() -> None:
    net = fleet()
    jobs = [done(net) for _ in range(6)]
    assert len(told(net, "p3")) == 6
    for name in net.names:  # each tells of all of them in its next life
        net.crash(name)
        net.start(name)
        net.advance(3.0)
    net.advance(2 * DAY_S)
    for name in net.names:
        net.crash(name)
        net.start(name)
        net.advance(5.0)
    net.advance(20.0)
    assert {name: told(net, name) for name in net.names} == {name: [] for name in net.names}
    assert all(job in net.core(name).jobs.jobs for name in net.names for job in jobs)


@pytest.mark.slow
def test_a_job_that_goes_on_is_told_however_long_it_takes() -> None:
    net = fleet()
    net.hold_work = lambda name, effect: effect.task.kind == "contribute"
    job = net.submit("p1", toy(1), missing="all")
    net.advance(2 * DAY_S)
    assert told(net, "p3") == [f"job/{job}"]


@pytest.mark.slow
def test_new_jobs_are_learnt_after_more_jobs_than_an_owner_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "_MOST_BYTES", 16 * 700)
    net = fleet()
    for _ in range(5):
        for _ in range(8):
            done(net)
        net.advance(2 * DAY_S)
    assert net.verbs("too-many-facts") == []
    assert net.core("p2").facts._held["p1"].n_bytes <= 16 * 700


def test_a_job_that_others_would_not_learn_of_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    net = fleet()
    net.hold_work = lambda name, effect: effect.task.kind == "contribute"
    net.submit("p1", toy(1))
    monkeypatch.setattr(facts, "_MOST_BYTES", 3 * net.core("p1").facts._held["p1"].n_bytes)
    net.step("p1", Submit(toy(1), asked="second"))
    net.step("p1", Submit(toy(1), asked="third"))
    ((_, refused),) = net.verbs("refused")
    assert refused["asked"] == "third"
    assert "submit this one at another peer" in refused["reason"]


def test_an_old_turn_is_not_repeated_by_a_peer_that_knows_a_newer_one() -> None:
    net = fleet(4)
    net.submit("p1", toy(1), every_s=10.0)
    net.until(lambda: any(j.document.turn.number == 1 for j in net.core("p1").jobs.jobs.values()), 60.0)
    net.until(lambda: all(core.core is not None and not core.core.jobs.unfinished() for core in net.peers.values()))
    (document,) = [j.document for j in net.core("p1").jobs.jobs.values() if j.document.turn.number == 0]
    net.crash("p1")
    net.until(lambda: any(j.document.turn.number == 3 for j in net.core("p2").jobs.jobs.values()), 60.0)
    net.start("p1")
    net.advance(3.0)
    core = net.core("p1")
    assert document.turn is not None
    net.arrive("p2", "p1", FactDelta("p1", 0, (f"series/{document.turn.series}",), (1,), (document.encode(),)))
    fact = core.facts.get("p1", f"series/{document.turn.series}")
    newest = None if fact is None else Document.decode(fact.value).turn
    assert newest is None or newest.number >= 3
    assert document.id not in core.jobs.jobs


def test_the_newest_jobs_are_kept_and_what_is_forgotten_never_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "_MOST_KEPT", 2)
    net = fleet()
    first = net.submit("p1", toy(1))
    document = net.job("p1", first).document
    net.until(lambda: len(net.finished(first)) == 3)
    later = [done(net) for _ in range(3)]
    for name in net.names:
        assert list(net.core(name).jobs.jobs) == later, "the two newest, and the one that ended last"
        tables = net.peers[name].disk.load().tables
        assert first not in {**tables["job"], **tables["register"], **tables.get("ballot", {})}
    net.crash("p2")
    net.start("p2")
    net.until(net.core("p2").membership.all_here)
    key = f"job/{first}"
    net.arrive(
        "p1", "p2", FactDelta("p1", net.core("p2").facts._held["p1"].highest, (key,), (2**40,), (document.encode(),))
    )
    assert first not in net.core("p2").jobs.jobs


def test_a_peer_that_was_away_hears_that_its_job_has_ended_and_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "_MOST_KEPT", 1)
    net = fleet()
    net.hold_work = lambda name, effect: name == "p3"
    job = net.submit("p1", toy(1))
    net.until(lambda: job in net.core("p3").jobs.jobs)
    net.crash("p3")
    net.until(lambda: net.finished(job) == ["p1", "p2"])
    for _ in range(3):
        net.submit("p1", toy(1), roster=("p1", "p2"))
        net.until(lambda: not any(net.core(name).jobs.unfinished() for name in ("p1", "p2")))
    assert job not in net.core("p1").jobs.jobs
    net.start("p3")
    assert job in net.core("p3").jobs.jobs
    net.until(lambda: job not in net.core("p3").jobs.jobs)
    assert [name for name, _ in net.verbs("job-gone")] == ["p3"]
    assert not net.core("p3").jobs.unfinished()


def test_what_another_has_forgotten_ends_nothing_that_ended_or_is_not_its_affair() -> None:
    net = fleet(4)
    job = net.submit("p1", toy(1), roster=("p1", "p2", "p3"))
    net.until(lambda: len(net.finished(job)) == 3)
    net.arrive("p2", "p1", Ended(job))
    assert job in net.core("p1").jobs.jobs
    net.hold_work = lambda name, effect: True
    honest = net.submit("p1", toy(1), roster=("p1", "p2", "p3"))
    net.arrive("p2", "p1", Ended(honest))
    assert honest in net.core("p1").jobs.jobs, "p3 is here, and has not said so"
    running = net.submit("p1", toy(1), roster=("p1", "p2", "p3"))
    net.arrive("p4", "p1", Ended(running))
    assert running in net.core("p1").jobs.jobs, "p4 is not in it"
    assert [
        e for e in net.arrive("p2", "p1", PreVote("job-x", 1, 0, 0)) if getattr(e, "message", None) == Ended("job-x")
    ] == []


def test_a_job_is_forgotten_when_so_many_have_that_no_majority_is_left() -> None:
    net = fleet(5)
    net.hold_work = lambda name, effect: True
    job = net.submit("p1", toy(1))
    net.until(lambda: all(job in net.core(name).jobs.jobs for name in ("p1", "p5")))
    for name in ("p2", "p3"):
        net.arrive(name, "p1", Ended(job))
    assert job in net.core("p1").jobs.jobs, "three of five are left"
    net.arrive("p4", "p1", Ended(job))
    assert job not in net.core("p1").jobs.jobs, "p5 is here and has it, but two of five decide nothing"


def test_a_job_that_the_others_refuse_does_not_wait_for_ever() -> None:
    net = fleet(3)
    for name in ("p2", "p3"):
        net.core(name)._ctx.problem_with_size = lambda job, n_peers: "it is too large"
    job = net.submit("p1", toy(1))
    net.until(lambda: job not in net.core("p1").jobs.jobs)
    assert [name for name, _ in net.verbs("job-gone")] == ["p1"]
    assert [name for name, _ in net.verbs("too-large")] == ["p2", "p3"], "each says so once"


def test_a_peer_that_refused_a_job_and_keeps_it_later_takes_part() -> None:
    net = fleet(3)
    net.hold_work = lambda name, effect: name == "p1"
    before = net.core("p3")._ctx.problem_with_size
    net.core("p3")._ctx.problem_with_size = lambda job, n_peers: "it is too large"
    job = net.submit("p1", toy(1))
    net.until(lambda: bool(net.verbs("too-large")))
    net.core("p3")._ctx.problem_with_size = before
    net.core("p3").jobs._keep(net.core("p1").jobs.table.documents[job])
    net.hold_work = lambda name, effect: False
    net.until(lambda: "p3" in net.finished(job))
