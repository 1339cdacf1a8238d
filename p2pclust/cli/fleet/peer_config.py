"""The configuration of one peer: a TOML file, options, or both; checked before the peer starts."""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainValidator

from p2pclust.clustering.kernels import MAX_THREADS
from p2pclust.data.dataset import DataSet
from p2pclust.data.sources import FORMATS, read_source
from p2pclust.errors import UsageError
from p2pclust.jobs import fields
from p2pclust.jobs.data_keys import GivenSchema, HowReadKeys, missing_rule
from p2pclust.jobs.explain import validated
from p2pclust.peer.operate.device import USUAL_FITNESS, fitness
from p2pclust.peer.work.floor import Floor
from p2pclust.protocols.private.ledger import Budget, MostJobs
from p2pclust.protocols.secure.parameters import LEAST_COHORT
from p2pclust.tools.distribution import install_line
from p2pclust.tools.files import expanded
from p2pclust.tools.toml_files import apply_override, read_toml
from p2pclust.transport.bundle import check_enrolled, load_bundle, newest_roster
from p2pclust.transport.keys import insecure_bundle
from p2pclust.transport.links import beyond_this_device, parse_address
from p2pclust.transport.roster import Roster

_FILES = ("roster", "bundle", "state_dir", "overlay")
_COMMAND_KEYS = {"command", "format", "timeout_s", "max_mb"}
_COMMAND = (
    'expected a file, a folder, or { command = ["PROGRAM", "ARGUMENT", ...], format = "csv" } with perhaps timeout_s and '
    "max_mb"
)


def address(value: str) -> str:
    host, colon, port = value.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65535:
        raise fields.wrong_value("expected HOST:PORT, with a port from 1 to 65535")
    try:
        parse_address(value)  # what is refused when the peer starts is refused by --check
    except UsageError:
        scheme, there, rest = value.partition("://")
        hint = (
            f": leave {scheme}:// out, and write {rest}" if there else ", such as 192.168.1.20:7411 or [fe80::1]:7411"
        )
        raise fields.wrong_value(f"expected HOST:PORT{hint}") from None
    return value


def reachable(value: str) -> str:
    address(value)
    if value.rpartition(":")[0] in ("0.0.0.0", "[::]", "*"):
        raise fields.wrong_value("expected the address by which other peers reach this device, not a wildcard")
    return value


def neighbour(value: str) -> str:
    name, at, where = value.partition("@")
    if not at or not name:
        raise fields.wrong_value("expected NAME@HOST:PORT")
    address(where)
    return value


def rows_source(value: object) -> str | dict[str, Any]:
    if isinstance(value, str) and value:
        return value
    if not isinstance(value, dict) or not {"command", "format"} <= set(value) <= _COMMAND_KEYS:
        raise fields.wrong_value(_COMMAND)
    command = value["command"]
    if not isinstance(command, list | tuple) or not command or not all(isinstance(word, str) for word in command):
        example = '["./read-meter", "--last", "24h"]'
        raise fields.wrong_value(f"command: expected a list of words, like {example}: no shell is used")
    if value["format"] not in FORMATS:
        raise fields.wrong_value(f"format: expected one of {', '.join(FORMATS)}")
    for key in ("timeout_s", "max_mb"):
        number = value.get(key, 1.0)
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < 1e9:
            raise fields.wrong_value(f"{key}: expected a number above 0")
    return dict(value)


def _rule(kind: type[Budget | MostJobs]) -> AfterValidator:
    """Return a validator of a table that becomes a rule of the ledger."""

    def check(given: dict[str, Any]) -> dict[str, Any]:
        try:
            kind.from_dict(given)
        except UsageError as error:
            raise fields.wrong_value(str(error)) from None
        return given

    return AfterValidator(check)


class PrivacyConfig(fields.TomlTable):
    """``[privacy]``: what this device asks of every job; `peers/device.toml` explains each key."""

    secure: bool = False
    keep: bool = False
    cohort: Annotated[int, Field(ge=LEAST_COHORT)] | None = None
    min_cell: Annotated[int, Field(ge=2, le=2**20)] | None = None
    protocols: Annotated[tuple[Annotated[str, AfterValidator(fields.known_protocol)], ...], Field(strict=False)] = ()
    budget: Annotated[dict[str, Any], _rule(Budget)] | None = None
    jobs: Annotated[dict[str, Any], _rule(MostJobs)] | None = None
    given_centers: bool = True
    least_rounds: Annotated[int, Field(ge=1, le=10**6)] | None = None
    rosters: Literal["fixed"] | None = None
    ledger: fields.Text | None = None


