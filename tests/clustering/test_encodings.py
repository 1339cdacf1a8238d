"""Models as bytes: exact, half, or integers with a scale per block; and what another peer's bytes may not be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from p2pclust.clustering.autoencoders import decode_weights, encode_weights, encoded_size
from p2pclust.errors import DataError, UsageError, WireError

weights = hnp.arrays(np.float32, st.integers(0, 600), elements=st.floats(-1e4, 1e4, width=32))


@pytest.mark.slow
@given(weights)
def test_float32_is_exact(given_weights):
    decoded = decode_weights(encode_weights(given_weights, "float32"), given_weights.size, "float32")
    assert decoded.tobytes() == given_weights.tobytes()


@pytest.mark.slow
@given(weights)
def test_float16_is_what_numpy_rounds_to(given_weights):
    decoded = decode_weights(encode_weights(given_weights, "float16"), given_weights.size, "float16")
    assert np.array_equal(decoded, given_weights.astype(np.float16).astype(np.float32))


@pytest.mark.slow
@given(weights)
def test_int8_is_off_by_half_a_scale_of_its_block_at_most(given_weights):
    payload = encode_weights(given_weights, "int8")
    assert len(payload) == encoded_size(given_weights.size, "int8")
    decoded = decode_weights(payload, given_weights.size, "int8")
    for start in range(0, given_weights.size, 256):
        block, found = given_weights[start : start + 256], decoded[start : start + 256]
        scale = np.abs(block).max() / 127
        assert np.abs(block - found).max() <= 0.5001 * scale + 1e-43


def test_int8_by_hand():
    # Scale 1 in the first block, 2 in the second: scales first, then the integers.
    given_weights = np.zeros(258, dtype=np.float32)
    given_weights[[0, 1, 256, 257]] = [127.0, -3.4, -254.0, 5.0]
    payload = encode_weights(given_weights, "int8")
    assert np.frombuffer(payload, "<f4", 2).tolist() == [1.0, 2.0]
    integers = np.frombuffer(payload, np.int8, offset=8)
    assert integers[[0, 1, 2, 256, 257]].tolist() == [127, -3, 0, -127, 2]


@pytest.mark.parametrize("encoding", ["float32", "float16", "int8"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_diverged_model_is_not_sent(encoding, bad):
    with pytest.raises(DataError, match="NaN or infinite"):
        encode_weights([0.0, bad], encoding)


def test_what_float16_cannot_hold_is_refused():
    with pytest.raises(DataError, match="too large for float16"):
        encode_weights([1e5], "float16")
    assert decode_weights(encode_weights([1e5], "int8"), 1, "int8") == pytest.approx([1e5])


@pytest.mark.parametrize("encoding", ["float32", "float16", "int8"])
def test_bytes_of_another_length_are_refused(encoding):
    payload = encode_weights(np.ones(300), encoding)
    for wrong in (payload[:-1], payload + b"\0", b""):
        with pytest.raises(WireError, match="a model of 300 weights"):
            decode_weights(wrong, 300, encoding)


@pytest.mark.parametrize(
    ("encoding", "payload"),
    [
        ("float32", np.array([np.nan, 0.0], "<f4").tobytes()),
        ("float16", np.array([np.inf, 0.0], "<f2").tobytes()),
        ("int8", np.array([np.nan], "<f4").tobytes() + bytes(2)),
        ("int8", np.array([3e38], "<f4").tobytes() + bytes([127, 0])),
    ],
)
def test_hostile_numbers_are_refused(encoding, payload):
    with pytest.raises(WireError, match="NaN or infinite"):
        decode_weights(payload, 2, encoding)


def test_an_unknown_encoding_is_named():
    with pytest.raises(UsageError, match="float32, float16, int8, not 'int4'"):
        encode_weights([1.0], "int4")
