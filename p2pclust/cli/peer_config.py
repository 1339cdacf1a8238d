"""The configuration of one peer: a TOML file, options, or both; checked before the peer starts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, ValidationError

from p2pclust.data.readers import read
from p2pclust.errors import UsageError
from p2pclust.scenario import fields
from p2pclust.scenario.explain import explain
from p2pclust.scenario.fields import wrong_value
from p2pclust.scenario.load import read_toml
from p2pclust.transport.keys import check_enrolled, load_bundle, load_roster

__all__ = ["PeerConfig", "load_config"]

_FILES = ("roster", "bundle", "data", "state_dir")


def _address(value: str) -> str:
    host, colon, port = value.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65535:
        raise wrong_value("expected HOST:PORT, with a port from 1 to 65535")
    return value


def _reachable(value: str) -> str:
    _address(value)
    if value.rpartition(":")[0] in ("0.0.0.0", "[::]", "*"):
        raise wrong_value("expected the address by which other peers reach this device, not a wildcard")
    return value


def _neighbour(value: str) -> str:
    name, at, address = value.partition("@")
    if not at or not name:
        raise wrong_value("expected NAME@HOST:PORT")
    _address(address)
    return value


class PeerConfig(BaseModel):
    """What a peer's file may say."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    #: Its name on the fleet roster.
    name: str
    #: Where other peers reach it; it listens there and nowhere else.
    listen: Annotated[str, AfterValidator(_reachable)]
    #: Peers that it tries first; it hears of the others from them.
    join: Annotated[tuple[Annotated[str, AfterValidator(_neighbour)], ...], Field(strict=False)] = ()
    roster: Annotated[str, Field(min_length=1)]
    bundle: Annotated[str, Field(min_length=1)]
    data: Annotated[str, Field(min_length=1)]
    #: The features among the file's columns, and what is done about a row in which one of them is missing.
    columns: Annotated[tuple[str | int, ...], PlainValidator(fields.columns)] | None = None
    missing: Literal["error", "drop"] = "error"
    state_dir: Annotated[str, Field(min_length=1)]
    #: Where operators may ask over the network, with a key on the fleet roster; on this device they ask in state_dir.
    door: Annotated[str, AfterValidator(_address)] | None = None
    timing: Literal["default", "wan", "fast"] = "default"
    fitness: Annotated[float, Field(ge=0, le=1)] = 0.5


def load_config(file: Path | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Check everything that a peer needs, and return the configuration of `p2pclust.peer.main.run_peer`.

    Parameters
    ----------
    file : Path or None
        Relative files that it names start beside it.
    options : mapping
        Replace what the file says; relative files start in the current folder.

    Raises
    ------
    UsageError, DataError
        If a value is wrong, a file cannot be used, or the device's key is not on the roster.
    """
    document = {} if file is None else read_toml(file)
    for key in _FILES:
        if file is not None and isinstance(document.get(key), str):
            document[key] = str(file.parent / Path(document[key]).expanduser())
    where = "options" if file is None else str(file)
    try:
        config = PeerConfig.model_validate(document | dict(options))
    except ValidationError as error:
        raise UsageError(explain(where, error, PeerConfig)) from error
    _check_keys(config, where)
    read(
        config.data, columns=config.columns, missing=config.missing
    )  # refused now rather than by a peer that has joined
    join = dict(entry.split("@", 1) for entry in config.join)
    plain = config.model_dump() | {"join": join, "faults": [], "control": ""}
    return plain | {key: str(Path(plain[key]).absolute()) for key in _FILES}


def _check_keys(config: PeerConfig, where: str) -> None:
    bundle = load_bundle(config.bundle)
    roster = load_roster(config.roster, bundle.fleet_public)
    if bundle.name != config.name:
        raise UsageError(f"{where}: name = {config.name!r}, but {config.bundle} is the bundle of {bundle.name!r}")
    check_enrolled(bundle, roster)
    for entry in config.join:
        name = entry.split("@", 1)[0]
        if name not in roster.names:
            raise UsageError(f"{where}: join: {name!r} is not on the fleet roster {config.roster}")
