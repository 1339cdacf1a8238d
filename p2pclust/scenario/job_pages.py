"""The part of ``report.html`` that shows one job: how it went round by round, what it found, and how good that is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.scenario.job_story import LANES, JobStory, picture_of
from p2pclust.scenario.page import Picture, Section
from p2pclust.scenario.pictures import canvas
from p2pclust.scenario.pictures.scatter import Colouring, plane_of, scatter_drawing
from p2pclust.scenario.pictures.shares import (
    agreement_drawing,
    centers_drawing,
    certainty_drawing,
    confusion_drawing,
    holdings_drawing,
    matched,
)  # fmt: skip
from p2pclust.scenario.round_pages import rounds_section
from p2pclust.scenario.rows import JobRows

__all__ = ["job_sections"]

_PEERS_COLOURED: Final = 15
_CLASSES: Final = 40
_TABLED: Final = 200
_ABSENT: Final = 4  # peers without a share in the result that are named


def job_sections(story: JobStory, name: str) -> list[Section]:
    """Return the sections of a job; `name` tells jobs of one run apart, if there are several."""
    drawn = canvas.can_draw()
    made = [rounds_section(story, name)] if drawn else []
    if drawn and story.job.at_desk and story.done and story.found is not None and story.found.notes:
        # Heavy, and only such jobs need it.
        from p2pclust.scenario.community_pages import Story, sections  # noqa: PLC0415

        hues = [] if story.rows is None else story.rows.hues
        made += sections(Story(story.job, story.found, story.shares, story.events, story.sent, hues), name)
    if drawn and story.rows is not None:
        made += [_clusters(story, story.rows, name), _labels(story, story.rows, name), _pooled(story, name)]
    made.append(_notes(story, name))
    return [section for section in made if section is not None]


# -- what it found ------------------------------------------------------------------------------------------------------


def _clusters(story: JobStory, rows: JobRows, name: str) -> Section:
    scaled = story.entry["parameters"].get("scaling", "none") != "none"
    plane = plane_of(rows.X, rows.features, scaled=scaled)
    centers = _whole_centers(story, rows)
    at, trails = None, None
    if centers is not None:
        at = plane(centers)
        trails = (
            plane(np.stack([*(those for _, those in story.evidence.trail), centers])) if story.evidence.trail else None
        )
    panels = [Colouring("clusters found", rows.labels[rows.drawn], rows.clusters, rows.hues, at, trails)]
    if rows.y is not None and len(rows.classes) <= _CLASSES:
        panels.append(Colouring("true classes", rows.kinds[rows.drawn], rows.classes))
    if 1 < len(rows.names) <= _PEERS_COLOURED:
        panels.append(Colouring("whose rows they are", rows.peer[rows.drawn], rows.names))
    how = {1: "by their value", 2: "as they are"}.get(rows.X.shape[1], "in their two principal axes")
    caption = f"{_of(rows)} rows, {how}{', each feature in its range' if scaled and rows.X.shape[1] > 2 else ''}."
    caption += _without(story)
    if trails is not None:
        caption += " Thin lines: the way the centers took from the first ones (small dots) to the last."
    if story.job.at_desk:
        caption += " Rows of no community are grey."
    drawing = scatter_drawing(plane(rows.X), panels, plane.titles)
    pictures = [picture_of(drawing, "rows in a plane, by cluster, class and peer", caption)]
    shown = None if centers is None else centers_drawing(centers, rows.features, rows.clusters, rows.hues, rows.X)
    if shown is not None:
        pictures.append(picture_of(shown, "the centers", "The centers that the fleet agreed on."))
    return Section(f"{name}What it found", pictures=pictures)


def _whole_centers(story: JobStory, rows: JobRows) -> NDArray[np.float64] | None:
    centers = story.evidence.centers
    fits = centers is not None and centers.shape == (len(rows.clusters), rows.X.shape[1]) and np.isfinite(centers).all()
    return centers if fits else None


def _of(rows: JobRows) -> str:
    drawn, whole = len(rows.drawn), len(rows.labels)
    return f"{whole}" if drawn == whole else f"{drawn} of {whole}"


def _without(story: JobStory) -> str:
    """Say whose rows are not among those that are shown, and why."""
    absent = story.absent
    if not absent:
        return ""
    told = [f"{name} ({why})" if why else name for name, why in list(absent.items())[:_ABSENT]]
    if len(absent) > _ABSENT:
        told.append(f"{len(absent) - _ABSENT} more")
    n_rows = sum(story.shares[name].n_rows for name in absent)
    who = f"{', '.join(told[:-1])}{' and ' if told[:-1] else ''}{told[-1]}"
    why = "did not finish" if story.job.at_desk else "had no part in the clustering"
    return f" Not shown are the {n_rows} rows of {who}, which {why}."


def _labels(story: JobStory, rows: JobRows, name: str) -> Section | None:
    """Who holds what, how that fits the true classes, and how sure it is."""
    made = [_holdings(rows), _confusion(story, rows), _certainty(rows)]
    pictures = [picture for picture in made if picture is not None]
    return Section(f"{name}Whose rows, and how sure", _without(story).strip(), pictures) if pictures else None


def _holdings(rows: JobRows) -> Picture | None:
    if not 1 < len(rows.names) <= LANES:
        return None
    tables: dict[str, tuple[NDArray[np.int64], Sequence[str], Sequence[int]]] = {}
    if rows.y is not None and len(rows.classes) <= _CLASSES:
        tables["the classes that each peer was dealt"] = (rows.dealt, rows.classes, range(len(rows.classes)))
    tables["the clusters of each peer's rows"] = (rows.held, [*rows.clusters, "none"], rows.hues)
    caption = "What each peer's rows are: the more alike the bars, the more alike the peers."
    return picture_of(holdings_drawing(tables, rows.names), "what each peer holds", caption)


def _confusion(story: JobStory, rows: JobRows) -> Picture | None:
    if rows.y is None or len(rows.classes) > _CLASSES or len(rows.clusters) > _CLASSES:
        return None
    table, called = rows.confusion, [*rows.clusters, "none"]
    if not table[:, -1].any():
        table = table[:, :-1]
    order = matched(table)
    kind = "community" if story.job.at_desk else "cluster"
    drawing = confusion_drawing(
        table[:, order], rows.classes, [called[n] for n in order.tolist()], row="true class", column=kind
    )
    caption = (
        f"How many rows of each class came into each {kind}, each {kind} below the class that it fits best. "
        "The fuller the colour, the larger the share of the class."
    )
    return picture_of(drawing, f"{kind} against true class", caption)


def _certainty(rows: JobRows) -> Picture | None:
    if rows.sure is None:
        return None
    half = float(np.mean(rows.sure > 0.5))
    caption = f"A line for each cluster. {half:.0%} of the rows belong to their cluster by more than half."
    drawing = certainty_drawing(rows.sure, rows.labels[rows.drawn], rows.clusters, rows.hues)
    return picture_of(drawing, "how sure rows are of their cluster", caption)


def _pooled(story: JobStory, name: str) -> Section | None:
    evidence, entry, rows = story.evidence, story.entry, story.rows
    if rows is None or evidence.pooled is None or (centers := _whole_centers(story, rows)) is None:
        return None
    low, ranges = rows.X.min(axis=0), np.ptp(rows.X, axis=0)
    ranges = np.where(ranges > 0, ranges, 1.0)
    promised = entry["pooled"] is not None
    if promised:
        text = (
            "The same algorithm on all rows in one place, from the same first centers and round by round over the same "
            f"contributors, differs by {entry['pooled']['relative_difference']:.1e} of a feature's range at most."
        )
        if entry["suppressed"]:
            text += f" Privacy rules kept something back {entry['suppressed']} times, which pooling has no need of."
    else:
        gap = entry["gap"]
        text = (
            f"This protocol promises no equality. {gap['to'].capitalize()}, from the same first centers and until it stops "
            f"by itself, ends {gap['center_distance']:.2g} of the features' ranges away (best matching)."
        )
    if entry["best_pooled"]:
        text += f" A start can be bad for both: the fleet's objective is {entry['best_pooled']['words']}."
    wanted = (evidence.pooled - low) / ranges
    if not np.isfinite(wanted).all():
        return Section(f"{name}Compared with pooling all rows", text)
    drawing = agreement_drawing((centers - low) / ranges, wanted, rows.features, rows.hues, promised=promised)
    caption = "Each dot is one coordinate of one center, in the feature's range; equal ones lie on the diagonal."
    picture = picture_of(drawing, "the fleet's centers against pooled ones", caption)
    return Section(f"{name}Compared with pooling all rows", text, [picture])


# -- everything else ----------------------------------------------------------------------------------------------------


def _notes(story: JobStory, name: str) -> Section | None:
    """What has no picture: parameters, terms, warnings, what privacy rules kept back."""
    entry = story.entry
    facts = [["what", "value"], ["protocol", entry["protocol"]]]
    facts += [[key, str(value)] for key, value in entry["parameters"].items() if not isinstance(value, list | dict)]
    facts += [[f"term {term['term']}", term["aggregator"]] for term in entry["terms"]]
    told = [["failure", entry["failure"]]] if entry["failure"] else []
    told += [["doubt", doubt] for doubt in entry["doubts"]]
    if entry["objective"] is not None:
        facts.append(["objective, in squared working coordinates", f"{entry['objective']:.6g}"])
    if entry["suppressed"]:
        told.append(["suppressed by privacy rules", str(entry["suppressed"])])
    if entry["coarse"]:
        told.append(["centers too far from all rows for the grid of the sums", str(entry["coarse"])])
    told += [[f"warning for {peer}", warning] for peer, warning in entry["warnings"].items()]
    told += [[f"batch {batch['batch']}", batch["verdict"]] for batch in entry["drift"]]
    if entry["note"]:
        told.append(["note", entry["note"]])
    table = [["what", "value"], *told[:_TABLED]] if told else []
    return Section(f"{name}The job in figures", table=table, folded_table=facts, fold="parameters and terms")
