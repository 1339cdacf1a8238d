"""``p2pclust fleet``: start the peers of an inventory, here or over SSH, keep them running, show and end them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated, Any

import typer

from p2pclust.cli.fleet import peers, view
from p2pclust.cli.fleet.peers import SLACK_S, Deadline, InventoryPath, Wait, end_with, load
from p2pclust.cli.show.options import AsJson, argument, flag, group, option
from p2pclust.cli.show.output import put, stdout
from p2pclust.errors import UsageError
from p2pclust.tools.spelling import printable

if TYPE_CHECKING:
    from p2pclust.hosts.inventory import Host, Inventory

_RECORD = "hosts.json"
_CHANGES = {
    "new": "started",
    "changed": "started again, its entry changed",
    "again": "tried again",
    "removed": "no longer in the inventory: ended",
    "stopped": "stopped: `p2pclust fleet restart` starts it again",
    "unchanged": "unchanged",
}
app = group("""Start the peers of an inventory, on this machine or over SSH; keep them running; show them; end them.

\b
Example:
  p2pclust fleet up fleet.toml
  p2pclust fleet status fleet.toml
""")


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
    from p2pclust.hosts.remote import on_hosts  # noqa: PLC0415

    loaded = load_inventory(inventory)
    recorded = [host for host in _recorded(loaded) if host.name not in loaded.hosts]
    for name in forget or ():
        known = [host.name for host in recorded]
        if name not in known:
            expected = ", ".join(known) or "none"
            raise UsageError(f"--forget {name}: not a host of former peers: expected one of {expected}")
    gone = [host for host in recorded if host.name not in (forget or ())]
    hosts = [*loaded.hosts.values(), *gone]
    _record(loaded, hosts)  # before anything is started, so that `down` finds it in any case
    done, failed = on_hosts(hosts, lambda host: _bring(host, loaded, wait))
    _record(loaded, [host for host in hosts if host not in gone or host.name in failed])
    for host in gone:
        if host.name in failed:
            failed[host.name] += f" (no longer in the inventory: if it is gone for good, --forget {host.name})"
    well = not failed and not any(view.is_down(peer) for answer in done.values() for peer in answer["peers"].values())

    def show() -> None:
        for host, answer in done.items():
            for change, name in [(change, name) for change, names in answer["changes"].items() for name in names]:
                peer = answer["peers"].get(name, {})
                put(f"{name} on {host}: {_CHANGES[change]}{view.how(peer)}")
            roster = answer.get("roster", {})
            if roster.get("newer"):
                passed_on = f"took roster {roster['serial']}, and passes it on"
                put(f"{roster['peer']} on {host}: {passed_on}")
            elif "error" in roster:
                put(f"{host}: no peer there took the roster: {roster['error']}")

    end_with({"well": well, "errors": failed, "hosts": done}, show, as_json=as_json)


@app.command(short_help="End all peers and their supervisors.")
def down(inventory: InventoryPath, deadline: Deadline = 10.0, as_json: AsJson = False) -> None:
    """End all peers of the fleet and their supervisors, by force after the deadline.

    Their folders stay: the next `fleet up` continues from the same stores.

    \b
    Example:
      p2pclust fleet down fleet.toml
    """
    from p2pclust.hosts.remote import ask, on_hosts  # noqa: PLC0415

    loaded = load(inventory)
    hosts = list({host.name: host for host in (*_recorded(loaded), *loaded.hosts.values())}.values())
    options = ["--deadline", f"{deadline:g}"]
    done, failed = on_hosts(hosts, lambda host: ask(host, "down", options, timeout_s=deadline + SLACK_S))
    _record(loaded, [host for host in hosts if host.name in failed])

    def show() -> None:
        for name, answer in done.items():
            put(f"{name}: {len(answer['peers'])} peers have left")

    end_with({"well": not failed, "errors": failed}, show, as_json=as_json)


@app.command(short_help="Show every peer, and what is wrong.")
def status(inventory: InventoryPath, as_json: AsJson = False) -> None:
    """Show every peer: its host, start, restarts, linked neighbours, and the progress of its job.

    Exits with 0 if all peers are well, and with 3 if a host cannot be reached, or a peer is down, paused or late: not linked
    to all neighbours some time after its start, or two or more rounds behind the others.

    \b
    Example:
      p2pclust fleet status fleet.toml
    """
    from p2pclust.hosts.remote import ask, on_hosts  # noqa: PLC0415

    loaded = load(inventory)
    done, failed = on_hosts(list(loaded.hosts.values()), lambda host: ask(host, "status"))
    peers = view.judge(loaded, done)
    well = not failed and all(not peer["trouble"] for peer in peers.values())
    answer = {"well": well, "errors": failed, "peers": peers}
    end_with(answer, lambda: stdout().print(view.show(peers), soft_wrap=True), as_json=as_json)


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
    from p2pclust.hosts.remote import listening  # noqa: PLC0415

    loaded = load(inventory, [] if name is None else [name])
    names = [device.name for device in loaded.devices]
    hosts = {h: host for h, host in loaded.hosts.items() if name is None or any(d.name == name for d in loaded.on(h))}
    options = ["--lines", f"{lines}", *(["--follow"] if follow else [])]
    wanted = {host: [*options] if name is None else [name, *options] for host in hosts}

    def show_line(host: str, line: str) -> None:
        peer, _, text = line.partition("\t")
        if name is None:
            text = f"{peer if peer in names else f'{host} {peer}'} | {text}"
        typer.echo(printable(text, keep="\t"))

    with listening(hosts, wanted, show_line) as wait:
        wait()


app.command(short_help="End peers and start them again.")(peers.restart)
app.command(short_help="End peers and keep them down.")(peers.stop)
app.command(short_help="Kill, pause or resume one peer in a drill.")(peers.fault)


def _bring(host: Host, inventory: Inventory, wait_s: float) -> dict[str, Any]:
    from p2pclust.hosts import inventory as parts  # noqa: PLC0415
    from p2pclust.hosts.remote import ask  # noqa: PLC0415
    from p2pclust.hosts.supervisor import DOWN_S  # noqa: PLC0415

    devices = inventory.on(host.name)
    if not devices:  # no longer in the inventory
        return {"changes": {"removed": sorted(ask(host, "status")["peers"])}} | ask(host, "down")
    there = ask(host, "status")["peers"]
    prints = {device.name: parts.print_of(device, host) for device in devices}
    changed = [name for name, print_ in prints.items() if there.get(name, {}).get("print") != print_]
    plan = parts.plan(devices, prints, DOWN_S)
    return ask(
        host, "up", ["--wait", f"{wait_s:g}"], lambda stream: parts.pack(stream, inventory, devices, changed, plan),
        timeout_s=wait_s + SLACK_S,
    )  # fmt: skip


def _recorded(inventory: Inventory) -> list[Host]:
    from p2pclust.hosts.inventory import Host  # noqa: PLC0415

    entries = _records(inventory).get(str(inventory.path.absolute()), [])
    return [Host(**{**entry, "ssh_options": tuple(entry["ssh_options"])}) for entry in entries]


def _records(inventory: Inventory) -> dict[str, list[dict[str, Any]]]:
    file = inventory.keys / _RECORD
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def _record(inventory: Inventory, hosts: Collection[Host]) -> None:
    from p2pclust.transport.key_files import exclusive, write  # noqa: PLC0415

    with exclusive(inventory.keys, create=False):
        known = _records(inventory) | {str(inventory.path.absolute()): [dataclasses.asdict(host) for host in hosts]}
        kept = {path: entries for path, entries in known.items() if entries}
        write(inventory.keys / _RECORD, json.dumps(kept, indent=1).encode() + b"\n", 0o600)
