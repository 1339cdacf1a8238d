"""GraphML's peers, links and positions, with the lines they are in. The format: http://graphml.graphdrawing.org."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NoReturn
from xml.parsers import expat

from p2pclust.overlay.overlay import shown

if TYPE_CHECKING:
    from p2pclust.overlay.files import Content

_DIGITS = 60  # longer numbers are none
_SPACE = " "  # between an element's namespace and its name


class GraphMLReader:
    """Reads one document into what is found."""

    def __init__(self, found: Content) -> None:
        self._found = found
        self._open: list[str] = []
        self._graphs = 0
        # The ids of the attributes x and y, and what the node that is being read has of them.
        self._axes: dict[str, str] = {}
        self._name = ""
        self._place: dict[str, float] = {}
        self._axis = ""
        self._text = ""

    def read(self, content: bytes) -> None:
        """Read a whole document; raise UsageError for what is not an overlay."""
        parser = self._parser = expat.ParserCreate(namespace_separator=_SPACE)
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        # Before an entity can be declared, and thus before any can expand into others.
        parser.StartDoctypeDeclHandler = self._doctype
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

    def _doctype(self, *_: object) -> None:
        self._refuse("a DOCTYPE: leave it out, no overlay needs one")

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
