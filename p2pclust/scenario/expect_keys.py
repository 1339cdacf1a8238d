"""``[expect]`` of a scenario: what must hold in the end."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from p2pclust.scenario.job_parameters import Table

__all__ = ["ExpectSpec"]


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
    terms_at_least: Annotated[int, Field(ge=1)] | None = None
    rounds_at_most: Annotated[int, Field(ge=1)] | None = None
    seconds_at_most: Annotated[float, Field(gt=0)] | None = None
