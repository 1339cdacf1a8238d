"""The part of ``report.html`` that shows one job: its rounds, its result, and the quality of the result."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.lab.pictures import palette, shares
from p2pclust.lab.pictures.bars import Bar, value_bars
from p2pclust.lab.pictures.curves import attendance_drawing, movement_drawing, objective_drawing, rounds_of
from p2pclust.lab.pictures.scatter import Colouring, plane_of, scatter_drawings
from p2pclust.lab.pictures.timeline import LANES, lanes_of
from p2pclust.lab.scenario.outcome.lines import job_lines
from p2pclust.lab.scenario.page.page import Picture, Section, picture_of
from p2pclust.lab.scenario.page.rows import JobRows, worth_of
from p2pclust.lab.scenario.page.story import NARROW, WIDE, JobStory
from p2pclust.protocols.engine.base import Clustering
from p2pclust.protocols.engine.runner import labelling_stage

_CLASSES: Final = 40
_TABLED: Final = 200
_FEATURES: Final = 100  # the most lines of the table of centers
_FOLDED_FROM: Final = 16  # longer tables are folded
_ABSENT: Final = 4  # the most peers without a part in the result that are named


def job_sections(story: JobStory) -> list[Section]:
    communities: list[Section] = []
    if story.job.has_workspace and story.done and story.came.notes:
        # Imported here, because it is slow to import and only these jobs need it.
        from p2pclust.lab.scenario.page.community_pages import CommunityStory, sections  # noqa: PLC0415

        story = CommunityStory(story.run, story.number)
        communities = sections(story)
    made = [_rounds(story), _terms(story), *communities]
    if story.rows is not None:
        made += [_found(story, story.rows), _labels(story, story.rows), _pooled(story)]
    elif table := centers_table(story):
        made.append(Section(f"{story.prefix}What it found", "The centers, in the data's own units.", table=table))
    if story.entry["description"]:
        from p2pclust.lab.scenario.page.description_pages import description_sections  # noqa: PLC0415 - of such jobs only

        made += description_sections(story)
    made.append(_notes(story))
    return [section for section in made if section is not None]


# -- rounds -------------------------------------------------------------------------------------------------------------


def _rounds(story: JobStory) -> Section | None:
    entry = story.entry
    if not entry["stages"]:
        return None
    end = f"ended because {entry['stops']}" if entry["converged"] else "it did not converge"
    made = [_movement(story), _objective(story), _attendance(story)]
    pictures = [picture for picture in made if picture is not None]
    return Section(f"{story.prefix}How it went, round by round", f"{entry['rounds']} rounds; {end}.", pictures)


def _movement(story: JobStory) -> Picture | None:
    moved = story.entry["history"]
    if len([shift for shift in moved if shift is not None]) < 2:
        return None
    stage, protocol = labelling_stage(story.job)
    recorded = zip(story.entry["stages"], story.entry["contributors"], strict=True)
    rounds = [n for n, (name, who) in enumerate(recorded) if name == story.job.stages[stage].protocol and who]
    rounds = rounds_of(rounds, len(moved))
    what, tol = (protocol.moves, protocol.ends_below) if isinstance(protocol, Clustering) else ("centers", 0.0)
    caption = f"How far the {what} moved in each round: the Frobenius norm, in working coordinates."
    terms = story.run.run.later_terms(story.came.job_id)
    if terms:
        caption += " Orange lines: another peer became the aggregator."
    unknown = [str(number) for number, shift in zip(rounds, moved, strict=True) if shift is None]
    if unknown:
        caption += f" Not known in round {', '.join(unknown[:8])}{' and others' if len(unknown) > 8 else ''}."
    if any(shift == 0 for shift in moved):
        caption += " Triangles at the lower edge: moved by 0, which a logarithmic axis cannot show."
    drawing = movement_drawing(rounds, moved, tol, terms, what=what)
    return picture_of(drawing, f"how far the {what} moved", caption)


def _objective(story: JobStory) -> Picture | None:
    steps = list(story.evidence.trail.steps)
    protocol = labelling_stage(story.job)[1]
    other = isinstance(protocol, Clustering) and not protocol.least_squares
    if other or len(steps) < 2 or story.rows is None:
        return None
    last, centers = story.state.round, story.evidence.centers
    if centers is not None and steps[-1][0] < last:
        steps.append((last, centers))
    # The last centers belong to the contributors of the last round. Where peers hold columns, all take part.
    every, known = frozenset(story.rows.names), [] if story.job.by_columns else story.entry["contributors"]
    there = [every & frozenset(known[min(number, len(known) - 1)]) if known else every for number, _ in steps]
    changing = any(names != there[0] for names in there)
    if changing:  # without the rounds that had no contributor: the centers did not move in them
        kept = [(step, names) for step, names in zip(steps, there, strict=True) if names]
        steps, there = [step for step, _ in kept], [names for _, names in kept]
    worth = worth_of(story.job, story.state, story.rows, [those for _, those in steps], there if changing else None)
    if len(worth) < 2 or not np.isfinite(worth).all():
        return None
    drawn, whole = len(story.rows.drawn), len(story.rows.labels)
    over = f"the {whole} rows that took part" if story.absent else "all rows"
    over = f"{drawn} of {whole} rows" if drawn < whole else over
    caption = f"The objective that the algorithm minimises, over {over}, for the centers at the start of each round."
    if changing:
        caption += (
            " Not every peer contributed to every round: each point is the mean over the rows of the peers that did, so the "
            "line may rise."
        )
    name = "objective per row" if changing else "objective"
    return picture_of(objective_drawing([number for number, _ in steps], worth, name), "objective", caption)


def _attendance(story: JobStory) -> Picture | None:
    entry = story.entry
    missed = [name for name in story.run.names if any(name in of_round for of_round in entry["abstained"])]
    named = {*missed, *(name for of_round in entry["contributors"] for name in of_round)}
    there = [name for name in story.run.names if name in named]
    lanes = lanes_of(there, missed)
    if not there:
        return None
    drawn = (entry["contributors"], entry["abstained"], lanes, story.run.groups, entry["stages"])
    drawing, narrow = (attendance_drawing(*drawn, width=width) for width in (WIDE, NARROW))
    caption = "The contributors of each round."
    if any(len(who) == 1 for who in entry["contributors"]) and len(there) > 1:
        caption += " First centers come from one peer."
    if len(lanes) < len(there):
        caption += f" {len(lanes)} of {len(there)} peers are shown, those that missed a round first."
    return picture_of(drawing, "who contributed to each round", caption, narrow)


# -- terms --------------------------------------------------------------------------------------------------------------


def _terms(story: JobStory) -> Section | None:
    terms = story.terms
    if not terms or (len(terms) == 1 and terms[0].finished):
        return None
    text = (
        "A term is the time of one aggregator. When it ends without a result, the peers elect another aggregator, which "
        "continues from the last round that a majority has stored."
    )
    table = [["term", "aggregator", "from (s)", "to (s)", "rounds closed", "why it ended"]]
    for term in terms:
        times = ["-" if t is None else f"{t:.2f}" for t in (term.start, term.end)]
        table.append([term.number, term.aggregator or "none", *times, str(term.rounds), term.why])
    return Section(f"{story.prefix}Who aggregated, and why it ended", text, table=table)


# -- the result ---------------------------------------------------------------------------------------------------------


def _found(story: JobStory, rows: JobRows) -> Section:
    scaled = story.entry["parameters"].get("scaling", "none") != "none"
    plane = plane_of(rows.places, rows.features, scaled=scaled)
    centers = _whole_centers(story, rows)
    at, trails = None, None
    if centers is not None:
        at = plane(centers)
        steps = story.evidence.trail.steps
        trails = plane(np.stack([*(those for _, those in steps), centers])) if steps else None
    panels = [Colouring("clusters found", rows.labels[rows.drawn], rows.clusters, _of_clusters(rows), at, trails)]
    if rows.y is not None and len(rows.classes) <= _CLASSES:
        panels.append(Colouring("true classes", rows.kinds[rows.drawn], rows.classes, _of_classes(rows)))
    if len(rows.names) > 1 and palette.own_colours(story.run.groups):
        colours = [palette.peer_colours(story.run.groups)[peer] for peer in rows.names]
        panels.append(Colouring("whose rows they are", rows.peer[rows.drawn], rows.names, colours))
    how = {1: "by their value", 2: "as they are"}.get(rows.X.shape[1], "in their two principal axes")
    n_drawn, n_rows = len(rows.drawn), len(rows.labels)
    of = f"{n_rows}" if n_drawn == n_rows else f"{n_drawn} of {n_rows}"
    caption = f"{of} rows, {how}{', each feature in its range' if scaled and rows.X.shape[1] > 2 else ''}."
    caption += _without(story)
    if trails is not None:
        caption += " Thin lines show the path of the centers from the first ones (small dots) to the last."
    if story.job.has_workspace:
        caption += " Rows that belong to no community are grey."
    if len(panels) > 1 and panels[1].names is rows.classes:
        caption += " A cluster whose rows are mostly of one class has the strong shade of that class's light colour."
    if max(len(rows.clusters), len(rows.classes)) > len(palette.CLUSTERS):
        caption += f" There are {len(palette.CLUSTERS)} colours; with more names they repeat."
    drawings = scatter_drawings(plane(rows.places), panels, plane.titles)
    pictures = [
        picture_of(drawing, f"rows in a plane: {panel.title}", "")
        for drawing, panel in zip(drawings, panels, strict=True)
    ]
    if centers is not None and (
        shown := shares.centers_drawing(centers, rows.features, rows.clusters, rows.hues, rows.places)
    ):
        pictures.append(picture_of(shown, "the centers", "The centers that the fleet agreed on."))
    table = centers_table(story)
    few = len(table) <= _FOLDED_FROM
    return Section(
        f"{story.prefix}What it found", caption, pictures, table=table if few else (), folded_table=() if few else table,
        fold="the centers as a table, in the data's own units",
    )  # fmt: skip


def centers_table(story: JobStory) -> list[list[str]]:
    """Return the centers in the data's units, with headings: a line for each feature, a column for each cluster.

    Numbers have six digits here and all digits in the files ``centers*.csv``.
    """
    features = story.entry.get("features", next(iter(story.run.shares.values())).feature_names)
    found = story.entry["centers"]
    if found is None and story.job.by_columns and story.rows is not None:
        found, features = story.evidence.centers, story.rows.features
    if found is None or np.ndim(found) != 2 or np.shape(found)[1] != len(features):
        return []
    centers = np.asarray(found, dtype=np.float64)
    table = [["center, in the data's units", *map(str, range(len(centers)))]]
    for feature, column in list(zip(features, centers.T, strict=True))[:_FEATURES]:
        table.append([feature, *(f"{value:.6g}" for value in column)])
    if len(features) > _FEATURES:
        files = "centers-PEER.csv" if story.job.by_columns else "centers.csv"
        table.append([f"and {len(features) - _FEATURES} more features, in {files}", *[""] * len(centers)])
    return table


def _of_clusters(rows: JobRows) -> list[str]:
    return [palette.cluster_colour(hue) for hue in rows.hues]


def _of_classes(rows: JobRows) -> list[str]:
    return [palette.CLASSES[number % len(palette.CLASSES)] for number in range(len(rows.classes))]


def _whole_centers(story: JobStory, rows: JobRows) -> NDArray[np.float64] | None:
    centers = story.evidence.centers
    fits = centers is not None and centers.shape == (len(rows.clusters), rows.X.shape[1]) and np.isfinite(centers).all()
    return centers if fits else None


def _without(story: JobStory) -> str:
    """Return a sentence that names the peers whose rows are not shown, and why; empty if there are none."""
    absent = story.absent
    if not absent:
        return ""
    named = [f"{name} ({why})" if why else name for name, why in list(absent.items())[:_ABSENT]]
    if len(absent) > _ABSENT:
        named.append(f"{len(absent) - _ABSENT} more")
    n_rows = sum(story.run.shares[name].n_rows for name in absent)
    who = f"{', '.join(named[:-1])}{' and ' if named[:-1] else ''}{named[-1]}"
    why = "did not finish" if story.job.has_workspace else "had no part in the clustering"
    return f" Not shown are the {n_rows} rows of {who}, which {why}."


def _labels(story: JobStory, rows: JobRows) -> Section | None:
    pictures: list[Picture] = []
    known, kinds = rows.y is not None and len(rows.classes) <= _CLASSES, [*rows.clusters, "none"]
    if 1 < len(rows.names) <= LANES:
        caption, alt = "The rows of each peer by kind. Similar bars mean similar peers.", "what each peer holds"
        if known:
            title, colours = "the classes that each peer was dealt", _of_classes(rows)
            drawing = shares.holdings_drawing(title, rows.dealt, rows.classes, colours, rows.names)
            pictures.append(picture_of(drawing, alt, caption))
        title, colours = "the clusters of each peer's rows", _of_clusters(rows)
        drawing = shares.holdings_drawing(title, rows.held, kinds, colours, rows.names)
        pictures.append(picture_of(drawing, alt, "" if known else caption))
    if known and len(rows.clusters) <= _CLASSES:
        table = rows.confusion if rows.confusion[:, -1].any() else rows.confusion[:, :-1]
        order, kind = shares.matched(table), "community" if story.job.has_workspace else "cluster"
        columns = [kinds[number] for number in order.tolist()]
        drawing = shares.confusion_drawing(table[:, order], rows.classes, columns, row="true class", column=kind)
        caption = (
            f"The rows of each class in each {kind}. Each {kind} is in the column of the class that it matches best. "
            "A darker cell is a larger share of the class."
        )
        pictures.append(picture_of(drawing, f"{kind} against true class", caption))
    if rows.sure is not None:
        half = float(np.mean(rows.sure > 0.5))
        caption = f"A line for each cluster. {half:.0%} of the rows have a membership above one half in their cluster."
        drawing = shares.certainty_drawing(rows.sure, rows.labels[rows.drawn], rows.clusters, rows.hues)
        pictures.append(picture_of(drawing, "how sure rows are of their cluster", caption))
    return Section(f"{story.prefix}Whose rows, and how sure", _without(story).strip(), pictures) if pictures else None


def _pooled(story: JobStory) -> Section | None:
    evidence, entry, rows = story.evidence, story.entry, story.rows
    if rows is None or evidence.pooled is None or (centers := _whole_centers(story, rows)) is None:
        return None
    low, ranges = rows.places.min(axis=0), np.ptp(rows.places, axis=0)
    ranges = np.where(ranges > 0, ranges, 1.0)
    promised = entry["pooled"] is not None
    if promised:
        text = (
            "The same algorithm on all rows in one place, from the same first centers and with the same contributors in "
            f"each round, differs by at most {entry['pooled']['relative_difference']:.1e} of a feature's range"
            + (f": {entry['pooled']['why']}." if entry["pooled"]["why"] else ".")
        )
    else:
        gap = entry["gap"]
        text = (
            f"This protocol does not promise to equal pooling. {gap['to'].capitalize()}, from the same first centers and "
            f"with its own stop rule, ends {gap['center_distance']:.2g} of the features' ranges away (best matching)."
        )
    if entry["best_pooled"]:
        text += f" First centers can be bad for both: the fleet's objective is {entry['best_pooled']['words']}."
    wanted = (evidence.pooled - low) / ranges
    if not np.isfinite(wanted).all():
        return Section(f"{story.prefix}Compared with pooling all rows", text)
    found = (centers - low) / ranges
    caption = "Each dot is one coordinate of one center, in the feature's range; equal coordinates lie on the diagonal."
    pictures = [
        picture_of(
            shares.agreement_drawing(found, wanted, rows.hues), "the fleet's centers against pooled ones", caption
        )
    ]
    if promised:
        apart = shares.differences_drawing(np.abs(found - wanted), rows.features)
        caption = (
            "The largest difference of any center, for each feature. Values that are equal bit for bit are drawn at "
            '"equal", because a logarithmic axis has no 0.'
        )
        pictures.append(picture_of(apart, "largest difference for each feature", caption))
    return Section(f"{story.prefix}Compared with pooling all rows", text, pictures)


# -- figures ------------------------------------------------------------------------------------------------------------


def _notes(story: JobStory) -> Section | None:
    entry = story.entry
    jobs, peers = story.run.result["jobs"], story.run.result["peers"]
    said = [[fact.name, fact.words] for fact in job_lines(entry, story.number + 1, len(jobs), peers, _TABLED)]
    said += [["note", entry["note"]]] if entry["note"] else []
    figures = [["what", "value"], ["protocol", entry["protocol"]]]
    figures += [[key, str(value)] for key, value in entry["parameters"].items() if not isinstance(value, list | dict)]
    figures += [[f"term {term['term']}", term["aggregator"]] for term in entry["terms"]]
    if entry["objective"] is not None:
        figures.append(["objective, in squared working coordinates", f"{entry['objective']:.6g}"])
    table = [["what", "value"], *said[:_TABLED]]
    return Section(f"{story.prefix}The job in figures", table=table, folded_table=figures, fold="parameters and terms")


def attacks_section(story: JobStory) -> Section | None:
    """Return the section, or None if the job was not attacked."""
    if story.number >= len(story.run.attacked):
        return None
    audited = story.run.attacked[story.number]
    findings = audited.findings
    text = (
        "Attacks that a peer could do on what it got, done after the run and compared with the rows. A row came back "
        "exactly if each value is within a thousandth of its feature's range."
    )
    table = [["observer", "attack", "rows", "found", "devices"]]
    table += [[one.observer, one.attack, f"{one.rows:,}", one.words, audited.most(one)] for one in findings]
    sought = [
        Bar(f"{one.observer}: {one.attack}", 100.0 * one.recovered / max(one.rows, 1),
            f"{one.recovered:,} of {one.rows:,}",
            f"{one.observer}, {one.attack}: {one.recovered:,} of {one.rows:,} rows",
            palette.WRONG if one.recovered else palette.GOOD)
        for one in findings if one.recovered is not None
    ]  # fmt: skip
    scale = "rows that came back exactly (% of those attacked)"
    drawing = value_bars(sought, across=scale, most=1.25 * max([*(bar.value for bar in sought), 10.0]))
    pictures = [picture_of(drawing, "share of rows that came back, by attack", "")]
    guessed = [
        Bar(f"{one.observer}: {one.attack}", one.auc, f"{one.auc:.2f}", f"{one.observer}, {one.attack}: {one.auc:.3f}",
            palette.CURVE)
        for one in findings if one.auc is not None
    ]  # fmt: skip
    if guessed:
        drawing = value_bars(guessed, across="area under the curve (dashed: a guess)", most=1.1)
        drawing.line([(0.5, -math.inf), (0.5, math.inf)], palette.INK, 1.3, dash="5 3")
        caption = "How often a row that a model was trained on looks more familiar to it than one that was withheld."
        pictures.append(picture_of(drawing, "how well models recognise members, by attack", caption))
    return Section(f"{story.prefix}What a curious peer could read", text, pictures, table=table)
