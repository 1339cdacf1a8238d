"""``[[faults]]`` of a scenario: what goes wrong, when, and at which devices."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from p2pclust.jobs.fields import Names, RandomVictims, TomlTable, Who, refuse
from p2pclust.lab.data.damage import HOWS
from p2pclust.lab.testbed.faults import LASTING, Do
from p2pclust.lab.testbed.peer.lies import LIES

Phase = Literal["opening", "adopting", "combining", "closing"]

#: The key that each of these faults needs; no other fault has it.
_NEEDS = {"slow": "factor", "drop": "probability", "corrupt-data": "how", "lie": "how"}
#: What `how` may be.
_HOWS = {"corrupt-data": tuple(HOWS), "lie": tuple(LIES)}


class At(TomlTable):
    """``at = { round = 3 }``, ``{ seconds = 2.5 }``, ``{ job = 1 }`` or ``{ rate_per_minute = 2, until_s = 60 }``."""

    #: When the victim reaches this round, in the first job that has it; the victim carries it out itself.
    round: Annotated[int, Field(ge=0)] | None = None
    phase: Phase | None = None
    #: After the first job was submitted.
    seconds: Annotated[float, Field(ge=0)] | None = None
    #: Before this job is submitted; jobs count from 0.
    job: Annotated[int, Field(ge=0)] | None = None
    #: At instants drawn from the seed: the mean number per minute, and the span of time.
    rate_per_minute: Annotated[float, Field(gt=0, le=6000)] | None = None
    from_s: Annotated[float, Field(ge=0)] | None = None
    until_s: Annotated[float, Field(gt=0, le=100_000)] | None = None

    @model_validator(mode="after")
    def _one_moment(self) -> At:
        moments, rated = (self.round, self.seconds, self.job, self.rate_per_minute), self.rate_per_minute is not None
        wrong = {
            "expected one of round, seconds, job, or rate_per_minute": sum(one is not None for one in moments) != 1,
            "phase is for a fault at a round, not at another moment": self.phase is not None and self.round is None,
            "from_s and until_s are for rate_per_minute":
                not rated and (self.from_s is not None or self.until_s is not None),
            "rate_per_minute needs until_s, later than from_s (0 if it is not given)":
                rated and (self.until_s is None or self.until_s <= (self.from_s or 0.0)),
        }  # fmt: skip
        refuse([problem for problem, here in wrong.items() if here][:1])
        return self


class FaultSpec(TomlTable):
    """``[[faults]]``: what goes wrong, when, and at which devices."""

    at: At
    do: Do
    #: A device, a class of devices, a list of these, "all", "aggregator", or { random = k }.
    who: Who = "all"
    #: Of cut and heal: the other side, by default all other devices. With one_way, only messages to `who` are lost.
    apart_from: Annotated[Names, Field(alias="from")] = ()
    one_way: bool = False
    #: Whether rounds and the aggregator are those of a job within the job (FedCRef's communities).
    within: bool = False
    #: How long a restarted peer stays down, or another fault lasts (without it: to the end).
    for_s: Annotated[float, Field(ge=0)] | None = None
    #: Of slow: the factor by which computing takes longer.
    factor: Annotated[float, Field(ge=1, le=100_000)] | None = None
    #: Of drop: the probability that a message from or to the device is lost.
    probability: Annotated[float, Field(gt=0, le=1)] | None = None
    #: Of corrupt-data: what happens to the rows; of lie: what the device sends in place of its sums.
    how: Literal["nan", "scale", "shuffle", "constant", "corner", "inflate", "waver"] | None = None

    @property
    def phase(self) -> Phase:
        """The phase of a fault at a round: by default opening for the aggregator, adopting for other peers."""
        return self.at.phase or ("opening" if self.who == "aggregator" else "adopting")

    @model_validator(mode="after")
    def _possible(self) -> FaultSpec:
        do, at_round, of_aggregator = self.do, self.at.round is not None, self.who == "aggregator"
        moment = "expected at = { seconds = ... }"
        wrong = {
            f"a peer cannot revoke itself at a round: {moment}": at_round and do == "revoke",
            f"phase {self.phase!r} is the aggregator's: expected who = 'aggregator', or another phase":
                at_round and self.phase != "adopting" and not of_aggregator,
            f"a paused peer cannot resume itself at a round: {moment}": at_round and do == "resume",
            f"a device cannot join itself at a round: {moment} or {{ job = ... }}": at_round and do == "join",
            f"{do} at a rate has no meaning: {moment}":
                do in ("resume", "join", "heal") and self.at.rate_per_minute is not None,
            "there is no aggregator before a job: expected another moment, or another device":
                of_aggregator and self.at.job is not None,
            "key 'who' is missing": do != "heal" and "who" not in self.model_fields_set,
            "resume needs who = a device or a group: another peer is the aggregator by then":
                do == "resume" and (of_aggregator or isinstance(self.who, RandomVictims)),
            f"{do} needs who = a device or a group, not the aggregator": do in ("join", "heal") and of_aggregator,
        }  # fmt: skip
        refuse([*self._foreign_keys(), *(problem for problem, here in wrong.items() if here)])
        return self

    def _foreign_keys(self) -> list[str]:
        problems = []
        if self.for_s is not None and self.do not in LASTING:
            problems.append(f"for_s is for {', '.join(LASTING[:-1])} and {LASTING[-1]}, not {self.do}")
        needed = _NEEDS.get(self.do)
        for key in dict.fromkeys(_NEEDS.values()):
            given = getattr(self, key) is not None
            if given and needed != key:
                of = [do for do, other in _NEEDS.items() if other == key]
                problems.append(f"{key} is for {' and '.join(of)}, not {self.do}")
            elif not given and needed == key:
                problems.append(f"do = {self.do!r} needs {key}")
        known = _HOWS.get(self.do, ())
        if known and self.how is not None and self.how not in known:
            problems.append(f"how = {self.how!r}: expected one of {', '.join(known)}")
        if (self.apart_from or self.one_way) and self.do not in ("cut", "heal"):
            problems.append(f"{'from' if self.apart_from else 'one_way'} is for cut and heal, not {self.do}")
        return problems
