"""The rounds of a job with secure sums: which state follows when keys, or padded contributions, have come.

docs/secure-sums.md. Pure functions beside those of the engine: what a padded round adds up to is closed by
:func:`p2pclust.protocols.engine.engine.advance` like any other round, and no protocol knows that there are pads. Rounds in
which keys are exchanged are in no log and count for no limit.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Final

from p2pclust.errors import WireError
from p2pclust.protocols.engine import engine, exclusions
from p2pclust.protocols.engine.arrays import Arrays, Contribution
from p2pclust.protocols.engine.base import Additive
from p2pclust.protocols.engine.engine import Group, Peers, by_themselves, reasons_of
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.reasons import LATE, LEFT_OUT, MAX_REASON, PROVED, WOULD_BE_EXPOSED
from p2pclust.protocols.secure.check_words import KEY_BYTES, CheckedRound
from p2pclust.protocols.secure.classes import exposed, grouped, in_cohorts, parted
from p2pclust.protocols.secure.key_list import FleetKeys, KeyEntry, KeyList, dealt, keeper_order
from p2pclust.protocols.secure.parameters import SecureSums
from p2pclust.protocols.secure.secured import MOST_PROOFS, Maker, Secured, Unsettled
from p2pclust.tools.bit_sets import as_mask, members_of

MOST_RENEWALS: Final = 10  # so many times in a row are new keys asked for without a total; then the job fails
_GROUPED: Final = f"{LEFT_OUT}: differences of sums would expose it, or peers that are missing"
_SILENT: Final = f"{LEFT_OUT}: it did not answer in this stage"
_SMALL_GROUP: Final = f"{LEFT_OUT}: too few peers of its group contributed"
_NO_KEY: Final = f"{LEFT_OUT}: no key came from it"
_FORMAT: Final = b"p2pclust context 1"


class NotEnough(Exception):  # noqa: N818 - an answer, not an error: the round stays open
    """The keys that came are not enough for a round; ``reason`` says why, in one line.

    - `absent`: the peers that cannot contribute, and why.
    """

    def __init__(self, reason: str, absent: Mapping[int, str]) -> None:
        super().__init__(reason)
        self.reason = reason
        self.absent = {peer: why for peer, why in absent.items() if why}


class NoTotalError(WireError):
    """The parts of a padded round make no total: new keys are asked for, and these two say why."""

    def __init__(self, reason: str, *, silent: Sequence[int] = (), wrong: CheckedRound | None = None) -> None:
        super().__init__(reason)
        self.silent = silent  # keepers whose pads cannot be used
        self.wrong = wrong  # the round, if its check word is wrong


@dataclass(frozen=True)
class Terms:
    """What all peers of a secured job know from its document: its id, its parameters, and its peers' keys."""

    job_id: str
    secure: SecureSums
    keys: FleetKeys

    @property
    def n_peers(self) -> int:
        return len(self.keys.devices)

    @property
    def groups(self) -> tuple[int, ...]:
        """The fixed groups of the job, as sets; none if it has none."""
        return dealt(self.keys, self.n_peers, self.secure.groups)


def problem_with_job(job: Job, groups: int = 0) -> str:
    """Return why no job of these stages can have secure sums, with so many fixed groups, or an empty string."""
    asked = {"secure": True, "participation": job.participation, "groups": groups}
    if problem := next(exclusions.problems(job.fill_in(asked)), ""):
        return problem
    for protocol in job.protocols:
        by_group = groups and isinstance(protocol, Additive) and protocol.one_by_one
        if not (protocol.sums_only() or by_group):
            return f"secure: {protocol.id} {protocol.instead_of_sums()}"
    noisy = [number for number, one in enumerate(job.protocols) if isinstance(one, Additive) and one.noisy]
    if not noisy:
        return ""
    first = engine.begin(job)
    if first.status == "failed":
        return f"secure: {first.reason}"
    if noisy == [len(job.stages) - 1] == [first.stage]:
        return ""
    other = next(number for number in range(first.stage, len(job.stages)) if number != noisy[0])
    return (
        f"secure: {job.protocols[other].id} beside {job.protocols[noisy[0]].id} reveals numbers that depend on single rows "
        "exactly, and no noise would hide these: leave it out"
    )


