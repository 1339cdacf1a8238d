"""The first event of a run: its peers, classes, overlay and jobs, so that its log can be shown again by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from p2pclust.lab.scenario.file.load import starting_overlay
from p2pclust.lab.scenario.file.schema import Scenario
from p2pclust.lab.testbed.spec import FleetSpec
from p2pclust.lab.topology.layout import lay_out

_MOST_PLACED: Final = 200  # springs for more peers take seconds


def opening(scenario: Scenario, spec: FleetSpec, features: Sequence[str], backend: str, name: str) -> dict[str, Any]:
    """Return the event ``fleet``: what `p2pclust.lab.live.scene.Scene` needs. It holds no row, and no value of one."""
    overlay = starting_overlay(scenario)
    groups = {device.name: device.group for device in scenario.fleet.members}
    tol = [float(getattr(request.job.protocols[request.job.main], "tol", 0.0)) for request in spec.jobs]
    places: dict[str, list[float]] = {}
    if overlay is not None and overlay.n_peers <= _MOST_PLACED:
        places = {
            peer: [round(float(v), 4) for v in at] for peer, at in zip(overlay.names, lay_out(overlay), strict=True)
        }
    return {
        "t": 0.0, "peer": "", "verb": "fleet", "title": scenario.title or name,
        "details": f"{len(spec.peers)} peers, {backend}, timing {spec.timing}, seed {spec.seed}",
        "groups": {peer.name: groups[peer.name] for peer in spec.peers},
        "jobs": [[stage.protocol for stage in request.job.stages] for request in spec.jobs], "tol": tol,
        "links": None if overlay is None else [list(link) for link in overlay.links], "places": places,
        "features": list(features),
    }  # fmt: skip
