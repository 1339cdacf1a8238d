"""``[expect]`` of a scenario: what must hold in the end."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PlainValidator, model_validator

from p2pclust.scenario.file import fields
from p2pclust.scenario.file.fields import refuse
from p2pclust.scenario.file.job_parameters import Table

__all__ = ["OPERATORS", "ExpectSpec", "ValueSpec"]

#: The keys that say how a value is compared.
OPERATORS = ("at_least", "at_most", "above", "below", "equals")


class ValueSpec(Table):
    """``[[expect.values]]``: something anywhere in the result, by its path; see `p2pclust.scenario.file.result_paths`."""

    what: Annotated[str, Field(min_length=1)]
    #: What several values come to: one number, or whether all or any of them hold, or how many do.
    over: Literal["max", "min", "mean", "all", "any", "count"] | None = None
    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    below: float | None = None
    equals: Annotated[float | bool | str, PlainValidator(fields.scalar)] | None = None

    @property
    def comparisons(self) -> list[tuple[str, float | bool | str]]:
        """The operators that were given, with what is wanted."""
        return [(name, wanted) for name in OPERATORS if (wanted := getattr(self, name)) is not None]

    @model_validator(mode="after")
    def _compares(self) -> ValueSpec:
        if not self.comparisons:
            refuse([f"what = {self.what!r}: expected one of {', '.join(OPERATORS)}"])
        if isinstance(self.equals, bool | str) and self.over in ("max", "min", "mean", "count"):
            refuse([f"over = {self.over!r} gives a number: expected equals to be one"])
        return self


class ExpectSpec(Table):
    """``[expect]``: what must hold in the end; what is left out is not asked."""

    finished_at_least: Annotated[int, Field(ge=0)] | None = None
    lost_at_most: Annotated[int, Field(ge=0)] | None = None
    identical_centers: bool | None = None
    pooled_relative_difference_below: Annotated[float, Field(gt=0)] | None = None
    #: For protocols that promise no equality.
    gap_below: Annotated[float, Field(gt=0)] | None = None
    replay_identical: bool | None = None
    ari_at_least: Annotated[float, Field(ge=-1, le=1)] | None = None
    accuracy_at_least: Annotated[float, Field(ge=0, le=1)] | None = None
    communities_at_least: Annotated[int, Field(ge=0)] | None = None
    communities_at_most: Annotated[int, Field(ge=0)] | None = None
    terms_at_least: Annotated[int, Field(ge=1)] | None = None
    terms_at_most: Annotated[int, Field(ge=0)] | None = None
    rounds_at_least: Annotated[int, Field(ge=1)] | None = None
    rounds_at_most: Annotated[int, Field(ge=1)] | None = None
    #: Devices that the record names as left out of a round, or as abstaining; an empty list: nobody is.
    left_out: Annotated[tuple[str, ...], PlainValidator(fields.some_names)] | None = None
    #: The fleet's own time: virtual where it was simulated.
    seconds_at_most: Annotated[float, Field(gt=0)] | None = None
    wall_seconds_at_most: Annotated[float, Field(gt=0)] | None = None
    virtual_seconds_at_most: Annotated[float, Field(gt=0)] | None = None
    #: Sent and received together: of the device with most, and in the mean.
    bytes_per_device_at_most: Annotated[float, Field(gt=0)] | None = None
    mean_bytes_per_device_at_most: Annotated[float, Field(gt=0)] | None = None
    #: Joules, of the device that used most; of those whose energy is counted.
    energy_per_device_at_most: Annotated[float, Field(gt=0)] | None = None
    #: Anything else in the result.
    values: Annotated[tuple[ValueSpec, ...], Field(strict=False)] = ()