def begin(job: Job, terms: Terms) -> JobState:
    """Return the state before the first round: it is open for keys, or the job has failed."""
    state = replace(engine.begin(job), secured=Secured(terms.secure.cohort, groups=terms.groups))
    least = SecuredState(job, state, terms).least if state.status == "running" else 0
    if least > terms.n_peers:
        why = f"secure sums: the noise of {least} peers is needed, and the job has {terms.n_peers}: take more peers"
        return replace(state, status="failed", reason=f"{why}, or fewer keepers")
    return state


def secured_of(state: JobState) -> Secured:
    """Return the secured part of a state that must have one; raise WireError otherwise."""
    if state.secured is None:
        raise WireError("job state: a job with secure sums has no secured part")
    return state.secured


def problem_with_state(state: JobState, terms: Terms) -> str:  # noqa: PLR0911 - a return for each rule
    """Return why a secured state that arrived cannot be one of this job, or an empty string."""
    part, n_peers = secured_of(state), terms.n_peers
    u = part.unsettled
    masks = [part.asked, part.silent, *part.groups, *part.revealed, *part.burnt, *part.unknown]
    masks += [] if u is None else [u.asked, u.keepers]
    rounds = [*part.proofs, *([] if u is None or u.checked is None else [u.checked])]
    masks += [one.listed | one.keepers for one in rounds]
    indices = [entry.index for entry in part.entries]
    listed = as_mask(indices)
    if max(masks).bit_length() > n_peers or listed.bit_length() > n_peers or part.asked & ~listed:
        return "its secured part names peers beyond the job roster, or without a key"
    if indices != list(members_of(listed)):
        return "its list of keys is not in roster order, each peer once"
    if (u is not None and u.maker >= n_peers) or any(peer >= n_peers for peer in part.absent):
        return "its secured part names peers beyond the job roster"
    if part.cohort != terms.secure.cohort:
        return f"its cohort is {part.cohort}, and the job's is {terms.secure.cohort}"
    if part.entries and not listed >> part.maker.index & 1:
        return "it is padded, and its maker has no key"
    if part.groups != terms.groups:
        return "its groups of peers are not the job's"
    if any(max(len(one.words), len(one.opened)) > n_peers * (2 + len(terms.groups)) for one in rounds):
        return "it has more check words, or keys of them, than peers can have sent"
    framed = as_mask(peer for peer, why in part.absent.items() if why == PROVED) & ~proved_peers(part, terms)
    return "it says without a proof that a peer has signed a wrong check word" if framed else ""


def context_of(terms: Terms, state: bytes) -> bytes:
    """Return what the pads of a padded state belong to, from the state's digest; 32 bytes."""
    data = _FORMAT
    for part in (terms.keys.fleet, terms.job_id.encode(), state):
        data += len(part).to_bytes(8, "little") + part
    return hashlib.sha256(data).digest()


def keepers(part: Secured, terms: Terms) -> dict[int, bytes]:
    """Return who keeps pads of a padded state, with their public keys, in roster order."""
    return _keeping(part.entries, terms, part.maker, proved_peers(part, terms))


def _keeping(entries: tuple[KeyEntry, ...], terms: Terms, maker: Maker, proved: int) -> dict[int, bytes]:
    found = KeyList(entries).keepers(terms.secure.keepers, terms.keys, maker.index)
    return {index: key for index, key in found.items() if not proved >> index & 1}


def checked_round(part: Secured, terms: Terms, state: bytes) -> CheckedRound:
    """Return what the check words of a padded state belong to, from the state's digest."""
    keys = b"".join(entry.public[KEY_BYTES:] for entry in part.entries)
    return CheckedRound(state, as_mask(keepers(part, terms)), as_mask(entry.index for entry in part.entries), keys)


def proved_peers(part: Secured, terms: Terms) -> int:
    """Return the peers that are proved to have sent wrong check words: they are left out, and may be exposed by that."""
    found = 0
    for one in part.proofs:
        found |= _proved(one, context_of(terms, one.state), tuple(terms.keys.devices))
    return found


@lru_cache(maxsize=16)
def _proved(one: CheckedRound, context: bytes, devices: tuple[bytes, ...]) -> int:
    """Return the peers that a proof is about: each state of the job has the same proofs."""
    return one.proved(FleetKeys(b"", b"", devices), context)


def whole(part: Secured, terms: Terms) -> bool:
    """Return whether the set of a padded round must be all peers that are asked, so that no small class comes about."""
    return terms.secure.leave == "groups" or (terms.secure.burnt == "groups" and bool(part.burnt))


