"""Which of the members that have never answered are greeted in a period."""

from __future__ import annotations

from typing import Final

_MOST: Final = 16  # in one period


class Greetings:
    """Chooses at most `_MOST` members per period, in turns.

    While a large fleet starts, each peer awaits nearly all others. If it greeted all of them in every period, a fleet of 60
    would send some ten thousand greetings a second, and be too busy with them to connect.

    Examples
    --------
    >>> greetings = Greetings()
    >>> names = [f"{number:02d}" for number in range(20)]
    >>> greetings.next(names)[0], greetings.next(names)[:5], greetings.next(names[:3])
    ('00', ['16', '17', '18', '19', '00'], ['00', '01', '02'])
    """

    def __init__(self) -> None:
        self._last = ""  # the member that was greeted last

    def next(self, awaited: list[str]) -> list[str]:
        """Return the members to greet now."""
        if len(awaited) <= _MOST:
            return awaited
        awaited = sorted(awaited)
        after = [name for name in awaited if name > self._last]
        chosen = [*after, *awaited][:_MOST]
        self._last = chosen[-1]
        return chosen
