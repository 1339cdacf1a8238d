"""A contributor or a keeper with a wrong check word: the job goes on without it, and no other peer is blamed for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.liars.lab import fleet, submit
from tests.liars.test_keepers import VICTIM, WHY, Attack, without

from p2pclust.lab.simulation.world.peer import device_key
from p2pclust.peer.work.states import job_of
from p2pclust.protocols.engine import reasons, secure_rounds
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.engine.wire import decode_state
from p2pclust.protocols.secure.check_words import CheckedRound, CheckWord
from p2pclust.protocols.secure.pads import KeyPair, Numbers

pytestmark = pytest.mark.slow
N_PEERS = 8


class Liars:
    """Adds a number to the check words of one peer, as a contributor or a keeper."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: str, more: int = 1) -> None:
        self.index, self._more = 3 if kind == "padded" else -1, more
        original = getattr(KeyPair, kind)

        def lying(pair: KeyPair, *of: Any) -> Numbers:
            numbers: Numbers = original(pair, *of)
            me = of[1] if kind == "padded" else of[0]
            self.index = me if self.index < 0 else self.index  # the first keeper that is asked
            if me == self.index:
                numbers = numbers.copy()
                numbers[-1] += np.uint64(self._more)
            return numbers

        monkeypatch.setattr(KeyPair, kind, lying)


def ended(seed: int = 5, **treatment: Any) -> tuple[Any, JobState, list[list[str]]]:
    """Run a job; return its terms, its last state, and by peer which others it suspects."""
    rng = np.random.default_rng(seed)
    rows = [np.clip(rng.normal(20 * (k % 3), 5, (40, 2)), -50, 150) for k in range(N_PEERS)]
    world, _ = fleet(rows, me="none of them")
    world.forge = None
    job = cluster_job(
        "llf-cm", n_clusters=3, bounds=([-50.0, -50.0], [150.0, 150.0]), init="uniform", tol=0.0, max_rounds=10, secure=True
    )  # fmt: skip
    job_id = submit(world, job, secure=True, **treatment)
    cores = [peer.core for peer in world.peers.values()]
    assert world.run_until(world.now + 20, lambda: all(job_id in core.jobs.jobs for core in cores))
    jobs = [core.jobs.jobs[job_id] for core in cores]
    assert world.run_until(world.now + 200, lambda: all(one.ledger.finished for one in jobs))
    world.run_until(world.now + 2)
    ref = jobs[0].ledger.register.ref
    state = decode_state(
        job_of(jobs[0].document.mathematics), ref.payload or b"".join(world.peers["p0"].disk.blob(ref.digest))
    )
    secrets = world.peers["p0"].working.secrets
    return secrets.terms(jobs[0].keys), state, [sorted(one.suspicions) for one in jobs]


