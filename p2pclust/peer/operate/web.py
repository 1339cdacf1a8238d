"""A peer's metrics and status page over read-only HTTP, on the event loop."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
from collections.abc import Callable, Mapping

from p2pclust.errors import UsageError
from p2pclust.transport.links import parse_address

Answer = Callable[[], tuple[str, bytes]]  # returns the content type and the content

_MAX_REQUEST = 8 * 1024
_DEADLINE_S = 5.0
_MOST_AT_ONCE = 8
_HEADERS = (
    "Connection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
    "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\n"
)


class Web:
    """Serves a few read-only pages, by path.

    Requests that are too long, too slow or too many are dropped, so that they cannot keep the peer busy. A request for
    another host name is refused, so that a page of another site in a user's browser cannot read the peer's pages.
    """

    def __init__(self, address: str, pages: Mapping[str, Answer], loop: asyncio.AbstractEventLoop) -> None:
        self._pages = pages
        self._host = address.rpartition(":")[0].strip("[]")
        host, port = parse_address(address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, port), family=family, backlog=16)
        except OSError as error:
            what = os.strerror(error.errno) if error.errno else str(error)
            raise UsageError(f"metrics: cannot listen on {address} ({what}): choose another port") from None
        self.address = address
        self._open: dict[asyncio.StreamWriter, None] = {}
        self._serving = loop.create_task(asyncio.start_server(self._serve, sock=self._socket, limit=_MAX_REQUEST))

    def close(self) -> None:
        """Stop listening. Closing twice does nothing."""
        self._serving.cancel()
        for writer in self._open:
            writer.transport.abort()
        if self._serving.done() and not self._serving.cancelled() and self._serving.exception() is None:
            self._serving.result().close()
        self._socket.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open[writer] = None
        try:
            if len(self._open) <= _MOST_AT_ONCE:
                async with asyncio.timeout(_DEADLINE_S):
                    request = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self._answer(request))
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client is gone, or its request is invalid
        finally:
            del self._open[writer]
            writer.close()

    def _answer(self, request: bytes) -> bytes:
        head, *headers = request.decode("latin-1").split("\r\n")
        method, _, rest = head.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return _response("405 Method Not Allowed", "text/plain", b"only GET\n")
        hosts = [line.partition(":")[2].strip() for line in headers if line.lower().startswith("host:")]
        if not all(names_this_host(host, self._host) for host in hosts):
            return _response("403 Forbidden", "text/plain", b"use the address of this device\n")
        page = self._pages.get(path)
        if page is None:
            known = ", ".join(self._pages)
            return _response("404 Not Found", "text/plain", f"there are {known}\n".encode())
        kind, content = page()
        return _response("200 OK", kind, content, body=method == "GET")


def names_this_host(host: str, own: str) -> bool:
    """Return whether a request's ``Host`` is a number, or this host's name.

    Another site can let its own name lead here, and so have its page read ours; it cannot do that with a number.

    Examples
    --------
    >>> [names_this_host(host, "gateway") for host in ("127.0.0.1:80", "[::1]", "gateway", "localhost:80", "other.org")]
    [True, True, True, True, False]
    """
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    name = name.strip("[]")
    if name in ("localhost", own):
        return True
    try:
        return bool(ipaddress.ip_address(name))
    except ValueError:
        return False


def _response(status: str, kind: str, content: bytes, *, body: bool = True) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n{_HEADERS}\r\n"
    return head.encode("latin-1") + (content if body else b"")
