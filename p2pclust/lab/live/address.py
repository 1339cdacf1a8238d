"""Where the page is served: this machine only, unless another address is named."""

from __future__ import annotations

import ipaddress
import os
import socket
from dataclasses import dataclass
from typing import Final

from p2pclust.errors import UsageError
from p2pclust.transport.links import parse_address

DEFAULT: Final = "127.0.0.1:7480"


@dataclass(frozen=True)
class Address:
    """A host and a port; `fallback`: whether any free port does if that one is taken.

    Examples
    --------
    >>> Address.of("127.0.0.1:7480").loopback, Address.of("10.0.0.5:80").loopback
    (True, False)
    >>> Address.of("[::1]:7480").url(7480)
    'http://[::1]:7480/'
    >>> Address.of("here")
    Traceback (most recent call last):
    ...
    p2pclust.errors.UsageError: --serve here: expected HOST:PORT, such as 127.0.0.1:7480
    """

    host: str
    port: int
    fallback: bool = False

    @staticmethod
    def of(text: str) -> Address:
        """Return the address in a text ``HOST:PORT``; an empty one means the default. Raise UsageError if it is none."""
        try:
            host, port = parse_address(text or DEFAULT)
        except (UsageError, ValueError):
            raise UsageError(f"--serve {text}: expected HOST:PORT, such as {DEFAULT}") from None
        return Address(host, port, fallback=not text)

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def listen(self) -> socket.socket:
        """Return a socket that listens there. Raise UsageError if that is not possible."""
        ports = (self.port, 0) if self.fallback else (self.port,)
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        for port in ports:
            try:
                return socket.create_server((self.host, port), family=family, backlog=32)
            except (OSError, OverflowError) as error:
                why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        raise UsageError(f"--serve {self.host}:{self.port}: cannot listen there ({why}): choose another address")

    def url(self, port: int) -> str:
        """Return the address to open in a browser; for a wildcard, that of this machine."""
        host = self.host
        if host in ("0.0.0.0", "::"):
            host = _own_number()
        return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def _own_number() -> str:
    """Return a number of this machine that others may reach; loopback if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # reserved for documents; nothing is sent
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
