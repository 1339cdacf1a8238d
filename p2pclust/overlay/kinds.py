"""The kinds of overlays and their options, as data for help texts, checks, and the scenario's schema."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from p2pclust.errors import UsageError
from p2pclust.tools.spelling import did_you_mean

Value = int | float | bool | str


@dataclass(frozen=True)
class Option:
    """One option of a kind; a default number of links is lowered in a small overlay.

    `otherwise` says what a default of None means; if it is empty, the option must be given.
    """

    type: type
    default: Value | None
    what: str
    least: float | None = None
    most: float | None = None
    otherwise: str = ""

    def shown_default(self) -> str:
        """Return the default as text."""
        if self.default is None:
            return self.otherwise or "(needed)"
        return str(self.default).lower() if isinstance(self.default, bool) else f"{self.default:g}"


@dataclass(frozen=True)
class Kind:
    """One kind of overlay: what it is, in one line, its options, and the fewest peers that it needs."""

    what: str
    options: Mapping[str, Option]
    fewest: int = 1


def _links(default: int, what: str, least: int = 1) -> Option:
    return Option(int, default, what, least=least)


KINDS: Mapping[str, Kind] = {
    "full": Kind("every peer is linked to every other", {}),
    "ring": Kind("each peer is linked to the next, the last to the first", {}),
    "line": Kind("each peer is linked to the next", {}),
    "star": Kind(
        "every peer is linked to one peer",
        {"center": Option(str, None, "the name of that peer", otherwise="the first peer")},
    ),
    "grid": Kind(
        "rows and columns, as near to a square as can be; the last row may be short",
        {"torus": Option(bool, False, "link the ends of each row and of each column")},
    ),
    "tree": Kind("the first peer is the root, every peer has this many below it", {"children": _links(2, "of each peer")}),
    "regular": Kind(
        "random, with equally many links at every peer", {"neighbours": _links(6, "links of each peer", least=1)}
    ),
    "random": Kind(
        "each pair is linked with the same probability (Erdős and Rényi), drawn until connected",
        {"neighbours": Option(float, 6.0, "links of a peer on average", least=0.0)},
    ),
    "small-world": Kind(
        "a ring with links to the nearest, some of them rewired at random (Watts and Strogatz)",
        {
            "neighbours": _links(4, "links of each peer on average, half to either side: an even number", least=2),
            "rewire": Option(float, 0.1, "the probability with which a link is rewired", least=0.0, most=1.0),
        },
        fewest=3,
    ),
    "scale-free": Kind(
        "peers come one by one and link to those with many links (Barabási and Albert)",
        {"neighbours": _links(2, "links of each newcomer")},
    ),
    "geometric": Kind(
        "peers at random places in a square of side 1, linked where they are in range of each other",
        {
            "radius": Option(
                float, None, "the range; the least connects all", least=0.0, otherwise="1.2 times the least"
            )
        },
    ),
    "mobility": Kind(
        "peers that walk in a square of side 1 (random waypoint), linked while they are in range of each other",
        {
            "radius": Option(
                float, None, "the range; the least connects all at the start", least=0.0, otherwise="1.2 times the least"
            ),
            "speed": Option(float, 0.01, "sides of the square per second, on average", least=1e-6, most=1.0),
            "seconds": Option(int, 120, "how long they walk; then they stay", least=0, most=86_400),
        },
    ),
    "hierarchical": Kind(
        "the first peers are gateways, all linked to each other; every other peer is linked to one of them",
        {"gateways": Option(int, None, "how many", least=1, otherwise="the square root of N")},
    ),
    "hypercube": Kind("peers whose numbers differ in one binary digit are linked; their number is a power of 2", {}),
    "expander": Kind(
        "random and regular, drawn until no cut is a bottleneck: as good as a Ramanujan graph",
        {"neighbours": _links(6, "links of each peer", least=3)},
        fewest=4,
    ),
    "file": Kind(
        "read from a file: GraphML, edges or adjacency", {"path": Option(str, None, "ends with .graphml, .edges or .adj")}
    ),
}  # fmt: skip
"""By name; options in the order of help texts."""

_LARGEST = 1e9
_EXPECTED = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def grid_columns(n_peers: int) -> int:
    """Return how many columns a grid has: nearly a square; the last row may be short.

    >>> grid_columns(12), grid_columns(16)
    (4, 4)
    """
    return math.isqrt(n_peers - 1) + 1


def kind_of(name: str) -> Kind:
    """Return a kind by its name; the message about an unknown one suggests the nearest or lists all.

    >>> kind_of("rign")
    Traceback (most recent call last):
    p2pclust.errors.UsageError: overlay: unknown kind 'rign' (did you mean 'ring'?)
    """
    if name in KINDS:
        return KINDS[name]
    hint = did_you_mean(name, KINDS, f": expected {', '.join(KINDS)}")
    raise UsageError(f"overlay: unknown kind {name!r}{hint}")


def options_of(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options of a kind: the given ones, checked, and defaults; None where the default depends on the overlay.

    >>> options_of("small-world", {"neighbours": 6})
    {'neighbours': 6, 'rewire': 0.1}
    """
    kind = kind_of(name)
    for option in given:
        if option not in kind.options:
            its = f"it has {', '.join(kind.options)}" if kind.options else "it has none"
            raise UsageError(f"overlay {name!r}: no option {option!r}: {its}")
    found: dict[str, Any] = {}
    for option, described in kind.options.items():
        value = given.get(option)
        if value is None and described.default is None and not described.otherwise:
            raise UsageError(f"overlay {name!r}: {option} is missing: {described.what}")
        if value is not None:
            found[option] = _checked(f"overlay {name!r}: {option}", described, value)
        else:  # a default number of links is lowered in a small overlay
            found[option] = None if option == "neighbours" else described.default
    return found


def _checked(where: str, option: Option, value: Any) -> Value:
    if option.type in (int, float):
        whole = isinstance(value, int) and not isinstance(value, bool)
        # Compared rather than converted: a whole number may be too large for a float. NaN is not below it either.
        right = (whole or (option.type is float and isinstance(value, float))) and -_LARGEST < value < _LARGEST
    else:
        right = isinstance(value, option.type)
    if not right:
        raise UsageError(f"{where} = {value!r}: expected {_EXPECTED[option.type]}")
    if option.least is not None and value < option.least:
        raise UsageError(f"{where} = {value!r}: expected at least {option.least:g}")
    if option.most is not None and value > option.most:
        raise UsageError(f"{where} = {value!r}: expected at most {option.most:g}")
    checked: Value = option.type(value)
    return checked
