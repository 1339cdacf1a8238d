"""A fleet is run to its end from a script, and from a notebook's cell, whose event loop runs already."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from p2pclust import LosslessCMeans
from p2pclust.lab.testbed.run_async import run_async


async def one() -> str:
    await asyncio.sleep(0)
    return threading.current_thread().name


async def fails() -> None:
    raise KeyError("lost")


def test_without_a_running_loop_it_is_this_thread() -> None:
    assert run_async(one()) == threading.current_thread().name


def test_within_a_running_loop_another_thread_does_it() -> None:
    async def cell() -> str:
        return run_async(one())

    assert asyncio.run(cell()) == "p2pclust-fleet"


def test_what_fails_fails_in_the_caller() -> None:
    async def cell() -> None:
        run_async(fails())

    with pytest.raises(KeyError, match="lost"):
        asyncio.run(cell())


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, also where whoever started the tests has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_cell_lets_the_work_clean_up() -> None:
    cleaned: list[str] = []

    async def work() -> None:
        main = threading.main_thread().ident
        assert main is not None
        try:
            signal.pthread_kill(main, signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            cleaned.append("yes")

    async def cell() -> None:
        run_async(work())

    loop = asyncio.new_event_loop()  # not asyncio.run, which handles the signal itself; a notebook does not
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(cell())
    finally:
        loop.close()
    assert cleaned == ["yes"]


def test_a_deadline_of_the_caller_ends_the_work_too() -> None:
    cleaned: list[str] = []

    def too_late(*_: object) -> None:
        raise TimeoutError("the caller's")

    async def work() -> None:
        main = threading.main_thread().ident
        assert main is not None
        try:
            signal.pthread_kill(main, signal.SIGUSR1)
            await asyncio.Event().wait()
        finally:
            cleaned.append("yes")

    async def cell() -> None:
        run_async(work())

    before = signal.signal(signal.SIGUSR1, too_late)
    try:
        with pytest.raises(TimeoutError, match="the caller's"):
            asyncio.run(cell())
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert cleaned == ["yes"]


@pytest.mark.processes
@pytest.mark.slow
def test_real_peers_serve_a_notebook() -> None:
    X = np.random.default_rng(1).normal(size=(60, 2))

    async def cell() -> LosslessCMeans:
        return LosslessCMeans(n_clusters=2, n_peers=3, random_state=0, fleet="processes").fit(X)

    alone = LosslessCMeans(n_clusters=2, n_peers=3, random_state=0).fit(X)
    assert asyncio.run(cell()).cluster_centers_.tobytes() == alone.cluster_centers_.tobytes()
