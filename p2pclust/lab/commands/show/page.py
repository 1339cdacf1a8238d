"""The page in the browser that ``--serve`` starts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from p2pclust.cli.show.output import stderr
from p2pclust.errors import UsageError
from p2pclust.tools.distribution import install_line

if TYPE_CHECKING:
    from p2pclust.lab.live.server import LivePage
    from p2pclust.lab.live.shown import FollowedRun, Replay


@contextmanager
def page_of(picture: FollowedRun | Replay, address: str) -> Iterator[LivePage]:
    """Serve a picture, and say where on standard error."""
    from p2pclust.lab.live.address import Address  # noqa: PLC0415

    try:
        from p2pclust.lab.live.server import LivePage  # noqa: PLC0415 - aiohttp is in the extra `live`
    except ModuleNotFoundError as error:
        if error.name != "aiohttp":
            raise
        raise UsageError(f"--serve needs aiohttp: {install_line('live')}") from None
    with LivePage(picture, Address.of(address)) as page:
        picture.on_change = page.changed
        stderr().print(f"see {page.url}", soft_wrap=True)
        yield page
