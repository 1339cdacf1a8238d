"""The tasks of jobs with secure sums (docs/secure-sums.md): keys, padded contributions, and what keepers take away.

A contribution is padded within the task that computes it, so that it is nowhere else: in no message, blob, digest or log.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from p2pclust.errors import WireError
from p2pclust.peer.core.tasks import (
    CombineRound,
    Contribute,
    Contributed,
    JobKeys,
    KeysForgotten,
    NoResult,
    Outcome,
    PadsKept,
    Ref,
    SecureInfo,
    SumPadded,
    TakePads,
    TooFew,
)
from p2pclust.peer.work.secrets import Secrets
from p2pclust.protocols.engine import engine, secure_rounds
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.base import Abstain, Additive
from p2pclust.protocols.engine.engine import Peers, added_up
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.padded import Layout, layout_of
from p2pclust.protocols.engine.reasons import LEFT_OUT, NEW_KEYS, NO_DATA, NOT_DRAWN, SMALL_CLASS, UNUSABLE
from p2pclust.protocols.engine.wire import PADDED
from p2pclust.protocols.private.ledger import PeerSet
from p2pclust.protocols.secure.classes import exposed, parted
from p2pclust.protocols.secure.key_list import KeyEntry
from p2pclust.protocols.secure.pads import KeyPair, Numbers, Sealed
from p2pclust.protocols.secure.proofs import OpenPads
from p2pclust.protocols.secure.secured import MOST_SETS, Secured
from p2pclust.tools.bit_sets import as_mask, members_of

_OTHER_STORE: Final = "its store is not the one that it had at submission, so it may have other rows than before"
_NO_KEY: Final = bytes(32)  # in the place of the key that an answer gets
_MOST_TOLD: Final = 16  # sets that an answer reports: the others with the next one
_OTHER_ROWS: Final = (
    "it has other rows than at its first contribution, and the difference of two sums would give them away"
)


def info_of(job: Job, state: JobState, keys: JobKeys | None, secrets: Secrets) -> SecureInfo | None:
    """Return what the core may know about a state, or None without secure sums or after the end."""
    if keys is None or state.status != "running":
        return None
    part, terms = secure_rounds.secured_of(state), secrets.terms(keys)
    if part.wants_keys:
        every = tuple(range(terms.n_peers))
        return SecureInfo(
            True, every, part.unsettled is not None, cohort=secure_rounds.least_members(job, state, terms)
        )
    keepers, least = tuple(secrets.keepers(keys, part)), secure_rounds.least_members(job, state, terms)
    whole = secure_rounds.whole(part, terms)
    groups = secure_rounds.groups_in(job, state, part)
    return SecureInfo(False, members_of(part.asked), False, keepers, part.maker.index, least, whole, groups)


def answer_with_key(
    job: Job, state: JobState, task: Contribute, keys: JobKeys, local: Local, secrets: Secrets
) -> Outcome:  # fmt: skip
    """Return this peer's new key, and what it took away in the context that is not settled."""
    pads = task.pads
    assert pads is not None
    refusal = _unusable(job, local) or ("" if pads.intact else _OTHER_STORE) or _reserved(job, keys, secrets)
    part = secure_rounds.secured_of(state)
    taken = None if not pads.intact else 0 if part.unsettled is None else dict(pads.sets).get(part.unsettled.state, 0)
    told = parted(taken, secure_rounds.groups_in(job, state, part)) if taken else ()
    sets = [one for one in secure_rounds.unnamed(part, secrets.known_sets(keys, part, pads)) if one not in told]
    columns = 0 if refusal else local.n_features
    bare = KeyEntry(
        task.me, _NO_KEY, columns, insists=False, refusal=refusal[:200], taken=taken, sets=tuple(sets[:_MOST_TOLD])
    )
    data = secrets.renew(keys, task.state.digest, bare).encode()
    return Contributed(Ref(hashlib.blake2b(data, digest_size=32).digest(), len(data), data))


def _reserved(job: Job, keys: JobKeys, secrets: Secrets, sets: Callable[[], Sequence[PeerSet]] = tuple) -> str:
    """Note a job in the device's ledger, on disk before anything is revealed; return why not."""
    return secrets.reserve(keys.job, secure_rounds.mu_squared_of(job), secrets.terms(keys).secure.cohort, sets)


def _unusable(job: Job, local: Local) -> str:
    """Return why these rows take no part; of a job with noise no reason may depend on values."""
    if secure_rounds.mu_squared_of(job):
        return local.refused or ("" if local.n_features else UNUSABLE)
    return (local.problem or NO_DATA) if not local.X.size or local.problem else ""


