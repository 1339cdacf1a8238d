"""The tasks of jobs with secure sums (docs/secure-sums.md): keys, padded contributions, and what keepers take away.

A contribution is padded within the task that computes it, so that it is nowhere else: in no message, blob, digest or log.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Final, TypeVar

import msgpack
import numpy as np

from p2pclust.errors import WireError
from p2pclust.peer.core import tasks
from p2pclust.peer.core.tasks import JobKeys, NoResult, Outcome
from p2pclust.peer.work.secrets import Secrets
from p2pclust.peer.work.states import BlobAccess, NextState, PlainRound, showing
from p2pclust.protocols.engine import engine, secure_rounds
from p2pclust.protocols.engine.arrays import Arrays, Contribution
from p2pclust.protocols.engine.base import Abstain, Additive
from p2pclust.protocols.engine.engine import Peers, added_up
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.padded import Layout, WrongCheckWordError, layout_of
from p2pclust.protocols.engine.reasons import (
    LEFT_OUT,
    NEW_KEYS,
    NO_DATA,
    NOT_DRAWN,
    SMALL_CLASS,
    UNUSABLE,
    WOULD_BE_EXPOSED,
)
from p2pclust.protocols.engine.secure_rounds import NoTotalError, SecuredState, Terms
from p2pclust.protocols.engine.wire import PADDED, SIGNED
from p2pclust.protocols.private.ledger import PeerSet
from p2pclust.protocols.secure.check_words import SIGNATURE_BYTES, CheckedRound, CheckWord
from p2pclust.protocols.secure.classes import exposed, parted
from p2pclust.protocols.secure.key_list import KeyEntry
from p2pclust.protocols.secure.pads import KeyPair, Numbers, Sealed
from p2pclust.protocols.secure.proofs import OpenPads
from p2pclust.protocols.secure.secured import MOST_SETS, Secured
from p2pclust.tools.bit_sets import as_mask, members_of

T = TypeVar("T")

_OTHER_STORE: Final = "its store is not the one that it had at submission, so it may have other rows than before"
_NO_KEY: Final = bytes(64)  # in the place of the key that an answer gets
#: Why a peer is left out of a round that another aggregator began.
NOT_COUNTED: Final = f"{LEFT_OUT}: the aggregator before did not count it"
_SIGNATURE: Final = SIGNATURE_BYTES // 8  # numbers
_MOST_TOLD: Final = 16  # sets that an answer reports: the others with the next one
_OTHER_ROWS: Final = (
    "it has other rows than at its first contribution, and the difference of two sums would give them away"
)


@dataclass(frozen=True)
class SecureRound(PlainRound):
    """A job with secure sums at one of its states, and what this peer keeps secret of it."""

    keys: JobKeys
    secrets: Secrets
    digest: bytes = b""  # of the state; what concerns pads depends on it

    @cached_property
    def terms(self) -> Terms:
        return self.secrets.terms(self.keys)

    @cached_property
    def secured(self) -> SecuredState:
        return SecuredState(self.job, self.state, self.terms, self.digest)

    @cached_property
    def part(self) -> Secured:
        return self.secured.part

    @cached_property
    def keepers(self) -> dict[int, bytes]:
        return self.secrets.keepers(self.keys, self.part)

    @cached_property
    def context(self) -> bytes:
        return secure_rounds.context_of(self.terms, self.digest)

    @cached_property
    def checked(self) -> CheckedRound:
        """What the check words of this padded state belong to."""
        return secure_rounds.checked_round(self.part, self.terms, self.digest)

    @cached_property
    def layout(self) -> Layout:
        return layout_of(self.job, self.state)

    def secure_info(self, state: JobState) -> tasks.SecureInfo:
        at = replace(self, state=state)
        if at.part.wants_keys:
            every = tuple(range(self.terms.n_peers))
            return tasks.SecureInfo(True, every, at.part.unsettled is not None, cohort=at.secured.least)
        return tasks.SecureInfo(
            wants_keys=False, asked=members_of(at.part.asked), keepers=tuple(at.keepers), maker=at.part.maker.index,
            cohort=at.secured.least, whole=secure_rounds.whole(at.part, self.terms), groups=at.part.groups,
            one_by_one=bool(at.secured.groups),
        )  # fmt: skip

    def answer(self, task: tasks.Contribute, local: Local, blobs: BlobAccess) -> Outcome:
        return self._key(task, local) if self.part.wants_keys else self._contribution(task, local, blobs)

    def _key(self, task: tasks.Contribute, local: Local) -> Outcome:
        """Return this peer's new key, and what it took away in the context that is not settled."""
        pads, part = task.pads, self.part
        assert pads is not None
        refusal = self._unusable(local) or ("" if pads.intact else _OTHER_STORE) or self._reserved()
        taken = (
            None if not pads.intact else 0 if part.unsettled is None else dict(pads.sets).get(part.unsettled.state, 0)
        )
        told = parted(taken, self.secured.groups) if taken else ()
        known = secure_rounds.unnamed(part, self.secrets.known_sets(self.keys, part, pads))
        sets = tuple(one for one in known if one not in told)[:_MOST_TOLD]
        columns = 0 if refusal else local.n_features
        bare = KeyEntry(task.me, _NO_KEY, columns, insists=False, refusal=refusal[:200], taken=taken, sets=sets)
        checked = None if part.unsettled is None else part.unsettled.checked
        data = self.secrets.renew(self.keys, self.digest, bare, checked).encode()
        return tasks.Contributed(tasks.Ref(hashlib.blake2b(data, digest_size=32).digest(), len(data), data))

    def next_state(self, task: NextState, blobs: BlobAccess) -> Outcome:
        if isinstance(task, tasks.CancelJob):
            return self.made(showing(secure_rounds.cancelled(self.state, task.cancel.by), task), blobs)
        if isinstance(task, tasks.RenewKeys):
            return self.made(self.secured.renewed(task.abstained, task.silent), blobs)
        if isinstance(task, tasks.CombineRound) and self.part.wants_keys:
            assert task.maker is not None
            given = {index: ref.payload or b"" for (index,), ref in task.contributions}
            answers, malformed = readable(given, KeyEntry.decode)
            try:
                by = "" if task.cancel is None else task.cancel.by
                absent = {**task.abstained, **malformed}
                after = self.secured.keys_closed(answers, absent, task.maker, cancelled_by=by)
            except secure_rounds.NotEnough as few:
                return tasks.TooFew(few.reason)
            return self.made(showing(after, task), blobs)
        assert isinstance(task, tasks.CombineRound | tasks.FinishRound)
        assert task.maker is not None
        try:
            total, members, abstained = self._combined(task, blobs)
        except WireError as error:  # the parts of the round do not belong together
            why = error if isinstance(error, NoTotalError) else NoTotalError("")
            return self.made(self.secured.renewed({}, why.silent, why.wrong), blobs)
        return self.made(self.secured.closed(total, members, abstained, task.maker), blobs, before=self.state)

    def _contribution(self, task: tasks.Contribute, local: Local, blobs: BlobAccess) -> Outcome:
        """Return this peer's contribution with the pads of all keepers; or why there is none."""
        job, state, part = self.job, self.state, self.part
        rows = self.secrets.digest_of(local)
        unbelieved = self.secrets.problem_with(self.keys, part)  # a peer that is not asked learns from the list, too
        if not part.asked >> task.me & 1:
            return NoResult(part.absent.get(task.me, NOT_DRAWN))
        pair = self.secrets.pair(self.keys, task.me, part)
        if pair is None:
            return NoResult(NEW_KEYS)
        # The aggregator may have passed over a refusal, so all that was asked with the key is asked again.
        if refusal := self._refusal(task, local, rows, unbelieved):
            return NoResult(refusal)
        layout, protocol = self.layout, job.protocols[state.stage]
        noisy = isinstance(protocol, Additive) and protocol.noisy
        # Noise follows from the context: it is the same if the contribution is made again, and new in every other round.
        entropy = pair.noise_source(self.context) if noisy else None
        try:
            contribution = engine.contribution(job, state, local, task.me, task.n_peers, entropy=entropy)
        except Abstain as abstention:
            return NoResult(abstention.reason)
        words = pair.words(layout.size, self.context) if layout.whether else None
        padded = pair.padded(layout.numbers(contribution, words), task.me, self.keepers, self.context)
        self.secrets.contributed(self.keys, self.digest, self.secured.segments(part.asked))
        arrays = {PADDED: padded.view(np.int64)}
        if part.strict:
            arrays[SIGNED] = np.frombuffer(self.signed_word(task.me, 0, padded).signature, "<i8")
        return tasks.Contributed(blobs.keep(Arrays(arrays).encode()), rows=rows, noisy=noisy)

    def _refusal(  # noqa: PLR0911 - a return for each rule
        self, task: tasks.Contribute, local: Local, rows: bytes, unbelieved: str
    ) -> str:  # fmt: skip
        """Return why this peer does not contribute, by the first rule that says so, or an empty string."""
        job, pads, keepers, secure = self.job, task.pads, self.keepers, self.terms.secure
        assert pads is not None
        if problem := self._unusable(local) or unbelieved:
            return problem
        if len(keepers) <= secure.colluders:
            return f"{LEFT_OUT}: {len(keepers)} keepers are too few"
        if self.secrets.insists and task.me not in keepers:
            return "it contributes only where it keeps pads itself"
        if secure_rounds.exposed_by_joining(self.part, self.part.asked, secure) >> task.me & 1:
            return WOULD_BE_EXPOSED
        if not pads.intact:
            return _OTHER_STORE
        # In private jobs no difference of sums gives a row away, and a refusal would say that rows have changed.
        if pads.rows not in (b"", rows) and not job.mu_squared:
            return _OTHER_ROWS
        protocol = job.protocols[self.state.stage]
        most = protocol.most_totals if isinstance(protocol, Additive) else 0
        if most and pads.noisy >= most:  # each contribution with noise costs privacy
            return f"privacy budget: it has contributed {pads.noisy} times, and epsilon covers {most}"
        sets = self.secured.segments(self.part.asked)
        if refusal := self._hides(pads, sets) or self._barred():
            return f"{LEFT_OUT}: {refusal}"  # the next aggregator may do better

        def named() -> Sequence[PeerSet]:
            devices = self.terms.keys.devices
            return [PeerSet.of(self.keys.job_id, rows, [devices[i] for i in members_of(one)]) for one in sets]

        return self._reserved(named)  # the ledger is the last to be asked, because it notes the answer

    def _unusable(self, local: Local) -> str:
        """Return why these rows take no part; of a job with noise no reason may depend on values."""
        if self.job.mu_squared:
            return local.refused or ("" if local.n_features else UNUSABLE)
        keeps_gaps = self.job.protocols[self.job.main].keeps_gaps
        return local.problem_if(keeps_gaps=keeps_gaps) or ("" if local.X.size else NO_DATA)

    def _reserved(self, sets: Callable[[], Sequence[PeerSet]] = tuple) -> str:
        """Note a job in the device's ledger, on disk before anything is revealed; return why not."""
        return self.secrets.reserve(self.keys.job_id, self.job.mu_squared, self.terms.secure.cohort, sets)

    def _hides(self, pads: tasks.PadsKept, sets: tuple[int, ...]) -> str:
        """Return why the sums of these sets may not be revealed after a state, or an empty string.

        What peers report must be in the state. And with ``leave = "groups"`` no class with sets that this peer knows may be
        too small. It does not matter whether the numbers are the same as before: the peer that writes the state also
        chooses them.
        """
        secure = self.terms.secure
        if problem := secure_rounds.problem_with_answers(self.part, secure):
            return problem
        if secure.leave != "groups":
            return ""
        known, members = self.secrets.known_sets(self.keys, self.part, pads), sum(sets)
        # Of a class that is exposed already, nothing more is said by the sum of other peers.
        more = exposed((*known, *sets), secure.cohort) & (members | ~exposed(known, secure.cohort))
        return SMALL_CLASS if more & ~secure_rounds.proved_peers(self.part, self.terms) else ""

    def _barred(self) -> str:
        """Return why the peers that the fleet roster in force bars leave too few others, or an empty string.

        A key of a device that was stolen and revoked still signs: its peer hides no other peer, and keeps no secret.
        """
        others = self.part.asked & ~self.keys.barred
        keep = len([keeper for keeper in self.keepers if not self.keys.barred >> keeper & 1])
        if others.bit_count() < self.secured.least or keep <= self.terms.secure.colluders:
            return "without peers that were revoked, or have new keys, too few are asked or keep pads"
        return ""

    def take_pads(self, task: tasks.TakePads, blobs: BlobAccess) -> Outcome:
        """Return this keeper's pads of some peers, sealed for the aggregator that asks, or signed; or why it refuses.

        With the pads come the sets whose sums can be revealed with them, and the sum if the keeper hands over both.
        """
        members = task.members
        if refusal := self._withheld(task):
            return NoResult(refusal)
        pair = self.secrets.pair(self.keys, task.me, self.part)
        asker = next((entry.public for entry in self.part.entries if entry.index == task.maker.index), None)
        if pair is None or asker is None:
            return NoResult("it, or the aggregator, has new keys")
        handed = self._handed(pair, task.me, members)
        if self.keys.verify:
            data = self._signed(handed, task.me, members).encode()
        else:
            data = pair.seal(handed, task.me, asker, self.context, members_of(members)).data
        if task.sum is not None:
            data = bytes(msgpack.packb([data, blobs.whole(task.sum)]))
        return tasks.PadsTaken(blobs.keep(data), self.secured.segments(members))

    def _withheld(self, task: tasks.TakePads) -> str:
        part = self.part
        if part.wants_keys or (task.sum is None and part.maker != task.maker):
            return "the state was made by another peer, or in another term"
        if problem := self.secured.problem_with_set(task.members):
            return problem
        if not task.pads.intact:
            return _OTHER_STORE
        if task.me not in self.keepers:
            return "it keeps no pads in this round"
        sets = self.secured.segments(task.members)
        if len({*task.pads.released, *sets}) > MOST_SETS:
            return f"it has taken its pads away for {MOST_SETS} different sets of peers"
        return self.secrets.problem_with(self.keys, part) or self._hides(task.pads, sets)

    def own_pads(self, members: int, me: int) -> OpenPads | None:
        """Return this peer's own pads of some peers, signed; None if it keeps none. Raise WireError if it has new keys."""
        if me not in self.keepers:
            return None
        return self._signed(self._handed(self._pair(me), me, members), me, members)

    def _signed(self, numbers: Numbers, me: int, members: int) -> OpenPads:
        bare = OpenPads(me, np.ascontiguousarray(numbers, dtype="<u8").tobytes())
        statement = bare.statement(self.secrets.fleet, self.keys.job_id, self.digest, members)
        return replace(bare, signature=self.secrets.sign(statement))

    def _pair(self, me: int) -> KeyPair:
        pair = self.secrets.pair(self.keys, me, self.part)
        if pair is None:
            raise WireError("this peer was restarted and has new keys")
        return pair

    def _removed(self, pair: KeyPair, me: int, members: int) -> Numbers:
        """Return a keeper's pads of the members, added up; in a stage by groups, of each group one after the other."""
        public = {entry.index: entry.public for entry in self.part.entries}
        return np.concatenate([
            pair.removed(me, {index: public[index] for index in members_of(own)}, self.layout.size, self.context)
            for own in self.secured.segments(members)
        ])  # fmt: skip

    def _handed(self, pair: KeyPair, me: int, members: int) -> Numbers:
        """Return a keeper's pads of the members; where check words are signed, the signatures follow."""
        removed = self._removed(pair, me, members)
        words = self._own_words(removed, me, members)
        return (
            np.concatenate([removed, *(np.frombuffer(word.signature, "<u8") for word in words)]) if words else removed
        )

    def _handed_size(self, members: int) -> int:
        return len(self.secured.segments(members)) * (self.layout.size + (_SIGNATURE if self.part.strict else 0))

    def _own_words(self, removed: Numbers, me: int, members: int) -> list[CheckWord]:
        if not self.part.strict:
            return []
        pieces = np.split(removed, removed.size // self.layout.size)
        return [
            self.signed_word(me, own, piece)
            for own, piece in zip(self.secured.segments(members), pieces, strict=True)
        ]  # fmt: skip

    def signed_word(self, me: int, members: int, numbers: Numbers) -> CheckWord:
        word = CheckWord(me, members, int(numbers[-1]))
        return replace(word, signature=self.secrets.sign(self.checked.statement(self.context, word)))

    def read_words(
        self, given: Iterable[tuple[Peers, Contribution]]
    ) -> tuple[dict[int, Contribution], list[CheckWord]]:
        """Return contributions without the signatures of their check words, and these words.

        Without the contributions of peers that have not signed theirs.
        """
        padded, words = {}, []
        for peer, one in given:
            assert isinstance(peer, int), "what is signed is not added up on the way"
            numbers, signature = np.asarray(one[PADDED]), np.asarray(one[SIGNED]).astype("<i8").tobytes()
            word = CheckWord(peer, 0, int(numbers[-1]) % 2**64, signature)
            if self.checked.is_signed(word, self.terms.keys, self.context):
                padded[peer] = Arrays({PADDED: numbers})
                words.append(word)
        return padded, words

    def read_pads(self, keeper: int, members: int, handed: Numbers) -> tuple[Numbers, list[CheckWord]]:
        """Return a keeper's pads, and its check words where they are signed; raise NoTotalError if they cannot be used."""
        if handed.size != self._handed_size(members):
            raise NoTotalError(f"the pads of keeper {keeper} have {handed.size} numbers", silent=(keeper,))
        if not self.part.strict:
            return handed, []
        sets = self.secured.segments(members)
        end = len(sets) * self.layout.size
        numbers, signatures = handed[:end], handed[end:].astype("<u8").reshape(len(sets), _SIGNATURE)
        words = [
            CheckWord(keeper, own, int(piece[-1]), signature.tobytes())
            for own, piece, signature in zip(sets, np.split(numbers, len(sets)), signatures, strict=True)
        ]
        if not all(self.checked.is_signed(word, self.terms.keys, self.context) for word in words):
            raise NoTotalError(f"keeper {keeper} has not signed its check word", silent=(keeper,))
        return numbers, words

    def added_up(self, task: tasks.AddUp | tasks.SumPadded, blobs: BlobAccess) -> Outcome:
        """Add up padded contributions, at the aggregator without its own pads.

        Of the groups that have enough members; in a stage by groups their sums, one after the other. Where check words are
        signed, they follow.
        """
        if isinstance(task, tasks.AddUp):
            return super().added_up(task, blobs)
        given: Iterable[tuple[Peers, Contribution]] = self.given(task, blobs, {})
        words: list[CheckWord] = []
        if self.part.strict:
            padded, words = self.read_words(given)
            given = padded.items()
        one_by_one = bool(self.secured.groups)
        totals, peers = _added_up(
            given, self.part.groups, self.terms.secure.cohort, self.n_peers, one_by_one=one_by_one
        )
        if not totals:
            return tasks.Summed(None, ())
        numbers = np.concatenate([total[PADDED] for total in totals]).view(np.uint64)
        words = [word for word in words if word.index in peers]
        if task.me in self.keepers:
            removed = self._removed(self._pair(task.me), task.me, as_mask(peers))
            numbers -= removed
            words += self._own_words(removed, task.me, as_mask(peers))
        data = Arrays({PADDED: numbers.view(np.int64)}).encode()
        if self.part.strict:
            data = bytes(msgpack.packb([data, [word.packed() for word in words]]))
        return tasks.Summed(blobs.keep(data), peers)

    def _combined(
        self, task: tasks.CombineRound | tasks.FinishRound, blobs: BlobAccess
    ) -> tuple[Contribution | list[Contribution], int, Mapping[int, str]]:
        """Return the total of a padded round, of this aggregator or of one that is gone, its peers, and who abstained.

        Raise WireError if its parts do not fit.
        """
        abstained: Mapping[int, str]
        if isinstance(task, tasks.CombineRound):
            ((peers, padded),) = task.contributions
            sealed = {keeper: blobs.whole(ref) for keeper, ref in task.removed}
            members, data, abstained = as_mask(peers), blobs.whole(padded), task.abstained
        else:
            sealed, data = self.handed_over(task, blobs)
            members = task.members
            others = members_of(self.part.asked & ~members)
            abstained = dict.fromkeys(others, NOT_COUNTED)
        assert task.maker is not None
        return self._total(members, task.maker.index, data, sealed), members, abstained

    def handed_over(self, task: tasks.FinishRound, blobs: BlobAccess) -> tuple[dict[int, bytes], bytes]:
        """Return the pads, and the sum, that keepers hold of a round whose maker is gone; or raise WireError."""
        if problem := self.secured.problem_with_set(task.members):
            raise WireError(problem)
        sealed, sums = {}, {}
        for keeper, ref in task.removed:
            data = blobs.whole(ref)
            if keeper == task.maker.index:
                sums[keeper] = data
                continue
            try:
                sealed[keeper], sums[keeper] = msgpack.unpackb(data, max_ext_len=0)
                if type(sealed[keeper]) is not bytes or type(sums[keeper]) is not bytes:
                    raise ValueError("wrong types")
            except (ValueError, TypeError, msgpack.UnpackException) as error:
                raise WireError(f"pads that were handed over: {error}") from None
        if not sums:
            raise WireError("no keeper has handed over a sum")
        return sealed, next(iter(sums.values()))

    def _total(
        self, members: int, me: int, data: bytes, sealed: Mapping[int, bytes]
    ) -> Contribution | list[Contribution]:  # fmt: skip
        """Return the total of a set of peers, from what :meth:`added_up` made, and what keepers took away."""
        words: list[CheckWord] = []
        if self.part.strict:
            try:
                data, signed = msgpack.unpackb(data, max_ext_len=0)
                if type(data) is not bytes:
                    raise ValueError("wrong types")
                words = [CheckWord.unpacked(word) for word in signed]
            except (ValueError, TypeError, msgpack.UnpackException) as error:
                raise WireError(f"a padded sum is malformed: {error}") from None
        arrays = Arrays.decode(data)
        if list(arrays) != [PADDED] or arrays.dtype(PADDED) != np.int64:
            raise WireError("a padded sum is malformed")
        pair, removed = self._pair(me), list[Numbers]()
        peers, size = members_of(members), self._handed_size(members)
        for keeper, public in self.keepers.items():
            if keeper == self.part.maker.index:
                continue  # it left its pads out of the sum
            if keeper == me:
                own = self._removed(pair, me, members)
                removed.append(own)
                words += self._own_words(own, me, members)
            elif keeper in sealed:
                try:
                    handed = pair.unseal(Sealed(keeper, sealed[keeper]), public, self.context, peers, size)
                except WireError as error:
                    raise NoTotalError(str(error), silent=(keeper,)) from None
                numbers, of_keeper = self.read_pads(keeper, members, handed)
                removed.append(numbers)
                words += of_keeper
        return self.unpadded(members, arrays[PADDED].view(np.uint64), removed, words)

    def unpadded(
        self, members: int, padded: Numbers, removed: Sequence[Numbers], words: Sequence[CheckWord]
    ) -> Contribution | list[Contribution]:  # fmt: skip
        """Return the total of a set of peers, in a stage by groups one for each set; raise WireError if there is none."""
        sets, size = self.secured.segments(members), self.layout.size
        if any(vector.size != len(sets) * size for vector in (padded, *removed)):
            raise WireError("a padded sum, or pads, of another length than the round has")
        totals = []
        for place, own in enumerate(sets):
            piece = slice(place * size, (place + 1) * size)
            try:
                total = self.layout.unpadded([padded[piece]], [one[piece] for one in removed], own.bit_count())
            except WrongCheckWordError as error:
                raise NoTotalError(str(error), wrong=self.checked.with_words(words)) from None
            totals.append(total)
        return totals if self.secured.groups else totals[0]


def readable(given: Mapping[int, bytes], read: Callable[[int, bytes], T]) -> tuple[dict[int, T], dict[int, str]]:
    """Read what peers sent, by roster index; return also the peers whose bytes are malformed, and why."""
    found, malformed = {}, {}
    for index, data in given.items():
        try:
            found[index] = read(index, data)
        except WireError as error:
            malformed[index] = f"malformed: {error}"
    return found, malformed


def _added_up(
    given: Iterable[tuple[Peers, Arrays]], groups: Sequence[int], cohort: int, n_peers: int, *, one_by_one: bool
) -> tuple[list[Arrays], tuple[int, ...]]:  # fmt: skip
    if not groups:
        total, peers = added_up(given, n_peers)
        return [] if total is None else [total], peers
    parts: list[list[tuple[Peers, Arrays]]] = [[] for _ in groups]
    for peer, part in given:
        assert isinstance(peer, int), "no tree adds up what goes to groups"
        parts[next(place for place, own in enumerate(groups) if own >> peer & 1)].append((peer, part))
    parts = [own for own in parts if len(own) >= cohort]
    found = [added_up(own, n_peers) for own in (parts if one_by_one else [list(chain(*parts))])]
    totals = [total for total, _ in found if total is not None]
    return totals, tuple(sorted(peer for _, peers in found for peer in peers))


def compared(final: JobState, sets: Sequence[int], terms: Terms) -> tasks.KeysForgotten:
    """Compare the sets for which this peer took pads away with those that the final state names."""
    part = secure_rounds.secured_of(final)
    unnamed = secure_rounds.unnamed(part, sets)
    listed = secure_rounds.exposed_peers(final)
    return tasks.KeysForgotten(
        unnamed,
        tuple(one for one in secure_rounds.exposed_peers(final, unnamed) if one not in listed),
        members_of(secure_rounds.proved_peers(part, terms)),
    )
