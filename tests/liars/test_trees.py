"""A liar inside a tree says which peers below it have adopted the last state."""

from __future__ import annotations

import msgpack
import numpy as np
import pytest
from tests.liars.lab import Ears, inject

from p2pclust.lab.simulation.world.network import Conditions, Network
from p2pclust.lab.simulation.world.world import World
from p2pclust.peer.core.events import Submit
from p2pclust.peer.core.job_messages import Open, Partial
from p2pclust.peer.core.timing import Limits, preset
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.local import Local
from p2pclust.tools.bit_sets import packed

pytestmark = pytest.mark.slow

_LINE = ("p0", "p1", "p2", "p3", "p4")
_LIAR = "p1"  # between the aggregator and all others
_BELOW = 0b11110


@pytest.mark.parametrize("keyed", [True, False], ids=["keys", "no keys"])
def test_a_liar_inside_a_tree_acknowledges_no_end_for_those_below_it(keyed):
    """In a fleet without keys it does: the aggregator finishes although three of five peers never had the last state."""
    rng = np.random.default_rng(3)
    near = {
        name: tuple(_LINE[k] for k in (at - 1, at + 1) if 0 <= k < len(_LINE)) for at, name in enumerate(_LINE)
    }  # fmt: skip
    ears = Ears(_LIAR)
    world = World(
        {name: Local(rng.normal(size=(12, 2))) for name in _LINE}, Network(Conditions(), np.random.default_rng(4)),
        preset("default"), Limits(), np.random.default_rng(5), (ears,), overlay=near, keyed=keyed,
    )  # fmt: skip
    for name in _LINE:
        world.start(name)
    meet = lambda: all(peer.core.membership.all_here() for peer in world.peers.values())  # noqa: E731
    assert world.run_until(60.0, meet)
    job = cluster_job("llf-cm", n_clusters=2, init="uniform", tol=0.0, max_rounds=3)
    treatment = Treatment(collect="tree", aggregator="p0")
    world.step(world.peers["p0"], Submit(msgpack.packb(job.to_dict()), treatment=treatment))
    last = lambda: [m for _, m in ears.heard if isinstance(m, Open) and m.final]  # noqa: E731
    assert world.run_until(world.now + 60.0, lambda: bool(last()))
    for name in _LINE[2:]:
        world.crash(name)
    opened = last()[0]
    inject(
        world, _LIAR, "p0", Partial(
            opened.job, opened.term, opened.round, opened.digest, packed(_BELOW), packed(_BELOW), b"", (), (), True,
            bytes(0), 0, (),
        ),
    )  # fmt: skip
    world.run_until(world.now + 2.0)
    assert world.peers["p0"].core.jobs.jobs[opened.job].ledger.finished is not keyed
