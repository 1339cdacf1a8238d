"""Stacked training and evaluation: the same as torch's own, whatever else is in the stack."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2pclust.clustering import stacks
from p2pclust.clustering.autoencoders import Architecture, ModelStack
from p2pclust.clustering.stacks import PRECISIONS, reconstruction_errors, reconstructions, train
from p2pclust.errors import DataError, UsageError

torch = pytest.importorskip("torch", reason="autoencoders need torch: pip install 'p2pclust[models]'")
stack_kernels = importlib.import_module("p2pclust.clustering.stack_kernels")

SMALL = Architecture(13, hidden=(11, 5, 11))


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Tests run side by side."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def rngs(*seeds: int) -> list[np.random.Generator]:
    return [np.random.default_rng(seed) for seed in seeds]


def rows(n: int, seed: int = 0, d: int = 13) -> np.ndarray:
    return np.random.default_rng([seed, n]).random((n, d), dtype=np.float32)


def test_minibatches_see_every_row_once_per_turn() -> None:
    found = list(islice(stacks.minibatches(5, 2, rngs(0)[0]), 6))
    assert [len(batch) for batch in found] == [2, 2, 1, 2, 2, 1]
    for turn in (0, 3):
        assert sorted(np.concatenate(found[turn : turn + 3]).tolist()) == [0, 1, 2, 3, 4]


def network_of(architecture: Architecture, weights: np.ndarray) -> torch.nn.Sequential:
    """The same model out of torch's own parts."""
    parts: list[torch.nn.Module] = []
    kinds = {"relu": torch.nn.ReLU, "sigmoid": torch.nn.Sigmoid, "linear": torch.nn.Identity}
    for (matrix, bias), kind in zip(architecture.layers(weights), architecture.activations, strict=True):
        linear = torch.nn.Linear(*matrix.shape)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(matrix.T.copy()))
            linear.bias.copy_(torch.from_numpy(bias.copy()))
        parts += [linear, kinds[kind]()]
    return torch.nn.Sequential(*parts)


def weights_of(network: torch.nn.Sequential) -> np.ndarray:
    linears = [part for part in network if isinstance(part, torch.nn.Linear)]
    flat = [part for one in linears for part in (one.weight.detach().numpy().T.ravel(), one.bias.detach().numpy())]
    return np.concatenate(flat)


def trained_by_torch(stack, samples, generators, *, epochs, batch, learning_rate):
    """A loop over models, autograd and torch's own optimiser."""
    trained = []
    for weights, X, rng in zip(stack.weights, samples, generators, strict=True):
        network = network_of(stack.architecture, weights)
        optimiser = torch.optim.Adam(network.parameters(), lr=learning_rate)
        for _ in range(epochs):
            order = rng.permutation(len(X))
            for start in range(0, len(X), batch):
                taken = torch.from_numpy(X[order[start : start + batch]])
                optimiser.zero_grad()
                torch.nn.functional.mse_loss(network(taken), taken).backward()
                optimiser.step()
        trained.append(weights_of(network))
    return np.stack(trained)


