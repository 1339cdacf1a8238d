"""The socket on which a peer receives from others."""

from __future__ import annotations

import errno
import socket as plain

import zmq

from p2pclust.errors import UsageError
from p2pclust.transport.channel import CURVE_OVERHEAD, set_common_options
from p2pclust.transport.links import tcp_endpoint
from p2pclust.transport.wire import MAX_FRAME_BYTES
from p2pclust.transport.zap import DOMAIN

_INBOUND_QUEUE = 64  # messages per connection


def open_router(context: zmq.Context[zmq.Socket[bytes]], curve_secret: bytes) -> zmq.Socket[bytes]:
    """The receive-only socket of a peer."""
    router = context.socket(zmq.ROUTER)
    set_common_options(router)
    router.set(zmq.BACKLOG, 1024)
    router.set(zmq.MAXMSGSIZE, MAX_FRAME_BYTES + CURVE_OVERHEAD)
    router.rcvhwm = _INBOUND_QUEUE
    router.sndhwm = 1
    router.curve_server = True
    router.curve_secretkey = curve_secret
    # Both are needed: without either of them libzmq admits any key when no handler answers.
    router.zap_domain = DOMAIN
    router.set(zmq.ZAP_ENFORCE_DOMAIN, 1)
    return router


def bind(router: zmq.Socket[bytes], host: str, port: int) -> str:
    """Listen at an address, or raise UsageError; return it, with the port that was chosen for port 0."""
    where = tcp_endpoint(host, port).removeprefix("tcp://")
    try:
        if ":" in host:
            router.ipv6 = True
        else:
            host = plain.gethostbyname(host)  # libzmq listens on numbers and interfaces, not on names
        router.bind(tcp_endpoint(host, port))
    except OSError as error:  # of gethostbyname: zmq.ZMQError is not an OSError
        raise UsageError(
            f"cannot listen on {where}: the host name is unknown; give an address of this machine"
        ) from error
    except zmq.ZMQError as error:
        if error.errno == errno.EADDRINUSE:
            raise UsageError(
                f"cannot listen on {where}: the port is in use; choose another, or stop the program that uses it"
            ) from None
        raise UsageError(f"cannot listen on {where}: {error.strerror}; give an address of this machine") from None
    return bytes(router.get(zmq.LAST_ENDPOINT)).rstrip(b"\0").decode().removeprefix("tcp://")
