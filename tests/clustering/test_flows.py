"""Stacked flows: an invertible map whose likelihood is exact, trained as torch would, whatever else is in the stack."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2pclust.clustering import flows
from p2pclust.clustering.flows import (
    FlowArchitecture,
    latent,
    log_likelihoods,
    random_flows,
    restored,
    train_flows,
)
from p2pclust.errors import DataError, UsageError

torch = pytest.importorskip("torch", reason="flows need torch: pip install 'p2pclust[models]'")

SMALL = FlowArchitecture(5, couplings=3, hidden=(7, 6))


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Bits are promised for one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def rngs(*seeds: int) -> list[np.random.Generator]:
    return [np.random.default_rng(seed) for seed in seeds]


def rows(n: int, seed: int = 0, d: int = 5) -> np.ndarray:
    return np.random.default_rng([seed, n]).normal(size=(n, d)).astype(np.float32)


def masked_flow(architecture: FlowArchitecture, weights: np.ndarray, X: Any) -> tuple[Any, Any, list[Any]]:
    """The footnote's network as it is usually written: masks, and weights also for what is masked away.

    Returns z, the sum of all s, and the parameters.
    """
    d, start, parameters, logs = architecture.n_features, 0, [], 0.0
    for coupling in range(architecture.couplings):
        kept, moved = (architecture.halves[i] for i in (coupling % 2, 1 - coupling % 2))
        mask = torch.zeros(d)
        mask[torch.from_numpy(kept)] = 1.0
        layers = []
        for inner, outer in [
            *pairwise((len(kept), *architecture.hidden)),
            *[(architecture.hidden[-1], len(moved))] * 2,
        ]:
            matrix = torch.tensor(weights[start : start + inner * outer].reshape(inner, outer), requires_grad=True)
            bias = torch.tensor(weights[start + inner * outer :][:outer], requires_grad=True)
            start += inner * outer + outer
            layers.append((matrix, bias))
            parameters += [matrix, bias]
        first = torch.zeros(d, architecture.hidden[0]).index_copy(0, torch.from_numpy(kept), layers[0][0])
        hidden = torch.relu((X * mask) @ first + layers[0][1])
        for matrix, bias in layers[1:-2]:
            hidden = torch.relu(hidden @ matrix + bias)
        wide = [torch.zeros(len(X), d).index_copy(1, torch.from_numpy(moved), hidden @ m + b) for m, b in layers[-2:]]
        s, t = torch.tanh(wide[0]) * (1 - mask), wide[1] * (1 - mask)
        X = mask * X + (1 - mask) * (X * torch.exp(s) + t)
        logs = logs + s.sum(1)
    return X, logs, parameters


def likelihood_of(z: Any, logs: Any) -> Any:
    return torch.distributions.Normal(0.0, 1.0).log_prob(z).sum(1) + logs


@pytest.mark.parametrize("d", [1, 2, 5, 9, 16])
@pytest.mark.parametrize("couplings", [1, 2, 5])
def test_the_same_as_with_masks(d: int, couplings: int) -> None:
    shape = FlowArchitecture(d, couplings=couplings, hidden=(4, 3))
    weights, X = 2.0 * random_flows(shape, rngs(1, 2, 3)), rows(11, d=d)
    found, mapped = log_likelihoods(shape, weights, X), latent(shape, weights, X)
    assert (found.shape, mapped.shape) == ((11, 3), (3, 11, d))
    for m, model in enumerate(weights):
        z, logs, _ = masked_flow(shape, model, torch.from_numpy(X))
        np.testing.assert_allclose(mapped[m], z.detach(), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found[:, m], likelihood_of(z, logs).detach(), rtol=1e-4, atol=1e-4)


def test_the_inverse_gives_the_rows_back() -> None:
    weights, X = 2.0 * random_flows(SMALL, rngs(1, 2)), rows(9)
    for mapped, model in zip(latent(SMALL, weights, X), weights, strict=True):
        np.testing.assert_allclose(restored(SMALL, model[np.newaxis], mapped)[0], X, rtol=1e-4, atol=1e-4)


def test_the_determinant_is_that_of_the_jacobian() -> None:
    shape = FlowArchitecture(4, couplings=4, hidden=(6,))
    weights = 3.0 * random_flows(shape, rngs(3))
    for x in rows(4, d=4):
        z = latent(shape, weights, x[np.newaxis])[0, 0].astype(np.float64)
        gaussian = -0.5 * (z**2).sum() - 2.0 * np.log(2.0 * np.pi)
        found = float(log_likelihoods(shape, weights, x[np.newaxis])[0, 0])
        # By differences of the map as it is computed, and by autograd of the one with masks.
        step = 1e-2
        moved = latent(shape, weights, np.concatenate([x + step * np.eye(4), x - step * np.eye(4)]))[0]
        jacobian = (moved[:4].astype(np.float64) - moved[4:]).T / (2 * step)
        assert found == pytest.approx(gaussian + np.linalg.slogdet(jacobian)[1], abs=0.05)
        exact = torch.autograd.functional.jacobian(
            lambda at: masked_flow(shape, weights[0], at)[0], torch.from_numpy(x[np.newaxis])
        )
        assert found == pytest.approx(gaussian + float(torch.linalg.slogdet(exact[0, :, 0])[1]), abs=1e-4)


def test_a_density_sums_to_one() -> None:
    shape = FlowArchitecture(2, couplings=3, hidden=(5,))
    axis = np.linspace(-12.0, 12.0, 401)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    density = np.exp(log_likelihoods(shape, 2.0 * random_flows(shape, rngs(0, 1)), grid).astype(np.float64))
    assert density.sum(axis=0) * (axis[1] - axis[0]) ** 2 == pytest.approx([1.0, 1.0], abs=1e-3)


@pytest.mark.slow
def test_a_step_is_that_of_torch() -> None:
    """Autograd, torch's own Adam with its L2, one minibatch of all rows per step."""
    weights, X = random_flows(SMALL, rngs(4)), rows(12)
    found = train_flows(SMALL, weights, [X], rngs=rngs(0), steps=6, batch=12, learning_rate=1e-2, decay=1e-2)
    current = weights[0].copy()
    optimiser = None
    for _ in range(6):
        z, logs, parameters = masked_flow(SMALL, current, torch.from_numpy(X))
        gradient = torch.autograd.grad(-likelihood_of(z, logs).mean(), parameters)
        if optimiser is None:
            flat = torch.tensor(current, requires_grad=True)
            optimiser = torch.optim.Adam([flat], lr=1e-2, weight_decay=1e-2)
        flat.grad = torch.cat([part.flatten() for part in gradient])
        optimiser.step()
        current = flat.detach().numpy().copy()
    np.testing.assert_allclose(found[0], current, rtol=1e-3, atol=1e-4)


