"""Planted bugs: the simulator must find each of them, or it proves nothing.

Each is the smallest change that a tired engineer might make, applied to the production classes while a run lasts. What
replaces a function is given the original first, then what the function is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from inspect import getattr_static
from typing import Any, Final
from unittest.mock import patch

import msgpack
import numpy as np

from p2pclust.peer.core.context import Elapsed
from p2pclust.peer.core.core import Core
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.effects import Effect, Persist, Send
from p2pclust.peer.core.enrolment import Enrolment
from p2pclust.peer.core.fleet_roster import HeldRosters
from p2pclust.peer.core.gossip.members import GossipMembership
from p2pclust.peer.core.job_messages import Close, PreVoteReply, VoteReply
from p2pclust.peer.core.jobs import submission, turns
from p2pclust.peer.core.jobs.jobs import Jobs
from p2pclust.peer.core.jobs.submission import Submissions
from p2pclust.peer.core.jobs.turns import BelievedTurns
from p2pclust.peer.core.ledger import JobTable, Ledger, Tombstones
from p2pclust.peer.core.members.own_life import OwnLife
from p2pclust.peer.core.members.probes import Probes
from p2pclust.peer.core.messages import Message
from p2pclust.peer.core.reports import JobAccepted
from p2pclust.peer.core.rounds import unpadding
from p2pclust.peer.core.rounds.aggregator import AggregatorTerm
from p2pclust.peer.core.rounds.certificates import Certificates
from p2pclust.peer.core.rounds.election import Election, Role
from p2pclust.peer.core.rounds.follower import Follower
from p2pclust.peer.core.rounds.headway import Headway
from p2pclust.peer.core.rounds.job import AggregatedJob
from p2pclust.peer.core.rounds.keeper import Keeper
from p2pclust.peer.core.rounds.pad_notes import TABLE as PADS
from p2pclust.peer.core.rounds.pad_notes import PadNotes
from p2pclust.peer.core.rounds.patience import Patience
from p2pclust.peer.core.rounds.round import Round
from p2pclust.peer.core.rounds.states import States
from p2pclust.peer.core.rounds.unpadding import SecureTerm
from p2pclust.peer.core.rounds.workspace import JobWorkspace
from p2pclust.peer.core.spread.blobs import Blobs
from p2pclust.peer.core.spread.cancels import Cancels
from p2pclust.peer.core.spread.facts import Facts
from p2pclust.peer.core.tasks import BlobHashed, Given, HashBlob, KeysForgotten, Ref, SecureInfo, StateChecked
from p2pclust.peer.operate.questions import Questions
from p2pclust.peer.operate.status import outcome_of
from p2pclust.peer.shell.performer import Performer
from p2pclust.peer.work import secure_tasks, states, tasks, verified
from p2pclust.peer.work.secrets import Secrets
from p2pclust.peer.work.states import BlobAccess
from p2pclust.peer.work.verified import Verifier
from p2pclust.protocols.engine import engine, secure_rounds
from p2pclust.protocols.engine.arrays import State
from p2pclust.protocols.engine.secure_rounds import SecuredState
from p2pclust.protocols.secure.check_words import CheckedRound
from p2pclust.protocols.secure.pads import KeyPair
from p2pclust.protocols.secure.secured import Maker

Original = Callable[..., Any]


def _returns(value: Any) -> Original:
    return lambda *_, **__: value


_always, _never, _nothing, _no_problem = map(_returns, (True, False, None, ""))


# -- of several swarms -------------------------------------------------------------------------------------------------


def _not_synced(table: str) -> Original:
    """A method whose rows of a table are written and not synced."""

    def lazy(original: Original, machine: Any, *of: Any, **named: Any) -> Any:
        before = len(machine._ctx.effects)
        result = original(machine, *of, **named)
        effects = machine._ctx.effects
        for number, effect in enumerate(effects[before:], before):
            if isinstance(effect, Persist) and effect.table == table:
                effects[number] = replace(effect, sync=False)
        return result

    return lazy


def _without_timer(original: Original, machine: Any, *of: Any, **named: Any) -> Any:
    """A method, without the timers that it arms."""
    timers = machine._ctx.timers
    before = dict(timers._at)
    result = original(machine, *of, **named)
    for key in [key for key, at in timers._at.items() if before.get(key) != at]:
        timers.cancel(key)
    return result


def _one_is_a_majority(original: Original, names: Any, roster: tuple[str, ...]) -> bool:
    return len(set(names)) >= 1


# -- of the shell: effects, the order of rows and messages, and blobs --------------------------------------------------


def _rows_last(original: Original, performer: Performer, effects: Iterable[Effect]) -> None:
    """Write all rows of a step in one transaction, which costs fewer syncs."""
    original(performer, sorted(effects, key=lambda effect: isinstance(effect, Persist)))


def _messages_first(original: Original, performer: Performer, effects: Iterable[Effect]) -> None:
    """Let messages leave at once, and take time for the disk afterwards."""
    original(performer, sorted(effects, key=lambda effect: not isinstance(effect, Send)))


def _one_effect_late(original: Original, performer: Performer, effects: Iterable[Effect]) -> None:
    """Perform the effect after some rows before they are written."""
    rows: list[Persist] = []
    for effect in effects:
        if isinstance(effect, Persist):
            rows.append(effect)
        else:
            original(performer, [effect])
            original(performer, rows)
            rows = []
    original(performer, rows)


def _last_rows_forgotten(original: Original, performer: Performer, effects: Iterable[Effect]) -> None:
    """Write rows when another effect follows only."""
    rows: list[Effect] = []
    for effect in effects:
        rows.append(effect)
        if not isinstance(effect, Persist):
            original(performer, rows)
            rows = []


def _encoded_once_a_kind(original: Original, performer: Performer, effect: Send) -> None:
    """Send the frames of the last message of that kind again."""
    before, frames = performer._encoded
    if before is not None and before.kind == effect.message.kind:
        performer._encoded = (effect.message, frames)
    original(performer, effect)


def _chunks_not_synced(original: Original, task: HashBlob, blobs: BlobAccess) -> BlobHashed:
    """Hash a blob, and leave its chunks to the operating system."""
    return original(task, BlobAccess(blobs.read, blobs.store, lambda digest: None, blobs.limits))  # type: ignore[no-any-return]


# -- of elections and rounds -------------------------------------------------------------------------------------------


def _vote_not_synced(original: Original, ledger: Ledger) -> None:
    ledger._ctx.persist("ballot", ledger._id, msgpack.packb([ledger.term, ledger.voted_for]), sync=False)


def _counts_any_vote(original: Original, election: Election, source: str, message: Any) -> None:
    """Take an answer to an earlier question for one to the last: of a term that is over, or about a pre-vote."""
    if isinstance(message, PreVoteReply) and election.role is Role.CANDIDATE:
        message = VoteReply(message.job, message.term, message.granted, message.store_id)
    if isinstance(message, VoteReply):
        message = replace(message, term=election.ledger.term)
    original(election, source, message)


def _steps_down_for_good(original: Original, election: Election, term: int) -> None:
    aggregates = election.role is Role.AGGREGATOR
    original(election, term)
    if aggregates:
        election._ctx.timers.cancel(election._timer)


def _opens_in_the_same_round(original: Original, term: AggregatorTerm, ref: Ref, round_: int, info: Any) -> None:
    """Count rounds from the first one that has contributors."""
    original(term, ref, 0 if round_ == 1 else round_, info)


def _ends_with_what_it_holds(original: Original, states: States, source: str, message: Message) -> Ref | None:
    """Finish with one's own state, which is almost always the same as the final one."""
    held = states.ledger.register.ref
    return held if isinstance(message, Close) and held is not None else original(states, source, message)


