"""What a lying aggregator opens in a job with ``verify = "all"``: each lie gets past all checks but one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from p2pclust.errors import WireError
from p2pclust.lab.simulation.swarms.out_of_turn import shifted
from p2pclust.peer.core.tasks import StateInfo
from p2pclust.peer.work.verified import Verifier
from p2pclust.protocols.engine import secure_rounds
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.engine.workspace import digest_of
from p2pclust.protocols.secure.proofs import OpenPads, Proof, SignedAnswer


@dataclass(frozen=True)
class Made:
    """A state that the liar made, and how it may make others."""

    state: JobState
    info: StateInfo
    liar: int  # by roster index
    verifier: Verifier

    @property
    def proof(self) -> Proof:
        """The honest proof."""
        return Proof.decode(self.state.proof)

    def following(self, proof: Proof) -> JobState:
        """Return what would follow from a proof if all signatures in it were right."""
        careless = _Careless(self.verifier.job, self.verifier.n_peers, self.verifier.keys, self.verifier.secrets)
        before = replace(JobState.decode(proof.before), proof=b"")
        return replace(careless.follows(before, proof), proof=proof.encode())


class _Careless(Verifier):
    """Takes every signature for right."""

    def is_signed(self, answer: SignedAnswer, digest: bytes, bare: bytes) -> bool:
        return True

    def are_signed(self, pads: OpenPads, digest: bytes, members: int) -> bool:
        return True


def _other_numbers(made: Made) -> tuple[JobState, StateInfo]:
    return shifted(made.state), made.info


def _no_proof(made: Made) -> tuple[JobState, StateInfo]:
    return replace(made.state, proof=b""), made.info


def _other_answer(made: Made) -> tuple[JobState, StateInfo]:
    proof = made.proof
    refusal = replace(proof.answers[0], reason="it has no rows", body=b"")
    return made.following(replace(proof, answers=[refusal, *proof.answers[1:]])), made.info


def _other_pads(made: Made) -> tuple[JobState, StateInfo]:
    proof = made.proof
    if not proof.pads:
        return made.state, made.info
    numbers = np.frombuffer(proof.pads[0].numbers, dtype="<u8").copy()
    numbers[0] += np.uint64(1)  # not the check word, which is the last number
    pads = [replace(proof.pads[0], numbers=numbers.tobytes()), *proof.pads[1:]]
    return made.following(replace(proof, pads=pads)), made.info


def _own_answer_only(made: Made) -> tuple[JobState, StateInfo]:
    """Let the state follow from one that this peer alone has signed."""
    proof = made.proof
    own = [answer for answer in proof.answers if answer.index == made.liar and answer.body]
    if not own or made.state.secured is not None:
        return made.state, made.info
    before = shifted(JobState.decode(proof.before)).encode()
    digest, secrets = digest_of(b"another state" + before), made.verifier.secrets
    statement = own[0].statement(secrets.fleet, made.verifier.keys.job_id, digest, digest_of(before))
    signed = replace(own[0], signature=secrets.sign(statement))
    return made.following(Proof(before, digest, [signed])), made.info


def _other_renewal(made: Made) -> tuple[JobState, StateInfo]:
    """Ask for new keys after a state that never was."""
    if made.state.secured is None or made.state.secured.wants_keys:
        return made.state, made.info
    before = replace(shifted(made.state), proof=b"").encode()
    return made.following(Proof(before, digest_of(before))), made.info


def _called_final(made: Made) -> tuple[JobState, StateInfo]:
    return made.state, replace(made.info, final=True)


#: Each returns the honest state where it cannot lie.
LIES: Final[dict[str, Callable[[Made], tuple[JobState, StateInfo]]]] = {
    "other numbers": _other_numbers,
    "no proof": _no_proof,
    "an answer that was not given": _other_answer,
    "pads that were not given": _other_pads,
    "after its own answer only": _own_answer_only,
    "after another state": _other_renewal,
    "called final": _called_final,
}


def falsified(kind: str, made: Made) -> tuple[JobState, StateInfo] | None:
    """Return a lie of that kind, and what the liar's own core is given of it; None if it cannot lie here."""
    try:
        state, info = LIES[kind](made)
    except (WireError, secure_rounds.NotEnough):
        return None  # not even a careless peer would make that
    return None if (state, info) == (made.state, made.info) else (state, info)
