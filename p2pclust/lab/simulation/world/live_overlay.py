"""An overlay whose links come and go: which simulated peers have a link now, and how often each link has changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class LiveOverlay:
    """The links of a fleet. Without an overlay it is a full mesh, which never changes.

    Parameters
    ----------
    names : iterable of str
        The peers.
    overlay : mapping of str to names, optional
        Of each peer its neighbours.

    Examples
    --------
    >>> line = LiveOverlay("abc", {"a": ["b"], "b": ["a", "c"], "c": ["b"]})
    >>> line.linked("a", "c"), line.change("c", "a", up=True), line.linked("a", "c"), line.changes("a", "c")
    (False, True, True, 1)
    """

    def __init__(self, names: Iterable[str], overlay: Mapping[str, Iterable[str]] | None = None) -> None:
        self._names = tuple(names)
        self._near = None if overlay is None else {name: dict.fromkeys(near) for name, near in overlay.items()}
        self._changes: dict[tuple[str, str], int] = {}

    @property
    def sparse(self) -> bool:
        """Whether there is an overlay."""
        return self._near is not None

    def linked(self, a: str, b: str) -> bool:
        """Whether there is a link between two peers now."""
        return self._near is None or b in self._near[a]

    def neighbours(self, name: str) -> tuple[str, ...]:
        """Return the present neighbours of a peer, sorted."""
        near = [other for other in self._names if other != name] if self._near is None else self._near[name]
        return tuple(sorted(near))

    def add(self, a: str, b: str) -> None:
        """Add a link, which counts as no change: one peer alone has made it."""
        assert self._near is not None, "a full mesh has all links"
        self._near[a][b] = self._near[b][a] = None

    def change(self, a: str, b: str, *, up: bool) -> bool:
        """Let a link appear or vanish; returns whether it did."""
        assert self._near is not None, "on a full mesh no link appears or vanishes"
        if self.linked(a, b) == up:
            return False
        if up:
            self.add(a, b)
        else:
            del self._near[a][b], self._near[b][a]
        self._changes[_pair(a, b)] = self.changes(a, b) + 1
        return True

    def changes(self, a: str, b: str) -> int:
        """How often the link has appeared or vanished."""
        return self._changes.get(_pair(a, b), 0) if self._changes else 0


def _pair(a: str, b: str) -> tuple[str, str]:
    return (a, b) if a < b else (b, a)
