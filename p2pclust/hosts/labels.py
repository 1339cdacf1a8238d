"""Label rows with the result of a job: this device's rows, or those of a file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pclust.data.columns import HowRead
from p2pclust.data.dataset import DataSet
from p2pclust.data.delimited import read_csv_table
from p2pclust.data.readers import kind_and_stem, read_chosen
from p2pclust.data.sources import read_source
from p2pclust.data.table import Choice
from p2pclust.errors import DataError, UsageError
from p2pclust.hosts.client import Connection
from p2pclust.hosts.submission import FinishedJob, result_of
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.base import Clustering
from p2pclust.protocols.engine.local import Local, in_working_coordinates
from p2pclust.protocols.engine.workspace import Workspace
from p2pclust.protocols.measuring.describe import Describe

Floats = NDArray[np.float64]


ALL = Choice()


@dataclass(frozen=True)
class Labelled:
    """Rows with labels, and memberships where the protocol has them."""

    columns: tuple[str, ...]  # of the rows as they are written
    cells: Sequence[Sequence[str]] = field(repr=False)
    data: DataSet = field(repr=False)
    labels: NDArray[np.int64]
    memberships: Floats | None = None  # (n, C)
    distances: Floats | None = None  # (n,) to the center of its cluster, in the job's working coordinates
    more: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # of a plug-in: what else it says of each row, (n,)

    @property
    def header(self) -> list[str]:
        """The names of all columns; underscores are added to a name that is taken."""
        n = 0 if self.memberships is None else self.memberships.shape[1]
        names = list(self.columns)
        where = ["row"] if self.data.file is None else ["file", "row"]
        distance = [] if self.distances is None else ["distance"]
        for name in [*where, "label", *distance, *(f"membership_{number}" for number in range(n)), *self.more]:
            while name in names:
                name += "_"  # noqa: PLW2901
            names.append(name)
        return names

    def rows(self) -> Iterator[list[str]]:
        """Yield the cells of each row, then its file and number, label, memberships, and what else a plug-in says of it."""
        called = [str(row) for row in self.data.row_names.tolist()]
        files = None if self.data.file is None else self.data.file.tolist()
        for number, row in enumerate(self.cells):
            where = [called[number]] if files is None else [files[number], called[number]]
            degrees = [] if self.memberships is None else self.memberships[number].tolist()
            degrees = [*([] if self.distances is None else [self.distances[number].item()]), *degrees]
            more = [*degrees, *(values[number].item() for values in self.more.values())]
            yield [*row, *where, str(int(self.labels[number])), *map(repr, more)]


def label_own(client: Connection, job_id: str) -> Labelled:
    """Label the rows of the device of this peer, read again from their source. They are labelled on this device only."""
    if client.state_dir is None:
        why = "a device's rows are labelled on that device, because they never leave it"
        raise UsageError(f"{client.address}: {why}: run this there, or name a file with --data")
    file = client.state_dir / "peer.json"
    try:
        config: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        hint = "was it started by `p2pclust peer`?"
        raise UsageError(f"{file}: the peer's configuration cannot be read: {hint}") from None
    found = result_of(client, job_id, own=True)
    data = read_source(config)
    me = found.told["roster"].index(config["name"]) if config["name"] in found.told["roster"] else -1
    how_read = HowRead.of(config)
    return _with_cells(config["data"], how_read, found, data, Local(data.X, ids=data.shared_ids), me)


def label_file(client: Connection, job_id: str, path: Path, choice: Choice = ALL) -> Labelled:
    """Label the rows of a file; where no columns are chosen, by the job's schema, the names of its features, or all."""
    return label_with(result_of(client, job_id), path, choice)


def label_by_run(file: Path, path: Path, choice: Choice = ALL) -> Labelled:
    """Label the rows of a file with the result in a file that a run wrote."""
    return label_with(FinishedJob.from_file(file), path, choice)


def label_with(found: FinishedJob, path: Path, choice: Choice) -> Labelled:
    """Label the rows of a file with a result."""
    if found.job.by_columns:
        why = "each peer holds other columns and no complete centers, so only rows of the job have labels"
        raise UsageError(
            f"{found.job_id}: in {found.job.stages[found.job.main].protocol} {why}: ask each peer on its own device, "
            "without --data"
        )
    if choice.schema is None and found.job.schema is not None:
        choice = replace(choice, schema=found.job.schema)
    if choice.features is None and kind_and_stem(path)[0] in (".csv", ".tsv") and not path.is_dir():
        header = read_csv_table(path, found.features, choice.how_read).names
        choice = replace(choice, columns=found.features if set(found.features) <= set(header) else None)
    data = read_chosen(path, choice)
    return _with_cells(str(path), choice.how_read, found, data, Local(data.X))


