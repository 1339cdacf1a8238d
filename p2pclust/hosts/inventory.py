"""The devices of a fleet as its inventory lists them, and the archive for each host: the plan and the changed files."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from p2pclust.errors import DataError
from p2pclust.tools.toml_files import toml_lines

#: Keys that a running peer learns from others anyway: a change is written for its next life, but does not end this one.
_NO_REASON: Final = ("join",)


@dataclass(frozen=True)
class Host:
    """A machine that runs peers, and how to reach it."""

    name: str
    ssh: str | None  # the destination of `ssh`; None: this machine
    python: str  # the Python that has p2pclust
    state_dir: str  # the folder of the fleet on that machine
    ssh_options: tuple[str, ...] = ()  # further arguments of `ssh`
    environment: Mapping[str, str] = field(default_factory=dict)  # of all processes there


@dataclass(frozen=True)
class InventoryDevice:
    """One peer of the fleet."""

    name: str
    host: str
    group: str
    #: Its configuration, as `p2pclust peer --config` takes it; files by their names in the peer's folder on the host.
    config: Mapping[str, Any]
    files: Mapping[str, Path]  # files that are copied into that folder: the name there, and the path here


@dataclass(frozen=True)
class Inventory:
    path: Path
    keys: Path
    roster: Path
    hosts: Mapping[str, Host]
    devices: tuple[InventoryDevice, ...]
    late_s: float = 30.0  # a peer that is not linked to its neighbours so long after its start is reported as late

    def on(self, host: str) -> tuple[InventoryDevice, ...]:
        return tuple(device for device in self.devices if device.host == host)


def print_of(device: InventoryDevice, host: Host) -> str:
    """Return a digest of everything that a peer is started with; if it changes, the peer is started again."""
    config = {key: value for key, value in device.config.items() if key not in _NO_REASON}
    digest = hashlib.sha256()
    for part in (toml_lines(config), host.python, json.dumps(dict(host.environment), sort_keys=True)):
        digest.update(part.encode() + b"\0")
    for name, path in sorted(device.files.items()):
        digest.update(name.encode() + b"\0")
        try:
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror}): {device.name} needs it") from None
    return digest.hexdigest()[:32]


def pack(stream: IO[bytes], inventory: Inventory, prints: Mapping[str, str], changed: Collection[str]) -> None:
    """Write the archive for the host of the devices with these prints: files of those that `changed`, all else of each, and
    at last the plan.
    """
    with tarfile.open(fileobj=stream, mode="w|") as archive:
        _add(archive, "roster.json", inventory.roster.read_bytes(), 0o644)
        for device in (device for device in inventory.devices if device.name in prints):
            home = f"peers/{device.name}"
            _add(archive, f"{home}/peer.toml", toml_lines(device.config).encode(), 0o600)
            for name, path in device.files.items():
                if name.endswith(".bundle"):
                    _add(archive, f"{home}/{name}", path.read_bytes(), 0o600)
                elif device.name in changed:
                    with path.open("rb") as file:
                        information = tarfile.TarInfo(f"{home}/{name}")
                        information.size, information.mode = path.stat().st_size, 0o600
                        archive.addfile(information, file)
        command = ["-m", "p2pclust", "peer", "--config"]
        peers = {n: {"command": [*command, f"peers/{n}/peer.toml"], "print": own} for n, own in prints.items()}
        _add(archive, "plan.json", json.dumps({"peers": peers}, indent=1).encode() + b"\n", 0o600)


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    information = tarfile.TarInfo(name)
    information.size, information.mode = len(content), mode
    archive.addfile(information, io.BytesIO(content))
