"""Bars: what a run cost each device, its bytes by kind of message and by phase of a job, and means of repetitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from p2pclust.lab.pictures.canvas import Drawing, whole_numbers, write
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
    title = f"{measure.title}{f' ({unit})' if unit else ''}"
    height = (0.26 if few else 0.9) * len(lanes) + 0.85
    drawing = Drawing.new(3.55, height, title, sides=("bottom",), grid="x")
    axes = drawing.axes
    for lane, name in enumerate(names if few else ()):
        value = measure.values.get(name)
        if value is None:
            axes.annotate(
                "lost with the peer", (0, lane), (3, 0), textcoords="offset points", va="center", fontsize=8, color=ALONE
            )  # fmt: skip
            continue
        bar = axes.barh([lane], [value / scale], 0.72, color=colours[name])
        drawing.mark(bar, kind="peer", peer=name, tip=f"{name}: {value / scale:.4g} {unit}".strip())
    rng = np.random.Generator(np.random.PCG64(0))  # the height of a dot in its cloud has no meaning
    for lane, (group, colour) in enumerate(() if few else classes.items()):
        own = [name for name in names if groups[name] == group]
        values = [value / scale for name in own if (value := measure.values.get(name)) is not None]
        if not values:
            continue
        spread = rng.uniform(-0.32, 0.32, len(values))
        cloud = axes.scatter(values, lane + spread, s=7, color=colour, alpha=0.5, linewidths=0)
        drawing.mark(cloud, tip=f"{group}: {len(values)} peers")
        middle = float(np.median(values))
        line = axes.plot([middle, middle], [lane - 0.4, lane + 0.4], color=INK, linewidth=2)
        drawing.mark(line, tip=f"half of {group} spent less than {middle:.4g} {unit}".strip())
    drawing.lanes(lanes)
    axes.set_xlim(left=0)
    axes.locator_params(axis="x", nbins=4)
    return drawing


def value_bars(
    names: Sequence[str], values: Sequence[float], texts: Sequence[str], tips: Sequence[str], colours: Sequence[str],
    *, title: str = "", across: str = "", most: float | None = None,
) -> Drawing:  # fmt: skip
    """Draw a bar for each name, from the top, with its value as a text next to it.

    With a title the picture is narrow and has no scale; with `across`, the label of the scale, it is wide. `most` is the
    right end of the scale, by default a little more than the largest value.
    """
    if title:
        drawing = Drawing.new(3.5, 0.3 * len(names) + 0.75, title, sides=("left",))
        drawing.lanes([name if len(name) <= 16 else f"…{name[-15:]}" for name in names], letters=8)
        drawing.axes.set_xticks([])
    else:
        drawing = Drawing.new(6.5, 0.36 * len(names) + 0.9, "", across, sides=("bottom",), grid="x")
        drawing.lanes(names)
    for lane, (value, text, tip, colour) in enumerate(zip(values, texts, tips, colours, strict=True)):
        bar = drawing.axes.barh([lane], [value], 0.68, color=colour)
        drawing.mark(bar, peer=names[lane] if title else "", tip=tip)
        drawing.axes.annotate(
            text, (value, lane), (4, 0), textcoords="offset points", va="center", fontsize=8, color=INK
        )
    drawing.axes.set_xlim(0, most or 1.25 * max(values, default=1.0) or 1.0)
    return drawing


def kinds_drawing(kinds: Mapping[str, int]) -> Drawing:
    """Draw bytes by kind of message, the largest first; the smallest ones are one part."""
    ordered = sorted(kinds.items(), key=lambda item: (-item[1], item[0]))
    total = sum(kinds.values()) or 1
    shown = [(kind, n_bytes) for kind, n_bytes in ordered[:9] if n_bytes / total >= 0.005]
    if rest := total - sum(n_bytes for _, n_bytes in shown):
        shown.append(("all others", rest))
    drawing = Drawing.new(6.5, 1.5)
    axes = drawing.axes
    left = 0.0
    for number, (kind, n_bytes) in enumerate(shown):
        share = n_bytes / total
        colour = ALONE if kind == "all others" else SHADES[number]
        label = f"{kind} {share:.0%}" if share >= 0.005 else f"{kind} below 1%"
        bar = axes.barh([0], [share], 0.8, left=[left], color=colour, edgecolor=PAPER, linewidth=0.8, label=label)
        drawing.mark(bar, tip=f"{kind}: {n_bytes / 1000:.4g} kB, {share:.1%}")
        if share > 0.018 * len(label):
            write(axes, left + share / 2, 0, label, 9, ink_on(colour))
        left += share
    axes.set(xlim=(0, 1), ylim=(-0.45, 0.45))
    axes.axis("off")
    drawing.legend(columns=4)
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
    drawing = Drawing.new(6.5, 3.4, title, by, f"{unit}, all peers", grid="y")
    axes = drawing.axes
    below = np.zeros(len(steps))
    for number, (phase, label) in enumerate(_PHASES.items()):
        sizes = np.array([sum(c.model_bytes for c in costs if (c.step, c.phase) == (step, phase)) for step in steps])
        if sizes.any():
            text = f"{label}: {size(int(sizes.sum()))}"
            axes.bar(range(len(steps)), sizes / scale, 0.7, bottom=below, color=SHADES[3 * number], label=text)
            below += sizes / scale
    axes.set_xticks(range(len(steps)), steps)
    if len(steps) > 25:
        whole_numbers(axes, most=25)
    if below.any():
        axes.set_ylim(0, 1.12 * below.max())
    if total:
        axes.legend(fontsize=9, frameon=False)
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