def labelled(
    found: FinishedJob, local: Local, own: int = -1
) -> tuple[NDArray[np.int64], Floats | None, dict[str, NDArray[Any]]]:
    """Return the label of each row, shape (n,), and the memberships, shape (n, C), where the protocol has these.

    The third are arrays of shape (n,) that a plug-in keeps besides. `own` is the roster index of the peer whose rows these
    are; -1 for other rows.
    """
    job, state = found.job, found.state
    keeps_gaps = job.protocols[job.main].keeps_gaps
    if problem := local.problem_if(keeps_gaps=keeps_gaps):
        raise DataError(problem)
    if job.has_workspace and own < 0:
        return _by_models(found, local), None, {}
    workspace = Workspace(own, found.note, found.blobs.get) if job.has_workspace else None
    kept = engine.conclude(job, state, local, workspace)
    if isinstance(job.protocols[job.main], Describe):
        raise UsageError(f"{found.job_id}: it describes the table, and labels no row: see `p2pclust result`")
    if "labels" not in kept:
        raise DataError(f"{found.job_id}: these rows have no labels in this job: are they the rows that the job used?")
    plain = {} if job.has_workspace or job.by_columns else kept
    more = {n: np.array(a) for n, a in plain.items() if n != "labels" and np.shape(a) == (local.n_samples,)}
    main = job.protocols[job.main]
    degrees = main.degrees(state.arrays, local) if isinstance(main, Clustering) else None
    if degrees is None and "memberships" in kept:
        degrees = np.array(kept["memberships"])
    return kept["labels"], degrees, more


def _distances(found: FinishedJob, X: Floats, labels: NDArray[np.int64]) -> Floats | None:
    """Return how far each row is from the center of its cluster, over the values that are there.

    None where no distance of complete rows says that.
    """
    arrays, main = found.state.arrays, found.job.protocols[found.job.main]
    far = isinstance(main, Clustering) and main.least_squares and not found.job.by_columns
    if not far or "centers" not in arrays or np.ndim(arrays["centers"]) != 2 or (labels < 0).any():
        return None
    away = np.nan_to_num(in_working_coordinates(X, arrays["origin"], arrays["scale"]).X - arrays["centers"][labels])
    distances: Floats = np.sqrt(np.einsum("ij,ij->i", away, away))
    return distances


def _by_models(found: FinishedJob, local: Local) -> NDArray[np.int64]:
    """Return, for rows that no peer held, the FedCRef group whose model reconstructs each row best."""
    from p2pclust.clustering.autoencoders import ModelStack  # noqa: PLC0415 - torch
    from p2pclust.clustering.stacks import reconstruction_errors  # noqa: PLC0415
    from p2pclust.protocols.models.fedcref import FedCRefProtocol  # noqa: PLC0415
    from p2pclust.protocols.models.fedcref_agreed import Agreed  # noqa: PLC0415

    protocol, arrays = found.job.protocols[found.job.main], found.state.arrays
    if not isinstance(protocol, FedCRefProtocol):
        raise UsageError(f"{found.job_id}: {protocol.id} labels a device's own rows only: leave --data out")
    agreed = Agreed.of(arrays)
    digests = [agreed.group_model(group) for group in agreed.alive.tolist()]
    groups = np.flatnonzero([digest in found.blobs for digest in digests])
    if not groups.size:
        return np.full(local.n_samples, -1, np.int64)
    data = [found.blobs[digest] for digest in digests if digest in found.blobs]
    models = ModelStack.decode(protocol.architecture(arrays), data, protocol.encoding)
    rows = in_working_coordinates(local.X, arrays["origin"], arrays["scale"]).X
    errors = reconstruction_errors(models, rows, device=protocol.device)
    return np.asarray(groups[errors.argmin(axis=1)], dtype=np.int64)


def _with_cells(
    source: Any, how_read: HowRead, found: FinishedJob, data: DataSet, local: Local, own: int = -1
) -> Labelled:
    """Label rows, as they are in a CSV file, or else as the numbers that were read."""
    local.feature_names, local.schema = data.feature_names, data.schema
    local = found.job.rows(local)
    if (
        found.job.schema is None
        and not found.job.by_columns
        and found.features
        and data.X.shape[1] != len(found.features)
    ):
        raise DataError(
            f"{data.name}: {data.X.shape[1]} columns, but the job has {len(found.features)} features "
            f"({', '.join(found.features[:8])}): name them with --columns"
        )
    labels, degrees, more = labelled(found, local, own)
    cells = [[repr(float(value)) for value in row] for row in data.X]
    if (schema := data.schema) is not None:
        words = (schema.cells(place, codes) for place, codes in enumerate(data.X.T))
        cells = [["" if cell is None else str(cell) for cell in row] for row in zip(*words, strict=True)]
    written = Labelled(
        tuple(data.feature_names), cells, data, labels, degrees, _distances(found, local.X, labels), more
    )
    path = Path(source) if isinstance(source, str) else None
    if path is None or kind_and_stem(path)[0] not in (".csv", ".tsv") or not path.is_file():
        return written
    table = read_csv_table(path, data.feature_names, how_read)
    if not table.names or len(table.rows) != len(labels) + data.dropped:
        return written  # no header, or the file has changed since
    cells = [table.rows[row] for row in data.row_numbers]
    called = [str(row) for row in data.row_names.tolist()]
    # The file may have the column that is added anyway.
    kept = [place for place, name in enumerate(table.names) if name != "row" or called != [own[place] for own in cells]]
    return replace(
        written,
        columns=tuple(table.names[place] for place in kept),
        cells=[[own[place] for place in kept] for own in cells],
    )
