"""The devices of a fleet as its inventory lists them, and what each host is sent: the plan and the files that changed.

`p2pclust.cli.fleet.inventory` reads and checks the file; these are plain values.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from p2pclust.errors import DataError

__all__ = ["Device", "Host", "Inventory", "pack", "peer_toml", "plan", "print_of"]

#: What a running peer learns from others anyway. It is written down for its next life, but is no reason to end this one.
_NO_REASON: Final = ("join",)


@dataclass(frozen=True)
class Host:
    """A machine that peers run on, and how it is reached."""

    name: str
    #: Where `ssh` connects to; None: this machine.
    ssh: str | None
    #: The Python that has p2pclust, and the folder in which the fleet lives there.
    python: str
    state_dir: str
    #: Further arguments of `ssh`, and the environment of all that runs there.
    ssh_options: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Device:
    """One peer of the fleet."""

    name: str
    host: str
    group: str
    #: Its configuration, as `p2pclust peer --config` takes it; files by their names in the peer's folder on the host.
    config: Mapping[str, Any]
    #: What is copied into that folder: the name there, and the file here.
    files: Mapping[str, Path]


@dataclass(frozen=True)
class Inventory:
    """A fleet."""

    path: Path
    keys: Path
    roster: Path
    hosts: Mapping[str, Host]
    devices: tuple[Device, ...]
    #: A peer that is not linked to its neighbours so long after its start is late.
    late_s: float = 30.0

    def on(self, host: str) -> tuple[Device, ...]:
        """The devices of one host, in the order of the file."""
        return tuple(device for device in self.devices if device.host == host)


def peer_toml(config: Mapping[str, Any]) -> str:
    """Write a peer's configuration: text, numbers, truth values, lists of these, and tables of these.

    Examples
    --------
    >>> print(peer_toml({"name": "a", "join": ["b@h:1"], "fitness": 0.5}), end="")
    name = "a"
    join = ["b@h:1"]
    fitness = 0.5
    """
    return "".join(f"{key} = {_toml(value)}\n" for key, value in config.items() if value is not None)


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(str(key))} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    # What JSON writes of text and numbers is TOML, except for one letter that TOML wants escaped.
    return json.dumps(value).replace("\x7f", "\\u007f")


def print_of(device: Device, host: Host) -> str:
    """Digest all that a peer is started with; another digest is a reason to start it again.

    Raises
    ------
    DataError
        If a file that is to be copied cannot be read.
    """
    config = {key: value for key, value in device.config.items() if key not in _NO_REASON}
    digest = hashlib.sha256()
    for part in (peer_toml(config), host.python, json.dumps(dict(host.environment), sort_keys=True)):
        digest.update(part.encode() + b"\0")
    for name, path in sorted(device.files.items()):
        digest.update(name.encode() + b"\0")
        try:
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror}): {device.name} needs it") from None
    return digest.hexdigest()[:32]


def plan(devices: Sequence[Device], prints: Mapping[str, str], down_s: float) -> bytes:
    """Write the plan of a host's supervisor."""
    peers = {
        device.name: {
            "command": ["-m", "p2pclust", "peer", "--config", f"peers/{device.name}/peer.toml"],
            "print": prints[device.name],
            "class": device.group,
        }
        for device in devices
    }
    return json.dumps({"down_s": down_s, "peers": peers}, indent=1).encode() + b"\n"


def pack(
    stream: IO[bytes], inventory: Inventory, devices: Sequence[Device], changed: Collection[str], plan_: bytes
) -> None:
    """Write the archive that brings a host to its plan.

    Every device's configuration and keys are in it, and the roster; other files of those only that `changed`. Secrets are
    for their owner's eyes only, and the plan comes last.
    """
    with tarfile.open(fileobj=stream, mode="w|") as archive:
        _add(archive, "roster.json", inventory.roster.read_bytes(), 0o644)
        for device in devices:
            home = f"peers/{device.name}"
            _add(archive, f"{home}/peer.toml", peer_toml(device.config).encode(), 0o600)
            for name, path in device.files.items():
                if name.endswith(".bundle"):
                    _add(archive, f"{home}/{name}", path.read_bytes(), 0o600)
                elif device.name in changed:
                    with path.open("rb") as file:
                        information = tarfile.TarInfo(f"{home}/{name}")
                        information.size, information.mode = path.stat().st_size, 0o600
                        archive.addfile(information, file)
        _add(archive, "plan.json", plan_, 0o600)


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    information = tarfile.TarInfo(name)
    information.size, information.mode = len(content), mode
    archive.addfile(information, io.BytesIO(content))