@pytest.mark.parametrize("output", ["sigmoid", "relu", "linear"])
@pytest.mark.parametrize("code", ["relu", "linear"])
def test_gradients_are_autograd_s(output, code):
    architecture = Architecture(13, hidden=(11, 5, 9), output=output, code=code)
    stack = ModelStack.random(architecture, rngs(1, 2))
    X = torch.from_numpy(np.stack([rows(16, 1), rows(16, 2)]))
    cpu = torch.device("cpu")
    with torch.no_grad():
        network = stack_kernels.LayerStack(architecture, 2, 16, cpu)
        layout = stack_kernels.WeightLayout(architecture.shapes)
        slopes = layout.rows(2, cpu)
        weights, gradients = layout.views(layout.rows(2, cpu), 2), layout.views(slopes, 2)
        layout.pack(stack.weights, weights)
        models = stack_kernels.Pass(network, weights, gradients)
        models.slope[...] = 2.0 * (models.forward(X) - X) / (16 * 13)
        models.backward()
    for m in range(2):
        reference = network_of(architecture, stack.weights[m])
        torch.nn.functional.mse_loss(reference(X[m]), X[m]).backward()
        linears = [part for part in reference if isinstance(part, torch.nn.Linear)]
        expected = [part for one in linears for part in (one.weight.grad.numpy().T.ravel(), one.bias.grad.numpy())]
        found = layout.unpack(gradients, np.empty_like(stack.weights))[m]
        assert np.abs(found).max() > 1e-3
        assert found == pytest.approx(np.concatenate(expected), rel=1e-4, abs=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("batch", [8, 10, 64])
def test_training_is_torch_s_own_loop(batch):
    # Of different sizes, with last minibatches of every kind, one of a single row; one model has a single row at all.
    samples = [rows(n, seed) for seed, n in enumerate([30, 41, 8, 1])]
    stack = ModelStack.random(SMALL, rngs(1, 2, 3, 4))
    how = {"epochs": 3, "batch": batch, "learning_rate": 0.01}
    found = train(stack, samples, rngs=rngs(5, 6, 7, 8), **how).weights
    expected = trained_by_torch(stack, samples, rngs(5, 6, 7, 8), **how)
    assert np.abs(found - stack.weights).max() > 0.01
    assert found == pytest.approx(expected, abs=2e-4)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=7),
    d=st.integers(1, 20),
    hidden=st.lists(st.integers(1, 20), min_size=1, max_size=3),
    batch=st.integers(1, 20),
    data=st.data(),
)
def test_a_model_does_not_depend_on_its_stack(sizes, d, hidden, batch, data):
    architecture = Architecture(d, hidden=tuple(hidden))
    n = len(sizes)
    chosen = data.draw(st.permutations(range(n)))[: data.draw(st.integers(1, n))]
    stack = ModelStack.random(architecture, rngs(*range(n)))
    samples = [rows(size, seed, d) for seed, size in enumerate(sizes)]
    together = train(stack, samples, rngs=rngs(*range(n)), epochs=2, batch=batch, learning_rate=0.01)
    some = train(
        stack[chosen], [samples[m] for m in chosen], rngs=rngs(*chosen), epochs=2, batch=batch, learning_rate=0.01
    )
    assert some.weights.tobytes() == together.weights[chosen].tobytes()
    X = rows(data.draw(st.integers(1, 150)), 99, d)
    for precision in PRECISIONS:
        found = reconstruction_errors(some, X, precision=precision)
        assert np.array_equal(found, reconstruction_errors(together, X, precision=precision)[:, chosen])


def test_the_paper_s_models_do_not_depend_on_their_stack_or_its_chunks(monkeypatch):
    paper = Architecture(784)
    stack = ModelStack.random(paper, rngs(*range(5)))
    samples = [rows(n, n, 784) for n in (70, 64, 30, 100, 3)]
    together = train(stack, samples, rngs=rngs(*range(5)), epochs=1)
    errors = reconstruction_errors(together, samples[3])
    monkeypatch.setitem(stacks._CHUNK_WEIGHTS, "cpu", 1)
    monkeypatch.setitem(stacks._BLOCK_WEIGHTS, "cpu", 1)
    for m in range(5):
        alone = train(stack[[m]], [samples[m]], rngs=rngs(m), epochs=1)
        assert alone.weights.tobytes() == together.weights[[m]].tobytes()
        assert np.array_equal(reconstruction_errors(alone, samples[3])[:, 0], errors[:, m])


@pytest.mark.slow
@pytest.mark.parametrize("d", [13, 784])
def test_threads_train_at_the_same_time_without_a_word_in_each_other_s_bits(d):
    # As a pool over peers does: every thread calls for its own models, several times, of two architectures in turns.
    def peer(seed: int) -> list[bytes]:
        found = []
        for n, hidden in ((3, (100, 32, 100)), (2, (20, 5, 20)), (1, (100, 32, 100))):
            stack = ModelStack.random(Architecture(d, hidden=hidden), rngs(*range(seed, seed + n)))
            samples = [rows(70 - 20 * m, seed + m, d) for m in range(n)]
            trained = train(stack, samples, rngs=rngs(*range(n)), epochs=2)
            found += [trained.weights.tobytes(), reconstruction_errors(trained, samples[0]).tobytes()]
        return found

    seeds = range(0, 60, 10)
    expected = [peer(seed) for seed in seeds]
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(peer, seeds)) == expected


