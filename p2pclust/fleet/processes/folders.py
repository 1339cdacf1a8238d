"""The folder of a run of real processes: keys, and of each peer its rows and its configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from p2pclust.fleet.processes.devices import device_settings
from p2pclust.fleet.spec import FleetSpec, PeerSpec
from p2pclust.transport.keys import Throwaway, write_fleet

__all__ = ["settle_in", "write_keys"]


def write_keys(spec: FleetSpec, directory: Path) -> Throwaway:
    """Make the keys of a run; a stranger has those of a fleet of its own, on whose roster it put all the others."""
    fleet = Throwaway(sorted(peer.name for peer in spec.peers if peer.enrolled))
    write_fleet(directory, fleet.roster, fleet.bundles)
    for peer in spec.peers:
        if not peer.enrolled:
            own = Throwaway([peer.name])
            write_fleet(directory / peer.name, own.claim(fleet.roster), own.bundles)
    return fleet


def settle_in(
    spec: FleetSpec,
    peer: PeerSpec,
    directory: Path,
    keys: Path,
    addresses: Mapping[str, str],
    faults: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Write what a peer has of its own into its directory, and return the configuration of its process.

    Parameters
    ----------
    spec : FleetSpec
    peer : PeerSpec
        One of them.
    directory : Path
        Its own.
    keys : Path
        Where :func:`write_keys` wrote.
    addresses : mapping of str to str
        Of all peers, strangers included.
    faults : sequence of mapping
        What it does to itself at given moments.
    """
    if not peer.enrolled:
        keys /= peer.name
    np.save(directory / "data.npy", peer.X, allow_pickle=False)
    beside = {}
    for what, values in (("ids", peer.ids), ("centers", peer.centers), ("labels", peer.labels)):
        if values is not None:
            np.save(directory / f"{what}.npy", values, allow_pickle=False)
            beside[what] = str(directory / f"{what}.npy")
    config = {
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
    }
    return config | beside | device_settings(spec, peer)
