"""Whether a run met the expectations of its scenario, judged by `result.json` alone, so that it can be judged again later.

A value that is missing does not meet an expectation: a run that failed before it measured something must not pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import ge, gt, le, lt
from typing import Any, Final

from p2pclust.lab.scenario.file.result_paths import is_wide, look_up, value_at
from p2pclust.lab.scenario.file.schema import ExpectSpec, ValueSpec
from p2pclust.protocols.engine.reasons import NOT_DRAWN

Result = Mapping[str, Any]
Value = float | bool | str | None

_OF_GOSSIP: Final = (
    "with collect = 'gossip' sums are right up to a tolerance, and a replay adds up exactly: leave this key out"
)


@dataclass(frozen=True)
class Expectation:
    """One expectation: what was expected, whether it held, the value, and the reason if there is no value."""

    what: str
    held: bool
    value: Value
    why: str = ""

    def to_dict(self) -> dict[str, Any]:
        plain = {"what": self.what, "held": self.held, "value": self.value}
        return plain | ({"why": self.why} if self.why else {})


def check(expect: ExpectSpec, result: Result) -> list[Expectation]:
    """Check a result, as in ``result.json``, against the keys that are set, in the order of the schema.

    With several jobs the worst one decides, but `terms_at_least` needs one job only: an election happens in the job in
    which a fault strikes. ``value`` is None if the result does not have it.

    >>> from p2pclust.lab.scenario.file.schema import ExpectSpec
    >>> check(ExpectSpec(finished_at_least=1), {"peers": {"a": {"finished": True}, "b": {"finished": False}}})
    [Expectation(what='at least 1 peers finished', held=True, value=1, why='')]
    """
    found = []
    for key, (words, measure, holds) in _RULES.items():
        wanted = getattr(expect, key)
        if wanted is not None:
            value = measure(result)
            shown = "" if wanted is True else "not " if wanted is False else f"{wanted:g}"
            # The replay of a job that gossips is not compared.
            gossips = any(job.get("tolerance") is not None for job in result.get("jobs", ()))
            why = _OF_GOSSIP if key == "replay_identical" and value is None and gossips else ""
            found.append(Expectation(words.format(shown), value is not None and holds(value, wanted), value, why))
    if expect.left_out is not None:
        found.append(_left_out(expect.left_out, result))
    return found + [_judged(spec, result) for spec in expect.values]


def _finished(result: Result) -> int | None:
    peers = result.get("peers")
    return None if peers is None else sum(bool(peer.get("finished")) for peer in peers.values())


def _lost(result: Result) -> int | None:
    finished = _finished(result)
    return None if finished is None else len(result["peers"]) - finished


def _identical(result: Result) -> bool | None:
    digests = [job.get("digests") for job in result.get("jobs", ())]
    if not digests or not all(digests):
        return None
    return all(len(set(of_job.values())) == 1 for of_job in digests)


def _over_jobs(
    worst: Callable[[list[float]], float], of_job: str | Callable[[Result], float | None]
) -> Callable[[Result], float | None]:
    """Return a measure over all jobs: None if one job lacks it, NaN (which meets nothing) if it is NaN in one job."""
    get = value_at(of_job) if isinstance(of_job, str) else of_job

    def measure(result: Result) -> float | None:
        values = [get(job) for job in result.get("jobs", ())]
        known = [value for value in values if value is not None]
        if not known or len(known) < len(values):
            return None
        return math.nan if any(math.isnan(value) for value in known) else worst(known)

    return measure


def _terms(job: Result) -> int | None:
    return len({entry["term"] for entry in job.get("terms") or ()}) or None


def _communities(job: Result) -> int | None:
    return None if job.get("communities") is None else len(job["communities"])


def _seconds(result: Result) -> float | None:
    """Return the fleet's own time: virtual if it was simulated, else by the clock."""
    virtual: float | None = result.get("virtual_seconds")
    return result.get("wall_seconds") if virtual is None else virtual


def _bytes(reduced: Callable[[Sequence[float]], float]) -> Callable[[Result], float | None]:
    """Return a measure of what devices sent and received; None unless every device that finished reported it."""

    def measure(result: Result) -> float | None:
        peers = (result.get("peers") or {}).values()
        counted = [(peer.get("bytes_sent"), peer.get("bytes_received"), peer.get("finished")) for peer in peers]
        if any((sent is None or received is None) and finished for sent, received, finished in counted):
            return None
        known = [sent + received for sent, received, _ in counted if sent is not None and received is not None]
        return reduced(known) if known else None

    return measure


def _energy(result: Result) -> float | None:
    used = [peer.get("energy_j") for peer in (result.get("peers") or {}).values()]
    return max((joules for joules in used if joules is not None), default=None)


def _left_out(wanted: Sequence[str], result: Result) -> Expectation:
    what = f"left out by name: {', '.join(wanted) or 'no peer'}"
    records = [job.get("abstained") for job in result.get("jobs", ())]
    if not any(records):
        return Expectation(what, False, None, "no job has a record of its rounds")
    named = {name for rounds in records for who in rounds or () for name, why in who.items() if why != NOT_DRAWN}
    held = named >= set(wanted) if wanted else not named
    return Expectation(what, held, ", ".join(sorted(named)) or "no peer")


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _equals(value: object, wanted: object) -> bool:
    # A truth value is not a number here: `finished` never equals 1.
    return isinstance(value, bool) == isinstance(wanted, bool) and value == wanted


