"""Running a coroutine for a caller that waits, also inside a notebook."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_START_S = 10.0  # by then a new thread has begun
_LOOK_S = 0.5


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` and return its result, whether or not an event loop runs in this thread.

    A notebook's cell runs inside the notebook's event loop, which cannot run another one: there, `work` runs in a thread of
    its own, and the caller waits for it. Ctrl-C, or "interrupt", cancels `work` and waits until it has cleaned up.

    >>> async def answer():
    ...     return 42
    >>> run_async(answer())
    42
    >>> async def cell():
    ...     return run_async(answer())
    >>> asyncio.run(cell())
    42
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    outcome: concurrent.futures.Future[T] = concurrent.futures.Future()
    began: concurrent.futures.Future[Callable[[], object]] = concurrent.futures.Future()

    async def cancellable() -> T:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None, "asyncio.run makes one"
        began.set_result(lambda: loop.call_soon_threadsafe(task.cancel))
        return await work

    def live() -> None:
        try:
            outcome.set_result(asyncio.run(cancellable()))
        except BaseException as error:  # noqa: BLE001 - the caller's thread raises it
            outcome.set_exception(error)

    thread = threading.Thread(target=live, name="p2pclust-fleet")
    try:
        thread.start()  # an interrupt may come while it waits for the thread, too
        # A signal that arrives just before a wait begins is handled when it ends, so no wait is long.
        while not concurrent.futures.wait((outcome,), _LOOK_S).done:
            pass
        return outcome.result()
    except BaseException:
        if not outcome.done():  # an interrupt, or a deadline of the caller: end the work too
            began.result(_START_S)()
        raise
    finally:
        thread.join()
