"""The labels that a run ends with, as a table: only a testbed has those of all devices."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.data import DataSet
from p2pclust.fleet.spec import JobResult
from p2pclust.protocols import engine
from p2pclust.protocols.job import Job
from p2pclust.protocols.local import Local
from p2pclust.protocols.runner import one_thread
from p2pclust.scenario.communities import labels_of_peers
from p2pclust.scenario.report import write_text

__all__ = ["write_labels"]

_NUMBERS: Final = 200_000_000  # values of all rows, beyond which nobody waits for labels that may not be wanted


def write_labels(
    directory: Path, jobs: Sequence[Job], found: Sequence[JobResult], shares: Mapping[str, DataSet]
) -> None:
    """Write what the devices that finished call their rows: ``labels.csv``, of a second job ``labels-2.csv``, and so on.

    Parameters
    ----------
    directory : Path
    jobs, found : sequence
        Each job, and what came of it.
    shares : mapping of str to DataSet
        Every device's rows, or columns, by name.

    Notes
    -----
    The columns are ``device``, ``row`` (its id where the data have one, else its place among the device's rows, from 0),
    ``label``, and ``class`` where the true one is known. Where devices hold columns, a row is everybody's.
    """
    for stale in directory.glob("labels*.csv"):
        stale.unlink()  # of an earlier run into the same directory
    if sum(share.X.size for share in shares.values()) > _NUMBERS:
        return
    for number, (job, came) in enumerate(zip(jobs, found, strict=False), start=1):
        if came.state is None or came.state.status != "done":
            continue
        with one_thread():
            labelled = list(_labelled(job, came, shares))
        if labelled:
            write_text(directory / ("labels.csv" if number == 1 else f"labels-{number}.csv"), _table(labelled))


def _labelled(
    job: Job, found: JobResult, shares: Mapping[str, DataSet]
) -> Iterator[tuple[str, DataSet, NDArray[Any]]]:  # fmt: skip
    """Yield devices with their rows and the labels of these."""
    assert found.state is not None
    if job.at_desk:
        yield from ((name, shares[name], own) for name, own in labels_of_peers(job, found, shares).items())
        return
    for name in sorted(found.digests)[: 1 if job.by_columns else None]:
        share = shares[name]
        own = engine.conclude(job, found.state, Local(share.X, ids=share.id)).get("labels")
        if own is not None:
            yield "all" if job.by_columns else name, share, np.asarray(own)


def _table(labelled: Sequence[tuple[str, DataSet, NDArray[Any]]]) -> str:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    with_class = any(share.y is not None for _, share, _ in labelled)
    table.writerow(["device", "row", "label", *(["class"] if with_class else [])])
    for name, share, own in labelled:
        rows = range(share.n_rows) if share.id is None else share.id.tolist()
        classes = [[""]] * share.n_rows if share.y is None else [[kind] for kind in share.y.tolist()]
        for row, label, kind in zip(rows, own.tolist(), classes, strict=True):
            table.writerow([name, row, label, *(kind if with_class else [])])
    return text.getvalue()
