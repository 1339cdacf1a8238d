from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

from p2pclust.data import DataSet, load
from p2pclust.data.generate import GENERATORS, PEER_LOCATIONS, gaussian_grid, generate
from p2pclust.data.registry import available
from p2pclust.errors import DataError, UsageError


def by_peer(data: DataSet) -> list[list[int]]:
    """Rows of each cluster at each peer."""
    assert data.group is not None
    assert data.y is not None
    n_clusters = int(data.y.max()) + 1
    return [
        np.bincount(data.y[data.group == peer], minlength=n_clusters).tolist() for peer in range(data.group.max() + 1)
    ]


def means(data: DataSet) -> np.ndarray:
    assert data.y is not None
    return np.array([data.X[data.y == k].mean(axis=0) for k in range(int(data.y.max()) + 1)])


@pytest.mark.parametrize("name", GENERATORS)
def test_the_seed_decides_everything(name: str) -> None:
    data, again, other = generate(name, {}), generate(name, {}), generate(name, {"seed": 1})
    assert data.name == name
    for one, two in ((data.X, again.X), (data.y, again.y), (data.group, again.group)):
        assert (one is None and two is None) or np.array_equal(np.asarray(one), np.asarray(two))
    assert not np.array_equal(data.X, other.X)


# Of the rows, rounded so that another libm cannot matter, and of clusters and peers.
PINNED = {
    "admissions": "d8a70e55fbc544ff",
    "absent_clusters": "796aad0aa75bb115",
    "g2": "efac85b67021e149",
    "gaussian_grid": "a66af4fe88e04222",
    "gaussians": "57125f9ceafd759b",
    "hidden_clusters": "a6950333e4712af3",
    "moving_clusters": "501c690ebc545e90",
    "smart_meters": "bf7324e2448ade68",
    "unequal_clusters": "9fe89ce342f0fdad",
    "uneven_grid": "055c3a00e420e054",
}


def digest(data: DataSet) -> str:
    content = np.rint(data.X * 1e6).astype(np.int64).tobytes()
    content += b"".join(part.astype(np.int64).tobytes() for part in (data.y, data.group) if part is not None)
    return hashlib.sha256(content).hexdigest()[:16]


@pytest.mark.parametrize("name", GENERATORS)
def test_a_seed_gives_the_same_data_for_ever(name: str) -> None:
    assert digest(generate(name, {"seed": 7})) == PINNED[name]


def test_case_1() -> None:
    assert by_peer(generate("unequal_clusters", {})) == [[333] * 3, [333] * 3, [500, 500, 0]]
    data = generate("unequal_clusters", {"equal": True})
    assert by_peer(data) == [[333] * 3] * 3
    assert np.abs(means(data) - [[-2, -2], [0, 0], [2, 2]]).max() < 5 * 0.5 / np.sqrt(999)
    assert generate("unequal_clusters", {"sigma": 0.0}).X.std(axis=0).tolist() == pytest.approx([1.6, 1.6], abs=0.1)


def test_case_2() -> None:
    data = generate("hidden_clusters", {})
    assert by_peer(data) == [[900, 50, 50], [50, 900, 50]]
    assert np.abs(means(data) - [[5, 0], [5, 10], [10, 10]]).max() < 5 * 1.1 / np.sqrt(100)


