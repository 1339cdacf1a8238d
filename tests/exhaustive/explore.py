"""All histories of a small fleet within bounds: orders of messages, losses, repeats, ends of tasks, time-outs, and crashes.

A message that was sent may arrive at any time, or never, or more than once. A crash comes after any effect of any step; the
peer starts again with what it had synced. Time passes in leaps, long enough for an election or for a repetition.

Of two states that differ only in that more messages were sent in one, the other is not explored: what can follow from it can
follow from the one, which loses the rest. Because of that few states are left for each state of the peers.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from tests.exhaustive.fleet import NAMES, BrokenError, Happened, Peer, Sent, Toy
from tests.exhaustive.liar import HONEST, Witnesses, lies

from p2pclust.lab.simulation.checks.agreement import Agreement
from p2pclust.peer.core import job_messages
from p2pclust.peer.core.events import Arrived, Woken
from p2pclust.peer.core.messages import Message
from p2pclust.tools.bit_sets import as_mask, members_of

__all__ = ["Bounds", "Explored", "explore"]

_LONG_LEAP_S: Final = 0.32
_SHORT_LEAP_S: Final = 0.07


@dataclass(frozen=True)
class Bounds:
    """What is explored.

    Parameters
    ----------
    rounds : int
        After which the state is final.
    crashes : int
        At most, of all peers together.
    elections : int
        How often time leaps by as much as an election's time-out.
    repetitions : int
        How often time leaps by as much as a repetition.
    at_once : bool
        Whether a task ends in the step that begins it, and not at any time later.
    again : bool
        Whether a message may arrive more than once. Then fewer states are left, because what was sent stays in the network,
        and more steps to compute.
    liar : int
        Up to which term the third peer lies, in a fleet with keys: it says at any time all that it can (`liar.py`). 0: it is
        honest, and there are no keys.
    ends : bool
        Whether it lies about ends; otherwise about votes.
    """

    rounds: int = 1
    crashes: int = 0
    elections: int = 1
    repetitions: int = 0
    at_once: bool = False
    again: bool = False
    liar: int = 0
    ends: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The peers that are explored."""
        return HONEST if self.liar else NAMES


@dataclass(frozen=True)
class Explored:
    """What an exploration found."""

    states: int
    finished: int  # states in which all peers that do not lie have ended the job
    seconds: float  # of processor time
    complete: bool  # whether all histories within the bounds were seen
    broken: str = ""  # the promise that broke, and in which step
    steps: int = 0  # after which the last state came; with a liar, all histories of fewer steps were seen


@dataclass(frozen=True, slots=True)
class _World:
    """One state of the fleet: of each peer its number and how long ago its last step was."""

    peers: tuple[tuple[int, float], ...]
    network: int  # the messages that were sent and can still do something: bits by number
    history: frozenset[int]
    crashes: int
    elections: int
    repetitions: int

    @property
    def key(self) -> int:
        """Eight bytes of all but the network; two states have the same ones by chance only (hash compaction)."""
        return hash((self.peers, self.history, self.crashes, self.elections, self.repetitions))


