"""SWIM and Lifeguard, one test per sentence. References are to the papers named in the module."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from harness import alone

from p2pclust.peer.core.core import Core, StoreContents
from p2pclust.peer.core.effects import CheckLink, Effect, Persist, Send
from p2pclust.peer.core.events import Arrived, Leave, LinkChecked, Woken
from p2pclust.peer.core.messages import Ack, Gossip, MemberSync, Message, Ping, PingRequest, Refusal, Update
from p2pclust.peer.core.reports import Report
from p2pclust.peer.core.timing import PRESETS

TIMING = PRESETS["default"]


def claim(name: str, status: str, incarnation: int, by: str = "") -> Update:
    return Update(name, status, incarnation, f"{name}:1", f"store-{name}", by)


def knows(core: Core, *claims: Update, now: float = 0.0, source: str = "") -> list[Effect]:
    """Tell a core; by default each claim comes from the member that it is about."""
    effects: list[Effect] = []
    for one in claims:
        effects += core.step(now, Arrived(source or one.name, Gossip((one,))))
    return effects


def fleet_of(n: int) -> Core:
    """A core that sees everybody of its fleet alive."""
    core = alone(fleet=n, timing=TIMING)
    knows(core, *(claim(f"p{i}", "alive", 1) for i in range(2, n + 1)))
    return core


def until(core: Core, instant: float) -> list[tuple[float, Effect]]:
    """Let only this core's timers run."""
    effects: list[tuple[float, Effect]] = []
    while core.wake_at <= instant:
        now = core.wake_at
        effects += [(now, effect) for effect in core.step(now, Woken())]
    return effects


def sent(effects: list[Effect], kind: type[Message], to: str = "") -> list[Send]:
    return [e for e in effects if isinstance(e, Send) and isinstance(e.message, kind) and to in ("", e.to)]


# -- claims -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("held", "heard", "becomes"),
    [
        pytest.param(("alive", 1), ("suspect", 1), "suspect", id="suspect-overrides-alive-of-its-incarnation"),
        pytest.param(("alive", 2), ("suspect", 1), "alive", id="an-older-suspicion-is-nothing"),
        pytest.param(("suspect", 1), ("alive", 1), "suspect", id="alive-of-the-same-incarnation-does-not-help"),
        pytest.param(("suspect", 1), ("alive", 2), "alive", id="alive-of-a-higher-incarnation-refutes"),
        pytest.param(("alive", 1), ("dead", 1), "dead", id="dead-overrides-alive"),
        pytest.param(("suspect", 1), ("dead", 1), "dead", id="dead-overrides-suspect"),
        pytest.param(("dead", 1), ("alive", 1), "dead", id="dead-is-not-alive-again-by-itself"),
        pytest.param(("dead", 1), ("suspect", 1), "dead", id="dead-is-not-suspect-again"),
        pytest.param(("dead", 1), ("alive", 2), "alive", id="alive-of-a-higher-incarnation-overrides-dead"),
        pytest.param(("alive", 1), ("left", 1), "left", id="left"),
        pytest.param(("left", 1), ("dead", 1), "left", id="who-left-is-not-dead"),
        pytest.param(("left", 1), ("alive", 2), "alive", id="who-left-may-come-back"),
        pytest.param(("alive", 1), ("unknown", 9), "alive", id="nobody-can-be-made-unknown"),
        pytest.param(("alive", 1), ("asleep", 9), "alive", id="a-status-that-does-not-exist-is-ignored"),
    ],
)
def test_order_of_claims(held: tuple[str, int], heard: tuple[str, int], becomes: str) -> None:
    """Alive, suspect and confirm messages override one another by incarnation, then by rank.

    Reference: SWIM, section 4.2; the higher incarnation over "confirm" is Lifeguard's implementation (memberlist).
    """
    core = alone(fleet=4)
    knows(core, claim("p2", *held), source="p3")
    knows(core, claim("p2", *heard), source="p4")
    assert core.membership.status("p2") == becomes


def test_a_claim_about_a_stranger_is_ignored() -> None:
    """Only enrolled names are members. Reference: docs/peer/membership.md, "Membership"."""
    core = alone()
    knows(core, claim("stranger", "alive", 1), source="p2")
    assert "stranger" not in core.membership.members
    assert core.step(0.1, Arrived("stranger", Ping(1, ()))) == []


