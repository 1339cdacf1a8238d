"""``p2pclust doctor``: check that this machine can run peers, and advise what to change."""

from __future__ import annotations

import os
import platform
import socket
import struct
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median

import typer

from p2pclust import __version__
from p2pclust.cli.show.options import AsJson
from p2pclust.cli.show.output import put_json, stdout
from p2pclust.tools.distribution import DEVICE, extras, install_line, installed
from p2pclust.tools.platforms import is_unix

#: Descriptors of two sockets per neighbour and lane, and of some files: enough for about 100 neighbours.
_FILES = 1024
#: A round syncs once at each peer; a slower disk slows rounds and elections.
_FSYNC_S = 0.05
_PORTS = 20


@dataclass(frozen=True)
class Check:
    """The result of one check; `advice` is empty if it passed."""

    what: str
    found: str
    advice: str = ""

    @property
    def ok(self) -> bool:
        return not self.advice


def doctor(as_json: AsJson = False) -> None:
    """Check that this machine can run peers. Exits with 1 if something should be changed.

    \b
    Example:
      p2pclust doctor
    """
    checks = examine()
    if as_json:
        put_json({"ok": all(check.ok for check in checks), "checks": [asdict(c) | {"ok": c.ok} for c in checks]})
    else:
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        shown = Table.grid(padding=(0, 3, 0, 0))
        shown.add_column(no_wrap=True)
        shown.add_column(no_wrap=True)
        shown.add_column(overflow="fold")
        for check in checks:
            verdict = Text("ok", style="green") if check.ok else Text("warn", style="bold yellow")
            shown.add_row(verdict, check.what, check.found + (f": {check.advice}" if check.advice else ""))
        stdout().print(shown)
    if not all(check.ok for check in checks):
        raise typer.Exit(1)


def examine() -> list[Check]:
    return [_system(), *_software(), _loopback(), _ports(), _files(), *_kernels(), _fsync()]


def _system() -> Check:
    """Say what works on this system; docs/platforms.md has the whole table."""
    system, bits = platform.system(), 8 * struct.calcsize("P")
    found = f"{system} on {platform.machine()}, {bits} bits"
    if not is_unix():
        advice = "no peers and no local fleets: run them in WSL; estimators, run --backend simulated and choose work"
        return Check("system", found, advice)
    if system == "Linux":
        return Check("system", found + ("" if bits == 64 else " (fits; much of what is installed has to be compiled)"))
    return Check("system", f"{found} (not tested; without namespaces, memory_mb and cpus)")


def _software() -> Iterator[Check]:
    import zmq  # noqa: PLC0415

    here = installed()
    name = f"{here[0] if here else 'p2pclust, on the path only'} {__version__}"
    twice = f"they have the same files: pip uninstall --yes {' '.join(here)}, then install the one that you want"
    yield Check("installed", " and ".join(here), twice) if len(here) > 1 else Check("installed", name)

    names = ["numpy", "pyzmq", "msgpack", "cryptography"]
    if here != (DEVICE,):
        names[1:1] = ["scipy", "scikit-learn"]
    found, missing = [f"Python {platform.python_version()}"], []
    for name in names:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    advice = f"{', '.join(missing)} missing: install again with {install_line()}" if missing else ""
    yield Check("versions", ", ".join(found), advice)

    known = extras()
    absent = [name for name in known if not known[name]]
    present = ", ".join(name for name in known if known[name]) or "none"
    yield Check("extras", present + (f" (not here: {', '.join(absent)})" if absent else ""))

    old = zmq.zmq_version_info() < (4, 3)
    yield Check("libzmq", zmq.zmq_version(), "older than 4.3: install a newer pyzmq" if old else "")
    without = "this libzmq was built without it: use the pyzmq wheels of PyPI"
    yield Check("CURVE", "available") if zmq.has("curve") else Check("CURVE", "not available", without)


def _loopback() -> Check:
    try:
        with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as near:
            near.settimeout(2.0)
            began = time.perf_counter()
            near.connect(listener.getsockname())
            far = listener.accept()[0]
            with far:
                far.sendall(b"x")
                near.recv(1)
            return Check("loopback", f"127.0.0.1 answers in {1e3 * (time.perf_counter() - began):.1f} ms")
    except OSError as error:
        return Check("loopback", f"127.0.0.1 does not answer ({error})", "bring the interface lo up: ip link set lo up")


def _ports() -> Check:
    held: list[socket.socket] = []
    try:
        for _ in range(_PORTS):
            held.append(socket.create_server(("127.0.0.1", 0)))
    except OSError as error:
        advice = "end what holds ports, or widen net.ipv4.ip_local_port_range"
        return Check("ports", f"only {len(held)} free ({error.strerror})", advice)
    finally:
        for listener in held:
            listener.close()
    return Check("ports", f"{_PORTS} free ones found")


def _files() -> Check:
    if not is_unix():
        return Check("open files", "not limited by this system")
    import resource  # noqa: PLC0415 - absent on Windows

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = soft == resource.RLIM_INFINITY
    low = not unlimited and soft < _FILES
    found = "no limit" if unlimited else f"{soft} at a time"
    return Check("open files", found, f"raise it for larger fleets: ulimit -n {4 * _FILES}" if low else "")


def _kernels() -> Iterator[Check]:
    import numpy as np  # noqa: F401, PLC0415 - loads its BLAS
    from threadpoolctl import threadpool_info  # noqa: PLC0415

    from p2pclust.clustering.kernels import NUMPY, installed, instruction_sets  # noqa: PLC0415

    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    found = ", ".join(f"{p['internal_api']} {p['version']}, {p['num_threads']} threads" for p in pools)
    yield Check("BLAS", f"{found or 'unknown'} (a peer uses one, for the same bits everywhere)")
    absent = "numpy (with a C compiler at the installation also c1: faster, the same bits on every CPU)"
    only_numpy = installed() == (NUMPY,)
    yield Check("kernel", absent if only_numpy else f"{installed()[0]} with {instruction_sets()[-1]}, numpy")


def _fsync() -> Check:
    folder = Path.cwd()
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".p2pclust-doctor-") as file:
            taken = []
            for _ in range(10):
                began = time.perf_counter()
                file.write(b"x" * 4096)
                file.flush()
                os.fsync(file.fileno())
                taken.append(time.perf_counter() - began)
    except OSError as error:
        advice = "run from a folder that can be written, or name one with --out"
        return Check("disk", f"{folder} cannot be written ({error.strerror})", advice)
    usual = median(taken)
    slow = usual > _FSYNC_S
    advice = "every round waits for it: keep the peers' state directories on a faster disk" if slow else ""
    return Check("disk", f"{1e3 * usual:.2f} ms to sync 4 kB in {folder}", advice)
