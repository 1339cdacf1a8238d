"""``[expect]`` of a scenario: what must hold in the end."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from p2pclust.jobs.fields import Scalar, SomeNames, TomlTable, refuse

#: The keys that say how a value is compared.
OPERATORS = ("at_least", "at_most", "above", "below", "equals")


class ValueSpec(TomlTable):
    """``[[expect.values]]``: any value of the result, by its path; see `p2pclust.lab.scenario.file.result_paths`."""

    what: Annotated[str, Field(min_length=1)]
    #: How several values are combined: to one number, to whether all or any of them hold, or to their count.
    over: Literal["max", "min", "mean", "all", "any", "count"] | None = None
    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    below: float | None = None
    equals: Scalar | None = None

    @property
    def comparisons(self) -> list[tuple[str, float | bool | str]]:
        """The operators that were given, with the wanted values."""
        return [(name, wanted) for name in OPERATORS if (wanted := getattr(self, name)) is not None]

    @model_validator(mode="after")
    def _compares(self) -> ValueSpec:
        if not self.comparisons:
            refuse([f"what = {self.what!r}: expected one of {', '.join(OPERATORS)}"])
        if isinstance(self.equals, bool | str) and self.over in ("max", "min", "mean", "count"):
            refuse([f"over = {self.over!r} gives a number: expected equals to be one"])
        return self


class ExpectSpec(TomlTable):
    """``[expect]``: what must hold in the end; only the keys that are set are checked."""

    finished_at_least: Annotated[int, Field(ge=0)] | None = None
    lost_at_most: Annotated[int, Field(ge=0)] | None = None
    identical_centers: bool | None = None
    pooled_relative_difference_below: Annotated[float, Field(gt=0)] | None = None
    #: For protocols that are not lossless.
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
    #: Devices that the record names as left out of a round or abstaining; an empty list expects no such device.
    left_out: SomeNames | None = None
    #: The fleet's own time: virtual if it was simulated.
    seconds_at_most: Annotated[float, Field(gt=0)] | None = None
    wall_seconds_at_most: Annotated[float, Field(gt=0)] | None = None
    virtual_seconds_at_most: Annotated[float, Field(gt=0)] | None = None
    #: Sent and received together: the largest value of a device, and the mean.
    bytes_per_device_at_most: Annotated[float, Field(gt=0)] | None = None
    mean_bytes_per_device_at_most: Annotated[float, Field(gt=0)] | None = None
    #: Joules: the largest value of a device whose energy is counted.
    energy_per_device_at_most: Annotated[float, Field(gt=0)] | None = None
    #: Any other value of the result.
    values: Annotated[tuple[ValueSpec, ...], Field(strict=False)] = ()