@dataclass(frozen=True)
class SecuredState:
    """A state of a job with secure sums: what may be revealed of it, and which state follows from keys or contributions."""

    job: Job
    state: JobState
    terms: Terms
    digest: bytes = b""  # of the state

    @cached_property
    def part(self) -> Secured:
        return secured_of(self.state)

    @cached_property
    def groups(self) -> tuple[int, ...]:
        """The groups whose totals are revealed one by one in this stage; empty where only the total is."""
        protocol = self.job.protocols[self.state.stage]
        return self.part.groups if isinstance(protocol, Additive) and protocol.one_by_one else ()

    @cached_property
    def least(self) -> int:
        """The fewest peers whose sum may be revealed: the cohort, or more where the noise of honest peers is needed."""
        protocol, noisy = self.job.protocols[self.state.stage], 0
        if isinstance(protocol, Additive) and protocol.noisy:
            # Those that pool what they see can subtract their own noise.
            noisy = protocol.least_contributors(self.terms.n_peers) + self.terms.secure.colluders
        return max(self.terms.secure.cohort, noisy)

    def segments(self, members: int) -> tuple[int, ...]:
        """Return the sets, disjoint, whose sums are revealed of a padded round with these members, in order."""
        return parted(members, self.groups)

    def problem_with_set(self, members: int) -> str:
        """Return why the sum over a set of peers may not be revealed in a padded round, or an empty string."""
        if members & ~self.part.asked or members.bit_count() < self.least:
            return f"{members.bit_count()} peers are too few, or not all of them were asked"
        # In every stage: the others of a group of which fewer are in a set could join no later one.
        small = min(one.bit_count() for one in parted(members, self.part.groups))
        if small < self.terms.secure.cohort:
            return f"{small} peers of a group are too few"
        if whole(self.part, self.terms) and members != self.part.asked:
            return "only the sum of all peers that were asked may be revealed"
        return ""

    def keys_closed(
        self, answers: Mapping[int, KeyEntry], abstained: Mapping[int, str], maker: Maker, *, cancelled_by: str = ""
    ) -> JobState:
        """Return the padded state that follows from the keys of some peers; or the end of the job, if it was cancelled.

        Raises NotEnough if more peers are needed; the round stays open.

        - `answers`: by roster index.
        - `abstained`: the peers that sent no key, and why.
        - `maker`: this peer, its term, and the round in which it will open the state.
        """
        state, terms, before = self.state, self.terms, self.part
        # The answers that may be true and are signed, and the peers of the others, with reasons.
        sound, unsound = {}, {}
        known = 0 if before.unsettled is None else before.unsettled.asked
        for index, answer in sorted(answers.items()):
            if problem := KeyList((answer,)).problem_with(terms.keys, terms.job_id, self.digest):
                unsound[index] = f"malformed: {problem}"
            elif (answer.taken or 0) & ~known or any(one.bit_length() > terms.n_peers for one in answer.sets):
                unsound[index] = "malformed: it reports a set of peers that were not asked"
            else:
                sound[index] = answer
        before = self._judged(before, {index: answer.opened for index, answer in sound.items()})
        part = _settled(before, tuple(sound.values()), terms.secure, self.groups)
        if cancelled_by:
            return cancelled(replace(state, secured=part), cancelled_by)
        absent = {peer: why for peer, why in abstained.items() if peer not in sound} | unsound
        before = replace(before, asks=self.digest)
        try:
            try:
                # A keeper that did not answer is asked again in the next stage, unless it is needed now.
                part = self._listed(before, sound, absent, maker, silent=before.silent)
            except NotEnough:
                part = self._listed(before, sound, absent, maker, silent=0)
        except NotEnough as few:
            never = by_themselves({**abstained, **unsound})
            if len({*sound, *never}) < terms.n_peers:
                raise
            # All have answered: no other peer can come.
            return _failed(state, part, few.reason, few.absent)
        arrays = self.job.protocols[state.stage].knowing_columns(state.arrays, part.columns)
        return replace(state, arrays=arrays, secured=part)

    def _judged(self, before: Secured, opened: Mapping[int, bytes]) -> Secured:
        """After a wrong total with signed check words, note what the keys of check words prove, and who has shown none."""
        u = before.unsettled
        if u is None or u.checked is None:
            return before
        checked = u.checked.showing(opened)
        before = replace(before, unsettled=replace(u, checked=None))
        proof = checked.proof(self.terms.keys, context_of(self.terms, checked.state))
        if proof is not None and len(before.proofs) < MOST_PROOFS:
            before = replace(before, proofs=(*before.proofs, proof))
        return replace(before, silent=before.silent | checked.not_shown & ~proved_peers(before, self.terms))

    def _listed(
        self, before: Secured, sound: Mapping[int, KeyEntry], gone: Mapping[int, str], maker: Maker, *, silent: int
    ) -> Secured:
        """Return the list of keys, and whose contributions are asked for; raise NotEnough."""
        terms, secure, least = self.terms, self.terms.secure, self.least
        absent = dict.fromkeys(range(terms.n_peers), _NO_KEY) | dict(gone)
        proved = proved_peers(before, terms)
        absent |= dict.fromkeys(members_of(silent), _SILENT) | dict.fromkeys(members_of(proved), PROVED)
        off = silent | proved & ~(1 << maker.index)  # an aggregator may go on without contributing
        entries = tuple(sound[index] for index in sorted(sound) if not off >> index & 1)
        others = tuple(one for one in sound.values() if off >> one.index & 1)
        part = _settled(before, entries, secure, self.groups, others)
        # The most frequent number of columns; of equally frequent ones, that of the peer of lowest index.
        counts = Counter(entry.columns for entry in entries if entry.columns).most_common(1)
        columns = part.columns or (counts[0][0] if counts else 0)
        able = 0
        for entry in entries:
            absent[entry.index] = before.absent.get(entry.index) or entry.refusal
            absent[entry.index] = PROVED if proved >> entry.index & 1 else absent[entry.index]
            if not absent[entry.index] and not _fits(self.job, entry, columns):
                absent[entry.index] = f"has {entry.columns} columns where the fleet has {columns}"
            able |= 0 if absent[entry.index] else 1 << entry.index
        alone = exposed_by_joining(part, able, secure)
        absent |= dict.fromkeys(members_of(alone), WOULD_BE_EXPOSED)
        able &= ~alone
        if all(entry.index != maker.index for entry in entries):
            raise NotEnough("the aggregator has no key yet", absent)
        if able.bit_count() < least:
            raise NotEnough(f"{able.bit_count()} peers can contribute, and {least} are needed", absent)
        keeping = _keeping(entries, terms, maker, proved)
        if len(keeping) <= secure.colluders:
            raise NotEnough(f"{len(keeping)} peers can keep pads, and {secure.colluders + 1} are needed", absent)
        asked = _grouped(part, able, terms, absent)
        absent |= dict.fromkeys(members_of(able & ~asked), _GROUPED)
        absent = {index: reason for index, reason in absent.items() if not asked >> index & 1}
        return replace(part, entries=entries, maker=maker, asked=asked, columns=columns, absent=absent, silent=silent)

    def renewed(
        self, abstained: Mapping[int, str], silent: Sequence[int], wrong: CheckedRound | None = None
    ) -> JobState:  # fmt: skip
        """Return the state that asks for new keys after a padded one had no total.

        - `abstained`: the peers that answered the padded state without contributing.
        - `silent`: keepers that did not answer.
        - `wrong`: the round, if its check word is wrong. From then on check words are signed in this stage, and where they
          were, all peers are asked for their keys of check words.
        """
        state, terms, part = self.state, self.terms, self.part
        absent = by_themselves({**part.absent, **abstained})
        left = terms.n_peers - len(absent)
        if left < terms.secure.cohort or part.renewals + 1 >= MOST_RENEWALS:
            story = f"only {left} of {terms.n_peers} peers can contribute, and {terms.secure.cohort} are needed"
            if left >= terms.secure.cohort:
                story = f"no total after {part.renewals + 1} exchanges of keys"
                # No peer is asked any more what was revealed in this context.
                part = replace(part, unknown=_with(part.unknown, part.asked))
            return _failed(state, part, story, absent)
        checked = wrong if wrong is not None and wrong.words else None
        unsettled = Unsettled(self.digest, part.maker.index, part.asked, as_mask(keepers(part, terms)), checked)
        return replace(
            state,
            secured=Secured(
                part.cohort, columns=part.columns, absent=absent, silent=part.silent | as_mask(silent),
                unsettled=unsettled, revealed=part.revealed, burnt=part.burnt, unknown=part.unknown,
                renewals=part.renewals + 1, groups=part.groups, strict=part.strict or wrong is not None,
                proofs=part.proofs,
            ),
        )  # fmt: skip

    def closed(
        self, total: Contribution | Sequence[Contribution], members: int, abstained: Mapping[int, str], maker: Maker
    ) -> JobState:
        """Return the state that follows from the total of a set of peers; it is padded, or open for keys, or final.

        In a stage by groups, `total` has one for each of :meth:`segments`.
        """
        job, state, terms, part = self.job, self.state, self.terms, self.part
        gone = {peer: why for peer, why in {**part.absent, **abstained}.items() if not members >> peer & 1}
        sets = self.segments(members)
        given: list[tuple[Peers, Contribution]] = [(members_of(members), total)] if isinstance(total, Arrays) else []
        if part.groups:
            gone |= dict.fromkeys(members_of(part.asked & ~members & ~as_mask(gone)), _SMALL_GROUP)
        if not isinstance(total, Arrays):
            given = [(Group(members_of(one)), own) for one, own in zip(sets, total, strict=True)]
        after = engine.advance(job, replace(state, secured=None), given, gone, n_peers=terms.n_peers)
        part = part.revealing(sets).made_by(maker)
        if after.status != "running":
            return replace(after, secured=_without_keys(part))
        if after.stage == state.stage:
            # A peer that comes and goes would make one small class after the other.
            if late := {peer: why for peer, why in gone.items() if why == LATE}:
                left, silent = part.asked & ~as_mask(late), part.silent | as_mask(late)
                stay = in_cohorts(left, part.groups, terms.secure.cohort)
                late |= dict.fromkeys(members_of(left & ~stay), _SMALL_GROUP)
                part = replace(part, asked=stay, silent=silent, absent={**part.absent, **late})
            return replace(after, secured=part)
        able = as_mask(entry.index for entry in part.entries if _fits(job, entry, part.columns))
        able &= ~proved_peers(part, terms)
        asked = in_cohorts(able, part.groups, terms.secure.cohort)
        absent = {peer: why for peer, why in part.absent.items() if not asked >> peer & 1}
        absent |= dict.fromkeys(members_of(able & ~asked), _SMALL_GROUP)
        again = any(why.startswith(LEFT_OUT) for why in gone.values()) or bool(part.silent) or not asked
        if again or (terms.secure.leave == "groups" and asked != part.asked):
            return replace(after, secured=_without_keys(part))
        return replace(after, secured=replace(part, asked=asked, absent=absent, strict=False))


