"""Whether a row ever leaves its peer: one that can be recognised is sought in every byte that the fleet sends.

What is sought: the row as it is and in working coordinates, as bytes, half, single and double floats of both byte orders,
whole and in every window that is long enough to be no accident. Before encryption: what the simulator puts on its network
is what a peer hands to its links.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from communities import D, Planted, a_job, planted, specs
from numpy.typing import NDArray

from p2pclust.jobs.request import JobRequest
from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.lab.simulation.world.world import World
from p2pclust.lab.testbed import backend
from p2pclust.lab.testbed.spec import FleetResult, FleetSpec
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.job import Job
from p2pclust.protocols.models.fedcref_peer import AtWork
from p2pclust.transport.links import Lane

pytest.importorskip("torch", reason="autoencoders need torch: pip install 'p2pclust[models]'")

pytestmark = pytest.mark.slow

KINDS = [[0, 1, 2], [1, 2, 3], [0, 2, 3], [0, 1, 3]]
OF, ROW = 1, 5  # whose it is, and where it lies there
#: As what numbers may be written, and how many of them are no accident: eight bytes.
FORMS = {"<f8": 1, ">f8": 1, "<f4": 2, ">f4": 2, "<f2": 4, ">f2": 4, "u1": 8}


def with_canary() -> list[Planted]:
    """Peer 1 has a row of its own pattern among those of its first kind, which is no extreme in any column."""
    peers = planted(KINDS)
    X = peers[OF].X.copy()
    pattern = np.array([0.0137, -0.0171, 0.0093, 0.0119, -0.0151, 0.0177, -0.0107, 0.0131])
    X[ROW] = X[peers[OF].truth == peers[OF].truth[ROW]].mean(axis=0) + pattern
    peers[OF] = replace(peers[OF], X=X)
    return peers


def needles(row: NDArray[np.float64]) -> Iterator[tuple[str, bytes]]:
    """The row in every form, in every window of it."""
    for dtype, least in FORMS.items():
        values = np.rint(row * 255) if dtype == "u1" else row
        written = values.astype(dtype)
        for start in range(len(row) - least + 1):
            yield f"{dtype} {start}", written[start : start + least].tobytes()


def sought(row: NDArray[np.float64], peers: list[Planted], *, bounds: bool) -> dict[str, bytes]:
    """All that must be found nowhere: in the row's own units, and in those that the fleet works in."""
    found = dict(needles(row))
    if not bounds:
        X = np.concatenate([peer.X for peer in peers])
        working = (row - X.min(axis=0)) / (X.max(axis=0) - X.min(axis=0))
        found |= {f"working {name}": needle for name, needle in needles(working)}
    return found


@dataclass
class Wire:
    """Everything that was sent, by whom."""

    frames: dict[str, list[bytes]] = field(default_factory=dict)

    def tap(self, monkeypatch: pytest.MonkeyPatch) -> None:
        honest = World.transmit

        def transmit(world: World, peer: Peer, target: str, frames: list[bytes], lane: Lane) -> bool:
            self.frames.setdefault(peer.name, []).extend(frames)
            return honest(world, peer, target, frames, lane)

        monkeypatch.setattr(World, "transmit", transmit)

    def holding(self, sought: dict[str, bytes]) -> list[str]:
        """Which of these were sent by anybody."""
        everything = b"|".join(frame for frames in self.frames.values() for frame in frames)
        return [name for name, needle in sought.items() if needle in everything]


def carried_out(job: Job, peers: list[Planted]) -> FleetResult:
    spec = FleetSpec(specs(peers), (JobRequest(job),), timing="fast")
    result = backend("simulated").carry_out(spec, lambda event: None)
    assert result.failure == ""
    assert result.jobs[0].state is not None
    assert result.jobs[0].state.status == "done"
    return result


@pytest.mark.parametrize(
    ("mode", "encoding", "bounds"),
    [("refined", "float32", True), ("refined", "int8", False), ("paper", "float16", True), ("paper", "float32", False)],
)
def test_no_row_leaves_its_peer(mode: str, encoding: str, bounds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    wire, peers = Wire(), with_canary()
    wire.tap(monkeypatch)
    result = carried_out(a_job(mode, encoding=encoding, bounds=bounds), peers)
    row = peers[OF].X[ROW]
    assert sum(len(frame) for frame in wire.frames["p1"]) > 5_000
    assert wire.holding(sought(row, peers, bounds=bounds)) == []
    # Nor is a value of it written down anywhere for people.
    told = json.dumps(result.events, default=str)
    assert not [value for value in row.tolist() if f"{value:.6g}" in told]


def leaking_blob(work: AtWork, data: bytes) -> bytes:
    """A model whose first weights are a row."""
    row = work.local.X[ROW].astype("<f4").tobytes()
    return row + data[len(row) :]


def leaking_digest(part: Arrays, work: AtWork) -> Arrays:
    """A digest whose first bytes are a row."""
    digests = part["models"].copy()
    digests[0, :D] = np.rint(work.local.X[ROW] * 255).astype(np.uint8)
    return part.replace(models=digests)


@pytest.mark.parametrize("leak", ["model", "digest"])
def test_a_row_that_does_leave_is_found(leak: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the test above could not fail."""
    honest = AtWork.train_clusters

    def leaking(self: AtWork, rng: np.random.Generator) -> Any:
        part = honest(self, rng)
        if self.workspace.peer != OF:
            return part
        if leak == "digest":
            return leaking_digest(part, self)
        self.workspace.published[0] = leaking_blob(self, self.workspace.published[0])
        from p2pclust.protocols.engine.workspace import digest_of

        digests = part["models"].copy()
        digests[0] = np.frombuffer(digest_of(self.workspace.published[0]), np.uint8)
        return part.replace(models=digests)

    monkeypatch.setattr(AtWork, "train_clusters", leaking)
    wire, peers = Wire(), with_canary()
    wire.tap(monkeypatch)
    carried_out(a_job("refined"), peers)
    found = wire.holding(sought(peers[OF].X[ROW], peers, bounds=True))
    form = "<f4" if leak == "model" else "u1"
    assert {name.split()[0] for name in found} == {form}
    assert len(found) == D - FORMS[form] + 1, "whole, and in every window"


def test_the_canary_is_no_extreme_of_any_column() -> None:
    """Where bounds are not declared, ranges are told: that is how minmax works, and said."""
    peers = with_canary()
    own = peers[OF].X
    assert ((own[ROW] > own.min(axis=0)) & (own[ROW] < own.max(axis=0))).all()