def test_minibatches_see_every_row_once_per_turn() -> None:
    picks, filled = flows._schedule([5, 2], rngs(0, 1), steps=6, batch=2, width=32)
    assert filled.tolist() == [[2, 2], [2, 2], [1, 2], [2, 2], [2, 2], [1, 2]]
    for turn in (0, 3):
        assert sorted(p for step in range(turn, turn + 3) for p in picks[step, 0, : filled[step, 0]]) == [0, 1, 2, 3, 4]
    assert all(sorted(picks[step, 1, :2].tolist()) == [5, 6] for step in range(6))
    assert (picks[:, 0, 2:] == 0).all()


def test_likelihood_separates_two_blobs() -> None:
    rng = np.random.default_rng(0)
    blobs = [rng.normal(middle, 0.3, (80, 2)) for middle in ([-1.0, 0.0], [1.0, 0.5])]
    shape = FlowArchitecture(2, couplings=4, hidden=(16,))
    start = random_flows(shape, rngs(0, 0))
    trained = train_flows(shape, start, blobs, rngs=rngs(1, 2), steps=150, learning_rate=1e-2)
    found = log_likelihoods(shape, trained, np.concatenate(blobs))
    assert (found.argmax(axis=1) == np.repeat([0, 1], 80)).mean() > 0.95
    # Close to what the blobs' own density gives its rows: -(1 + log(2 pi)) - 2 log 0.3.
    assert found[:80, 0].mean() == pytest.approx(-0.43, abs=0.3)


