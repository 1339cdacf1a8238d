"""A liar that publishes turns of a repeated job of its own making; and peers that were away, which believe true ones."""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b
from types import SimpleNamespace

import msgpack
import numpy as np
import pytest
from tests.liars.lab import certificate, fleet, inject, signed, submit

from p2pclust.lab.simulation.world.network import Conditions
from p2pclust.lab.simulation.world.world import Observer
from p2pclust.peer.core.document import CENSUS, Document, Turn
from p2pclust.peer.core.effects import Send
from p2pclust.peer.core.evidence import Evidence, Majority
from p2pclust.peer.core.job_messages import AskEvidence, Heartbeat, ShowEvidence
from p2pclust.peer.core.spread.facts import JOB, SERIES
from p2pclust.peer.core.spread.series import census_of
from p2pclust.peer.core.tasks import Ref
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.workspace import digest_of

pytestmark = pytest.mark.slow

_LIAR = "p4"
_HONEST = ("p0", "p1", "p2", "p3")
_EVERY_S = 4.0


class _Asked(Observer):
    """Counts the questions for evidence of honest peers to each other."""

    watches = (Send,)

    def __init__(self):
        self.n = 0

    def effect(self, world, peer, effect):
        self.n += isinstance(effect.message, AskEvidence) and effect.to != _LIAR


class _Trial:
    """Five peers, the last of which lies, and one series."""

    def __init__(self, *, n=5, liar=_LIAR, every_s=_EVERY_S, max_rounds=3):
        rng = np.random.default_rng(5)
        rows = [rng.normal(20 * (k % 3), 5, (40, 2)) for k in range(n)]
        self.world, self.ears = fleet(rows, me=liar, timing="fast")
        job = cluster_job("llf-cm", n_clusters=3, init="uniform", tol=0.0, max_rounds=max_rounds)
        submit(self.world, job, at="p1", every_s=every_s, collect="star")
        (self.series,) = {turn.series for turn in self.turns("p1")}

    def turns(self, name):
        """The turns that a peer keeps, oldest first."""
        core = self.world.peers[name].core
        found = [d for d in core.jobs.table.documents.values() if d.turn is not None and not d.census]
        return sorted(found, key=lambda document: document.number)

    def newest(self, name="p0"):
        return self.turns(name)[-1]

    def ended(self, name, number):
        core = self.world.peers[name].core
        turns = self.turns(name) if core is not None else []
        return any(d.number == number and core.jobs.table.ended(d.id) for d in turns)

    def until_ended(self, number, *names):
        reached = lambda: all(self.ended(name, number) for name in names or _HONEST)  # noqa: E731
        assert self.world.run_until(self.world.now + 90.0, reached), (number, {n: self.newest(n).number for n in names})

    def publish(self, data, key="", wait_s=1.0):
        """The liar publishes a document as a fact of its own."""
        self.world.peers[_LIAR].core.facts.publish(key or SERIES + self.series, data)
        self.world.run_until(self.world.now + wait_s)

    def complaints(self):
        """What honest peers report about documents and evidence."""
        return [(verb, fields) for _, _, verb, fields in self.ears.reports if verb in ("bad-evidence", "bad-document")]

    def running(self, job):
        jobs = [self.world.peers[name].core.jobs.jobs.get(job) for name in _HONEST]
        return all(job is not None and job.ledger.register.round >= 2 for job in jobs)

    def begun(self):
        """The jobs that honest peers have begun."""
        return {str(fields["job"]) for _, name, verb, fields in self.ears.reports if verb == "job" and name != _LIAR}


def _made_up(of: Document, number: int, roster=None, **changed) -> Document:
    """A turn of the liar's own making."""
    stores = dict(zip(of.roster, of.store_ids, strict=True))
    names = tuple(sorted(roster or of.roster))
    turn = Turn(of.series, number, of.turn.fixed)
    changed = {"submitter": _LIAR, "nonce": "made-up"} | changed
    return replace(of, turn=turn, roster=names, store_ids=tuple(stores[name] for name in names), **changed)


@pytest.mark.parametrize("roster", [(_LIAR,), ("p0", _LIAR), None], ids=["alone", "two", "all"])
@pytest.mark.parametrize("steps", [0, 1, 1000], ids=["same", "next", "far"])
def test_a_turn_that_no_census_agreed_on_replaces_nothing(roster, steps):
    trial = _Trial()
    trial.until_ended(0)
    last = trial.newest()
    made = _made_up(last, steps, roster, treatment=replace(last.treatment, aggregator=_LIAR))
    trial.publish(made.encode())
    assert made.id not in trial.begun()
    trial.until_ended(1)
    trial.until_ended(2)
    assert made.id not in trial.begun()


