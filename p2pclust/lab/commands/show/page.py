"""The page in the browser that ``--serve`` starts."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from p2pclust.cli.show.output import stderr
from p2pclust.errors import UsageError
from p2pclust.tools.distribution import install_line

if TYPE_CHECKING:
    from p2pclust.lab.live.server import LivePage
    from p2pclust.lab.live.shown import FollowedRun


@contextmanager
def page_of(picture: FollowedRun, address: str) -> Iterator[LivePage]:
    """Serve a picture, and say where on standard error."""
    try:
        from p2pclust.lab.live.server import Address, LivePage  # noqa: PLC0415 - aiohttp is in the extra `live`
    except ModuleNotFoundError as error:
        if error.name != "aiohttp":
            raise
        raise UsageError(f"--serve needs aiohttp: {install_line('live')}") from None
    with LivePage(picture, Address.of(address)) as page:
        picture.on_change = page.changed
        stderr().print(f"see {page.url}", soft_wrap=True)
        yield page


@contextmanager
def ended_like_ctrl_c() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a command as Ctrl-C does; a run ends after every peer has ended."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.raise_signal(signal.SIGINT)

    ends = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]  # Windows has no SIGHUP
    before = {number: signal.signal(number, interrupt) for number in ends}
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # In the background of a script, Ctrl-C is ignored: without a handler SIGTERM would end nothing either.
        before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
