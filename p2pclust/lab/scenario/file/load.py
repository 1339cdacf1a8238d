"""Load a scenario file, check it, and load the rows of its peers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from p2pclust.data import DataSet, deal, load, split_columns
from p2pclust.data.columns import HowRead
from p2pclust.data.readers import files_of, kind_and_stem
from p2pclust.data.registry import is_file
from p2pclust.data.schema import Schema
from p2pclust.errors import DataError, UsageError
from p2pclust.jobs.data_keys import HowReadKeys, PartitionSpec
from p2pclust.jobs.explain import explain
from p2pclust.jobs.secured import decided, secured_fields
from p2pclust.jobs.submission import job_of, request_of
from p2pclust.lab.data.by_class import draw_by_class
from p2pclust.lab.data.prepare import device_names
from p2pclust.lab.scenario.file.plans import describes_devices
from p2pclust.lab.scenario.file.schema import Scenario
from p2pclust.lab.testbed import backend as backend_called
from p2pclust.overlay import LinkChange, Overlay, make_overlay, make_trace, read_trace
from p2pclust.peer.core.treatment import Treatment
from p2pclust.peer.operate.device import memory_bytes
from p2pclust.protocols.engine import exclusions, random_streams
from p2pclust.protocols.engine.job import Job
from p2pclust.tools.files import expanded
from p2pclust.tools.platforms import n_cores
from p2pclust.tools.toml_files import apply_override, read_toml

#: What two cores held, and what a small job takes: see "Sizing" in docs/operations.md.
_PEERS_PER_CORE: Final = 60
_PEER_BYTES: Final = 30e6
_HOW_READ: Final = ("label_column", "group_column", "columns", "missing_values", "id_column")


def load_scenario(path: str | Path, overrides: Sequence[str] = (), seed: int | None = None) -> Scenario:
    """Read a scenario file and check all of it; relative names of data files start in its folder.

    `overrides` are ``"key=value"`` each, the key with dots and list positions from 0 (``jobs.0.tol=1e-4``), the value
    as TOML writes it; a value that is not TOML is text (``fleet.timing=wan``). They replace the file's values, and
    `seed` replaces even an overridden one. A refusal has one line for each of the first few errors.
    """
    file = Path(path)
    document = read_toml(file)
    for override in overrides:
        apply_override(document, override)
    if seed is not None:
        document["seed"] = seed
    _anchor_files(document, file.parent)
    _name_devices_by_files(document)
    try:
        return Scenario.model_validate(document)
    except ValidationError as error:
        raise UsageError(explain(str(path), error, Scenario)) from error


def load_data(scenario: Scenario) -> dict[str, DataSet]:
    """Load the rows of every device, by name, in the order of the file; the partition depends only on the scenario's seed.

    Refuse bounds, first centers and numbers of clusters that do not fit the data.
    """
    spec = scenario.data
    names = scenario.fleet.names
    how: dict[str, Any] = {key: getattr(spec, key) for key in _HOW_READ}
    how["schema"] = spec.schema_
    how["how_read"] = HowRead.of(spec.model_dump(include=set(HowReadKeys.model_fields)))
    if spec.files is not None:
        shares = []
        for name, file in zip(names, spec.files, strict=True):
            try:
                shares.append(load(file, **how))
            except UsageError as error:  # a DataError too
                raise type(error)(f"{name}: {error}") from error
    else:
        assert spec.source is not None
        shares = _dealt(load(spec.source, **how, options=spec.options), scenario, len(names))
    by_name = dict(zip(names, shares, strict=True))
    if scenario.jobs[0].by_columns:
        _check_rows(by_name)
        _check_fit(scenario, shares[0].n_rows, sum(share.n_features for share in shares))
    else:
        _check_columns(by_name)
        _check_fit(scenario, sum(share.n_rows for share in shares), shares[0].n_features)
    return by_name


def _check_rows(shares: Mapping[str, DataSet]) -> None:
    """Refuse files that cannot hold the same rows; the peers compare the rows' ids themselves."""
    (first_name, first), *others = shares.items()
    for name, share in others:
        if share.n_rows != first.n_rows:
            raise DataError(
                f"{name}: {share.name}: {share.n_rows} rows, but {first.name} of {first_name} has {first.n_rows}: "
                "peers that hold columns need the same rows"
            )
        apart = share.row_numbers != first.row_numbers
        if (share.dropped or first.dropped) and apart.any():
            one, other = (int(rows.row_numbers[apart.argmax()]) for rows in (first, share))
            missing, where = (one, f"{name}: {share.name}") if one < other else (other, f"{first_name}: {first.name}")
            raise DataError(
                f"{where}: row {missing} of its rows (from 0) was left out for a missing value, and the other devices have "
                "it: peers that hold columns need the same rows: leave it out of all files"
            )