def _without_the_left_out(original: Original, term: AggregatorTerm, opened: Round) -> dict[int, str]:
    have = opened.contributors
    return {index: one.abstains for index, one in opened.peers.items() if one.abstains and index not in have}


def _counts_children_twice(original: Original, opened: Round) -> Iterator[Given]:
    """Take the contribution of a peer that answered directly although it is in a sum, too."""
    yield from opened.branches.sums()
    for index in opened.wanted():
        if (ref := opened.peers[index].ref) is not None:
            yield (index,), ref


# -- of secure sums ----------------------------------------------------------------------------------------------------


def _pads_the_first_twice(original: Original, opened: Round) -> Iterator[Given]:
    found = list(original(opened))
    yield from found
    secure = opened.info.secure
    if secure is not None and not secure.wants_keys:
        yield from found[:1]


def _keeps_what_is_padded(original: Original, opened: Round, index: int) -> tuple[int, ...]:
    secure = opened.info.secure
    padded = secure is not None and not secure.wants_keys
    return () if padded else original(opened, index)


def _notes_the_newest(original: Original, notes: PadNotes, state: bytes, members: int, *of: Any, **named: Any) -> None:
    notes._sets[state] = members
    notes._save()


def _keeps_its_keys(original: Original, secrets: Secrets, keys: Any, asks: bytes, *of: Any) -> Any:
    known = secrets._of(keys)
    known.asks, known.bound = asks, ()
    return original(secrets, keys, asks, *of)


