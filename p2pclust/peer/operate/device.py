"""The device that a peer runs on: how fit it is to aggregate, and how much of it the peer may take."""

from __future__ import annotations

import ctypes
import math
import os
import resource
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from p2pclust.errors import UsageError

__all__ = ["fitness", "restrain", "taken_mb"]

_CLONE_NEWNET = 0x40000000  # of setns(2), which Python has from 3.12 on
_SPARE_MB = 30  # for the stacks of three threads and a first round: with less a peer could not begin


def fitness(*, mains: bool, cores: int | None, up_mbit: float | None = None) -> float:
    """Return how well a device would aggregate, 0 to 1: mains power counts 0.4, up to eight cores 0.3, its up-link 0.3.

    Who aggregates sends to everybody. From 0.1 to 100 Mbit/s each factor of ten counts alike.

    Parameters
    ----------
    mains : bool
        Whether it has mains power.
    cores : int or None
        How many cores it has; None counts as one.
    up_mbit : float, optional
        How wide its up-link is, in 10^6 bits per second, above 0. Unless it is told, it is not what holds messages up.

    Examples
    --------
    >>> fitness(mains=True, cores=8)
    1.0
    >>> round(fitness(mains=False, cores=None), 4)
    0.3375
    >>> round(fitness(mains=True, cores=8, up_mbit=1.0), 4)
    0.8
    """
    wide = 1.0 if up_mbit is None else min(max((math.log10(up_mbit) + 1) / 3, 0.0), 1.0)
    return 0.4 * mains + 0.3 * min(cores or 1, 8) / 8 + 0.3 * wide


def restrain(config: Mapping[str, Any]) -> None:
    """Keep this process, and all that it starts, within what its configuration lets it take.

    Parameters
    ----------
    config : mapping
        ``nice``: how far it steps back behind other processes, 0 to 19. ``cpus``: the processors that it may run on.
        ``memory_mb``: how much private writable memory it may have, in 10^6 bytes. ``network_namespace``: the file of
        the one that it is to live in. What is absent or None is not limited.

    Raises
    ------
    UsageError
        If this system cannot do that, there is no such processor, or a peer could not live within the memory.

    Notes
    -----
    The limit of memory is ``RLIMIT_DATA``: the heap, the stacks and the private mappings that may be written to, whether
    they were touched yet or not. Address space (``RLIMIT_AS``) would also count libraries and reservations, of which
    NumPy has a lot and pays nothing. It is a limit for each process; what a command takes that reads the data
    counts by itself. An allocation beyond it fails, and the peer says so and ends with exit code 3. What OpenBLAS needs is
    allocated beforehand: it would end the process without a word of ours, as libzmq does when it is refused memory.

    Examples
    --------
    >>> restrain({"nice": 0, "cpus": None})
    """
    if config.get("nice"):
        os.setpriority(os.PRIO_PROCESS, 0, min(os.getpriority(os.PRIO_PROCESS, 0) + int(config["nice"]), 19))
    if config.get("cpus") is not None:
        _keep_to(tuple(config["cpus"]))
    if config.get("memory_mb") is not None:
        _limit_memory(float(config["memory_mb"]))
    if config.get("network_namespace") is not None:
        _enter(str(config["network_namespace"]))


def taken_mb() -> float:
    """Return how much memory of the limited kind this process has now, in 10^6 bytes; NaN where that cannot be told."""
    status = Path("/proc/self/status")
    for line in status.read_text().splitlines() if status.exists() else ():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024 / 1e6
    return float("nan")


def _enter(network_namespace: str) -> None:
    """Live in that namespace from now on, with all threads that are still to come."""
    with open(network_namespace, "rb") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET):
            why = os.strerror(ctypes.get_errno())
            raise UsageError(f"network_namespace {network_namespace}: cannot be entered ({why}): it takes root")


def _keep_to(cpus: tuple[int, ...]) -> None:
    if sys.platform != "linux":
        raise UsageError("cpus: this system cannot keep a process to some processors: leave it out")
    there = sorted(os.sched_getaffinity(0))
    absent = [cpu for cpu in cpus if cpu not in there]
    if absent:
        raise UsageError(f"cpus: no processor {absent[0]} here: expected some of {', '.join(map(str, there))}")
    os.sched_setaffinity(0, cpus)


def _limit_memory(memory_mb: float) -> None:
    if sys.platform != "linux":
        raise UsageError("memory_mb: only Linux counts a process's private memory: leave it out")
    # OpenBLAS takes its buffers at the first product, and ends the process if it cannot: let it take them now.
    square = np.ones((256, 256))
    square @ square
    least = taken_mb() + _SPARE_MB
    if memory_mb < least:
        raise UsageError(f"memory_mb = {memory_mb:g}: a peer without rows takes about {least:.0f}: expected more")
    limit = int(memory_mb * 1e6)
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