def exposed_by_joining(part: Secured, asked: int, secure: SecureSums) -> int:
    """Return those of these peers that are in no revealed set yet, and too few to hide each other.

    With ``leave = "groups"`` that is judged with all other classes.
    """
    fresh, known = asked, 0
    for one in (*part.revealed, *part.unknown):
        fresh, known = fresh & ~one, known | one
    if not fresh or not known or secure.leave == "groups":
        return 0
    return fresh & ~in_cohorts(fresh, part.groups, secure.cohort)


def _grouped(part: Secured, able: int, terms: Terms, absent: Mapping[int, str]) -> int:
    """Return which peers may contribute so that no small class comes about, as far as the job asks for that."""
    secure = terms.secure
    # In every stage peers leave as if the totals of groups were revealed already: sooner or later they are.
    all_sets = (*part.revealed, *part.unknown, *part.groups)
    sets = all_sets if secure.leave == "groups" else part.burnt if secure.burnt == "groups" else ()
    if not sets and not part.groups:
        return able
    order, asked, proved = keeper_order(terms.keys, range(terms.n_peers)), 0, proved_peers(part, terms)
    for own in part.groups or ((1 << terms.n_peers) - 1,):
        here = able & own
        if sets:
            here = grouped(here, [one & own & ~proved for one in sets], secure.cohort, order)
        asked |= here if here.bit_count() >= secure.cohort else 0
    if asked.bit_count() < secure.cohort:
        missing = [f"peer {index}" for index in range(terms.n_peers) if not able >> index & 1]
        more = f" and {len(missing) - 4} more" if len(missing) > 4 else ""
        without = f"without {', '.join(missing[:4])}{more} " if missing else ""
        if not sets:
            raise NotEnough(f"{without}no group has {secure.cohort} peers that can contribute", absent)
        raise NotEnough(f"{without}differences of sums would expose single peers", absent)
    return asked