class _Exploration:
    """One search: states with many messages come first, because they stand for those with fewer.

    With a liar, which says all that it can at once, those after few steps do: then a search that is cut off has seen all
    histories of so many steps.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._toy = Toy(bounds.rounds, keyed=bool(bounds.liar))
        self._peers: list[Peer] = []  # each different one once, by number
        self._number_of: dict[int, int] = {}
        self._messages: list[Sent] = []
        self._message_of: dict[Sent, int] = {}
        self._sent_to = [0 for _ in NAMES]  # by peer: the messages to it
        self._networks: dict[int, list[int]] = {}  # by the key of a state: none is a part of another set
        self._happened: list[Happened] = []
        self._event_of: dict[Happened, int] = {}
        self._steps: dict[tuple[Any, ...], list[_Step]] = {}
        self._over: dict[tuple[int, int], bool] = {}
        self._extended: dict[tuple[frozenset[int], tuple[int, ...]], frozenset[int]] = {}
        self._lies: dict[int, int] = {}  # by the messages to the liar

    def run(self, limit_s: float) -> Explored:
        """Explore all states, or as many as that much processor time allows."""
        began = time.process_time()
        bounds = self._bounds
        peers = tuple((self._number(Peer(name, self._toy, at_once=bounds.at_once)), 0.0) for name in bounds.names)
        first = _World(peers, self._with_lies(0), frozenset(), bounds.crashes, bounds.elections, bounds.repetitions)
        self._networks[first.key] = [first.network]
        todo, n_found, n_states, finished, broken = [(0, 0, 0, first)], 0, 0, 0, ""
        steps = 0
        while todo and not broken and time.process_time() - began < limit_s:
            *_, steps, world = heapq.heappop(todo)
            if world.network not in self._networks[world.key]:
                continue  # meanwhile, the same was found with more messages
            n_states += 1
            ended = {self._happened[n][2] for n in world.history if self._happened[n][0] == "ended"}
            finished += len(ended) == len(world.peers)
            if len(ended) == len(world.peers) and self._bounds.liar:
                continue  # after this no honest peer votes, adopts or ends
            try:
                for following in self._following(world):
                    if self._is_new(following):
                        n_found += 1
                        order = steps if self._bounds.liar else -following.network.bit_count()
                        heapq.heappush(todo, (order, n_found, steps + 1, following))
            except BrokenError as error:
                broken = str(error)
        complete = not todo and not broken
        return Explored(n_states, finished, time.process_time() - began, complete, broken, steps)

    def _is_new(self, world: _World) -> bool:
        """Return whether no state was found that differs only in more messages; if so, forget those with fewer."""
        known = self._networks.setdefault(world.key, [])
        if any(world.network & ~network == 0 for network in known):
            return False
        known[:] = [network for network in known if network & ~world.network]
        known.append(world.network)
        return True

    def _following(self, world: _World) -> Iterator[_World]:
        crashes = (False, True) if world.crashes else (False,)
        for number in members_of(world.network & ~self._heard):
            for crash in crashes:
                index = NAMES.index(self._messages[number][1])
                gone = 0 if self._bounds.again else 1 << number
                yield from self._after(world, index, ("message", number), crash, gone)
        for index, (number, age) in enumerate(world.peers):
            peer = self._peers[number]
            for crash in crashes:
                for task in range(len(peer.tasks)):
                    yield from self._after(world, index, ("task", task), crash)
                if peer.core.wake_at - peer.now <= age:
                    yield from self._after(world, index, ("woken",), crash)
        if world.elections:
            yield replace(world, peers=_older(world.peers, _LONG_LEAP_S), elections=world.elections - 1)
        if world.repetitions:
            yield replace(world, peers=_older(world.peers, _SHORT_LEAP_S), repetitions=world.repetitions - 1)

    def _after(self, world: _World, index: int, what: tuple[Any, ...], crash: bool, gone: int = 0) -> Iterator[_World]:
        for step in self._steps_of(*world.peers[index], what, crash):
            peers = (*world.peers[:index], (step.peer, 0.0), *world.peers[index + 1 :])
            network = self._with_lies((world.network & ~gone) | as_mask(step.sent))
            said = network & ~world.network  # by the liar, too
            for number in members_of((network & self._sent_to[index]) | (said & ~self._heard)):
                if self._is_over(number, peers):
                    network &= ~(1 << number)
            history = self._history(world.history, step.happened)
            yield _World(
                peers, network, history, world.crashes - crash, world.elections, world.repetitions
            )  # fmt: skip

    @property
    def _heard(self) -> int:
        """The messages to the liar, which it keeps: bits by number."""
        return self._sent_to[-1] if self._bounds.liar else 0

    def _with_lies(self, network: int) -> int:
        """Add what the liar may say to what was sent."""
        if not self._bounds.liar:
            return network
        heard = network & self._heard
        if heard not in self._lies:
            known = [self._messages[number] for number in members_of(heard)]
            said = lies(
                ((source, message) for source, _, message in known),
                self._toy,
                self._bounds.liar,
                ends=self._bounds.ends,
            )
            self._lies[heard] = as_mask(self._number_of_message(sent) for sent in list(said))
        return network | self._lies[heard]

    def _steps_of(self, number: int, age: float, what: tuple[Any, ...], crash: bool) -> list[_Step]:
        """Return how one event can end at one peer: with a crash, after each of its effects."""
        key = (number, age, what, crash)
        if key not in self._steps:
            whole = self._stepped(number, age, what, None)
            cuts = [self._stepped(number, age, what, n) for n in range(whole.n_effects + 1)] if crash else [whole]
            steps = [
                _Step(
                    self._number(peer),
                    tuple(map(self._number_of_message, peer.sent)),
                    tuple(map(self._number_of_event, peer.happened)),
                )
                for peer in cuts
            ]
            self._steps[key] = list(dict.fromkeys(steps))
        return self._steps[key]

    def _stepped(self, number: int, age: float, what: tuple[Any, ...], crash_after: int | None) -> Peer:
        peer = self._peers[number].copied()
        peer.now += age
        match what:
            case ("message", sent):
                source, _, message = self._messages[sent]
                peer.step(Arrived(source, message), crash_after=crash_after)
            case ("task", task):
                peer.step(peer.next_task(task), crash_after=crash_after)
            case _:
                peer.step(Woken(), crash_after=crash_after)
        return peer

    def _history(self, before: frozenset[int], new: tuple[int, ...]) -> frozenset[int]:
        """Add what happened, and check the rules of the simulator on it."""
        if (before, new) not in self._extended:
            agreement = Agreement(len(NAMES), self._toy.parents)
            flaw_of = Witnesses().flaw if self._bounds.liar else partial(_flaw, agreement)
            for number in sorted(before):
                flaw_of(self._happened[number])
            for number in new:
                if number not in before and (flaw := flaw_of(self._happened[number])):
                    raise BrokenError(flaw)
            self._extended[before, new] = before.union(new)
        return self._extended[before, new]

    def _is_over(self, number: int, peers: tuple[tuple[int, float], ...]) -> bool:
        """Return whether a message can do nothing at its target any longer, so that two states differ by it in vain."""
        _, to, message = self._messages[number]
        key = (number, peers[NAMES.index(to)][0])
        if key not in self._over:
            self._over[key] = _is_over(message, self._peers[key[1]])
        return self._over[key]

    def _number(self, peer: Peer) -> int:
        number = self._number_of.setdefault(peer.fingerprint(), len(self._peers))
        if number == len(self._peers):
            self._peers.append(peer)
        return number

    def _number_of_message(self, sent: Sent) -> int:
        if sent not in self._message_of:
            self._message_of[sent] = len(self._messages)
            self._sent_to[NAMES.index(sent[1])] |= 1 << len(self._messages)
            self._messages.append(sent)
        return self._message_of[sent]

    def _number_of_event(self, event: Happened) -> int:
        if event not in self._event_of:
            self._event_of[event] = len(self._happened)
            self._happened.append(event)
        return self._event_of[event]


@dataclass(frozen=True, slots=True)
class _Step:
    """A step of one peer: the peer after it, what it sent, and what happened, by number."""

    peer: int
    sent: tuple[int, ...]
    happened: tuple[int, ...]


def _is_over(message: Message, peer: Peer) -> bool:
    term, role = peer.job.ledger.term, peer.job.election.role.value
    match message:
        case job_messages.VoteReply():
            return message.term < term or (message.term == term and role != "candidate")
        case job_messages.PreVoteReply():
            return message.own_term <= term and message.term <= term
        case job_messages.Adopted() | job_messages.HeartbeatReply():
            return message.term < term or (message.term == term and role != "aggregator")
        case job_messages.StaleTerm():
            return message.term <= term
    return isinstance(message, job_messages.CloseReply)


def _older(peers: tuple[tuple[int, float], ...], by_s: float) -> tuple[tuple[int, float], ...]:
    return tuple((number, round(age + by_s, 3)) for number, age in peers)


def _flaw(agreement: Agreement, event: Happened) -> str:
    """Return how an event breaks a rule, beginning with the rule's name, or an empty string."""
    match event:
        case ("voted", term, candidate, voter):
            rules = {"S1": agreement.voted(term, candidate, voter)}
        case ("elected", term, name):
            rules = {"S1": agreement.elected(term, name)}
        case ("adopted", term, round_, state, name):
            rules = {"S4": agreement.opened(term, round_, state), "S3": agreement.adopted(term, state, name)}
        case ("ended", state, name):
            rules = {"S5": agreement.ended(state, name), "S8": agreement.ended_early(state, name)}
        case _:
            raise ValueError(event)
    return next((f"{name}: {flaw}" for name, flaw in rules.items() if flaw), "")


def explore(bounds: Bounds, limit_s: float = 60.0) -> Explored:
    """Explore all histories within bounds, for at most so much processor time."""
    return _Exploration(bounds).run(limit_s)
