"""The server of the page: who may ask, what a slow browser gets, and what is sent at the end."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="pip install 'p2pclust[live]' installs aiohttp")

from p2pclust.errors import UsageError
from p2pclust.lab.live.server import Address, LivePage

Until = Callable[[Callable[[], Any]], Any]


class Numbers:
    """A picture whose snapshots are as large as wanted, and count how often they were made."""

    def __init__(self, size: int = 10) -> None:
        self.made = 0
        self.size = size
        self.asked: list[tuple[str, float]] = []

    def to_json(self) -> str:
        self.made += 1
        return json.dumps({"made": self.made, "filled": "x" * self.size})

    def control(self, do: str, value: float) -> None:
        if do == "stop":
            raise UsageError("stop: expected play")
        self.asked.append((do, value))


@pytest.fixture
def picture() -> Numbers:
    return Numbers()


@pytest.fixture
def page(picture: Numbers) -> Iterator[LivePage]:
    with LivePage(picture, Address.of("127.0.0.1:0")) as started:
        yield started


@pytest.fixture
def guarded(picture: Numbers) -> Iterator[LivePage]:
    """A page at an address that others reach."""
    with LivePage(picture, Address.of("0.0.0.0:0")) as started:
        yield started


class Answer:
    def __init__(self, got: http.client.HTTPResponse) -> None:
        self.status, self.headers, self.body = got.status, got.headers, got.read().decode()


def ask(page: LivePage, path: str, method: str = "GET", body: str | None = None, **headers: str) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=20)
    connection.request(method, path, body, headers)
    answer = Answer(connection.getresponse())
    connection.close()
    return answer


class Stream:
    """The events of a page, as a browser reads them."""

    def __init__(self, page: LivePage, **headers: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=20)
        self._connection.request("GET", "/events", headers=headers)
        self.answer = self._connection.getresponse()

    def next(self) -> dict[str, str] | None:
        """The fields of the next event; None at the end."""
        fields: dict[str, str] = {}
        for line in iter(self.answer.readline, b""):
            if line == b"\n":
                if "data" in fields:
                    return fields
                continue
            name, _, value = line.decode().rstrip("\n").partition(":")
            fields[name] = value.strip()
        return None

    def made(self) -> int:
        event = self.next()
        assert event is not None
        return int(json.loads(event["data"])["made"])

    def close(self) -> None:
        self.answer.close()
        self._connection.close()


@contextmanager
def stream(page: LivePage, **headers: str) -> Iterator[Stream]:
    opened = Stream(page, **headers)
    try:
        yield opened
    finally:
        opened.close()


@pytest.mark.parametrize("path", ["/", "/live.js", "/drawings.js", "/live.css", "/uPlot.iife.min.js", "/uPlot.min.css"])
def test_all_files_of_the_page_are_served_and_kept_to_it(page: LivePage, path: str) -> None:
    answer = ask(page, path)
    assert answer.status == 200
    assert len(answer.body) > 100
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'")
    assert "unsafe" not in policy


@pytest.mark.parametrize("path", ["/other", "/..%2fserver.py", "/static/live.js", "/uPlot.LICENSE"])
def test_other_files_are_not_served(page: LivePage, path: str) -> None:
    assert ask(page, path).status == 404


@pytest.mark.parametrize("path", ["/", "/events", "/live.js"])
def test_a_page_of_another_site_reads_nothing(page: LivePage, path: str) -> None:
    assert ask(page, path, Host="evil.example").status == 403
    assert ask(page, path, Host="evil.example:7480").status == 403


def test_loopback_needs_no_token(page: LivePage) -> None:
    assert page.url == f"http://127.0.0.1:{page.port}/"


def test_elsewhere_a_token_is_exchanged_for_a_cookie(guarded: LivePage) -> None:
    token = guarded.url.partition("?token=")[2]
    assert len(token) >= 32
    for path in ("/", "/events", "/live.js", "/?token=", "/?token=wrong", f"/events?token={token}"):
        assert ask(guarded, path).status == 401, path
    assert ask(guarded, "/control", "POST", '{"do": "play"}', **{"X-P2pclust": "control"}).status == 401
    admitted = ask(guarded, f"/?token={token}")
    assert (admitted.status, admitted.headers["Location"]) == (303, "/")
    cookie = admitted.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    own = cookie.partition(";")[0]
    assert ask(guarded, "/", Cookie=own).status == 200
    with stream(guarded, Cookie=own) as events:
        assert events.made() >= 1
    assert ask(guarded, "/", Cookie=own[:-1] + ("a" if own[-1] != "a" else "b")).status == 401


def test_a_control_needs_the_header_of_the_page(page: LivePage, picture: Numbers) -> None:
    own = {"X-P2pclust": "control"}
    assert ask(page, "/control", "POST", '{"do": "play"}').status == 403
    assert ask(page, "/control", "POST", '{"do": "seek", "value": 2}', **own).status == 204
    refused = ask(page, "/control", "POST", '{"do": "stop"}', **own)
    assert (refused.status, refused.body) == (400, "stop: expected play\n")
    for wrong in ("", "[]", "{}", '{"do": "seek", "value": []}', "x" * 5_000):
        assert ask(page, "/control", "POST", wrong, **own).status in (400, 413), wrong
    assert ask(page, "/control", "GET").status == 404
    assert picture.asked == [("seek", 2.0)]


def test_each_change_is_sent_and_many_at_once_are_one(page: LivePage, picture: Numbers) -> None:
    with stream(page) as events:
        first = events.made()
        for _ in range(1_000):
            page.changed()
        assert events.made() > first
        page.changed()
        events.made()
        assert picture.made < 20


@pytest.mark.slow
def test_a_browser_that_reads_nothing_is_sent_the_newest_and_not_all(
    page: LivePage, picture: Numbers, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("p2pclust.lab.live.server._APART_S", 0.01)
    monkeypatch.setattr("p2pclust.lab.live.server._BYTES_PER_S", 1_000_000_000)
    picture.size = 200_000
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    slow.connect(("127.0.0.1", page.port))
    slow.sendall(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")

    def go_on() -> bool:
        page.changed()
        return picture.made >= 200

    until(go_on)
    with stream(page) as quick:
        assert quick.made() >= 200, "others are served meanwhile"
    numbers: list[int] = []
    slow.settimeout(20)
    with slow, slow.makefile("rb") as file:
        while not numbers or numbers[-1] < 200:
            line = file.readline()
            if line.startswith(b"id: "):
                numbers.append(int(line[4:]))
    assert len(numbers) < 150, "what it did not read was not kept for it"
    assert numbers == sorted(set(numbers))


def test_the_last_snapshot_is_sent_before_the_end(picture: Numbers) -> None:
    page = LivePage(picture, Address.of("127.0.0.1:0"))
    page.__enter__()
    with stream(page) as events:
        first = events.made()
        ended = threading.Thread(target=page.__exit__, args=(None, None, None))
        ended.start()
        assert events.made() > first
        assert events.next() is None
        ended.join(20)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", page.port), 5)


def test_a_page_that_is_started_again_serves_the_same_browser(picture: Numbers) -> None:
    with LivePage(picture, Address.of("127.0.0.1:0")) as first, stream(first) as events:
        events.made()
        port = first.port
    with LivePage(picture, Address("127.0.0.1", port)) as again, stream(again) as events:
        assert events.made() > 1


def test_a_port_that_is_taken_is_refused_by_name_and_left_by_default() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            UsageError, match=f"--serve 127.0.0.1:{port}: cannot listen there .* choose another address"
        ):
            Address("127.0.0.1", port).listen()
        with Address("127.0.0.1", port, fallback=True).listen() as other:
            assert other.getsockname()[1] != port
