from __future__ import annotations

import numpy as np
import pytest

from p2pclust.clustering import Points, fuzzy_c_means, fuzzy_step, lloyd, lloyd_step, run_steps


def test_a_run_of_steps_is_the_pooled_algorithm() -> None:
    rng = np.random.default_rng(0)
    X, centers = rng.normal(size=(200, 3)) + 1e3, rng.normal(size=(4, 3)) + 1e3
    ours = run_steps(lloyd_step, Points(X), centers, tol=1e-3, max_rounds=50)
    theirs = lloyd(X, centers, tol=1e-3, max_rounds=50)
    assert (ours.n_rounds, ours.converged) == (theirs.n_rounds, theirs.converged)
    assert ours.centers == pytest.approx(theirs.centers, abs=1e-9)
    fuzzy = run_steps(lambda p, c: fuzzy_step(p, c, 1.7), Points(X), centers, tol=0.0, max_rounds=7)
    assert (fuzzy.n_rounds, fuzzy.converged) == (7, False)
    expected = fuzzy_c_means(X, centers, fuzzifier=1.7, tol=0.0, max_rounds=7)
    assert fuzzy.centers == pytest.approx(expected.centers, abs=1e-9)
    assert fuzzy.shifts == pytest.approx(expected.shifts, abs=1e-9)


def test_centers_without_rows_stay_and_rows_may_be_few() -> None:
    centers = np.array([[0.0], [50.0], [90.0]])
    assert lloyd_step(Points([[1.0]]), centers).tolist() == [[1.0], [50.0], [90.0]]
    assert centers.tolist() == [[0.0], [50.0], [90.0]], "what was given is not changed"
