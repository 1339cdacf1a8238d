"""Deep embedded clustering: its equations, and a small run on images of digits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from p2pclust.clustering.dec import DecSettings, deep_embedded_clustering, soft_assignments, target_distribution
from p2pclust.errors import DataError, UsageError

torch = pytest.importorskip("torch", reason="DEC needs torch: pip install 'p2pclust[models]'")

SMALL = DecSettings(
    encoder=(32, 32, 64, 5),
    pretraining_epochs=40,
    pretraining_rate=3e-3,
    batch=64,
    update_interval=20,
    max_updates=10,
)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Bits are promised for one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    kept = np.isin(y, [0, 1, 6])
    return X[kept] / 16.0, y[kept]


def test_equations_1_and_3_by_hand():
    q = soft_assignments([[0.0, 0.0], [3.0, 4.0]], [[0.0, 0.0], [0.0, 2.0]])
    # 1 / (1 + d^2): 1 and 1/5; 1/26 and 1/14.
    assert q == pytest.approx(np.array([[5 / 6, 1 / 6], [14 / 40, 26 / 40]]))
    p = target_distribution(np.array([[0.5, 0.5], [0.5, 0.0]]))
    assert p == pytest.approx(np.array([[0.25 / 0.75, 0.5 / 0.75], [1.0, 0.0]]))


@pytest.mark.slow
def test_a_descent_is_torch_s_own(digits):
    from p2pclust.clustering.autoencoders import ModelStack
    from p2pclust.clustering.dec_network import Encoder

    X, target = digits[0][:70].astype(np.float32), rng(1).dirichlet(np.ones(3), size=70)
    model = ModelStack.random(SMALL.architecture(64), [rng()])
    encoder = Encoder(model, 4, torch.device("cpu"))
    before = encoder.encode(X)
    encoder.start(before[[0, 1, 2]])
    batches = [rng(step).permutation(70)[: 32 if step % 2 else 7] for step in range(12)]
    encoder.descend(X, target, batches, 0.5, 0.9)

    layers = [tuple(map(torch.tensor, layer)) for layer in model.architecture.layers(model.weights[0])[:4]]
    centers = torch.tensor(before[[0, 1, 2]], dtype=torch.float32)
    moved = [part.requires_grad_() for layer in layers for part in layer] + [centers.requires_grad_()]
    optimiser = torch.optim.SGD(moved, lr=0.5, momentum=0.9)

    def encoded(rows: torch.Tensor) -> torch.Tensor:
        for index, (matrix, bias) in enumerate(layers):
            rows = rows @ matrix + bias
            rows = rows.relu() if index < 3 else rows
        return rows

    for batch in batches:
        closeness = 1 / (1 + (encoded(torch.from_numpy(X[batch]))[:, None] - centers).square().sum(2))
        aims = torch.from_numpy(target[batch])
        optimiser.zero_grad()
        (aims * (aims / (closeness / closeness.sum(1, keepdim=True))).log()).sum(1).mean().backward()
        optimiser.step()
    after = encoder.encode(X)
    assert np.abs(after - before).max() > 0.1
    assert after == pytest.approx(encoded(torch.from_numpy(X)).detach().numpy(), abs=1e-4)
    assert encoder.centers == pytest.approx(centers.detach().numpy(), abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("pretraining", ["plain", "layer-wise"])
def test_digits_that_differ_are_told_apart(digits, pretraining):
    from dataclasses import replace

    from p2pclust.metrics import accuracy

    X, y = digits
    chosen = replace(SMALL, pretraining=pretraining)
    found = deep_embedded_clustering(X, 3, rng(), settings=chosen)
    assert accuracy(y, found.labels) > 0.85
    assert found.memberships.sum(axis=1) == pytest.approx(1.0)
    assert found.memberships.shape == (len(X), 3)
    assert 1 <= found.n_updates <= 10
    again = deep_embedded_clustering(X, 3, rng(), settings=chosen)
    assert again.memberships.tobytes() == found.memberships.tobytes()


@pytest.mark.slow
def test_it_stops_when_hardly_any_row_changes(digits):
    from dataclasses import replace

    found = deep_embedded_clustering(digits[0], 3, rng(), settings=replace(SMALL, tol=1.1))
    assert found.n_updates == 1


@pytest.mark.parametrize(("X", "found"), [(np.ones((6, 4)), 1), (np.eye(4)[:1], 1), (np.eye(4)[[0, 1, 0]], 2)])
def test_fewer_distinct_rows_than_clusters(X, found):
    result = deep_embedded_clustering(X, 3, rng(), settings=SMALL)
    assert len(set(result.labels.tolist())) == found
    assert np.isfinite(result.memberships).all()


def test_bad_input_is_refused():
    with pytest.raises(DataError):
        deep_embedded_clustering([[np.nan]], 1, rng())
    with pytest.raises(UsageError, match="at least 1"):
        deep_embedded_clustering([[1.0]], 0, rng())
    with pytest.raises(UsageError, match="layer-wise"):
        DecSettings(pretraining="none")
    with pytest.raises(UsageError, match="at least 1"):
        DecSettings(encoder=())
