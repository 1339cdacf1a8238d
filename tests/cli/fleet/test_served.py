from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Cli

from p2pclust.cli.fleet.inventory import controls_of
from p2pclust.hosts.inventory import Host, Inventory, InventoryDevice


def test_devices_are_asked_here_at_their_sockets_and_elsewhere_at_their_control_addresses() -> None:
    hosts = {"here": Host("here", None, "python3", "/state"), "there": Host("there", "there", "python3", "/state")}
    devices = (
        InventoryDevice("a", "here", "", {"control": "10.0.0.1:7400"}, {}),
        InventoryDevice("b", "there", "", {"control": "10.0.0.2:7400"}, {}),
        InventoryDevice("c", "there", "", {}, {}),
    )
    inventory = Inventory(Path("fleet.toml"), Path("keys"), Path("roster.json"), hosts, devices)
    assert list(controls_of(inventory, with_key=True).values()) == ["/state/peers/a", "b@10.0.0.2:7400"]
    assert list(controls_of(inventory, with_key=False).values()) == ["/state/peers/a"]


def test_an_inventory_that_is_absent_is_refused(cli: Cli) -> None:
    ran = cli("watch", "--serve", "--inventory", "absent.toml")
    assert ran.code == 2
    assert "absent.toml" in ran.err