def _compared_in_pairs(original: Original, revealed: Any, cohort: int, unknown: Any = ()) -> int:
    """Look at each two sets only: three sets may expose a peer that no two do."""
    found = 0
    for one in unknown:
        found |= one
    for one in revealed:
        for other in revealed:
            found |= one & ~other if (one & ~other).bit_count() < cohort else 0
    return found


def _takes_any_end(original: Original, states: States, source: str, ref: Ref, **named: Any) -> bool:
    return any(digest == ref.digest for digest, _ in states._good) or original(states, source, ref, **named)


# -- of fleets: rosters, links, blobs, jobs ----------------------------------------------------------------------------


def _takes_invented_peers(original: Original, rosters: HeldRosters, named: Any, peers: Any, *, met: bool) -> str:
    known = [] if named is None or named.digest not in rosters.held else rosters.held[named.digest].devices
    return str(original(rosters, named, [name for name in peers if name in known], met=met))


def _takes_old_rosters(original: Original, rosters: HeldRosters, named: Any, peers: Any, *, met: bool) -> str:
    return str(original(rosters, named, peers, met=True))


def _greets_no_peer(original: Original, probes: Probes, name: str) -> int:
    probes._seq += 1
    return probes._seq


def _tells_new_links_only(original: Original, core: Core, name: str, *, up: bool) -> None:
    if up:
        original(core, name, up=True)
    elif name in core.membership.members and core.routing.link(name, up=False):
        core.membership.link_vanished(name)
        core.blobs.link_vanished(name)


def _complete_at_once(original: Original, blobs: Blobs, pull: Any) -> None:
    original(blobs, pull)
    blobs._complete[pull.digest] = None


def _accepted_at_once(original: Original, jobs: Jobs, document: Document) -> None:
    """A document that this peer has on its disk is good enough for a client that asks again."""
    known = document.id in jobs.table.documents and document.id in jobs._submissions._documents
    original(jobs, document)
    if known:
        jobs._ctx.report(JobAccepted(job=document.id))


def _newest_in_memory_only(original: Original, tombstones: Tombstones, series: str, number: int) -> None:
    tombstones._newest[series] = max(number, tombstones.newest(series))


# -- of the control address: only what clients see breaks a promise, and the peers agree among themselves --------------


