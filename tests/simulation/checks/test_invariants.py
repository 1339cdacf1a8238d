"""The watcher itself: each invariant is broken by hand once, because one that never fires proves nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

import msgpack
import numpy as np
import pytest

from p2pclust.lab.simulation.checks.agreement import Agreement
from p2pclust.lab.simulation.checks.invariants import Invariants
from p2pclust.lab.simulation.checks.jobs import Promises, Waits
from p2pclust.lab.simulation.world.network import Conditions, Network
from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.lab.simulation.world.world import World
from p2pclust.peer.core.context import TimerKey
from p2pclust.peer.core.effects import Compute, Persist, Send
from p2pclust.peer.core.events import Submit
from p2pclust.peer.core.job_messages import (
    Adopted,
    Close,
    Ended,
    HeartbeatReply,
    HeldState,
    Mix,
    PreVoteReply,
    RequestVote,
    StaleTerm,
    Synced,
    VoteReply,
)  # fmt: skip
from p2pclust.peer.core.ledger import ENDED
from p2pclust.peer.core.messages import (
    FactDelta,
    FactDigest,
    Gossip,
    MemberSync,
    Message,
    Ping,
    RosterOffer,
    RosterRequest,
    Update,
)  # fmt: skip
from p2pclust.peer.core.reports import JobAccepted, JobBegun, JobFinished, JobSubmitted
from p2pclust.peer.core.round_reports import Elected
from p2pclust.peer.core.tasks import CombineRound, FinishRound, Ref, RenewKeys, SumPadded, TermToken
from p2pclust.peer.core.timing import Limits, preset
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import JobState, RoundRecord
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.secure.secured import Maker

ONE, TWO = b"1" * 32, b"2" * 32


class Stage:
    """A fleet of three with a job in the middle of its rounds, and a pen to forge what its peers do."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.watcher = Invariants()
        locals_ = {name: Local(rng.normal(size=(8, 2))) for name in ("a", "b", "c")}
        network = Network(Conditions(), np.random.default_rng(1))
        self.world = World(locals_, network, preset("fast"), Limits(), np.random.default_rng(2), (self.watcher,))
        for name in self.world.peers:
            self.world.start(name)
        assert self.world.run_until(10.0, lambda: all(len(p.core.membership.alive()) == 3 for p in self.peers))
        job = cluster_job("llf-cm", n_clusters=2, tol=0.0, max_rounds=10**6, suppress_singletons=False)
        self.world.step(self.world.peers["a"], Submit(msgpack.packb(job.to_dict())))
        assert self.world.run_until(20.0, lambda: self._round() > 5)
        (self.job,) = self.world.peers["a"].core.jobs.jobs  # type: ignore[union-attr]

    @property
    def agreement(self) -> Agreement:
        return self.watcher._agreement(self.job)

    @property
    def peers(self) -> list[Peer]:
        return list(self.world.peers.values())

    def _round(self) -> int:
        return max((job.ledger.register.round for p in self.peers for job in p.core.jobs.jobs.values()), default=0)  # type: ignore[union-attr]

    def does(self, name: str, effect: object) -> None:
        self.watcher.effect(self.world, self.world.peers[name], effect)  # type: ignore[arg-type]

    def adopts(self, name: str, term: int, round_: int, digest: bytes, *, finished: bool = False) -> None:
        """Write the register as `name` would, and sync it."""
        row = msgpack.packb([term, round_, digest, 1, b"x", finished, finished])
        self.does(name, Persist("register", self.job, row))
        peer = self.world.peers[name]
        peer.disk.write("register", self.job, row)
        peer.disk.sync()
        self.watcher.synced(self.world, peer)

    def breaks(self, name: str) -> AbstractContextManager[object]:
        return pytest.raises(AssertionError, match=f"^{name}: ")


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_s1_two_aggregators_of_one_term(stage: Stage) -> None:
    term, name = next(iter(stage.agreement._aggregators.items()))
    other = "a" if name != "a" else "b"
    with stage.breaks("S1"):
        stage.does(other, Elected(stage.job, None, term, 0, votes=2, of=3))


def test_s1_an_aggregator_without_votes_on_disk(stage: Stage) -> None:
    with stage.breaks("S1"):
        stage.does("a", Elected(stage.job, None, 99, 0, votes=2, of=3))


def test_s2_a_peer_in_a_sum_twice(stage: Stage) -> None:
    task = CombineRound(b"", 3, Ref(ONE, 32, b""), (((0, 1), None), ((2,), None), ((0,), None)))  # type: ignore[arg-type]
    with stage.breaks("S2"):
        stage.does("a", Compute(TermToken(stage.job, "combine", 1), task))