def _check_columns(shares: Mapping[str, DataSet]) -> None:
    (first_name, first), *others = shares.items()
    for name, share in others:
        if share.n_features != first.n_features:
            raise DataError(
                f"{name}: {share.name}: {share.n_features} features, but {first.name} of {first_name} has "
                f"{first.n_features}: all peers need the same columns"
            )
        if share.schema != first.schema:
            raise DataError(
                f"{name}: {share.name}: encoded by another schema than {first.name} of {first_name}: all peers need the same"
            )
        if share.feature_names != first.feature_names:
            raise DataError(
                f"{name}: {share.name}: columns {', '.join(share.feature_names[:8])}, but {first.name} of {first_name} has "
                f"{', '.join(first.feature_names[:8])}: all peers need the same columns in the same order"
            )


def given_centers(scenario: Scenario, shares: Mapping[str, DataSet]) -> dict[str, NDArray[np.float64]]:
    """Return each peer's columns of the scenario's first centers; empty if it has none."""
    given = [job.init for job in scenario.jobs if job.by_columns and isinstance(job.init, tuple)]
    if not given:
        return {}
    edges = np.cumsum([share.n_features for share in shares.values()])[:-1]
    parts = np.split(np.array(given[0], dtype=np.float64), edges, axis=1)
    return {name: np.ascontiguousarray(part) for name, part in zip(shares, parts, strict=True)}


def starting_overlay(scenario: Scenario) -> Overlay | None:
    """Return the overlay at the start, with places if its kind has them; None for a full mesh that does not change."""
    spec = scenario.fleet.overlay
    return None if spec.kind == "full" and spec.trace is None else _overlay(scenario)


def make_moves(scenario: Scenario) -> tuple[LinkChange, ...]:
    """Return the links that appear and vanish, in order of time."""
    spec = scenario.fleet.overlay
    if spec.trace is not None:
        return read_trace(spec.trace, _overlay(scenario))
    return make_trace(spec.kind, scenario.fleet.names, random_streams.linking(scenario.seed), **spec.options)


def _overlay(scenario: Scenario) -> Overlay:
    spec = scenario.fleet.overlay
    return make_overlay(spec.kind, scenario.fleet.names, random_streams.linking(scenario.seed), **spec.options)


def make_job(scenario: Scenario, index: int, n_features: int, schema: Schema | None = None) -> Job:
    """Return the job document of one of the scenario's jobs, by its number from 0; `schema` has encoded the rows.

    One declared pair of bounds applies to all `n_features` features.
    """
    spec, data = scenario.jobs[index], scenario.data

    def make(secured: Mapping[str, Any]) -> Job:
        job = job_of(spec, secured, data.scaling, data.bounds, scenario.seed, n_features, schema).here(spec.kernel)
        return request_of(spec, secured, job).job  # the fleet's treatment is checked too

    try:
        return decided(spec.protocol, spec.secure, scenario.fleet.n_enrolled, make)
    except UsageError as error:
        raise UsageError(f"[jobs.{index}]: {error}") from None


def check_backend(scenario: Scenario, backend: str) -> None:
    """Refuse a scenario that a backend cannot run, on any machine or on this one."""
    backend_called(backend).check()
    if backend == "namespaces":
        from p2pclust.lab.testbed.processes.namespaces import require  # noqa: PLC0415

        require()
    overlay = scenario.fleet.overlay
    exclusions.refuse(
        {
            "in_process": backend == "in-process",
            "devices": describes_devices(scenario.fleet),
            "overlay": overlay.kind != "full" or overlay.trace is not None,
            "faults": bool(scenario.faults),
            "verify": any(job.verify for job in scenario.jobs),
            "secure": any(job.secure for job in scenario.jobs),  # by default there is nothing to hide there
        }
    )
    n_peers = scenario.fleet.n_enrolled
    for job in scenario.jobs:
        if secured := secured_fields(job.protocol, job.secure, n_peers):
            Treatment(**secured).secured_for(n_peers).secure_sums.check(n_peers)


