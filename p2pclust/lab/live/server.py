"""The server of the page: whole snapshots as server-sent events, from a thread and an event loop of its own.

Needs the extra ``live`` (aiohttp). There is one slot, with the newest snapshot: a browser that reads slowly skips those in
between, so that it can neither slow the run down nor fill the memory. Differences would need a snapshot as well, after a
loss, for a late browser and for a seek.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import secrets
import socket
import threading
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from aiohttp import web

from p2pclust.errors import UsageError
from p2pclust.lab.live.shown import FollowedRun
from p2pclust.peer.operate.web import names_this_host
from p2pclust.transport.links import parse_address

_USUAL: Final = "127.0.0.1:7480"
_APART_S: Final = 0.1  # between two snapshots
_BYTES_PER_S: Final = 500_000  # that a browser is sent at most: large fleets are drawn less often
_BEAT_S: Final = 5.0  # without a snapshot, so that the page knows that the connection lives
_BEAT: Final = b"event: beat\ndata:\n\n"  # not a comment: those never reach the page
_STUCK_S: Final = 20.0  # a browser that takes nothing for so long is gone
_LAST_S: Final = 1.0  # for the last snapshot to be sent, when the server ends
_START_S: Final = 10.0
_MOST_AT_ONCE: Final = 32  # browsers
_MOST_BODY: Final = 1_024

_STATIC: Final = ("index.html", "live.css", "live.js", "drawings.js", "uPlot.iife.min.js", "uPlot.min.css")
_KINDS: Final = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Address:
    """A host and a port; `fallback`: whether any free port does if that one is taken.

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
            host, port = parse_address(text or _USUAL)
        except (UsageError, ValueError):
            raise UsageError(f"--serve {text}: expected HOST:PORT, such as {_USUAL}") from None
        return Address(host, port, fallback=not text)

    @property
    def loopback(self) -> bool:
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
        """Return the address to open in a browser; for a wildcard, a number of this machine that others may reach."""
        host = self.host
        if host in ("0.0.0.0", "::"):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                try:
                    probe.connect(("192.0.2.1", 9))  # reserved for documents; nothing is sent
                    host = str(probe.getsockname()[0])
                except OSError:
                    host = "127.0.0.1"
        return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


