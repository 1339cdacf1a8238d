"""The folder of a run of real processes: keys, and the rows and the configuration of each peer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from p2pclust.lab.testbed.spec import FleetSpec, PeerSpec
from p2pclust.transport.keys import Throwaway, write_fleet

_MOST_NICE = 9  # the worker's own ten come on top


def write_keys(spec: FleetSpec, directory: Path) -> Throwaway:
    """Make the keys of a run; a stranger has the keys of its own fleet, on whose roster it put all other peers."""
    fleet = Throwaway(sorted(peer.name for peer in spec.peers if peer.enrolled))
    write_fleet(directory, fleet.roster, fleet.bundles)
    for peer in spec.peers:
        if not peer.enrolled:
            own = Throwaway([peer.name])
            write_fleet(directory / peer.name, own.claim(fleet.roster), own.bundles)
    return fleet


def settle_in(
    spec: FleetSpec, peer: PeerSpec, directory: Path, keys: Path, addresses: Mapping[str, str],
    faults: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:  # fmt: skip
    """Write a peer's data into its own directory, and return the configuration of its process.

    :func:`write_keys` wrote the directory `keys`. The peer carries out the faults, which are by round, itself.
    """
    if not peer.enrolled:
        keys /= peer.name
    np.save(directory / "data.npy", peer.X, allow_pickle=False)
    files = {}
    for what, values in (("ids", peer.ids), ("centers", peer.centers), ("labels", peer.labels)):
        if values is not None:
            np.save(directory / f"{what}.npy", values, allow_pickle=False)
            files[what] = str(directory / f"{what}.npy")
    config: dict[str, Any] = {
        "name": peer.name,
        "listen": addresses[peer.name],
        "join": {other.name: addresses[other.name] for other in spec.peers if other.enrolled and other is not peer},
        "overlay": spec.overlay,
        "partial_view": spec.partial_view,
        "bundle": str(keys / f"{peer.name}.bundle"),
        "roster": str(keys / "roster.json"),
        "data": str(directory / "data.npy"),
        "state_dir": str(directory / "state"),
        "timing": spec.timing,
        "fitness": peer.fitness,
        "faults": list(faults),
        "stdio": True,
        "n_clusters": peer.n_clusters,
        "link": None,
        "quiet_s": spec.quiet_s,
        "cpu_share": peer.cpu_share,
        # A small share also means a lower priority: each step of ``nice`` is worth a factor of 1.25 to Linux.
        "nice": min(_MOST_NICE, round(math.log(1 / peer.cpu_share, 1.25))),
        "memory_mb": peer.memory_mb,
    }
    if peer.link is not None:
        # With its own seed a link loses the same messages in every run of a scenario, if the messages are the same.
        seed = [spec.seed, 4, [other.name for other in spec.peers].index(peer.name)]
        config["link"] = {"shape": peer.link.to_dict(), "seed": seed, "rates": spec.up_rates()}
    return config | files