def _settled(
    part: Secured, listed: Sequence[KeyEntry], secure: SecureSums, groups: Sequence[int],
    others: Sequence[KeyEntry] = (),
) -> Secured:  # fmt: skip
    """Note which sets were revealed, from what peers report: those on the list of keys, and others that answered.

    Whether a set was revealed in the context that is not settled say its keepers and its maker. All different reports
    count: a false one must not hide a true one.
    """
    every = (*listed, *others)
    taken = [own for one in every if one.taken for own in parted(one.taken, groups)]
    part = replace(part, revealed=_with(part.revealed, *taken, *(own for one in every for own in one.sets)))
    if taken:
        return replace(part, burnt=_with(part.burnt, *taken))
    u = part.unsettled
    if u is None or settles(listed, u, secure):
        return part
    return replace(part, unknown=_with(part.unknown, u.asked), burnt=_with(part.burnt, u.asked))


def settles(listed: Sequence[KeyEntry], context: Unsettled, secure: SecureSums) -> bool:
    """Return whether so many keepers of a context took no pads away that no coalition knows a total."""
    if any(one.taken for one in listed):
        return False
    others = context.keepers & ~(1 << context.maker)
    # Of so many keepers one is honest, and has kept its pads to itself.
    return (as_mask(one.index for one in listed if one.taken == 0) & others).bit_count() > secure.colluders


