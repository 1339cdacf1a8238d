from __future__ import annotations

import pytest

from p2pclust.errors import UsageError
from p2pclust.transport.links import Counters, Lane, misfit, parse_address
from p2pclust.transport.wire import MAX_CONTROL_BYTES, MAX_FRAME_BYTES


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("gateway_1.lan:65535", ("gateway_1.lan", 65535)),
        ("[fe80::1]:5001", ("fe80::1", 5001)),
    ],
)
def test_addresses_are_split(address, expected):
    assert parse_address(address) == expected


@pytest.mark.parametrize(
    "address",
    ["", ":", "host", "host:", ":5001", "host:65536", "host:-1", "host:5 001", "host:٣", "tcp://host:5001", "a;b:1",
     "::1:5001", "[::1:5001", "[host]:1", "a" * 254 + ":1", "host:" + "1" * 5000, "host\n:1"],
)  # fmt: skip
def test_what_is_no_address_is_a_usage_error(address):
    with pytest.raises(UsageError, match="is not HOST:PORT") as caught:
        parse_address(address)
    assert len(str(caught.value)) < 200
    assert "\n" not in str(caught.value)


def test_limits_differ_by_lane():
    assert misfit([bytes(MAX_CONTROL_BYTES)], Lane.CONTROL) is None
    assert misfit([bytes(MAX_CONTROL_BYTES), b"x"], Lane.CONTROL) == "too large"
    assert misfit([bytes(MAX_FRAME_BYTES)] * 9, Lane.BULK) is None
    assert misfit([b"", bytes(MAX_FRAME_BYTES + 1)], Lane.BULK) == "too large"
    assert misfit([b""] * 10, Lane.BULK) == "too many frames"
    assert misfit([], Lane.BULK) == "no frames"


def test_drops_are_counted_by_reason():
    counters = Counters()
    counters.drop("queue full")
    counters.drop("queue full", 4)
    counters.drop("stranger")
    assert counters.dropped == {"queue full": 5, "stranger": 1}