@pytest.mark.parametrize("rows", [[100, 1000, 100], [100, 1000, 1000], [1000, 100, 100], [1000, 1000, 1000]])
def test_case_3(rows: list[int]) -> None:
    data = generate("absent_clusters", {"rows": rows})
    a, b, c = (n // 2 for n in rows)
    assert by_peer(data) == [[a, a, 0, 0], [0, b, b, 0], [0, 0, c, c]]
    assert np.abs(means(data) - [[0, 0], [0, 10], [10, 10], [10, 0]]).max() < 5 / np.sqrt(50)


@pytest.mark.parametrize("dimension", [2, 64, 1024])
@pytest.mark.parametrize("sd", [10, 100])
def test_case_4(dimension: int, sd: int) -> None:
    data = generate("g2", {"dimension": dimension, "sd": sd})
    assert data.X.shape == (2048, dimension)
    assert data.y is not None
    assert data.y.tolist() == [0] * 1024 + [1] * 1024
    assert np.array_equal(data.X, np.rint(data.X))
    for k, mean in enumerate((500, 600)):
        part = data.X[data.y == k]
        assert np.abs(part.mean(axis=0) - mean).max() < 5 * sd / np.sqrt(1024)
        assert part.std() == pytest.approx(sd, rel=0.1)


def test_case_4_is_like_the_published_sets() -> None:
    if "g2_2_30" not in available():
        pytest.skip("g2_2_30 is not here: p2pclust data fetch g2_2_30")
    ours, theirs = generate("g2", {"sd": 30}), load("g2-2-30")
    assert ours.X.shape == theirs.X.shape
    assert np.array_equal(np.asarray(ours.y), np.asarray(theirs.y))
    assert np.array_equal(theirs.X, np.rint(theirs.X))
    for k in range(2):
        a, b = (data.X[np.asarray(data.y) == k] for data in (ours, theirs))
        assert np.abs(a.mean(axis=0) - b.mean(axis=0)).max() < 5 * 30 * np.sqrt(2 / 1024)
        assert a.std() == pytest.approx(b.std(), rel=0.1)


def test_the_grid() -> None:
    data = gaussian_grid(points=200, noise=1.0)
    centers = means(data)
    assert np.abs(centers - np.round(centers / 2.5) * 2.5).max() < 0.4
    steps = np.linalg.norm(centers[:, None] - centers, axis=2) + 99 * np.eye(16)
    assert np.allclose(steps.min(axis=1), 5, atol=0.6)


def test_beta_decides_who_sees_the_rows_of_the_grid_and_not_which_these_are() -> None:
    near, far = gaussian_grid(beta=0.1), gaussian_grid(beta=10.0)
    assert np.array_equal(near.X, far.X)
    clusters_seen = [(np.array(by_peer(data)) > 5).sum(axis=1).mean() for data in (near, far)]
    assert clusters_seen[0] < 7  # of 16: a peer sees its corner
    assert clusters_seen[1] > 12
    nearest = np.linalg.norm(near.X[:, None] - np.array(PEER_LOCATIONS), axis=2).argmin(axis=1)
    assert (near.group == nearest).mean() > 0.9


def test_the_smart_meters() -> None:
    data = generate("smart_meters", {"households": 8, "days": 14})
    assert by_peer(data).count([10, 4, 0, 0]) == 2, "out on working days, at home at the weekend"
    assert [sorted(row)[-1] for row in by_peer(data)].count(14) == 6
    tops = means(data)[:, 1:].argmax(axis=1) + 1
    assert tops.tolist()[:3] == [19, 12, 3]
    assert means(data)[3, 12] < 0 < means(data)[3, 20], "by day the roof feeds in"


def test_the_admissions() -> None:
    data = generate("admissions", {"hospitals": 5, "patients": 400})
    assert data.y is not None
    assert [row for row in by_peer(data) if sum(row) != 400] == []
    wards = [np.bincount(data.X[data.y == k, 4].astype(int), minlength=4).argmax() for k in range(4)]
    assert wards == [0, 1, 2, 3]
    assert set(data.X[data.y == 0, 5]) == {0.0}, "only women give birth"
    assert (data.X >= 0).all()
    assert data.X[:, 3:].max(axis=0).tolist() == [2.0, 3.0, 1.0]


def test_the_moving_clusters() -> None:
    data = generate("moving_clusters", {"peers": 20, "rows": 400})
    assert data.y is not None
    time = np.tile(np.arange(400), 20)

    def middle(k: int, rows: np.ndarray) -> list[float]:
        assert data.y is not None
        return np.asarray(data.X[(data.y == k) & rows].mean(axis=0)).tolist()

    for k, early, late in ((0, [0, 0], [0, 0]), (1, [8, 0], [12, 4]), (2, [0, 8], [0, 8])):
        assert middle(k, time < 200) == pytest.approx(early, abs=0.2)
        assert middle(k, time >= 200) == pytest.approx(late, abs=0.2)
    for rows, shares in ((time < 300, [1 / 3] * 3), (time >= 300, [0.15, 0.15, 0.7])):
        assert np.bincount(data.y[rows]) / rows.sum() == pytest.approx(shares, abs=0.04)


def test_the_uneven_grid() -> None:
    table = np.array(by_peer(generate("uneven_grid", {})))
    assert (table > 0).sum(axis=1).tolist() == [16, 1, 3, 10, 7]
    assert table.sum(axis=1).tolist() == [473, 10, 34, 173, 98]
    assert table[:, 0].tolist() == [10] * 5
    assert table[:, 15].tolist() == [50, 0, 0, 0, 0]


def test_loaded_by_any_spelling_and_with_options() -> None:
    assert load("gaussian-grid", options={"points": 3}).n_rows == 48
    assert load("Gaussian_Grid", options={"points": 3, "noise": 2}).n_rows == 48


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "gaussian_grid",
            {"nois": 1},
            r"no option 'nois' \(did you mean 'noise'\?\); its options are points = 50, noise",
        ),
        ("gaussian_grid", {"noise": "much"}, r"noise = 'much': expected a number, as in 1\.0$"),
        ("gaussian_grid", {"points": 1.5}, r"points = 1\.5: expected a whole number, as in 50$"),
        ("gaussian_grid", {"points": True}, r"points = True: expected a whole number, as in 50$"),
        ("gaussian_grid", {"points": 0}, r"points = 0: expected at least 1$"),
        ("gaussian_grid", {"beta": 0.0}, r"beta = 0\.0: expected more than 0$"),
        ("gaussian_grid", {"noise": -1.0}, r"expected no negative seed or standard deviation$"),
        ("gaussian_grid", {"seed": -1}, r"expected no negative seed or standard deviation$"),
        ("unequal_clusters", {"equal": 1}, r"equal = 1: expected true or false, as in false$"),
        (
            "absent_clusters",
            {"rows": [100, 100]},
            r"rows = \[100, 100\]: expected three even numbers, one for each peer$",
        ),
        (
            "absent_clusters",
            {"rows": 100},
            r"rows = 100: expected a list of whole numbers, as in \[1000, 1000, 1000\]$",
        ),
        ("admissions", {"focus": 0.0}, r"expected at least one hospital and patient, a focus above 0"),
        ("smart_meters", {"noise": -1.0}, r"expected at least one household and day, .* no negative noise or seed$"),
        ("moving_clusters", {"growth": 1.5}, r"expected at least one peer and row, .* a growth from 0 to 1$"),
        ("uneven_grid", {"clusters": [17]}, r"clusters = \[17\]: expected 1 to 16 for each peer$"),
        ("uneven_grid", {"points": 4}, r"points = 4: expected at least 5, one for each peer$"),
        ("g2", {"dimension": 0}, r"dimension = 0: expected at least 1$"),
    ],
)
def test_options_that_cannot_be_meant(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=rf"^{name}: {message}"):
        generate(name, options)


def test_options_are_for_generated_sets() -> None:
    with pytest.raises(UsageError, match=r"^iris: options are for generated data sets: absent_clusters, "):
        load("iris", options={"seed": 1})
    with pytest.raises(
        UsageError,
        match=r"^gaussians: label_column, group_column, id_column, columns, missing_values, .* are for files",
    ):
        load("gaussians", missing_values="drop")
    with pytest.raises(DataError, match=r"^gaussians: expected at least one row"):
        load("gaussians", options={"n_rows": 0})
