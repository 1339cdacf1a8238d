from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from p2pclust.lab.testbed.peer import round_views
from p2pclust.lab.testbed.peer.round_views import centers_in
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.job import JobState


def state(**arrays: Any) -> JobState:
    return JobState(
        3, 1, 2, "running", "", False, 0, (), Arrays({name: np.array(array) for name, array in arrays.items()})
    )


def test_centers_are_in_the_units_of_the_data_with_five_digits() -> None:
    found = centers_in(state(centers=[[0.0, 1.0], [0.5, 1 / 3]], origin=[10.0, 0.0], scale=[2.0, 1.0]))
    assert found == {"round": 3, "centers": [[10.0, 1.0], [11.0, 0.33333]]}


def test_centers_that_are_none_too_many_or_infinite_are_not_reported() -> None:
    assert centers_in(state(weights=[1.0])) is None
    assert centers_in(state(centers=np.zeros((0, 2)))) is None
    assert centers_in(state(centers=np.zeros((11, 100)))) is None
    assert centers_in(state(centers=np.zeros((10, 100)))) is not None
    assert centers_in(state(centers=[[np.inf, 1.0]])) is None


class Peer:
    """A shell with one job, at a moment that the test sets."""

    def __init__(self) -> None:
        self.written: list[Mapping[str, Any]] = []
        self.aggregator, self.waits_for = "a", ["b", "c"]
        self.ref: Any = SimpleNamespace(payload=replace(state(centers=[[1.0, 2.0]]), round=0, stage_round=0).encode())
        job = SimpleNamespace(
            standing=lambda: ("gathering", self.aggregator, self.waits_for),
            ledger=SimpleNamespace(register=SimpleNamespace(ref=self.ref)),
        )
        self.core = SimpleNamespace(identity=SimpleNamespace(name="a"), jobs=SimpleNamespace(jobs={"j": job}))
        self.listeners: list[Callable[[str, Mapping[str, Any]], None]] = []

    def listen(self, listener: Callable[[str, Mapping[str, Any]], None]) -> None:
        self.listeners.append(listener)

    def report(self, verb: str, **fields: Any) -> None:
        for listener in self.listeners:
            listener(verb, {"job": "j", **fields})


def test_only_the_peer_that_combines_reports_centers() -> None:
    async def run() -> list[Any]:
        peer: Any = Peer()
        round_views.RoundViews(peer, peer.written.append)
        peer.report("finished")
        peer.report("combined", within="other")
        before = len(peer.written)
        peer.report("combined")
        peer.report("finished")
        return [before, *(line["verb"] for line in peer.written)]

    assert asyncio.run(run()) == [0, "centers", "centers"]


def test_a_round_that_lasts_names_the_peers_that_it_waits_for(monkeypatch: Any) -> None:
    monkeypatch.setattr(round_views, "_AFTER_S", 0.001)

    async def run() -> list[Any]:
        peer: Any = Peer()
        changed = asyncio.Event()

        def write(line: Mapping[str, Any]) -> None:
            peer.written.append(line)
            changed.set()

        async def next_line() -> None:
            async with asyncio.timeout(30):
                await changed.wait()
            changed.clear()

        round_views.RoundViews(peer, write)
        peer.report("phase", phase="opening")
        await next_line()
        peer.waits_for = ["c"]
        await next_line()
        peer.waits_for = []
        await next_line()
        peer.aggregator = "b"
        peer.waits_for = ["a"]
        peer.report("elected")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await changed.wait()
        return [line["peers"] for line in peer.written]

    assert asyncio.run(run()) == [["b", "c"], ["c"], []]
