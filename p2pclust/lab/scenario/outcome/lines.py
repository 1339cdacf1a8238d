"""The lines about a job, from ``result.json``: for the summary on the terminal and for the page of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

from p2pclust.jobs.secured import readers, too_few
from p2pclust.lab.testbed.peer.lies import LIES
from p2pclust.protocols.engine.reasons import LEFT_OUT
from p2pclust.protocols.engine.summaries import array_in_words, suspect_in_words
from p2pclust.tools.spelling import counted

_PARAMETERS_SHOWN: Final = 4
_OF_EVERY_JOB: Final = ("participation", "scaling", "missing", "init")
#: The parameter that ends a job that does not come to rest.
_LIMITS: Final = ("max_refinements", "max_iterations", "max_rounds")
_DRIFT: Final = "drift: "

Result = Mapping[str, Any]


class JobLine(NamedTuple):
    """A name and what it is; `mood` is the colour in which a terminal shows it."""

    name: str
    words: str
    mood: Literal["", "yellow", "red"] = ""


def job_lines(job: Result, number: int, n_jobs: int, peers: Result, most_exposed: int = 3) -> Iterator[JobLine]:
    """Return the lines about one entry of ``jobs`` in ``result.json``, whose number counts from 1."""
    parameters = job["parameters"]
    words = f"{parameters['n_clusters']} clusters" if "n_clusters" in parameters else ""
    if not words:  # the mode, or what else its parameters are
        named = (
            ["mode"]
            if "mode" in parameters
            else [name for name, value in parameters.items() if name not in _OF_EVERY_JOB and value != []]
        )
        words = ", ".join(f"{name} {parameters[name]}" for name in named[:_PARAMETERS_SHOWN])
    yield JobLine(f"job {number}" if n_jobs > 1 else "job", ", ".join(filter(None, [job["protocol"], words])))
    if job["failure"]:
        yield JobLine("failed", job["failure"], "red")
    yield from _course(job, peers)
    yield from _warnings(job)
    yield from _found(job)
    yield from _compared(job)
    yield from _secrecy(job, peers, most_exposed)
    if job["digests"]:
        distinct = len(set(job["digests"].values()))
        bits = "the same bits" if distinct == 1 else f"{distinct} different results"
        yield JobLine("identical", f"{len(job['digests'])} peers finished with {bits}", "" if distinct == 1 else "red")


def _course(job: Result, peers: Result) -> Iterator[JobLine]:
    if job["rounds"] is not None:
        limit = next((name for name in _LIMITS if name in job["parameters"]), "its last round")
        how = job["stops"] if job["converged"] else f"{limit} was reached"
        yield JobLine("rounds", f"{job['rounds']}" + ("" if job["failure"] else f" ({how})"))
    if job["terms"]:
        yield JobLine("terms", " · ".join(f"{term['term']}: {term['aggregator']}" for term in job["terms"]))
    if job.get("tolerance") is not None and job["ticks"]:
        words = f"every sum within {job['tolerance']:.1g} (found: {job['reached']:.1e})"
        yield JobLine("agreed", f"{words}, in {max(job['ticks'])} ticks of a round at most")
    yield JobLine("lost", ", ".join(name for name, peer in peers.items() if peer["lost"]) or "none")
    absent: dict[str, dict[str, None]] = {}
    for of_round in job["abstained"]:
        for name, reason in of_round.items():
            absent.setdefault(reason, {})[name] = None
    for reason, names in absent.items():
        if reason.startswith(LEFT_OUT):
            why = reason.removeprefix(LEFT_OUT).removeprefix(": ")
            yield JobLine("left out", f"{', '.join(names)} ({why})")
        else:
            yield JobLine("abstained", f"{', '.join(names)}: {reason}")


def _warnings(job: Result) -> Iterator[JobLine]:
    for one in job.get("suspects", ()):
        yield JobLine("suspect", suspect_in_words(one), "yellow")
    if job.get("limited"):
        most = max(job["limited"].values())
        yield JobLine("limited", f"{', '.join(job['limited'])}: max_weight was reached, in up to {most} rounds")
    for one in job.get("damaged", ()):
        seen = f"named: {one['named']}" if one["named"] else "no peer could detect it"
        since = f"from round {one['round']} on, " if one["round"] else ""
        name = "lies" if one["how"] in LIES else "damaged"
        yield JobLine(name, f"{one['peer']}: {one['how']}, {since}{seen}", "" if one["named"] else "yellow")
    if job.get("harm"):
        apart = f"{job['harm']['center_distance']:.2g} of the features' ranges"
        yield JobLine("harm", f"the centers lie {apart} from those of the sound rows (best matching)")
    for name, warning in job["warnings"].items():
        yield JobLine("warning", f"{name}: {warning}", "yellow")
    if job["suppressed"]:
        yield JobLine("suppressed", f"{job['suppressed']} times, by privacy rules")
    if job["coarse"]:
        of_all = f"{job['coarse']} of {job['parameters'].get('n_clusters', 'all')} centers"
        yield JobLine("coarse", f"{of_all}: too far from all rows for the grid of the sums, so they may be inexact")


def _found(job: Result) -> Iterator[JobLine]:
    """Return the communities of FedCRef, what a plug-in declares, the drift of a stream, and the quality of the labels."""
    if "communities" in job:
        found, alone = job["communities"], len(job["isolated"])
        words = f"{len(found)} of {sum(map(len, found))} clusters, {alone} isolated"
        yield JobLine("communities", words if found else f"none: {alone} clusters, all isolated")
    for name, values in job["declared"].items():
        yield JobLine(name, array_in_words(values))
    if job.get("description"):
        words = f"{job['description']['rows']} rows, {counted(len(job['description']['columns']), 'columns')}"
        yield JobLine("described", f"{words}, in description.csv and report.html")
    changed = [batch for batch in job["drift"] if batch["verdict"].startswith(_DRIFT)]
    if job["drift"] and not changed:
        yield JobLine("drift", f"none in {len(job['drift'])} batches")
    for batch in changed:
        verdict = batch["verdict"].removeprefix(_DRIFT)
        yield JobLine("drift", f"batch {batch['batch']} of 0 to {len(job['drift']) - 1}: {verdict}")
    metrics = job["metrics"]
    if "ari" in metrics:
        own = f", {metrics['peer_accuracy']:.3f} in the mean over peers" if "peer_accuracy" in metrics else ""
        yield JobLine("ARI", f"{metrics['ari']:.3f} (accuracy {metrics['accuracy']:.3f}{own})")
    elif metrics:
        wrong = f"{100 * metrics['wrong_links']:.1f} % of links wrong"
        yield JobLine("accuracy", f"{metrics['accuracy']:.3f} (mean over peers), {wrong}")


def _compared(job: Result) -> Iterator[JobLine]:
    """Say how near the result is to what pooling all rows would have found, and what is suspect about it."""
    if job["pooled"]:
        relative = job["pooled"]["relative_difference"]
        words = "not a number" if relative is None else f"{relative:.1e}"
        why = f": {job['pooled']['why']}" if job["pooled"]["why"] else ""
        yield JobLine("pooled", f"differs by {words} of a feature's range at most, over the same contributors{why}")
    if job["best_pooled"]:
        own = "" if job["objective"] is None else f"{job['objective']:.6g}, "
        yield JobLine("objective", own + job["best_pooled"]["words"])
    for doubt in job["doubts"]:
        yield JobLine("doubt", doubt, "yellow")
    if gap := job["gap"]:
        words = f"{gap['center_distance']:.2g} of the features' ranges from {gap['to']} (best matching)"
        yield JobLine("gap", f"the centers end {words}; no equality is promised")


def _secrecy(job: Result, peers: Result, most_exposed: int) -> Iterator[JobLine]:
    """Say who could read another peer's sums, where peers sent any."""
    exposed = job.get("exposed") or {}
    if job.get("secure"):
        but = ", except those of devices that are listed as exposed" if exposed else ""
        yield JobLine("secured", f"no single peer that follows the protocol could read another peer's sums{but}")
    elif any(peer.get("messages_sent") for peer in peers.values()):  # a peer that did not end has no figures
        took_part = {name for names in (*job["contributors"], *job["abstained"]) for name in names}
        if took_part and too_few(job["protocol"], None, len(took_part)):
            yield JobLine("secured", f"no; {readers(job['protocol'], len(took_part))}")
    for name, why in list(exposed.items())[:most_exposed]:
        yield JobLine("exposed", f"{name}: {why}")
    if len(exposed) > most_exposed:
        yield JobLine("exposed", f"and {len(exposed) - most_exposed} more devices")
