"""``p2pclust fleet restart``, ``stop`` and ``fault``: control single peers of an inventory by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from p2pclust.cli.show.output import complain, put_json, stdout
from p2pclust.errors import FleetError

if TYPE_CHECKING:
    from p2pclust.fleet.hosts.inventory import Host, Inventory

__all__ = ["AsJson", "InventoryPath", "fault", "restart", "stop"]

#: Extra time for a host to connect and answer.
_SLACK_S = 60.0

InventoryPath = Annotated[
    Path, typer.Argument(metavar="INVENTORY.toml", help="The fleet's devices and where they are.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="Peers of the inventory.")]
Deadline = Annotated[float, typer.Option(metavar="S", min=0, help="A peer that has not left by then is killed.")]


class Fault(StrEnum):
    """The faults of a drill."""

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
    inventory: InventoryPath,
    names: Names,
    wait: Annotated[
        float, typer.Option(metavar="S", min=0, help="How long to wait for peers to report that they are ready.")
    ] = 20.0,
    deadline: Deadline = 10.0,
    as_json: AsJson = False,
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
    name: Annotated[str, typer.Argument(metavar="NAME", help="A peer of the inventory.")],
    what: Annotated[
        Fault,
        typer.Argument(
            metavar="FAULT",
            help="kill: end it as a crash would; its supervisor starts it again. pause: stop it like a device that hangs. "
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
    """Do this on all hosts that have one of these peers, and show the outcome."""
    from p2pclust.cli.fleet.inventory import check_names, load_inventory  # noqa: PLC0415
    from p2pclust.cli.fleet.view import is_down  # noqa: PLC0415
    from p2pclust.fleet.hosts.remote import ask, everywhere  # noqa: PLC0415

    inventory = load_inventory(path, to_start=False)
    check_names(inventory, names)
    wanted = _by_host(inventory, names)

    def do(host: Host) -> dict[str, Any]:
        options = ["--wait", f"{wait_s:g}", "--deadline", f"{deadline_s:g}"]
        return ask(host, verb, [*wanted[host.name], *options], timeout_s=wait_s + deadline_s + _SLACK_S)

    answers = everywhere([inventory.hosts[host] for host in wanted], do)
    failed = {host: str(answer) for host, answer in answers.items() if isinstance(answer, FleetError)}
    answered = {host: answer for host, answer in answers.items() if not isinstance(answer, FleetError)}
    refused = {name: f"{name}: {why}" for answer in answered.values() for name, why in answer["refused"].items()}
    peers = [(host, name, peer) for host, answer in answered.items() for name, peer in answer["peers"].items()]
    down = verb == "restart" and not refused and any(is_down(peer) for _, _, peer in peers)
    if as_json:
        shown = {name: _shown(host, peer) for host, name, peer in peers}
        put_json({"well": not (failed or refused or down), "errors": {**failed, **refused}, "peers": shown})
    else:
        _report(verb, answered)
        for line in (*failed.values(), *refused.values()):
            complain(line)
    if failed or refused or down:
        raise typer.Exit(3 if failed or down else 2)


def _shown(host: str, peer: Mapping[str, Any]) -> dict[str, Any]:
    """Return a peer's entry for ``--json``, with the keys of `fleet status`."""
    keys = ("status", "restarts", "ended")
    return {"host": host, "pid": peer["pid"] or None} | {key: peer[key] for key in keys}


def _by_host(inventory: Inventory, names: Sequence[str]) -> dict[str, list[str]]:
    """Return the names of these peers by host."""
    hosts: dict[str, list[str]] = {}
    for device in inventory.devices:
        if device.name in names:
            hosts.setdefault(device.host, []).append(device.name)
    return hosts


def _report(verb: str, answered: Mapping[str, Mapping[str, Any]]) -> None:
    from p2pclust.cli.fleet.view import how  # noqa: PLC0415

    console = stdout()
    for host, answer in answered.items():
        for name, peer in {} if answer["refused"] else answer["peers"].items():
            after = how(peer) if verb == "restart" else ""
            console.print(f"{name} on {host}: {_DONE[verb]}{after}", soft_wrap=True)
