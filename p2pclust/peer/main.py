"""The light entry point of a peer process: runs a peer with a configuration that was checked before.

It imports only what a running k-means peer needs: no torch, scikit-learn, SciPy, NetworkX, pydantic, typer, rich.
"""

from __future__ import annotations

import os

# Before NumPy is imported: one BLAS thread, for the same bits everywhere and for the other processes of the device.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import asyncio
import gc
import json
import signal
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from p2pclust.clustering.kernels import installed
from p2pclust.errors import FleetError, P2PClustError
from p2pclust.peer.core.core import Core, Identity, StoreContents
from p2pclust.peer.core.enrolment import TABLE
from p2pclust.peer.core.round_reports import PHASES
from p2pclust.peer.core.timing import Limits, preset
from p2pclust.peer.operate.device import memory_bytes, restrain
from p2pclust.peer.shell.allow_list import AllowList, begin
from p2pclust.peer.shell.compute import DEATHS_FILE, TaskDeaths, Worker
from p2pclust.peer.shell.logs import Log, Watch
from p2pclust.peer.shell.shell import Shell, exit_code, explain
from p2pclust.peer.shell.signing import RosterSigner
from p2pclust.peer.shell.store import Store
from p2pclust.peer.work.floor import Floor, problem_with_size
from p2pclust.peer.work.rows import load_rows
from p2pclust.protocols.engine.local import Local
from p2pclust.tools.platforms import allow_files
from p2pclust.transport.bundle import Bundle
from p2pclust.transport.links import Receive
from p2pclust.transport.wire import signed
from p2pclust.transport.zeromq import ZmqLinks

if TYPE_CHECKING:
    from p2pclust.peer.operate.services import Services
    from p2pclust.peer.work.secrets import Secrets

_FILES, _FILES_EACH = 30, 2  # that a peer opens at least, and for each link
_GOODBYE_S = 0.5
_UNGUARDED = "no handler decides on incoming connections now, so all are refused: the peer must be restarted"
_SWITCH_S = 0.0005  # how long the loop waits for a worker that runs Python; Python's default is ten times that


class Surroundings:
    """What a peer runs in: on a device its log and its services. The seam at which a testbed attaches its own."""

    #: Whether other processes of the same user may not look at the memory of a peer with keys.
    hides_memory: ClassVar[bool] = True
    #: The phases of rounds that are neither in the log nor read by anything else here.
    unread_phases: tuple[str, ...]

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config
        self._log = log_of(config)
        self.unread_phases = () if self._log.level == "debug" else PHASES
        self._services: Services | None = None

    def watch(self, verb: str, fields: Mapping[str, Any]) -> None:
        """Take a report of the peer."""
        self._log.tell(verb, fields)

    def receiving(self, receive: Receive, rng: np.random.Generator) -> Receive:
        """Return what the links call with each message that has come, which calls `receive`."""
        return receive

    def begin(self, shell: Shell, links: ZmqLinks, worker: Worker, bundle: Bundle) -> None:
        from p2pclust.peer.operate.services import Services  # noqa: PLC0415 - a peer of a testbed has none

        shell.start(links, worker)
        self._services = Services(self.config, shell, links, bundle, self.watch)

    async def close(self) -> None:
        if self._services is not None:
            await self._services.close()

    def failed(self, reason: str) -> None:
        self.watch("failed", {"reason": reason})


def log_of(config: Mapping[str, Any]) -> Log:
    return Log(str(config["name"]), config.get("log", "text"), config.get("log_level", "info"))


def run_peer(config: Mapping[str, Any], attach: type[Surroundings] = Surroundings) -> int:
    """Run one peer until a signal or its surroundings end it; return 0 after that, 3 if the device failed, 1 for a bug.

    `attach` makes what the peer runs in: on a device its log and its services; a testbed has others.

    The configuration has ``name``, ``listen`` ("host:port"), ``join`` (name -> "host:port"), ``bundle`` and perhaps
    ``roster`` (paths), ``data`` (see `load_rows`), ``state_dir``, ``timing`` (a preset), ``fitness`` (0 to 1). Perhaps
    ``control`` ("host:port" for operators); ``nice``, ``cpus`` and ``memory_mb``, see `restrain`; ``threads``, for passes
    over the rows; where peers hold columns, ``ids`` and ``centers`` (NPY files): what the rows are called, and this peer's
    columns of given first centers; ``quiet_s``: how long any peer may be silent by plan; ``cpu_share``: of one processor.
    """
    if not config.get("insecure") and attach.hides_memory:
        hide_memory()
    try:
        restrain(config)
        allow_files(_FILES + _FILES_EACH * len(config.get("join", ())), "this peer and its links", most=True)
        return asyncio.run(_live(config, attach))
    except P2PClustError as error:
        if config.get("log") == "json":
            log_of(config).tell("failed", {"reason": str(error)})
        else:
            sys.stderr.write(f"error: {error}\n")
        return error.exit_code


