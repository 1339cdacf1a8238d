from __future__ import annotations

import asyncio

import pytest
import zmq
from zmq.utils import z85

from p2pclust.transport import zap as zap_module
from p2pclust.transport.zap import DOMAIN, ZapHandler

KEY = bytes(range(32))
GOOD = [b"1.0", b"7", DOMAIN, b"127.0.0.1", b"", b"CURVE", KEY]


def ask(requests, admits):
    """Put ZAP requests to a handler, as libzmq would; its answers and what reached the loop's exception handler."""
    answers, failures = [], []

    async def test():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
        with zmq.Context() as context:
            handler = ZapHandler(context, loop, admits)
            with context.socket(zmq.REQ) as asker:
                asker.linger = 0
                asker.connect("inproc://zeromq.zap.01")
                async with asyncio.timeout(60):
                    for request in requests:
                        asker.send_multipart(request)
                        while not asker.poll(0):
                            await asyncio.sleep(0)
                        answers.append(asker.recv_multipart())
            handler.close()
            handler.close()

    asyncio.run(test())
    return answers, failures


def test_a_key_on_the_roster_is_admitted_under_its_own_text():
    key = z85.encode(KEY)
    answers, failures = ask([GOOD], lambda asked: asked == key)
    assert answers == [[b"1.0", b"7", b"200", b"OK", key, b""]]
    assert not failures


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, b"400"),
        ({2: b""}, b"400"),
        ({2: b"other"}, b"400"),
        ({5: b"NULL"}, b"400"),
        ({5: b"PLAIN"}, b"400"),
        ({6: b"short"}, b"400"),
        ({0: b"2.0"}, b"500"),
    ],
)
def test_whatever_is_not_admitted_is_refused_with_no_user(change, status):
    request = [change.get(index, frame) for index, frame in enumerate(GOOD)]
    answers, _ = ask([request], lambda key: bool(change))
    assert answers[0][:3] == [b"1.0", b"7", status]
    assert answers[0][4:] == [b"", b""]


def test_no_exception_ends_the_handler():
    calls = []

    def admits(key):
        calls.append(key)
        if len(calls) == 1:
            raise ZeroDivisionError("a bug in the decision")
        return True

    answers, failures = ask([GOOD, [b""], [b"1.0"], GOOD], admits)
    assert [answer[2] for answer in answers] == [b"500", b"500", b"500", b"200"]
    assert [answer[1] for answer in answers] == [b"7", b"", b"", b"7"]
    assert [type(failure) for failure in failures] == [ZeroDivisionError]


def test_a_flood_of_requests_is_answered_in_bursts():
    answers, _ = ask([GOOD] * 200, lambda key: True)
    assert {answer[2] for answer in answers} == {b"200"}


def test_a_handler_that_ended_is_noticed(monkeypatch):
    monkeypatch.setattr(zap_module, "_LOOK_S", 0.01)
    noticed = []

    async def test():
        loop = asyncio.get_running_loop()
        with zmq.Context() as context:
            ended = loop.create_future()
            handler = ZapHandler(context, loop, lambda key: True, ended=lambda: ended.set_result(loop.time()))
            for _ in range(20):
                await asyncio.sleep(0.01)
            noticed.append(ended.done())
            handler._drain.close()
            if len(noticed) == 1:  # it hangs; in the other case its socket is gone
                handler._socket.close(linger=0)
            async with asyncio.timeout(60):
                await ended
            handler.close()

    asyncio.run(test())
    asyncio.run(test())
    assert noticed == [False, False]