def test_s3_two_majorities_that_are_not_of_one_line(stage: Stage) -> None:
    stage.adopts("a", 50, 100, ONE)
    stage.adopts("b", 51, 100, TWO)
    with stage.breaks("S3"):
        stage.adopts("c", 51, 100, TWO)


def test_s4_two_states_of_one_term_and_round(stage: Stage) -> None:
    stage.adopts("a", 50, 100, ONE)
    with stage.breaks("S4"):
        stage.adopts("b", 50, 100, TWO)


def test_s5_two_ends(stage: Stage) -> None:
    stage.agreement._final = ONE
    with stage.breaks("S5"):
        stage.does("a", JobFinished(stage.job, None, 1, 1, TWO.hex()))


def test_s6_a_vote_and_an_adoption_that_are_not_on_disk(stage: Stage) -> None:
    store_id = stage.world.peers["a"].disk.store_id
    with stage.breaks("S6"):
        stage.does("a", Send("b", VoteReply(stage.job, 99, True, store_id)))
    with stage.breaks("S6"):
        stage.does("a", Send("b", Adopted(stage.job, 99, 9, ONE, store_id, "", b"", 0, ())))


@pytest.mark.parametrize(
    "told",
    [
        lambda job, store: RequestVote(job, 99, 1, 1),
        lambda job, store: HeartbeatReply(job, 99, 99, 9, store, False, 0),
        lambda job, store: HeldState(job, 99, 99, 9, ONE, 32, ()),
        lambda job, store: Close(job, 99, 9, ONE, 32, ()),
        lambda job, store: Synced("job-of-nobody"),
        lambda job, store: Ping(1, (Update("a", "alive", 999, "a:1", store, ""),)),
        lambda job, store: Gossip((Update("a", "alive", 999, "a:1", store, ""),)),
        lambda job, store: FactDelta("a", 0, (f"cancel/{job}",), (1,), (b"admin",)),
        lambda job, store: StaleTerm(job, 99),
        lambda job, store: PreVoteReply(job, 98, False, 99, store),
        lambda job, store: Mix(job, 99, b"\7", 0, 0, ONE, 0, 0, 0, 0, ()),
        lambda job, store: Ended(job),
        lambda job, store: FactDigest(False, (), (), (), 2),
        lambda job, store: MemberSync(False, (), 2),
        lambda job, store: RosterOffer(2),
        lambda job, store: RosterRequest(2),
    ],
    ids=[
        "own vote",
        "register",
        "offered register",
        "end",
        "document",
        "incarnation",
        "refutation",
        "cancel",
        "term",
        "term of a refusal",
        "epoch",
        "tombstone",
        "serial of facts",
        "serial of members",
        "serial offered",
        "serial that is newest here",
    ],
)
def test_s6_whatever_a_message_speaks_of_is_on_disk(stage: Stage, told: Callable[[str, str], Message]) -> None:
    with stage.breaks("S6"):
        stage.does("a", Send("b", told(stage.job, stage.world.peers["a"].disk.store_id)))


def test_s6_a_cancel_that_was_on_disk_once_may_come_back_from_others(stage: Stage) -> None:
    """Its row is deleted with the job, or is lost with the store."""
    first, again = (FactDelta("a", 0, (f"cancel/{stage.job}",), (version,), (b"admin",)) for version in (1, 2))
    disk = stage.world.peers["a"].disk
    disk.write("cancel", stage.job, b"admin")
    disk.sync()
    stage.does("a", Send("b", first))
    disk.write("cancel", stage.job, None)
    disk.sync()
    stage.does("a", Send("b", again))
    with stage.breaks("S6"):
        stage.does("a", Send("b", FactDelta("a", 0, ("cancel/job-2",), (3,), (b"admin",))))


def test_s9_votes_adoptions_and_contributions_of_revoked_peers(stage: Stage) -> None:
    core = stage.world.peers["a"].core
    assert core is not None
    for name in ("a", "b"):
        stage.does(name, Persist("ballot", stage.job, msgpack.packb([60, "a"])))
    stage.agreement._adopted[60, ONE] = {"a": None, "b": None}
    task = CombineRound(b"", 3, Ref(ONE, 32, b""), (((0,), Ref(TWO, 32, b"")),))
    stage.does("a", Elected(stage.job, None, 60, 0, votes=2, of=3))
    stage.does("a", Compute(TermToken(stage.job, "combine", 60), task))
    core._ctx.barred["b"] = None
    with stage.breaks("S10"):
        stage.does("a", Elected(stage.job, None, 60, 0, votes=2, of=3))
    with stage.breaks("S10"):
        stage.does("a", Compute(TermToken(stage.job, "combine", 60), task))
    brought = replace(task, contributions=(((1,), Ref(TWO, 32, b"")),))
    with stage.breaks("S10"):
        stage.does("a", Compute(TermToken(stage.job, "combine", 60), brought))


