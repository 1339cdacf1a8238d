"""The status page: all that is known stands on it, as text; and the server that shows it cannot be kept busy."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
from collections.abc import Awaitable, Callable, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from told import JOB, TOLD, a_status

from p2pclust.errors import UsageError
from p2pclust.peer.operate.web import Answer, Web, status_page


class Reader(HTMLParser):
    """Checks that tags are closed, and collects what can be read."""

    VOID = ("meta",)

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.tags: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            assert name not in ("src", "href"), f"the page needs {value}"
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.words.append(data.strip())


def test_what_is_known_stands_on_it() -> None:
    words = Reader(status_page(a_status(), "meter")).words
    for expected in (
        "a", "2 of 3", "2 h 1 min", "50 MB", "3.0 kB", "4.0 MB", "gathering", "7", "waits for b, c", "dead", "0.2 s ago",
        "silent, declared dead 9 s ago", "malformed", "llf-fcm, 3 clusters", "llf-fcm", "done",
    ):  # fmt: skip
        assert expected in words, expected
    assert any("meter, at" in word for word in words)
    assert not any("Waiting" in word for word in words)


def test_what_is_wrong_is_said_first() -> None:
    page = status_page(
        a_status(TOLD | {"waiting": "1 of 3 enrolled peers are here", "jobs": [JOB | {"reason": "waiting: 1 of 3"}]})
    )
    words = Reader(page).words
    assert words.index("Waiting: 1 of 3 enrolled peers are here") < words.index("Jobs")
    assert "waiting: 1 of 3" in words


def test_a_twin_is_said_first() -> None:
    page = status_page(a_status(TOLD | {"twin": "two processes use the key of a, at h:1 and at h:2: end one of them"}))
    words = Reader(page).words
    assert words.index("two processes use the key of a, at h:1 and at h:2: end one of them") < words.index("Jobs")


def test_a_peer_without_jobs_and_alone() -> None:
    words = Reader(
        status_page(a_status(TOLD | {"jobs": [], "members": [], "counters": TOLD["counters"] | {"dropped": {}}}))
    ).words
    assert {"No job yet.", "No other peer is enrolled.", "None."} <= set(words)


def hostile(value: Any) -> Any:
    """Every text of a snapshot with markup in it: names come from rosters, reasons from peers."""
    if isinstance(value, dict):
        return {key: hostile(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [hostile(inner) for inner in value]
    return f'<script>"{value}"</script>' if isinstance(value, str) else value


def test_whatever_is_told_is_text() -> None:
    reader = Reader(status_page(a_status(hostile(TOLD)), "<b>"))
    assert "script" not in reader.tags
    assert "b" not in [tag for tag in reader.tags if tag == "b"][7:], "no more than the tiles have"
    assert any(word.startswith('<script>"a"') for word in reader.words)


# -- the server -------------------------------------------------------------------------------------------------------

PAGES: Mapping[str, Answer] = {
    "/status": lambda: ("text/html", b"<p>hello"),
    "/metrics": lambda: ("text/plain", b"up 1\n"),
}


def a_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def serve(ask: Callable[[int], Awaitable[Any]]) -> Any:
    async def live() -> Any:
        port = a_port()
        web = Web(f"127.0.0.1:{port}", PAGES, asyncio.get_running_loop())
        try:
            async with asyncio.timeout(60):
                return await ask(port)
        finally:
            web.close()
            for _ in range(3):
                await asyncio.sleep(0)  # connections are closed in the loop's next turns

    return asyncio.run(live())


async def get(port: int, request: str) -> tuple[str, str, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request.encode())
    try:
        answer = await reader.read()
    except ConnectionResetError:  # it was dropped before all of it was read
        answer = b""
    writer.transport.abort()
    head, _, body = answer.partition(b"\r\n\r\n")
    status, _, headers = head.decode().partition("\r\n")
    return status, headers, body


@pytest.mark.parametrize(
    ("request_", "status", "body"),
    [
        ("GET /status HTTP/1.1\r\nHost: 127.0.0.1:9\r\n\r\n", "200 OK", b"<p>hello"),
        ("GET /metrics?x=1 HTTP/1.1\r\nHost: localhost:9100\r\n\r\n", "200 OK", b"up 1\n"),
        ("HEAD /metrics HTTP/1.0\r\n\r\n", "200 OK", b""),
        ("GET /etc/passwd HTTP/1.1\r\n\r\n", "404 Not Found", b"there are /status, /metrics\n"),
        ("POST /status HTTP/1.1\r\n\r\n", "405 Method Not Allowed", b"only GET\n"),
        (
            "GET /status HTTP/1.1\r\nHost: evil.example:9\r\n\r\n",
            "403 Forbidden",
            b"use the address of this device\n",
        ),
    ],
)
def test_two_pages_that_can_be_read_and_nothing_else(request_: str, status: str, body: bytes) -> None:
    told, headers, content = serve(lambda port: get(port, request_))
    assert (told, content) == (f"HTTP/1.1 {status}", body)
    assert "default-src 'none'" in headers


def test_a_request_without_an_end_or_too_many_at_once_are_dropped() -> None:
    async def ask(port: int) -> Any:
        long = await get(port, "GET /status HTTP/1.1\r\n" + "x" * 20_000)
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(8)]
        for _, writer in idle:
            writer.write(b"GET ")
            await writer.drain()
        crowded = await get(port, "GET /status HTTP/1.1\r\n\r\n")
        for _, writer in idle:
            writer.transport.abort()
        return long, crowded

    long, crowded = serve(ask)
    assert long[0] == ""
    assert crowded[0] == ""


def test_a_port_in_use() -> None:
    async def live() -> None:
        with socket.create_server(("127.0.0.1", 0)) as holder:
            address = f"127.0.0.1:{holder.getsockname()[1]}"
            with pytest.raises(UsageError, match=rf"^metrics: cannot listen on {address} \(Address already in use\)"):
                Web(address, PAGES, asyncio.get_running_loop())

    asyncio.run(live())


# -- in a browser -----------------------------------------------------------------------------------------------------

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture
def profile(tmp_path: Path) -> list[str]:
    assert CHROMIUM is not None
    return [
        CHROMIUM, "--headless", "--disable-gpu", "--no-sandbox" if os.geteuid() == 0 else "--sandbox",
        f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=1000", "--enable-logging=stderr", "--v=0",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt install chromium")
def test_a_browser_shows_it_without_complaints(tmp_path: Path, profile: list[str]) -> None:
    file = tmp_path / "status.html"
    file.write_text(status_page(a_status(), "meter"), encoding="utf-8")
    ran = subprocess.run(
        [*profile, "--dump-dom", f"file://{file}"], capture_output=True, text=True, timeout=90, check=True
    )
    assert "CONSOLE" not in ran.stderr
    shown = Reader(ran.stdout.replace("<tbody>", "").replace("</tbody>", ""))
    assert shown.tags.count("tr") == 3 + 3 + 2
    assert "2 of 3" in shown.words
