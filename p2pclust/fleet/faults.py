"""Planned misfortunes as values, and what every backend reckons alike: who is late, who is cut off, whose rows are bad."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from p2pclust.data.damage import damaged

__all__ = [
    "LASTING",
    "PAIR",
    "Cuts",
    "Damage",
    "Do",
    "Fault",
    "comes",
    "damage_of",
    "goes_on",
    "heals",
    "late",
    "reaches",
    "revokes",
    "unfired",
]

Do = Literal[
    "kill",
    "restart",
    "pause",
    "resume",
    "cut",
    "heal",
    "join",
    "leave",
    "slow",
    "drop",
    "corrupt-data",
    "drain",
    "revoke",
]
#: A direction: from whom, to whom.
PAIR = tuple[str, str]
#: What may end by itself, after `for_s`.
LASTING = ("restart", "pause", "cut", "slow", "drop")


@dataclass(frozen=True)
class Fault:
    """One planned misfortune.

    By round it is carried out by the victim itself at `phase` of the first job that reaches the round, exactly once; by
    second, and before a job, by whoever runs the fleet.
    """

    do: Do
    who: tuple[str, ...]  # names; empty means the aggregator
    round: int | None = None
    phase: str = "opening"  # opening | adopting | combining | closing
    seconds: float | None = None  # after the first job was handed in
    for_s: float | None = None  # how long it lasts, where it may end by itself
    within: bool = False  # count the rounds of jobs that a round of the submitted one wants, not its own
    job: int | None = None  # before the job of this number, from 0, is handed in
    apart_from: tuple[str, ...] = ()  # of cut and heal: the other side; empty means everybody else
    one_way: bool = False  # of cut and heal: only what the other side sends to `who`
    factor: float = 1.0  # of slow: how many times as long it computes
    probability: float = 0.0  # of drop: that a message is lost, in either direction
    how: str = ""  # of corrupt-data; see p2pclust.data.damage
    drawn: str = ""  # of what rate the instant was drawn, in words; all instants of one rate say the same

    def __str__(self) -> str:
        whom = ", ".join(self.who) or "the aggregator"
        if self.do in ("cut", "heal"):
            whom += f" from {', '.join(self.apart_from) or 'everybody else'}"
        return f"{self.do} of {whom} {self._when()}"

    def _when(self) -> str:
        if self.drawn:
            return f"at {self.drawn}"
        if self.job is not None:
            return f"before job {self.job}"
        return f"at {self.seconds} s" if self.round is None else f"at round {self.round} ({self.phase})"

    def told(self) -> dict[str, object]:
        """Return what an event says of it besides its number and its moment."""
        more: dict[str, object] = {"do": self.do}
        if self.do in ("cut", "heal"):
            more |= {"who": list(self.who), "from": list(self.apart_from), "one_way": self.one_way}
        named = {"slow": "factor", "drop": "probability", "corrupt-data": "how"}.get(self.do)
        if named is not None:
            more[named] = getattr(self, named)
        return more | ({} if self.for_s is None else {"for_s": self.for_s})


@dataclass(frozen=True)
class Damage:
    """Rows that a device had in the place of its own: from that round of that job on, and in all later jobs."""

    peer: str
    how: str
    job_id: str
    round: int
    X: NDArray[np.float64]  # (n_samples, n_features)


def late(faults: Iterable[Fault]) -> tuple[str, ...]:
    """Return who is not there at the beginning: whom a `join` meets first, before any end of it.

    Examples
    --------
    >>> late([Fault("join", ("c",), seconds=2.0), Fault("leave", ("b",), job=1), Fault("join", ("b",), job=2)])
    ('c',)
    """
    first: dict[str, str] = {}
    for fault in faults:
        for name in fault.who if fault.do in ("join", "leave", "kill", "drain") else ():
            first.setdefault(name, fault.do)
    return tuple(sorted(name for name, do in first.items() if do == "join"))


def unfired(faults: Sequence[Fault], struck: Iterable[int]) -> tuple[str, ...]:
    """Return the faults that have not struck; a rate counts as one, which struck if any of its instants did.

    Examples
    --------
    >>> twice = [Fault("kill", ("a",), seconds=s, drawn="2 a minute") for s in (1.0, 90.0)]
    >>> unfired([*twice, Fault("kill", ("b",), round=3)], [0]), unfired(twice, [])
    (('kill of b at round 3 (opening)',), ('kill of a at 2 a minute',))
    """
    struck = dict.fromkeys(struck)
    drawn = {fault.drawn for number, fault in enumerate(faults) if number in struck}
    missed = [
        fault
        for number, fault in enumerate(faults)
        if number not in struck and not (fault.drawn and fault.drawn in drawn)
    ]
    first_of = {fault.drawn: fault for fault in reversed(missed) if fault.drawn}
    return tuple(str(fault) for fault in missed if not fault.drawn or fault is first_of[fault.drawn])


def comes(faults: Sequence[Fault], struck: Iterable[int], name: str) -> bool:
    """Whether a device that is not there will be started at a second that is still to come."""
    planned = (fault for number, fault in enumerate(faults) if number not in struck and fault.seconds is not None)
    return any(fault.do in ("join", "restart") and name in fault.who for fault in planned)


def goes_on(faults: Sequence[Fault], struck: Iterable[int], name: str) -> bool:
    """Whether a device that stands still will be woken up, or started again, at a second that is still to come.

    Examples
    --------
    >>> plan = [Fault("pause", ("a",), seconds=1.0), Fault("resume", ("a",), seconds=9.0)]
    >>> goes_on(plan, [0], "a"), goes_on(plan, [0, 1], "a")
    (True, False)
    """
    planned = (fault for number, fault in enumerate(faults) if number not in struck and fault.seconds is not None)
    return any(fault.do in ("resume", "restart") and name in fault.who for fault in planned)


def joins(faults: Iterable[Fault]) -> bool:
    """Whether anybody is started while the others run."""
    return any(fault.do == "join" for fault in faults)


def revokes(faults: Iterable[Fault]) -> bool:
    """Whether the fleet roster changes while the fleet runs."""
    return any(fault.do == "revoke" for fault in faults)


def heals(faults: Sequence[Fault], struck: Iterable[int]) -> bool:
    """Whether cuts will be healed at a second or a round that is still to come."""
    left = (fault for number, fault in enumerate(faults) if number not in struck and fault.job is None)
    return any(fault.do == "heal" for fault in left)


def damage_of(fault: Fault, number: int, X: NDArray[np.float64], name: str, seed: int) -> NDArray[np.float64]:
    """Return the rows that a device has instead of its own, from the same draws on every backend."""
    return damaged(X, fault.how, (seed, number, *name.encode()))


class Cuts:
    """Which directions are cut: each as often as it was cut and not healed.

    Parameters
    ----------
    names : sequence of str
        Everybody.

    Examples
    --------
    >>> cuts = Cuts(["a", "b", "c"])
    >>> cuts.add(cuts.pairs(["a"], (), one_way=False))
    >>> cuts.deaf("a"), cuts.deaf("b"), cuts.links(None)
    (('b', 'c'), ('a',), {'a': [], 'b': ['c'], 'c': ['b']})
    >>> cuts.heal(cuts.pairs(["a"], ["b"], one_way=False))
    >>> cuts.deaf("a"), reaches(cuts.links(None), "c", ["a"])
    (('c',), True)
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(sorted(names))
        self._cut: dict[PAIR, int] = {}

    def pairs(self, who: Sequence[str], apart_from: Sequence[str], *, one_way: bool) -> list[PAIR]:
        """Return the directions between two sides; of one way, those towards `who`."""
        others = [name for name in apart_from or self._names if name not in who]
        return self._between(who, others, one_way=one_way)

    def about(self, who: Sequence[str], apart_from: Sequence[str], *, one_way: bool) -> list[PAIR]:
        """Return the same, and with nobody on the other side all directions to or from `who`, also among themselves."""
        return self._between(who, apart_from or self._names, one_way=one_way)

    @staticmethod
    def _between(who: Sequence[str], others: Sequence[str], *, one_way: bool) -> list[PAIR]:
        towards = [(other, name) for name in who for other in others if other != name]
        return towards if one_way else towards + [(name, other) for other, name in towards]

    def add(self, pairs: Iterable[PAIR]) -> None:
        """Cut these directions once more."""
        for pair in pairs:
            self._cut[pair] = self._cut.get(pair, 0) + 1

    def end(self, pairs: Iterable[PAIR]) -> None:
        """One cut of these directions is over."""
        for pair in pairs:
            if self._cut.get(pair, 0) > 1:
                self._cut[pair] -= 1
            else:
                self._cut.pop(pair, None)

    def heal(self, pairs: Iterable[PAIR]) -> None:
        """All cuts of these directions are over."""
        for pair in pairs:
            self._cut.pop(pair, None)

    def open(self, source: str, target: str) -> bool:
        """Whether what one sends reaches the other."""
        return (source, target) not in self._cut

    def deaf(self, name: str) -> tuple[str, ...]:
        """Return from whom nothing reaches it, sorted."""
        return tuple(other for other in self._names if (other, name) in self._cut)

    def mute(self, name: str) -> tuple[str, ...]:
        """Return whom it does not reach, sorted."""
        return tuple(other for other in self._names if (name, other) in self._cut)

    def links(self, overlay: Mapping[str, Sequence[str]] | None) -> dict[str, list[str]]:
        """Return each peer's neighbours to whom both directions are open."""
        near = overlay or {name: [other for other in self._names if other != name] for name in self._names}
        return {
            name: [other for other in others if self.open(name, other) and self.open(other, name)]
            for name, others in near.items()
        }


def reaches(links: Mapping[str, Sequence[str]], name: str, others: Iterable[str]) -> bool:
    """Whether a way leads from a peer to one of the others."""
    wanted, seen, ahead = dict.fromkeys(others), {name: None}, [name]
    while ahead:
        here = ahead.pop()
        if here in wanted:
            return True
        for near in links.get(here, ()):
            if near not in seen:
                seen[near] = None
                ahead.append(near)
    return False
