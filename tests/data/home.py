"""A data set's home on this machine: a small HTTP server that can break off, refuse, and change its files."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Home:
    """What the server does, and what it was asked."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    #: An answer of this status to every request, if not 0.
    status: int = 0
    #: The connection is closed after so many bytes of content, if not 0.
    breaks_after: int = 0
    #: Whether it can send a part of a file, and whether it names the version that it sends.
    ranges: bool = True
    etags: bool = True
    asked: list[tuple[str, str]] = field(default_factory=list)

    def url(self, name: str) -> str:
        """The address of one of its files."""
        return f"{self.address}/{name}"


def _handler(home: Home) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            name, wanted = self.path.removeprefix("/"), self.headers.get("Range", "")
            home.asked.append((name, wanted))
            if home.status or name not in home.files:
                self.send_error(home.status or 404)
                return
            content = home.files[name]
            etag = f'"{hash(content)}"'
            start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and home.ranges else 0
            if start and self.headers.get("If-Range", etag) != etag:
                start = 0
            if start >= len(content) > 0:
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            if home.etags:
                self.send_header("ETag", etag)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            end = start + home.breaks_after if home.breaks_after else len(content)
            self.wfile.write(content[start:end])
            self.close_connection = True

        def log_message(self, *_args: Any) -> None:
            """Say nothing."""

    return Handler


@contextmanager
def serving() -> Iterator[Home]:
    """A server on a port of its own, until the end of the block."""
    home = Home()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(home))
    home.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield home
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
