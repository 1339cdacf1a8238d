"""A result whose columns are of very unlike spread is doubted, by name, from what its state has of the ranges."""

from __future__ import annotations

import numpy as np
import pytest

from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import run_in_process
from p2pclust.protocols.measuring.doubts import doubts

NAMES = ("temp", "power", "share")


def about(protocol: str, factors: tuple[float, ...], *, constant: bool = False, **parameters: object) -> list[str]:
    rng = np.random.default_rng(4)
    blobs = [rng.normal(0, 0.1, (40, 3)) + 3 * (np.arange(40) % 2)[:, np.newaxis] for _ in range(3)]
    rows = [X * np.array(factors) for X in blobs]
    for X in rows if constant else ():
        X[:, 2] = 7.25
    state = run_in_process(cluster_job(protocol, n_clusters=2, **parameters), [Local(X) for X in rows])  # type: ignore[arg-type]
    assert state.status == "done"
    return [doubt for doubt in doubts(state.arrays, NAMES) if "range" in doubt]


@pytest.mark.parametrize("protocol", ["llf-cm", "llf-fcm", "fkm", "ffcm", "k-fed", "stream-fcm"])
def test_a_column_that_alone_decides_distances_is_named(protocol: str) -> None:
    (doubt,) = about(protocol, (1.0, 300.0, 1.0))
    assert doubt.startswith("the range of power is about ")
    assert "times that of temp" in doubt
    assert "set scaling to minmax or zscore" in doubt


@pytest.mark.parametrize(
    ("factors", "widest", "narrowest"),
    [
        pytest.param((300.0, 1.0, 2.0), "temp", "power", id="watts-and-degrees"),
        pytest.param((0.001, 1.0, 20.0), "share", "temp", id="shares-of-one"),
        pytest.param((1e9, 1e9, 1.0), "temp", "share", id="bytes"),
    ],
)
def test_the_widest_and_the_narrowest_are_named(factors: tuple[float, ...], widest: str, narrowest: str) -> None:
    (doubt,) = about("llf-cm", factors)
    assert doubt.startswith(f"the range of {widest} is about ")
    assert f"times that of {narrowest}, " in doubt


@pytest.mark.parametrize("scaling", ["minmax", "zscore"])
def test_scaled_columns_are_alike(scaling: str) -> None:
    assert about("llf-cm", (1.0, 300.0, 1e-6), scaling=scaling) == []


@pytest.mark.parametrize("factors", [(1.0, 1.0, 1.0), (1.0, 10.0, 3.0), (1e6, 4e6, 1e6), (1e-6, 1e-6, 3e-6)])
def test_columns_of_like_spread_are_not_doubted(factors: tuple[float, ...]) -> None:
    assert about("llf-cm", factors) == []


def test_a_constant_column_has_no_spread() -> None:
    assert about("llf-cm", (1e6, 1e6, 1.0), constant=True) == []