def contribute_padded(
    job: Job, state: JobState, task: Contribute, keys: JobKeys, local: Local, secrets: Secrets
) -> tuple[Arrays, bytes] | NoResult:
    """Return this peer's contribution with the pads of all keepers, and a digest of its rows; or why there is none."""
    part, terms = secure_rounds.secured_of(state), secrets.terms(keys)
    keepers, rows = secrets.keepers(keys, part), secrets.digest_of(local)
    unbelieved = secrets.problem_with(keys, part)  # a peer that is not asked learns from the list, too
    if not part.asked >> task.me & 1:
        return NoResult(part.absent.get(task.me, NOT_DRAWN))
    pair = secrets.pair(keys, task.me, part)
    if pair is None:
        return NoResult(NEW_KEYS)
    assert task.pads is not None
    sets = secure_rounds.segments_of(job, state, part.asked)
    # The aggregator may have passed over a refusal, so all that was asked with the key is asked again.
    refusal = _unusable(job, local) or unbelieved
    if refusal := refusal or _problem_with(job, task, rows, keepers, terms, secrets) or _spent(job, state, task):
        return NoResult(refusal)

    def named() -> Sequence[PeerSet]:
        return [PeerSet.of(keys.job, rows, [terms.keys.devices[i] for i in members_of(one)]) for one in sets]

    refusal = _hides(keys, part, task.pads, sets, secrets) or _barred(job, state, keepers, keys, terms)
    # The next aggregator may do better. The ledger is the last to be asked, because it notes the answer.
    if refusal := f"{LEFT_OUT}: {refusal}" if refusal else _reserved(job, keys, secrets, named):
        return NoResult(refusal)
    context, layout = secure_rounds.context_of(terms, task.state.digest), layout_of(job, state)
    # Noise follows from the context: it is the same if the contribution is made again, and new in every other round.
    entropy = pair.noise_source(context) if secure_rounds.is_noisy(job, state) else None
    try:
        contribution = engine.contribution(job, state, local, task.me, task.n_peers, entropy=entropy)
    except Abstain as abstention:
        return NoResult(abstention.reason)
    words = pair.words(layout.size, context) if layout.whether else None
    padded = pair.padded(layout.numbers(contribution, words), task.me, keepers, context)
    secrets.contributed(keys, task.state.digest, sets)
    return Arrays({PADDED: padded.view(np.int64)}), rows


def _hides(keys: JobKeys, part: Secured, pads: PadsKept, sets: tuple[int, ...], secrets: Secrets) -> str:
    """Return why the sums of these sets may not be revealed after a state, or an empty string.

    What peers report must be in the state. And with ``leave = "groups"`` no class with sets that this peer knows may be too
    small. It does not matter whether the numbers are the same as before: the peer that writes the state also chooses them.
    """
    secure = secrets.terms(keys).secure
    if flaw := secure_rounds.answers_flaw(part, secure):
        return flaw
    if secure.leave != "groups":
        return ""
    known, members = secrets.known_sets(keys, part, pads), sum(sets)
    # Of a class that is exposed already, nothing more is said by the sum of other peers.
    more = exposed((*known, *sets), secure.cohort) & (members | ~exposed(known, secure.cohort))
    return SMALL_CLASS if more else ""


def _spent(job: Job, state: JobState, task: Contribute) -> str:
    """Return why this peer no longer adds noise, or an empty string: each contribution with noise costs privacy."""
    protocol, pads = job.protocols[state.stage], task.pads
    assert pads is not None
    if not isinstance(protocol, Additive) or not protocol.most_totals or pads.noisy < protocol.most_totals:
        return ""
    return f"privacy budget: it has contributed {pads.noisy} times, and epsilon covers {protocol.most_totals}"


def _problem_with(
    job: Job, task: Contribute, rows: bytes, keepers: Mapping[int, bytes], terms: secure_rounds.Terms, secrets: Secrets
) -> str:  # fmt: skip
    """Return why this peer does not contribute under such a list of keys, or an empty string."""
    pads = task.pads
    assert pads is not None
    if len(keepers) <= terms.secure.colluders:
        return f"{LEFT_OUT}: {len(keepers)} keepers are too few"
    if secrets.insists and task.me not in keepers:
        return "it contributes only where it keeps pads itself"
    if not pads.intact:
        return _OTHER_STORE
    # In private jobs no difference of sums gives a row away, and a refusal would say that rows have changed.
    return "" if pads.rows in (b"", rows) or secure_rounds.mu_squared_of(job) else _OTHER_ROWS