@given(
    d=st.sampled_from([1, 2, 3, 8, 13]),
    couplings=st.integers(1, 3),
    hidden=st.sampled_from([(1,), (8,), (5, 4)]),
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=4),
    alone=st.integers(0, 3),
    data=st.data(),
)
@settings(max_examples=25, deadline=None)
def test_a_model_has_the_same_bits_in_any_stack(
    d: int, couplings: int, hidden: tuple[int, ...], sizes: list[int], alone: int, data: st.DataObject
) -> None:
    shape = FlowArchitecture(d, couplings=couplings, hidden=hidden)
    samples = [rows(n, seed=m, d=d) for m, n in enumerate(sizes)]
    weights = random_flows(shape, rngs(*range(len(sizes))))
    order = data.draw(st.permutations(range(len(sizes))))
    settings_ = {"steps": 5, "batch": 16, "learning_rate": 1e-2}
    together = train_flows(
        shape, weights[order], [samples[m] for m in order], rngs=rngs(*[10 + m for m in order]), **settings_
    )
    m = alone % len(sizes)
    by_itself = train_flows(shape, weights[[m]], [samples[m]], rngs=rngs(10 + m), **settings_)
    assert together[order.index(m)].tobytes() == by_itself[0].tobytes()
    X = rows(50, d=d)
    assert (
        log_likelihoods(shape, together, X)[:, order.index(m)].tobytes()
        == log_likelihoods(shape, by_itself, X)[:, 0].tobytes()
    )
    assert log_likelihoods(shape, by_itself, X)[7:8].tobytes() == log_likelihoods(shape, by_itself, X[7:8]).tobytes()


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = [rows(n) for n in (9, 0, 20, 3)]
    weights = random_flows(SMALL, rngs(0, 1, 2, 3))
    whole = train_flows(SMALL, weights, samples, rngs=rngs(0, 1, 2, 3), steps=4)
    likely = log_likelihoods(SMALL, whole, samples[2])
    monkeypatch.setitem(flows._CHUNK_WEIGHTS, "cpu", 1)
    monkeypatch.setitem(flows._BLOCK_WEIGHTS, "cpu", 2 * SMALL.n_parameters)
    assert train_flows(SMALL, weights, samples, rngs=rngs(0, 1, 2, 3), steps=4).tobytes() == whole.tobytes()
    assert log_likelihoods(SMALL, whole, samples[2]).tobytes() == likely.tobytes()
    assert whole[1].tobytes() == weights[1].tobytes(), "a model without rows is left as it is"


def test_no_steps_and_no_rows() -> None:
    weights = random_flows(SMALL, rngs(0, 1))
    assert train_flows(SMALL, weights, [rows(3), rows(4)], rngs=rngs(0, 1), steps=0).tobytes() == weights.tobytes()
    assert train_flows(SMALL, weights[:0], [], rngs=[]).shape == (0, SMALL.n_parameters)
    assert log_likelihoods(SMALL, weights, np.zeros((0, 5))).shape == (0, 2)
    assert log_likelihoods(SMALL, weights[:0], rows(3)).shape == (3, 0)


def test_a_broken_model_is_nobodys_best() -> None:
    weights = random_flows(SMALL, rngs(0, 1, 2))
    weights[0] = np.nan
    weights[2] = 1e38
    found = log_likelihoods(SMALL, weights, rows(4))
    assert np.isneginf(found[:, [0, 2]]).all()
    assert np.isfinite(found[:, 1]).all()


