"""The keys of an overlay, in an inventory and in ``[fleet.overlay]`` of a scenario."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from p2pclust.errors import UsageError
from p2pclust.jobs.fields import TomlTable, refuse
from p2pclust.overlay.kinds import options_of


class OverlaySpec(TomlTable):
    """``[fleet.overlay]``: which peers are linked; the options depend on the kind, see :data:`p2pclust.overlay.KINDS`."""

    kind: str = "full"
    neighbours: int | float | None = None
    rewire: float | None = None
    radius: float | None = None
    children: int | None = None
    torus: bool | None = None
    #: The name of a device.
    center: str | None = None
    gateways: int | None = None
    #: The path of a GraphML, edge or adjacency file, relative to the scenario.
    path: str | None = None
    #: Of moving peers.
    speed: float | None = None
    seconds: int | None = None
    #: A file of links that appear and vanish while jobs run, relative to the scenario; see p2pclust.overlay.traces.
    trace: Annotated[str, Field(min_length=1)] | None = None

    @property
    def options(self) -> dict[str, Any]:
        given = self.model_dump(exclude={"kind", "trace"}).items()
        return {name: value for name, value in given if value is not None}

    @model_validator(mode="after")
    def _fits_its_kind(self) -> OverlaySpec:
        try:
            options_of(self.kind, self.options)
        except UsageError as error:
            refuse([str(error)])
        if self.trace is not None and self.kind == "mobility":
            refuse(["kind 'mobility' draws its own trace: leave trace out, or choose another kind"])
        return self
