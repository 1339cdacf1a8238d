"""Stacked flows: the likelihood is exact, and a model is trained alike whatever else is in the stack."""

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

from p2pclust.clustering.flows import FlowArchitecture, generated_rows, log_likelihoods, random_flows, train_flows
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
    found = log_likelihoods(shape, weights, X)
    assert found.shape == (11, 3)
    for m, model in enumerate(weights):
        z, logs, _ = masked_flow(shape, model, torch.from_numpy(X))
        np.testing.assert_allclose(found[:, m], likelihood_of(z, logs).detach(), rtol=1e-4, atol=1e-4)


def test_the_determinant_is_that_of_the_jacobian() -> None:
    shape = FlowArchitecture(4, couplings=4, hidden=(6,))
    weights = 3.0 * random_flows(shape, rngs(3))
    for x in torch.from_numpy(rows(4, d=4)):
        z, _, _ = masked_flow(shape, weights[0], x[None])
        jacobian = torch.autograd.functional.jacobian(lambda at: masked_flow(shape, weights[0], at)[0], x[None])
        wanted = likelihood_of(z, torch.linalg.slogdet(jacobian[0, :, 0])[1])
        assert log_likelihoods(shape, weights, x[None].numpy())[0, 0] == pytest.approx(wanted.item(), abs=1e-4)


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_no_steps_and_no_rows() -> None:
    weights = random_flows(SMALL, rngs(0, 1))
    after = train_flows(SMALL, weights, [rows(3), rows(0)], rngs=rngs(0, 1), steps=4)
    assert after[0].tobytes() != weights[0].tobytes()
    assert after[1].tobytes() == weights[1].tobytes(), "a model without rows is left as it is"
    assert train_flows(SMALL, weights, [rows(3), rows(4)], rngs=rngs(0, 1), steps=0).tobytes() == weights.tobytes()
    assert train_flows(SMALL, weights[:0], [], rngs=[]).shape == (0, SMALL.n_parameters)
    assert log_likelihoods(SMALL, weights, np.zeros((0, 5))).shape == (0, 2)
    assert log_likelihoods(SMALL, weights[:0], rows(3)).shape == (3, 0)


def test_a_broken_model_is_never_the_best() -> None:
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
        assert (len(shape.coupling_shapes), shape.n_parameters) == (6, 6_772_320)

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


def test_rows_that_a_model_draws_are_mapped_back_to_what_they_were_drawn_from() -> None:
    from p2pclust.clustering import flow_network as network

    shape = FlowArchitecture(5, couplings=3, hidden=(8, 8))
    weights = 3.0 * random_flows(shape, [np.random.default_rng(0)])
    codes = np.random.default_rng(1).normal(size=(20, 5)).astype(np.float32)
    rows = generated_rows(shape, weights, codes)[0]
    assert np.abs(rows - codes).max() > 0.1, "these weights move every row"
    halves = [torch.from_numpy(rows[:, half]) for half in shape.halves]
    for coupling, conditioner in enumerate(network._conditioners(shape, torch.from_numpy(weights[0]))):
        s, t = network._scale_and_shift(conditioner, halves[coupling % 2])
        halves[1 - coupling % 2] = halves[1 - coupling % 2] * s.exp() + t
    for half, found in zip(shape.halves, halves, strict=True):
        assert found.numpy() == pytest.approx(codes[:, half], abs=1e-4)
