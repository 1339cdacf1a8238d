"""Bars: what a run cost each device, its bytes by kind of message and by phase of a job, and means of repetitions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from p2pclust.lab.pictures.drawing import Axis, Drawing
from p2pclust.lab.pictures.palette import ALONE, INK, PAPER, SHADES, device_colours, ink_on, peer_colours
from p2pclust.lab.pictures.timeline import LANES
from p2pclust.tools.units import scaled, size

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class CostFigure:
    """One number of each peer, None if unknown; ``B`` and ``J`` are shown in a unit that suits the values."""

    title: str
    unit: str
    values: Mapping[str, float | None]


def cost_drawing(measure: CostFigure, names: Sequence[str], groups: Mapping[str, str]) -> Drawing:
    """Draw one measure of each device: a bar for each peer; of many peers a cloud of dots for each class, and its median.

    `groups` has the device class of every peer of the run.
    """
    few, classes, colours = len(names) <= LANES, device_colours(groups), peer_colours(groups)
    lanes = list(names if few else classes)
    largest = max((value for value in measure.values.values() if value is not None), default=0.0)
    scale, unit = scaled(largest, measure.unit)
    height = round((25 if few else 86) * len(lanes) + 60)
    across = Axis(ends=(0.0, math.nan), most=4, grid=True)
    drawing = Drawing(340, height, f"{measure.title}{f' ({unit})' if unit else ''}", across)
    drawing.lanes(lanes)
    for lane, name in enumerate(names if few else ()):
        value = measure.values.get(name)
        if value is None:
            drawing.text((0, lane), "lost with the peer", colour=ALONE, ha="left", dx=4)
            continue
        tip = f"{name}: {value / scale:.4g} {unit}".strip()
        drawing.boxes((0, lane - 0.36, value / scale, 0.72), colours[name], peer=name, tip=tip)
    rng = np.random.Generator(np.random.PCG64(0))  # the height of a dot in its cloud has no meaning
    for lane, (group, colour) in enumerate(() if few else classes.items()):
        own = [name for name in names if groups[name] == group]
        values = [value / scale for name in own if (value := measure.values.get(name)) is not None]
        if not values:
            continue
        spread = rng.uniform(-0.32, 0.32, len(values))
        cloud = np.stack([values, lane + spread], axis=1)
        drawing.dots(cloud, colour, 3.5, alpha=0.5, tip=f"{group}: {len(values)} peers")
        middle = float(np.median(values))
        tip = f"half of {group} spent less than {middle:.4g} {unit}".strip()
        drawing.line([(middle, lane - 0.4), (middle, lane + 0.4)], INK, 2.7, tip=tip)
    return drawing


class Bar(NamedTuple):
    """One bar: the text is next to it, the tip is shown when the reader points at it."""

    name: str
    value: float
    text: str
    tip: str
    colour: str


def value_bars(bars: Sequence[Bar], *, title: str = "", across: str = "", most: float | None = None) -> Drawing:
    """Draw bars from the top, with their values as texts.

    With a title the picture is narrow and has no scale; with `across`, the label of the scale, it is wide. `most` is the
    right end of the scale, by default a little more than the largest value.
    """
    ends = (0.0, most or 1.35 * max((bar.value for bar in bars), default=1.0) or 1.0)
    if title:
        drawing = Drawing(336, 29 * len(bars) + 36, title, Axis.hidden(*ends))
        drawing.lanes([bar.name if len(bar.name) <= 16 else f"…{bar.name[-15:]}" for bar in bars], 10.5)
    else:
        drawing = Drawing(624, 35 * len(bars) + 60, "", Axis(across, ends, grid=True))
        drawing.lanes([bar.name for bar in bars])
    for lane, bar in enumerate(bars):
        drawing.boxes((0, lane - 0.34, bar.value, 0.68), bar.colour, peer=bar.name if title else "", tip=bar.tip)
        drawing.text((bar.value, lane), bar.text, ha="left", dx=5)
    return drawing


def kinds_drawing(kinds: Mapping[str, int]) -> Drawing:
    """Draw bytes by kind of message, the largest first; the smallest ones are one part."""
    ordered = sorted(kinds.items(), key=lambda item: (-item[1], item[0]))
    total = sum(kinds.values()) or 1
    shown = [(kind, n_bytes) for kind, n_bytes in ordered[:9] if n_bytes / total >= 0.005]
    if rest := total - sum(n_bytes for _, n_bytes in shown):
        shown.append(("all others", rest))
    drawing = Drawing(624, 70, "", Axis.hidden(0, 1), Axis.hidden(-0.45, 0.45))
    left = 0.0
    for number, (kind, n_bytes) in enumerate(shown):
        share = n_bytes / total
        colour = ALONE if kind == "all others" else SHADES[number]
        label = f"{kind} {share:.0%}" if share >= 0.005 else f"{kind} below 1%"
        tip = f"{kind}: {n_bytes / 1000:.4g} kB, {share:.1%}"
        drawing.boxes((left, -0.4, share, 0.8), colour, edge=PAPER, tip=tip)
        drawing.key(label, colour)
        if share > 0.013 * len(label):
            drawing.text((left + share / 2, 0), label, 12, ink_on(colour))
        left += share
    return drawing


@dataclass(frozen=True)
class Cost:
    """The bytes of models that all peers sent in one round of a job; `step` is the label below the round's bar."""

    phase: str
    step: str
    model_bytes: int


