"""The tasks of jobs with ``verify = "all"``: signed answers, states with proofs, and their checks (docs/verified-rounds.md).

The maker of a state and every peer that checks it call the same function, :meth:`Verifier.follows`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Final

import msgpack
import numpy as np

from p2pclust.errors import WireError
from p2pclust.peer.core import tasks
from p2pclust.peer.core.document import majority
from p2pclust.peer.core.tasks import JobKeys, NoResult, Outcome, Ref, StateRefuted
from p2pclust.peer.work.secrets import Secrets
from p2pclust.peer.work.secure_tasks import NOT_COUNTED, SecureRound, readable
from p2pclust.peer.work.states import AtState, BlobAccess, NextState, NotKnownError, PlainRound, check_cancel
from p2pclust.protocols.engine import engine, secure_rounds
from p2pclust.protocols.engine.arrays import Arrays, Contribution
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.reasons import LEFT_OUT, MAX_REASON, NOT_ASKED, REVOKED
from p2pclust.protocols.engine.secure_rounds import NoTotalError, SecuredState
from p2pclust.protocols.engine.wire import PADDED, ContributionReader, decode_state
from p2pclust.protocols.engine.workspace import digest_of
from p2pclust.protocols.secure.check_words import CheckWord
from p2pclust.protocols.secure.key_list import FleetKeys, KeyEntry
from p2pclust.protocols.secure.proofs import CancelProof, OpenPads, Proof, SignedAnswer
from p2pclust.protocols.secure.secured import Maker
from p2pclust.tools.bit_sets import as_mask, members_of

#: A state that asks for new keys has the whole padded state before it in its proof, which may have one in its own.
_MOST_WITHIN: Final = 3
_NOTHING: Final = Ref(b"", 0, b"")


@dataclass(frozen=True)
class Verifier:
    """What one peer checks of one job, and what follows from a proof."""

    job: Job
    n_peers: int
    keys: JobKeys
    secrets: Secrets

    def round_at(self, at: PlainRound) -> VerifiedRound:
        """Return the same round with signatures and proofs."""
        return VerifiedRound(self.job, at.state, self.n_peers, at, self)

    def statement(self, answer: SignedAnswer, digest: bytes, bare: bytes) -> bytes:
        """Return what a peer's device signs of its answer to the state of that digest, whose bare bytes are given."""
        return answer.statement(self.secrets.fleet, self.keys.job_id, digest, digest_of(bare))

    def is_signed(self, answer: SignedAnswer, digest: bytes, bare: bytes) -> bool:
        return self._fleet_keys.signed_by(answer.index, answer.signature, self.statement(answer, digest, bare))

    def are_signed(self, pads: OpenPads, digest: bytes, members: int) -> bool:
        """Return whether the keeper's device has signed its pads of these peers, in the state of that digest."""
        statement = pads.statement(self.secrets.fleet, self.keys.job_id, digest, members)
        return self._fleet_keys.signed_by(pads.keeper, pads.signature, statement)

    @cached_property
    def _fleet_keys(self) -> FleetKeys:
        return self.secrets.fleet_keys(self.keys)

    def follows(self, before: JobState, proof: Proof) -> JobState:
        """Return the state that follows from a proof, without the proof; `before` has none either.

        Raise WireError if the proof is not sound; NotEnough if more peers must send their keys.
        """
        if before.status != "running":
            raise WireError(f"the state before is {before.status}, and nothing follows from it")
        cancelled_by = CancelProof.decode(proof.cancel).by if proof.cancel else ""
        if not proof.answers:
            if proof.cancel:
                return _cancelled(before, cancelled_by)
            if self.keys.secure is None:
                raise WireError("it has a proof without answers")
            secured = SecuredState(self.job, before, self.secrets.terms(self.keys), proof.digest)
            return secured.renewed(proof.left_out, proof.silent, proof.wrong)
        if proof.cancel and (before.secured is None or not before.secured.wants_keys):
            raise WireError("it has a cancel and a total")
        bare, by = before.encode(), {answer.index for answer in proof.answers}
        for answer in proof.answers:
            if not self.is_signed(answer, proof.digest, bare):
                raise WireError(f"peer {answer.index} has not signed its answer")
        if any(peer in by or not why.startswith((LEFT_OUT, REVOKED)) for peer, why in proof.left_out.items()):
            raise WireError("a peer abstains that has not signed it")
        if any(peer >= self.n_peers for peer in proof.left_out):
            raise WireError("a peer beyond the job roster is left out")
        refusals = {a.index: a.reason for a in proof.answers if a.reason and a.reason != NOT_ASKED}
        abstained = {**proof.left_out, **refusals}
        if before.secured is None:
            given, malformed = self.contributions(before, proof.answers)
            abstained |= malformed
            return engine.advance(self.job, before, list(given.items()), abstained, n_peers=self.n_peers)
        secured = SecuredState(self.job, before, self.secrets.terms(self.keys), proof.digest)
        if before.secured.wants_keys:
            keys, malformed = readable(_bodies(proof.answers), KeyEntry.decode)
            abstained |= malformed
            return secured.keys_closed(keys, abstained, proof.maker, cancelled_by=cancelled_by)
        members, total, malformed = self._total(before, proof)
        return secured.closed(total, members, abstained | malformed, proof.maker)

    def contributions(
        self, before: JobState, answers: Sequence[SignedAnswer]
    ) -> tuple[dict[int, Contribution], dict[int, str]]:
        """Read the contributions in signed answers; return also the peers whose contribution is malformed."""
        reader = ContributionReader(self.job, before, n_peers=self.n_peers)
        return readable(_bodies(answers), lambda index, body: reader.read(body, summed=1))

    def _total(self, before: JobState, proof: Proof) -> tuple[int, Contribution, dict[int, str]]:
        at = SecureRound(self.job, before, self.n_peers, self.keys, self.secrets, proof.digest)
        padded, words, malformed = self.padded(at, proof.answers)
        members = as_mask(padded)
        if problem := at.secured.problem_with_set(members):
            raise WireError(problem)
        if [one.keeper for one in proof.pads] != list(at.keepers):
            raise WireError("the pads are not those of all keepers")
        removed = []
        for one in proof.pads:
            if not self.are_signed(one, proof.digest, members):
                why = f"keeper {one.keeper} has not signed its pads for these peers"
                raise NoTotalError(why, silent=(one.keeper,))
            handed = np.frombuffer(one.numbers, dtype="<u8").astype(np.uint64)
            numbers, of_keeper = at.read_pads(one.keeper, members, handed)
            removed.append(numbers)
            words += of_keeper
        vectors = [np.asarray(given[PADDED]).view(np.uint64) for given in padded.values()]
        total = at.unpadded(members, np.add.reduce(vectors), removed, words)
        assert isinstance(total, Arrays), "no stage by groups has verify"
        return members, total, malformed

    def padded(
        self, at: SecureRound, answers: Sequence[SignedAnswer]
    ) -> tuple[dict[int, Contribution], list[CheckWord], dict[int, str]]:
        """Read padded contributions, and their check words where they are signed; return also the malformed ones."""
        given, malformed = self.contributions(at.state, answers)
        if not at.part.strict:
            return given, [], malformed
        padded, words = at.read_words(given.items())
        unsigned = dict.fromkeys(set(given) - set(padded), "malformed: it has not signed its check word")
        return padded, words, malformed | unsigned

    def check(self, task: tasks.CheckState, blobs: BlobAccess) -> Outcome:
        """Say whether a state follows from its proof."""
        try:
            state = self._decoded(blobs.whole(task.state))
            held = None if task.held is None else (task.held.digest, blobs.whole(task.held))
            self._check(state, held, task.ends)
            if held is not None:
                mine = decode_state(self.job, held[1])
                # A majority had adopted the state before the held one, so no later aggregator can have an older one.
                if state.round + 1 < mine.round:
                    raise WireError("it is older than a state that a majority has adopted")
                if task.in_term and not self._comes_after(state, held[0], mine):
                    return StateRefuted("in one term a state has one successor, and it is another one", second=True)
        except secure_rounds.NotEnough as few:
            return StateRefuted(f"it follows from too few keys: {few.reason}"[:MAX_REASON])
        except NotKnownError as error:
            return NoResult(str(error))
        except WireError as error:
            return StateRefuted(str(error)[:MAX_REASON])
        return tasks.StateChecked(state.status != "running")

    def _decoded(self, data: bytes) -> JobState:
        secured = self.keys.secure is not None
        state = decode_state(
            self.job, data, None, partial(self.secrets.problem_with_state, self.keys) if secured else None
        )
        if state.secured is not None and not secured:
            raise WireError("job state: a secured part in a job without secure sums")
        return state

    def _check(
        self, state: JobState, held: tuple[bytes, bytes] | None, ends: tasks.EndRules | None = None, within: int = 0
    ) -> None:  # fmt: skip
        """Raise WireError, or NotEnough, if a state does not follow from what its proof has."""
        if not state.proof:
            secure = self.keys.secure is not None
            first = secure_rounds.begin(self.job, self.secrets.terms(self.keys)) if secure else engine.begin(self.job)
            if state.encode() != first.encode():
                raise WireError("it has no proof, and is not the first state of the job")
            return
        proof = Proof.decode(state.proof)
        before = self._decoded(proof.before)
        if held is None or held[0] != proof.digest:
            self._check_before(before, proof, within)
        elif _without_proof(decode_state(self.job, held[1])) != _without_proof(before):
            raise WireError("its proof begins with another state than its digest says")
        if _without_proof(state) != self.follows(replace(before, proof=b""), proof).encode():
            raise WireError("it does not follow from the signed answers")
        if proof.cancel and ends is not None:
            check_cancel(CancelProof.decode(proof.cancel), ends, self.secrets)

    def _check_before(self, before: JobState, proof: Proof, within: int) -> None:
        """Raise WireError if the state before, which this peer does not have, need not be one that the fleet adopted."""
        if digest_of(proof.before) == proof.digest:
            if within == _MOST_WITHIN:
                raise WireError("too many proofs within its proof")
            self._check(before, None, within=within + 1)
        elif len(proof.answers) < majority(self.n_peers):
            raise NotKnownError(
                f"{len(proof.answers)} of {self.n_peers} peers have signed the state before, and this peer does not have it"
            )

    def _comes_after(self, state: JobState, digest: bytes, held: JobState) -> bool:
        """Return whether a sound state may follow, in one term, the one that this peer has adopted in it.

        This peer may have missed some between the two: then the state before comes after its own, too.
        """
        if not state.proof:
            return False
        proof = Proof.decode(state.proof)
        if proof.digest == digest:
            return True
        return held.status == "running" and _place(self._decoded(proof.before)) > _place(held)


