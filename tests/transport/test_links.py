from __future__ import annotations

import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st

from p2pclust.errors import UsageError
from p2pclust.transport import links
from p2pclust.transport.links import Counters, Lane, parse_address, problem_with_frames, tcp_endpoint
from p2pclust.transport.wire import MAX_CONTROL_BYTES, MAX_FRAME_BYTES


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("gateway_1.lan:65535", ("gateway_1.lan", 65535)),
        ("[fe80::1]:5001", ("fe80::1", 5001)),
        ("[fe80::1%eth0]:5001", ("fe80::1%eth0", 5001)),
        ("a-b.c1.:1", ("a-b.c1.", 1)),
    ],
)
def test_addresses_are_split(address, expected):
    assert parse_address(address) == expected


@pytest.mark.parametrize(
    "address",
    ["", ":", "host", "host:", ":5001", "host:65536", "host:-1", "host:5 001", "host:٣", "tcp://host:5001", "a;b:1",
     "::1:5001", "[::1:5001", "[host]:1", "a" * 254 + ":1", "host:" + "1" * 5000, "host\n:1",
     "_x:1", "-a:1", ".b:1", "a..b:1", "a" * 64 + ".b:1", ".".join(["a" * 60] * 5) + ":1", "[:::::]:5", "[%]:4",
     "[1.2.3.4]:5"],
)  # fmt: skip
def test_what_is_no_address_is_a_usage_error(address):
    with pytest.raises(UsageError, match="is not HOST:PORT") as caught:
        parse_address(address)
    assert len(str(caught.value)) < 200
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@settings(max_examples=200)
@given(st.from_regex(links._ADDRESS, fullmatch=True))
def test_every_address_that_passes_can_be_connected_to(address: str) -> None:
    """A friend may announce any: libzmq raised in the loop for some, and the resolver for others."""
    try:
        host, port = parse_address(address)
    except UsageError:
        return
    assert host.encode("idna")
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger, socket.ipv6 = 0, ":" in host
        socket.connect(tcp_endpoint(host, port or 1))
        assert socket.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2] == str(port or 1)


def test_limits_differ_by_lane():
    assert problem_with_frames([bytes(MAX_CONTROL_BYTES)], Lane.CONTROL) == ""
    assert problem_with_frames([bytes(MAX_CONTROL_BYTES), b"x"], Lane.CONTROL) == "too large"
    assert problem_with_frames([bytes(MAX_FRAME_BYTES)] * 9, Lane.BULK) == ""
    assert problem_with_frames([b"", bytes(MAX_FRAME_BYTES + 1)], Lane.BULK) == "too large"
    assert problem_with_frames([b""] * 10, Lane.BULK) == "too many frames"
    assert problem_with_frames([], Lane.BULK) == "no frames"


def test_drops_are_counted_by_reason():
    counters = Counters()
    counters.drop("queue full")
    counters.drop("queue full", 4)
    counters.drop("stranger")
    assert counters.dropped == {"queue full": 5, "stranger": 1}
