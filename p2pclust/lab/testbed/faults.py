"""Planned faults as values, and what follows from them on every backend: late peers, cuts, damaged rows, lies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from p2pclust.lab.testbed.peer.lies import LIES

Do = Literal[
    "kill", "restart", "pause", "resume", "cut", "heal", "join", "leave", "slow", "drop", "corrupt-data", "lie", "drain",
    "revoke",
]  # fmt: skip
#: A direction of a link: the sender and the receiver.
PAIR = tuple[str, str]
#: Faults that can end by themselves, after `for_s`.
LASTING = ("restart", "pause", "cut", "slow", "drop")


@dataclass(frozen=True)
class Fault:
    """One planned fault.

    A fault by round is carried out by the victim itself, exactly once, at `phase` of the first job that reaches the round.
    Faults by second, and before a job, are carried out by the backend.
    """

    do: Do
    who: tuple[str, ...]  # names; empty means the aggregator
    round: int | None = None
    phase: str = "opening"  # opening | adopting | combining | closing
    seconds: float | None = None  # after the first job was handed in
    for_s: float | None = None  # how long it lasts, where it may end by itself
    within: bool = False  # count the rounds of jobs that a round of the submitted one wants, not its own
    job: int | None = None  # the number, from 0, of the job before which it strikes
    apart_from: tuple[str, ...] = ()  # of cut and heal: the other side; empty means all other peers
    one_way: bool = False  # of cut and heal: only what the other side sends to `who`
    factor: float = 1.0  # of slow: how many times as long its tasks take
    probability: float = 0.0  # of drop: the probability that a message is lost, in either direction
    how: str = ""  # of corrupt-data and lie; see p2pclust.lab.data.damage and p2pclust.lab.testbed.peer.lies
    drawn: str = ""  # the rate that the instant was drawn from, in words; the same for all instants of one rate

    def __str__(self) -> str:
        victims = ", ".join(self.who) or "the aggregator"
        if self.do in ("cut", "heal"):
            victims += f" from {', '.join(self.apart_from) or 'all other peers'}"
        moment = f"at {self.seconds} s" if self.round is None else f"at round {self.round} ({self.phase})"
        if self.drawn:
            moment = f"at {self.drawn}"
        elif self.job is not None:
            moment = f"before job {self.job}"
        return f"{self.do} of {victims} {moment}"

    def fields(self) -> dict[str, object]:
        """Return the fields of its event, without its number and its time."""
        more: dict[str, object] = {"do": self.do}
        if self.do in ("cut", "heal"):
            more |= {"who": list(self.who), "from": list(self.apart_from), "one_way": self.one_way}
        named = {"slow": "factor", "drop": "probability", "corrupt-data": "how", "lie": "how"}.get(self.do)
        if named is not None:
            more[named] = getattr(self, named)
        return more | ({} if self.for_s is None else {"for_s": self.for_s})


@dataclass(frozen=True)
class Damage:
    """Rows that a device used in place of its own, or its lies, from that round of that job on and in all later jobs."""

    peer: str
    how: str
    job_id: str
    round: int
    X: NDArray[np.float64]  # (n_samples, n_features); of a liar its own

    @property
    def lie(self) -> bool:
        """Whether the device lied about its rows, which were sound."""
        return self.how in LIES


def late(faults: Iterable[Fault]) -> tuple[str, ...]:
    """Return the devices that are not started with the fleet: the first fault of each is a `join`.

    >>> late([Fault("join", ("c",), seconds=2.0), Fault("leave", ("b",), job=1), Fault("join", ("b",), job=2)])
    ('c',)
    """
    first: dict[str, str] = {}
    for fault in faults:
        for name in fault.who if fault.do in ("join", "leave", "kill", "drain") else ():
            first.setdefault(name, fault.do)
    return tuple(sorted(name for name, do in first.items() if do == "join"))


def unfired(faults: Sequence[Fault], struck: Iterable[int]) -> tuple[str, ...]:
    """Return the faults that have not struck; a rate counts as one fault, which struck if any of its instants did.

    >>> twice = [Fault("kill", ("a",), seconds=s, drawn="2 a minute") for s in (1.0, 90.0)]
    >>> unfired([*twice, Fault("kill", ("b",), round=3)], [0]), unfired(twice, [])
    (('kill of b at round 3 (opening)',), ('kill of a at 2 a minute',))
    """
    struck, missed = {*struck}, []
    drawn = {faults[number].drawn for number in struck}
    for number, fault in enumerate(faults):
        if number not in struck and not (fault.drawn and fault.drawn in drawn):
            missed.append(str(fault))
            drawn.add(fault.drawn)  # only the first instant of a rate
    return tuple(missed)


class Cuts:
    """Counts, for each direction, the cuts that have not ended.

    >>> cuts = Cuts(["a", "b", "c"])
    >>> cuts.add(cuts.pairs(["a"], (), one_way=False))
    >>> cuts.deaf("a"), cuts.deaf("b"), cuts.links(None)
    (('b', 'c'), ('a',), {'a': [], 'b': ['c'], 'c': ['b']})
    >>> cuts.heal(cuts.pairs(["a"], ["b"], one_way=False))
    >>> cuts.deaf("a")
    ('c',)
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(sorted(names))
        self._cut: Counter[PAIR] = Counter()

    def pairs(
        self, who: Sequence[str], apart_from: Sequence[str], *, one_way: bool, within: bool = False
    ) -> list[PAIR]:
        """Return the directions between two sides; with `one_way`, only those towards `who`.

        With `within`, directions between peers of both sides are among them; if `apart_from` is empty, those of `who`.
        """
        others = [name for name in apart_from or self._names if within or name not in who]
        towards = [(other, name) for name in who for other in others if other != name]
        return towards if one_way else towards + [(name, other) for other, name in towards]

    def add(self, pairs: Iterable[PAIR]) -> None:
        self._cut.update(pairs)

    def end(self, pairs: Iterable[PAIR]) -> None:
        """End one cut of each of these directions."""
        self._cut -= Counter(pairs)

    def heal(self, pairs: Iterable[PAIR]) -> None:
        """End all cuts of these directions."""
        for pair in pairs:
            self._cut.pop(pair, None)

    def open(self, source: str, target: str) -> bool:
        return (source, target) not in self._cut

    def deaf(self, name: str) -> tuple[str, ...]:
        """Return the peers whose messages do not reach it, sorted."""
        return tuple(other for other in self._names if (other, name) in self._cut)

    def mute(self, name: str) -> tuple[str, ...]:
        """Return the peers that its messages do not reach, sorted."""
        return tuple(other for other in self._names if (name, other) in self._cut)

    def links(self, overlay: Mapping[str, Sequence[str]] | None) -> dict[str, list[str]]:
        """Return the neighbours of each peer to which both directions are open."""
        near = overlay or {name: [other for other in self._names if other != name] for name in self._names}
        return {
            name: [other for other in others if self.open(name, other) and self.open(other, name)]
            for name, others in near.items()
        }
