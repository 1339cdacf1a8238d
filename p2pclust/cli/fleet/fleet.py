"""``p2pclust fleet``: start the peers of an inventory, here or over SSH, keep them running, show and end them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from p2pclust.cli.fleet import view
from p2pclust.cli.show.options import AsJson, argument, flag, group, option
from p2pclust.cli.show.output import complain, put, put_json, stdout
from p2pclust.errors import UsageError
from p2pclust.hosts import inventory as inventories
from p2pclust.hosts import remote
from p2pclust.tools.spelling import nearest, printable

_RECORD = "hosts.json"
_SLACK_S = 60.0  # extra time for a host to connect, copy and answer
_CHANGES = {
    "new": "started",
    "changed": "started again, its entry changed",
    "again": "tried again",
    "removed": "no longer in the inventory: ended",
    "stopped": "stopped: `p2pclust fleet restart` starts it again",
    "unchanged": "unchanged",
}
_DONE = {
    "restart": "started again",
    "stop": "stopped: `p2pclust fleet restart` starts it again",
    "kill": "killed: its supervisor starts it again",
    "pause": "paused: `resume` continues it",
    "resume": "continued",
}
app = group("""Start the peers of an inventory, on this machine or over SSH; keep them running; show them; end them.

\b
Example:
  p2pclust fleet up fleet.toml
  p2pclust fleet status fleet.toml
""")

InventoryPath = Annotated[Path, argument("INVENTORY.toml", "The fleet's devices and where they are.")]
Names = Annotated[list[str], argument("NAME...", "Peers of the inventory.")]
Deadline = Annotated[float, option("S", "A peer that has not left by then is killed.", min=0)]
Wait = Annotated[float, option("S", "How long to wait for peers to report that they are ready.", min=0)]


class Drill(StrEnum):
    KILL = "kill"
    PAUSE = "pause"
    RESUME = "resume"


@app.command()
def up(
    inventory: InventoryPath,
    wait: Wait = 20.0,
    forget: Annotated[
        list[str] | None,
        option("HOST", "A host that is no longer in the inventory and gone for good; may be repeated."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make the fleet match the inventory. A second run changes nothing.

    Starts new peers, and gives the fleet's roster to running ones. Restarts peers whose entry, keys or copied data changed.
    Ends peers that are no longer in the inventory; their folders stay. Tries peers again that were given up; peers that
    were stopped by name stay down. On each host a small supervisor restarts peers that end, at increasing intervals, and
    gives up a peer that fails five times in a row within ten seconds. Exits with 3 if a host cannot be reached or a peer
    does not run.

    \b
    Example:
      p2pclust fleet up fleet.toml
    """
    from p2pclust.cli.fleet.inventory import load_inventory  # noqa: PLC0415

    loaded = load_inventory(inventory)
    recorded = [host for host in _recorded(loaded) if host.name not in loaded.hosts]
    known = [host.name for host in recorded]
    for name in forget or ():
        if name not in known:
            expected = ", ".join(known) or "none"
            raise UsageError(f"--forget {name}: not a host of former peers: expected one of {expected}")
    gone = [host for host in recorded if host.name not in (forget or ())]
    hosts = [*loaded.hosts.values(), *gone]
    _record(loaded, hosts)  # before anything is started, so that `down` finds it in any case
    done, failed = remote.on_hosts(hosts, lambda host: _bring(host, loaded, wait))
    _record(loaded, [host for host in hosts if host not in gone or host.name in failed])
    for host in gone:
        if host.name in failed:
            failed[host.name] += f" (no longer in the inventory: if it is gone for good, --forget {host.name})"
    well = not failed and not any(view.is_down(peer) for answer in done.values() for peer in answer["peers"].values())

    def show() -> None:
        for host, answer in done.items():
            for change, names in answer["changes"].items():
                for name in names:
                    put(f"{name} on {host}: {_CHANGES[change]}{view.how(answer['peers'].get(name, {}))}")
            roster = answer.get("roster", {})
            if roster.get("newer"):
                put(f"{roster['peer']} on {host}: took roster {roster['serial']}, and passes it on")
            elif "error" in roster:
                put(f"{host}: no peer there took the roster: {roster['error']}")

    _end_with({"well": well, "errors": failed, "hosts": done}, show, as_json=as_json)


