"""The files in a run's output directory: `result.json`, `centers.csv`, `labels.csv`, `model.msgpack`, `events.jsonl`.

Every file is written under a temporary name and then renamed, so that a reader never sees a partial file.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from numpy.typing import NDArray

from p2pclust.data import DataSet
from p2pclust.errors import PluginError, UsageError
from p2pclust.hosts.submission import FinishedJob
from p2pclust.jobs.request import JobResult
from p2pclust.lab.scenario.outcome.communities import labels_of_peers
from p2pclust.protocols.engine.job import Job
from p2pclust.protocols.engine.runner import one_thread
from p2pclust.protocols.measuring.describe import Describe
from p2pclust.protocols.measuring.description import Description
from p2pclust.tools.files import replacing
from p2pclust.tools.json_values import plain

_LEFT: Final = (
    "result.json", "audit.json", "events.jsonl", "report.html", "centers*.csv", "labels*.csv", "model*.msgpack",
    "description*.csv",
)  # fmt: skip
_NUMBERS: Final = 200_000_000  # with more values than this, labelling would take too long


def default_directory(name: str, now: datetime) -> Path:
    """Return a directory that does not exist yet, in the current one.

    >>> default_directory("quickstart", datetime(2026, 3, 4, 5, 6, 7)).as_posix()
    'runs/quickstart-20260304-050607'
    """
    stem = Path("runs") / f"{name}-{now:%Y%m%d-%H%M%S}"
    directory, number = stem, 2
    while directory.exists():
        directory = stem.with_name(f"{stem.name}-{number}")
        number += 1
    return directory


def left_by_a_run(directory: Path) -> list[Path]:
    """Return the files of an earlier run in a directory, sorted by name; empty if the directory does not exist."""
    return sorted(file for pattern in _LEFT for file in directory.glob(pattern) if file.is_file())


def prepare(directory: Path) -> None:
    """Make the output directory before anything starts, so that a run does not fail when it writes its result."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / ".probe.tmp"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UsageError(
            f"output directory {directory}: cannot be written ({error.strerror}): choose another with --out"
        ) from None


@contextmanager
def event_log(path: Path) -> Iterator[Callable[[Mapping[str, Any]], object]]:
    """Yield the function that adds an event to a file, one JSON object per line.

    Each is written as it happens; the file gets its name when the run ends or fails.
    """
    beside = path.with_name(f".{path.name}.tmp")
    try:
        with beside.open("w", encoding="utf-8") as file:
            yield lambda event: file.write(json.dumps(plain(event), allow_nan=False) + "\n")
    finally:
        beside.replace(path)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write plain values, such as those of ``result.json``."""
    write_text(path, json.dumps(plain(value), indent=1, allow_nan=False) + "\n")


def write_centers(directory: Path, feature_names: Sequence[str], jobs: Sequence[Mapping[str, Any]]) -> None:
    """Write the centers of each job: ``centers.csv``, then ``centers-2.csv`` and so on.

    The header has the names of the features; one row per center, in the data's units, with all digits. Of a job in
    which peers hold columns there are those that each peer exports: ``centers-PEER.csv``, ``centers-2-PEER.csv``.
    """
    for number, job in enumerate(jobs, start=1):
        files = {"": (job.get("features", feature_names), job["centers"])} if job["centers"] is not None else {}
        files |= {f"-{name}": (own["features"], own["centers"]) for name, own in job.get("own_centers", {}).items()}
        for ending, (names, centers) in files.items():
            rows = [[repr(float(value)) for value in center] for center in centers]
            write_table(directory / f"{_numbered('centers', number)}{ending}.csv", [names, *rows])


def write_descriptions(
    directory: Path, jobs: Sequence[Job], found: Sequence[JobResult], feature_names: Sequence[str]
) -> None:
    """Write what each job `describe` found: ``description.csv``, ``description-2.csv``, ..."""
    for number, (job, came) in enumerate(zip(jobs, found, strict=False), start=1):
        if came.state is not None and came.state.status == "done" and isinstance(job.protocols[job.main], Describe):
            table = Description.of(job, came.state, feature_names).long_table()
            write_table(directory / f"{_numbered('description', number)}.csv", table)


def write_models(
    directory: Path, jobs: Sequence[Job], found: Sequence[JobResult], feature_names: Sequence[str]
) -> None:
    """Write the job and the last state of each job that labels other rows: ``model.msgpack``, ``model-2.msgpack``, ..."""
    for number, (job, came) in enumerate(zip(jobs, found, strict=False), start=1):
        if came.state is None or came.state.status != "done" or job.by_columns or job.has_workspace:
            continue
        if isinstance(job.protocols[job.main], Describe):  # it labels no row
            continue
        content = FinishedJob(came.job_id, {"features": list(feature_names)}, job, came.state).to_bytes()
        with replacing(directory / f"{_numbered('model', number)}.msgpack") as file:
            file.write(content)


def _numbered(stem: str, number: int) -> str:
    return stem if number == 1 else f"{stem}-{number}"


def write_table(path: Path, rows: Iterable[Iterable[object]]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    write_text(path, text.getvalue())


def write_text(path: Path, text: str) -> None:
    """Write a file under a temporary name, and rename it."""
    with replacing(path) as file:
        file.write(text.encode())


def write_labels(
    directory: Path, jobs: Sequence[Job], found: Sequence[JobResult], shares: Mapping[str, DataSet]
) -> None:
    """Write the labels of the devices that finished: ``labels.csv``, for a second job ``labels-2.csv``, and so on.

    The columns are ``device``, ``file`` if several files were read as one, ``row`` (its id if the data have ids, else its
    number in its file, from 0, counting rows that were left out), ``label``, and ``class`` if it is known. Where devices
    hold columns, a row is the same one on all of them.
    """
    if sum(share.X.size for share in shares.values()) > _NUMBERS:
        return
    for number, (job, came) in enumerate(zip(jobs, found, strict=False), start=1):
        if came.state is None or came.state.status != "done":
            continue
        labels: Mapping[str, NDArray[Any]] = {}
        with one_thread(), suppress(PluginError):  # which the result names, see Done.attempt
            labels = labels_of_peers(job, came, shares)
        if labels:
            held = {name: shares[name] for name in labels}
            write_table(directory / f"{_numbered('labels', number)}.csv", _table(held, labels, job.by_columns))


def _table(
    held: Mapping[str, DataSet], labels: Mapping[str, NDArray[Any]], by_columns: bool
) -> Iterator[list[object]]:  # fmt: skip
    with_class = any(share.y is not None for share in held.values())
    with_file = any(share.file is not None for share in held.values())
    yield ["device", *(["file"] * with_file), "row", "label", *(["class"] * with_class)]
    for name, share in held.items():
        files = share.file.tolist() if share.file is not None else [""] * share.n_rows
        classes = share.y.tolist() if share.y is not None else [""] * share.n_rows
        rows = zip(files, share.row_names.tolist(), labels[name].tolist(), classes, strict=True)
        for file, row, label, kind in rows:
            yield ["all" if by_columns else name, *([file] * with_file), row, label, *([kind] * with_class)]