class PeerConfig(HowReadKeys):
    """The keys of a peer's file; `peers/device.toml` explains each."""

    name: str
    listen: Annotated[str, AfterValidator(reachable)]
    join: Annotated[tuple[Annotated[str, AfterValidator(neighbour)], ...], Field(strict=False)] = ()
    mdns: bool = False
    bundle: fields.Text | None = None
    roster: fields.Text | None = None
    data: Annotated[str | dict[str, Any], PlainValidator(rows_source)]
    id_column: fields.Column | None = None
    columns: fields.Columns | None = None
    schema_: Annotated[GivenSchema | None, Field(alias="schema")] = None
    missing_values: Annotated[str | dict[str, Any], PlainValidator(missing_rule)] = "error"
    state_dir: fields.Text
    control: Annotated[str, AfterValidator(address)] | None = None
    timing: Literal["default", "wan", "fast"] = "default"
    links: Annotated[tuple[str, ...], Field(strict=False, min_length=1)] | None = None
    overlay: fields.Text | None = None
    class_: Annotated[str | None, Field(alias="class", pattern=r"^[\w .-]{1,40}$")] = None
    mains: bool | None = None
    cores: Annotated[int, Field(ge=1)] | None = None
    up_mbit: Annotated[float, Field(gt=0)] | None = None
    fitness: Annotated[float, Field(ge=0, le=1)] | None = None
    nice: Annotated[int, Field(ge=0, le=19)] = 0
    threads: Annotated[int, Field(ge=1, le=MAX_THREADS)] = 1
    cpus: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(strict=False, min_length=1)] | None = None
    memory_mb: Annotated[float, Field(gt=0)] | None = None
    privacy: PrivacyConfig | None = None
    log: Literal["text", "json"] = "text"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    metrics: Annotated[str, AfterValidator(address)] | None = None
    metrics_beyond_this_device: bool = False


#: Returns the origin of the first of some keys that an option gave: that option, otherwise the file.
_Where = Callable[..., str]


def load_config(
    file: Path | None, options: Mapping[str, Any], settings: Sequence[str] = (), *, try_command: bool = False,
    insecure: bool = False, on_data: Callable[[DataSet], None] = lambda data: None,
) -> dict[str, Any]:  # fmt: skip
    """Check everything that a peer needs, and return the configuration of `p2pclust.peer.main.run_peer`.

    Options replace values of the file, and settings, ``KEY=VALUE`` each, those of both. Relative paths in the file start
    in its folder, where also a command runs that reads the data; those in options start in the current folder. With
    `try_command` such a command is run now. If `insecure`, a peer without keys may listen where others can reach it.
    `on_data` is called with the rows, if they are read.
    """
    document: dict[str, Any] = {} if file is None else read_toml(file)
    folder = Path() if file is None else file.parent
    privacy = document.get("privacy")
    for table, key in [(document, key) for key in (*_FILES, "data", "schema")] + [(privacy, "ledger")]:
        if isinstance(table, dict) and isinstance(table.get(key), str):
            table[key] = str(folder / expanded(table[key]))
    document |= options
    for setting in settings:
        apply_override(document, setting)
    source, said = "options" if file is None else str(file), dict[str, str]()
    if file is not None:  # an option replaces the file's value
        said = {key: "--link" if key == "links" else f"--{key.replace('_', '-')}" for key in options}
        said |= {re.split(r"[.=]", text)[0].strip(): "--set" for text in settings}

    def where(*keys: str) -> str:
        return next((said[key] for key in keys if key in said), source)

    config = validated(PeerConfig, document, source, said)
    joins = dict(entry.split("@", 1) for entry in config.join)
    roster = _check_keys(config, joins, where, insecure=insecure)
    plain = config.model_dump(exclude_none=True, by_alias=True, exclude={"schema_"}) | {"faults": []}
    plain |= {key: str(Path(plain[key]).absolute()) for key in _FILES if key in plain}
    if config.schema_ is not None:
        plain["schema"] = config.schema_.to_dict()
    if "ledger" in plain.get("privacy", {}):
        ledger = Path(plain["privacy"]["ledger"]).absolute()
        if not ledger.parent.is_dir():
            absent = f"the folder {ledger.parent} does not exist: make it first"
            raise UsageError(f"{where('privacy')}: privacy: ledger = {str(ledger)!r}: {absent}")
        plain["privacy"]["ledger"] = str(ledger)
    _check_extras(config, where)
    plain |= {"join": joins, "fitness": config.fitness} | _links(config, roster, where)
    if config.fitness is None:
        known = (config.mains, config.cores, config.up_mbit) != (None, None, None)
        own = fitness(mains=bool(config.mains), cores=config.cores, up_mbit=config.up_mbit)
        plain["fitness"] = own if known else USUAL_FITNESS
    if isinstance(config.data, str):
        plain["data"] = str(Path(config.data).absolute())
        on_data(read_source(plain | {"data": config.data}))
        return plain
    program, cwd = config.data["command"][0], folder.absolute()
    found = cwd / program if "/" in program else shutil.which(program)
    if found is None or shutil.which(str(found)) is None:
        raise UsageError(f"data.command: {program!r}: no such program, or it may not be run: give its path")
    plain["data"] = config.data | {"cwd": str(cwd)}
    if try_command:
        on_data(read_source(plain))
    return plain