_PHASES: Final[Mapping[str, str]] = {
    "verdicts": "clusters' models, to every peer",
    "train": "FedAvg within the communities",
    "refine": "communities' models, to every peer",
}


def bytes_drawing(costs: Sequence[Cost], n_peers: int, measured: int = 0, by: str = "iteration") -> Drawing:
    """Draw how many bytes of models each phase sent in each step; `by` is the name of a step.

    Phases that send no models are left out. `measured` are all bytes sent according to the peers' counters, 0 if there are
    none.
    """
    total = sum(cost.model_bytes for cost in costs)
    title = f"models: {size(total)}, {size(total // max(1, n_peers))} a peer"
    title += f"; all that the peers sent: {size(measured)}" if measured else ""
    steps = list(dict.fromkeys(cost.step for cost in costs if cost.phase in _PHASES))
    largest = max((sum(cost.model_bytes for cost in costs if cost.step == step) for step in steps), default=0)
    scale, unit = scaled(largest, "bytes")
    named = [(place, step) for place, step in enumerate(steps) if place % (1 + len(steps) // 25) == 0]
    drawing = Drawing(
        624, 326, title, Axis(by, (-0.6, len(steps) - 0.4), named),
        Axis(f"{unit}, all peers", (0.0, 1.12 * largest / scale or 1.0), grid=True),
    )  # fmt: skip
    below = np.zeros(len(steps))
    for number, (phase, label) in enumerate(_PHASES.items()):
        sizes = np.array([sum(c.model_bytes for c in costs if (c.step, c.phase) == (step, phase)) for step in steps])
        if sizes.any():
            boxes = [(place - 0.35, below[place], 0.7, part / scale) for place, part in enumerate(sizes)]
            drawing.boxes(boxes, SHADES[3 * number])
            drawing.key(f"{label}: {size(int(sizes.sum()))}", SHADES[3 * number])
            below += sizes / scale
    return drawing


def mean_bars(axes: Axes, groups: Sequence[str], series: Mapping[str, Mapping[int, tuple[float, float]]]) -> None:
    """Draw bars side by side at each group: by series, the mean and the standard deviation of the groups that have one."""
    width = 0.8 / len(series)
    for number, (name, known) in enumerate(series.items()):
        places = [group + (number - (len(series) - 1) / 2) * width for group in known]
        means, spreads = [mean for mean, _ in known.values()], [spread for _, spread in known.values()]
        axes.bar(places, means, width, label=name)
        axes.errorbar(places, means, spreads, fmt="none", ecolor="black", elinewidth=0.8)  # NaN is not drawn
    axes.set_xticks(range(len(groups)), list(groups))
