"""What can be read off the state of a job, finished or not: nothing here changes one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from p2pclust.clustering.blocks import in_block
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.reasons import HELD, IMPLAUSIBLE, LEFT_OUT

_Peer = TypeVar("_Peer", int, str)
_IN_FULL: Final = 12  # numbers of an array


def raw_centers(state: JobState) -> NDArray[np.float64]:
    """Return the centers in the data's own units, shape (C, F)."""
    arrays = state.arrays
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(arrays["origin"] + arrays["centers"] * arrays["scale"], dtype=np.float64)


def declared(job: Job, state: JobState) -> dict[str, NDArray[Any]]:
    """Return the arrays of a result that its protocol declares, of a plug-in without centers; else none."""
    names = job.protocols[job.main].own_arrays if "centers" not in state.arrays else ()
    return {name: np.array(state.arrays[name]) for name in names if name in state.arrays}


def array_in_words(values: ArrayLike) -> str:
    """Return the numbers of an array in a line, or its shape and range if there are many.

    >>> print(array_in_words([[1.0, 2.5], [3.0, 4.0]]), "|", array_in_words(np.arange(60.0).reshape(20, 3)))
    1, 2.5, 3, 4 of shape 2 x 2 | 0 to 59 of shape 20 x 3
    """
    found = np.asarray(values)
    shape = f" of shape {' x '.join(map(str, found.shape))}" if found.ndim > 1 or found.size > _IN_FULL else ""
    if found.size <= _IN_FULL or found.dtype.kind not in "iuf":
        return f"{', '.join(f'{value:.6g}' for value in found.ravel()[:_IN_FULL].tolist())}{shape}"
    return f"{np.min(found):.6g} to {np.max(found):.6g}{shape}"


def widths(state: JobState, levels: Sequence[int] = ()) -> tuple[NDArray[np.float64], str]:
    """Return a width of each column of the centers in the data's own units, and what it is; `levels` are those of the job.

    Of the ranges that its peers found, a state has no more than that. The share of a value is between 0 and 1.
    """
    scale = np.array(state.arrays["scale"], dtype=np.float64)
    unit = np.array(state.arrays.get("unit", np.ones(scale.size)), dtype=np.float64)
    if levels:
        scale[in_block(levels)] = unit[in_block(levels)] = 1.0
    if "moments" in state.arrays:
        return scale, "standard deviation"
    if (scale == 1.0).all() and (unit != 1.0).any():
        return unit, "range, rounded up to a power of two"
    return scale, "range"


def shifts(state: JobState) -> list[float | None]:
    """Return what the stop rule looked at in each round that made a step; None where the aggregator did not know it."""
    found = state.arrays["shifts"].tolist() if "shifts" in state.arrays else []
    return [shift if shift >= 0 else None for shift in found]


def suppressed(state: JobState) -> int:
    """Count what privacy rules kept back over all rounds: singletons sent as zeros, and peers held by the gate."""
    held = sum(1 for record in state.log for reason in record.abstained.values() if reason.startswith(HELD))
    return held + (int(state.arrays["suppressed"]) if "suppressed" in state.arrays else 0)


def coarse(state: JobState) -> int:
    """Count the centers that were too far from all rows, in the last round, for the grid to hold their weights well."""
    return int(state.arrays["coarse"]) if "coarse" in state.arrays else 0


def suspects_of_log(state: JobState, roster: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Return the peers that sent what no rows can have led to, which the log of a job names the same at every device.

    Each has ``peer`` (its place in the job roster, if no roster is given), ``round`` (the first one, of all stages),
    ``rounds`` (in how many), ``reason``, and ``found_by``: here "all". A suspect is not expelled: it may have a defect, and
    its next contribution counts if nothing is wrong with it.
    """
    found: dict[tuple[int, str], dict[str, Any]] = {}
    for number, record in enumerate(state.log):
        for peer, reason in record.abstained.items():
            if reason.startswith(IMPLAUSIBLE):
                why, name = reason.removeprefix(IMPLAUSIBLE), peer if roster is None else roster[peer]
                first = {"peer": name, "round": number, "rounds": 0, "reason": why, "found_by": "all"}
                found.setdefault((peer, why), first)["rounds"] += 1
    return list(found.values())


def suspect_in_words(suspect: Mapping[str, Any]) -> str:
    """Return one line for people.

    >>> suspect_in_words({"peer": "a", "round": 3, "rounds": 2, "reason": "a negative weight", "found_by": "all"})
    'a, in 2 rounds from 3 on: a negative weight'
    """
    by = "" if suspect["found_by"] == "all" else f", as {', '.join(suspect['found_by'])} found"
    several = suspect["rounds"] > 1
    when = f"in {suspect['rounds']} rounds from {suspect['round']} on" if several else f"in round {suspect['round']}"
    return f"{suspect['peer']}, {when}: {suspect['reason']}{by}"


def by_reason(abstained: Mapping[_Peer, str]) -> dict[str, list[_Peer]]:
    """Return for each reason the peers that gave it, in order of first appearance.

    >>> by_reason({"a": "no data", "b": "left out", "c": "no data"})
    {'no data': ['a', 'c'], 'left out': ['b']}
    """
    found: dict[str, list[_Peer]] = {}
    for peer, why in abstained.items():
        found.setdefault(why, []).append(peer)
    return found


def absences(abstained: Mapping[str, str]) -> list[str]:
    """Return for each reason in words which peers abstained, or that the others went on without them.

    >>> absences({"a": "no data", "b": "left out: dead", "c": "no data"})
    ['a, c abstained: no data', 'b left out (dead)']
    """
    found = []
    for reason, names in by_reason(abstained).items():
        left_out = reason.startswith(LEFT_OUT)
        why = f"left out ({reason.removeprefix(f'{LEFT_OUT}: ')})" if left_out else f"abstained: {reason}"
        found.append(f"{', '.join(names)} {why}")
    return found


def with_names(text: str, roster: Sequence[str]) -> str:
    """Replace ``peer 1`` by the name of the roster's second peer: the engine knows peers by number only.

    >>> with_names("no peer can contribute (peer 1: no data)", ("a", "b"))
    'no peer can contribute (b: no data)'
    """
    return re.sub(r"\bpeer (\d+)\b", lambda m: roster[int(m[1])] if int(m[1]) < len(roster) else m[0], text)


def with_columns(text: str, features: Sequence[str]) -> str:
    """Say what a column is called where a reason has its number, from 0: protocols know columns by number only.

    >>> with_columns("row 3, column 1 is nan", ("watt", "volt"))
    'row 3, column 1 (volt) is nan'
    """
    names = dict(enumerate(features))
    return re.sub(
        r"\brow \d+, column (\d+)\b", lambda m: f"{m[0]} ({names[int(m[1])]})" if int(m[1]) in names else m[0], text
    )
