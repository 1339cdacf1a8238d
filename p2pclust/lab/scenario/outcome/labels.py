"""The final labels as a table; only a testbed has those of all devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.data import DataSet
from p2pclust.errors import PluginError
from p2pclust.jobs.request import JobResult
from p2pclust.lab.scenario.outcome.communities import labels_of_peers
from p2pclust.lab.scenario.outcome.folder import write_table
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.job import Job
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import one_thread

_NUMBERS: Final = 200_000_000  # with more values than this, labelling would take too long


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
        labelled: list[tuple[str, DataSet, NDArray[Any]]] = []
        if came.state is None or came.state.status != "done":
            continue
        with one_thread(), suppress(PluginError):  # which the result names, see Done.attempt
            labelled = list(_labelled(job, came, shares))
        if labelled:
            write_table(directory / ("labels.csv" if number == 1 else f"labels-{number}.csv"), _table(labelled))


def _labelled(job: Job, found: JobResult, shares: Mapping[str, DataSet]) -> Iterator[tuple[str, DataSet, NDArray[Any]]]:
    """Yield devices with their rows and labels."""
    assert found.state is not None
    if job.has_workspace:
        yield from ((name, shares[name], own) for name, own in labels_of_peers(job, found, shares).items())
        return
    for name in sorted(found.digests)[: 1 if job.by_columns else None]:
        share = shares[name]
        own = engine.conclude(job, found.state, Local(share.X, ids=share.shared_ids)).get("labels")
        if own is not None:
            yield "all" if job.by_columns else name, share, np.asarray(own)


def _table(labelled: Sequence[tuple[str, DataSet, NDArray[Any]]]) -> Iterator[list[object]]:
    with_class = any(share.y is not None for _, share, _ in labelled)
    with_file = any(share.file is not None for _, share, _ in labelled)
    yield ["device", *(["file"] * with_file), "row", "label", *(["class"] * with_class)]
    for name, share, own in labelled:
        files = share.file.tolist() if share.file is not None else [""] * share.n_rows
        classes = share.y.tolist() if share.y is not None else [""] * share.n_rows
        for file, row, label, kind in zip(files, share.row_names.tolist(), own.tolist(), classes, strict=True):
            yield [name, *([file] * with_file), row, label, *([kind] * with_class)]
