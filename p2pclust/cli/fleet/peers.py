"""``p2pclust fleet restart``, ``stop`` and ``fault``: control single peers of an inventory by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from p2pclust.cli.fleet.view import how, is_down
from p2pclust.cli.show.options import AsJson, argument, option
from p2pclust.cli.show.output import complain, put, put_json
from p2pclust.errors import UsageError
from p2pclust.tools.spelling import nearest

if TYPE_CHECKING:
    from p2pclust.hosts.inventory import Host, Inventory

#: Extra time for a host to connect, copy and answer.
SLACK_S = 60.0

InventoryPath = Annotated[Path, argument("INVENTORY.toml", "The fleet's devices and where they are.")]
Names = Annotated[list[str], argument("NAME...", "Peers of the inventory.")]
Deadline = Annotated[float, option("S", "A peer that has not left by then is killed.", min=0)]
Wait = Annotated[float, option("S", "How long to wait for peers to report that they are ready.", min=0)]


def load(path: Path, names: Sequence[str] = ()) -> Inventory:
    """Read the inventory of a fleet that was started; these names must be in it."""
    from p2pclust.cli.fleet.inventory import load_inventory  # noqa: PLC0415

    inventory = load_inventory(path, to_start=False)
    known = [device.name for device in inventory.devices]
    for name in names:
        if name not in known:
            near = nearest(name, known)
            meant = f"did you mean {near!r}?" if near else f"expected one of {', '.join(known)}"
            raise UsageError(f"{path}: there is no device {name!r}: {meant}")
    return inventory


def end_with(answer: Mapping[str, Any], show: Callable[[], None], *, as_json: bool, code: int = 3) -> None:
    """Print the answer of a command as JSON, or show it and its errors; exit with the code unless all is well."""
    if as_json:
        put_json(answer)
    else:
        show()
        for line in answer["errors"].values():
            complain(line)
    if not answer["well"]:
        raise typer.Exit(code)


class Drill(StrEnum):
    KILL = "kill"
    PAUSE = "pause"
    RESUME = "resume"


_DONE = {
    "restart": "started again",
    "stop": "stopped: `p2pclust fleet restart` starts it again",
    "kill": "killed: its supervisor starts it again",
    "pause": "paused: `resume` continues it",
    "resume": "continued",
}


def restart(
    inventory: InventoryPath, names: Names, wait: Wait = 20.0, deadline: Deadline = 10.0, as_json: AsJson = False
) -> None:
    """End peers and start them again, with the installed release; start those that were stopped or given up.

    Each continues from its store. Nothing is copied: use `fleet up` after changes of the inventory. Exits with 3 if the
    fleet is not up, or a peer does not run afterwards.

    \b
    Examples:
      p2pclust fleet restart fleet.toml meter-01
      p2pclust fleet restart fleet.toml meter-01 meter-02 --wait 60
    """
    _do("restart", inventory, names, as_json=as_json, wait_s=wait, deadline_s=deadline)


def stop(inventory: InventoryPath, names: Names, deadline: Deadline = 10.0, as_json: AsJson = False) -> None:
    """End peers, and keep them down until `fleet restart`.

    The others continue without them. `fleet up` leaves them down, too; after `fleet down` it starts them again. Exits with
    3 if the fleet is not up, and with 2 if a peer is already stopped: then nothing is done on its host.

    \b
    Examples:
      p2pclust fleet stop fleet.toml meter-01
      p2pclust fleet stop fleet.toml meter-01 meter-02 --json
    """
    _do("stop", inventory, names, as_json=as_json, deadline_s=deadline)


def fault(
    inventory: InventoryPath,
    name: Annotated[str, argument("NAME", "A peer of the inventory.")],
    what: Annotated[
        Drill,
        argument(
            "FAULT",
            "kill: end it as a crash would; its supervisor starts it again. pause: stop it like a device that hangs. "
            "resume: continue it.",
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Simulate a failure of one peer in a drill, to see how the fleet reacts.

    Exits with 3 if the fleet is not up, and with 2 if the peer does not run, is paused already, or is not paused.

    \b
    Examples:
      p2pclust fleet fault fleet.toml meter-02 kill
      p2pclust fleet fault fleet.toml meter-02 pause
      p2pclust fleet fault fleet.toml meter-02 resume
    """
    _do(what.value, inventory, [name], as_json=as_json)


def _do(
    verb: str, path: Path, names: Sequence[str], *, as_json: bool, wait_s: float = 0.0, deadline_s: float = 0.0
) -> None:
    from p2pclust.hosts.remote import ask, on_hosts  # noqa: PLC0415

    inventory = load(path, names)
    wanted: dict[str, list[str]] = {}
    for device in inventory.devices:
        if device.name in names:
            wanted.setdefault(device.host, []).append(device.name)

    def do(host: Host) -> dict[str, Any]:
        options = ["--wait", f"{wait_s:g}", "--deadline", f"{deadline_s:g}"]
        return ask(host, verb, [*wanted[host.name], *options], timeout_s=wait_s + deadline_s + SLACK_S)

    answered, failed = on_hosts([inventory.hosts[host] for host in wanted], do)
    refused = {name: f"{name}: {why}" for answer in answered.values() for name, why in answer["refused"].items()}
    peers = [(host, name, peer) for host, answer in answered.items() for name, peer in answer["peers"].items()]
    down = verb == "restart" and not refused and any(is_down(peer) for _, _, peer in peers)
    shown = {
        name: {"host": host, "pid": peer["pid"] or None} | {key: peer[key] for key in ("status", "restarts", "ended")}
        for host, name, peer in peers
    }  # with the keys of `fleet status`
    answer = {"well": not (failed or refused or down), "errors": {**failed, **refused}, "peers": shown}

    def report() -> None:
        for host, name, peer in peers:
            if not answered[host]["refused"]:
                after = how(peer) if verb == "restart" else ""
                put(f"{name} on {host}: {_DONE[verb]}{after}")

    end_with(answer, report, as_json=as_json, code=3 if failed or down else 2)
