"""An overlay as a value: peers, the links between them, and perhaps where the peers are; and overlays made by their kind."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pclust.errors import UsageError
from p2pclust.overlay.kinds import KINDS, options_of
from p2pclust.overlay.routes import Ways
from p2pclust.tools.spelling import did_you_mean

Link = tuple[str, str]
Position = tuple[float, float]

_PARTS_SHOWN = 4
_NAMES_SHOWN = 6
_LETTERS_SHOWN = 60


@dataclass(frozen=True)
class Overlay:
    """Which peers are linked.

    Parameters
    ----------
    names : sequence of str, length N
        The peers, in the order that is kept.
    links : iterable of (str, str)
        Undirected: kept with the smaller name first, sorted, each once however often it was given.
    positions : mapping of str to (float, float), optional
        Where each peer is, for all of them or for none. Not to be changed afterwards.
    kind : str
        The kind that it was made as, for pictures and reports; not checked.

    Raises
    ------
    UsageError
        If there is no peer, a name is repeated or not text, a link joins a peer to itself or to an unknown peer, or the
        positions are not those of the peers.

    Examples
    --------
    >>> overlay = Overlay(("b", "a", "c"), [("b", "a"), ("b", "c"), ("a", "b")])
    >>> overlay.links, overlay.n_links, overlay.neighbours("b")
    ((('a', 'b'), ('b', 'c')), 2, ('a', 'c'))
    """

    names: tuple[str, ...]
    links: tuple[Link, ...]
    positions: Mapping[str, Position] | None = field(default=None, hash=False)
    kind: str = "custom"

    def __post_init__(self) -> None:
        names = tuple(self.names)
        if not names:
            raise UsageError("overlay: no peers: name at least one")
        known: dict[str, None] = {}
        for name in names:
            if not isinstance(name, str) or not name:
                raise UsageError(f"overlay: a peer is called {shown(name)}: expected a name")
            if name in known:
                raise UsageError(f"overlay: peer {shown(name)} is named twice: name every peer once")
            known[name] = None
        links: set[Link] = set()
        for a, b in self.links:
            for name in (a, b):
                if name not in known:
                    raise UsageError(f"overlay: link {shown(a)} - {shown(b)}: {unknown(name, names)}")
            if a == b:
                raise UsageError(f"overlay: peer {shown(a)} is linked to itself: leave that link out")
            links.add((a, b) if a < b else (b, a))
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "links", tuple(sorted(links)))
        if self.positions is not None:
            object.__setattr__(self, "positions", _checked_positions(self.positions, self.names))

    @property
    def n_peers(self) -> int:
        """How many peers there are."""
        return len(self.names)

    @property
    def n_links(self) -> int:
        """How many links there are, each counted once."""
        return len(self.links)

    @cached_property
    def _place(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.names)}

    @cached_property
    def pairs(self) -> NDArray[np.int64]:
        """The links as places in `names`, shape (n_links, 2)."""
        place = self._place
        return np.array([(place[a], place[b]) for a, b in self.links], dtype=np.int64).reshape(-1, 2)

    @cached_property
    def degrees(self) -> NDArray[np.int64]:
        """How many neighbours each peer has, in the order of `names`, shape (N,)."""
        return np.bincount(self.pairs.reshape(-1), minlength=len(self.names)).astype(np.int64)

    @cached_property
    def _adjacent(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, list[str]] = {name: [] for name in self.names}
        for a, b in self.links:
            found[a].append(b)
            found[b].append(a)
        return {name: tuple(sorted(others)) for name, others in found.items()}

    def neighbours(self, name: str) -> tuple[str, ...]:
        """Return the peers that a peer is linked to, sorted. Raise UsageError if the peer is unknown."""
        try:
            return self._adjacent[name]
        except KeyError:
            raise UsageError(f"overlay: {unknown(name, self.names)}") from None

    def graph(self) -> Any:
        """Return a graph of NetworkX: nodes are names, in their order, with x and y if there are positions.

        Examples
        --------
        >>> Overlay(("b", "a"), [("a", "b")]).graph().nodes
        NodeView(('b', 'a'))
        """
        import networkx as nx  # noqa: PLC0415 - heavy, and no running peer needs it

        graph = nx.Graph()
        graph.add_nodes_from(self.names)
        graph.add_edges_from(self.links)
        for name, (x, y) in (self.positions or {}).items():
            graph.nodes[name].update(x=x, y=y)
        return graph

    def components(self) -> tuple[tuple[str, ...], ...]:
        """Return the parts that are connected within, the largest first, then that with the earliest peer in `names`.

        Examples
        --------
        >>> Overlay(("a", "b", "c"), [("c", "b")]).components()
        (('b', 'c'), ('a',))
        """
        ways = Ways(self._adjacent)
        parts: list[tuple[str, ...]] = []
        seen: set[str] = set()
        for start in self.names:
            if start not in seen:
                reached = ways.distances(start)
                seen.update(reached)
                parts.append(tuple(sorted(reached, key=self._place.__getitem__)))
        return tuple(sorted(parts, key=len, reverse=True))

    def require_connected(self, where: str = "overlay") -> None:
        """Raise UsageError if the overlay has several parts; it names their sizes and one peer of each.

        `where` begins the message, for example the name of the file.

        Examples
        --------
        >>> Overlay(("a", "b", "c"), [("a", "b")]).require_connected()
        Traceback (most recent call last):
        p2pclust.errors.UsageError: overlay: not connected, but in 2 parts, of 2 peers ('a', ...) and 1 ('c'): link them
        """
        parts = self.components()
        if len(parts) == 1:
            return
        units = [" peers" if len(parts[0]) > 1 else " peer", *[""] * (_PARTS_SHOWN - 1)]
        texts = [
            f"{len(part)}{unit} ({shown(part[0])}{', ...' if len(part) > 1 else ''})"
            for part, unit in zip(parts, units, strict=False)
        ]
        if len(parts) > _PARTS_SHOWN:
            texts.append(f"{len(parts) - _PARTS_SHOWN} more")
        described = f"{len(parts)} parts, of {', '.join(texts[:-1])} and {texts[-1]}"
        raise UsageError(f"{where}: not connected, but in {described}: link them")


def make_overlay(kind: str, names: Sequence[str], rng: np.random.Generator, **options: Any) -> Overlay:
    """Make an overlay.

    Parameters
    ----------
    kind : str
        One of `KINDS`.
    names : sequence of str
        The peers. For ``file``: the names that the file must contain; empty for those in the file.
    rng : numpy.random.Generator
        The only source of randomness: the same state of the generator gives the same overlay.
    **options
        Options of the kind; None means the default. A default number of links is lowered where the overlay is too small
        for it; a number that is given is not.

    Returns
    -------
    Overlay
        Connected, with the names in the order given.

    Raises
    ------
    UsageError
        If the kind or an option is unknown, or the overlay is impossible; the message says what is possible.

    Examples
    --------
    >>> import numpy as np
    >>> make_overlay("ring", ["a", "b", "c", "d"], np.random.default_rng(0)).links
    (('a', 'b'), ('a', 'd'), ('b', 'c'), ('c', 'd'))
    """
    checked = options_of(kind, options)
    if kind == "file":
        from p2pclust.overlay.files import read_overlay  # noqa: PLC0415 - most overlays are not read from a file

        found = read_overlay(checked["path"], names or None)
        found.require_connected(checked["path"])
        return found
    overlay = Overlay(tuple(names), ())  # refuses bad names
    if overlay.n_peers < KINDS[kind].fewest:
        peers = f"{overlay.n_peers} peer{'s' if overlay.n_peers > 1 else ''}"
        raise UsageError(f"overlay {kind!r}: {peers}: expected at least {KINDS[kind].fewest}")
    if kind == "star":
        center = checked["center"]
        if center is not None and center not in overlay.names:
            raise UsageError(f"overlay 'star': center: {unknown(center, overlay.names)}")
        checked["center"] = 0 if center is None else overlay.names.index(center)
    from p2pclust.overlay.graphs import MAKERS  # noqa: PLC0415 - imports NetworkX, which a running peer must not

    graph = MAKERS[kind](overlay.n_peers, checked, rng)
    names = overlay.names
    positions = {names[node]: place for node, place in graph.nodes(data="pos") if place is not None}
    return Overlay(names, tuple((names[a], names[b]) for a, b in graph.edges()), positions or None, kind)


def shown(name: object) -> str:
    """Return a name as one line of limited length.

    >>> shown("two\\nlines"), len(shown(1000 * "x"))
    ("'two\\\\nlines'", 63)
    """
    text = repr(name)
    return text if len(text) <= _LETTERS_SHOWN + 3 else text[:_LETTERS_SHOWN] + "..."


def unknown(name: object, names: Collection[str]) -> str:
    """Return a message for an unknown peer, with the nearest name or some known ones.

    >>> unknown("metr-1", ["meter-1", "meter-2"])
    "unknown peer 'metr-1' (did you mean 'meter-1'?)"
    >>> unknown("x", ["a", "b"])
    "unknown peer 'x': expected one of 'a', 'b'"
    """
    known = [shown(other) for other in islice(names, _NAMES_SHOWN)]
    more = f" and {len(names) - len(known)} more" if len(names) > len(known) else ""
    expected = f": expected one of {', '.join(known)}{more}"
    return f"unknown peer {shown(name)}{did_you_mean(name, names, expected)}"


def _checked_positions(given: Mapping[str, Position], names: tuple[str, ...]) -> dict[str, Position]:
    known = frozenset(names)
    for name in given:
        if name not in known:
            raise UsageError(f"overlay: position: {unknown(name, names)}")
    found: dict[str, Position] = {}
    for name in names:
        if name not in given:
            raise UsageError(f"overlay: peer {shown(name)} has no position: give one to all peers, or to none")
        x, y = (float(part) for part in given[name])
        if not (math.isfinite(x) and math.isfinite(y)):
            raise UsageError(f"overlay: peer {shown(name)} is at ({x}, {y}): expected two finite numbers")
        found[name] = (x, y)
    return found