def test_random_flows_depend_on_their_own_generator_only() -> None:
    both = random_flows(SMALL, rngs(3, 4))
    assert both[1].tobytes() == random_flows(SMALL, rngs(4))[0].tobytes()
    matrix = both[0][: SMALL.shapes[0][0] * SMALL.shapes[0][1]]
    assert 0.9 / np.sqrt(5) < np.abs(matrix).max() < 1 / np.sqrt(5), "masked units count in the first layer's bound"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")
def test_the_same_on_cuda() -> None:
    weights, samples = random_flows(SMALL, rngs(0, 1)), [rows(40), rows(7)]
    found = [
        train_flows(SMALL, weights, samples, rngs=rngs(2, 3), steps=5, learning_rate=1e-2, device=device)
        for device in ("cpu", "cuda")
    ]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-3, atol=1e-4)
    likely = [log_likelihoods(SMALL, weights, samples[0], device=device) for device in ("cpu", "cuda")]
    np.testing.assert_allclose(likely[0], likely[1], rtol=1e-4, atol=1e-4)


class TestArchitecture:
    def test_a_checkerboard_of_images(self) -> None:
        board = np.indices((28, 28)).sum(axis=0).ravel() % 2
        assert FlowArchitecture(784).halves[1].tolist() == np.flatnonzero(board).tolist()
        board = np.indices((2, 4)).sum(axis=0).ravel() % 2
        assert FlowArchitecture(8, image_width=4).halves[1].tolist() == np.flatnonzero(board).tolist()
        assert FlowArchitecture(7).halves[0].tolist() == [0, 2, 4, 6]

    def test_the_footnotes_network(self) -> None:
        shape = FlowArchitecture(784)
        assert shape.coupling_shapes[0] == ((392, 512), (512, 512), (512, 512), (512, 392), (512, 392))
        assert (len(shape.coupling_shapes), shape.forward_flops) == (6, 2 * 6 * (3 * 392 * 512 + 2 * 512 * 512))
        assert shape.training_flops == 3 * shape.forward_flops - 2 * 392 * 512

    @pytest.mark.parametrize("options", [{"couplings": 0}, {"hidden": ()}, {"hidden": (3, 0)}, {"image_width": 0}])
    def test_what_is_no_network(self, options: dict[str, Any]) -> None:
        with pytest.raises(UsageError, match="at least one"):
            FlowArchitecture(4, **options)


@pytest.mark.parametrize(
    ("call", "error", "line"),
    [
        (lambda w: log_likelihoods(SMALL, w, np.zeros((3, 4))), DataError, "must have 5 columns"),
        (lambda w: log_likelihoods(SMALL, w, np.full((3, 5), np.nan)), DataError, "nan in row 0, column 0"),
        (lambda w: log_likelihoods(SMALL, w[:, 1:], rows(3)), UsageError, "have 319 weights each"),
        (lambda w: log_likelihoods(SMALL, w, rows(3), device="nowhere"), UsageError, "no device 'nowhere'"),
        (lambda w: train_flows(SMALL, w, [rows(3)], rngs=rngs(0)), UsageError, "2 models need as many clusters"),
        (lambda w: train_flows(SMALL, w, [rows(3)] * 2, rngs=rngs(0, 1), batch=0), UsageError, "must be positive"),
        (lambda w: train_flows(SMALL, w, [rows(3)] * 2, rngs=rngs(0, 1), decay=-1.0), UsageError, "must be positive"),
        (lambda w: latent(SMALL, w, np.zeros(5)), DataError, "must have 5 columns"),
    ],
)
def test_bad_input(call: Any, error: type[Exception], line: str) -> None:
    with pytest.raises(error, match=line):
        call(random_flows(SMALL, rngs(0, 1)))


def test_without_torch_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'p2pclust\[models\]'"):
        log_likelihoods(SMALL, random_flows(SMALL, rngs(0)), rows(3))


def test_the_architecture_needs_no_torch() -> None:
    script = """
import sys
from numpy.random import default_rng
from p2pclust.clustering.flows import FlowArchitecture, random_flows
random_flows(FlowArchitecture(784, couplings=1, hidden=(4,)), [default_rng(0)])
print(sorted({"torch", "scipy", "sklearn"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
