"""The part of ``report.html`` that shows what a curious peer could read of a job; only if the run was attacked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from p2pclust.lab.attacks.findings import AttackResult
from p2pclust.lab.plots import canvas
from p2pclust.lab.plots.inline import Drawing
from p2pclust.lab.plots.palette import CURVE, GOOD, INK, LINK, WRONG
from p2pclust.lab.scenario.outcome.audited import AuditedJob
from p2pclust.lab.scenario.page.page import Picture, Section
from p2pclust.lab.scenario.page.story import JobStory, picture_of

_PEERS: Final = 5  # the most peers that are named


def attacks_section(story: JobStory) -> Section | None:
    """Return the section, or None if the job was not attacked."""
    if story.number >= len(story.run.attacked):
        return None
    audited = story.run.attacked[story.number]
    text = (
        "Attacks that a peer could do on what it got, done after the run and compared with the rows. A row came back "
        "exactly if each value is within a thousandth of its feature's range."
    )
    table = [["observer", "attack", "rows", "found", "devices"]]
    table += [_line(audited, one) for one in audited.findings]
    pictures: list[Picture] = []
    if canvas.can_draw():
        pictures.append(picture_of(recovered_drawing(audited.findings), "share of rows that came back, by attack", ""))
        if (aucs := auc_drawing(audited.findings)) is not None:
            caption = (
                "How often a row that a model was trained on looks more familiar to it than one that was withheld."
            )
            pictures.append(picture_of(aucs, "how well models recognise members, by attack", caption))
    return Section(f"{story.prefix}What a curious peer could read", text, pictures, table=table)


def _line(audited: AuditedJob, one: AttackResult) -> list[str]:
    most = sorted(one.by_peer.items(), key=lambda item: -item[1])[:_PEERS]
    devices = ", ".join(f"{audited.roster[peer]} {rows}" for peer, rows in most)
    more = len(one.by_peer) - len(most)
    named = devices + (f" and {more} more" if more > 0 else "")
    return [one.observer, one.attack, f"{one.rows:,}", one.words, named]


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