async def _live(config: Mapping[str, Any], attach: type[Surroundings]) -> int:
    loop = asyncio.get_running_loop()
    timing, limits = preset(config["timing"]).allowing(float(config.get("quiet_s", 0.0))), Limits()
    share, around = float(config.get("cpu_share", 1.0)), attach(config)
    watch = around.watch
    store = Store(Path(config["state_dir"]))
    if store.set_aside is not None:
        watch("store-damaged", {"set_aside": str(store.set_aside)})
    if store.forgot:
        watch("store-forgot", {"reason": "its newest commits are lost", "store": store.forgot})
    bundle, allow_list = begin(config, store, watch)
    # Entropy, not a seed: these draws only spread instants, and two peers must not draw the same.
    rng = np.random.Generator(np.random.PCG64(int.from_bytes(os.urandom(8), "little")))
    shell: Shell

    def receive(source: str, frames: list[bytes], lane: Any) -> None:
        shell.receive(source, frames, lane)

    links = ZmqLinks(bundle, allow_list.admitted, config["listen"], around.receiving(receive, rng))
    links.on_stranger = allow_list.stranger
    links.on_malformed = lambda name, reason: watch("malformed", {"from": name, "reason": reason})
    links.on_crowd = lambda n_connections: watch("crowded", {"connections": n_connections})
    memory = memory_bytes(config.get("memory_mb"))

    def sizes(job: bytes, n_peers: int) -> str:
        return problem_with_size(job, n_peers, worker.data.columns, memory)

    try:
        stored = store.load()
        sign = None if config.get("insecure") else partial(signed, bundle.sign_secret)
        core = Core(_identity(config, links, allow_list, stored), stored, timing, limits, rng, sizes, sign)
        core.unread_phases = around.unread_phases
        shell = Shell(core, store, RosterSigner(bundle, allow_list.admitted), watch, allow_list)
        worker = Worker(
            _loader(config, shell, watch), store, limits, loop, shell.step, shell.failed, share,
            _secrets(config, bundle, store), Floor.of(config.get("privacy", {})),
            TaskDeaths(Path(config["state_dir"], DEATHS_FILE)),
        )  # fmt: skip
        links.on_unguarded = lambda: shell.failed(FleetError(_UNGUARDED))
        watch("started", {"pid": os.getpid(), "address": links.address})
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, shell.leave)
        loop.add_signal_handler(signal.SIGHUP, allow_list.read_again, config["bundle"], config.get("roster") or None)
        sys.setswitchinterval(_SWITCH_S)
        gc.collect()
        gc.freeze()  # imported modules live as long as the process: later collections can skip them
        around.begin(shell, links, worker, bundle)
        allow_list.follow(shell, links.set_roster, shell.signer.set_roster)
        error = await shell.ended
        await around.close()
        shell.close()
        worker.close(_GOODBYE_S)
    finally:
        links.close(_GOODBYE_S)
    store.close()
    if error is not None:
        around.failed(explain(error))
        return exit_code(error)
    watch("left", {})
    return 0


def _secrets(config: Mapping[str, Any], bundle: Bundle, store: Store) -> Secrets | None:
    if config.get("insecure"):
        return None
    from p2pclust.peer.shell.privacy_file import LEDGER, PrivacyFile  # noqa: PLC0415 - of a fleet with keys only
    from p2pclust.peer.work.secrets import Secrets  # noqa: PLC0415
    from p2pclust.protocols.private.ledger import Budget, MostJobs  # noqa: PLC0415

    privacy = config.get("privacy", {})
    ledger = PrivacyFile(
        Path(privacy.get("ledger", Path(config["state_dir"], LEDGER))),
        peer=config["name"],
        budget=Budget.from_dict(privacy["budget"]) if "budget" in privacy else None,
        jobs=MostJobs.from_dict(privacy["jobs"]) if "jobs" in privacy else None,
        fixed=privacy.get("rosters") == "fixed",
        cohort=privacy.get("cohort", 0),
        store=(lambda: store.row("self", LEDGER), lambda mark: store.write([("self", LEDGER, mark)])),
    )
    sign, keep = partial(signed, bundle.sign_secret), bool(privacy.get("keep", False))
    return Secrets(bundle.fleet_public, sign, os.urandom, keep, ledger.reserve)


def _loader(config: Mapping[str, Any], shell: Shell, watch: Watch) -> Callable[[], Local]:
    """Return the function with which the worker reads the rows in its thread; its reports are made on the loop."""
    loop = asyncio.get_running_loop()

    def tell(verb: str, fields: Mapping[str, Any]) -> None:
        if not loop.is_closed():  # the last report of a peer is on its end
            loop.call_soon_threadsafe(lambda: None if shell.ended.done() else watch(verb, fields))

    return partial(load_rows, config, tell, shell.ended.done)


def die_with_parent() -> None:
    """On Linux, end when the parent process does: a stopped process would not notice the end of its input."""
    _prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def hide_memory() -> None:
    """On Linux, leave no core dump, and let other processes of the same user not look: keys are in memory only."""
    _prctl(4, 0)  # PR_SET_DUMPABLE


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _identity(config: Mapping[str, Any], links: ZmqLinks, allow_list: AllowList, stored: StoreContents) -> Identity:
    own = config.get("links")
    rosters, before = allow_list.fleet_rosters(stored.tables.get(TABLE, {}))
    return Identity(
        str(config["name"]), links.address, links.roster.names, dict(config["join"]), float(config["fitness"]),
        config.get("overlay"), None if own is None else tuple(own), bool(config.get("partial_view", False)),
        allow_list.roster.serial, allow_list.keys, rosters, before,
        allow_list.roster.signs_facts, installed()[0],
    )  # fmt: skip


def main() -> int:
    return run_peer(json.loads(Path(sys.argv[1]).read_text()))


if __name__ == "__main__":
    sys.exit(main())
