"""Planted bugs of promises that are kept in one place each: what is on the disk, what is waited for, what is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from p2pclust.peer.core.context import Elapsed
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.effects import Persist
from p2pclust.peer.core.enrolment import Enrolment
from p2pclust.peer.core.job_messages import Close, HeldState, Open
from p2pclust.peer.core.jobs import announcements
from p2pclust.peer.core.jobs.jobs import Jobs
from p2pclust.peer.core.jobs.submission import Acceptance, Submissions
from p2pclust.peer.core.ledger import Ledger
from p2pclust.peer.core.reports import JobAccepted
from p2pclust.peer.core.rounds.aggregator import AggregatorTerm
from p2pclust.peer.core.rounds.follower import Follower
from p2pclust.peer.core.rounds.keeper import Keeper
from p2pclust.peer.core.rounds.open_round import OpenRound
from p2pclust.peer.core.spread.facts import Facts
from p2pclust.peer.core.tasks import Given, Ref

_Patch = tuple[Any, str, Any]


def not_synced(method: Callable[..., Any], table: str) -> Callable[..., Any]:
    """The method, whose rows of that table are written and not synced."""

    def lazy(machine: Any, *of: Any, **named: Any) -> Any:
        before = len(machine._ctx.effects)
        result = method(machine, *of, **named)
        effects = machine._ctx.effects
        for number, effect in enumerate(effects[before:], before):
            if isinstance(effect, Persist) and effect.table == table:
                effects[number] = replace(effect, sync=False)
        return result

    return lazy


def without_timer(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, without the timers that it arms."""

    def once(machine: Any, *of: Any, **named: Any) -> Any:
        timers = machine._ctx.timers
        before = dict(timers._at)
        result = method(machine, *of, **named)
        for key in [key for key, at in timers._at.items() if before.get(key) != at]:
            timers.cancel(key)
        return result

    return once


def _counts_children_twice(opened: OpenRound) -> Iterator[Given]:
    """Take the contribution of a peer that answered directly although it is in a sum, too."""
    yield from opened.branches.sums() if opened.branches is not None else ()
    for index in opened.wanted():
        if index in opened.contributions:
            yield (index,), opened.contributions[index]


def _pads_the_first_twice(opened: OpenRound) -> Iterator[Given]:
    found = list(_USABLE(opened))
    yield from found
    if opened.secure is not None and not opened.secure.wants_keys:
        yield from found[:1]


_USABLE: Final = OpenRound._usable


def _opens_in_the_same_round(term: AggregatorTerm, ref: Ref, round_: int, info: Any) -> None:
    """Count rounds from the first one that has contributors."""
    _OPEN(term, ref, 0 if round_ == 1 else round_, info)


_OPEN: Final = AggregatorTerm._open


def _ends_with_what_it_holds(follower: Follower, source: str, message: Open | Close | HeldState) -> Ref | None:
    """Finish with one's own state, which is almost always the same as the final one."""
    held = follower._ledger.register.ref
    return held if isinstance(message, Close) and held is not None else _RESOLVE(follower, source, message)


_RESOLVE: Final = Follower.resolve


def _accepted_at_once(jobs: Jobs, document: Document) -> None:
    """A document that this peer has on its disk is good enough for a client that asks again."""
    known = document.id in jobs.table.documents and document.id in jobs._acceptance._documents
    _AWAIT(jobs, document)
    if known:
        jobs._ctx.report(JobAccepted(job=document.id))


_AWAIT: Final = Jobs._await


def _without_the_left_out(term: AggregatorTerm, opened: OpenRound) -> dict[int, str]:
    have = opened.contributors()
    return {index: reason for index, reason in sorted(opened.abstained.items()) if index not in have}


def _keeps_what_is_padded(term: AggregatorTerm, opened: OpenRound, name: str) -> list[str]:
    return _DROP(term, opened, name) if opened.secure is None or opened.secure.wants_keys else []


_DROP: Final = AggregatorTerm._drop


#: By swarm: name of the bug -> the attributes that it replaces.
WATCHED_MUTANTS: Final[dict[str, dict[str, tuple[_Patch, ...]]]] = {
    "": {
        "term-not-synced": ((Ledger, "see", not_synced(Ledger.see, "ballot")),),
        "second-state-of-a-round": ((AggregatorTerm, "_open", _opens_in_the_same_round),),
        "ends-with-what-it-holds": ((Follower, "resolve", _ends_with_what_it_holds),),
        "left-out-not-named": ((AggregatorTerm, "_abstained", _without_the_left_out),),
        "submission-announced-once": ((Acceptance, "repeat", without_timer(Acceptance.repeat)),),
        "facts-compared-once": ((Facts, "fire", without_timer(Facts.fire)),),
    },
    "leaderless": {
        "epoch-not-synced": ((Ledger, "_save_ballot", not_synced(Ledger._save_ballot, "ballot")),),
    },
    "secure": {
        "padded-twice": ((OpenRound, "_usable", _pads_the_first_twice),),
    },
    "clients": {
        "repeated-submission-accepted": ((Jobs, "_await", _accepted_at_once),),
    },
    "series": {
        "pause-without-end": ((Elapsed, "begin", without_timer(Elapsed.begin)),),
    },
    "rosters": {
        "serial-not-synced": ((Enrolment, "_adopt", not_synced(Enrolment._adopt, "roster")),),
        "roster-asked-for-once": ((Enrolment, "_ask", without_timer(Enrolment._ask)),),
        # The aggregator looks again when the sum is made, so a keeper has to overlook the revocation, too.
        "padded-by-a-revoked-peer": (
            (AggregatorTerm, "_drop", _keeps_what_is_padded),
            (Keeper, "_barred", lambda keeper, members: ""),
        ),
    },
    "any": {
        "child-counted-twice": ((OpenRound, "_usable", _counts_children_twice),),
        "store-ids-asked-for-once": ((Submissions, "go_on", without_timer(Submissions.go_on)),),
        "day-without-end": ((Elapsed, "begin", without_timer(Elapsed.begin)),),
        "ended-jobs-forgotten": ((announcements, "_MOST_KEPT", 0),),
    },
}