def test_only_the_suspect_itself_refutes() -> None:
    """The suspect raises its own incarnation and spreads that it is alive; nobody raises another's.

    Reference: SWIM, section 4.2.
    """
    suspect = alone("p2")
    effects = knows(suspect, claim("p2", "suspect", 1, by="p1"), source="p1")
    spread = [u for s in sent(effects, Gossip) for u in s.message.updates if u.name == "p2"]  # type: ignore[attr-defined]
    until(suspect, 0.1)
    rows = [e for e in effects if isinstance(e, Persist) and e.key == "incarnation"]
    assert [row.value for row in rows] == [b"2"]
    assert all((u.status, u.incarnation) == ("alive", 2) for u in spread)
    bystander = fleet_of(3)
    knows(bystander, claim("p2", "suspect", 1, by="p3"), source="p3")
    assert bystander.membership.members["p2"].incarnation == 1
    answer = bystander.step(0.2, Arrived("p3", Ping(5, ())))
    told = [u for s in sent(answer, Ack) for u in s.message.updates if u.name == "p2"]  # type: ignore[attr-defined]
    assert all((u.status, u.incarnation) == ("suspect", 1) for u in told)


def test_the_incarnation_is_on_disk_before_it_is_told() -> None:
    """A refutation that a crash took back would let the old claim bury the next life.

    Reference: `p2pclust/lab/simulation/checks/invariants.py`, S6 and S7.
    """
    suspect = alone("p2")
    effects = suspect.step(0.1, Arrived("p1", Ping(1, (claim("p2", "dead", 7),))))
    persisted = next(i for i, e in enumerate(effects) if isinstance(e, Persist) and e.value == b"8")
    told = [
        i for i, e in enumerate(effects)
        if isinstance(e, Send) and any(u.incarnation == 8 for u in getattr(e.message, "updates", ()))
    ]  # fmt: skip
    assert told
    assert persisted < min(told)


def test_who_has_left_does_not_refute() -> None:
    """Leaving is on purpose: the claim stands. Reference: docs/peer/membership.md, "Membership"."""
    core = fleet_of(3)
    goodbye = core.step(1.0, Leave())
    assert {s.to for s in sent(goodbye, Gossip)} == {"p2", "p3"}
    knows(core, claim("p1", "left", 1), source="p2", now=1.1)
    effects = core.step(1.2, Arrived("p2", Ping(3, ())))
    assert sent(effects, Ack)[0].message.updates[0].status == "left"  # type: ignore[attr-defined]


# -- suspicion --------------------------------------------------------------------------------------------------------


def test_a_suspicion_ends_dead() -> None:
    """A suspected member that does not refute within the timeout is declared faulty. Reference: SWIM, section 4.2."""
    core = fleet_of(5)
    knows(core, claim("p2", "suspect", 1, by="p1"), source="p3")
    longest = 4 * TIMING.suspicion_s(5)
    until(core, longest - 0.01)
    assert core.membership.status("p2") == "suspect"
    until(core, longest + 0.01)
    assert core.membership.status("p2") == "dead"


def test_a_suspicion_that_was_refuted_is_over() -> None:
    """The suspect's own claim ends it. Reference: SWIM, section 4.2."""
    core = fleet_of(5)
    knows(core, claim("p2", "suspect", 1, by="p1"), source="p3")
    knows(core, claim("p2", "alive", 2))
    while core.wake_at <= 4 * TIMING.suspicion_s(5) + 0.01:
        now = core.wake_at
        for ping in sent(core.step(now, Woken()), Ping):
            core.step(now, Arrived(ping.to, Ack(ping.message.seq, True, ())))  # type: ignore[attr-defined]
        assert core.membership.status("p2") == "alive"


@pytest.mark.parametrize(("confirmations", "factor"), [(0, 4.0), (1, 2.5), (2, 1.6226), (3, 1.0), (4, 1.0)])
def test_confirmations_shorten_the_suspicion(confirmations: int, factor: float) -> None:
    """Timeout = max(min, max - (max - min) log(C + 1) / log(K + 1)). Reference: Lifeguard, section IV-B."""
    core = fleet_of(8)
    knows(core, claim("p2", "suspect", 1, by="p1"), source="p3")
    for i in range(confirmations):
        knows(core, claim("p2", "suspect", 1, by=f"p{4 + i}"), source=f"p{4 + i}")
    ends_at = factor * TIMING.suspicion_s(8)
    until(core, ends_at - 0.01)
    assert core.membership.status("p2") == "suspect"
    until(core, ends_at + 0.01)
    assert core.membership.status("p2") == "dead"


def test_the_same_view_twice_is_one_confirmation() -> None:
    """Only independent suspicions count. Reference: Lifeguard, section IV-B."""
    core = fleet_of(8)
    for source in ("p3", "p4", "p5", "p6"):
        # By p1 itself, whose own probes are silent too.
        knows(core, claim("p2", "suspect", 1, by="p1"), source=source)  # one suspicion, told by four
    until(core, 4 * TIMING.suspicion_s(8) - 0.01)
    assert core.membership.status("p2") == "suspect"


