"""Contributions that the receiver rounds to the grid: a third of the bytes, and the same bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.errors import WireError
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.base import Abstain
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.wire import ContributionReader

N_PEERS = 20


def _opened(protocol: str, n_clusters: int, n_features: int, **parameters: Any) -> tuple[Job, JobState]:
    """A job in its first clustering round."""
    box = ([-50.0] * n_features, [50.0] * n_features)
    init = np.random.default_rng(0).normal(size=(n_clusters, n_features))
    job = cluster_job(protocol, n_clusters=n_clusters, bounds=box, init=init, **parameters)
    return job, engine.begin(job)


def _same(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> bool:
    return list(one) == list(other) and all(
        one[name].dtype == other[name].dtype and np.array_equal(one[name], other[name]) for name in one
    )


@pytest.mark.slow
@given(st.integers(1, 60), st.integers(1, 6), st.floats(1e-9, 40.0), st.integers(0, 2**32 - 1))
def test_the_receiver_rounds_as_the_sender_would(n: int, n_features: int, spread: float, seed: int) -> None:
    X = np.clip(np.random.default_rng(seed).normal(scale=spread, size=(n, n_features)), -50.0, 50.0)
    for protocol, more in (("llf-cm", {}), ("llf-fcm", {"privacy_gate": False})):
        job, state = _opened(protocol, 3, n_features, **more)
        given = engine.sent(job, state, Local(X), 0, N_PEERS)
        assert {given.dtype(name) for name in given} == {np.dtype("float64")}
        reader = ContributionReader(job, state, n_peers=N_PEERS)
        rounded = engine.contribution(job, state, Local(X), 0, N_PEERS)
        assert _same(reader.read(given.encode()), rounded)
        assert _same(reader.read(rounded.encode()), rounded)


def test_ten_centers_of_64_columns_take_five_kilobytes() -> None:
    job, state = _opened("llf-fcm", 10, 64, privacy_gate=False)
    X = Local(np.random.default_rng(1).normal(size=(50, 64)))
    assert len(engine.sent(job, state, X, 0, N_PEERS).encode()) < 5_500
    assert len(engine.contribution(job, state, X, 0, N_PEERS).encode()) > 15_000


def test_a_sum_of_several_is_not_read_as_floats() -> None:
    job, state = _opened("llf-cm", 2, 1)
    given = engine.sent(job, state, Local([[0.0], [1.0], [2.0]]), 0, N_PEERS).encode()
    with pytest.raises(WireError, match="counts is float64"):
        ContributionReader(job, state, n_peers=N_PEERS).read(given, summed=2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sums": [[np.nan], [0.0]]}, "a value is not finite"),
        ({"sums": [[1e30], [0.0]]}, "a value is too large for the grid of 20 peers"),
        ({"counts": [1.0, 2.0, 3.0]}, r"counts is float64\[3\], expected float64\[2\]"),
        ({"rows": [1.0]}, r"rows is float64\[1\]"),
        ({"sums": np.zeros((2, 1), dtype=np.int64)}, "expected int64"),
    ],
)
def test_floats_of_a_liar_are_refused(change: dict[str, Any], message: str) -> None:
    job, state = _opened("llf-cm", 2, 1)
    given = engine.sent(job, state, Local([[0.0], [1.0], [2.0]]), 0, N_PEERS)
    arrays = Arrays({**dict(given.items()), **{name: np.asarray(value) for name, value in change.items()}})
    with pytest.raises(WireError, match=message):
        ContributionReader(job, state, n_peers=N_PEERS).read(arrays.encode())


def test_what_the_grid_cannot_hold_is_not_sent() -> None:
    job, state = _opened("llf-cm", 2, 1)
    huge = Local([[0.0], [1.0], [2.0]], weights=[1e13, 1e13, 1e13])
    for answer in (engine.sent, engine.contribution):
        with pytest.raises(Abstain, match="too large for the grid"):
            answer(job, state, huge, 0, N_PEERS)


class TestStacked:
    """All contributions as one array, with one check and one sum."""

    def sent(self, protocol: str, n_peers: int = N_PEERS) -> tuple[ContributionReader, list[bytes]]:
        job, state = _opened(protocol, 3, 2, **({"privacy_gate": False} if protocol == "llf-fcm" else {}))
        rng = np.random.default_rng(3)
        rows = [Local(rng.normal(scale=10.0, size=(20, 2))) for _ in range(n_peers)]
        reader = ContributionReader(job, state, n_peers=N_PEERS)
        return reader, [engine.sent(job, state, local, peer, N_PEERS).encode() for peer, local in enumerate(rows)]

    @pytest.mark.parametrize("protocol", ["llf-cm", "llf-fcm"])
    def test_it_is_the_sum_of_each_read_by_itself(self, protocol: str) -> None:
        reader, sent = self.sent(protocol)
        total, peers = engine.added_up(((peer, reader.read(data)) for peer, data in enumerate(sent)), N_PEERS)
        assert total is not None
        assert peers == tuple(range(N_PEERS))
        stacked = reader.stacked(sent)
        assert stacked is not None
        assert _same(stacked, total)

    @pytest.mark.parametrize(
        "damage",
        [
            pytest.param(lambda data: data[:-1], id="short"),
            pytest.param(lambda data: data + b"\0", id="long"),
            pytest.param(lambda data: b"", id="empty"),
            pytest.param(lambda data: b"\x95" + data[1:], id="another-length"),
            pytest.param(lambda data: data.replace(b"counts", b"weight"), id="another-name"),
            pytest.param(lambda data: data.replace(b"\xa2f8", b"\xa2i8", 1), id="another-dtype"),
            pytest.param(lambda data: data.replace(b"\xa6counts", b"\xd9\x06counts"), id="not-canonical"),
            pytest.param(lambda data: data[:-8] + np.array([np.nan]).tobytes(), id="not-finite"),
            pytest.param(lambda data: data[:-8] + np.array([1e30]).tobytes(), id="off-the-grid"),
        ],
    )
    def test_one_that_is_malformed_is_found_by_reading_each(self, damage: Callable[[bytes], bytes]) -> None:
        reader, sent = self.sent("llf-cm", 5)
        sent[2] = damage(sent[2])
        assert reader.stacked(sent) is None
        for peer, data in enumerate(sent):
            if peer == 2:
                with pytest.raises(WireError):
                    reader.read(data)
            else:
                reader.read(data)

    def test_limbs_and_floats_do_not_stack(self) -> None:
        reader, sent = self.sent("llf-cm", 3)
        sent[1] = reader.read(sent[1]).encode()
        assert reader.stacked(sent) is None