def too_many_processes(scenario: Scenario) -> str:
    """Return a warning if this machine cannot hold a process for each device, else an empty string."""
    n_peers = len(scenario.fleet.members)
    most = int(min(_PEERS_PER_CORE * n_cores(), memory_bytes(None) / _PEER_BYTES))
    if n_peers <= most:
        return ""
    return f"{n_peers} processes will not fit on this machine, which holds about {most}: --backend simulated runs them"


def _dealt(data: DataSet, scenario: Scenario, n_peers: int) -> list[DataSet]:
    scheme, spec = scenario.data.scheme, scenario.data.partition or PartitionSpec()
    if scheme == "vertical":
        return [data.take_columns(part) for part in split_columns(data.n_features, n_peers, spec.widths)]
    rng = random_streams.splitting(scenario.seed)
    if scheme != "by-class":
        own: dict[str, Any] = {"beta": spec.beta, "labels_per_peer": spec.labels_per_peer, "locations": spec.locations}
        return [data.take(share) for share in deal(data, n_peers, scheme, rng, **own)]
    if data.y is None:
        raise DataError(f"{data.name}: scheme = 'by-class' needs labels, and there are none")
    assert spec.rows_per_class is not None
    drawn = draw_by_class(
        data.y, n_peers, rng, rows_per_class=spec.rows_per_class, classes_per_peer=spec.classes_per_peer,
        overlap=spec.overlap or 0.0,
    )  # fmt: skip
    return [data.take(of_peer.rows) for of_peer in drawn]


def _check_fit(scenario: Scenario, n_rows: int, n_features: int) -> None:
    bounds = scenario.data.bounds
    if bounds is not None and len(bounds) not in (1, n_features):
        raise DataError(f"[data]: bounds has {len(bounds)} pairs: expected 1, or {n_features} for as many features")
    for index, job in enumerate(scenario.jobs):
        if job.clusters is not None and job.clusters > n_rows:
            raise DataError(f"[jobs.{index}]: clusters = {job.clusters}: expected at most the {n_rows} rows of data")
        if isinstance(job.init, tuple) and len(job.init[0]) != n_features:
            values = f"{len(job.init[0])} values: expected {n_features}, one for each feature"
            raise DataError(f"[jobs.{index}]: init has centers of {values}")


def _anchor_files(document: dict[str, Any], folder: Path) -> None:
    fleet = document.get("fleet")
    overlay = fleet.get("overlay") if isinstance(fleet, dict) else None
    for table, keys in ((overlay, ("path", "trace")), (fleet, ("availability",))):
        if isinstance(table, dict):
            table |= {key: _anchored(folder, table[key]) for key in keys if isinstance(table.get(key), str)}
    data = document.get("data")
    if not isinstance(data, dict):
        return
    source, files = data.get("source"), data.get("files")
    if isinstance(source, str) and is_file(source, folder):
        data["source"] = _anchored(folder, source)
    if isinstance(data.get("schema"), str):
        data["schema"] = _anchored(folder, data["schema"])
    if isinstance(files, list):
        data["files"] = [_anchored(folder, name) if isinstance(name, str) else name for name in files]


def _name_devices_by_files(document: dict[str, Any]) -> None:
    """Make each file of the folder a device with its name, where rows go by file and no device is named or counted."""
    data, fleet = document.get("data"), document.get("fleet", {})
    partition = data.get("partition") if isinstance(data, dict) else None
    if not isinstance(data, dict) or partition != {"scheme": "by-file"} or not isinstance(fleet, dict):
        return
    source = data.get("source")
    if isinstance(source, str) and Path(source).is_dir() and not {"peers", "devices"} & set(fleet):
        files = files_of(Path(source))
        devices = [{"name": name} for name in device_names([kind_and_stem(file)[1] for file in files])]
        document["fleet"] = fleet | {"devices": devices}
        data["files"] = [*map(str, files)]
        del data["source"], data["partition"]


def _anchored(folder: Path, name: str) -> str:
    # A Path drops the "/" at its end, which distinguishes a folder from a data set of that name.
    return str(folder / expanded(name)) + ("/" if name.endswith("/") else "")