def _barred(
    job: Job, state: JobState, keepers: Mapping[int, bytes], keys: JobKeys, terms: secure_rounds.Terms
) -> str:  # fmt: skip
    """Return why the peers that the fleet roster in force bars leave too few others, or an empty string.

    A key of a device that was stolen and revoked still signs: its peer is no one to hide among, and keeps no secret.
    """
    others = secure_rounds.secured_of(state).asked & ~keys.barred
    keep = len([keeper for keeper in keepers if not keys.barred >> keeper & 1])
    if others.bit_count() < secure_rounds.least_members(job, state, terms) or keep <= terms.secure.colluders:
        return "without peers that were revoked, or have new keys, too few are asked or keep pads"
    return ""


def take_pads(
    job: Job, state: JobState, task: TakePads, keys: JobKeys, secrets: Secrets, *, in_open: bool = False
) -> tuple[bytes, tuple[int, ...]] | NoResult:  # fmt: skip
    """Return this keeper's pads of some peers, sealed for the aggregator that asks, or signed; or why it refuses.

    With the pads come the sets whose sums can be revealed with them.
    """
    part, members = secure_rounds.secured_of(state), task.members
    if refusal := _withheld(job, state, task, keys, secrets):
        return NoResult(refusal)
    pair = secrets.pair(keys, task.me, part)
    asker = next((entry.public for entry in part.entries if entry.index == task.maker.index), None)
    if pair is None or asker is None:
        return NoResult("it, or the aggregator, has new keys")
    context = secure_rounds.context_of(secrets.terms(keys), task.state.digest)
    removed, sets = (
        _removed(job, state, pair, task.me, members, context),
        secure_rounds.segments_of(job, state, members),
    )
    if in_open:
        return open_pads(removed, task.me, task.state.digest, members, keys, secrets).encode(), sets
    return pair.seal(removed, task.me, asker, context, members_of(members)).data, sets


def _withheld(job: Job, state: JobState, task: TakePads, keys: JobKeys, secrets: Secrets) -> str:
    """Return why this keeper does not take its pads away, or an empty string."""
    part, terms = secure_rounds.secured_of(state), secrets.terms(keys)
    if part.wants_keys or (task.sum is None and part.maker != task.maker):
        return "the state was made by another peer, or in another term"
    if flaw := secure_rounds.set_flaw(job, state, task.members, terms):
        return flaw
    if not task.pads.intact:
        return _OTHER_STORE
    if task.me not in secrets.keepers(keys, part):
        return "it keeps no pads in this round"
    sets = secure_rounds.segments_of(job, state, task.members)
    if len({*task.pads.released, *sets}) > MOST_SETS:
        return f"it has taken its pads away for {MOST_SETS} different sets of peers"
    return secrets.problem_with(keys, part) or _hides(keys, part, task.pads, sets, secrets)


def own_pads(
    job: Job, state: JobState, digest: bytes, members: int, me: int, keys: JobKeys, secrets: Secrets
) -> OpenPads | None:  # fmt: skip
    """Return this peer's own pads of some peers, signed; None if it keeps none.

    Raises
    ------
    WireError
        If it has new keys.
    """
    part = secure_rounds.secured_of(state)
    if me not in secrets.keepers(keys, part):
        return None
    pair = secrets.pair(keys, me, part)
    if pair is None:
        raise WireError("this peer was restarted and has new keys")
    context = secure_rounds.context_of(secrets.terms(keys), digest)
    removed = _removed(job, state, pair, me, members, context)
    return open_pads(removed, me, digest, members, keys, secrets)


def open_pads(
    numbers: Numbers, me: int, digest: bytes, members: int, keys: JobKeys, secrets: Secrets
) -> OpenPads:  # fmt: skip
    """Return pads with this device's signature."""
    bare = OpenPads(me, np.ascontiguousarray(numbers, dtype="<u8").tobytes())
    return replace(bare, signature=secrets.sign(bare.statement(secrets.fleet, keys.job, digest, members)))


def combine_keys(job: Job, state: JobState, task: CombineRound, keys: JobKeys, secrets: Secrets) -> JobState | TooFew:
    """Return the padded state that follows from the keys that came."""
    assert task.maker is not None
    given = {index: ref.payload or b"" for (index,), ref in task.contributions}
    answers, malformed = read_keys(given)
    abstained = {**task.abstained, **malformed}
    try:
        return secure_rounds.keys_closed(
            job, state, task.state.digest, answers, abstained, secrets.terms(keys), task.maker,
            cancelled_by="" if task.cancel is None else task.cancel.by,
        )  # fmt: skip
    except secure_rounds.NotEnough as waits:
        return TooFew(waits.reason)


def read_keys(given: Mapping[int, bytes]) -> tuple[dict[int, KeyEntry], dict[int, str]]:
    """Read what peers answered to a state that is open for keys; return also the peers whose answer is unreadable."""
    answers, malformed = {}, {}
    for index, data in given.items():
        try:
            answers[index] = KeyEntry.decode(index, data)
        except WireError as error:
            malformed[index] = f"malformed: {error}"
    return answers, malformed


