"""Picture of what attacks on a job found: the share of rows that came back, and how well models recognise members."""

from __future__ import annotations

from collections.abc import Sequence

from p2pclust.lab.attacks.findings import AttackResult
from p2pclust.lab.plots.inline import Drawing
from p2pclust.lab.plots.palette import CURVE, GOOD, INK, LINK, WRONG


def recovered_drawing(findings: Sequence[AttackResult]) -> Drawing:
    """Draw a bar for each attack that looks for rows: the percentage of the rows that came back exactly."""
    drawn = [one for one in findings if one.recovered is not None]
    shares = [100.0 * (one.recovered or 0) / max(one.rows, 1) for one in drawn]
    drawing = _lanes(drawn, "rows that came back exactly (% of those attacked)")
    top = max([*shares, 10.0])
    for lane, (one, share) in enumerate(zip(drawn, shares, strict=True)):
        text = f"{one.recovered:,} of {one.rows:,}"
        (bar,) = drawing.axes.barh([lane], [share], 0.66, color=WRONG if one.recovered else GOOD)
        drawing.mark(bar, tip=f"{one.observer}, {one.attack}: {text} rows")
        drawing.axes.annotate(
            text, (share, lane), (4, 0), textcoords="offset points", va="center", fontsize=8, color=INK
        )
    drawing.axes.set_xlim(0, 1.25 * top)
    return drawing


def auc_drawing(findings: Sequence[AttackResult]) -> Drawing | None:
    """Draw how well models recognise rows that they were trained on; None if no attack tried."""
    drawn = [one for one in findings if one.auc is not None]
    if not drawn:
        return None
    drawing = _lanes(drawn, "area under the curve (dashed: a guess)")
    for lane, one in enumerate(drawn):
        assert one.auc is not None
        (bar,) = drawing.axes.barh([lane], [one.auc], 0.66, color=CURVE)
        drawing.mark(bar, tip=f"{one.observer}, {one.attack}: {one.auc:.3f}")
        drawing.axes.annotate(
            f"{one.auc:.2f}", (one.auc, lane), (4, 0), textcoords="offset points", va="center", fontsize=8, color=INK
        )
    drawing.axes.axvline(0.5, color=INK, linestyle="--", linewidth=1)
    drawing.axes.set_xlim(0, 1.1)
    return drawing


def _lanes(findings: Sequence[AttackResult], across: str) -> Drawing:
    drawing = Drawing.new(6.5, 0.36 * len(findings) + 0.9, "", across, sides=("bottom",))
    axes = drawing.axes
    axes.set_yticks(range(len(findings)), [f"{one.observer}: {one.attack}" for one in findings], fontsize=9)
    axes.set_ylim(len(findings) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=LINK, alpha=0.25)
    axes.set_axisbelow(True)
    return drawing
