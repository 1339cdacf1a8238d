"""Padded rounds of real jobs have the total of plain ones, to the bit; every mix-up is noticed."""

from __future__ import annotations

import numpy as np
import pytest

from p2pclust.errors import WireError
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.padded import contribution_of, numbers_of, unpadded
from p2pclust.protocols.engine.runner import replayed, run_in_process
from p2pclust.protocols.engine.sums import added_up
from p2pclust.protocols.secure.pads import ENTROPY_BYTES, KeyPair, Numbers

CONTEXT = bytes(range(32))


@pytest.mark.parametrize(
    ("protocol", "options"),
    [("llf-cm", {"scaling": "zscore"}), ("llf-fcm", {"fuzzifier": 1.2}), ("llf-cm", {"n_init": 3})],
)
def test_every_round_of_a_job_has_the_same_total(protocol: str, options: dict[str, object]) -> None:
    rng = np.random.default_rng(1)
    locals_ = [Local(rng.normal(n, 10.0 ** rng.integers(-3, 4), (40, 2))) for n in range(5)]
    job = cluster_job(protocol, n_clusters=3, seed=2, max_rounds=4, bounds=([-1e5] * 2, [1e5] * 2), **options)
    log = run_in_process(job, locals_).log
    pairs = [KeyPair(rng.bytes(ENTROPY_BYTES)) for _ in locals_]
    keys = {peer: pair.public for peer, pair in enumerate(pairs)}
    kept = {peer: keys[peer] for peer in (0, 2, 3)}
    for number, (state, record) in enumerate(zip(replayed(job, locals_, log), log, strict=False)):
        given = [(i, engine.contribution(job, state, locals_[i], i, 5)) for i in record.contributors]
        plain, members = added_up(given, 5)
        assert plain is not None
        shapes = {name: array.shape for name, array in plain.items()}
        context = CONTEXT + bytes([number])
        padded = [pairs[i].padded(numbers_of(one), i, kept, context) for i, one in given]
        size, of = len(padded[0]), {i: keys[i] for i in members}
        removed = [pairs[keeper].removed(keeper, of, size, context) for keeper in kept]
        total = unpadded(padded, removed, shapes, len(members))
        assert {name: array.tobytes() for name, array in total.items()} == {n: a.tobytes() for n, a in plain.items()}


def three() -> tuple[list[Numbers], list[Numbers], dict[str, tuple[int, ...]]]:
    rng = np.random.default_rng(5)
    pairs = [KeyPair(rng.bytes(ENTROPY_BYTES)) for _ in range(3)]
    keys = {peer: pair.public for peer, pair in enumerate(pairs)}
    kept = {0: keys[0], 1: keys[1]}
    shown = [Arrays(counts=np.array([[peer], [-peer]]), rows=np.array([1, 0])) for peer in range(3)]
    padded = [
        pair.padded(numbers_of(one), i, kept, CONTEXT) for i, (pair, one) in enumerate(zip(pairs, shown, strict=True))
    ]
    removed = [pairs[keeper].removed(keeper, keys, len(padded[0]), CONTEXT) for keeper in kept]
    return padded, removed, {"counts": (2, 1), "rows": (2,)}


def test_sums_on_the_way_are_sums_of_what_was_sent() -> None:
    padded, removed, shapes = three()
    total = unpadded([padded[0] + padded[2], padded[1]], removed, shapes, 3)
    assert total["counts"].tolist() == [[3], [-3]]
    assert total["rows"].tolist() == [3, 0]


def test_a_set_that_is_not_the_keepers_is_noticed() -> None:
    padded, removed, shapes = three()
    for mixed_up in (padded[:2], [*padded, padded[0]]):
        with pytest.raises(WireError, match="the pads do not belong to the sum: the check word is"):
            unpadded(mixed_up, removed, shapes, len(mixed_up))
    with pytest.raises(WireError, match="the pads do not belong"):
        unpadded(padded, removed[:1], shapes, 3)
    with pytest.raises(WireError, match="expected 2"):
        unpadded(padded, removed, shapes, 2)


def test_vectors_of_another_length_are_refused() -> None:
    padded, removed, shapes = three()
    with pytest.raises(WireError, match="has 4 numbers, expected 5"):
        unpadded([padded[0][:-1]], removed, shapes, 1)
    with pytest.raises(WireError, match="has 5 numbers, expected 3"):
        contribution_of(padded[0], {"counts": (2, 1)})


def test_arrays_come_back_as_they_were() -> None:
    shown = Arrays(a=np.array([[2**61, -(2**61)], [0, -1]]), b=np.array([7, 8]))
    back = contribution_of(numbers_of(shown), {"a": (2, 2), "b": (2,)})
    assert {name: array.tolist() for name, array in back.items()} == {"a": [[2**61, -(2**61)], [0, -1]], "b": [7, 8]}