def test_a_running_turn_is_not_replaced():
    trial = _Trial(max_rounds=400)
    running = trial.newest()
    assert trial.world.run_until(trial.world.now + 30.0, lambda: trial.running(running.id))
    trial.publish(_made_up(running, 7, (_LIAR,)).encode())
    assert all(running.id in trial.world.peers[name].core.jobs.jobs for name in _HONEST)


@pytest.mark.parametrize("repeated", [True, False], ids=["of a series", "without a turn"])
def test_a_census_cannot_be_published(repeated):
    """Its states are not checked; and without a turn the peer that was elected in it once failed an assertion, and ended."""
    trial = _Trial(every_s=60.0)
    trial.until_ended(0)
    last, begun = trial.newest(), trial.begun()
    made = _made_up(last, 1, ("p0", "p1", _LIAR))
    if not repeated:
        made = replace(made, turn=None, treatment=replace(made.treatment, every_s=0.0))
    data = msgpack.packb([CENSUS, *msgpack.unpackb(made.encode())[1:]])
    key = SERIES + trial.series if repeated else f"{JOB}job-{blake2b(data, digest_size=16).hexdigest()}"
    trial.publish(data, key, wait_s=10.0)
    assert trial.begun() == begun


# -- and true ones are believed ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("missed", [1, 3])
@pytest.mark.parametrize("lost", [False, True], ids=["store", "lost store"])
def test_a_peer_that_was_away_takes_part_again(missed, lost):
    trial = _Trial()
    trial.until_ended(0)
    trial.world.crash("p2")
    others = [name for name in _HONEST if name != "p2"]
    trial.until_ended(missed, *others)
    if lost:
        trial.world.wipe("p2")
    trial.world.start("p2")
    trial.until_ended(missed + 2, *others)
    assert trial.newest("p2").number >= missed + 1
    trial.until_ended(trial.newest("p0").number, *_HONEST)


@pytest.mark.parametrize("number", [0, 1])
def test_a_peer_that_lost_its_store_is_not_deceived_about_the_first_turn(number):
    trial = _Trial(every_s=60.0)
    trial.until_ended(0)
    last, world = trial.newest(), trial.world
    world.crash("p2")
    world.wipe("p2")
    world.start("p2")
    world.run_until(world.now + 0.01)
    core = world.peers["p2"].core
    assert not trial.turns("p2")
    made = _made_up(last, 0, (_LIAR, "p2"))
    shown = made.encode()
    if number:
        bare = replace(census_of(made), roster=(_LIAR,), store_ids=(last.store_ids[last.roster.index(_LIAR)],))
        at = (3, 0, digest_of((later := _made_up(last, 1, (_LIAR, "p2"), nonce=bare.id)).encode()), True)
        end = Majority.of([signed(bare, _LIAR, 3, _LIAR, at)], 1)
        evidence = Evidence(Evidence.decode(certificate(bare, _LIAR, 3).evidence[0]).votes, end)
        assert not core.jobs._turns.follows(_LIAR, later)
        inject(world, _LIAR, "p2", ShowEvidence(bare.id, 3, (evidence.encode(), bare.encode(), shown)))
    else:
        assert not core.jobs._turns.follows(_LIAR, made)
    world.run_until(world.now + 5.0)
    assert [turn.id for turn in trial.turns("p2")] == [last.id]


def test_two_of_three_peers_agree_and_one_of_them_shows_it_alone():
    trial = _Trial(n=3, liar="", every_s=20.0)
    trial.until_ended(0, "p0", "p1", "p2")
    trial.world.crash("p1")
    assert trial.world.run_until(trial.world.now + 60.0, lambda: trial.ended("p0", 1) and trial.ended("p2", 1))
    trial.world.crash("p2")
    trial.world.start("p1")
    trial.until_ended(1, "p0", "p1")


# -- evidence ---------------------------------------------------------------------------------------------------------


class _Shown:
    """A next turn that the liar has made up, and what it shows for it when it is asked."""

    def __init__(self, flaw: str) -> None:
        self.trial = trial = _Trial(every_s=60.0)
        trial.until_ended(0)
        last = trial.newest()
        census = census_of(last)
        if flaw == "another roster":
            census = replace(census, roster=(_LIAR,), store_ids=(last.store_ids[last.roster.index(_LIAR)],))
        self.made = _made_up(last, 1, nonce=census.id)
        agreed = last if flaw == "another document" else self.made
        at = (3, 0, digest_of(agreed.encode()), True)
        end = Majority.of([signed(census, name, 3, _LIAR, at) for name in census.roster], census.majority)
        if flaw == "another's signature":
            end = Majority(end.statement, {**end.signatures, 0: end.signatures[1]})
        elif flaw == "too few":
            end = Majority(end.statement, dict(list(end.signatures.items())[:2]))
        votes = Evidence.decode(certificate(census, _LIAR, 3).evidence[0]).votes
        if flaw == "another census":
            census = replace(census, nonce=f"{last.id}/0/other")
        frames = (Evidence(votes, end).encode(), b"x" if flaw == "no census" else census.encode(), last.encode())
        self.message = ShowEvidence(self.made.nonce, 3, frames)

    def tell(self, names=_HONEST):
        for name in names:
            inject(self.trial.world, _LIAR, name, self.message)
        self.trial.world.run_until(self.trial.world.now + 0.3)


