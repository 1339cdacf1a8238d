"""Architectures, stacks of models and their average: all that needs no torch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.clustering.autoencoders import Architecture, ModelStack, federated_average
from p2pclust.errors import UsageError, WireError


def rngs(*seeds: int) -> list[np.random.Generator]:
    return [np.random.default_rng(seed) for seed in seeds]


def test_the_paper_s_model():
    paper = Architecture(784)
    assert paper.n_parameters == 174_840
    assert paper.activations == ("relu",) * 5 + ("sigmoid",)


def test_the_code_is_the_middle_layer():
    assert Architecture(9, hidden=(7, 3, 7), code="linear").activations == ("relu", "linear", "relu", "sigmoid")
    assert Architecture(9, hidden=(3,), output="linear", code="linear").activations == ("linear", "linear")


@pytest.mark.parametrize("wrong", [{"n_features": 0}, {"hidden": ()}, {"hidden": (3, 0)}, {"output": "tanh"}])
def test_no_such_architecture(wrong):
    with pytest.raises(UsageError):
        Architecture(**{"n_features": 4, **wrong})


def test_layers_are_views_in_order():
    small = Architecture(2, hidden=(3,))
    (first, first_bias), (last, last_bias) = small.layers(np.arange(17, dtype=np.float32))
    assert first.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert first_bias.tolist() == [6, 7, 8]
    assert last.tolist() == [[9, 10], [11, 12], [13, 14]]
    assert last_bias.tolist() == [15, 16]


def test_a_random_model_depends_on_its_own_generator_only():
    small = Architecture(6, hidden=(4, 2, 4))
    three = ModelStack.random(small, rngs(1, 2, 3))
    assert np.array_equal(ModelStack.random(small, rngs(3, 1)).weights, three.weights[[2, 0]])
    for (matrix, bias), (fan_in, _) in zip(small.layers(three.weights[0]), small.shapes, strict=True):
        assert max(np.abs(matrix).max(), np.abs(bias).max()) <= 1 / np.sqrt(fan_in)
    wide = Architecture(100, hidden=(50,)).layers(
        ModelStack.random(Architecture(100, hidden=(50,)), rngs(0)).weights[0]
    )
    assert wide[0][0].std() == pytest.approx(0.1 / np.sqrt(3), rel=0.05)


def test_a_stack_of_another_shape_is_refused():
    with pytest.raises(UsageError, match="have 22 weights each"):
        ModelStack(Architecture(4, hidden=(2,)), np.zeros((3, 21)))


def test_stacks_can_be_picked_and_joined():
    stack = ModelStack.random(Architecture(4, hidden=(2,)), rngs(1, 2, 3))
    joined = ModelStack.concatenate([stack[[2, 2]], stack[:1], stack[[]]])
    assert np.array_equal(joined.weights, stack.weights[[2, 2, 0]])
    with pytest.raises(UsageError, match="one architecture"):
        ModelStack.concatenate([stack, ModelStack.random(Architecture(4, hidden=(3,)), rngs(1))])


def test_a_stack_travels():
    stack = ModelStack.random(Architecture(4, hidden=(2,)), rngs(1, 2))
    assert np.array_equal(ModelStack.decode(stack.architecture, stack.encode(), "float32").weights, stack.weights)
    assert len(ModelStack.decode(stack.architecture, [], "int8")) == 0
    with pytest.raises(WireError):
        ModelStack.decode(Architecture(4, hidden=(3,)), stack.encode("int8"), "int8")


def test_broken_models_are_found():
    weights = np.zeros((3, 22))
    weights[1, 5] = np.nan
    assert ModelStack(Architecture(4, hidden=(2,)), weights).finite.tolist() == [True, False, True]


def test_the_average_by_hand():
    assert federated_average([[0.0, 2.0], [3.0, 5.0], [np.nan, np.nan]], [1, 2, 0]).tolist() == [2.0, 4.0]


@pytest.mark.slow
@given(st.lists(st.tuples(st.floats(-10, 10, width=32), st.integers(0, 1000)), min_size=1, max_size=20))
def test_an_average_lies_between(models):
    values, sizes = np.array([[value] for value, _ in models]), [size for _, size in models]
    if not any(sizes):
        with pytest.raises(UsageError, match="at least one of them positive"):
            federated_average(values, sizes)
        return
    heard = values[np.array(sizes) > 0]
    average = federated_average(values, sizes)
    assert heard.min() - 1e-5 <= average[0] <= heard.max() + 1e-5
    assert average[0] == pytest.approx(np.average(values[:, 0], weights=sizes), abs=1e-5)


@pytest.mark.parametrize("sizes", [[1], [1, -1], [1, np.nan], [0, 0]])
def test_sizes_that_mean_nothing(sizes):
    with pytest.raises(UsageError):
        federated_average(np.zeros((2, 3)), sizes)