def test_s6_an_end_that_is_not_on_disk(stage: Stage) -> None:
    with stage.breaks("S6"):
        stage.does("a", JobFinished(stage.job, None, 1, 1, ONE.hex()))


def test_s7_incarnation_term_and_register_never_fall(stage: Stage) -> None:
    with stage.breaks("S7"):
        stage.does("a", Persist("self", "incarnation", b"0"))
    stage.does("a", Persist("ballot", stage.job, msgpack.packb([60, "a"])))
    with stage.breaks("S7"):
        stage.does("a", Persist("ballot", stage.job, msgpack.packb([59, "a"])))
    with stage.breaks("S7"):
        stage.adopts("a", 59, 10**6, ONE)
    stage.adopts("b", 50, 100, ONE)
    with stage.breaks("S7"):
        stage.adopts("b", 50, 99, ONE)


def test_s8_an_end_before_a_majority_has_it(stage: Stage) -> None:
    stage.adopts("a", 50, 100, ONE, finished=True)
    with stage.breaks("S8"):
        stage.does("a", JobFinished(stage.job, None, 1, 1, ONE.hex()))


def test_l5_a_peer_that_waits_without_a_timer(stage: Stage) -> None:
    waits, peer = Waits(), stage.world.peers["a"]
    waits.started(stage.world, peer)
    assert peer.core is not None
    waits.stepped(stage.world, peer)
    for key in [key for key in peer.core.timers._at if key[0] == "job"]:
        peer.core.timers.cancel(key)
    assert peer.core.wake_at < float("inf"), "membership has timers, but they do nothing for the job"
    with stage.breaks("L5"):
        waits.stepped(stage.world, peer)


@pytest.mark.parametrize("timer", [("fact", "sync"), ("member", "sync"), ("member", "probe"), ("member", "dead")])
def test_l5_tables_are_compared_as_long_as_a_peer_runs(stage: Stage, timer: TimerKey) -> None:
    waits, peer = Waits(), stage.world.peers["a"]
    waits.started(stage.world, peer)
    assert peer.core is not None
    peer.core.timers.cancel(timer)
    with pytest.raises(AssertionError, match=f"^L5: a waits without its timer {' '.join(timer)}"):
        waits.stepped(stage.world, peer)


def test_l5_a_submission_and_a_roster_that_are_asked_for(stage: Stage) -> None:
    waits, peer = Waits(), stage.world.peers["a"]
    waits.started(stage.world, peer)
    assert peer.core is not None
    waits.effect(stage.world, peer, JobSubmitted(stage.job, ["a", "b", "c"], None, None))
    with pytest.raises(AssertionError, match=r"^L5: a waits without its timer submit job-"):
        waits.stepped(stage.world, peer)
    waits.effect(stage.world, peer, JobAccepted(job=stage.job))
    waits.stepped(stage.world, peer)
    peer.core.enrolment._asked = "b"
    with pytest.raises(AssertionError, match=r"^L5: a waits without its timer roster ask"):
        waits.stepped(stage.world, peer)


def test_s13_a_job_is_accepted_that_one_peer_has(stage: Stage) -> None:
    accepted, data = Promises(), stage.world.peers["a"].disk.read("job", stage.job)
    assert data is not None

    def stored(name: str, store: str = "") -> None:
        peer = stage.world.peers[name]
        before, peer.disk.store_id = peer.disk.store_id, store or peer.disk.store_id
        accepted.effect(stage.world, peer, Persist("job", stage.job, data))
        accepted.synced(stage.world, peer)
        peer.disk.store_id = before

    stored("a")
    accepted.effect(stage.world, stage.world.peers["b"], Persist("job", stage.job, data))
    accepted.crashed(stage.world, stage.world.peers["b"], 1)
    stored("c", "another store than at submission")
    with pytest.raises(AssertionError, match=r"^S13: a reports job-.* as accepted, and only a has it"):
        accepted.effect(stage.world, stage.world.peers["a"], JobAccepted(job=stage.job))
    stored("c")
    accepted.effect(stage.world, stage.world.peers["a"], JobAccepted(job=stage.job))
    stage.world.peers["a"].core._ctx.barred["c"] = None  # type: ignore[union-attr]
    with pytest.raises(AssertionError, match=r"^S13: "):
        accepted.effect(stage.world, stage.world.peers["a"], JobAccepted(job=stage.job))


def test_s14_a_record_that_does_not_name_a_peer(stage: Stage) -> None:
    peer = stage.world.peers["a"]
    assert peer.core is not None
    job = peer.core.jobs.jobs[stage.job]
    assert job.ledger.register.ref is not None
    Promises().effect(stage.world, peer, JobFinished(stage.job, None, 1, 1, ""))
    state = JobState.decode(job.ledger.register.ref.payload or b"")
    short = replace(state, log=(*state.log[:-1], RoundRecord(state.stage, (0,), {2: "left out: dead"})))
    job.ledger.register = replace(job.ledger.register, ref=Ref(ONE, 1, short.encode()))
    with pytest.raises(AssertionError, match=r"^S14: round \d+ of job-.* does not say what b did"):
        Promises().effect(stage.world, peer, JobFinished(stage.job, None, 1, 1, ""))


