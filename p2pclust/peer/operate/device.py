"""The device of a peer: its fitness to aggregate, and limits on what the peer may use of it."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from p2pclust.errors import UsageError

_CGROUPS: Final = Path("/sys/fs/cgroup")
_OWN_GROUPS: Final = Path("/proc/self/cgroup")
_CLONE_NEWNET = 0x40000000  # of setns(2), which Python has from 3.12 on
_SPARE_MB = 30  # for the stacks of three threads and a first round: a peer needs at least this
USUAL_FITNESS: Final = 0.5  # of a device about which nothing is known; a peer that has it publishes none


def fitness(*, mains: bool, cores: int | None, up_mbit: float | None = None) -> float:
    """Return the fitness of a device to aggregate, 0 to 1: mains power counts 0.4, up to eight cores 0.3, its up-link 0.3.

    An aggregator sends to all peers. From 0.1 to 100 Mbit/s each factor of ten counts the same; without a rate the
    up-link counts as fast.
    """
    wide = 1.0 if up_mbit is None else min(max((math.log10(up_mbit) + 1) / 3, 0.0), 1.0)
    return 0.4 * mains + 0.3 * min(cores or 1, 8) / 8 + 0.3 * wide


def restrain(config: Mapping[str, Any]) -> None:
    """Apply the limits of a configuration to this process and those that it starts; without a key there is no limit.

    ``nice`` is its nice value, 0 to 19; ``cpus`` the processors that it may run on; ``memory_mb`` its limit of private
    writable memory, in 10^6 bytes; ``network_namespace`` the file of a namespace to enter.

    The limit of memory is ``RLIMIT_DATA``: the heap, the stacks and the writable private mappings. One of address space
    (``RLIMIT_AS``) would also count libraries and reservations, of which NumPy has many. An allocation beyond it fails, and
    the peer ends with exit code 3.
    """
    if config.get("nice"):
        os.setpriority(os.PRIO_PROCESS, 0, min(os.getpriority(os.PRIO_PROCESS, 0) + int(config["nice"]), 19))
    if (cpus := config.get("cpus")) is not None:
        if sys.platform != "linux":
            raise UsageError("cpus: this system cannot restrict a process to some processors: omit it")
        there = sorted(os.sched_getaffinity(0))
        absent = [cpu for cpu in cpus if cpu not in there]
        if absent:
            raise UsageError(f"cpus: no processor {absent[0]} here: expected some of {', '.join(map(str, there))}")
        os.sched_setaffinity(0, cpus)
    if (memory_mb := config.get("memory_mb")) is not None:
        if sys.platform != "linux":
            raise UsageError("memory_mb: only Linux limits a process's private memory: omit it")
        import resource  # noqa: PLC0415 - absent on Windows

        # OpenBLAS allocates its buffers at the first product, and ends the process if it cannot: do it now.
        square = np.ones((256, 256))
        square @ square
        least = taken_mb() + _SPARE_MB
        if memory_mb < least:
            raise UsageError(f"memory_mb = {memory_mb:g}: a peer without rows takes about {least:.0f}: expected more")
        limit, hard = int(memory_mb * 1e6), resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
    if (namespace := config.get("network_namespace")) is not None:  # all threads that are started later are in it, too
        with open(namespace, "rb") as file:
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET):
                why = os.strerror(ctypes.get_errno())
                raise UsageError(f"network_namespace {namespace}: cannot be entered ({why}): root is required")


def memory_bytes(memory_mb: float | None) -> float:
    """Return how much memory a peer may use: its own limit, that of its service, or what the device has."""
    least = math.inf if memory_mb is None else memory_mb * 1e6
    with contextlib.suppress(AttributeError, OSError, ValueError):
        least = min(least, float(os.sysconf("SC_PHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE"))
    names = _OWN_GROUPS.read_text().splitlines() if _OWN_GROUPS.exists() else []
    for name in (line.removeprefix("0::") for line in names if line.startswith("0::")):
        folder = _CGROUPS / name.strip("/")
        for one in (folder, *folder.parents):
            with contextlib.suppress(OSError, ValueError):  # "max", or a group that is not visible here
                least = min(least, float((one / "memory.max").read_text()))
    return least


def taken_mb() -> float:
    """Return the memory of this process that counts for the limit, in 10^6 bytes; NaN if it is unknown."""
    return (kernel_kib("VmData") or math.nan) * 1024 / 1e6


def kernel_kib(figure: str) -> float | None:
    """Return a figure of this process's memory in KiB, as Linux names it; None if the system does not report it."""
    status = Path("/proc/self/status")
    for line in status.read_text().splitlines() if status.exists() else ():
        if line.startswith(f"{figure}:"):
            return float(line.split()[1])
    return None


def max_rss_mb() -> float:
    """Return the highest resident memory of this process in MB.

    `ru_maxrss` is the fallback only: on Linux a new program inherits it from its parent. It counts KiB, on macOS bytes.
    """
    known = kernel_kib("VmHWM")
    if known is None:
        import resource  # noqa: PLC0415 - absent on Windows

        known = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "darwin" else 1)
    return known / 1024