@app.command(short_help="End all peers and their supervisors.")
def down(inventory: InventoryPath, deadline: Deadline = 10.0, as_json: AsJson = False) -> None:
    """End all peers of the fleet and their supervisors, by force after the deadline.

    Their folders stay: the next `fleet up` continues from the same stores.

    \b
    Example:
      p2pclust fleet down fleet.toml
    """
    loaded = _load(inventory)
    hosts = list({host.name: host for host in (*_recorded(loaded), *loaded.hosts.values())}.values())
    options = ["--deadline", f"{deadline:g}"]
    done, failed = remote.on_hosts(hosts, lambda host: remote.ask(host, "down", options, timeout_s=deadline + _SLACK_S))
    _record(loaded, [host for host in hosts if host.name in failed])

    def show() -> None:
        for name, answer in done.items():
            put(f"{name}: {len(answer['peers'])} peers have left")

    _end_with({"well": not failed, "errors": failed}, show, as_json=as_json)


@app.command(short_help="Show every peer, and what is wrong.")
def status(inventory: InventoryPath, as_json: AsJson = False) -> None:
    """Show every peer: its host, start, restarts, linked neighbours, and the progress of its job.

    Exits with 0 if all peers are well, and with 3 if a host cannot be reached, or a peer is down, paused or late: not linked
    to all neighbours some time after its start, or two or more rounds behind the others.

    \b
    Example:
      p2pclust fleet status fleet.toml
    """
    loaded = _load(inventory)
    done, failed = remote.on_hosts(list(loaded.hosts.values()), lambda host: remote.ask(host, "status"))
    peers = view.judge(loaded, done)
    well = not failed and all(not peer["trouble"] for peer in peers.values())
    answer = {"well": well, "errors": failed, "peers": peers}
    _end_with(answer, lambda: stdout().print(view.show(peers), soft_wrap=True), as_json=as_json)


@app.command(short_help="Print the logs of one peer or of all.")
def logs(
    inventory: InventoryPath,
    name: Annotated[str | None, argument("[NAME]", "Only this peer; default all.")] = None,
    lines: Annotated[int, option("N", "Number of last lines of each.", min=0)] = 10,
    follow: Annotated[bool, flag("--follow", "Print further lines as they are written, until Ctrl-C.")] = False,
) -> None:
    """Print peers' logs. Without NAME, each line begins with the peer's name, and the supervisors' logs are included.

    \b
    Examples:
      p2pclust fleet logs fleet.toml meter-01 --lines 50
      p2pclust fleet logs fleet.toml --follow
    """
    loaded = _load(inventory, [] if name is None else [name])
    names = [device.name for device in loaded.devices]
    hosts = {device.host: loaded.hosts[device.host] for device in loaded.devices if name in (None, device.name)}
    options = [*([] if name is None else [name]), "--lines", f"{lines}", *(["--follow"] if follow else [])]

    def show_line(host: str, line: str) -> None:
        peer, _, text = line.partition("\t")
        if name is None:
            text = f"{peer if peer in names else f'{host} {peer}'} | {text}"
        typer.echo(printable(text, keep="\t"))

    remote.read_logs(list(hosts.values()), options, show_line)


@app.command(short_help="End peers and start them again.")
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


@app.command(short_help="End peers and keep them down.")
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


@app.command(short_help="Kill, pause or resume one peer in a drill.")
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


def _load(path: Path, names: Sequence[str] = ()) -> inventories.Inventory:
    """Read the inventory of a fleet that was started; these names must be in it."""
    from p2pclust.cli.fleet.inventory import load_inventory  # noqa: PLC0415

    inventory = load_inventory(path, to_start=False)
    known = [device.name for device in inventory.devices]
    for name in names:
        if name not in known:
            near = nearest(name, known)
            meant = f"did you mean {near!r}?" if near else f"expected one of {', '.join(known)}"
            raise UsageError(f"{path}: no device is named {name!r}: {meant}")
    return inventory


