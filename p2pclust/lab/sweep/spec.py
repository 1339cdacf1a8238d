"""The schema of a sweep file: the grid, and the settings that all cells share. Checked like a scenario file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, ValidationError, model_validator

from p2pclust.errors import UsageError
from p2pclust.jobs import fields
from p2pclust.jobs.data_keys import OverlaySpec
from p2pclust.jobs.explain import explain
from p2pclust.jobs.fields import TomlTable, wrong_table, wrong_value
from p2pclust.lab.scenario.file.fleet_keys import PEERS_MAX
from p2pclust.lab.sweep.columns import AXES, MEASURES, columns_of
from p2pclust.peer.core.treatment import COLLECT
from p2pclust.protocols.gossip.push_sum import MIXINGS
from p2pclust.tools.spelling import did_you_mean
from p2pclust.tools.toml_files import read_toml

_CELLS_MAX = 100_000
#: The places of peers on an overlay, and what they are in words.
_PLACE = re.compile(r"central|peripheral|random|cut-vertex|(betweenness|closeness):(?!0$)(\d{1,4}|last)")
_PLACES = "central, peripheral, random, cut-vertex, betweenness:K, closeness:K, where K counts from 1 or is last"


def _listed(value: object) -> object:
    return value if isinstance(value, list | tuple) else [value]


def _different(values: tuple[Any, ...]) -> tuple[Any, ...]:
    for place, value in enumerate(values):
        if value in values[:place]:
            raise wrong_value(f"{value!r} is given twice: leave one of them out")
    return fields.not_empty(values)


def _seeds(value: object) -> object:
    if not isinstance(value, str):
        return _listed(value)
    found = re.fullmatch(r"(\d{1,9}):(\d{1,9})", value)
    if found is None or not 0 < int(found[2]) - int(found[1]) <= _CELLS_MAX:
        raise wrong_value('expected seeds such as [0, 1, 2], or "A:B" with A below B')
    return list(range(int(found[1]), int(found[2])))


def _overlays(value: object) -> object:
    items = _listed(value)
    assert isinstance(items, list | tuple)
    return [{"kind": item} if isinstance(item, str) else item for item in items]


def _one_of(*names: str, or_place: bool = False) -> AfterValidator:
    def check(value: str) -> str:
        if value not in names and not (or_place and _PLACE.fullmatch(value)):
            raise wrong_value(f"expected {', '.join(names)}" + (f", or {_PLACES}" if or_place else ""))
        return value

    return AfterValidator(check)


_Axis = (Field(strict=False), BeforeValidator(_listed), AfterValidator(_different))


class OverlayChoice(OverlaySpec):
    """One overlay of the grid: a kind with its options; `name` is what table and plots call it, by default the kind."""

    name: Annotated[str, Field(min_length=1)] | None = None

    @property
    def options(self) -> dict[str, Any]:
        return {key: value for key, value in super().options.items() if key != "name"}

    @property
    def label(self) -> str:
        return self.name or (Path(self.path).stem if self.path else self.kind)

    @model_validator(mode="after")
    def _stands_still(self) -> OverlayChoice:
        if self.kind == "mobility" or self.trace is not None:
            raise wrong_table(
                ["links of a sweep stay as they are: expected no trace, and another kind than 'mobility'"]
            )
        return self


class Grid(TomlTable):
    """``[grid]``: every combination of these is a cell. A single value is a list of one."""

    overlay: Annotated[tuple[OverlayChoice, ...], Field(strict=False), BeforeValidator(_overlays)]
    #: Number of peers; overlays from files have their own.
    peers: Annotated[tuple[Annotated[int, Field(ge=2, le=PEERS_MAX)], ...], *_Axis] = (12,)
    #: A list, or "A:B" for those from A up to, but without, B.
    seed: Annotated[
        tuple[Annotated[int, Field(ge=0, lt=2**63)], ...],
        Field(strict=False), BeforeValidator(_seeds), AfterValidator(_different),
    ] = (0,)  # fmt: skip
    protocol: Annotated[tuple[Annotated[str, AfterValidator(fields.known_protocol)], ...], *_Axis] = ("llf-cm",)
    #: How contributions come together; "default" leaves it to the fleet.
    collect: Annotated[tuple[Annotated[str, _one_of("default", *COLLECT)], ...], *_Axis] = ("default",)
    #: Probability that a device's link loses a message, and delay that it adds, on the way from and to the device.
    loss: Annotated[tuple[Annotated[float, Field(ge=0, lt=1)], ...], *_Axis] = (0.0,)
    latency_ms: Annotated[tuple[Annotated[float, Field(ge=0, le=60_000)], ...], *_Axis] = (1.0,)
    #: Who aggregates the first term: elected, or the peer at a place on the overlay.
    aggregator: Annotated[tuple[Annotated[str, _one_of("elected", or_place=True)], ...], *_Axis] = ("elected",)
    #: Of mixing: by which shares peers average.
    mixing: Annotated[tuple[Annotated[str, _one_of(*MIXINGS)], ...], *_Axis] = ("push-sum",)
    #: Of recovery: the victim of the fault.
    who: Annotated[tuple[Annotated[str, _one_of("nobody", "aggregator", or_place=True)], ...], *_Axis] = ("aggregator",)

    @model_validator(mode="after")
    def _labels_differ(self) -> Grid:
        labels = [choice.label for choice in self.overlay]
        for place, label in enumerate(labels):
            if label in labels[:place]:
                raise wrong_table([f"two overlays have the name {label!r}: give one of them another name = ..."])
        if not labels:
            raise wrong_table(["overlay: expected at least one"])
        return self


class Fleet(TomlTable):
    """``[fleet]``: the settings of all fleets."""

    timing: Literal["default", "wan", "fast"] = "fast"
    #: A fleet is given up after this many virtual seconds without progress.
    give_up_s: Annotated[float, Field(gt=0)] = 60.0


class SweptFault(TomlTable):
    """``[fault]``: of recovery, the fault of the peer that `who` names, and its round."""

    round: Annotated[int, Field(ge=0)] = 3
    do: Literal["kill", "restart"] = "kill"
    #: Of restart: how long the peer is down.
    for_s: Annotated[float, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _fits(self) -> SweptFault:
        if (self.for_s is not None) != (self.do == "restart"):
            raise wrong_table(["for_s is for do = 'restart', and needed there"])
        return self


class PlotSpec(TomlTable):
    """``[[plots]]``: one picture of two columns of the table."""

    title: str
    x: str
    y: str
    #: The column that chooses the colour.
    by: str = "overlay"
    log: Annotated[tuple[Literal["x", "y"], ...], Field(strict=False), BeforeValidator(_listed)] = ()
    #: Join the means of the points of a colour.
    lines: bool = False
    #: Only rows with these values.
    where: dict[str, str | int | float] = Field(default_factory=dict)
    #: Where x = y, and for "factor 2" also half and twice that.
    guide: Literal["equal", "factor 2"] | None = None


class Sweep(TomlTable):
    """A whole sweep file."""

    title: Annotated[str, Field(min_length=1)]
    #: The question that the sweep answers, for the report.
    question: str = ""
    measure: Literal["job", "facts", "mixing", "recovery"] = "job"
    grid: Grid
    fleet: Fleet = Fleet()
    #: Of job and recovery: as in a scenario, but for files, which other machines would not have.
    data: dict[str, Any] | None = None
    #: Of job and recovery: as a scenario's ``[[jobs]]``, but for what the grid says.
    job: dict[str, Any] | None = None
    fault: SweptFault | None = None
    #: Of mixing: the difference between peers at the end, over that at the start.
    tolerance: Annotated[float, Field(gt=0, lt=1)] | None = None
    plots: Annotated[tuple[PlotSpec, ...], Field(strict=False)] = ()

    #: The folder that files are looked for in.
    _base: Path = PrivateAttr(default=Path())

    @property
    def base(self) -> Path:
        return self._base

    @model_validator(mode="after")
    def _fits_its_measure(self) -> Sweep:
        has = MEASURES[self.measure].axes
        problems = [
            f"[grid]: {axis} is not for measure = {self.measure!r}, which has {', '.join(has)}"
            for axis in AXES
            if axis in self.grid.model_fields_set and axis not in has
        ]
        wanted = "protocol" in has
        problems += [
            f"[{key}] is {'needed' if wanted else 'not'} for measure = {self.measure!r}"
            for key, given in (("data", self.data), ("job", self.job))
            if (given is not None) != wanted
        ]
        if self.fault is not None and self.measure != "recovery":
            problems.append(f"[fault] is for measure = 'recovery', not {self.measure!r}")
        if self.tolerance is not None and self.measure != "mixing":
            problems.append(f"tolerance is for measure = 'mixing', not {self.measure!r}")
        known = columns_of(self.measure)
        for number, plot in enumerate(self.plots):
            named = {key: f"{key} = {getattr(plot, key)!r}: no such column" for key in ("x", "y", "by")}
            of_plot = [(getattr(plot, key), words) for key, words in named.items()]
            of_plot += [(key, f"where: no column {key!r}") for key in plot.where]
            for name, words in of_plot:
                if name not in known:
                    near = did_you_mean(name, known, f": expected one of {', '.join(known)}", cutoff=0.75)
                    problems.append(f"[plots.{number}]: {words}{near}")
        fields.refuse(problems)
        return self


def load_sweep(path: str | Path) -> Sweep:
    """Read a sweep file and check it; its jobs are checked by `p2pclust.lab.sweep.cells.check`.

    A refusal has one line for each of the first few errors, with the file, the table and the key.
    """
    file = Path(path)
    document = read_toml(file)
    try:
        sweep = Sweep.model_validate(document)
    except ValidationError as error:
        raise UsageError(explain(str(path), error, Sweep)) from error
    sweep._base = file.parent
    return sweep