@pytest.mark.parametrize("kind", ["padded", "removed"])
@pytest.mark.parametrize(
    "treatment",
    [{}, {"verify": "all"}, {"leave": "groups"}, {"burnt": "record"}, {"collect": "tree"}],
    ids=["default", "verified", "groups", "record", "tree"],
)
def test_the_job_goes_on_without_the_liar_and_every_peer_names_it(
    kind: str, treatment: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    liar = Liars(monkeypatch, kind)
    terms, state, suspects = ended(**treatment)
    assert state.status == "done", state.reason
    part = secure_rounds.secured_of(state)
    assert secure_rounds.proved_peers(part, terms) == 1 << liar.index
    assert suspects == [[f"p{liar.index}"]] * N_PEERS
    assert secure_rounds.exposed_peers(state) == (liar.index,)
    assert {why for one in state.log for peer, why in one.abstained.items()} == {reasons.PROVED}
    assert {len(one.contributors) for one in state.log} <= {N_PEERS, N_PEERS - 1}


def test_a_liar_that_does_not_show_its_key_is_left_out_of_the_stage_and_not_blamed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    liar = Liars(monkeypatch, "removed")
    original = CheckedRound.showing
    monkeypatch.setattr(
        CheckedRound,
        "showing",
        lambda one, private: original(one, {i: k for i, k in private.items() if i != liar.index}),
    )
    terms, state, suspects = ended(burnt="record")
    assert state.status == "done", state.reason
    assert secure_rounds.proved_peers(secure_rounds.secured_of(state), terms) == 0
    assert suspects == [[]] * N_PEERS
    gone = {why for one in state.log for why in one.abstained.values()}
    assert gone == {secure_rounds._SILENT}


def test_a_keeper_whose_pads_cannot_be_read_ends_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    original = KeyPair.unseal
    liar: list[int] = []

    def spoiled(pair: KeyPair, sealed: Any, *of: Any) -> Numbers:
        liar.extend([] if liar else [sealed.keeper])
        return original(pair, replace(sealed, data=b"spoiled") if sealed.keeper in liar else sealed, *of)

    monkeypatch.setattr(KeyPair, "unseal", spoiled)
    _, state, suspects = ended(burnt="record")
    assert state.status == "done", state.reason
    assert suspects == [[]] * N_PEERS


def forged(attack: Attack) -> CheckedRound:
    """A round in which the victim seems to have signed a wrong word."""
    part = secure_rounds.secured_of(attack.state)
    of = secure_rounds.checked_round(part, attack.liar.terms, b"d" * 32)
    word = CheckWord(VICTIM, 0, 7)
    context = secure_rounds.context_of(attack.liar.terms, of.state)
    return replace(of, words=(replace(word, signature=attack.liar.secrets.sign(of.statement(context, word))),))


@pytest.mark.parametrize("with_proof", [False, True])
def test_an_aggregator_cannot_leave_out_a_peer_as_if_it_were_proved_to_lie(with_proof: bool) -> None:
    attack = Attack(8, leave="groups")
    first = attack.summed(attack.state)
    assert int(first[4][-1]) == 8, "the honest sum"
    state = without(attack.moved(), [VICTIM])
    part = secure_rounds.secured_of(state)
    if with_proof:
        part = replace(part, proofs=(forged(attack),))
    named = replace(state, secured=replace(part, absent={VICTIM: reasons.PROVED}))
    _, given, refused = attack.liar.padded_round(named)
    assert list(given) == [0], "the liar's own"
    assert all("without a proof" in why for why in refused.values()), refused
    _, given, refused = attack.liar.padded_round(replace(state, secured=part))
    assert list(given) == [0], "the liar's own"
    del refused[VICTIM]
    assert set(refused.values()) == {f"left out: {WHY}"}


def test_a_proof_lets_a_small_class_pass_with_groups() -> None:
    attack = Attack(8, leave="groups")
    first = attack.summed(attack.state)
    assert int(first[4][-1]) == 8, "the honest sum"
    liar, name = attack.liar, attack.liar.document.roster[VICTIM]
    part = secure_rounds.secured_of(attack.state)
    of, key = secure_rounds.checked_round(part, liar.terms, b"d" * 32), device_key(name)
    context, word = secure_rounds.context_of(liar.terms, of.state), CheckWord(VICTIM, 0, 7)
    pair = attack.world.peers[name].working.secrets._jobs[liar.id].pair
    of = replace(of, words=(replace(word, signature=key.sign(of.statement(context, word))),))
    proof = of.showing({VICTIM: pair.check.private})
    assert proof.proved(liar.terms.keys, context) == 1 << VICTIM
    part = secure_rounds.secured_of(without(attack.moved(), [VICTIM]))
    part = replace(part, proofs=(proof,), absent={VICTIM: reasons.PROVED})
    _, given, refused = liar.padded_round(replace(attack.moved(), secured=part))
    assert (len(given), refused) == (7, {VICTIM: reasons.PROVED})
    able = part.asked
    assert secure_rounds._grouped(replace(part, revealed=(able | 1 << VICTIM,)), able, liar.terms, {}) == able
