"""The part of ``report.html`` that shows what a curious peer could read of a job; only if the run was attacked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from p2pclust.lab.attacks.findings import AttackResult
from p2pclust.lab.pictures import canvas
from p2pclust.lab.pictures.bars import value_bars
from p2pclust.lab.pictures.canvas import Drawing
from p2pclust.lab.pictures.palette import CURVE, GOOD, INK, WRONG
from p2pclust.lab.scenario.outcome.evidence import AuditedJob
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
        pictures.append(picture_of(_recovered(audited.findings), "share of rows that came back, by attack", ""))
        if any(one.auc is not None for one in audited.findings):
            caption = (
                "How often a row that a model was trained on looks more familiar to it than one that was withheld."
            )
            alt = "how well models recognise members, by attack"
            pictures.append(picture_of(_recognised(audited.findings), alt, caption))
    return Section(f"{story.prefix}What a curious peer could read", text, pictures, table=table)


def _line(audited: AuditedJob, one: AttackResult) -> list[str]:
    most = sorted(one.by_peer.items(), key=lambda item: -item[1])[:_PEERS]
    devices = ", ".join(f"{audited.roster[peer]} {rows}" for peer, rows in most)
    more = len(one.by_peer) - len(most)
    named = devices + (f" and {more} more" if more > 0 else "")
    return [one.observer, one.attack, f"{one.rows:,}", one.words, named]


def _recovered(findings: Sequence[AttackResult]) -> Drawing:
    """Draw a bar for each attack that looks for rows: the percentage of the rows that came back exactly."""
    drawn = [(one, one.recovered) for one in findings if one.recovered is not None]
    shares = [100.0 * recovered / max(one.rows, 1) for one, recovered in drawn]
    texts = [f"{recovered:,} of {one.rows:,}" for one, recovered in drawn]
    return value_bars(
        [f"{one.observer}: {one.attack}" for one, _ in drawn], shares, texts,
        [f"{one.observer}, {one.attack}: {text} rows" for (one, _), text in zip(drawn, texts, strict=True)],
        [WRONG if recovered else GOOD for _, recovered in drawn],
        across="rows that came back exactly (% of those attacked)", most=1.25 * max([*shares, 10.0]),
    )  # fmt: skip


def _recognised(findings: Sequence[AttackResult]) -> Drawing:
    """Draw how well models recognise rows that they were trained on."""
    drawn = [(one, one.auc) for one in findings if one.auc is not None]
    drawing = value_bars(
        [f"{one.observer}: {one.attack}" for one, _ in drawn], [auc for _, auc in drawn],
        [f"{auc:.2f}" for _, auc in drawn], [f"{one.observer}, {one.attack}: {auc:.3f}" for one, auc in drawn],
        [CURVE] * len(drawn), across="area under the curve (dashed: a guess)", most=1.1,
    )  # fmt: skip
    drawing.axes.axvline(0.5, color=INK, linestyle="--", linewidth=1)
    return drawing