class _Changed:
    """A caller whose answers are changed on the way."""

    def __init__(self, caller: Any, changed: Mapping[str, Any], *, last: bool | None = None) -> None:
        self._caller, self._changed, self._last = caller, changed, last
        self.name = caller.name

    def answer(self, fields: Mapping[str, Any], *, last: bool = True) -> bool:
        return bool(self._caller.answer({**fields, **self._changed}, last=last if self._last is None else self._last))

    def refuse(self, reason: str, code: int = 2) -> bool:
        return bool(self._caller.refuse(reason, code))


def _cancelled_at_once(original: Original, questions: Questions, caller: Any, fields: dict[str, Any]) -> None:
    """A final state that was opened before is not undone, so the job may still be done."""
    original(questions, _Changed(caller, {"outcome": "cancelled", "reason": ""}, last=True), fields)


def _ends_with_the_final_state(original: Original, questions: Questions, caller: Any, fields: dict[str, Any]) -> None:
    """No majority may hold that state yet."""
    register = questions._find(fields["job"], ended=True).ledger.register
    if register.final and register.ref is not None:
        phase = outcome_of(register.ref, questions._shell.store.blobs.read).phase
        caller = _Changed(caller, {"finished": True, "phase": phase})
    original(questions, caller, fields)


def _end_shown_by_one_only(original: Original, questions: Questions, caller: Any, fields: dict[str, Any]) -> None:
    job = questions._find(fields["job"], ended=True)
    if job.terms.get(job.ledger.term) != questions._shell.core.identity.name:
        caller = _Changed(caller, {"finished": False, "phase": "following"})
    original(questions, caller, fields)


def _failed_after_a_restart(original: Original, questions: Questions, caller: Any, fields: dict[str, Any]) -> None:
    job = questions._find(fields["job"], ended=True)
    if job.ledger.finished and not job.terms:
        caller = _Changed(caller, {"phase": "failed"})
    original(questions, caller, fields)


def _cancel_forgotten(original: Original, questions: Questions, caller: Any, fields: dict[str, Any]) -> None:
    job = questions._find(fields["job"])
    caller.answer({"job": job.id, "outcome": "cancelled", "reason": "", "late": False})


def _labels_of_sorted_centers(original: Original, job: Any, state: Any, local: Any, workspace: Any = None) -> Any:
    centers = state.arrays["centers"]
    arrays = State({**state.arrays, "centers": centers[centers[:, 0].argsort()]})
    return original(job, replace(state, arrays=arrays), local, workspace)


# -- that let a peer that speaks out of turn be believed ---------------------------------------------------------------


def _as_it_says(original: Original, job: AggregatedJob, source: str, message: Any) -> str:
    shown = getattr(message, "aggregator", -1)
    return job.document.roster[shown] if shown >= 0 else source


def _follows_after_a_liar(original: Original, job: AggregatedJob, source: str, term: int) -> bool:
    """Let any peer speak in the term of an aggregator that is followed no longer."""
    return job.election.terms.get(term) not in job.states.distrusted and bool(original(job, source, term))


