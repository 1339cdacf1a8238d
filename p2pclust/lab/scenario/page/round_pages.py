"""The part of ``report.html`` that shows the rounds of a job: how far the centers moved, and which peers contributed."""

from __future__ import annotations

import numpy as np

from p2pclust.lab.pictures.curves import attendance_drawing, movement_drawing, objective_drawing, rounds_of
from p2pclust.lab.pictures.timeline import lanes_of
from p2pclust.lab.scenario.page.page import Picture, Section
from p2pclust.lab.scenario.page.rows import worth_of
from p2pclust.lab.scenario.page.story import NARROW, WIDE, JobStory, picture_of
from p2pclust.protocols.engine.base import Clustering
from p2pclust.protocols.engine.runner import labelling_stage


def rounds_section(story: JobStory) -> Section | None:
    """Return the section, or None if no round was closed."""
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
    what = protocol.moves if isinstance(protocol, Clustering) else "centers"
    tol = float(getattr(protocol, "tol", 0.0) or 0.0)
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
    if len(steps) < 2 or story.rows is None:
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
