from __future__ import annotations

import numpy as np

from p2pclust.clustering import Points, lloyd_step


def test_centers_without_rows_stay_and_rows_may_be_few() -> None:
    centers = np.array([[0.0], [50.0], [90.0]])
    assert lloyd_step(Points([[1.0]]), centers).tolist() == [[1.0], [50.0], [90.0]]
    assert centers.tolist() == [[0.0], [50.0], [90.0]], "what was given is not changed"