@dataclass(frozen=True)
class VerifiedRound(AtState):
    """The same round, `inner`, with signed answers, and with a proof in each state that is made."""

    inner: PlainRound
    verifier: Verifier

    def described(self, task: tasks.DescribeState, blobs: BlobAccess) -> Outcome:
        return self.inner.described(task, blobs)

    def take_pads(self, task: tasks.TakePads, blobs: BlobAccess) -> Outcome:
        return self.inner.take_pads(task, blobs)

    def answer(self, task: tasks.Contribute, local: Local, blobs: BlobAccess) -> Outcome:
        outcome = self.inner.answer(task, local, blobs)
        if isinstance(outcome, NoResult):
            bare = SignedAnswer(task.me, outcome.reason[:MAX_REASON], b"")
            outcome = tasks.Contributed(_NOTHING, abstains=bare.reason)
        elif isinstance(outcome, tasks.Contributed):
            bare = SignedAnswer(task.me, "", blobs.whole(outcome.ref))
        else:
            return outcome  # what it needs first
        statement = self.verifier.statement(bare, task.state.digest, _without_proof(self.state))
        signature = self.verifier.secrets.sign(statement)
        return replace(outcome, ref=blobs.keep(replace(bare, signature=signature).encode()))

    def added_up(self, task: tasks.AddUp | tasks.SumPadded, blobs: BlobAccess) -> Outcome:
        """Return the padded answers, and this peer's own pads if it keeps some, in the place of their sum."""
        if isinstance(task, tasks.AddUp):
            raise WireError("signed answers are not added up")
        answers, _ = self._answers(task, blobs)
        assert isinstance(self.inner, SecureRound)
        padded, _, _ = self.verifier.padded(self.inner, answers)
        pads = self.inner.own_pads(as_mask(padded), task.me)
        fields = [[answer.packed() for answer in answers], [] if pads is None else [pads.packed()]]
        return tasks.Summed(blobs.keep(bytes(msgpack.packb(fields))), tuple(padded))

    def _answers(
        self, task: tasks.SumPadded | tasks.CombineRound, blobs: BlobAccess
    ) -> tuple[list[SignedAnswer], dict[int, str]]:
        """Read answers; return also the peers of those that are malformed or not signed."""
        answers, left_out, bare = [], {}, _without_proof(self.state)
        for (index,), ref in task.contributions:
            try:
                answer = SignedAnswer.decode(blobs.whole(ref))
                if answer.index != index or not self.verifier.is_signed(answer, task.state.digest, bare):
                    raise WireError("it has not signed its answer")
            except WireError as error:
                left_out[index] = f"{LEFT_OUT}: malformed: {error}"
            else:
                answers.append(answer)
        return sorted(answers, key=lambda answer: answer.index), left_out

    def next_state(self, task: NextState, blobs: BlobAccess) -> Outcome:
        renewal = Proof(blobs.whole(task.state), task.state.digest)
        if isinstance(task, tasks.RenewKeys):
            return self._proved(replace(renewal, left_out=task.abstained, silent=sorted(task.silent)), blobs)
        if isinstance(task, tasks.CancelJob):
            return self._proved(replace(renewal, cancel=task.cancel.encode()), blobs)
        try:
            proof = self._proof(task, blobs)
            if not proof.answers:
                raise WireError("no answer in this round is signed")
            return self._proved(proof, blobs)
        except secure_rounds.NotEnough as few:
            return tasks.TooFew(few.reason)
        except WireError as error:
            if not self._padded:
                raise
            if isinstance(error, NoTotalError):
                renewal = replace(renewal, silent=sorted(error.silent), wrong=error.wrong)
        return self._proved(renewal, blobs)  # the parts of a state after a padded one do not fit together

    def _proved(self, proof: Proof, blobs: BlobAccess) -> tasks.StateMade:
        before = replace(self.state, proof=b"")
        after = replace(self.verifier.follows(before, proof), proof=proof.encode())
        shown = before if proof.answers and (before.secured is None or self._padded) else None
        return self.inner.made(after, blobs, before=shown)

    @property
    def _padded(self) -> bool:
        return self.state.secured is not None and not self.state.secured.wants_keys

    def _proof(self, task: tasks.CombineRound | tasks.FinishRound, blobs: BlobAccess) -> Proof:
        pads: list[OpenPads] = []
        left_out: dict[int, str] = {}
        cancel = b""
        if isinstance(task, tasks.FinishRound):
            assert isinstance(self.inner, SecureRound)
            given, data = self.inner.handed_over(task, blobs)
            answers, pads = _padded_answers(data, given)
            own = self.inner.own_pads(task.members, task.maker.index)
            pads += [] if own is None else [own]
            left_out = dict.fromkeys(members_of(self.inner.part.asked), NOT_COUNTED)
        else:
            if self._padded:
                given = {keeper: blobs.whole(ref) for keeper, ref in task.removed}
                answers, pads = _padded_answers(blobs.whole(task.contributions[0][1]), given)
            else:
                answers, left_out = self._answers(task, blobs)
            unsigned = {
                peer: why if why.startswith((LEFT_OUT, REVOKED)) else f"{LEFT_OUT}: {why}"[:MAX_REASON]
                for peer, why in task.abstained.items()
            }
            left_out = unsigned | left_out
            cancel = b"" if task.cancel is None else task.cancel.encode()
        signed = {answer.index for answer in answers}
        left_out = {peer: why for peer, why in left_out.items() if peer not in signed}
        of_keepers = {one.keeper: one for one in pads}
        opened = [of_keepers[keeper] for keeper in sorted(of_keepers)]
        maker, digest = task.maker or Maker(), task.state.digest
        return Proof(_without_proof(self.state), digest, answers, opened, left_out, maker=maker, cancel=cancel)