def test_s2_and_s10_of_padded_sums_and_of_rounds_that_another_aggregator_began(stage: Stage) -> None:
    """None of them rests on a revoked peer, on a peer twice, or on a state that no majority has held."""
    core, given, maker = stage.world.peers["a"].core, Ref(TWO, 32, b""), Maker(0, 60, 2)
    assert core is not None
    state = Ref(ONE, 32, b"")

    def goes_on(task: SumPadded | FinishRound | RenewKeys) -> None:
        stage.does("a", Compute(TermToken(stage.job, task.kind, 60), task))

    total = SumPadded(b"", 3, state, 0, (((0,), given), ((1,), given)))
    finish = FinishRound(b"", 3, state, 0b011, maker, ((1, given), (2, given)))
    renew = RenewKeys(b"", 3, state)
    goes_on(renew)  # of the register that a new aggregator found
    for task in (total, finish):
        with stage.breaks("S10"):
            goes_on(task)
    stage.agreement._adopted[60, ONE] = {"a": None}
    for task in (total, finish, renew):
        with stage.breaks("S10"):
            goes_on(task)
    stage.agreement._adopted[60, ONE]["b"] = None
    for task in (total, finish, renew):
        goes_on(task)
    with stage.breaks("S2"):
        goes_on(replace(total, contributions=(*total.contributions, ((1,), given))))
    with stage.breaks("S2"):
        goes_on(replace(finish, removed=((1, given), (1, given))))
    core._ctx.barred["b"] = None
    for task in (total, finish, renew):
        with stage.breaks("S10"):
            goes_on(task)


def test_a_broken_invariant_tells_the_story_before_it(stage: Stage) -> None:
    with pytest.raises(AssertionError) as caught:
        stage.does("a", Elected(stage.job, None, 99, 0, votes=2, of=3))
    story = str(caught.value).splitlines()[1:]
    assert any("elected" in line for line in story)


def test_s11_a_register_that_names_a_blob_which_is_not_here(stage: Stage) -> None:
    row = msgpack.packb([50, 100, ONE, 1, None, False, False])
    with stage.breaks("S11"):
        stage.does("a", Persist("register", stage.job, row))
    data = b"a state in two chunks"
    digest = hashlib.blake2b(data, digest_size=32).digest()
    stage.world.peers["a"].disk.store_blob(digest, data, 11)
    stage.does("a", Persist("register", stage.job, msgpack.packb([50, 100, digest, len(data), None, False, False])))
    stage.world.peers["b"].disk.store_blob(digest, data[:-1] + b"!", 11)
    with stage.breaks("S11"):
        stage.does("b", Persist("register", stage.job, msgpack.packb([50, 101, digest, len(data), None, False, False])))


def test_s9_what_a_store_deleted_is_not_written_again(stage: Stage) -> None:
    endings, peer = Promises(), stage.world.peers["a"]
    endings.effect(stage.world, peer, JobBegun(stage.job, None, ["a", "b", "c"]))
    with pytest.raises(AssertionError, match=r"^S9: a deletes the ballot of .* unburied"):
        endings.effect(stage.world, peer, Persist("ballot", stage.job, None))
    peer.disk.write(ENDED, stage.job, b"")
    endings.effect(stage.world, peer, Persist("ballot", stage.job, None))
    endings.synced(stage.world, peer)
    with pytest.raises(AssertionError, match=r"^S9: a writes the ballot of .* once more"):
        endings.effect(stage.world, peer, Persist("ballot", stage.job, b"row"))
    with pytest.raises(AssertionError, match=r"^S9: a begins .* once more"):
        endings.effect(stage.world, peer, JobBegun(stage.job, None, ["a", "b", "c"]))
    endings.effect(stage.world, peer, JobFinished(stage.job, None, 1, 2, "00"))
    with pytest.raises(AssertionError, match=r"^S9: .* ends a second time at a, with other bits"):
        endings.effect(stage.world, peer, JobFinished(stage.job, None, 1, 2, "11"))


def test_a_store_that_was_put_back_may_hold_less(stage: Stage) -> None:
    peer = stage.world.peers["a"]
    image = peer.disk.image()
    stage.adopts("a", 60, 200, ONE)
    with stage.breaks("S7"):
        stage.adopts("a", 55, 100, TWO)
    stage.world.crash("a")
    stage.world.restore("a", image)
    stage.adopts("a", 55, 100, TWO)