def test_a_fleet_that_cannot_confirm_waits_the_shortest_time() -> None:
    """With nobody else to confirm, the longest time would only be lost. Reference: memberlist, `suspicion.go`."""
    core = fleet_of(2)
    knows(core, claim("p2", "suspect", 1, by="p1"), source="p2")
    until(core, TIMING.suspicion_s(2) + 0.01)
    assert core.membership.status("p2") == "dead"


@pytest.mark.parametrize("confirmed", [False, True])
def test_who_was_asleep_itself_gives_its_suspects_the_time_that_it_slept(*, confirmed: bool) -> None:
    """A sleeper hears no refutation. Reference: docs/peer/membership.md, "Membership"."""
    timing = TIMING.allowing(20.0)
    core = alone(fleet=5, timing=timing)
    knows(core, *(claim(f"p{i}", "alive", 1) for i in range(2, 6)))
    knows(core, claim("p2", "suspect", 1, by="p3"), source="p3")
    shortest, slept = timing.suspicion_s(5), 100.0
    core.step(slept, Woken())
    if confirmed:
        for witness in ("p4", "p5"):
            knows(core, claim("p2", "suspect", 1, by=witness), source=witness, now=slept)
    assert core.membership.status("p2") == "suspect"
    until(core, slept + 0.9 * shortest)
    assert core.membership.status("p2") == "suspect"
    until(core, slept + 5 * shortest)
    assert core.membership.status("p2") == "dead"


def test_who_stood_still_itself_hears_a_refutation_before_it_judges() -> None:
    """The next message in the queue may refute. Reference: docs/peer/membership.md, "Membership"."""
    core = fleet_of(4)
    knows(core, claim("p2", "suspect", 1, by="p3"), source="p3", now=0.1)
    stood_still = 6 * TIMING.suspicion_s(4)  # no suspicion lasts so long
    core.step(stood_still, Arrived("p4", Ping(1, ())))
    assert core.membership.status("p2") == "suspect"
    knows(core, claim("p2", "alive", 2), source="p2", now=stood_still)
    assert core.membership.status("p2") == "alive"


def test_the_suspect_is_told() -> None:
    """Whoever holds a suspicion sends it to the suspect at once, at a third and at two thirds of its shortest duration.

    Reference: docs/peer/membership.md, "Membership"; it widens Lifeguard's buddy system (section IV-C).
    """
    core = fleet_of(5)
    shortest = TIMING.suspicion_s(5)
    told = [0.0 for _ in sent(knows(core, claim("p2", "suspect", 1, by="p3"), source="p3"), Gossip, "p2")]
    assert told
    later = [
        now for now, e in until(core, shortest)
        if isinstance(e, Send) and e.to == "p2" and e.message == Gossip((claim("p2", "suspect", 1, by="p3"),))
    ]  # fmt: skip
    assert any(abs(now - shortest / 3) < 1e-9 for now in later)
    assert any(abs(now - 2 * shortest / 3) < 1e-9 for now in later)


def test_a_ping_tells_the_receiver_what_is_held_against_it() -> None:
    """A suspected member learns of it with the next ping. Reference: Lifeguard, section IV-C (buddy system)."""
    core = fleet_of(3)
    knows(core, claim("p2", "dead", 1), source="p3")
    effects = core.step(20.0, Arrived("p2", Ping(1, ())))
    assert claim("p2", "dead", 1) in sent(effects, Ack, "p2")[0].message.updates  # type: ignore[attr-defined]


# -- probing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 5, 12])
def test_round_robin_reaches_each_member_within_2n_minus_1_periods(n: int) -> None:
    """The time between two probes of one member is at most 2n - 1 periods. Reference: SWIM, section 4.3."""
    core, members = fleet_of(n + 1), [f"p{i}" for i in range(2, n + 2)]
    targets: list[str] = []
    now = 0.0
    while len(targets) < 8 * n:
        now = core.wake_at
        for effect in core.step(now, Woken()):
            if isinstance(effect, Send) and isinstance(effect.message, Ping):
                targets.append(effect.to)
                core.step(now, Arrived(effect.to, Ack(effect.message.seq, True, ())))
    for member in members:
        at = [i for i, target in enumerate(targets) if target == member]
        assert at[0] <= n - 1, "everybody is probed in the first turn"
        assert all(b - a <= 2 * n - 1 for a, b in pairwise(at))