def test_everything_is_computed_with_one_torch_thread_and_the_setting_is_left_as_it_is(monkeypatch):
    stack, X = ModelStack.random(SMALL, rngs(1)), rows(20)
    seen = []

    def watched(function):
        def wrapped(*given):
            seen.append(torch.get_num_threads())
            return function(*given)

        return wrapped

    monkeypatch.setattr(stack_kernels.Trainer, "run", watched(stack_kernels.Trainer.run))
    monkeypatch.setattr(stack_kernels, "errors", watched(stack_kernels.errors))
    monkeypatch.setattr(stack_kernels, "reconstruct", watched(stack_kernels.reconstruct))
    torch.set_num_threads(2)
    try:
        train(stack, [X], rngs=rngs(2), epochs=1)
        reconstruction_errors(stack, X)
        reconstructions(stack, X)
        assert seen == [1, 1, 1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_the_same_seed_gives_the_same_bits_and_another_does_not():
    stack = ModelStack.random(SMALL, rngs(1))
    first, again, other = (train(stack, [rows(30)], rngs=rngs(seed), epochs=2, batch=7) for seed in (1, 1, 2))
    assert first.weights.tobytes() == again.weights.tobytes()
    assert first.weights.tobytes() != other.weights.tobytes()


def test_nothing_to_train_on_or_no_epoch_leaves_a_model_as_it_is():
    stack = ModelStack.random(SMALL, rngs(1, 2))
    before = stack.weights.copy()
    found = train(stack, [rows(0), rows(20)], rngs=rngs(1, 2), epochs=1)
    assert np.array_equal(found.weights[0], before[0])
    assert not np.array_equal(found.weights[1], before[1])
    assert np.array_equal(stack.weights, before)
    assert np.array_equal(train(stack, [rows(5), rows(5)], rngs=rngs(1, 2), epochs=0).weights, before)
    assert len(train(stack[[]], [], rngs=[], epochs=1)) == 0


def test_constant_features_and_equal_rows_are_learnt():
    X = np.tile(np.linspace(0, 1, 13, dtype=np.float32), (20, 1))
    trained = train(ModelStack.random(SMALL, rngs(0)), [X], rngs=rngs(0), epochs=400, batch=20, learning_rate=0.01)
    assert reconstruction_errors(trained, X).max() < 1e-3


def test_a_model_that_diverges_spoils_no_other():
    stack = ModelStack.random(Architecture(13, hidden=(4,), output="linear"), rngs(1, 2))
    huge = rows(20) * np.float32(1e30)
    found = train(stack, [huge, rows(20)], rngs=rngs(3, 4), epochs=3, batch=5)
    alone = train(stack[[1]], [rows(20)], rngs=rngs(4), epochs=3, batch=5)
    assert found.finite.tolist() == [False, True]
    assert np.array_equal(found.weights[1], alone.weights[0])
    errors = reconstruction_errors(found, rows(5))
    assert np.isposinf(errors[:, 0]).all()
    assert np.isfinite(errors[:, 1]).all()


def test_frozen_arrays_and_wider_kinds_are_as_good():
    stack, X = ModelStack.random(SMALL, rngs(1)), rows(20)
    expected = train(stack, [X], rngs=rngs(2), epochs=1)
    for frozen in (stack.weights, X):
        frozen.setflags(write=False)
    for given_rows in (X, X.astype(np.float64), np.asfortranarray(X)):
        found = train(stack, [given_rows], rngs=rngs(2), epochs=1)
        assert found.weights.tobytes() == expected.weights.tobytes()
        assert np.array_equal(reconstruction_errors(stack, given_rows), reconstruction_errors(stack, X))


@pytest.mark.parametrize("n", [1, 127, 128, 129, 300])
def test_errors_are_those_of_torch_s_own_models(n):
    stack = ModelStack.random(SMALL, rngs(*range(3)))
    X = rows(n)
    found = reconstruction_errors(stack, X)
    for m in range(3):
        with torch.no_grad():
            expected = (network_of(SMALL, stack.weights[m])(torch.from_numpy(X)) - torch.from_numpy(X)).square().mean(1)
        assert found[:, m] == pytest.approx(expected.numpy(), rel=1e-4)
        pictures = reconstructions(stack, X)[m]
        assert np.square(pictures - X).mean(axis=1) == pytest.approx(found[:, m], rel=1e-4)


def test_blocks_are_fixed():
    stack, X = ModelStack.random(SMALL, rngs(1, 2)), rows(300)
    whole = reconstruction_errors(stack, X)
    # What else is in the data changes nothing: a block has the same shape, full or not.
    assert np.array_equal(reconstruction_errors(stack, X[:131]), whole[:131])
    assert np.array_equal(reconstruction_errors(stack, X[256:]), whole[256:])
    assert reconstruction_errors(stack, X[:0]).shape == (0, 2)
    assert reconstruction_errors(stack[[]], X).shape == (300, 0)
    assert reconstructions(stack[[]], X).shape == (0, 300, 13)


@pytest.mark.slow
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("architecture", [SMALL, Architecture(784)], ids=["small", "paper"])
def test_a_row_has_the_same_error_whatever_the_other_rows_are(precision, architecture):
    stack, X = ModelStack.random(architecture, rngs(1, 2, 3)), rows(300, 5, architecture.n_features)
    whole = reconstruction_errors(stack, X, precision=precision)
    for count in (1, 2, 7, 100, 255, 300):
        assert np.array_equal(reconstruction_errors(stack, X[:count], precision=precision), whole[:count])


def test_errors_in_bfloat16_are_nearly_those_in_float32():
    stack, X = ModelStack.random(SMALL, rngs(1, 2)), rows(300)
    exact, rounded = (reconstruction_errors(stack, X, precision=precision) for precision in PRECISIONS)
    assert rounded.dtype == np.float32
    assert not np.array_equal(exact, rounded)
    assert rounded == pytest.approx(exact, rel=0.02)
    with pytest.raises(UsageError, match="precision"):
        reconstruction_errors(stack, X, precision="float16")


def test_what_an_encoding_costs():
    X = np.random.default_rng(0).random((400, 3)) @ np.random.default_rng(1).random((3, 64)) / 3
    architecture = Architecture(64)
    trained = train(ModelStack.random(architecture, rngs(0)), [X], rngs=rngs(0), epochs=30)
    exact = reconstruction_errors(trained, X).mean()
    for encoding, allowed in (("float32", 0.0), ("float16", 1e-3), ("int8", 0.05)):
        received = ModelStack.decode(architecture, trained.encode(encoding), encoding)
        assert abs(reconstruction_errors(received, X).mean() / exact - 1) <= allowed, encoding


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.full((3, 13), np.nan), "cluster 1 has nan in row 0, column 0"),
        (np.zeros((3, 12)), "cluster 1 must have 13 columns"),
        (np.full((3, 13), 1.5), "scale to"),
        (np.full((3, 13), 1e300), "cluster 1 has inf"),
        (np.full((3, 13), 1j), "real numbers"),
    ],
)
def test_bad_rows_are_named(bad, message):
    stack = ModelStack.random(SMALL, rngs(1, 2))
    with pytest.raises(DataError, match=message):
        train(stack, [rows(3), bad], rngs=rngs(1, 2))