@pytest.mark.parametrize(
    "flaw",
    ["another document", "another's signature", "too few", "another roster", "another census", "no census"],
)
def test_a_turn_needs_the_signatures_of_a_majority_of_the_roster_before(flaw):
    shown = _Shown(flaw)
    shown.trial.publish(shown.made.encode())
    asked = [message for _, message in shown.trial.ears.heard if isinstance(message, AskEvidence)]
    assert {message.job for message in asked} == {shown.made.nonce}
    shown.tell()
    assert shown.made.id not in shown.trial.begun()
    blamed = {tuple(fields.get(key, "") for key in ("peer", "owner")) for verb, fields in shown.trial.complaints()}
    assert blamed == {("", _LIAR) if flaw == "another roster" else (_LIAR, "")}


def test_documents_that_wait_cause_no_exchange_between_honest_peers():
    trial = _Trial(every_s=60.0)
    trial.until_ended(0)
    asked = _Asked()
    trial.world.watch(asked)
    trial.world.network.conditions = Conditions(
        delay_s=(0.4, 0.4)
    )  # longer than the pause after which a peer asks again
    for number in range(1, 9):
        made = _made_up(trial.newest(), number, nonce="job-" + 32 * str(number))
        trial.publish(made.encode(), wait_s=0.3)
    for name in _HONEST:  # of a job that no other peer knows: each is asked once about each document
        for other in _HONEST:
            inject(trial.world, name, other, Heartbeat("job-" + 32 * "0", 1, 1))
    before = asked.n
    trial.world.run_until(trial.world.now + 20.0)
    assert asked.n - before <= len(_HONEST) ** 2 * 8


def test_a_true_turn_does_not_make_room_for_those_of_a_liar_that_published_it_first():
    trial = _Trial(every_s=60.0)
    trial.until_ended(0)
    last, turns = trial.newest(), trial.world.peers["p0"].core.jobs._turns
    made = [_made_up(last, number, nonce=census_of(last).id) for number in range(1, 30)]
    for owner in (_LIAR, "p1"):
        assert not turns.follows(owner, made[0])
    assert not any(turns.follows(_LIAR, one) for one in made[1:])
    assert made[0].id in turns._waiting
    assert len(turns._waiting) == 1 + 16


def test_a_turn_with_evidence_is_believed_from_any_peer_that_was_asked():
    shown = _Shown("")
    shown.tell()
    assert shown.made.id not in shown.trial.begun(), "no peer has asked for it"
    shown.trial.publish(shown.made.encode())
    shown.tell()
    assert shown.made.id in shown.trial.begun()


def test_what_an_elected_liar_proposes_is_a_turn_or_nothing():
    """A document without a submitter, for example: its round and parent cannot be read."""
    trial = _Trial(every_s=60.0)
    trial.until_ended(0)
    series, last = trial.world.peers["p0"].core.jobs.series, trial.newest()
    census = census_of(last)
    right = _made_up(last, 1, nonce=census.id)
    wrong = [
        replace(right, nonce="n"), replace(right, submitter="", nonce="n"), _made_up(last, 2, nonce=census.id),
        replace(right, turn=replace(right.turn, series="another")),
    ]  # fmt: skip
    for document in (right, *wrong):
        data = document.encode()
        trial.world.peers["p0"].core.jobs.table.ledgers[census.id] = SimpleNamespace(
            register=SimpleNamespace(ref=Ref(digest_of(data), len(data), data))
        )
        assert (series.decided(census) == right) is (document is right)


def test_no_bytes_that_are_shown_end_a_peer():
    """Frames of true evidence with some bytes changed, cut off or repeated: seed 7."""
    shown, rng = _Shown(""), np.random.default_rng(7)
    turns = shown.trial.world.peers["p0"].core.jobs._turns
    for _ in range(300):
        frames = [bytearray(frame) for frame in shown.message.evidence]
        frame = frames[int(rng.integers(3))]
        at, kind = int(rng.integers(len(frame))), int(rng.integers(3))
        if kind == 0:
            frame[at] ^= int(rng.integers(1, 256))
        else:
            frame[at:] = b"" if kind == 1 else frame[: int(rng.integers(len(frame)))]
        turns._waiting.clear()
        assert not turns.follows(_LIAR, shown.made)
        message = replace(shown.message, evidence=tuple(map(bytes, frames)))
        inject(shown.trial.world, _LIAR, "p0", message)
    shown.trial.world.run_until(shown.trial.world.now + 1.0)
    assert shown.trial.world.peers["p0"].core is not None
    assert len(shown.trial.complaints()) > 100
