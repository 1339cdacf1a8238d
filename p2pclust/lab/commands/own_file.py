"""What ``p2pclust init`` writes: the rows of each device, a scenario, an inventory, and a configuration for each device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from p2pclust.errors import UsageError
from p2pclust.tools.spelling import command

if TYPE_CHECKING:
    from p2pclust.lab.data.prepare import Prepared

PROTOCOL: Final = "llf-cm"
_TRIED: Final = range(1, 11)
_RESTARTS: Final = 2
_MOST_ROWS: Final = 4000  # of all devices together; more rows hardly change the proposal, and take long
_LEAST_ROWS_EACH: Final = 10


@dataclass(frozen=True)
class NumberOfClusters:
    """A number of clusters, and in a sentence where it comes from."""

    clusters: int
    reason: str


def propose(prepared: Prepared, seed: int) -> NumberOfClusters:
    """Propose a number of clusters as ``p2pclust choose`` does, from the rows of all devices, or from some of each.

    Everything is computed in this process; peers whose rows are few are measured too, since no row leaves this machine.
    """
    import numpy as np  # noqa: PLC0415

    from p2pclust.choose.trials import choose_clusters  # noqa: PLC0415

    rows = {name: prepared.matrix(own) for name, own in prepared.devices.items()}
    n_rows = sum(map(len, rows.values()))
    step = max(1, -(-n_rows // _MOST_ROWS))
    arrays = [own[:: min(step, max(1, len(own) // _LEAST_ROWS_EACH))] for own in rows.values()]
    together = len(np.unique(np.concatenate(arrays), axis=0))
    tried = range(_TRIED.start, min(_TRIED.stop, together))
    if len(tried) < 3:
        return NumberOfClusters(min(2, together), f"there are only {together} different rows")
    found = choose_clusters(
        arrays, PROTOCOL, tried, restarts=_RESTARTS, random_state=seed, scaling="minmax", measure_gate=False,
        suppress_singletons=False,
    )  # fmt: skip
    of = f" (from {sum(map(len, arrays))} of {n_rows} rows)" if step > 1 else ""
    return NumberOfClusters(max(2, found.recommended), found.reason + of)


def measurable(prepared: Prepared) -> bool:
    """Return whether each device has rows enough for ``p2pclust choose`` without ``--no-gate``, up to 10 clusters."""
    from p2pclust.protocols.measuring.measure import Measure  # noqa: PLC0415

    needed = Measure(compare_up_to=_TRIED.stop - 1).rows_needed(_TRIED.start, len(prepared.features))
    return all(len(prepared.matrix(rows)) >= needed for rows in prepared.devices.values())


def doubtful_fills(prepared: Prepared) -> list[str]:
    """Return a warning for each column in which the number for missing values lies outside the range of the others."""
    import numpy as np  # noqa: PLC0415

    from p2pclust.data.dataset import DataSet, fills_outside  # noqa: PLC0415

    if not isinstance(prepared.missing_values, Mapping):
        return []
    X = np.array([[float(cell or "nan") for cell in prepared.cells[name]] for name in prepared.features]).T
    filled = np.isnan(X)
    rows = np.where(filled, prepared.missing_values["fill"], X)
    return fills_outside([DataSet("rows", rows, feature_names=prepared.features, filled=filled)])


def too_few(prepared: Prepared) -> tuple[str, ...]:
    """Return a sentence about the devices that send nothing, because sums of so few rows would show them."""
    from p2pclust.protocols.engine.privacy import LEAST_ROWS  # noqa: PLC0415

    few = [name for name, rows in prepared.devices.items() if len(prepared.matrix(rows)) < LEAST_ROWS]
    what = f"with fewer than {LEAST_ROWS} complete rows a device sends nothing, as its sums would show them"
    return (f"{', '.join(few)}: {what}",) if few else ()


def check_new(out: Path) -> None:
    """Refuse a folder that has something in it, before much is computed."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"--out {out}: it exists and is not an empty folder: choose another one")


