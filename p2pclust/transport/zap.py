"""Decide which keys may connect: a handler of ZeroMQ's authentication protocol (ZAP, RFC 27).

libzmq asks the socket bound at ``inproc://zeromq.zap.01`` about every handshake and waits for the answer. Should the handler
end, libzmq refuses every handshake, and peers that are restarted stay out: so it is asked from time to time, as libzmq asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import zmq
from zmq.utils import z85

from p2pclust.transport.channel import Drain

#: Of the socket where peers connect, and of that where operators ask.
DOMAIN, CONTROL_DOMAIN = b"p2pclust", b"p2pclust.control"

_ENDPOINT = "inproc://zeromq.zap.01"
_REQUEST_FRAMES = 7  # version, request id, domain, address, routing id, mechanism, and one credential for CURVE
_BURST = 64
_LOOK_S = 5.0  # between two questions whether it still answers


def guard(socket: zmq.Socket[bytes], curve_secret: bytes, domain: bytes) -> None:
    """Let a socket that is to listen admit only keys that the handler of its context admits in that domain."""
    socket.curve_server = True
    socket.curve_secretkey = curve_secret
    # Both are needed: without either of them libzmq admits any key when no handler answers.
    socket.zap_domain = domain
    socket.set(zmq.ZAP_ENFORCE_DOMAIN, 1)


class ZapHandler:
    """Answers handshakes of one ZeroMQ context; the admitted sender's User-Id is its CURVE public key in Z85.

    `admits` gets a CURVE public key (Z85, 40 bytes) and returns whether its owner may connect; `admits_operator` decides
    the same for the socket of operators. `ended` is called once if the handler does not answer any more.
    """

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], loop: asyncio.AbstractEventLoop,
        admits: Callable[[bytes], bool], admits_operator: Callable[[bytes], bool] = lambda curve_public: False,
        ended: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._loop = loop
        self._admits = {DOMAIN: admits, CONTROL_DOMAIN: admits_operator}
        self._socket = context.socket(zmq.REP)
        self._socket.linger = 0
        self._socket.bind(_ENDPOINT)
        self._drain = Drain(loop, self._socket, self._serve, _BURST)
        self._ended = ended
        self._asking = context.socket(zmq.REQ)
        self._asking.linger = 0
        self._asking.connect(_ENDPOINT)
        self._timer = loop.call_soon(self._ask, False)

    def close(self) -> None:
        """Stop answering; libzmq then refuses every handshake."""
        self._timer.cancel()
        self._asking.close(linger=0)
        self._drain.close()
        self._socket.close(linger=0)

    def _ask(self, again: bool = True) -> None:
        """Take the answer to the last question, then ask as libzmq does; the answer to this question is a refusal."""
        try:
            if again:
                self._asking.recv_multipart(zmq.NOBLOCK)
            self._asking.send_multipart([b"1.0", b"look", b"", b"", b"", b"CURVE", bytes(32)], zmq.NOBLOCK)
        except zmq.ZMQError:  # nothing answers there
            self._ended()
            return
        self._timer = self._loop.call_later(_LOOK_S, self._ask)

    def _serve(self) -> int:
        try:
            request = self._socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return 0
        request_id = request[1] if len(request) > 1 else b""
        try:
            status, text, user = self._decide(request)
        except Exception as error:  # noqa: BLE001 - a failing decision is a refusal, never the end of the handler
            self._loop.call_exception_handler({"message": "a ZAP request failed", "exception": error})
            status, text, user = b"500", b"internal error", b""
        self._socket.send_multipart([b"1.0", request_id, status, text, user, b""])
        return 1

    def _decide(self, request: Sequence[bytes]) -> tuple[bytes, bytes, bytes]:
        if len(request) != _REQUEST_FRAMES or request[0] != b"1.0":
            return b"500", b"not a ZAP 1.0 request for CURVE", b""
        domain, mechanism, key = request[2], request[5], request[6]
        admits = self._admits.get(domain)
        if admits is None or mechanism != b"CURVE" or len(key) != 32:
            return b"400", b"only CURVE, only our domains", b""
        user = z85.encode(key)
        return (b"200", b"OK", user) if admits(user) else (b"400", b"not on the fleet roster", b"")
