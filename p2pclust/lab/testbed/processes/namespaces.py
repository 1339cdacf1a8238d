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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from p2pclust.errors import FleetError, UsageError
from p2pclust.lab.testbed.processes import fleet
from p2pclust.lab.testbed.processes.fleet import DeviceNetwork
from p2pclust.lab.testbed.spec import FleetResult, FleetSpec, OnEvent

_FOLDER: Final = Path("/run/netns")
_NAME: Final = re.compile(r"p2pclust-(\d+)-(\d+)-(?:\d+|hub)")
_PORT: Final = 5701
_MOST: Final = 1000  # a bridge of Linux has 1023 ports
_ANSWER_S: Final = 30.0


def carry_out(spec: FleetSpec, on_event: OnEvent) -> FleetResult:
    """Run the spec on processes in namespaces of their own, and remove these in every case.

    Raise FleetError if the fleet did not even start; UsageError if namespaces cannot be made here, or a job is not meant
    for so many peers.
    """
    spec.refuse_floods()
    require()
    remove_leftovers()
    return fleet.carry_out(spec, on_event, device_network(sorted(peer.name for peer in spec.peers)))


def require() -> None:
    """Check that network namespaces can be made. Raise UsageError if they cannot; one line says what is missing."""
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
    # The id of a process may be in use again: compare the instants, too.
    found = tuple(name for name in names if (match := _NAME.fullmatch(name)) and _began(int(match[1])) != match[2])
    for name in found:
        _remove(name)
    return found


@contextlib.contextmanager
def device_network(names: Sequence[str]) -> Iterator[DeviceNetwork]:
    """Join one namespace per device by a bridge in one more, while the ``with`` block lasts.

    Raise UsageError if there are more devices than a bridge has ports. If making the network fails, remove what was made.
    """
    if len(names) > _MOST:
        raise UsageError(f"{len(names)} devices: the namespaces backend joins at most {_MOST}")
    hub = f"{_prefix()}-hub"
    spaces = {name: f"{_prefix()}-{number}" for number, name in enumerate(names, start=1)}
    hosts = {name: f"10.213.{number // 250}.{number % 250 + 1}" for number, name in enumerate(names, start=1)}
    try:
        _ip(f"netns add {hub}")
        _ip(f"-n {hub} link add hub type bridge")
        _ip(f"-n {hub} link set hub up")
        for number, (name, space) in enumerate(spaces.items()):
            _ip(f"netns add {space}")
            _ip(f"-n {hub} link add d{number} type veth peer name eth0 netns {space}")
            _ip(f"-n {hub} link set d{number} master hub up")
            _ip(f"-n {space} address add {hosts[name]}/16 dev eth0")
            _ip(f"-n {space} link set lo up")
            _ip(f"-n {space} link set eth0 up")
        addresses = {name: f"{host}:{_PORT}" for name, host in hosts.items()}
        yield DeviceNetwork(addresses, {name: str(_FOLDER / space) for name, space in spaces.items()})
    finally:
        for space in (*spaces.values(), hub):
            _remove(space)


def _prefix() -> str:
    return f"p2pclust-{os.getpid()}-{_began(os.getpid())}"


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
