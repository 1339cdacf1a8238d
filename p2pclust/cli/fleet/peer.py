"""``p2pclust peer``: check a peer's configuration, then become that peer."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from p2pclust import __version__
from p2pclust.cli.show.options import column, columns_of, flag, option
from p2pclust.cli.show.output import note
from p2pclust.errors import UsageError
from p2pclust.tools.spelling import first_few

if TYPE_CHECKING:
    from p2pclust.data.dataset import DataSet

_NAMED: Final = 8  # columns that --check names


def peer(
    config: Annotated[
        Path | None, option("FILE", "A TOML file with the keys below; options replace its values.")
    ] = None,
    name: Annotated[str | None, option("NAME", "The peer's name on the fleet roster.")] = None,
    listen: Annotated[str | None, option("HOST:PORT", "The address at which other peers reach it.")] = None,
    join: Annotated[list[str] | None, option("NAME@HOST:PORT", "A peer to join; may be repeated.")] = None,
    roster: Annotated[Path | None, option("FILE", "A newer roster.json than the one in the bundle.")] = None,
    bundle: Annotated[Path | None, option("FILE", "This device's secret NAME.bundle.")] = None,
    data: Annotated[
        Path | None, option("FILE", "Its rows: CSV, ARFF, Parquet, NPY or NPZ, or a folder of these.")
    ] = None,
    columns: Annotated[
        str | None, option("NAME,...", "The features, by names or numbers from 1; default all columns.")
    ] = None,
    id_column: Annotated[str | None, option("NAME", "The column of the rows' ids, which is not a feature.")] = None,
    missing_values: Annotated[str | None, option("error|drop", "Refuse missing values, or omit their rows.")] = None,
    links: Annotated[list[str] | None, option("NAME", "A neighbour; default all. May be repeated.", "--link")] = None,
    state_dir: Annotated[Path | None, option("DIR", "Folder of its store.")] = None,
    control: Annotated[
        str | None, option("HOST:PORT", "The control address for operators on the network; default none.")
    ] = None,
    timing: Annotated[str | None, option("default|wan|fast", "Must be the same on all peers.")] = None,
    fitness: Annotated[float | None, option("X", "How suitable the device is to aggregate, 0 to 1.")] = None,
    settings: Annotated[
        list[str] | None, option("KEY=VALUE", "Any key of the file, with a TOML value; may be repeated.", "--set")
    ] = None,
    insecure: Annotated[
        bool, flag("--insecure", "Run without keys at an address that other devices can reach: nothing is protected.")
    ] = False,
    check: Annotated[bool, flag("--check", "Only check the configuration and the data, and exit.")] = False,
) -> None:
    """Run one peer with this device's data until SIGTERM or Ctrl-C; it then informs the other peers that it leaves.

    \b
    Examples:
      p2pclust peer --config peer.toml
      p2pclust peer --config peer.toml --set log=json --set 'missing_values={fill=0}' --check
      p2pclust peer --name meter-01 --listen 10.0.0.1:7000 --join meter-02@10.0.0.2:7000 --data rows.csv \\
          --bundle fleet/meter-01.bundle --state-dir state
    """
    from p2pclust.cli.fleet.peer_config import load_config  # noqa: PLC0415
    from p2pclust.tools.platforms import require_unix  # noqa: PLC0415

    require_unix("p2pclust peer", "run it in WSL, in a container or on another device")

    options = {
        "name": name, "listen": listen, "join": join, "roster": roster, "bundle": bundle, "data": data,
        "columns": columns_of(columns), "id_column": column(id_column), "state_dir": state_dir,
        "missing_values": missing_values, "control": control, "timing": timing, "fitness": fitness, "links": links,
    }  # fmt: skip
    given = {key: str(value) if isinstance(value, Path) else value for key, value in options.items()}
    told = {key: value for key, value in given.items() if value is not None}
    read: list[DataSet] = []
    checked = load_config(config, told, settings or (), try_command=check, insecure=insecure, on_data=read.append)
    if check:
        line = f"{checked['name']}: the configuration is fine"
        for found in read:  # with the features, so that people notice a column that must not be clustered, like an id
            names = found.feature_names
            line += f"; {found.n_rows} rows of {len(names)} columns ({first_few(names, _NAMED)})"
            line += f", {found.dropped} more omitted because of missing values" if found.dropped else ""
            line += f"; read {found.reading}" if found.reading else ""
        sys.stderr.write(line + "\n")
        from p2pclust.data.dataset import fills_outside  # noqa: PLC0415 - imports NumPy

        for line in fills_outside(read) if read else ():
            note(f"warning: {line}", style="yellow")
    else:
        become(checked)


def become(config: Mapping[str, Any]) -> None:
    """Replace this process by the peer, which needs no module that checked the configuration; it keeps the process id."""
    from p2pclust.transport.key_files import write  # noqa: PLC0415
    from p2pclust.transport.keys import insecure_bundle  # noqa: PLC0415

    file = Path(config["state_dir"]) / "peer.json"
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        told = {**config, "version": __version__}
        if "bundle" not in told:  # a peer without keys gets made-up ones, so that it starts like any other
            bundle = file.with_name("insecure.bundle")
            write(bundle, insecure_bundle(config["name"], config["join"]).to_bytes(), 0o600)
            told |= {"bundle": str(bundle), "insecure": True}
        file.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"state_dir {file.parent}: cannot be written ({error.strerror}): choose another") from None
    sys.stdout.flush()
    sys.stderr.flush()
    # -P: the installed package, and not what lies in the working folder
    os.execv(sys.executable, [sys.executable, "-P", "-m", "p2pclust.peer.main", str(file)])