class LivePage:
    """Serves one picture until it is closed; use it with ``with``.

    If the address is not loopback, browsers need the token in `url`. Raise UsageError if it cannot be listened on.
    """

    def __init__(self, picture: FollowedRun, address: Address) -> None:
        self._picture, self._address = picture, address
        self._token = "" if address.loopback else secrets.token_urlsafe(24)
        self._loop = asyncio.new_event_loop()
        self._socket = address.listen()
        self.port: int = self._socket.getsockname()[1]
        self._began, self._changes = threading.Event(), threading.Event()
        # What follows belongs to the server's thread.
        self._number, self._message = 0, b""
        self._woken, self._stop, self._newer, self._empty = (asyncio.Event() for _ in range(4))
        self._empty.set()
        self._open = 0
        self._thread = threading.Thread(target=self._run, name="live-page", daemon=True)

    @property
    def url(self) -> str:
        return self._address.url(self.port) + (f"?token={self._token}" if self._token else "")

    def __enter__(self) -> LivePage:
        self._thread.start()
        self._began.wait(_START_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end)
        self._thread.join(_START_S)

    def _end(self) -> None:
        # In one call: the loop may be closed as soon as the first is set.
        self._stop.set()
        self._woken.set()

    def changed(self) -> None:
        """Say that there is something new; any thread may. It costs next to nothing if it was said already."""
        if not self._changes.is_set():
            self._changes.set()
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._woken.set)

    # -- the thread of the server -------------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        with closing(self._loop):
            self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        application = web.Application(middlewares=[self._guarded], client_max_size=_MOST_BODY)
        application.router.add_get("/events", self._events)
        application.router.add_post("/control", self._control)
        application.router.add_get("/{file:[A-Za-z.]*}", _static)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.SockSite(runner, self._socket).start()
        self._began.set()
        await self._show()
        while not self._stop.is_set():
            # Whatever happens meanwhile is in the next snapshot.
            await _within(max(_APART_S, len(self._message) / _BYTES_PER_S), self._stop)
            await self._woken.wait()
            self._woken.clear()
            self._changes.clear()
            await self._show()
        await _within(_LAST_S, self._empty)
        await runner.cleanup()

    async def _show(self) -> None:
        """Put the newest snapshot where all browsers take it from."""
        text = await asyncio.to_thread(self._picture.to_json)
        self._number += 1
        self._message = f"id: {self._number}\ndata: {text}\n\n".encode()
        self._newer.set()
        self._newer = asyncio.Event()

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer only those who may ask; every answer has the headers that keep the page to itself."""
        if not names_this_host(request.headers.get("Host", ""), self._address.host):
            answer: web.StreamResponse = web.Response(status=403, text="use the address that the command printed\n")
        elif self._token and not secrets.compare_digest(
            request.cookies.get(self._cookie, "").encode(), self._token.encode()
        ):
            answer = self._admit(request)
        else:
            try:
                answer = await handler(request)
            except web.HTTPException as error:
                answer = web.Response(status=error.status, text=f"{error.reason}\n")
        if not answer.prepared:
            answer.headers.update(_HEADERS)
        return answer

    @property
    def _cookie(self) -> str:
        # Browsers keep cookies by host, not by port: two pages of one host would take each other's.
        return f"p2pclust-{self.port}"

    def _admit(self, request: web.Request) -> web.StreamResponse:
        """Exchange the token of the printed address for a cookie, so that it stands in no history and no title."""
        given = request.query.get("token", "").encode()
        if request.path != "/" or not secrets.compare_digest(given, self._token.encode()):
            return web.Response(status=401, text="open the whole address that the command printed, with its token\n")
        answer = web.Response(status=303, headers={"Location": "/"})
        answer.set_cookie(self._cookie, self._token, httponly=True, samesite="Strict", path="/")
        return answer

    async def _control(self, request: web.Request) -> web.Response:
        # A page of another site cannot send this header without being asked, and refused, first.
        if request.headers.get("X-P2pclust") != "control":
            return web.Response(status=403, text="only the page itself may do this\n")
        try:
            asked = json.loads(await request.text())
            do, value = str(asked["do"]), float(asked.get("value", 0.0))
        except (ValueError, TypeError, KeyError, AttributeError):
            return web.Response(status=400, text='expected {"do": ..., "value": ...}\n')
        try:
            await asyncio.to_thread(self._picture.control, do, value)
        except UsageError as error:
            return web.Response(status=400, text=f"{error}\n")
        return web.Response(status=204)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        if self._open >= _MOST_AT_ONCE:
            return web.Response(status=503, text=f"{_MOST_AT_ONCE} browsers watch already\n")
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream", **_HEADERS})
        await answer.prepare(request)
        self._open += 1
        self._empty.clear()
        with suppress(OSError, TimeoutError, asyncio.CancelledError):  # the browser is gone, or takes nothing
            await self._send(answer)
        self._open -= 1
        if not self._open:
            self._empty.set()
        return answer

    async def _send(self, answer: web.StreamResponse) -> None:
        await answer.write(b"retry: 1000\n\n")
        sent = 0
        while not (self._stop.is_set() and sent == self._number):
            if sent == self._number:
                await _within(_BEAT_S, self._newer)
            message, sent = (_BEAT, sent) if sent == self._number else (self._message, self._number)
            async with asyncio.timeout(_STUCK_S):
                await answer.write(message)


async def _within(seconds: float, event: asyncio.Event) -> None:
    """Wait for an event, at most so long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def _static(request: web.Request) -> web.Response:
    name = request.match_info["file"] or "index.html"
    if name not in _STATIC:
        return web.Response(status=404, text="there is no such page\n")
    text = (files("p2pclust.lab.live") / "static" / name).read_text(encoding="utf-8")
    return web.Response(text=text, content_type=_KINDS[name.rpartition(".")[2]])
