"""``report.html`` of a run: its result, the fleet and its faults, every job, and the cost.

The page is made from the run's result and events and from the rows that the scenario dealt out.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Final

from p2pclust.lab.pictures.bars import CostFigure, cost_drawing, kinds_drawing
from p2pclust.lab.pictures.overlay import roles_drawing
from p2pclust.lab.pictures.palette import own_colours, share_classes
from p2pclust.lab.pictures.timeline import LANES, lanes_of, timeline_drawing
from p2pclust.lab.run.state import RunState
from p2pclust.lab.scenario.outcome.compare import shown
from p2pclust.lab.scenario.page.job_pages import attacks_section, job_sections
from p2pclust.lab.scenario.page.page import Page, Section, Tile, Verdict, picture_of, write_page
from p2pclust.lab.scenario.page.story import NARROW, WIDE, JobStory, RunStory
from p2pclust.overlay import Overlay
from p2pclust.tools.spelling import counted
from p2pclust.tools.units import size

_ABOUT: Final = (
    "This page shows one run of a scenario, with everything that the testbed knows: it has the rows of all peers, so it "
    "can show them. A real fleet cannot produce this page, because no row leaves its device. Point at an element "
    "to see its description; point at a peer to highlight it in all pictures."
)
_DRAWN: Final = 300  # the most peers of an overlay that is drawn
_EVENTS: Final = 400  # the most lines of the table of events


def write_run_page(out: Path, story: RunStory) -> None:
    """Write ``report.html`` into the output directory of a run."""
    result = story.result
    title = result["title"] or result["scenario"]
    seconds = f"{result['wall_seconds']:.1f} s"
    if result["virtual_seconds"] is not None:
        seconds = f"{result['virtual_seconds']:.1f} s of virtual time in {seconds}"
    strangers = f" and {counted(len(story.strangers), 'strangers')}" if story.strangers else ""
    peers = f"{counted(len(story.shares) - len(story.strangers), 'peers')}{strangers}"
    facts = f"{peers}, {result['backend']}, seed {result['seed']}, {seconds}"
    failed = sum(not item["held"] for item in result["expectations"])
    alarm = f"{failed} of {len(result['expectations'])} expectations did not hold" if failed else ""
    if result["failure"]:
        alarm = f"The fleet could not finish: {result['failure']}"
    write_page(out / "report.html", Page(title, facts, _sections(story), _ABOUT, _tiles(story), alarm))


def _tiles(story: RunStory) -> list[Tile]:
    result = story.result
    members = [peer for name, peer in result["peers"].items() if name not in story.strangers]
    finished = sum(bool(peer["finished"]) for peer in members)
    held = [item["held"] for item in result["expectations"]]
    tiles = [Tile(f"{finished} of {len(members)}", "peers finished", "" if finished else "bad")]
    if story.strangers:
        out = sum(not result["peers"][name]["finished"] for name in story.strangers)
        all_out = out == len(story.strangers)
        tiles.append(Tile(f"{out} of {len(story.strangers)}", "strangers kept out", "good" if all_out else "bad"))
    if held:
        tiles.append(Tile(f"{sum(held)} of {len(held)}", "expectations held", "good" if all(held) else "bad"))
    for number, job in enumerate(result["jobs"], start=1):
        of = f", job {number}" if len(result["jobs"]) > 1 else ""
        if job["rounds"] is not None:
            tiles.append(Tile(f"{job['rounds']}", f"rounds{of}"))
        for name, words in (("ari", "adjusted Rand index"), ("accuracy", "accuracy")):
            if job["metrics"].get(name) is not None:
                tiles.append(Tile(f"{job['metrics'][name]:.3f}", words + of))
                break
        if job["pooled"] and job["pooled"]["relative_difference"] is not None:
            apart = job["pooled"]["relative_difference"]
            why = f": {job['pooled']['why']}" if job["pooled"]["why"] else ""
            tiles.append(Tile(f"{apart:.0e}", f"from the pooled result{of}{why}", "good" if apart < 1e-9 else ""))
        elif job["gap"]:
            tiles.append(Tile(f"{job['gap']['center_distance']:.2g}", f"gap to the pooled result{of}"))
    terms = sum(len(job["terms"]) for job in result["jobs"])
    if terms > len(result["jobs"]):
        tiles.append(Tile(f"{terms}", "terms"))
    sent = [peer.get("bytes_sent") for peer in result["peers"].values()]
    if any(sent):
        label = "sent by the peers that reported it" if None in sent else "sent"
        tiles.append(Tile(size(sum(value or 0 for value in sent)), label))
    return tiles


def _sections(story: RunStory) -> list[Section]:
    made = [_fleet(story)]
    verdicts = []
    for item in story.result["expectations"]:
        found = str(item.get("why") or "unknown") if item["value"] is None else shown(item["value"])
        verdicts.append(Verdict(bool(item["held"]), item["what"], found))
    made.append(Section("What was expected", verdicts=verdicts, half=True) if verdicts else None)
    made.append(_timeline(story))
    for number in range(len(story.jobs)):
        made += [*job_sections(JobStory(story, number)), attacks_section(JobStory(story, number))]
    made.append(_cost(story))
    if rows := [(one["file"], one["device"] or "dealt out", str(one["rows"])) for one in story.result["left_out"]]:
        text = (
            "These rows have a missing value, and the scenario says to leave such rows out. They are not counted "
            "anywhere."
        )
        made.append(Section("Rows left out", text, table=[("file", "device", "rows left out"), *rows]))
    lines = story.run.lines
    log = [["seconds", "peer", "what"]]
    log += [[f"{line.t:.3f}", line.peer, line.text] for line in itertools.islice(lines, _EVENTS)]
    if len(lines) > _EVENTS:
        log.append(["", "", f"and {len(lines) - _EVENTS} more, in events.jsonl"])
    fold = f"{min(len(lines), _EVENTS)} events of {len(story.events)}"
    made.append(Section("The log, shortened", folded_table=log, fold=fold))
    return [section for section in made if section is not None]


# -- the fleet ----------------------------------------------------------------------------------------------------------


def _fleet(story: RunStory) -> Section | None:
    if not story.linked:
        return None
    failed = _failed(story)
    if len(story.shares) > _DRAWN:
        many = f"{len(story.shares)} peers are too many to draw: the limit is {_DRAWN}."
        return Section("The fleet", f"{many} {failed}")
    names = tuple(name for name in story.names if name not in story.strangers)
    overlay = story.overlay
    if overlay is None:
        overlay = Overlay(names, tuple(itertools.combinations(names, 2)), kind="full")
    load: Counter[tuple[str, str]] = Counter()
    for (a, b), traffic in story.found.links.items():
        load[(a, b) if a < b else (b, a)] += traffic.total_bytes
    tips = {}
    for name, share in story.shares.items():
        peer = story.result["peers"][name]
        what = "lost" if peer["lost"] else "finished" if peer["finished"] else "did not finish"
        if name in story.strangers and not peer["finished"]:
            what = "a stranger that could not join"
        sent = f", sent {size(peer['bytes_sent'])}" if peer.get("bytes_sent") else ""
        tips[name] = f"{name} ({story.groups[name]}): {share.n_rows} rows, {what}{sent}"
    drawing = roles_drawing(overlay, story.groups, story.run, load=load, tips=tips)
    changing = _changing(story.run)
    caption = f"{overlay.kind}: {overlay.n_peers} peers, {overlay.n_links} links at the start. "
    caption += f"Move the slider to see {changing} at one moment. " if changing else ""
    if own_colours(story.groups):
        caption += "Each peer has one colour, the same in all pictures of this page"
        caption += ", and the shape of its device class." if share_classes(story.groups) else "."
    else:
        caption += "Peers have the colour of their device class in all pictures of this page."
    end = story.run.t if changing else 0.0
    label = "the overlay with roles and failures"
    picture = replace(picture_of(drawing, label, caption), width=max(drawing.width, 560), moment=end)
    return Section("The fleet", failed, [picture], half=drawing.width <= 640)


def _changing(run: RunState) -> str:
    terms = [term for term in run.terms if not term.within]
    away = any(peer.away for peer in run.peers.values())
    parts = ["who aggregated"] if len(terms) > 1 or (terms and away) else []
    parts += ["who was away"] if away else []
    parts += [] if all(map(run.steady, run.linked.values())) else ["which links there were"]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _failed(story: RunStory) -> str:
    strikes = story.run.strikes
    struck = ", ".join(f"{strike.text} ({strike.t:.2f} s)" for strike in strikes[:8])
    more = f", and {len(strikes) - 8} more" if len(strikes) > 8 else ""
    text = f"Faults: {struck}{more}. " if strikes else ""
    out = [name for name in sorted(story.strangers) if not story.result["peers"][name]["finished"]]
    if out:
        text += f"{', '.join(out)} {'is' if len(out) == 1 else 'are'} not on the fleet roster and could not join"
        for peer, t in list(story.run.refusals.items())[:1]:
            others = len(story.run.refusals) - 1
            text += f": refused by {peer} ({t:.2f} s)" + (f" and {counted(others, 'others')}" if others else "")
        text += "."
    return text.strip()


def _timeline(story: RunStory) -> Section | None:
    run = story.run
    if not story.linked or run.t <= 0:
        return None
    eventful = [*(strike.peer for strike in run.strikes), *(term.peer for term in run.terms)]
    lanes = lanes_of(story.names, eventful)
    drawing, narrow = (timeline_drawing(run, lanes, story.groups, width) for width in (WIDE, NARROW))
    clock = "virtual seconds" if story.result["virtual_seconds"] is not None else "seconds"
    caption = (
        f"A lane for each peer, over the {clock} of the run; above the lanes a mark for each round that was closed."
    )
    if len(lanes) < len(story.names):
        caption += f" {len(lanes)} of {len(story.names)} peers are shown, those with events first."
    if any(term.within for term in run.terms):
        caption += " Thin bars show the aggregators of communities while the communities' models are trained."
    return Section("What happened when", pictures=[picture_of(drawing, "time line of all peers", caption, narrow)])


# -- what it cost -------------------------------------------------------------------------------------------------------

_MEASURES: Final = (
    ("bytes sent", "B", "bytes_sent"), ("bytes received", "B", "bytes_received"),
    ("messages sent", "", "messages_sent"),
    ("energy", "J", "energy_j"), ("memory", "MB", "max_rss_mb"),
)  # fmt: skip


def _cost(story: RunStory) -> Section | None:
    peers = story.result["peers"]
    known = [
        CostFigure(title, unit, {name: peers[name].get(key) for name in story.names})
        for title, unit, key in _MEASURES
        if any(peer.get(key) for peer in peers.values())
    ]
    if not known:
        return None
    few = len(story.names) <= LANES
    text = "A bar for each peer." if few else "A dot for each peer; the line marks the median."
    pictures = [picture_of(cost_drawing(m, story.names, story.groups), f"{m.title} by peer", "") for m in known]
    kinds: Counter[str] = Counter()
    for traffic in story.found.links.values():
        kinds.update(traffic.n_bytes)
    if kinds:
        caption = f"The {size(sum(kinds.values()))} on all links, by kind of message."
        pictures.append(picture_of(kinds_drawing(kinds), "bytes by kind of message", caption))
    table = [["peer", "class", *(f"{m.title}{f' ({m.unit})' if m.unit else ''}" for m in known)]]
    for name in story.names[:_EVENTS]:
        table.append([name, story.groups[name], *(_number(measure.values[name]) for measure in known)])
    return Section("What it cost each device", text, pictures, folded_table=table, fold="the same as a table")


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.6g}"