def padded_sum(
    job: Job, state: JobState, task: SumPadded, keys: JobKeys, secrets: Secrets,
    given: Iterator[tuple[Peers, Arrays]],
) -> tuple[Arrays | None, tuple[int, ...]]:  # fmt: skip
    """Return the sum of padded contributions without this peer's own pads, and the peers that are in it.

    In a stage by groups, the sums of the groups that have enough members, one after the other.
    """
    part, terms = secure_rounds.secured_of(state), secrets.terms(keys)
    totals, peers = _added_up(given, secure_rounds.groups_in(job, state, part), terms.secure.cohort, task.n_peers)
    if not totals:
        return None, ()
    numbers = np.concatenate([np.array(total[PADDED]).view(np.uint64) for total in totals])
    if task.me in secrets.keepers(keys, part):
        pair = secrets.pair(keys, task.me, part)
        if pair is None:
            raise WireError("this peer was restarted and has new keys")
        context = secure_rounds.context_of(terms, task.state.digest)
        numbers -= _removed(job, state, pair, task.me, as_mask(peers), context)
    return Arrays({PADDED: numbers.view(np.int64)}), peers


def _added_up(
    given: Iterator[tuple[Peers, Arrays]], groups: Sequence[int], cohort: int, n_peers: int
) -> tuple[list[Arrays], tuple[int, ...]]:  # fmt: skip
    if not groups:
        total, peers = added_up(given, n_peers)
        return [] if total is None else [total], peers
    parts: list[list[tuple[Peers, Arrays]]] = [[] for _ in groups]
    for peer, part in given:
        assert isinstance(peer, int), "no tree adds up what goes to groups"
        parts[next(place for place, own in enumerate(groups) if own >> peer & 1)].append((peer, part))
    found = [added_up(own, n_peers) for own in parts if len(own) >= cohort]
    totals = [total for total, _ in found if total is not None]
    return totals, tuple(sorted(peer for _, peers in found for peer in peers))


def total_of(
    job: Job, state: JobState, digest: bytes, members: int, me: int, keys: JobKeys, secrets: Secrets, padded: Numbers,
    sealed: Mapping[int, bytes],
) -> Arrays | list[Arrays]:  # fmt: skip
    """Return the total of a set of peers, from their padded sum without the maker's pads, and from what keepers took away.

    In a stage by groups, one for each of `segments_of`.

    Raises
    ------
    WireError
        If they do not belong together.
    """
    part, terms = secure_rounds.secured_of(state), secrets.terms(keys)
    context, layout = secure_rounds.context_of(terms, digest), layout_of(job, state)
    pair = secrets.pair(keys, me, part)
    if pair is None:
        raise WireError("this peer was restarted and has new keys")
    sets = secure_rounds.segments_of(job, state, members)
    removed: list[Numbers] = []
    for keeper, public in secrets.keepers(keys, part).items():
        if keeper == part.maker.index:
            continue  # it left its pads out of the sum
        if keeper == me:
            removed.append(_removed(job, state, pair, me, members, context))
        elif keeper in sealed:
            data = Sealed(keeper, sealed[keeper])
            removed.append(pair.unseal(data, public, context, members_of(members), len(sets) * layout.size))
    if any(vector.size != len(sets) * layout.size for vector in (padded, *removed)):
        raise WireError("a padded sum, or pads, of another length than the round has")
    totals = [
        layout.unpadded(
            [_piece(padded, place, layout)], [_piece(one, place, layout) for one in removed], own.bit_count()
        )
        for place, own in enumerate(sets)
    ]
    return totals if secure_rounds.groups_in(job, state, part) else totals[0]


def _piece(numbers: Numbers, place: int, layout: Layout) -> Numbers:
    return numbers[place * layout.size : (place + 1) * layout.size]


def _removed(job: Job, state: JobState, pair: KeyPair, me: int, members: int, context: bytes) -> Numbers:
    """Return a keeper's pads of the members, added up; in a stage by groups, of each group one after the other."""
    public = {entry.index: entry.public for entry in secure_rounds.secured_of(state).entries}
    size = layout_of(job, state).size
    return np.concatenate([
        pair.removed(me, {index: public[index] for index in members_of(own)}, size, context)
        for own in secure_rounds.segments_of(job, state, members)
    ])  # fmt: skip


def compared(final: JobState, sets: Sequence[int]) -> KeysForgotten:
    """Compare the sets for which this peer took pads away with those that the final state names."""
    unnamed = secure_rounds.unnamed(secure_rounds.secured_of(final), sets)
    listed = secure_rounds.exposed_peers(final)
    return KeysForgotten(
        unnamed, tuple(one for one in secure_rounds.exposed_peers(final, unnamed) if one not in listed)
    )