def test_helpers_are_asked_before_anybody_is_suspected() -> None:
    """Without a direct answer, k members are asked to probe; only then the member is suspected.

    Reference: SWIM, section 3.1 and 4.2.
    """
    core = fleet_of(5)
    effects = until(core, 1.5)
    asked = [
        (now, e.message.target) for now, e in effects if isinstance(e, Send) and isinstance(e.message, PingRequest)
    ]  # type: ignore[attr-defined]
    suspected = [
        (now, e.fields["member"]) for now, e in effects
        if isinstance(e, Report) and e.verb == "member" and e.fields["status"] == "suspect"
    ]  # fmt: skip
    target = suspected[0][1]
    helpers = [now for now, name in asked if name == target]
    assert len(helpers) == 3
    assert max(helpers) < suspected[0][0]


@pytest.mark.parametrize("word", ["direct", "helper"])
def test_an_answer_however_it_came_clears_the_probe(word: str) -> None:
    """An ack, direct or through a helper, ends the probe. Reference: SWIM, section 3.1."""
    core = fleet_of(5)
    ping = next(e for _, e in until(core, 0.3) if isinstance(e, Send) and isinstance(e.message, Ping))
    source = ping.to if word == "direct" else next(f"p{i}" for i in range(2, 6) if f"p{i}" != ping.to)
    core.step(0.6, Arrived(source, Ack(ping.message.seq, True, ())))  # type: ignore[attr-defined]
    until(core, 0.999)
    assert core.membership.status(ping.to) == "alive"


def test_a_helper_answers_for_the_target_or_says_that_it_could_not() -> None:
    """The helper relays the ack, or a nack before the prober's verdict.

    Reference: SWIM 3.1; Lifeguard, section IV-A.
    """
    core = fleet_of(4)
    effects = core.step(0.1, Arrived("p2", PingRequest(77, "p3", ())))
    ping = sent(effects, Ping, "p3")[0].message
    effects = core.step(0.2, Arrived("p3", Ack(ping.seq, True, ())))  # type: ignore[attr-defined]
    assert [(s.message.seq, s.message.reached) for s in sent(effects, Ack, "p2")] == [(77, True)]  # type: ignore[attr-defined]
    core.step(0.3, Arrived("p2", PingRequest(78, "p3", ())))
    nacks = [e.message for _, e in until(core, 0.7) if isinstance(e, Send) and isinstance(e.message, Ack)]
    assert [(m.seq, m.reached) for m in nacks] == [(78, False)]


def _verdict_after_silence(*, nacks: bool) -> float:
    """How long the next probe waits for its direct answer after one that nobody answered."""
    core = fleet_of(5)
    now = 0.0
    while "suspect" not in [core.membership.status(f"p{i}") for i in range(2, 6)]:
        now = core.wake_at
        for e in core.step(now, Woken()):
            if nacks and isinstance(e, Send) and isinstance(e.message, PingRequest):
                core.step(now, Arrived(e.to, Ack(e.message.seq, False, ())))
    pinged_at, target = 0.0, ""
    while True:
        now = core.wake_at
        for e in core.step(now, Woken()):
            if isinstance(e, Send) and isinstance(e.message, Ping) and not target:
                pinged_at, target = now, e.to
            if isinstance(e, CheckLink) and e.peer == target and target:
                return now - pinged_at


def test_local_health_slows_a_peer_that_hears_nobody() -> None:
    """Missing nacks hint that this peer itself is slow: its timeouts are multiplied by 1 + LHM.

    Reference: Lifeguard, section IV-A.
    """
    assert _verdict_after_silence(nacks=True) == pytest.approx(TIMING.probe_timeout_s)
    assert _verdict_after_silence(nacks=False) == pytest.approx(2 * TIMING.probe_timeout_s)


# -- refused connections ----------------------------------------------------------------------------------------------


def test_refused_by_two_is_dead() -> None:
    """A TCP connect refused, seen by two peers, is death at once. Reference: docs/peer/membership.md, "Membership"."""
    core = fleet_of(5)
    effects = core.step(1.0, LinkChecked("p2", True))
    assert core.membership.status("p2") == "alive"
    assert {s.to for s in sent(effects, Refusal)} == {"p3", "p4", "p5"}
    core.step(1.1, Arrived("p3", Refusal("p2", 1)))
    assert core.membership.status("p2") == "dead"


def test_refused_seen_elsewhere_is_looked_at() -> None:
    """One foreign word is not enough; the peer looks for itself. Reference: docs/peer/membership.md, "Membership"."""
    core = fleet_of(5)
    effects = core.step(1.0, Arrived("p3", Refusal("p2", 1)))
    assert CheckLink("p2") in effects
    core.step(1.1, Arrived("p3", Refusal("p2", 1)))  # the same word again
    assert core.membership.status("p2") == "alive"


