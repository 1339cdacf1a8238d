"""A cell: one run of a sweep, described completely by plain values, and named by a digest of them.

Its result follows from its description: a run on another machine or day has the same.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Hashable, Iterable
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from p2pclust import __version__
from p2pclust.data.registry import is_file
from p2pclust.errors import UsageError
from p2pclust.jobs.explain import explain
from p2pclust.lab.data.shares import peer_names
from p2pclust.lab.scenario.file.load import load_data, make_job
from p2pclust.lab.scenario.file.schema import Scenario
from p2pclust.lab.sweep.columns import AXES, MEASURES
from p2pclust.lab.sweep.spec import Sweep, SweptFault
from p2pclust.overlay.overlay import Overlay, make_overlay
from p2pclust.protocols.engine import random_streams

#: Increase it when the results of a measure change, so that results of an earlier edition are not reused.
_EDITION = 1


@dataclass(frozen=True)
class Cell:
    """One run."""

    measure: str
    overlay: str  # its name in the sweep; the digest does not depend on it
    kind: str
    #: Of the kind, as canonical JSON; of an overlay from a file its peers and links, because other machines lack the file.
    options: str
    peers: int
    seed: int
    axes: tuple[tuple[str, Any], ...]  # names and values of the measure's other axes
    settings: str  # that all cells of the sweep share, as canonical JSON

    @cached_property
    def digest(self) -> str:
        known = [__version__, _EDITION, self.measure, self.kind, self.options, self.peers, self.seed]
        text = _canonical([*known, self.axes, self.settings])
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    @property
    def identity(self) -> dict[str, Any]:
        """The columns that identify the cell, in the order of the table."""
        known = {"overlay": self.overlay, "kind": self.kind, "peers": self.peers, "seed": self.seed, **dict(self.axes)}
        return {name: known[name] for name in AXES if name in known}

    def axis(self, name: str) -> Any:
        return dict(self.axes)[name]

    @cached_property
    def fixed(self) -> Any:
        return json.loads(self.settings)

    def make_overlay(self) -> Overlay:
        """Return its overlay: that of a scenario with this seed and number of peers."""
        options = json.loads(self.options)
        if self.kind == "file":
            return Overlay(tuple(options["names"]), tuple((a, b) for a, b in options["links"]), kind="file")
        return make_overlay(self.kind, peer_names(self.peers), random_streams.linking(self.seed), **options)

    def encode(self) -> str:
        return _canonical(astuple(self))

    @classmethod
    def decode(cls, text: str) -> Cell:
        measure, overlay, kind, options, peers, seed, axes, settings = json.loads(text)
        return cls(measure, overlay, kind, options, peers, seed, tuple((name, value) for name, value in axes), settings)

    def __str__(self) -> str:
        numbers = [f"{self.peers} peers", *(_worded(name, value) for name, value in self.axes), f"seed {self.seed}"]
        return f"{self.overlay}, {', '.join(filter(None, numbers))}"


def cells_of(sweep: Sweep) -> tuple[Cell, ...]:
    """Return all cells of a sweep: the last axes change fastest, the seed fastest of all."""
    grid, own = sweep.grid, [axis for axis in MEASURES[sweep.measure].axes if axis not in ("overlay", "peers", "seed")]
    shared: dict[str, Any] = {"fleet": sweep.fleet.model_dump()}
    if sweep.data is not None:
        shared |= {"data": sweep.data, "job": sweep.job}
    if sweep.measure == "recovery":
        shared["fault"] = (sweep.fault or SweptFault()).model_dump()
    settings = _canonical({"tolerance": sweep.tolerance or 1e-6} if sweep.measure == "mixing" else shared)
    found = []
    for choice in grid.overlay:
        options, sizes = _canonical(choice.options), grid.peers
        if choice.kind == "file":
            path = str(sweep.base / choice.options["path"])
            overlay = make_overlay("file", (), random_streams.linking(0), path=path)
            options, sizes = _canonical({"names": overlay.names, "links": overlay.links}), (overlay.n_peers,)
        for peers, *values, seed in itertools.product(sizes, *(getattr(grid, axis) for axis in own), grid.seed):
            axes = tuple(zip(own, values, strict=True))
            found.append(Cell(sweep.measure, choice.label, choice.kind, options, peers, seed, axes, settings))
    return tuple(found)


def check(sweep: Sweep, where: str) -> tuple[Cell, ...]:
    """Return the cells of a sweep, after all checks that are possible before a run; `where` begins each refusal."""
    try:
        cells = cells_of(sweep)
        for cell in _first_of_each(cells, lambda cell: (cell.kind, cell.options, cell.peers)):
            cell.make_overlay()
    except UsageError as error:
        raise UsageError(f"{where}: [grid]: {error}") from error
    if sweep.data is not None:
        if "files" in sweep.data or is_file(str(sweep.data.get("source", ""))):
            raise UsageError(
                f"{where}: [data]: expected source = the name of a registered or generated data set: other machines of a "
                "sweep lack your files (p2pclust data list)"
            )
        for cell in _first_of_each(cells, lambda cell: (cell.axis("protocol"), cell.axis("collect"), cell.peers)):
            try:
                scenario = scenario_of(cell)
                make_job(scenario, 0, next(iter(load_data(scenario).values())).n_features)
            except ValidationError as error:
                # A sweep has one [job], and devices of its own making.
                raise UsageError(explain(where, error, Scenario).replace("[jobs.0]", "[job]")) from error
            except UsageError as error:
                raise type(error)(f"{where}: {str(error).replace('[jobs.0]', '[job]')}") from error
    return cells


def scenario_of(cell: Cell) -> Scenario:
    """Return the scenario that a job's cell runs, but for the overlay, which is the cell's own."""
    fixed, link = cell.fixed, {"latency_ms": cell.axis("latency_ms"), "loss": cell.axis("loss")}
    names = cell.make_overlay().names if cell.kind == "file" else peer_names(cell.peers)
    collect = {} if cell.axis("collect") == "default" else {"collect": cell.axis("collect")}
    return Scenario.model_validate(
        {
            "title": str(cell),
            "seed": cell.seed,
            "data": fixed["data"],
            "fleet": {**fixed["fleet"], "devices": [{"name": name, "link": link} for name in names]},
            "jobs": [{"protocol": cell.axis("protocol"), **collect, **fixed["job"]}],
        }
    )


def _first_of_each(cells: tuple[Cell, ...], key: Callable[[Cell], Hashable]) -> Iterable[Cell]:
    found: dict[Hashable, Cell] = {}
    for cell in cells:
        found.setdefault(key(cell), cell)
    return found.values()


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _worded(name: str, value: Any) -> str:
    if (name, value) in (("loss", 0.0), ("latency_ms", 1.0), ("aggregator", "elected"), ("collect", "default")):
        return ""
    if name == "who":
        return f"without {value}" if value != "nobody" else "no peer dies"
    shown = {"loss": "loss {}", "latency_ms": "{} ms", "aggregator": "led by {}"}
    return shown.get(name, "{}").format(value)