def write(out: Path, source: Path, prepared: Prepared, chosen: NumberOfClusters, seed: int, port: int) -> list[Path]:
    """Write all files into a new or empty folder; return them in the order in which people look at them.

    Raise UsageError if there is something in the folder, or it cannot be written.
    """
    from p2pclust.lab.data.prepare import write_device  # noqa: PLC0415

    check_new(out)
    made = [out / "scenario.toml", out / "fleet.toml"]
    try:
        for folder in (out / "rows", out / "devices"):
            folder.mkdir(parents=True, mode=0o700)
        made[0].write_text(_scenario(source, prepared, chosen.clusters, seed), encoding="utf-8")
        made[1].write_text(_inventory(source, prepared, port), encoding="utf-8")
        for name, rows in prepared.devices.items():
            made += [out / "rows" / f"{name}.csv", out / "devices" / f"{name}.toml"]
            write_device(made[-2], prepared, rows)
            made[-1].write_text(_device(name, prepared, port), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--out {out}: cannot be written ({error.strerror}): choose another folder") from None
    return made


def _toml(values: Mapping[str, Any]) -> str:
    from p2pclust.hosts.inventory import peer_toml  # noqa: PLC0415

    return peer_toml(values)


def _how_read(prepared: Prepared) -> dict[str, Any]:
    """Return the keys that say how a file of rows is read, which scenarios, inventories and peers have in common."""
    return {
        "columns": list(prepared.features), "id_column": prepared.id_column, "missing_values": prepared.missing_values,
    }  # fmt: skip


def _by(source: Path) -> str:
    """Return the command that wrote a file, in one line of a comment."""
    return "".join(letter if letter.isprintable() else "?" for letter in command("p2pclust", "init", Path(source.name)))


def _scenario(source: Path, prepared: Prepared, clusters: int, seed: int) -> str:
    names = list(prepared.devices)
    devices = "".join(f"\n[[fleet.devices]]\n{_toml({'name': name})}" for name in names)
    return (
        f"# Written by `{_by(source)}`; every value may be changed. The rows of a device are in rows/.\n"
        + _toml({"title": f"{source.name} on {len(names)} devices", "seed": seed})
        + "\n[data]\n# One file for each device, in the order of the devices below.\n"
        + _toml({"files": [f"rows/{name}.csv" for name in names]} | _how_read(prepared))
        + "# By the federated protocol: each device sends the ranges of its columns, and no row.\n"
        + _toml({"scaling": "minmax"})
        + '\n[fleet]\ntiming = "fast"    # all devices on this machine; on real links "default" or "wan"\n'
        + devices
        + "\n[[jobs]]\n"
        + _toml({"protocol": PROTOCOL, "clusters": clusters})
        + f"\n[expect]\nfinished_at_least = {len(names)}\nidentical_centers = true\n"
    )


def _inventory(source: Path, prepared: Prepared, port: int) -> str:
    devices = "".join(
        f"\n[[devices]]\n{_toml({'name': name, 'port': own, 'data': f'rows/{name}.csv'})}"
        for name, own in _ports(prepared, port).items()
    )
    return (
        f"# Written by `{_by(source)}`: all devices on this machine. For other machines give each device a\n"
        "# host, and `send = true` to copy its rows there.\n"
        + _toml({"keys": "keys", "state_dir": "state", "settings": _how_read(prepared)})
        + devices
    )


def _device(name: str, prepared: Prepared, port: int) -> str:
    """Return the configuration for `p2pclust peer --config`, for one who starts the peers by hand."""
    ports = _ports(prepared, port)
    others = [f"{other}@127.0.0.1:{own}" for other, own in ports.items() if other != name]
    return (
        "# Written by `p2pclust init`. On a device of its own, change `listen` and `join` to addresses of the network.\n"
        + _toml({"name": name, "listen": f"127.0.0.1:{ports[name]}", "join": others[:2]})
        + _toml({"bundle": f"../keys/{name}.bundle", "state_dir": f"../state-{name}", "data": f"../rows/{name}.csv"})
        + _toml(_how_read(prepared))
    )


def _ports(prepared: Prepared, first: int) -> dict[str, int]:
    return {name: first + number for number, name in enumerate(prepared.devices)}