def _end_with(answer: Mapping[str, Any], show: Callable[[], None], *, as_json: bool, code: int = 3) -> None:
    """Print the answer of a command as JSON, or show it and its errors; exit with the code unless all is well."""
    if as_json:
        put_json(answer)
    else:
        show()
        for line in answer["errors"].values():
            complain(line)
    if not answer["well"]:
        raise typer.Exit(code)


def _do(
    verb: str, path: Path, names: Sequence[str], *, as_json: bool, wait_s: float = 0.0, deadline_s: float = 0.0
) -> None:
    inventory = _load(path, names)
    wanted: dict[str, list[str]] = {}
    for device in inventory.devices:
        if device.name in names:
            wanted.setdefault(device.host, []).append(device.name)

    options, timeout_s = ["--wait", f"{wait_s:g}", "--deadline", f"{deadline_s:g}"], wait_s + deadline_s + _SLACK_S
    answered, failed = remote.on_hosts(
        [inventory.hosts[host] for host in wanted],
        lambda host: remote.ask(host, verb, [*wanted[host.name], *options], timeout_s=timeout_s),
    )
    refused = {name: f"{name}: {why}" for answer in answered.values() for name, why in answer["refused"].items()}
    peers = [(host, name, peer) for host, answer in answered.items() for name, peer in answer["peers"].items()]
    down = verb == "restart" and not refused and any(view.is_down(peer) for _, _, peer in peers)
    shown = {
        name: {"host": host, "pid": peer["pid"] or None} | {key: peer[key] for key in ("status", "restarts", "ended")}
        for host, name, peer in peers
    }  # with the keys of `fleet status`
    answer = {"well": not (failed or refused or down), "errors": {**failed, **refused}, "peers": shown}

    def report() -> None:
        for host, name, peer in peers:
            if not answered[host]["refused"]:
                after = view.how(peer) if verb == "restart" else ""
                put(f"{name} on {host}: {_DONE[verb]}{after}")

    _end_with(answer, report, as_json=as_json, code=3 if failed or down else 2)


def _bring(host: inventories.Host, inventory: inventories.Inventory, wait_s: float) -> dict[str, Any]:
    devices, there = inventory.on(host.name), remote.ask(host, "status")["peers"]
    if not devices:  # no longer in the inventory
        return {"changes": {"removed": sorted(there)}} | remote.ask(host, "down")
    prints = {device.name: inventories.print_of(device, host) for device in devices}
    changed = [name for name, print_ in prints.items() if there.get(name, {}).get("print") != print_]
    return remote.ask(
        host, "up", ["--wait", f"{wait_s:g}"], lambda stream: inventories.pack(stream, inventory, prints, changed),
        timeout_s=wait_s + _SLACK_S,
    )  # fmt: skip


def _recorded(inventory: inventories.Inventory) -> list[inventories.Host]:
    entries = _records(inventory).get(str(inventory.path.absolute()), [])
    return [inventories.Host(**{**entry, "ssh_options": tuple(entry["ssh_options"])}) for entry in entries]


def _records(inventory: inventories.Inventory) -> dict[str, list[dict[str, Any]]]:
    file = inventory.keys / _RECORD
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def _record(inventory: inventories.Inventory, hosts: Collection[inventories.Host]) -> None:
    from p2pclust.transport.key_files import exclusive, write  # noqa: PLC0415

    with exclusive(inventory.keys, create=False):
        known = _records(inventory) | {str(inventory.path.absolute()): [dataclasses.asdict(host) for host in hosts]}
        kept = {path: entries for path, entries in known.items() if entries}
        write(inventory.keys / _RECORD, json.dumps(kept, indent=1).encode() + b"\n", 0o600)