def test_rows_outside_the_unit_cube_may_be_evaluated_and_learnt_by_linear_models():
    linear = ModelStack.random(Architecture(13, output="linear"), rngs(1))
    assert train(linear, [rows(9) * 5 - 2], rngs=rngs(1), epochs=1).finite.all()
    assert np.isfinite(reconstruction_errors(ModelStack.random(SMALL, rngs(1)), rows(9) * 5)).all()


@pytest.mark.parametrize("wrong", [{"epochs": -1}, {"batch": 0}, {"learning_rate": 0.0}, {"learning_rate": np.nan}])
def test_bad_numbers_are_refused(wrong):
    with pytest.raises(UsageError, match="must be positive"):
        train(ModelStack.random(SMALL, rngs(1)), [rows(3)], rngs=rngs(1), **wrong)


def test_clusters_generators_and_models_must_match():
    with pytest.raises(UsageError, match="2 models need"):
        train(ModelStack.random(SMALL, rngs(1, 2)), [rows(3)], rngs=rngs(1, 2))


@pytest.mark.parametrize("device", ["mps", "no such", "cuda"])
def test_a_device_that_is_not_there(device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match="cpu"):
        reconstruction_errors(ModelStack.random(SMALL, rngs(1)), rows(3), device=device)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")
def test_a_gpu_agrees_within_rounding():
    stack = ModelStack.random(SMALL, rngs(*range(4)))
    samples = [rows(n, n) for n in (30, 41, 0, 1)]
    found = [train(stack, samples, rngs=rngs(5, 6, 7, 8), epochs=3, device=device) for device in ("cpu", "cuda")]
    assert found[1].weights == pytest.approx(found[0].weights, abs=1e-4)
    errors = [reconstruction_errors(found[0], rows(300), device=device) for device in ("cpu", "cuda")]
    assert errors[1] == pytest.approx(errors[0], rel=1e-4)


def test_without_torch_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UsageError, match=r"pip install 'p2pclust\[models\]'"):
        train(ModelStack.random(SMALL, rngs(1)), [rows(3)], rngs=rngs(1))


def test_only_training_and_evaluating_import_torch():
    code = (
        "import sys; from p2pclust.clustering import autoencoders, dec, local_starts, stacks; "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