def test_two_refusals_that_are_far_apart_are_no_death() -> None:
    """The peer may have been restarted twice, and hung in between. Reference: docs/peer/membership.md, "Membership"."""
    core = fleet_of(5)
    core.step(1.0, LinkChecked("p2", True))
    later = 1.1 + core.membership.suspicions.shortest_s
    core.step(later, Arrived("p2", Gossip(())))
    core.step(later, Arrived("p3", Refusal("p2", 1)))
    assert core.membership.status("p2") == "alive"


@pytest.mark.parametrize(("fleet", "status"), [(2, "dead"), (3, "dead"), (4, "alive")])
def test_in_a_fleet_of_up_to_three_one_is_enough(fleet: int, status: str) -> None:
    """One observation if N <= 3. Reference: docs/peer/membership.md, "Membership"."""
    core = fleet_of(fleet)
    core.step(1.0, LinkChecked("p2", True))
    assert core.membership.status("p2") == status


def test_a_refusal_of_a_former_life_is_nothing() -> None:
    """The word is about one incarnation. Reference: docs/peer/membership.md, "Membership"."""
    core = fleet_of(3)
    knows(core, claim("p2", "alive", 4))
    core.step(1.0, Arrived("p3", Refusal("p2", 1)))
    assert core.membership.status("p2") == "alive"


def test_a_connect_that_is_not_refused_proves_nothing() -> None:
    """Silence goes through suspicion. Reference: docs/peer/membership.md, "Membership"."""
    core = fleet_of(3)
    core.step(1.0, LinkChecked("p2", False))
    assert core.membership.status("p2") == "alive"


# -- passing it on -----------------------------------------------------------------------------------------------------


def test_who_was_told_of_a_few_only_asks_for_the_others_soon_and_then_seldom() -> None:
    """Otherwise a peer with two addresses to join would hear of the rest after a whole sync period."""
    asked = {}
    for known in ({"p2": "p2:1"}, {f"p{i}": f"p{i}:1" for i in range(2, 6)}):
        core = alone(fleet=5, timing=TIMING, join=known)
        knows(core, claim("p2", "alive", 1))
        asked[len(known)] = [now for now, effect in until(core, 40.0) if sent([effect], MemberSync)]
        assert core.membership._sync_s == TIMING.sync_period_s, "as seldom as ever in the end"
    few, all_ = asked[1], asked[4]
    assert few[0] < 2 * TIMING.probe_period_s
    assert few[1] < 6 * TIMING.probe_period_s
    assert all_[0] > TIMING.sync_period_s / 2.1


def test_whoever_knew_nobody_learns_the_whole_table() -> None:
    """A table that asks is answered with the own one; an answer is not.

    Reference: docs/peer/membership.md, "Membership" (push-pull).
    """
    core = fleet_of(3)
    effects = core.step(0.1, Arrived("p2", MemberSync(False, ())))
    answers = sent(effects, MemberSync, "p2")
    assert [(s.message.answer, [u.name for u in s.message.updates]) for s in answers] == [  # type: ignore[attr-defined]
        (True, ["p1", "p2", "p3"])
    ]
    assert not sent(core.step(0.2, Arrived("p2", MemberSync(True, ()))), MemberSync)


def test_news_is_passed_on_a_few_times_only() -> None:
    """Each update is piggybacked some lambda log n times. Reference: SWIM, section 4.1."""
    core = alone(fleet=3, timing=replace(TIMING, sync_period_s=1e6, dead_probe_s=1e6))
    knows(core, claim("p2", "alive", 1), claim("p3", "alive", 1))
    until(core, 0.9)
    knows(core, claim("p3", "alive", 2), now=1.0)
    told = [
        u for _, e in until(core, 3.0) if isinstance(e, Send)
        for u in getattr(e.message, "updates", ()) if (u.name, u.incarnation, u.status) == ("p3", 2, "alive")
    ]  # fmt: skip
    assert 1 <= len(told) <= 4


def test_a_life_begins_with_its_incarnation_on_disk() -> None:
    """The first effect of a life stores its incarnation. Reference: `p2pclust/lab/simulation/checks/invariants.py`, S7."""
    core = alone(stored=StoreContents("store-p1", incarnation=6))
    effects = core.step(0.1, Arrived("p2", Ping(1, ())))
    assert sent(effects, Ack)[0].message.updates[0].incarnation == 7  # type: ignore[attr-defined]
