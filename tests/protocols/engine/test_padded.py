"""Padded rounds of real jobs have the total of plain ones, to the bit; every mix-up is noticed."""

from __future__ import annotations

import numpy as np
import pytest

from p2pclust.errors import WireError
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.engine import added_up
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.padded import Layout, layout_of
from p2pclust.protocols.engine.runner import replayed, run_in_process
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
        layout = layout_of(job, state)
        context = CONTEXT + bytes([number])
        padded = [pairs[i].padded(layout.numbers(one), i, kept, context) for i, one in given]
        size, of = len(padded[0]), {i: keys[i] for i in members}
        removed = [pairs[keeper].removed(keeper, of, size, context) for keeper in kept]
        total = layout.unpadded(padded, removed, len(members))
        assert {name: array.tobytes() for name, array in total.items()} == {n: a.tobytes() for n, a in plain.items()}


def three() -> tuple[list[Numbers], list[Numbers], Layout]:
    rng = np.random.default_rng(5)
    pairs = [KeyPair(rng.bytes(ENTROPY_BYTES)) for _ in range(3)]
    keys = {peer: pair.public for peer, pair in enumerate(pairs)}
    kept = {0: keys[0], 1: keys[1]}
    layout = Layout({"counts": (1,), "rows": ()}, limbs=2)
    shown = [Arrays(counts=np.array([[peer], [-peer]]), rows=np.array([1, 0])) for peer in range(3)]
    padded = [
        pair.padded(layout.numbers(one), i, kept, CONTEXT)
        for i, (pair, one) in enumerate(zip(pairs, shown, strict=True))
    ]
    removed = [pairs[keeper].removed(keeper, keys, len(padded[0]), CONTEXT) for keeper in kept]
    return padded, removed, layout


def test_sums_on_the_way_are_sums_of_what_was_sent() -> None:
    padded, removed, layout = three()
    total = layout.unpadded([padded[0] + padded[2], padded[1]], removed, 3)
    assert total["counts"].tolist() == [[3], [-3]]
    assert total["rows"].tolist() == [3, 0]


def test_a_set_that_is_not_the_keepers_is_noticed() -> None:
    padded, removed, layout = three()
    for mixed_up in (padded[:2], [*padded, padded[0]]):
        with pytest.raises(WireError, match="the pads do not belong to the sum: the check word is"):
            layout.unpadded(mixed_up, removed, len(mixed_up))
    with pytest.raises(WireError, match="the pads do not belong"):
        layout.unpadded(padded, removed[:1], 3)
    with pytest.raises(WireError, match="expected 2"):
        layout.unpadded(padded, removed, 2)


def test_vectors_of_another_length_are_refused() -> None:
    padded, removed, layout = three()
    with pytest.raises(WireError, match="has 4 numbers, expected 5"):
        layout.unpadded([padded[0][:-1]], removed, 1)
    with pytest.raises(WireError, match="has 5 numbers, expected 3"):
        Layout({"counts": (1,)}, limbs=2).contribution(padded[0])


def test_arrays_come_back_as_they_were() -> None:
    shown = Arrays(a=np.array([[2**61, -(2**61)], [0, -1]]), b=np.array([7, 8]))
    layout = Layout({"a": (2,), "b": ()}, limbs=2)
    back = layout.contribution(layout.numbers(shown))
    assert {name: array.tolist() for name, array in back.items()} == {"a": [[2**61, -(2**61)], [0, -1]], "b": [7, 8]}


def test_words_tell_only_whether_a_total_is_zero() -> None:
    layout = Layout({"buckets": (3,)}, limbs=2, whether=True)
    words = np.arange(11, 15, dtype=np.uint64)
    one = layout.numbers(Arrays(buckets=np.array([[0, 1 << 24, 5 << 24], [0, 0, 0]])), words)
    other = layout.numbers(Arrays(buckets=np.array([[0, 0, 1 << 24], [0, 0, 0]])), words + np.uint64(90))
    assert one.tolist() == [0, 12, 13, 1]
    back = layout.contribution(one + other)
    assert back["buckets"].tolist() == [[0, 1 << 24, 1 << 24], [0, 0, 0]]
