"""What a peer of a large full mesh does at its start, and where processors are short."""

from __future__ import annotations

import pytest
from harness import alone

from p2pclust.peer.core.core import Core
from p2pclust.peer.core.effects import CheckLink, Effect, Send
from p2pclust.peer.core.events import Arrived, Woken
from p2pclust.peer.core.messages import Ack, FactDelta, FactDigest, Gossip, Message, Ping, Update
from p2pclust.peer.core.reports import MemberChanged
from p2pclust.peer.core.timing import PRESETS

pytestmark = pytest.mark.usefixtures("any_key")

TIMING = PRESETS["default"]


def names(n: int) -> list[str]:
    return [f"p{i}" for i in range(2, n + 1)]


def fleet_of(n: int) -> Core:
    return alone(fleet=n, timing=TIMING, join={name: f"{name}:1" for name in names(n)})


def alive(name: str) -> Gossip:
    return Gossip((Update(name, "alive", 1, f"{name}:1", f"store-{name}", ""),))


def meet(core: Core, members: list[str], now: float = 0.0) -> list[Effect]:
    return [effect for name in members for effect in core.step(now, Arrived(name, alive(name)))]


def sent(effects: list[Effect], kind: type[Message]) -> list[Send]:
    return [effect for effect in effects if isinstance(effect, Send) and isinstance(effect.message, kind)]


def until(core: Core, instant: float) -> list[Effect]:
    effects: list[Effect] = []
    while core.wake_at <= instant:
        effects += core.step(core.wake_at, Woken())
    return effects


def test_of_many_that_do_not_answer_a_few_are_greeted_per_period_all_in_turns() -> None:
    core = fleet_of(60)
    began = core.wake_at
    first = [ping.to for ping in sent(until(core, began + 0.01), Ping)]
    assert len(first) == 16
    later = [ping.to for ping in sent(until(core, began + 30), Ping)]
    assert {*first, *later} == {*names(60)}
    assert max(map(later.count, later)) - min(map(later.count, {*later})) <= 1


def test_a_member_that_announces_itself_is_not_greeted_again() -> None:
    """It has had an answer, or was greeted before; one that others announce knows nothing of this peer yet."""
    core = fleet_of(4)
    assert not sent(core.step(0.0, Arrived("p2", alive("p2"))), Ping)
    assert [ping.to for ping in sent(core.step(0.0, Arrived("p2", alive("p3"))), Ping)] == ["p3"]


def test_whoever_meets_many_at_once_compares_all_facts_with_a_few() -> None:
    core = fleet_of(10)
    core.facts.publish("own", b"fact")
    effects = meet(core, names(10))
    assert [digest.to for digest in sent(effects, FactDigest)] == ["p2", "p3", "p4"]
    deltas = {delta.to: delta.message for delta in sent(effects, FactDelta)}
    assert list(deltas) == ["p5", "p6", "p7", "p8", "p9", "p10"]
    assert all(isinstance(delta, FactDelta) and delta.values == (b"fact",) for delta in deltas.values())


def test_whoever_meets_many_at_once_names_large_facts_of_its_own() -> None:
    core = fleet_of(6)
    core.facts.publish("own", bytes(5000))
    deltas = [delta.message for delta in sent(meet(core, names(6)), FactDelta)]
    assert [delta.keys for delta in deltas if isinstance(delta, FactDelta)] == [(), ()]
    newcomer = fleet_of(3)
    asks = newcomer.step(0.0, Arrived("p2", FactDelta("p2", 5, (), (), ())))
    assert [ask.to for ask in sent(asks, FactDigest)] == ["p2"]


def test_one_answer_has_the_facts_of_some_owners_and_always_those_of_this_peer() -> None:
    core = fleet_of(40)
    core.facts.publish("own", b"fact")
    for owner in names(40)[1:]:
        core.step(0.0, Arrived(owner, FactDelta(owner, 0, ("key",), (1,), (b"value",))))
    deltas = sent(core.step(0.1, Arrived("p2", FactDigest(True, (), (), ()))), FactDelta)
    owners = [delta.message.owner for delta in deltas if isinstance(delta.message, FactDelta)]
    assert len(owners) == 17
    assert "p1" in owners


def probes(core: Core, periods: int, *, answered_after: float) -> list[float]:
    """Let all members answer every ping so late; return when this peer suspected one."""
    due: list[tuple[float, Send]] = []
    suspected: list[float] = []
    began = core.wake_at
    while min([core.wake_at, *(at for at, _ in due)]) < began + periods * TIMING.probe_period_s:
        now = core.wake_at
        if due and due[0][0] <= now:
            now, ping = due.pop(0)
            assert isinstance(ping.message, Ping)
            effects = core.step(now, Arrived(ping.to, Ack(ping.message.seq, True, ())))
        else:
            effects = core.step(now, Woken())
        due += [(now + answered_after, ping) for ping in sent(effects, Ping)]
        suspected += [now - began for e in effects if isinstance(e, MemberChanged) and e.status == "suspect"]
    return suspected


def test_where_all_answers_are_slow_slow_ones_are_no_suspects() -> None:
    """Only until the first answers show how slow they are."""
    core = fleet_of(30)
    meet(core, names(30))
    assert not [at for at in probes(core, 40, answered_after=2.0) if at > 6.0]
    assert core.membership.slack_s() > 3.0


def test_answers_in_time_change_no_time_out() -> None:
    core = fleet_of(6)
    meet(core, names(6))
    probes(core, 10, answered_after=0.09)
    assert core.membership.slack_s() == 0.0


def test_whoever_is_late_itself_waits_longer_for_others() -> None:
    """Its answers may be in its own queue. On time, it would check the first probe's silent target after 0.3 s."""

    def looks(late_s: float) -> list[Effect]:
        core = fleet_of(6)
        meet(core, names(6))
        now = core.wake_at + late_s
        core.step(now, Woken())
        effects: list[Effect] = []
        while core.wake_at < now + 0.4:
            effects += core.step(max(now, core.wake_at), Woken())
        return [effect for effect in effects if isinstance(effect, CheckLink)]

    assert looks(0.0)
    assert not looks(0.5)


def test_of_a_large_fleet_some_check_a_suspect() -> None:
    def checks(n: int, seed_steps: int) -> int:
        core = fleet_of(n)
        meet(core, names(n))
        claims = [Update(f"p{i}", "suspect", 1, "", "", "p2") for i in range(3, 3 + seed_steps)]
        effects = [effect for claim in claims for effect in core.step(0.0, Arrived("p2", Gossip((claim,))))]
        return len([effect for effect in effects if isinstance(effect, CheckLink)])

    assert checks(17, 10) == 10
    assert 5 <= checks(100, 80) <= 25  # 16 of 100 on average
