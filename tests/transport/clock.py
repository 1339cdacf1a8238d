"""As much of an event loop as connections use, on a clock of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class Clock:
    """Timers and readers of a loop; `advance` lets time pass."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[asyncio.TimerHandle] = []
        self.watched: set[int] = set()

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[..., object], *args: object) -> asyncio.TimerHandle:
        loop: Any = self
        handle = asyncio.TimerHandle(when, callback, args, loop)
        self.timers.append(handle)
        return handle

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> asyncio.TimerHandle:
        return self.call_at(self.now + delay_s, callback, *args)

    def call_soon(self, callback: Callable[..., object], *args: object) -> asyncio.TimerHandle:
        return self.call_at(self.now, callback, *args)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        if handle in self.timers:
            self.timers.remove(handle)

    def get_debug(self) -> bool:
        return False

    def add_reader(self, fd: int, callback: Callable[..., object]) -> None:
        self.watched.add(fd)

    def remove_reader(self, fd: int) -> None:
        self.watched.discard(fd)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for handle in [handle for handle in self.timers if handle.when() <= self.now]:
            if handle in self.timers:
                self.timers.remove(handle)
                handle._run()