def _check_extras(config: PeerConfig, where: _Where) -> None:
    metrics = config.metrics
    if metrics is not None and not config.metrics_beyond_this_device and beyond_this_device(metrics.rpartition(":")[0]):
        raise UsageError(
            f"{where('metrics')}: metrics = {metrics!r}: everyone who can reach this address may read it, without a key: "
            "use 127.0.0.1, or set metrics_beyond_this_device = true"
        )
    asks = config.privacy is not None and Floor.of(config.privacy.model_dump(exclude_none=True)).asks_for_secure
    if asks and config.bundle is None:
        why = "secure sums need keys, and this device has no bundle: `p2pclust keys` makes them"
        raise UsageError(f"{where('privacy')}: privacy: {why}")
    for extra, wanted, module in (("metrics", config.metrics, "prometheus_client"), ("mdns", config.mdns, "zeroconf")):
        if wanted and importlib.util.find_spec(module) is None:
            raise UsageError(f"{where(extra)}: {extra} needs {module}: {install_line(extra)}")


def _links(config: PeerConfig, roster: Roster, where: _Where) -> dict[str, Any]:
    """Return the links that the configuration has: an overlay, this peer's own links, or both."""
    overlay = None
    if config.overlay is not None:
        from p2pclust.overlay.files import read_overlay  # noqa: PLC0415 - few peers have one

        read = read_overlay(config.overlay, roster.names)
        read.require_connected(config.overlay)
        overlay = {name: list(read.neighbours(name)) for name in read.names}
    if config.links is None:
        return {} if overlay is None else {"overlay": overlay}
    for name in config.links:
        if name not in roster.names or name == config.name:
            what = "is this peer itself" if name == config.name else f"is not on fleet roster {roster.serial}"
            raise UsageError(f"{where('links')}: links: {name!r} {what}")
    own = sorted(dict.fromkeys(config.links))
    return {"overlay": {config.name: own} if overlay is None else overlay, "links": own}


def _check_keys(config: PeerConfig, joins: Mapping[str, str], where: _Where, *, insecure: bool) -> Roster:
    """Return the fleet roster; without keys this peer and those in `join`, which must name all others."""
    if config.bundle is None:
        if config.roster is not None:
            why = "without a bundle its signature cannot be checked"
            raise UsageError(f"{where('roster')}: roster = {config.roster!r}: {why}")
        for key, place in (("listen", config.listen), ("control", config.control)):
            if place is not None and not insecure and beyond_this_device(place.rpartition(":")[0]):
                raise UsageError(
                    f"{where(key)}: {key} = {place!r}, and no bundle: everyone who can reach this address could read and "
                    "change everything. Make keys with `p2pclust keys`, or give --insecure"
                )
        roster = insecure_bundle(config.name, dict(joins)).roster
        assert roster is not None, "it is made with one"
        return roster
    if insecure:
        raise UsageError(f"{where('bundle')}: bundle = {config.bundle!r}, and --insecure: choose one")
    bundle = load_bundle(config.bundle)
    roster = newest_roster(bundle, config.bundle, config.roster)
    if bundle.name != config.name:
        other = f"{config.bundle} is the bundle of {bundle.name!r}"
        raise UsageError(f"{where('name', 'bundle')}: name = {config.name!r}, but {other}")
    check_enrolled(bundle, roster)
    if joins and not any(name in roster.names for name in joins):  # some may have been revoked since this was written
        raise UsageError(f"{where('join')}: join: {next(iter(joins))!r} is not on fleet roster {roster.serial}")
    return roster