def _bodies(answers: Sequence[SignedAnswer]) -> dict[int, bytes]:
    return {answer.index: answer.body for answer in answers if not answer.reason}


def _cancelled(before: JobState, by: str) -> JobState:
    if before.secured is None:
        return engine.cancelled(before, by)
    if before.secured.unsettled is not None:
        raise WireError("it ends without the reports of what was revealed")
    return secure_rounds.cancelled(before, by)


def _place(state: JobState) -> tuple[int, int, bool]:
    """Return a number that grows from each state to the one that follows from it."""
    part = state.secured
    return (state.round, 0, False) if part is None else (state.round, part.renewals, not part.wants_keys)


def _without_proof(state: JobState) -> bytes:
    return (replace(state, proof=b"") if state.proof else state).encode()


def _padded_answers(data: bytes, given: Mapping[int, bytes]) -> tuple[list[SignedAnswer], list[OpenPads]]:
    """Read what :meth:`VerifiedRound.added_up` made, and the pads that other keepers gave."""
    try:
        answers, pads = msgpack.unpackb(data, max_ext_len=0)
        found = [SignedAnswer.unpacked(answer) for answer in answers]
        kept = [OpenPads.unpacked(one) for one in pads]
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise WireError(f"padded answers: {error}") from None
    for keeper, sent in given.items():
        try:
            kept.append(OpenPads.decode(sent))
            if kept[-1].keeper != keeper:
                raise WireError(f"keeper {keeper} sent pads of another peer")
        except WireError as error:
            raise NoTotalError(str(error), silent=(keeper,)) from None
    return found, kept
