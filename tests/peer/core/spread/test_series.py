"""Jobs that are repeated: one next turn, whoever reaches for it, whoever dies, and until somebody ends it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgpack
import pytest
from harness import Net, toy

from p2pclust.errors import UsageError, WireError
from p2pclust.lab.simulation.world.peer import paper_roster
from p2pclust.peer.core.document import Document, Turn
from p2pclust.peer.core.effects import Reload
from p2pclust.peer.core.events import Cancel, Leave, Submit
from p2pclust.peer.core.job_messages import PreVote, Synced
from p2pclust.peer.core.messages import FactDelta
from p2pclust.peer.core.spread.series import census_of
from p2pclust.peer.core.treatment import Treatment

EVERY_S = 10.0


def repeated(n: int = 3, **fields: Any) -> tuple[Net, str]:
    net = Net(n)
    net.meet()
    return net, net.submit("p1", toy(1), every_s=EVERY_S, **fields)


def test_the_pause_of_one_series_begins_no_turn_of_another() -> None:
    net, slow = repeated()
    net.until(lambda: len(net.finished(slow)) == 3)
    quick = net.submit("p2", toy(1), every_s=1.0)
    net.until(lambda: len(net.finished(quick)) == 3)
    net.advance(EVERY_S / 2)
    table = net.core("p1").jobs.table
    series = [table.turns(str(fields["series"])) for _, fields in net.verbs("submitted")]
    first, second = (max(turn.number for turn in turns if not turn.census) for turns in series)
    assert (first, second >= 2) == (0, True)


def turns(net: Net) -> dict[int, set[str]]:
    """The jobs that anybody began, by turn."""
    found: dict[int, set[str]] = {}
    for name, fields in net.verbs("job"):
        core = net.peers[name].core
        job = None if core is None else core.jobs.jobs.get(str(fields["job"]))
        if job is not None and job.document.turn is not None and not job.document.census:
            found.setdefault(job.document.turn.number, set()).add(job.id)
    return found


def at(net: Net, number: int, *names: str) -> bool:
    """Whether all of these have finished that turn."""

    def done(name: str) -> bool:
        jobs = net.core(name).jobs.jobs.values()
        return any(
            j.ledger.finished and j.document.turn.number == number and not j.document.census
            for j in jobs
            if j.document.turn
        )

    return all(done(name) for name in names or net.names)


def test_the_next_begins_so_long_after_the_end_with_what_came_of_the_last() -> None:
    net, _ = repeated()
    net.until(lambda: at(net, 0))
    ended_at = net.now
    net.until(lambda: at(net, 1))
    assert ended_at + EVERY_S <= net.now <= ended_at + EVERY_S + 5
    (second,) = [j for j in net.core("p2").jobs.jobs.values() if j.document.turn.number == 1 and not j.document.census]
    assert msgpack.unpackb(second.document.mathematics)[0] == 2
    assert second.document.roster == ("p1", "p2", "p3")
    net.until(lambda: at(net, 3))
    assert {number: len(ids) for number, ids in turns(net).items() if number >= 2} == {2: 1, 3: 1}


def test_a_peer_that_left_is_not_on_the_roster_of_the_next_turn_and_a_dead_one_is() -> None:
    net, _ = repeated(5)
    net.until(lambda: at(net, 0))
    net.step("p5", Leave())
    net.crash("p5")
    net.crash("p4")
    net.until(lambda: at(net, 1, "p1", "p2", "p3"), limit_s=120.0)
    (second,) = [j for j in net.core("p2").jobs.jobs.values() if j.document.turn.number == 1 and not j.document.census]
    assert second.document.roster == ("p1", "p2", "p3", "p4")


def test_rows_are_read_anew_for_every_turn() -> None:
    net, _ = repeated()
    net.until(lambda: at(net, 2))
    assert [sum(isinstance(e, Reload) for e in peer.effects) for peer in net.peers.values()] == [3, 3, 3]


def test_rows_that_another_job_works_on_are_left() -> None:
    net = Net(3)
    net.hold_work = lambda name, effect: (
        effect.task.kind == "contribute" and getattr(effect.task, "mathematics", b"") == toy(7)
    )
    net.meet()
    net.submit("p1", toy(7))
    net.until(lambda: bool(net.tasks))
    net.submit("p1", toy(1), every_s=EVERY_S)
    net.until(lambda: at(net, 0))
    assert not any(isinstance(e, Reload) for e in net.peers["p1"].effects)
    assert net.verbs("not-reloaded")


@pytest.mark.parametrize("dies", ["p1", "p2", "p3"])
def test_it_survives_anybody_and_takes_back_who_returns(dies: str) -> None:
    net, _ = repeated()
    net.until(lambda: at(net, 0))
    net.crash(dies)
    others = [name for name in net.names if name != dies]
    net.until(lambda: at(net, 1, *others))
    (second,) = [
        j for j in net.core(others[0]).jobs.jobs.values() if j.document.turn.number == 1 and not j.document.census
    ]
    assert second.document.roster == net.names, "it may come back while the turn continues"
    net.start(dies)
    net.until(lambda: at(net, 2) or at(net, 3), 120.0)
    assert all(len(ids) == 1 for ids in turns(net).values())


def test_one_lost_store_does_not_end_it_while_another_peer_was_away() -> None:
    net, _ = repeated()
    net.until(lambda: at(net, 0))
    net.crash("p1")
    net.until(lambda: at(net, 1, "p2", "p3"), 60.0)
    net.crash("p2", wiped=True)
    net.start("p1", "p2")
    net.until(lambda: at(net, 3), 120.0)


def test_it_survives_a_blackout() -> None:
    net, _ = repeated()
    net.until(lambda: at(net, 0))
    for name in net.names:
        net.crash(name)
    net.start()
    net.until(lambda: at(net, 1))
    assert all(len(ids) == 1 for ids in turns(net).values())


def test_who_dies_between_the_census_and_the_turn_begins_it_afterwards() -> None:
    net, _ = repeated()
    net.until(lambda: at(net, 0))
    net.until(lambda: any(j.document.census and j.ledger.finished for j in net.core("p3").jobs.jobs.values()))
    net.crash("p3")
    net.start("p3")
    net.until(lambda: at(net, 2))
    assert all(len(ids) == 1 for ids in turns(net).values())


def test_a_minority_of_the_fleet_begins_nothing() -> None:
    net, _ = repeated(5)
    net.until(lambda: at(net, 0))
    for name in ("p3", "p4", "p5"):
        net.crash(name)
    net.advance(6 * EVERY_S)
    assert max(turns(net)) == 0
    net.start("p3", "p4", "p5")
    net.until(lambda: at(net, 1), 120.0)


def test_a_named_roster_stays() -> None:
    net, _ = repeated(4, roster=("p1", "p2", "p3"))
    net.until(lambda: at(net, 0, "p1", "p2", "p3"))
    net.crash("p3")
    net.until(lambda: at(net, 1, "p1", "p2"))
    (second,) = [j for j in net.core("p1").jobs.jobs.values() if j.document.turn.number == 1 and not j.document.census]
    assert second.document.roster == ("p1", "p2", "p3")


def test_the_turns_of_one_peer_wait_for_the_majority_of_the_fleet() -> None:
    """The tick that proposes the next turn ends the census too: its only peer has adopted the state."""
    net = Net(2)
    net.give(paper_roster(1, ["p1"]), "p1")
    net.start("p1")
    net.submit("p1", toy(1), every_s=EVERY_S)
    net.until(lambda: at(net, 0, "p1"))
    net.give(paper_roster(2, ["p1", "p2"]), "p1", "p2")
    net.advance(2 * EVERY_S)
    assert list(turns(net)) == [0]
    net.start("p2")
    net.until(lambda: at(net, 1, "p1", "p2"))


@pytest.mark.slow
def test_nothing_piles_up() -> None:
    net, _ = repeated()
    net.until(lambda: at(net, 6), 200.0)
    for peer in net.peers.values():
        assert len(peer.disk.load().tables["job"]) <= 4
        assert len(net.core(peer.name).jobs.jobs) <= 4


@pytest.mark.slow
@pytest.mark.parametrize("when", ["between", "within"])
def test_a_cancel_ends_the_series(when: str) -> None:
    net, job = repeated()
    net.until(lambda: at(net, 0))
    if when == "within":
        net.hold_work = lambda name, effect: effect.task.kind == "contribute"
        net.until(lambda: 1 in turns(net) and bool(net.tasks))
        job = next(iter(turns(net)[1]))
    net.step("p3", Cancel(job, "admin"))
    net.hold_work = lambda name, effect: False
    net.do_work()
    net.advance(5 * EVERY_S)
    assert max(turns(net)) == (1 if when == "within" else 0)
    assert not any(core.core.jobs.unfinished() for core in net.peers.values() if core.core is not None)
    for name in net.names:
        net.crash(name)
    net.start()
    net.advance(5 * EVERY_S)
    assert max(turns(net)) <= 1


def test_a_peer_that_was_away_when_the_series_was_cancelled_begins_no_turn() -> None:
    """It comes back in its pause, and asks for votes before it hears of the cancel; they once elected it."""
    net, job = repeated(4)
    net.until(lambda: at(net, 0))
    back_at = net.now + EVERY_S + 1.0
    net.lost = lambda packet: net.now < back_at and "p4" in (packet.source, packet.target)
    net.step("p1", Cancel(job, "admin"))
    net.advance(back_at - 1e-3 - net.now)
    net.manual = lambda message: isinstance(message, FactDelta)  # the cancel comes late
    net.until(lambda: any(isinstance(packet.message, PreVote) for packet in net.sent), limit_s=10.0)
    net.advance(2.0)
    net.manual = lambda message: False
    net.deliver()
    net.advance(5 * EVERY_S)
    assert list(turns(net)) == [0]


def test_the_document_says_which_turn_it_is() -> None:
    treatment = Treatment("wait", 1.0, collect="star", every_s=60.0)
    document = Document(b"x", ("a", "b"), ("1", "2"), treatment, "a", "n", turn=Turn("series-1", 3, True))
    assert Document.decode(document.encode()) == document
    assert census_of(document).turn == Turn("series-1", 4, True)
    assert Document.decode(census_of(document).encode()).census
    gossip = replace(document, treatment=replace(treatment, collect="gossip", gossip_tolerance=1e-9, mixing="push-sum"))
    assert Document.decode(gossip.encode()) == gossip


@pytest.mark.parametrize(
    "turn",
    [
        ["", 0, 1.0, True],
        ["s", -1, 1.0, True],
        ["s", 0, 0.0, True],
        ["s", 0, 1, True],
        ["s", 0, 1.0, 1],
        [7, 0, 1.0, True],
    ],
)
def test_a_turn_that_is_none(turn: list[Any]) -> None:
    document = Document(b"x", ("a",), ("1",), Treatment("wait", 1.0, collect="star"), "a", "n")
    plain = msgpack.unpackb(document.encode())
    with pytest.raises(WireError):
        Document.decode(msgpack.packb([*plain, turn]))
    with pytest.raises(UsageError):
        replace(document, treatment=replace(document.treatment, every_s=float("nan")), turn=Turn("series-1", 0, False))


@pytest.mark.parametrize("every_s", [1e-9, 0.99, -1.0, 1e9, float("inf"), float("nan")])
def test_turns_come_neither_faster_than_heartbeats_nor_never(every_s: float) -> None:
    net = Net(3)
    net.meet()
    net.step("p1", Submit(toy(1), treatment=Treatment(every_s=every_s)))
    net.advance(2.0)
    (told,) = net.verbs("refused")
    assert told[1]["reason"] == f"every_s = {every_s:g}: expected at least 1 s, and less than 1e+09 s"
    assert net.verbs("job") == []


def test_who_handed_it_in_may_never_hear_that_a_majority_has_it() -> None:
    net = Net(4)
    net.meet()
    net.lost = lambda packet: packet.target == "p1" and isinstance(packet.message, Synced)
    net.submit("p1", toy(1), roster=("p2", "p3", "p4"), every_s=EVERY_S)
    net.until(lambda: at(net, 2, "p2", "p3", "p4"))
    net.advance(3 * EVERY_S)
    assert net.verbs("accepted") == []
    assert "job" not in net.peers["p1"].disk.load().tables


def test_a_pause_longer_than_any_life_goes_on_where_it_was() -> None:
    """Each device restarts once a day, and the job is a weekly one: the time that a peer was up is on disk."""
    net, _ = repeated()
    net.until(lambda: at(net, 0))
    for _ in range(6):
        for name in net.names:
            net.crash(name)
        net.start()
        net.advance(0.4 * EVERY_S)
        if 1 in turns(net):
            break
    assert 1 in turns(net)
    net.until(lambda: at(net, 1), 20.0)
    assert all(len(ids) == 1 for ids in turns(net).values())


def test_what_is_left_of_a_pause_is_told_after_a_restart() -> None:
    net, job = repeated()
    net.until(lambda: at(net, 0))
    assert net.core("p2").jobs.series.waits_until[job] == pytest.approx(net.now + EVERY_S, abs=0.5)
    net.advance(0.55 * EVERY_S)
    net.crash("p2")
    net.start("p2")
    assert net.core("p2").jobs.series.waits_until[job] == pytest.approx(net.now + EVERY_S / 2, abs=0.01)


def test_the_count_of_a_pause_goes_with_it() -> None:
    net, _ = repeated()
    net.until(lambda: at(net, 3), 120.0)
    net.advance(0.3 * EVERY_S)
    for peer in net.peers.values():
        assert len(peer.disk.load().tables.get("pause", {})) <= 1


def test_a_minority_that_is_present_proposes_no_turn() -> None:
    """Its roster would have no majority of the fleet, and the others might agree on another turn."""
    net, first = repeated(5)
    net.until(lambda: at(net, 0))
    for name in ("p3", "p4", "p5"):
        net.crash(name)
    net.until(lambda: all(net.core("p1").membership.status(name) == "dead" for name in ("p3", "p4", "p5")))
    series, turn = net.core("p1").jobs.series, net.job("p1", first).document
    assert series.propose(census_of(turn), turn.mathematics) is None
    net.start("p3")
    net.until(lambda: net.core("p1").membership.status("p3") == "alive")
    proposed = series.propose(census_of(turn), turn.mathematics)
    assert proposed is not None
    assert Document.decode(proposed).roster == net.names


def test_a_peer_that_told_of_an_old_turn_tells_of_the_newer_one() -> None:
    """Otherwise other peers would repeat this peer's old turn as long as the fleet lives."""
    net = Net(5, fitness={"p1": 0.9})
    net.meet()
    net.submit("p5", toy(1), every_s=EVERY_S)
    net.until(lambda: at(net, 1))
    told = [fact for fact in net.core("p5").facts.everything() if fact.owner == "p5" and fact.key.startswith("series/")]
    assert [Document.decode(fact.value).number for fact in told] == [1], "neither aggregator nor one of the first three"
