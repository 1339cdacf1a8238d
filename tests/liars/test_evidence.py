"""A liar that claims a term, a register or an end which it cannot show; and what peers do with what can be shown."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.liars.lab import certificate, fleet, inject, signed, submit

from p2pclust.peer.core.evidence import Evidence, Majority, Statement
from p2pclust.peer.core.job_messages import (
    Close,
    Ended,
    Heartbeat,
    Open,
    RequestVote,
    ShowEvidence,
    StaleTerm,
    VoteReply,
)
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.engine.workspace import digest_of
from p2pclust.protocols.secure.secured import Maker

pytestmark = pytest.mark.slow

_LIAR = "p4"
_HONEST = ("p0", "p1", "p2", "p3")


class _Trial:
    """Five peers, the last of which lies, and one running job."""

    def __init__(self, *, secure=False, max_rounds=40, silent=True, timing="default", **treatment):
        rng = np.random.default_rng(5)
        rows = [np.clip(rng.normal(20 * (k % 3), 5, (40, 2)), -50, 150) for k in range(5)]
        self.world, self.ears = fleet(rows, me=_LIAR, timing=timing)
        if not silent:
            self.world.forge = None
        box = ([-50.0, -50.0], [150.0, 150.0])
        job = cluster_job(
            "llf-cm", n_clusters=3, bounds=box, init="uniform", tol=0.0, max_rounds=max_rounds, secure=secure
        )  # fmt: skip
        self.id = submit(self.world, job, at="p1", secure=secure, **treatment)

    @property
    def jobs(self):
        return {name: self.world.peers[name].core.jobs.jobs[self.id] for name in _HONEST}

    def all_ended(self):
        return all(job.ledger.finished for job in self.jobs.values())

    def until_a_round(self, round_):
        here = lambda: all(job.ledger.register.round >= round_ for job in self.jobs.values())  # noqa: E731
        assert self.world.run_until(self.world.now + 90.0, here)

    def state(self, name="p0"):
        ref = self.jobs[name].ledger.register.ref
        return JobState.decode(ref.payload or b"".join(self.world.peers[name].disk.blob(ref.digest)))

    @property
    def document(self):
        return self.jobs["p0"].document

    def tell(self, message, names=_HONEST, wait_s=0.05):
        for name in names:
            inject(self.world, _LIAR, name, message)
        self.world.run_until(self.world.now + wait_s)

    def reports(self, verb):
        return [(name, fields) for _, name, said, fields in self.ears.reports if said == verb]

    def aggregator(self):
        return next(job.election.aggregator for job in self.jobs.values() if job.election.aggregator)

    def without_aggregator(self):
        """Let the aggregator die, and return the jobs at the other honest peers, when they follow none."""
        self.world.crash(self.aggregator())
        jobs = {name: self.world.peers[name].core.jobs.jobs[self.id] for name in _HONEST if self.runs(name)}
        free = lambda: not any(job.election.aggregator for job in jobs.values())  # noqa: E731
        assert self.world.run_until(self.world.now + 60.0, free)
        return jobs

    def runs(self, name):
        return self.world.peers[name].core is not None

    def made_up(self):
        """A final state with other centers, and the round after the present one."""
        state, register = self.state(), self.jobs["p0"].ledger.register
        part = state.secured and replace(
            state.secured, entries=(), asked=0, absent={}, unsettled=None, burnt=(), maker=Maker()
        )  # fmt: skip
        arrays = {key: np.full_like(value, 7.0) if key == "centers" else value for key, value in state.arrays.items()}
        return replace(state, status="done", arrays=Arrays(arrays), secured=part).encode(), register

    def end(self, by, data, term, round_, *, votes=True):
        """The evidence that these peers have acknowledged a final state of the liar."""
        at = (term, round_, digest_of(data), True)
        acknowledged = Majority.of([signed(self.document, name, term, _LIAR, at) for name in by], 3)
        elected = Evidence.decode(certificate(self.document, _LIAR, term).evidence[0]).votes if votes else None
        return ShowEvidence(self.id, term, (Evidence(elected, acknowledged).encode(),))


# -- ends -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "secure"])
def test_a_peer_that_aggregates_nothing_does_not_end_a_job_with_a_result_of_its_own(secure):
    trial = _Trial(secure=secure)
    trial.until_a_round(2)
    data, register = trial.made_up()
    message = Close(trial.id, register.term, register.round + 1, digest_of(data), len(data), (data,))
    trial.tell(message, wait_s=0.2)
    assert not any(job.ledger.register.ref.digest == message.digest for job in trial.jobs.values())


@pytest.mark.parametrize("flaw", ["too few", "another's", "no votes", "another term"])
def test_an_end_without_a_majority_that_has_signed_it_is_not_believed(flaw):
    trial = _Trial()
    trial.until_a_round(2)
    data, register = trial.made_up()
    term = register.term + 5
    shown = trial.end([_LIAR, "p0", "p1"], data, term, 9, votes=flaw != "no votes")
    evidence = Evidence.decode(shown.evidence[0])
    end = evidence.end
    assert end is not None
    if flaw == "too few":
        end = Majority(end.statement, dict(list(end.signatures.items())[:2]))
    elif flaw == "another's":
        end = Majority(end.statement, {**end.signatures, 0: end.signatures[1]})
    elif flaw == "another term":
        end = Evidence.decode(trial.end([_LIAR, "p0", "p1"], data, term + 1, 9).evidence[0]).end
    trial.tell(ShowEvidence(trial.id, term, (replace(evidence, end=end).encode(),)))
    trial.tell(Close(trial.id, term, 9, digest_of(data), len(data), (data,)), wait_s=0.3)
    assert not any(job.ledger.register.ref.digest == digest_of(data) for job in trial.jobs.values())
    assert {fields["peer"] for _, fields in trial.reports("bad-evidence")} == {_LIAR}


def test_an_end_that_a_majority_has_signed_is_believed_from_any_peer():
    trial = _Trial()
    trial.until_a_round(2)
    data, register = trial.made_up()
    term = register.term + 5
    trial.tell(trial.end([_LIAR, "p0", "p1"], data, term, 9))
    trial.tell(Close(trial.id, term, 9, digest_of(data), len(data), (data,)), wait_s=0.3)
    assert {job.ledger.register.ref.digest for job in trial.jobs.values()} == {digest_of(data)}
    assert trial.all_ended()


def test_peers_that_ended_a_job_in_different_terms_can_all_close_it():
    """An aggregator shows its evidence and dies; another peer, which was cut off, has the end of an earlier term."""
    trial = _Trial()
    trial.until_a_round(2)
    data, register = trial.made_up()
    term = register.term + 5
    trial.tell(trial.end([_LIAR, "p0", "p1"], data, term + 1, 9))
    trial.tell(trial.end([_LIAR, "p0", "p1"], data, term, 9))
    trial.tell(Close(trial.id, term, 9, digest_of(data), len(data), (data,)), wait_s=0.3)
    assert trial.all_ended()
    assert {job.ledger.register.position for job in trial.jobs.values()} == {(term + 1, 9)}


def test_a_restarted_peer_that_missed_the_end_gets_it_with_its_evidence():
    trial = _Trial(max_rounds=5)
    trial.until_a_round(2)
    away = next(name for name in _HONEST if name not in ("p1", trial.aggregator()))
    trial.world.crash(away)
    others = [name for name in _HONEST if name != away]
    ended = lambda names: all(trial.world.peers[name].core.jobs.jobs[trial.id].ledger.finished for name in names)  # noqa: E731
    assert trial.world.run_until(trial.world.now + 90.0, lambda: ended(others))
    trial.world.start(away)
    assert trial.world.run_until(trial.world.now + 60.0, lambda: ended([away]))
    end = trial.world.peers[away].core.jobs.jobs[trial.id].certificates.end
    assert end is not None
    assert len(end.end.signatures) == 3


def test_messages_that_wait_for_evidence_take_little_memory_and_none_after_the_end():
    trial = _Trial(max_rounds=10)
    trial.until_a_round(2)
    frames, term = (bytes(2**20),) * 8, trial.jobs["p0"].ledger.term
    for message in (
        Open(trial.id, term + 1, 9, bytes(32), 2**23, False, -1, frames),
        Close(trial.id, term + 1, 9, bytes(32), 2**23, frames),
        Heartbeat(trial.id, term + 1, 9),
    ):
        trial.tell(message)
    held = [job.certificates._held for job in trial.jobs.values()]
    assert all(Heartbeat in [kind for kind, _ in messages] for messages in held)
    assert sum(len(frame) for messages in held for one in messages.values() for frame in one.frames) < 2**20
    assert trial.world.run_until(trial.world.now + 90.0, trial.all_ended)
    assert not any(job.certificates._held for job in trial.jobs.values())


# -- terms and registers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("treatment", [{}, {"verify": "all"}], ids=["plain", "verify"])
def test_a_peer_does_not_stop_a_job_with_a_small_message_for_each_election(treatment):
    trial = _Trial(**treatment)
    end = trial.world.now + 150.0
    while trial.world.now < end and not trial.all_ended():
        for name, job in trial.jobs.items():
            if job.election.aggregator == name:
                inject(trial.world, _LIAR, name, StaleTerm(trial.id, job.ledger.term + 1))
        trial.world.run_until(trial.world.now + 0.1)
    assert trial.all_ended()
    assert {job.ledger.register.term for job in trial.jobs.values()} == {1}


def _votes_against_aggregators(trial, for_s):
    """Let the liar vote, again and again, in the term after that of each honest aggregator, and show it that vote."""
    end = trial.world.now + for_s
    while trial.world.now < end and not trial.all_ended():
        for name, job in trial.jobs.items():
            if job.election.aggregator == name:
                register = job.ledger.register
                at = (register.term, register.round, b"" if register.ref is None else register.ref.digest, False)
                vote = signed(trial.document, _LIAR, job.ledger.term + 1, _LIAR, at).encode()
                inject(trial.world, _LIAR, name, StaleTerm(trial.id, job.ledger.term + 1, vote))
        trial.world.run_until(trial.world.now + 0.1)


def test_a_peer_with_votes_of_its_own_alone_does_not_stop_a_job():
    trial = _Trial()
    _votes_against_aggregators(trial, 240.0)
    assert trial.all_ended()


def test_votes_of_a_liar_do_not_let_an_honest_aggregator_stand_later():
    """Each doubled how long it lets others stand first: after seven of them, for three minutes longer."""
    trial = _Trial(missing="all", patience_s=600.0)  # the round waits for the liar, and the aggregator works on
    trial.until_a_round(0)
    _votes_against_aggregators(trial, 60.0)
    assert max(job.ledger.term for job in trial.jobs.values()) >= 7
    assert {job.headway.courtesy_times() for job in trial.jobs.values()} == {1.0}


def test_no_other_peer_takes_over_the_term_of_an_elected_aggregator_that_lies():
    """Peers that had stopped following the one liar followed another one in its term, for which no peer had voted."""
    trial = _Trial(max_rounds=300)
    trial.until_a_round(2)
    aggregator = trial.aggregator()
    data, register = trial.made_up()
    followers = [name for name in _HONEST if name != aggregator]
    for name in followers:
        trial.jobs[name].states.distrust(aggregator, "it opened another state than the one that it was elected with")
    message = Open(trial.id, register.term, register.round + 1, digest_of(data), len(data), False, -1, (data,))
    trial.tell(message, followers)
    assert not any(job.ledger.register.ref.digest == message.digest for job in trial.jobs.values())


@pytest.mark.parametrize("speaks", [Open, Heartbeat])
def test_no_peer_follows_an_aggregator_without_the_certificate_of_its_term(speaks):
    trial = _Trial()
    trial.until_a_round(2)
    data, register = trial.made_up()
    term = register.term + 1
    message = Heartbeat(trial.id, term, 9)
    if speaks is Open:
        message = Open(trial.id, term, 9, digest_of(data), len(data), True, -1, (data,))
    trial.tell(message)
    own = signed(trial.document, _LIAR, term, _LIAR, (0, 0, b"", False))
    votes = Majority(replace(own, signature=b""), dict.fromkeys((0, 1, 4), own.signature))
    trial.tell(ShowEvidence(trial.id, term, (Evidence(votes).encode(),)))
    trial.tell(message)
    assert _LIAR not in {job.election.aggregator for job in trial.jobs.values()}
    assert not any(job.ledger.register.ref.digest == digest_of(data) for job in trial.jobs.values())


def test_an_elected_aggregator_begins_with_the_state_that_it_was_elected_with():
    trial = _Trial()
    trial.until_a_round(2)
    data, register = trial.made_up()
    term = register.term + 1
    at = (register.term, register.round, register.ref.digest, False)
    trial.tell(certificate(trial.document, _LIAR, term, at))
    trial.tell(Open(trial.id, term, register.round, digest_of(data), len(data), False, -1, (data,)))
    assert not any(job.ledger.register.ref.digest == digest_of(data) for job in trial.jobs.values())
    assert all(_LIAR in job.suspicions for job in trial.jobs.values())


@pytest.mark.parametrize("shown", ["nothing", "a vote for itself", "a term that was not won"])
def test_no_peer_votes_for_a_candidate_whose_register_cannot_be(shown):
    trial = _Trial(max_rounds=300)
    trial.until_a_round(3)
    document, others = trial.document, trial.without_aggregator()
    term = max(job.ledger.term for job in others.values()) + 1
    # A term that was not won could still come: then one vote is missing.
    claimed = 2**30 if shown == "a vote for itself" else term
    vote = signed(document, _LIAR, claimed + 1, _LIAR, (claimed, 7, bytes(32), False)).encode()
    trial.ears.heard.clear()
    request = RequestVote(trial.id, claimed + 1, claimed, 7, b"" if shown == "nothing" else vote)
    trial.tell(request, others)
    if shown == "a term that was not won":
        evidence = Evidence.decode(certificate(document, _LIAR, term).evidence[0])
        votes = Majority(evidence.votes.statement, {**evidence.votes.signatures, 1: bytes(64)})
        trial.tell(ShowEvidence(trial.id, term, (Evidence(votes).encode(),)), others)
        trial.tell(request, others)
    assert not [name for name, message in trial.ears.heard if isinstance(message, VoteReply) and message.granted]


def test_a_voter_that_lacks_the_certificate_of_a_register_asks_for_it_and_votes():
    trial = _Trial(max_rounds=300)
    trial.until_a_round(3)
    document, others = trial.document, trial.without_aggregator()
    term = max(job.ledger.term for job in others.values()) + 1
    vote = signed(document, _LIAR, term + 1, _LIAR, (term, 7, bytes(32), False))
    trial.ears.heard.clear()
    trial.tell(RequestVote(trial.id, term + 1, term, 7, vote.encode()), others)
    trial.tell(certificate(document, _LIAR, term), others)
    replies = {name: message for name, message in trial.ears.heard if isinstance(message, VoteReply)}
    assert set(replies) == set(others)
    for name, message in replies.items():
        given = Statement.decode(message.vote)
        assert message.granted
        assert given == signed(document, name, term + 1, _LIAR, (term, 7, bytes(32), False))


def test_an_elected_aggregator_that_brings_no_state_is_followed_for_a_while_only():
    trial = _Trial(max_rounds=300, timing="fast")
    trial.until_a_round(3)
    register = trial.jobs["p0"].ledger.register
    term = register.term + 1
    at = (register.term, register.round, register.ref.digest, False)
    trial.tell(certificate(trial.document, _LIAR, term, at))
    end = trial.world.now + 400.0
    while trial.world.now < end and {job.ledger.register.term for job in trial.jobs.values()} == {register.term}:
        for name, job in trial.jobs.items():
            if job.ledger.term == term:
                inject(trial.world, _LIAR, name, Heartbeat(trial.id, term, register.round))
        trial.world.run_until(trial.world.now + 0.1)
    assert _LIAR not in {job.election.terms.get(job.ledger.register.term) for job in trial.jobs.values()}
    assert max(job.ledger.register.term for job in trial.jobs.values()) > term


def test_a_final_state_outranks_later_rounds_of_its_term():
    trial = _Trial(max_rounds=300)
    trial.until_a_round(3)
    document, others = trial.document, trial.without_aggregator()
    register = next(iter(others.values())).ledger.register
    first = max(job.ledger.term for job in others.values()) + 100
    trial.ears.heard.clear()
    for term, final in ((first, False), (first + 100, True)):
        vote = signed(document, _LIAR, term, _LIAR, (register.term, register.round - 1, bytes(32), final))
        request = RequestVote(trial.id, term, register.term, register.round - 1, vote.encode())
        trial.tell(request, others, wait_s=0.0)  # before another peer is elected
    granted = [message.term for _, message in trial.ears.heard if isinstance(message, VoteReply) and message.granted]
    assert granted
    assert set(granted) == {first + 100}


def test_that_a_job_was_forgotten_is_not_believed_from_a_minority():
    trial = _Trial(max_rounds=300)
    trial.until_a_round(2)
    for name in ("p1", "p2", "p3"):
        trial.world.crash(name)
    gone = lambda: all(trial.world.peers["p0"].core.membership.gone(name) for name in ("p1", "p2", "p3"))  # noqa: E731
    assert trial.world.run_until(trial.world.now + 120.0, gone)
    trial.tell(Ended(trial.id), ["p0"])
    assert trial.id in trial.world.peers["p0"].core.jobs.jobs


def test_a_voter_keeps_the_certificate_of_a_register_that_is_older_than_its_own_term():
    trial = _Trial(max_rounds=300)
    trial.until_a_round(3)
    document, others = trial.document, trial.without_aggregator()
    term = max(job.ledger.term for job in others.values()) + 100
    trial.tell(certificate(document, _LIAR, term + 3), others)
    assert {job.ledger.term for job in others.values()} == {term + 3}
    trial.ears.heard.clear()
    vote = signed(document, _LIAR, term + 4, _LIAR, (term, 7, bytes(32), False))
    trial.tell(RequestVote(trial.id, term + 4, term, 7, vote.encode()), others, wait_s=0.0)
    trial.tell(certificate(document, _LIAR, term), others)
    assert {name for name, message in trial.ears.heard if isinstance(message, VoteReply) and message.granted} == set(
        others
    )
