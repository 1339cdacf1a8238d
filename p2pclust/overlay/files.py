"""Overlays in files: GraphML (``.graphml``), edge list (``.edges``) and adjacency list (``.adj``).

A file is read by this module's own parsers, not by NetworkX's: those merge a peer that is named twice, make a new
peer of a misspelt name, and report no line. Files that are written here can be read by NetworkX.

``.edges``
    One link per line, two names. A line with one name is a peer; if there are such lines, they are all the peers, in their
    order. ``#`` begins a comment; attributes in braces, as NetworkX writes them, are passed over.
``.adj``
    One line per peer: its name, then its neighbours, each link on one line at least. ``#`` begins a comment.
``.graphml``
    One undirected graph. The ids of nodes are the names; node attributes named x and y are positions. A DOCTYPE is
    refused: no overlay needs one, and entities in it can make a small file endless.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn
from xml.parsers import expat

from p2pclust.errors import UsageError
from p2pclust.overlay.overlay import Overlay, Position, shown, unknown
from p2pclust.overlay.plans import read_bytes, write_bytes

_MARKS: Final = (",", ";")  # what other programs write between names
_HEADS: Final = (
    {"source", "target"}, {"from", "to"}, {"src", "dst"}, {"node1", "node2"}, {"u", "v"}, {"peer", "neighbour"},
    {"peer", "neighbor"}, {"start", "end"}, {"id1", "id2"}, {"source", "destination"},
)  # fmt: skip
SUFFIXES: Final = (".graphml", ".edges", ".adj")

# An adjacency list of as many peers may have each link twice.
_LINKS_MAX = 1_000_000
_PEERS_MAX = 10_000
_DIGITS = 60  # longer numbers are none
_SPACE = " "  # between an element's namespace and its name


@dataclass
class Content:
    """The content of a file: the line that names each peer, the links with their lines, and positions."""

    where: str
    peers: dict[str, int] = field(default_factory=dict)
    links: list[tuple[str, str, int]] = field(default_factory=list)
    positions: dict[str, Position] = field(default_factory=dict)

    def refuse(self, line: int, problem: str) -> NoReturn:
        """Raise UsageError for a problem in that line."""
        raise UsageError(f"{self.where}: line {line}: {problem}")

    def peer(self, name: str, line: int) -> None:
        """Take a peer; refuse a second one of that name, and too many."""
        if name in self.peers:
            self.refuse(line, f"peer {shown(name)} is there already, in line {self.peers[name]}: leave one of them out")
        if len(self.peers) == _PEERS_MAX:
            self.refuse(line, f"more than {_PEERS_MAX} peers")
        self.peers[name] = line

    def link(self, a: str, b: str, line: int) -> None:
        """Take a link; refuse too many."""
        if len(self.links) == _LINKS_MAX:
            self.refuse(line, f"more than {_LINKS_MAX} links")
        self.links.append((a, b, line))


def read_overlay(path: str | os.PathLike[str], names: Sequence[str] | None = None) -> Overlay:
    """Read an overlay from a file; the suffix selects the format.

    Parameters
    ----------
    path : path
        Ends with one of `SUFFIXES`.
    names : sequence of str, optional
        The fleet's peers: the file must name exactly these, and their order is kept. By default those of the file.

    Returns
    -------
    Overlay
        Of kind ``file``; connected or not.

    Raises
    ------
    UsageError
        If the file cannot be read or is not an overlay; names the file and, if possible, the line.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "two.edges"
    ...     _ = file.write_text("meter-2 meter-1\\n")
    ...     read_overlay(file).links
    (('meter-1', 'meter-2'),)
    """
    file = Path(path)
    read, _ = _format(file)
    found = Content(str(file))
    read(read_bytes(file, "an overlay"), found)
    if not found.peers:
        raise UsageError(f"{file}: no peers: expected at least one")
    return _overlay(found, names)


def write_overlay(overlay: Overlay, path: str | os.PathLike[str]) -> None:
    """Write an overlay to a file; the suffix selects the format. Only GraphML keeps positions.

    Raises
    ------
    UsageError
        If the file cannot be written, or a name is not allowed in its format.
    """
    file = Path(path)
    _, write = _format(file)
    for name in overlay.names:  # names that could not be read again are refused
        odd = any(mark in name for mark in ("#", *_MARKS)) or name.startswith("{")
        if odd or name.split() != [name] or not name.isprintable():
            raise UsageError(f"{file}: peer {shown(name)}: no name for a file: expected one word, without # , ;")
    write_bytes(file, "".join(f"{line}\n" for line in write(overlay)).encode())


def _overlay(found: Content, names: Sequence[str] | None) -> Overlay:
    known: Mapping[str, object] = found.peers if names is None else dict.fromkeys(names)
    for name, line in found.peers.items():
        if name not in known:
            found.refuse(line, unknown(name, known))
    for a, b, line in found.links:
        for name in (a, b):
            if name not in found.peers and names is not None and name in names:
                found.refuse(line, f"peer {shown(name)} is named as a neighbour only: give it a line of its own")
            if name not in found.peers:
                found.refuse(line, unknown(name, found.peers))
        if a == b:
            found.refuse(line, f"peer {shown(a)} is linked to itself: leave that link out")
    missing = [name for name in known if name not in found.peers]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise UsageError(f"{found.where}: peer {shown(missing[0])}{more} of the fleet missing: add it with its links")
    without = next((name for name in found.peers if name not in found.positions), None)
    if found.positions and without is not None:
        line = found.peers[without]
        found.refuse(line, f"peer {shown(without)} has no x and y, others have: give them to all peers, or to none")
    links = tuple((a, b) for a, b, _ in found.links)
    return Overlay(tuple(known), links, found.positions or None, "file")


def _lines(content: bytes, found: Content) -> Iterable[tuple[int, list[str]]]:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        found.refuse(content.count(b"\n", 0, error.start) + 1, "not UTF-8 text: save it as such")
    for number, line in enumerate(text.split("\n"), start=1):
        words = line.partition("#")[0].split()
        if any(mark in line.partition("#")[0].partition("{")[0] for mark in _MARKS):
            found.refuse(number, f"expected names with spaces between them, found {line.strip()!r:.40}")
        if words:
            yield number, words


def _read_edges(content: bytes, found: Content) -> None:
    for line, words in _lines(content, found):
        if len(words) > 2 and not words[2].startswith("{"):
            found.refuse(line, f"expected two names, found {len(words)}")
        if len(words) == 1:
            found.peer(words[0], line)
        else:
            found.link(words[0], words[1], line)
    if not found.peers and found.links:  # then every linked name is a peer
        (a, b, line), *others = found.links
        # A first line that names two columns would be a link of two peers that have no other.
        if {a.lower(), b.lower()} in _HEADS and others and not any({a, b} & {c, d} for c, d, _ in others):
            found.refuse(line, f"{a} {b} looks like a header: leave it out, or begin the line with #")
        for a, b, line in found.links:
            for name in (a, b):
                if name not in found.peers:
                    found.peer(name, line)


def _read_adjacency(content: bytes, found: Content) -> None:
    for line, (name, *neighbours) in _lines(content, found):
        found.peer(name, line)
        for other in neighbours:
            found.link(name, other, line)


@dataclass
class GraphMLReader:
    """Reads one document into what is found, see http://graphml.graphdrawing.org."""

    _found: Content
    _open: list[str] = field(default_factory=list)
    _graphs: int = 0
    _axes: dict[str, str] = field(default_factory=dict)  # by the ids of the attributes x and y
    _name: str = ""  # of the node that is being read
    _place: dict[str, float] = field(default_factory=dict)
    _axis: str = ""
    _text: str = ""

    def read(self, content: bytes) -> None:
        """Read a whole document; raise UsageError for what is not an overlay."""
        parser = self._parser = expat.ParserCreate(namespace_separator=_SPACE)
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        # Before an entity can be declared, and thus before any can expand into others.
        parser.StartDoctypeDeclHandler = lambda *_: self._refuse("a DOCTYPE: leave it out, no overlay needs one")
        try:
            parser.Parse(content, True)
        except expat.ExpatError as error:
            self._found.refuse(error.lineno, f"not XML ({expat.ErrorString(error.code)})")
        if not self._graphs:
            self._found.refuse(1, "no <graph> in it: expected GraphML")

    @property
    def _line(self) -> int:
        return self._parser.CurrentLineNumber

    def _refuse(self, problem: str) -> NoReturn:
        self._found.refuse(self._line, problem)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        element = tag.rpartition(_SPACE)[2]
        if not self._open and element != "graphml":
            self._refuse(f"<{element[:20]}>: expected <graphml>")
        self._open.append(element)
        if element == "key" and attributes.get("for") in ("node", "all") and attributes.get("attr.name") in ("x", "y"):
            self._axes[self._needed(attributes, "id", element)] = attributes["attr.name"]
        elif element == "graph":
            self._graphs += 1
            if self._graphs > 1:
                self._refuse("a second <graph>: expected one")
            if attributes.get("edgedefault") != "undirected":
                self._refuse("a directed graph: links of an overlay go both ways: expected edgedefault='undirected'")
        elif element == "node":
            self._name, self._place = self._needed(attributes, "id", element), {}
            self._found.peer(self._name, self._line)
        elif element == "edge":
            if attributes.get("directed") == "true":
                self._refuse("a directed link: links of an overlay go both ways: expected directed='false'")
            source, target = (self._needed(attributes, end, element) for end in ("source", "target"))
            self._found.link(source, target, self._line)
        elif element == "hyperedge":
            self._refuse("a <hyperedge>: a link has two ends: expected <edge>")
        elif element == "data" and self._open[-2:-1] == ["node"]:
            self._axis = self._axes.get(attributes.get("key", ""), "")
            self._text = ""

    def _needed(self, attributes: dict[str, str], name: str, element: str) -> str:
        if not attributes.get(name):
            self._refuse(f"<{element}> without {name}")
        return attributes[name]

    def _characters(self, text: str) -> None:
        if self._axis:
            self._text += text
            if len(self._text) > _DIGITS:
                self._no_number()

    def _no_number(self) -> NoReturn:
        self._refuse(f"peer {shown(self._name)}: {self._axis} = {shown(self._text)}: expected a number")

    def _end(self, tag: str) -> None:
        element = self._open.pop()
        if element == "data" and self._axis:
            try:
                number = float(self._text)
            except ValueError:
                number = math.nan
            if not math.isfinite(number):
                self._no_number()
            self._place[self._axis] = number
            self._axis = ""
        elif element == "node" and len(self._place) == 2:
            self._found.positions[self._name] = (self._place["x"], self._place["y"])