#: By the swarm that should find them, as ``--protocol`` has it ("" is the default): the bugs by name, and what each
#: replaces. A value that cannot be called replaces another value.
_BY_SWARM: Final[dict[str, dict[str, tuple[tuple[Any, str, Any], ...]]]] = {
    "": {
        # Where votes are not signed: a signature says which term it is for.
        "late-vote-counted": ((Election, "receive", _counts_any_vote),),
        "vote-not-synced": ((Ledger, "_save_ballot", _vote_not_synced),),
        "finished-before-a-majority": ((Round, "has_majority", lambda whole, opened, **signed: bool(opened.adopted)),),
        "wiped-store-counted": ((Document, "counts", lambda original, document, name, store: name in document.roster),),
        "document-not-synced": ((Jobs, "_store", _not_synced("job")),),
        "register-not-synced": ((Ledger, "_save_register", _not_synced("register")),),
        "refutation-not-synced": ((OwnLife, "refute", _not_synced("self")),),
        "peers-not-greeted": ((Probes, "greet", _greets_no_peer),),
        "rows-written-last": ((Performer, "perform_all", _rows_last),),
        "messages-sent-first": ((Performer, "perform_all", _messages_first),),
        "rows-one-effect-late": ((Performer, "perform_all", _one_effect_late),),
        "last-rows-forgotten": ((Performer, "perform_all", _last_rows_forgotten),),
        "old-frames-sent": ((Performer, "_send", _encoded_once_a_kind),),
        "fetched-blob-not-synced": ((tasks, "_hashed", _chunks_not_synced),),
        "term-not-synced": ((Ledger, "see", _not_synced("ballot")),),
        "second-state-of-a-round": ((AggregatorTerm, "_open", _opens_in_the_same_round),),
        "ends-with-what-it-holds": ((States, "resolve", _ends_with_what_it_holds),),
        "left-out-not-named": ((AggregatorTerm, "_abstained", _without_the_left_out),),
        "submission-announced-once": ((Submissions, "repeat", _without_timer),),
        "facts-compared-once": ((Facts, "fire", _without_timer),),
    },
    "all": {"lost-links-not-told": ((Core, "_linked", _tells_new_links_only),)},
    "cancel": {
        "cancel-not-synced": ((Cancels, "_keep", _not_synced("cancel")),),
        "open-in-anothers-name": ((AggregatedJob, "asker", _as_it_says),),
        "second-aggregator-followed": ((AggregatedJob, "_aggregates_another", _never),),
        "rounds-after-the-last": ((Follower, "_is_second", _never),),
        "end-not-read": ((tasks, "check_end", lambda original, *of: StateChecked(True)),),
        "term-without-a-certificate": ((Certificates, "knows", _always),),
        "end-without-acknowledgements": ((Certificates, "ended_at", lambda original, of, close: (close.term, close.round)),),
        "cancel-not-checked": ((states, "check_cancel", _nothing),),
    },
    "secure": {
        "one-context-for-all-rounds": ((secure_rounds, "context_of", lambda original, terms, state: bytes(32)),),
        "pads-of-zeros": (  # but for those of check words
            (KeyPair, "_with_pads", lambda padded, pair, plain, *of: np.append(plain[:-1], padded(pair, plain, *of)[-1])),
        ),
        "released-set-not-synced": ((PadNotes, "_save", _not_synced(PADS)),),
        "released-set-not-noted": ((PadNotes, "_save", _nothing),),
        "released-set-not-reported": ((PadNotes, "kept", lambda whole, notes: replace(whole(notes), sets=(), released=())),),
        "open-context-forgotten": ((secure_rounds, "_settled", lambda whole, part, *of: replace(part, unsettled=None)),),
        # An aggregator asks for its own peer alone; a keeper that checks would refuse.
        "sum-of-one": (
            (
                SecureTerm,
                "_ask",
                lambda original, term, closing, members, total: original(term, closing, 1 << term._me, total),
            ),
            (SecuredState, "problem_with_set", _no_problem),
        ),
        "cohort-not-of-the-set": (
            (SecuredState, "problem_with_set", _no_problem),
            (SecureTerm, "_problem_with", _no_problem),
        ),
        # A padded state is opened again by the next aggregator, and keepers take their pads away for it too.
        "second-set-for-a-state": (
            (AggregatorTerm, "_made_before", _never),
            (Maker, "__eq__", _always),
            (PadNotes, "allows", _always),
            (PadNotes, "note", _notes_the_newest),
        ),
        "keys-never-forgotten": ((Secrets, "renew", _keeps_its_keys),),
        "sets-compared-in-pairs": ((secure_rounds, "exposed", _compared_in_pairs),),
        "sets-of-the-job-forgotten": ((Secrets, "known_sets", lambda original, *of: ()),),
        "hidden-sets-not-reported": ((secure_tasks, "compared", lambda original, *of: KeysForgotten()),),
        "keys-kept-after-the-end": ((Secrets, "forget", _nothing),),
        "restarted-peer-passed-over": ((unpadding, "NEW_KEYS", "another reason"),),
        "late-peer-joins-alone": ((secure_rounds, "exposed_by_joining", lambda original, *of: 0),),
        "blamed-without-a-proof": (
            (CheckedRound, "proved", lambda original, checked, *of: original(checked, *of) | checked.not_shown),
        ),
        "padded-twice": ((Round, "_usable", _pads_the_first_twice),),
    },
    "secure_groups": {
        "sum-of-a-small-group": (
            (secure_tasks, "_added_up", lambda original, given, groups, _, n, **of: original(given, groups, 1, n, **of)),
            (SecureInfo, "revealable", lambda original, info, members: members),
            (SecuredState, "problem_with_set", _no_problem),
            (secure_rounds, "_grouped", lambda original, part, able, *of: able),
        ),
        "peers-leave-across-groups": (
            (secure_rounds, "_grouped", lambda whole, part, *of: whole(replace(part, groups=()), *of)),
        ),
    },
    "verified": {
        "states-not-checked": ((States, "passes", _always),),
        "answers-not-verified": ((Verifier, "is_signed", _always),),
        "pads-not-verified": ((Verifier, "are_signed", _always),),
        "any-start-of-a-proof": ((Verifier, "_check_before", _never),),
        "one-signature-is-enough": ((verified, "majority", lambda original, n_peers: 1),),
        "end-as-it-is-called": ((States, "passes", _takes_any_end),),
        "second-successor-adopted": ((Verifier, "_comes_after", _always),),
        "verified-cancel-not-checked": ((verified, "check_cancel", _nothing),),
    },
    "disks": {
        "wrong-blob-taken": ((Blobs, "verified", lambda original, blobs, digest, good: original(blobs, digest, True)),),
        "blob-complete-before-it-is-verified": ((Blobs, "_verify", _complete_at_once),),
    },
    "disks-core": {"spoiled-source-asked-again": ((Blobs, "_right_ones", lambda whole, blobs, pull, sources: sources),)},
    "rosters": {
        "vote-of-a-revoked-peer": ((Election, "revoked", _nothing),),
        "answer-of-a-revoked-peer": ((Round, "revoke", lambda original, *of: ()),),
        "invented-peers-taken": ((HeldRosters, "problem_with", _takes_invented_peers),),
        "old-fleet-roster-taken": ((HeldRosters, "problem_with", _takes_old_rosters),),
        "new-keys-not-barred": ((HeldRosters, "other_key", _never),),
        "serial-not-synced": ((Enrolment, "_adopt", _not_synced("roster")),),
        "roster-asked-for-once": ((Enrolment, "_ask", _without_timer),),
        # The aggregator looks again when the sum is made, so a keeper has to overlook the revocation, too.
        "padded-by-a-revoked-peer": (
            (Round, "revoke", _keeps_what_is_padded),
            (Keeper, "_barred", _no_problem),
        ),
    },
    "liars": {"term-of-a-liar-taken-over": ((AggregatedJob, "_aggregates_another", _follows_after_a_liar),)},
    "forgers": {
        "facts-not-verified": ((Performer, "_genuine", lambda original, performer, source, message: message),),
    },
    "terms": {
        "result-of-an-older-term": (
            (AggregatorTerm, "computed", lambda whole, term, token, came: whole(term, replace(token, term=term.term), came)),
        ),
        "no-fence-by-term": (
            (Ledger, "stale", _never),
            (Ledger, "may_adopt", lambda whole, ledger, term, round_: (term, round_) >= ledger.register.position),
        ),
        "stepped-down-for-good": ((Election, "step_down", _steps_down_for_good),),
    },
    "any": {
        "gossip-ends-without-stores": ((GossipMembership, "counted", _always),),
        "accepted-by-one": ((submission, "has_majority", _one_is_a_majority),),
        "child-counted-twice": ((Round, "_usable", _counts_children_twice),),
        "store-ids-asked-for-once": ((Submissions, "go_on", _without_timer),),
        "day-without-end": ((Elapsed, "begin", _without_timer),),
        "ended-jobs-forgotten": ((submission, "_MOST_KEPT", 0),),
    },
    "any-core": {
        "silent-peer-waited-for": ((Patience, "ask_around", lambda original, patience, *of: []),),
    },
    "fedcref": {
        # A job whose workspace waits without success still ends, because a busy peer is given up: that is disabled too.
        "wiped-store-hoped-for": (
            (JobWorkspace, "_counts", _always),
            (AggregatorTerm, "_stands_still", _never),
            (Patience, "computes_too_long", _never),
        ),
        "note-not-synced": ((JobWorkspace, "_save", _not_synced("note")),),
        "jobs-within-kept": ((JobWorkspace, "_drop", _nothing),),
        "jobs-within-dropped-at-once": (
            (JobWorkspace, "_outlived", lambda original, desk, round_: desk._children.running(desk.document.id)),
        ),
    },
    "series": {
        "newest-turn-in-memory-only": ((Tombstones, "advance", _newest_in_memory_only),),
        "pause-without-end": ((Elapsed, "begin", _without_timer),),
    },
    "turns": {
        "turn-without-a-census": ((BelievedTurns, "follows", _always),),
        "census-of-any-roster": ((turns, "has_majority", _always),),
    },
    "lasting": {
        "never-hands-over": ((AggregatorTerm, "_stands_still", _never),),
        "busy-for-ever": ((Patience, "computes_too_long", _never),),
        "hung-worker-waited-for-again": ((Headway, "given_up", _nothing),),
        "elections-never-wait-longer": ((Headway, "election_times", lambda original, headway: 1.0),),
    },
    "leaderless": {"epoch-not-synced": ((Ledger, "_save_ballot", _not_synced("ballot")),)},
    "clients": {
        "request-id-not-looked-up": ((JobTable, "requested", _nothing),),
        "cancelled-before-all-agreed": ((Questions, "_cancel", _cancelled_at_once),),
        "ended-before-a-majority": ((Questions, "_job", _ends_with_the_final_state),),
        "end-shown-by-its-aggregator-only": ((Questions, "_job", _end_shown_by_one_only),),
        "failed-after-a-restart": ((Questions, "_job", _failed_after_a_restart),),
        "cancel-confirmed-and-forgotten": ((Questions, "_cancel", _cancel_forgotten),),
        "labels-of-other-centers": ((engine, "conclude", _labels_of_sorted_centers),),
        "repeated-submission-accepted": ((Jobs, "_await", _accepted_at_once),),
    },
}  # fmt: skip

#: All planted bugs by name, each with the swarm that should find it.
BUGS: Final[dict[str, str]] = {bug: swarm for swarm, bugs in _BY_SWARM.items() for bug in bugs}


@contextmanager
def planted(bug: str) -> Iterator[None]:
    """Plant one bug for as long as the context lasts.

    >>> from p2pclust.peer.core.document import Document
    >>> before = Document.counts
    >>> with planted("wiped-store-counted"):
    ...     Document.counts is before
    False
    >>> Document.counts is before
    True
    """
    with ExitStack() as stack:
        for owner, attribute, replacement in _BY_SWARM[BUGS[bug]][bug]:
            changed = _changed(getattr_static(owner, attribute), replacement)
            stack.enter_context(patch.object(owner, attribute, changed))
        yield


def _changed(original: Any, replacement: Any) -> Any:
    """Return what stands in the place of an attribute: of a function, one that gives the replacement the original."""
    if not callable(replacement):
        return replacement
    if isinstance(original, property):
        return property(_changed(original.fget, replacement))

    def changed(*of: Any, **named: Any) -> Any:
        return replacement(original, *of, **named)

    return changed
