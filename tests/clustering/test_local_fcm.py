from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.clustering import Points, fuzzy_step, fuzzy_sums, local_fuzzy_c_means, memberships
from p2pclust.errors import UsageError


@pytest.mark.slow
@given(st.integers(0, 10**6), st.sampled_from([1.1, 2.0, 3.5]), st.integers(1, 4))
def test_so_many_steps_of_fuzzy_c_means(seed: int, fuzzifier: float, steps: int) -> None:
    draw = np.random.default_rng(seed)
    points, centers = Points(draw.normal(size=(40, 3)) + 100.0), draw.normal(size=(4, 3)) + 100.0
    found = local_fuzzy_c_means(points, centers, fuzzifier, tol=0.0, max_steps=steps)
    for _ in range(steps):
        before, centers = centers, fuzzy_step(points, centers, fuzzifier)
    assert found.n_steps == steps
    assert np.allclose(found.centers, centers, rtol=0, atol=1e-9)
    # The weights are those of the memberships that made these centers.
    assert np.allclose(found.weights, fuzzy_sums(points, before, fuzzifier)[0], rtol=1e-9)
    assert np.allclose(found.plain_weights, memberships(points, before, fuzzifier).sum(axis=0), rtol=1e-9)


def test_it_stops_when_the_memberships_stand_still() -> None:
    draw = np.random.default_rng(0)
    points = Points(np.concatenate([draw.normal(0, 1, (50, 2)), draw.normal(9, 1, (50, 2))]))
    centers = [[0.0, 1.0], [5.0, 5.0]]
    found = local_fuzzy_c_means(points, centers, 2.0, tol=1e-4, max_steps=1000)
    assert found.converged
    steps = [
        local_fuzzy_c_means(points, centers, 2.0, tol=0.0, max_steps=found.n_steps + more).centers
        for more in (-2, -1, 0)
    ]
    shares = [memberships(points, step, 2.0) for step in steps]
    change = [np.linalg.norm(after - before) for before, after in pairwise(shares)]
    assert change[0] >= 1e-4 > change[1]


def test_large_data_are_not_kept_and_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(1)
    points, centers = Points(draw.normal(size=(20_000, 2))), draw.normal(size=(5, 2))
    kept = local_fuzzy_c_means(points, centers, 2.0, tol=1e-2, max_steps=60)
    monkeypatch.setattr("p2pclust.clustering.steps._KEPT", 0)
    again = local_fuzzy_c_means(points, centers, 2.0, tol=1e-2, max_steps=60)
    assert kept.n_steps == again.n_steps > 2
    assert kept.centers.tobytes() == again.centers.tobytes()
    assert kept.weights.tobytes() == again.weights.tobytes()


def test_rows_on_centers_and_a_far_center() -> None:
    points = Points([[0.0], [0.0], [3.0], [3.0]])
    found = local_fuzzy_c_means(points, [[0.0], [3.0], [1e100]], 1.1, tol=1e-9, max_steps=9)
    assert found.centers.tolist() == [[0.0], [3.0], [1e100]]
    assert found.weights.tolist() == [2.0, 2.0, 0.0]


def test_at_least_one_step() -> None:
    with pytest.raises(UsageError, match="max_steps must be at least 1"):
        local_fuzzy_c_means(Points([[0.0]]), [[0.0]], 2.0, tol=0.0, max_steps=0)
