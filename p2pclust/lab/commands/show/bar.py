"""A progress bar on standard error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from p2pclust.cli.show.output import stderr


class Advance(Protocol):
    """Show how much is done."""

    def __call__(self, done: int, total: int | None = None, what: str | None = None) -> None:
        """Move the bar; None leaves the total or the words as they are."""


@contextmanager
def progress_bar(what: str, total: int | None = None) -> Iterator[Advance | None]:
    """Show a progress bar while the block runs; yield None if standard error is not a terminal."""
    console = stderr()
    if not console.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=total)

        def advance(done: int, total: int | None = None, what: str | None = None) -> None:
            bar.update(task, completed=done, total=total, description=what)

        yield advance
