"""``[[faults]]`` of a scenario: what goes wrong, when, and whom it meets."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PlainValidator, model_validator

from p2pclust.scenario import fields
from p2pclust.scenario.fields import RandomVictims, wrong_table
from p2pclust.scenario.job_parameters import Table

__all__ = ["At", "FaultSpec"]

Phase = Literal["opening", "adopting", "combining", "closing"]


class At(Table):
    """``at = { round = 3 }`` or ``{ seconds = 2.5 }``: when a fault happens."""

    #: The victim's own doing when it reaches this round of the first job that gets there.
    round: Annotated[int, Field(ge=0)] | None = None
    phase: Phase | None = None
    #: After the first job was submitted.
    seconds: Annotated[float, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _one_moment(self) -> At:
        if (self.round is None) == (self.seconds is None):
            raise wrong_table(["expected either round or seconds"])
        if self.phase is not None and self.round is None:
            raise wrong_table(["phase is for a fault at a round, not at a second"])
        return self


class FaultSpec(Table):
    """``[[faults]]``: what goes wrong, when, and whom it meets."""

    at: At
    do: Literal["kill", "restart", "pause", "resume"]
    #: A device, a group, "aggregator", or { random = k }.
    who: Annotated[str | RandomVictims, PlainValidator(fields.who)]
    #: Count the rounds of the jobs within a job (FedCRef's communities), and mean the aggregator of one of these.
    within: bool = False
    #: How long a restarted peer stays down, or a paused one stands still (without it: until a resume).
    for_s: Annotated[float, Field(ge=0)] | None = None

    @property
    def phase(self) -> Phase:
        """The phase of a fault at a round: opening for the aggregator, adopting for anybody else, if not given."""
        return self.at.phase or ("opening" if self.who == "aggregator" else "adopting")

    @model_validator(mode="after")
    def _possible(self) -> FaultSpec:
        problems = []
        if self.for_s is not None and self.do in ("kill", "resume"):
            problems.append(f"for_s is for pause and restart, not {self.do}")
        if self.at.round is not None and self.phase != "adopting" and self.who != "aggregator":
            problems.append(f"phase {self.phase!r} is the aggregator's: expected who = 'aggregator', or another phase")
        if self.do == "resume" and self.at.round is not None:
            problems.append("a paused peer cannot resume itself at a round: expected at = { seconds = ... }")
        if self.do == "resume" and (self.who == "aggregator" or isinstance(self.who, RandomVictims)):
            problems.append("resume needs who = a device or a group: the aggregator is another one by then")
        if problems:
            raise wrong_table(problems)
        return self
