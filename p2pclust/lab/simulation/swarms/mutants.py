"""Planted bugs: the simulator must find each of them, or it proves nothing.

Each is the smallest change that a tired engineer might make, applied to the production classes while a run lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import msgpack
import numpy as np

from p2pclust.lab.simulation.swarms.control_mutants import CLIENT_MUTANTS
from p2pclust.lab.simulation.swarms.liar_mutants import LIAR_MUTANTS
from p2pclust.lab.simulation.swarms.shipped import SHIPPED_MUTANTS
from p2pclust.lab.simulation.swarms.watched_mutants import WATCHED_MUTANTS, not_synced
from p2pclust.peer.core.core import Core
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.fleet_roster import HeldRosters
from p2pclust.peer.core.gossip.members import GossipMembership
from p2pclust.peer.core.job_messages import VoteReply
from p2pclust.peer.core.jobs import submission
from p2pclust.peer.core.jobs.jobs import Jobs
from p2pclust.peer.core.ledger import Ledger
from p2pclust.peer.core.members.own_life import OwnLife
from p2pclust.peer.core.members.probes import Probes
from p2pclust.peer.core.rounds import aggregator, unpadding
from p2pclust.peer.core.rounds.checked_states import CheckedStates
from p2pclust.peer.core.rounds.election import Election, Role
from p2pclust.peer.core.rounds.headway import Headway
from p2pclust.peer.core.rounds.pad_notes import TABLE as PADS
from p2pclust.peer.core.rounds.pad_notes import PadNotes
from p2pclust.peer.core.rounds.patience import Patience
from p2pclust.peer.core.rounds.unpadding import SecureTerm
from p2pclust.peer.core.rounds.workspace import JobWorkspace
from p2pclust.peer.core.spread.blobs import Blobs
from p2pclust.peer.core.spread.cancels import Cancels
from p2pclust.peer.core.spread.tombstones import Tombstones
from p2pclust.peer.core.tasks import KeysForgotten, PadsKept, Ref, SecureInfo
from p2pclust.peer.shell.performer import Performer
from p2pclust.peer.work import secure_tasks, verified
from p2pclust.peer.work.secrets import Secrets
from p2pclust.peer.work.verified import Verifier
from p2pclust.protocols.engine import secure_rounds
from p2pclust.protocols.secure.pads import KeyPair
from p2pclust.protocols.secure.secured import Maker


def _vote_not_synced(ledger: Ledger) -> None:
    row = msgpack.packb([ledger.term, ledger.voted_for])
    ledger._ctx.persist("ballot", ledger._id, row, sync=False)


def _no_fence(ledger: Ledger, term: int) -> bool:
    return False


def _adopts_any_term(ledger: Ledger, term: int, round_: int) -> bool:
    return (term, round_) >= ledger.register.position


def _one_is_a_majority(names: Any, roster: tuple[str, ...]) -> bool:
    return len(set(names)) >= 1


def _every_store_counts(document: Document, name: str, store_id: str) -> bool:
    return name in document.roster


def _every_store_counts_within(desk: JobWorkspace, document: Document, name: str) -> bool:
    return True


def _note_not_synced(desk: JobWorkspace, *, sync: bool = True) -> None:
    desk._on_disk = True
    desk._ctx.persist("note", desk._document.id, desk._row(), sync=False)


def _keeps_all(desk: JobWorkspace, jobs: list[Any]) -> None:
    pass


def _keeps_none(desk: JobWorkspace, round_: int) -> list[Any]:
    return desk._children.running(desk._document.id)


def _passes_whatever_it_is_called(states: CheckedStates, source: str, ref: Ref, **named: Any) -> bool:
    return any(digest == ref.digest for digest, _ in states._good) or _PASSES(states, source, ref, **named)


_PASSES: Final = CheckedStates.passes


def _newest_in_memory_only(tombstones: Tombstones, series: str, number: int) -> None:
    tombstones._newest[series] = max(number, tombstones.newest(series))


def _never(machine: Any, *of: Any) -> bool:
    return False


def _always(*_: Any, **__: Any) -> bool:
    return True


def _notes_the_newest(notes: PadNotes, state: bytes, members: int, sets: Any, *, sync: bool = True) -> None:
    notes._sets[state] = members
    notes._save()


def _saves_nothing(notes: PadNotes, *, sync: bool = True) -> None:
    pass


def _steps_down_for_good(election: Election, term: int) -> None:
    aggregates = election.role is Role.AGGREGATOR
    _STEP_DOWN(election, term)
    if aggregates:
        election._ctx.timers.cancel(election._timer)


_STEP_DOWN: Final = Election.step_down


def _asks_for_its_own(term: SecureTerm, closing: Any, members: int, total: Any) -> None:
    _ASK(term, closing, 1 << term._me, total)


_ASK: Final = SecureTerm._ask


def _any_set(*of: Any) -> str:
    return ""


def _any_group(given: Any, groups: Any, cohort: int, n_peers: int, *, original: Any = secure_tasks._added_up) -> Any:
    return original(given, groups, 1, n_peers)


def _leaves_across_groups(part: Any, *of: Any, original: Any = secure_rounds._grouped) -> Any:
    return original(replace(part, groups=()), *of)


def _one_context(terms: Any, state: bytes) -> bytes:
    return bytes(32)


def _zeros(pair: KeyPair, public: bytes, contributor: int, keeper: int, own: bool, size: int, context: bytes) -> Any:
    return np.zeros(size, dtype=np.uint64)


def _forgets_what_is_open(part: Any, *of: Any) -> Any:
    return replace(part, unsettled=None)


def _remembers_no_set(notes: PadNotes) -> PadsKept:
    return replace(_KEPT(notes), sets=(), released=())


_KEPT: Final[Callable[[PadNotes], PadsKept]] = PadNotes.kept.fget  # type: ignore[attr-defined]


def _keeps_its_keys(secrets: Secrets, keys: Any, asks: bytes, bare: Any) -> Any:
    known = secrets._of(keys)
    known.asks, known.bound = asks, ()
    return _RENEW(secrets, keys, asks, bare)


_RENEW: Final = Secrets.renew


def _compared_in_pairs(revealed: Any, cohort: int, unknown: Any = ()) -> int:
    """Look at each two sets only: three sets may expose a peer that no two do."""
    found = 0
    for one in unknown:
        found |= one
    for one in revealed:
        for other in revealed:
            found |= one & ~other if (one & ~other).bit_count() < cohort else 0
    return found


def _takes_any_blob(blobs: Blobs, digest: bytes, good: bool) -> None:
    _VERIFIED(blobs, digest, True)


_VERIFIED: Final = Blobs.verified


def _complete_at_once(blobs: Blobs, pull: Any) -> None:
    _VERIFY(blobs, pull)
    blobs._complete[pull.digest] = None


_VERIFY: Final = Blobs._verify


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _counts_any_vote(election: Election, source: str, message: Any) -> None:
    if isinstance(message, VoteReply):
        message = replace(message, term=election._ledger.term)
    _RECEIVE(election, source, message)


_RECEIVE: Final = Election.receive


def _takes_older_results(term: aggregator.AggregatorTerm, token: Any, outcome: Any) -> None:
    _COMPUTED(term, replace(token, term=term.term), outcome)


_COMPUTED: Final = aggregator.AggregatorTerm.computed


def _greets_no_peer(probes: Probes, name: str) -> int:
    probes._seq += 1
    return probes._seq


def _tells_new_links_only(core: Core, name: str, *, up: bool) -> None:
    if up:
        _LINKED(core, name, up=True)
    elif name in core.membership.members and core.routing.link(name, up=False):
        core.membership.link_vanished(name)
        core.blobs.link_vanished(name)


_LINKED: Final = Core._linked


def _waits_once_more(headway: Headway, name: str, *, proven: bool) -> None:
    known = name in headway._doubtful
    _GIVEN_UP(headway, name, proven=proven)
    if not proven and not known:
        del headway.hung[name]


_GIVEN_UP: Final = Headway.given_up
_BUSY_LIMIT: Final = Headway.busy_limit_s


def _takes_invented_peers(rosters: HeldRosters, named: Any, peers: Any, *, met: bool) -> str:
    known = [] if named is None or named.digest not in rosters.held else rosters.held[named.digest].devices
    return _FLAW(rosters, named, [name for name in peers if name in known], met=met)


def _takes_old_rosters(rosters: HeldRosters, named: Any, peers: Any, *, met: bool) -> str:
    return _FLAW(rosters, named, peers, met=True)


_FLAW: Final = HeldRosters.problem_with


_Patch = tuple[Any, str, Any]

#: Name of the bug -> the attributes that it replaces.
MUTANTS: Final[dict[str, tuple[_Patch, ...]]] = {
    "vote-not-synced": ((Ledger, "_save_ballot", _vote_not_synced),),
    "finished-before-a-majority": ((aggregator, "has_majority", _one_is_a_majority),),
    "wiped-store-counted": ((Document, "counts", _every_store_counts),),
    "document-not-synced": ((Jobs, "_store", not_synced(Jobs._store, "job")),),
    "register-not-synced": ((Ledger, "_save_register", not_synced(Ledger._save_register, "register")),),
    "refutation-not-synced": ((OwnLife, "refute", not_synced(OwnLife.refute, "self")),),
    "peers-not-greeted": ((Probes, "greet", _greets_no_peer),),
}

#: The same for overlays whose links change.
LINK_MUTANTS: Final[dict[str, tuple[_Patch, ...]]] = {
    "lost-links-not-told": ((Core, "_linked", _tells_new_links_only),),
}


def _sees_nothing(final: Any, sets: Any) -> KeysForgotten:
    return KeysForgotten()


#: The same for jobs with secure sums.
SECURE_MUTANTS: Final[dict[str, tuple[_Patch, ...]]] = {
    "one-context-for-all-rounds": ((secure_rounds, "context_of", _one_context),),
    "pads-of-zeros": ((KeyPair, "_stream", _zeros),),
    "released-set-not-synced": ((PadNotes, "_save", not_synced(PadNotes._save, PADS)),),
    "released-set-not-noted": ((PadNotes, "_save", _saves_nothing),),
    "released-set-not-reported": ((PadNotes, "kept", property(_remembers_no_set)),),
    "open-context-forgotten": ((secure_rounds, "_settled", _forgets_what_is_open),),
    # An aggregator asks for its own peer alone; a keeper that checks would refuse.
    "sum-of-one": (
        (SecureTerm, "_ask", _asks_for_its_own),
        (secure_rounds, "set_flaw", _any_set),
    ),
    "cohort-not-of-the-set": ((secure_rounds, "set_flaw", _any_set), (SecureTerm, "_problem_with", _any_set)),
    # A padded state is opened again by the next aggregator, and keepers take their pads away for it too.
    "second-set-for-a-state": (
        (aggregator.AggregatorTerm, "_made_before", _never),
        (Maker, "__eq__", lambda one, other: True),
        (PadNotes, "allows", _always),
        (PadNotes, "note", _notes_the_newest),
    ),
    "keys-never-forgotten": ((Secrets, "renew", _keeps_its_keys),),
    "sets-compared-in-pairs": ((secure_rounds, "exposed", _compared_in_pairs),),
    "sets-of-the-job-forgotten": ((Secrets, "known_sets", lambda secrets, keys, part, pads: ()),),
    "hidden-sets-not-reported": ((secure_tasks, "compared", _sees_nothing),),
    "keys-kept-after-the-end": ((Secrets, "forget", _nothing),),
    "restarted-peer-passed-over": ((unpadding, "NEW_KEYS", "another reason"),),
}

#: The same where totals of groups are revealed one by one.
GROUP_MUTANTS: Final[dict[str, tuple[_Patch, ...]]] = {
    "sum-of-a-small-group": (
        (secure_tasks, "_added_up", _any_group),
        (SecureInfo, "revealable", lambda info, members: members),
        (secure_rounds, "set_flaw", _any_set),
        (secure_rounds, "_grouped", lambda part, able, terms, groups: able),
    ),
    "peers-leave-across-groups": ((secure_rounds, "_grouped", _leaves_across_groups),),
}

#: The same where every peer checks each state, and one lies.
VERIFIED_MUTANTS: Final[dict[str, tuple[_Patch, ...]]] = {
    "states-not-checked": ((CheckedStates, "passes", _always),),
    "answers-not-verified": ((Verifier, "is_signed", _always),),
    "pads-not-verified": ((Verifier, "are_signed", _always),),
    "any-start-of-a-proof": ((Verifier, "_check_before", _never),),
    "one-signature-is-enough": ((verified, "majority", lambda n_peers: 1),),
    "end-as-it-is-called": ((CheckedStates, "passes", _passes_whatever_it_is_called),),
}

#: The same for worlds in which chunks are corrupt and large messages are lost.
DISK_MUTANTS: Final[dict[str, tuple[_Patch, ...]]] = {
    "wrong-blob-taken": ((Blobs, "verified", _takes_any_blob),),
    "blob-complete-before-it-is-verified": ((Blobs, "_verify", _complete_at_once),),
}

#: The same where this lasts, and only a majority recovers.
DISK_CORE_MUTANTS: Final[dict[str, tuple[_Patch, ...]]] = {
    "spoiled-source-asked-again": ((Blobs, "_right_ones", lambda blobs, pull, sources: sources),),
}

#: The same for worlds in which peers are revoked.
ROSTER_MUTANTS: Final[dict[str, tuple[_Patch, ...]]] = {
    "vote-of-a-revoked-peer": ((Election, "revoked", _nothing),),
    "answer-of-a-revoked-peer": ((aggregator.AggregatorTerm, "_drop", lambda term, opened, name: []),),
    "invented-peers-taken": ((HeldRosters, "problem_with", _takes_invented_peers),),
    "old-fleet-roster-taken": ((HeldRosters, "problem_with", _takes_old_rosters),),
    "new-keys-not-barred": ((HeldRosters, "other_key", _never),),
}

#: The same for worlds in which a peer often aggregates again while a task of its former term runs.
TERM_MUTANTS: Final[dict[str, tuple[_Patch, ...]]] = {
    "result-of-an-older-term": ((aggregator.AggregatorTerm, "computed", _takes_older_results),),
    "late-vote-counted": ((Election, "receive", _counts_any_vote),),
    "no-fence-by-term": ((Ledger, "stale", _no_fence), (Ledger, "may_adopt", _adopts_any_term)),
    "stepped-down-for-good": ((Election, "step_down", _steps_down_for_good),),
}

#: The same for worlds in which peers forge the facts of others.
FORGER_MUTANTS: Final[dict[str, tuple[_Patch, ...]]] = {
    "facts-not-verified": ((Performer, "_genuine", lambda performer, source, message: message),),
}

#: The same for worlds of any kind.
FLEET_MUTANTS: Final[dict[str, tuple[_Patch, ...]]] = {
    "gossip-ends-without-stores": ((GossipMembership, "counted", _always),),
    "accepted-by-one": ((submission, "has_majority", _one_is_a_majority),),
}

#: The same where only a majority of such a world recovers.
FLEET_CORE_MUTANTS: Final[dict[str, tuple[_Patch, ...]]] = {
    "silent-peer-waited-for": ((Patience, "lost_with", lambda patience, opened: iter(())),),
}

#: The same where a job is cancelled.
CANCEL_MUTANTS: Final[dict[str, tuple[_Patch, ...]]] = {
    "cancel-not-synced": ((Cancels, "_keep", not_synced(Cancels._keep, "cancel")),),
}

#: The same for peers with a workspace.
WORKSPACE_MUTANTS: Final[dict[str, tuple[_Patch, ...]]] = {
    # A job whose workspace waits in vain ends nevertheless, because a busy peer is given up: so that is disabled too.
    "wiped-store-hoped-for": (
        (JobWorkspace, "_counts", _every_store_counts_within),
        (aggregator.AggregatorTerm, "_stands_still", _never),
        (Patience, "_busy_too_long", _never),
    ),
    "note-not-synced": ((JobWorkspace, "_save", _note_not_synced),),
    "jobs-within-kept": ((JobWorkspace, "_drop", _keeps_all),),
    "jobs-within-dropped-at-once": ((JobWorkspace, "_outlived", _keeps_none),),
}

#: The same for jobs that are repeated.
SERIES_MUTANTS: Final[dict[str, tuple[_Patch, ...]]] = {
    "newest-turn-in-memory-only": ((Tombstones, "advance", _newest_in_memory_only),),
}

#: The same where only a majority is healed.
LASTING_MUTANTS: Final[dict[str, tuple[_Patch, ...]]] = {
    "never-hands-over": ((aggregator.AggregatorTerm, "_stands_still", _never),),
    "busy-for-ever": ((Patience, "_busy_too_long", _never),),
    "elections-never-wait-longer": ((Headway, "election_times", lambda headway: 1.0),),
    "doubt-lengthens-its-own-wait": (
        (Headway, "given_up", _waits_once_more),
        (Headway, "busy_limit_s", lambda headway, slowest_s=0.0, of="": _BUSY_LIMIT(headway, slowest_s)),
    ),
}


#: All planted bugs: by name, the swarm that should find it, as ``--protocol`` has it, and what is replaced.
BUGS: Final[dict[str, tuple[str, tuple[_Patch, ...]]]] = {
    name: (swarm, patches)
    for swarm, group in (
        ("", MUTANTS), ("", SHIPPED_MUTANTS), ("all", LINK_MUTANTS), ("cancel", CANCEL_MUTANTS),
        ("secure", SECURE_MUTANTS), ("secure_groups", GROUP_MUTANTS), ("verified", VERIFIED_MUTANTS),
        ("disks", DISK_MUTANTS), ("disks-core", DISK_CORE_MUTANTS), ("rosters", ROSTER_MUTANTS),
        ("forgers", FORGER_MUTANTS), ("terms", TERM_MUTANTS),
        ("any", FLEET_MUTANTS), ("any-core", FLEET_CORE_MUTANTS),
        ("fedcref", WORKSPACE_MUTANTS), ("series", SERIES_MUTANTS), ("lasting", LASTING_MUTANTS),
        ("clients", CLIENT_MUTANTS),
        *WATCHED_MUTANTS.items(),
    )
    for name, patches in group.items()
} | LIAR_MUTANTS  # fmt: skip


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Plant one bug for as long as the context lasts.

    Examples
    --------
    >>> from p2pclust.peer.core.document import Document
    >>> before = Document.counts
    >>> with planted("wiped-store-counted"):
    ...     Document.counts is before
    False
    >>> Document.counts is before
    True
    """
    _, patches = BUGS[name]
    originals = [getattr(owner, attribute) for owner, attribute, _ in patches]
    for owner, attribute, replacement in patches:
        setattr(owner, attribute, replacement)
    try:
        yield
    finally:
        for (owner, attribute, _), original in zip(patches, originals, strict=True):
            setattr(owner, attribute, original)