def _write_edges(overlay: Overlay) -> Iterable[str]:
    yield "# the peers, one per line, then their links"
    yield from overlay.names
    yield from (f"{a} {b}" for a, b in overlay.links)


def _write_adjacency(overlay: Overlay) -> Iterable[str]:
    yield "# each peer, and those of its neighbours that have no earlier line"
    seen: set[str] = set()
    for name in overlay.names:
        yield " ".join((name, *(other for other in overlay.neighbours(name) if other not in seen)))
        seen.add(name)


def _write_graphml(overlay: Overlay) -> Iterable[str]:
    import networkx as nx  # noqa: PLC0415 - heavy, and a running peer writes no overlay

    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield from nx.generate_graphml(overlay.graph())


_Format = tuple[Callable[[bytes, Content], None], Callable[[Overlay], Iterable[str]]]

_FORMATS: Final[Mapping[str, _Format]] = {
    ".graphml": (lambda content, found: GraphMLReader(found).read(content), _write_graphml),
    ".edges": (_read_edges, _write_edges),
    ".adj": (_read_adjacency, _write_adjacency),
}


def _format(file: Path) -> _Format:
    if file.suffix.lower() not in _FORMATS:
        raise UsageError(f"{file}: expected a name that ends with {', '.join(SUFFIXES)}")
    return _FORMATS[file.suffix.lower()]