_RULES: dict[str, tuple[str, Callable[[Result], float | bool | None], Callable[[float, float], bool]]] = {
    "finished_at_least": ("at least {} peers finished", _finished, ge),
    "lost_at_most": ("at most {} peers were lost", _lost, le),
    "identical_centers": ("results are {}identical on all peers that finished", _identical, _equals),
    "pooled_relative_difference_below": (
        "relative difference to the pooled algorithm is below {}", _over_jobs(max, "pooled.relative_difference"), lt,
    ),
    "gap_below": (
        "the centers' distance to what pooling finds is below {} of the features' ranges",
        _over_jobs(max, "gap.center_distance"), lt,
    ),
    "replay_identical": (
        "the in-process replay of each job's record has {}the same bits", _over_jobs(min, "replay_identical"), _equals,
    ),
    "ari_at_least": ("adjusted Rand index is at least {}", _over_jobs(min, "metrics.ari"), ge),
    "accuracy_at_least": ("accuracy is at least {}", _over_jobs(min, "metrics.accuracy"), ge),
    "communities_at_least": ("at least {} communities in each job", _over_jobs(min, _communities), ge),
    "communities_at_most": ("at most {} communities in each job", _over_jobs(max, _communities), le),
    "terms_at_least": ("at least {} terms in one job", _over_jobs(max, _terms), ge),
    "terms_at_most": (  # a job that gossips has none
        "at most {} terms in each job",
        _over_jobs(max, lambda job: None if job.get("rounds") is None else _terms(job) or 0), le,
    ),
    "rounds_at_least": ("at least {} rounds in each job", _over_jobs(min, "rounds"), ge),
    "rounds_at_most": ("at most {} rounds in each job", _over_jobs(max, "rounds"), le),
    "seconds_at_most": ("at most {} seconds in all", _seconds, le),
    "wall_seconds_at_most": ("at most {} seconds by the clock", value_at("wall_seconds"), le),
    "virtual_seconds_at_most": ("at most {} seconds of virtual time", value_at("virtual_seconds"), le),
    "bytes_per_device_at_most": ("each device sends and receives at most {} bytes", _bytes(max), le),
    "mean_bytes_per_device_at_most": ("devices send and receive at most {} bytes in the mean", _bytes(_mean), le),
    "energy_per_device_at_most": ("each device uses at most {} joules", _energy, le),
}  # fmt: skip

_HOLDS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "at_least": ("at least", ge),
    "at_most": ("at most", le),
    "above": ("above", gt),
    "below": ("below", lt),
    "equals": ("equal to", _equals),
}
_REDUCED: dict[str, Callable[[Sequence[float]], float]] = {"max": max, "min": min, "mean": _mean}


def _judged(spec: ValueSpec, result: Result) -> Expectation:
    words = " and ".join(f"{_HOLDS[name][0]} {_shown(wanted)}" for name, wanted in spec.comparisons)
    values, why = look_up(result, spec.what)
    several = len(values) > 1 or is_wide(spec.what)
    over = spec.over or ("all" if several else "")
    what = f"{over + ' of ' if over else ''}{spec.what} {'are' if over == 'all' else 'is'} {words}"
    if over == "count":  # the count of missing values is 0
        count = sum(value not in (None, False) for value in values)
        return Expectation(what, _all_hold(spec, count), count, why)
    if why:
        return Expectation(what, False, None, why)
    if over in _REDUCED:
        if strange := [value for value in values if not _is_number(value)]:
            return Expectation(what, False, None, f"{len(strange)} of {len(values)} values are not numbers")
        value = math.nan if any(math.isnan(number) for number in values) else _REDUCED[over](values)
        return Expectation(what, _all_hold(spec, value), value)
    holding = [_all_hold(spec, value) for value in values]
    if not several:
        value = values[0]
        why = "" if holding[0] else _incomparable(spec, value)
        return Expectation(what, holding[0], value if isinstance(value, bool | int | float | str) else None, why)
    held = any(holding) if over == "any" else all(holding)
    return Expectation(what, held, f"{sum(holding)} of {len(holding)}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _all_hold(spec: ValueSpec, value: Any) -> bool:
    return all(
        (name == "equals" or _is_number(value)) and _HOLDS[name][1](value, wanted) for name, wanted in spec.comparisons
    )


def _incomparable(spec: ValueSpec, value: Any) -> str:
    if value is None:
        return "this run does not have it"
    if not isinstance(value, bool | int | float | str):
        return f"there are {len(value)} values: name one, or compare all with * or over = 'count'"
    asked = [name for name, _ in spec.comparisons if name != "equals"]
    return "" if _is_number(value) or not asked else f"it is not a number: expected equals instead of {asked[0]}"


def _shown(wanted: object) -> str:
    if isinstance(wanted, bool):
        return "true" if wanted else "false"
    return f"{wanted:g}" if isinstance(wanted, int | float) else repr(wanted)
