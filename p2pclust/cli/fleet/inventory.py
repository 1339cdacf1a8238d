"""The inventory of a fleet: a TOML file with its devices and hosts, checked before a peer is started.

It may set any key of a peer's configuration for all devices, for a class, or for one.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, Field, PlainValidator, model_validator

from p2pclust.cli.fleet.peer_config import PeerConfig, rows_source
from p2pclust.data.schema import read_schema
from p2pclust.errors import UsageError
from p2pclust.hosts.inventory import Host, Inventory, InventoryDevice
from p2pclust.jobs.data_keys import OverlaySpec
from p2pclust.jobs.explain import validated
from p2pclust.jobs.fields import Text, TomlTable, device_name, not_empty, refuse, wrong_value
from p2pclust.overlay import make_overlay
from p2pclust.peer.operate.server import SOCKET
from p2pclust.tools.files import expanded
from p2pclust.tools.spelling import command, did_you_mean
from p2pclust.tools.toml_files import read_toml
from p2pclust.transport.bundle import ROSTER, check_enrolled, load_bundle, load_roster
from p2pclust.transport.keys import load_public_roster

LOCAL = "local"
#: Keys of a peer's configuration that the inventory sets itself.
_DECIDED = ("name", "listen", "join", "roster", "bundle", "state_dir", "timing", "data", "links", "overlay", "class")


def _environment(value: dict[str, str]) -> dict[str, str]:
    for name in value:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise wrong_value('expected names of letters, digits and "_"')
    return value


def _settings(value: dict[str, Any]) -> dict[str, Any]:
    keys = [field.alias or name for name, field in PeerConfig.model_fields.items()]
    known = [key for key in keys if key not in _DECIDED]
    for key in value:
        if key in _DECIDED:
            raise wrong_value(f"{key} is not a setting: the inventory has a place of its own for it")
        if key not in known:
            raise wrong_value(f"unknown key {key!r}: expected {', '.join(known)}")
    return value


Settings = Annotated[dict[str, Any], AfterValidator(_settings)]


class SshTable(TomlTable):
    """``[ssh]``: options of SSH for all hosts, unless a host has its own."""

    config: Text | None = None
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    options: Annotated[tuple[str, ...], Field(strict=False)] = ()
    share_connections: bool = False


class HostTable(TomlTable):
    """``[hosts.NAME]``: a machine; unlisted ones are reached by ``ssh NAME``."""

    ssh: Text | None = None
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    address: Text | None = None
    python: Text | None = None
    state_dir: Text | None = None
    environment: Annotated[dict[str, str], AfterValidator(_environment)] = Field(default_factory=dict)


class ClassTable(TomlTable):
    """``[classes.NAME]``: the common settings of a class of devices."""

    settings: Settings = Field(default_factory=dict)


class DeviceTable(TomlTable):
    """``[[devices]]``: one peer."""

    name: Annotated[str, AfterValidator(device_name)]
    host: Text = LOCAL
    listen: Text | None = None
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    data: Annotated[str | dict[str, Any], PlainValidator(rows_source)]
    send: bool = False
    group: Annotated[Annotated[str, AfterValidator(device_name)] | None, Field(alias="class")] = None
    settings: Settings = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_place(self) -> DeviceTable:
        problems = []
        if (self.listen is None) == (self.port is None):
            problems.append("expected either listen = HOST:PORT or port")
        if self.send and not isinstance(self.data, str):
            problems.append("send is for files: a command runs on the host, and its program must be there")
        refuse(problems)
        return self


class InventoryFile(TomlTable):
    """The keys of the file; `peers/fleet.toml` explains each."""

    keys: Text
    state_dir: Text
    python: Text = "python3"
    timing: Literal["default", "wan", "fast"] = "default"
    overlay: OverlaySpec = OverlaySpec()
    late_s: Annotated[float, Field(gt=0)] = 30.0
    settings: Settings = Field(default_factory=dict)
    ssh: SshTable = SshTable()
    hosts: dict[str, HostTable] = Field(default_factory=dict)
    classes: dict[str, ClassTable] = Field(default_factory=dict)
    devices: Annotated[tuple[DeviceTable, ...], Field(strict=False), AfterValidator(not_empty)]

    @model_validator(mode="after")
    def _names_fit(self) -> InventoryFile:
        problems = [
            f"[[devices]]: the name {name!r} is given {times} times"
            for name, times in Counter(device.name for device in self.devices).items()
            if times > 1
        ]
        known = ", ".join(self.classes)
        problems += [
            f"[[devices]]: {device.name}: [classes.{device.group}] does not exist: expected one of {known}"
            for device in self.devices
            if self.classes and device.group is not None and device.group not in self.classes
        ]
        refuse(problems)
        return self


def load_inventory(path: Path, *, to_start: bool = True) -> Inventory:
    """Read an inventory, and check it as far as that is possible from here. Relative paths in it start in its folder.

    If peers are `to_start`, the keys and the files to be copied must exist.
    """
    file = validated(InventoryFile, read_toml(path), str(path))
    keys = _beside(path, file.keys)
    hosts = {name: _host(path, file, name) for name in dict.fromkeys(device.host for device in file.devices)}
    listens = {}
    for device in file.devices:
        address = file.hosts.get(device.host, HostTable()).address
        address = address or ("127.0.0.1" if device.host == LOCAL else device.host.rpartition("@")[2])
        listens[device.name] = device.listen or f"{address}:{device.port}"
    twice = [place for place, times in Counter(listens.values()).items() if times > 1]
    if twice:
        names = ", ".join(name for name, place in listens.items() if place == twice[0])
        raise UsageError(f"{path}: {names} all listen on {twice[0]}: give each a port of its own")
    links: dict[str, tuple[str, ...]] | None = None
    if file.overlay.kind != "full":
        if file.overlay.trace is not None:
            raise UsageError(f"{path}: [overlay]: trace: scripted links are for scenarios only")
        options = file.overlay.options
        if file.overlay.path is not None:
            options["path"] = str(_beside(path, file.overlay.path))
        # The same overlay each time; other options, or a file, give another one.
        rng = np.random.Generator(np.random.PCG64(0))
        overlay = make_overlay(file.overlay.kind, list(listens), rng, **options)
        links = {name: tuple(overlay.neighbours(name)) for name in overlay.names}
    devices = tuple(_device(path, file, device, listens, links, keys) for device in file.devices)
    if to_start:
        _check_files(path, devices, keys)
    return Inventory(path, keys, keys / ROSTER, hosts, devices, file.late_s)


def controls_of(inventory: Inventory, *, with_key: bool) -> dict[str, str]:
    """Return where the devices can be asked, by name: on this machine at their sockets, elsewhere at control addresses."""
    found = {}
    for device in inventory.devices:
        host = inventory.hosts[device.host]
        if host.ssh is None:
            found[device.name] = str(expanded(host.state_dir) / "peers" / device.name)
        elif with_key and device.config.get("control"):
            found[device.name] = f"{device.name}@{device.config['control']}"
    return found


def address_of(inventory: Inventory, name: str | None, *, with_key: bool) -> str:
    """Return where a device can be asked; without a name the first of those here that run, or else the first one."""
    found, known = controls_of(inventory, with_key=with_key), [device.name for device in inventory.devices]
    if name is not None and name not in known:
        hint = did_you_mean(name, known, f": expected one of {', '.join(known)}")
        raise UsageError(f"{inventory.path}: no device is named {name!r}{hint}")
    if not found or (name or next(iter(found))) not in found:
        who = f"{name} cannot" if name else "none of its devices can"
        control = 'set control = "HOST:PORT" in the settings of a device, and name your key with --bundle'
        raise UsageError(f"{inventory.path}: {who} be asked from here: {control}")
    if name is not None:
        return found[name]
    runs = (address for address in found.values() if (Path(address) / "state" / SOCKET).exists())
    return next(runs, next(iter(found.values())))


def _beside(path: Path, name: str) -> Path:
    return (path.parent / expanded(name)).absolute()


def _host(path: Path, file: InventoryFile, name: str) -> Host:
    table = file.hosts.get(name, HostTable())
    state_dir = table.state_dir or file.state_dir
    if name == LOCAL:
        if table.ssh is not None:
            raise UsageError(f"{path}: [hosts.{LOCAL}]: ssh = {table.ssh!r}: {LOCAL} is this machine; use another name")
        here = str(_beside(path, state_dir))
        return Host(name, None, table.python or sys.executable, here, environment=table.environment)
    target = table.ssh or name
    if target.startswith("-"):
        raise UsageError(f"{path}: [hosts.{name}]: ssh = {target!r}: expected USER@HOST")
    options = [] if file.ssh.config is None else ["-F", str(_beside(path, file.ssh.config))]
    port = table.port or file.ssh.port
    options += [] if port is None else ["-p", str(port)]
    if file.ssh.share_connections:
        options += ["-o", "ControlMaster=auto", "-o", "ControlPath=~/.ssh/p2pclust-%C", "-o", "ControlPersist=60"]
    options += [word for option in file.ssh.options for word in ("-o", option)]
    return Host(name, target, table.python or file.python, state_dir, tuple(options), table.environment)


def _device(
    path: Path, file: InventoryFile, device: DeviceTable, listens: Mapping[str, str],
    links: Mapping[str, tuple[str, ...]] | None, keys: Path,
) -> InventoryDevice:  # fmt: skip
    bundle = keys / f"{device.name}.bundle"
    files = {bundle.name: bundle}
    data = device.data
    if isinstance(data, str):
        if device.send:
            here = _beside(path, data)
            data = f"rows{''.join(here.suffixes[-1:])}"
            files[data] = here
        elif device.host == LOCAL:
            data = str(_beside(path, data))
        elif not data.startswith(("/", "~")):
            expected = f"expected its full path on {device.host}, or send = true"
            raise UsageError(f"{path}: {device.name}: data = {data!r}: {expected}")
    near = [name for name in listens if name != device.name] if links is None else links[device.name]
    join = tuple(f"{other}@{listens[other]}" for other in near)
    common = file.classes.get(device.group or "", ClassTable())
    config = file.settings | common.settings | device.settings
    config |= {
        "name": device.name, "listen": listens[device.name], "join": join, "roster": "../../roster.json",
        "bundle": bundle.name, "data": data, "state_dir": "state", "timing": file.timing,
    }  # fmt: skip
    config |= {} if device.group is None else {"class": device.group}
    config |= {"links": links[device.name]} if links and links[device.name] else {}
    if isinstance(schema := config.get("schema"), str):  # a file here, which each peer is sent with its configuration
        config["schema"] = read_schema(_beside(path, schema)).to_dict()
    validated(PeerConfig, config, f"{path}: {device.name}")
    return InventoryDevice(device.name, device.host, device.group or "", config, files)


def _check_files(path: Path, devices: Sequence[InventoryDevice], keys: Path) -> None:
    lacking = [device.name for device in devices if not device.files[device.config["bundle"]].exists()]
    at = keys.relative_to(Path.cwd()) if keys.is_relative_to(Path.cwd()) else keys
    if (keys / ROSTER).exists():
        public = load_public_roster(keys)
        absent = [name for name in lacking if name not in public.by_name]
        if absent and public.peers:  # `keys revoke` leaves devices so, without keys and not on the roster
            enrol = command("p2pclust", "keys", "device", *absent, "--fleet", at)
            raise UsageError(
                f"{path}: not on fleet roster {public.serial}: {', '.join(absent)}. Revoked devices: remove them from the "
                f"inventory and run `fleet up` again, which ends their peers. New ones: `{enrol}`"
            )
    if lacking:
        first = "" if (keys / ROSTER).exists() else f"`{command('p2pclust', 'keys', 'init', at)}`, then "
        raise UsageError(
            f"{path}: no keys in {at} for {', '.join(lacking)}: make them with {first}"
            f"`{command('p2pclust', 'keys', 'device', *lacking, '--fleet', at)}`, or copy the bundles here"
        )
    roster = None
    for device in devices:
        secret = load_bundle(device.files[device.config["bundle"]])
        if roster is None:
            roster = load_roster(keys / ROSTER, secret.fleet_public)
        check_enrolled(secret, roster)
        for name, file in device.files.items():
            if not file.is_file():
                raise UsageError(f"{path}: {device.name}: {file} is not a file that can be copied as {name}")
