"""A fleet of processes that have a network namespace and an address each, like devices on one switch.

A run uses its own namespaces only, also for the bridge that joins them: it does not touch this machine's network, no device
reaches that network, and the addresses cannot collide. The names contain the process id of the run and the instant at which
that process began; the next run removes the namespaces of runs that were killed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from p2pclust.errors import FleetError, UsageError
from p2pclust.fleet.driver import Driver
from p2pclust.fleet.processes.fleet import ProcessFleet
from p2pclust.fleet.run_async import run_async
from p2pclust.fleet.spec import FleetResult, FleetSpec, OnEvent, PeerSpec

__all__ = ["DeviceNetwork", "carry_out", "remove_leftovers", "require"]

_FOLDER: Final = Path("/run/netns")
_NAME: Final = re.compile(r"p2pclust-(\d+)-(\d+)-(?:\d+|hub)")
_PORT: Final = 5701
_MOST: Final = 1000  # a bridge of Linux has 1023 ports
_ANSWER_S: Final = 30.0


def carry_out(spec: FleetSpec, on_event: OnEvent) -> FleetResult:
    """Run the spec on processes in namespaces of their own, and remove these in every case.

    Raises
    ------
    FleetError
        If the fleet did not even start.
    UsageError
        If namespaces cannot be made here, or a job is not meant for so many peers.
    """
    spec.refuse_floods()
    require()
    remove_leftovers()
    with contextlib.ExitStack() as stack:
        directory = spec.directory
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="p2pclust-")))
        network = stack.enter_context(DeviceNetwork(sorted(peer.name for peer in spec.peers)))
        return run_async(Driver(_NamespaceFleet(spec, directory, on_event, network)).run())


def require() -> None:
    """Check that network namespaces can be made.

    Raises
    ------
    UsageError
        If they cannot; one line says what is missing.
    """
    if shutil.which("ip") is None:
        raise UsageError("the namespaces backend needs the command ip: install iproute2, or choose --backend processes")
    probe = f"{_prefix()}-0"
    try:
        _ip(f"netns add {probe}")
        _ip(f"-n {probe} link set lo up")
    except FleetError as error:
        raise UsageError(
            "the namespaces backend makes network namespaces, which needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN): "
            f"choose --backend processes ({error})"
        ) from None
    finally:
        _remove(probe)


def remove_leftovers() -> tuple[str, ...]:
    """Remove the namespaces of runs that no longer exist; return their names, sorted."""
    names = sorted(entry.name for entry in _FOLDER.iterdir()) if _FOLDER.is_dir() else []
    found = tuple(name for name in names if (match := _NAME.fullmatch(name)) and not _runs(int(match[1]), match[2]))
    for name in found:
        _remove(name)
    return found


class DeviceNetwork:
    """One namespace per device, joined by a bridge in one more, while the ``with`` block lasts.

    Parameters
    ----------
    names : sequence of str
        The devices.

    Attributes
    ----------
    addresses : dict of str to str
        ``"host:port"`` of each.
    paths : dict of str to str
        The file through which a process enters the namespace of each device.

    Raises
    ------
    UsageError
        If there are more devices than a bridge has ports.
    """

    def __init__(self, names: Sequence[str]) -> None:
        if len(names) > _MOST:
            raise UsageError(f"{len(names)} devices: the namespaces backend joins at most {_MOST}")
        self._hub = f"{_prefix()}-hub"
        self._spaces = {name: f"{_prefix()}-{number}" for number, name in enumerate(names, start=1)}
        hosts = {name: f"10.213.{number // 250}.{number % 250 + 1}" for number, name in enumerate(names, start=1)}
        self._hosts = hosts
        self.addresses = {name: f"{host}:{_PORT}" for name, host in hosts.items()}
        self.paths = {name: str(_FOLDER / space) for name, space in self._spaces.items()}

    def __enter__(self) -> DeviceNetwork:
        """Make the network.

        Raises
        ------
        FleetError
            If that fails; what was made so far is removed.
        """
        try:
            _ip(f"netns add {self._hub}")
            _ip(f"-n {self._hub} link add hub type bridge")
            _ip(f"-n {self._hub} link set hub up")
            for number, (name, space) in enumerate(self._spaces.items()):
                _ip(f"netns add {space}")
                _ip(f"-n {self._hub} link add d{number} type veth peer name eth0 netns {space}")
                _ip(f"-n {self._hub} link set d{number} master hub up")
                _ip(f"-n {space} address add {self._hosts[name]}/16 dev eth0")
                _ip(f"-n {space} link set lo up")
                _ip(f"-n {space} link set eth0 up")
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def remove(self) -> None:
        """Remove the network; a second call does nothing."""
        for space in (*self._spaces.values(), self._hub):
            _remove(space)


class _NamespaceFleet(ProcessFleet):
    def __init__(self, spec: FleetSpec, directory: Path, on_event: OnEvent, network: DeviceNetwork) -> None:
        super().__init__(spec, directory, on_event)
        self._network = network

    def _addresses(self, names: Sequence[str]) -> dict[str, str]:
        return dict(self._network.addresses)

    def _config(self, peer: PeerSpec, keys: Path, addresses: dict[str, str]) -> dict[str, Any]:
        return super()._config(peer, keys, addresses) | {"network_namespace": self._network.paths[peer.name]}


def _prefix() -> str:
    return f"p2pclust-{os.getpid()}-{_began(os.getpid())}"


def _runs(pid: int, began: str) -> bool:
    """Whether the process that began at this instant still runs; its id may have been reused."""
    return _began(pid) == began


def _began(pid: int) -> str:
    """Return when a process began, in kernel ticks; empty if it does not exist or is a zombie."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    fields = line.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]


def _remove(space: str) -> None:
    if (_FOLDER / space).exists():
        try:
            _ip(f"netns delete {space}")
        except FleetError:
            if (_FOLDER / space).exists():  # otherwise another run removed it at the same moment
                raise


def _ip(arguments: str) -> None:
    done = subprocess.run(["ip", *arguments.split()], capture_output=True, text=True, timeout=_ANSWER_S, check=False)
    if done.returncode:
        raise FleetError(f"ip {arguments}: {done.stderr.strip() or f'exit code {done.returncode}'}")
