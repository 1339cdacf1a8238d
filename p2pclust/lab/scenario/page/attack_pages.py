"""The part of ``report.html`` that shows what a curious peer could read of a job; only if the run was attacked."""

from __future__ import annotations

from typing import Final

from p2pclust.lab.attacks.findings import AttackResult
from p2pclust.lab.plots import canvas
from p2pclust.lab.scenario.outcome.audited import AuditedJob
from p2pclust.lab.scenario.page.page import Picture, Section
from p2pclust.lab.scenario.page.story import JobStory, picture_of
from p2pclust.lab.scenario.pictures.attacks import auc_drawing, recovered_drawing

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
