"""The comparison of runs by their `result.json`: settings, results and costs, and where they differ.

Runs of different days, machines and versions can be compared: values that a result does not have are left empty.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from p2pclust.errors import UsageError
from p2pclust.lab.scenario.file.result_paths import value_at
from p2pclust.tools.files import regular
from p2pclust.tools.units import scaled

Value = str | float | bool | None
Result = Mapping[str, Any]

_SAME: Final = 1e-12  # relative difference below which two numbers are equal
#: Numbers of these lines up to here say the same: a summary has them as rounding, and as "the same as the best".
_ROUNDING: Final = {"from the pooled result": 1e-9, "above the best of ten pooled starts": 5e-5}


@dataclass(frozen=True)
class ComparedFigure:
    """One value of all runs."""

    part: str  # what the value belongs to: the run, a job, the cost, or the expectations
    what: str
    values: tuple[Value, ...]  # one for each run; None if a result does not have it
    unit: str = ""  # ``B`` for bytes, ``s``, ``J``, ``MB``, or nothing

    @property
    def differs(self) -> bool:
        least = _ROUNDING.get(self.what, 0.0)
        if least and all(isinstance(value, int | float) and abs(value) <= least for value in self.values):
            return False
        return any(not _same(self.values[0], value) for value in self.values[1:])

    @property
    def numbers(self) -> list[float]:
        return [value for value in self.values if isinstance(value, int | float) and not isinstance(value, bool)]

    @property
    def measured(self) -> bool:
        """Whether it is a measure of several runs, and not what was asked for or expected."""
        asked = self.part == "expected" or self.part.endswith("as asked for") or self.what == "seed"
        return not asked and len(self.numbers) > 1

    @property
    def ratio(self) -> float | None:
        """The largest number divided by the smallest, if all are positive; otherwise None."""
        if len(self.numbers) < len(self.values) or min(self.numbers) <= 0:
            return None
        return max(self.numbers) / min(self.numbers)

    def to_dict(self) -> dict[str, Any]:
        plain = {"part": self.part, "what": self.what, "values": list(self.values), "unit": self.unit}
        return plain | {"differs": self.differs, "ratio": self.ratio}


def read_runs(paths: Sequence[Path]) -> dict[str, Result]:
    """Read two or more results, by name: output directories of ``p2pclust run``, or their ``result.json``."""
    if len(paths) < 2:
        raise UsageError(f"{len(paths)} result: expected two or more")
    files = [path / "result.json" if path.is_dir() else path for path in paths]
    return dict(zip(_names(files), map(_read, files, paths), strict=True))


def _read(file: Path, given: Path) -> Result:
    try:
        result = json.loads(regular(file).read_text(encoding="utf-8"))
    except FileNotFoundError:
        missing = "has no result.json" if given.is_dir() else "no such file or folder"
        raise UsageError(f"{given}: {missing}: expected an output directory of p2pclust run") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UsageError(f"{file}: cannot be read as JSON ({error}): expected the result.json of a run") from None
    sound = isinstance(result, dict) and isinstance(result.get("jobs"), list) and isinstance(result.get("peers"), dict)
    if not sound or not all(isinstance(part, dict) for part in (*result["jobs"], *result["peers"].values())):
        raise UsageError(f"{file}: is not the result of a run: it has no jobs and peers")
    return dict(result)


def _names(files: Sequence[Path]) -> list[str]:
    """Return names for runs: the shortest ends of their folders' paths that differ, else numbered names.

    >>> _names([Path("/x/one/result.json"), Path("/x/two/result.json")])
    ['one', 'two']
    >>> _names([Path("/a/out/result.json"), Path("/b/out/result.json")])
    ['a/out', 'b/out']
    >>> _names([Path("/a/result.json"), Path("/a/result.json")])
    ['a (1)', 'a (2)']
    """
    folders = [file.resolve().parent.parts if file.name == "result.json" else file.resolve().parts for file in files]
    for depth in range(1, max(map(len, folders)) + 1):
        names = ["/".join(parts[-depth:]) for parts in folders]
        if len(dict.fromkeys(names)) == len(names):
            return names
    return [f"{''.join(parts[-1:])} ({number})" for number, parts in enumerate(folders, start=1)]


def compare(results: Sequence[Result]) -> list[ComparedFigure]:
    """Compare runs, in the order of a report; lines without any value are left out.

    >>> runs = [{"jobs": [], "peers": {}, "seed": seed, "backend": "simulated"} for seed in (1, 2)]
    >>> [(line.what, line.values, line.differs) for line in compare(runs)][:2]
    [('backend', ('simulated', 'simulated'), False), ('seed', (1, 2), True)]
    """
    lines = _lines("run", results, _OF_RUN)
    n_jobs = max(len(result["jobs"]) for result in results)
    for number in range(n_jobs):
        part = "job" if n_jobs == 1 else f"job {number + 1}"
        entries = [result["jobs"][number] if number < len(result["jobs"]) else {} for result in results]
        asked = [_dict(entry, "parameters") for entry in entries]
        keys = dict.fromkeys(key for parameters in asked for key in parameters)
        lines += _lines(f"{part}, as asked for", asked, [(key, key, "") for key in keys])
        lines += _lines(part, entries, _OF_JOB)
    lines += _lines("cost", results, _OF_COST)
    judged = [[item for item in one.get("expectations") or [] if isinstance(item, dict)] for one in results]
    verdicts = [{item["what"]: bool(item["held"]) for item in items if "held" in item} for items in judged]
    for what in dict.fromkeys(what for held in verdicts for what in held):  # of any run: they may differ
        lines.append(ComparedFigure("expected", what, tuple(held.get(what) for held in verdicts)))
    return [line for line in lines if any(value not in (None, "") for value in line.values)]


def _lines(part: str, of: Sequence[Result], measures: Sequence[_Measure]) -> list[ComparedFigure]:
    found = []
    for what, where, unit in measures:
        get = value_at(where) if isinstance(where, str) else where
        found.append(ComparedFigure(part, what, tuple(_plain(get(one)) for one in of), unit))
    return found


def _dict(entry: Result, key: str) -> Mapping[str, Any]:
    found = entry.get(key)
    return found if isinstance(found, dict) else {}


def _plain(value: Any) -> Value:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return json.dumps(value)


def _same(one: Value, other: Value) -> bool:
    if isinstance(one, bool) or isinstance(other, bool) or not isinstance(one, int | float):
        return one is other or (type(one) is type(other) and one == other)
    return isinstance(other, int | float) and math.isclose(one, other, rel_tol=_SAME)


def _over_peers(reduced: Callable[[list[float]], float], key: str) -> Callable[[Result], float | None]:
    return lambda result: reduced(values) if (values := of_peers(result, key)) else None


def of_peers(result: Result, key: str) -> list[float]:
    """Return the values of the peers that have one."""
    values = [peer.get(key) for peer in result["peers"].values()]
    return [value for value in values if isinstance(value, int | float)]


def _finished(result: Result) -> str:
    return f"{sum(bool(peer.get('finished')) for peer in result['peers'].values())} of {len(result['peers'])}"


def _identical(entry: Result) -> bool | None:
    digests = _dict(entry, "digests")
    return len(set(digests.values())) == 1 if digests else None


def mark(line: ComparedFigure) -> str:
    """Return how much values differ: the ratio of numbers, else "yes"; empty if they are equal.

    >>> mark(ComparedFigure("cost", "bytes", (100, 250))), mark(ComparedFigure("job", "a", ("x", "y")))
    ('× 2.5', 'yes')
    """
    if not line.differs:
        return ""
    # The ratio of seeds has no meaning.
    return "yes" if line.ratio is None or line.what == "seed" else f"× {line.ratio:.3g}"


def shown(value: Value, unit: str = "") -> str:
    """Return a value for people.

    >>> shown(1234567, "B"), shown(True), shown(None), shown(0.591566), shown(2.0, "s")
    ('1.2 MB', 'yes', '-', '0.592', '2 s')
    """
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if unit == "B":
        scale, unit = scaled(value, unit)
        return f"{value / scale:.1f} {unit}" if scale > 1 else f"{value} B"
    text = f"{value:,}" if isinstance(value, int) else f"{value:.3g}"
    return f"{text} {unit}".strip()


#: A name, what it is in a result or an entry of a job (a path, or a function), and its unit.
_Measure = tuple[str, str | Callable[[Result], Any], str]
_OF_RUN: Final[tuple[_Measure, ...]] = (
    ("scenario", "scenario", ""), ("backend", "backend", ""), ("seed", "seed", ""), ("peers finished", _finished, ""),
    ("virtual time", "virtual_seconds", "s"), ("time", "wall_seconds", "s"), ("failure", "failure", ""),
)  # fmt: skip
_OF_JOB: Final[tuple[_Measure, ...]] = (
    ("protocol", "protocol", ""), ("rounds", "rounds", ""), ("converged", "converged", ""),
    ("terms", lambda e: len(e["terms"]) if "terms" in e else None, ""), ("job's time", "seconds", "s"),
    ("adjusted Rand index", "metrics.ari", ""), ("accuracy", "metrics.accuracy", ""),
    ("wrong links", "metrics.wrong_links", ""),
    ("communities", lambda e: len(e["communities"]) if "communities" in e else None, ""),
    ("from the pooled result", "pooled.relative_difference", ""), ("why it differs", "pooled.why", ""),
    ("objective", "objective", ""), ("above the best of ten pooled starts", "best_pooled.excess", ""),
    ("gap to the pooled result", "gap.center_distance", ""), ("same bits at all", _identical, ""),
    ("suppressed", "suppressed", ""), ("failure", "failure", ""),
)  # fmt: skip
_OF_COST: Final[tuple[_Measure, ...]] = (
    ("messages sent", _over_peers(sum, "messages_sent"), ""), ("bytes sent", _over_peers(sum, "bytes_sent"), "B"),
    ("bytes sent by the busiest", _over_peers(max, "bytes_sent"), "B"), ("energy", _over_peers(sum, "energy_j"), "J"),
    ("energy of the hungriest", _over_peers(max, "energy_j"), "J"),
    ("memory of the largest", _over_peers(max, "max_rss_mb"), "MB"),
)  # fmt: skip