def problem_with_answers(part: Secured, secure: SecureSums) -> str:
    """Return what the answers on the list of keys of a padded state say and the state leaves out, or an empty string."""
    if part.asked & as_mask([entry.index for entry in part.entries if entry.refusal]):
        return "a peer is asked that has refused"
    if unnamed(part, [own for entry in part.entries for own in (*entry.sets, entry.taken) if own]):
        return "the state hides a set of peers that a peer reported"
    u = part.unsettled
    if u is None or u.asked in part.unknown or any(not one & ~u.asked for one in part.revealed):
        return ""
    settled = settles(part.entries, u, secure)
    return "" if settled else "too few keepers say that nothing was revealed in the context before"


def unnamed(part: Secured, sets: Iterable[int]) -> tuple[int, ...]:
    """Return those of these sets that a state does not name as revealed, nor as a part of an unknown set."""
    return tuple(
        one for one in dict.fromkeys(sets)
        if not all(own in part.revealed for own in parted(one, part.groups)) and one not in part.revealed
        if all(one & ~other for other in part.unknown)
    )  # fmt: skip


def _with(sets: tuple[int, ...], *more: int) -> tuple[int, ...]:
    return tuple(dict.fromkeys((*sets, *more)))


def _fits(job: Job, entry: KeyEntry, columns: int) -> bool:
    """Return whether a peer's number of columns is that of the fleet; where peers hold columns, whether it has any."""
    return entry.columns > 0 if job.by_columns else entry.columns == columns


def cancelled(state: JobState, by: str) -> JobState:
    """Return the final state of a cancelled job, of which no peer asked for the total of the present round."""
    return engine.cancelled(replace(state, secured=_without_keys(secured_of(state))), by)


def _without_keys(part: Secured) -> Secured:
    """Return what the final state keeps, and one that asks for other keys: which sets were revealed."""
    return Secured(
        part.cohort, columns=part.columns, revealed=part.revealed, unknown=part.unknown, groups=part.groups,
        proofs=part.proofs,
    )  # fmt: skip


def exposed_peers(state: JobState, reported: Iterable[int] = ()) -> tuple[int, ...]:
    """Return the peers about which sums of fewer peers than the cohort can be computed, after a job with secure sums.

    `reported` are sets that keepers report beside those that the state names.
    """
    part = secured_of(state)
    return members_of(exposed((*part.revealed, *reported), part.cohort, part.unknown))


def _failed(state: JobState, part: Secured, story: str, absent: Mapping[int, str]) -> JobState:
    """Return the state of a job that ends with this story, and with the reasons of peers that are absent."""
    story = f"secure sums: {story}{reasons_of(absent)}"
    return replace(state, status="failed", reason=story[:MAX_REASON], secured=_without_keys(part))
