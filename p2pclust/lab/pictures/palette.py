"""Every colour of a report and its meaning: a colour has one meaning on the whole page.

Peers, clusters and classes have separate palettes without common colours. A cluster whose rows are mostly of one class has
the strong shade of that class's light colour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

# -- single colours -----------------------------------------------------------------------------------------------------

INK: Final = "#333333"
LINK: Final = "#777777"
#: The background; edges of this colour separate shapes.
PAPER: Final = "#fefefe"
#: Rows without a cluster, clusters without a community.
ALONE: Final = "#bdbdbd"
WRONG: Final = "#d62728"
GOOD: Final = "#2ca02c"
#: A peer that aggregates.
CROWN: Final = "#f1a340"
#: A number over time, of the whole fleet.
CURVE: Final = "#44546a"

# -- palettes -----------------------------------------------------------------------------------------------------------
# Without red (for errors) and grey (for rows without a cluster). Neighbours in a list differ much in hue.

#: Clusters and communities: strong colours.
CLUSTERS: Final = (
    "#3986e4", "#df7b0c", "#33ac5a", "#b55fba", "#16bbbc", "#d9bd1c", "#765fca", "#9ac242", "#a44c1d", "#ed76b3",
    "#0cbef9", "#048265", "#c78df8", "#a77601", "#3f53a3",
)  # fmt: skip
#: True classes: light colours of the same hues, in the same order.
CLASSES: Final = (
    "#96bef1", "#efb78d", "#9ad1a4", "#d7a8d9", "#84dcdc", "#e6d997", "#b0a8e4", "#c4db9e", "#d99a7e", "#f6b4d2",
    "#94dafd", "#74c0a6", "#ddbff9", "#d4b278", "#8ea1d9",
)  # fmt: skip
#: Peers, or their device classes if there are more peers than colours: deep colours.
PEERS: Final = (
    "#20487a", "#a26144", "#00421a", "#784a7b", "#8f8138", "#004a4a", "#685f9c", "#783a5a", "#3c5009", "#2b7ea1",
    "#473102", "#1f7a3d", "#9070ac", "#7d8f2a", "#2d2a6e",
)  # fmt: skip
#: Runs that are compared, the curves of a sweep.
SERIES: Final = (
    "#4e79a7", "#e8a33d", "#59a14f", "#b07aa1", "#76b7b2", "#edc948", "#9c755f", "#8cd17d", "#499894", "#d7b5d8",
    "#a0cbe8", "#b6992d", "#5b5ea6", "#c7a76c", "#2f6b4f",
)  # fmt: skip
#: Parts of a sum, the largest first, from dark to light.
SHADES: Final = (
    "#2f3f4f", "#3e4e5f", "#4e5e70", "#5e6f81", "#6e8092", "#7f91a4", "#91a3b6", "#a2b5c8", "#b4c7db", "#c7daee",
)  # fmt: skip

# Lighter colours for a dark page, where these would be too dark.
_DARK_PEERS: Final = (
    "#5276a6", "#d29478", "#3a6e46", "#a77aa9", "#bfb272", "#177b7b", "#9790ca", "#a76b87", "#697d44", "#69afd0",
    "#7a5a20", "#57ad70", "#c0a3db", "#a9bd55", "#7b79c9",
)  # fmt: skip
DARK: Final = {
    **dict(zip(PEERS, _DARK_PEERS, strict=True)),
    CURVE: "#9fb3cc", "#3f53a3": "#6f86dd", "#048265": "#1fa384", "#a44c1d": "#c4683a", "#765fca": "#8f7ae0",
    "#4e79a7": "#6f9fd0", "#59a14f": "#6cbd64", "#9c755f": "#b98d72", "#499894": "#5fb0a9", "#5b5ea6": "#8d90d8",
    "#2f6b4f": "#57a47f", "#b6992d": "#cdb34d",
}  # fmt: skip

#: The page's variable for each colour.
VARIABLES: Final = {
    INK: "ink", "#000000": "ink", "#ffffff": "paper", PAPER: "paper", LINK: "link", ALONE: "alone",
    WRONG: "wrong", GOOD: "good", CROWN: "crown", CURVE: "curve",
    **{
        colour: f"{letter}{number}"
        for letter, colours in (("k", CLUSTERS), ("t", CLASSES), ("p", PEERS), ("c", SERIES), ("h", SHADES))
        for number, colour in enumerate(colours)
    },
}  # fmt: skip


def cluster_colour(hue: int) -> str:
    """Return the colour of a cluster with this number of :func:`cluster_hues`; negative for none."""
    return ALONE if hue < 0 else CLUSTERS[hue % len(CLUSTERS)]


def series_colour(number: int) -> str:
    return SERIES[number % len(SERIES)]


def cluster_hues(alike: Sequence[int | None], n_classes: int = 0) -> list[int]:
    """Return the number of each cluster's colour: that of the class of most of its rows, which at most one cluster has.

    A cluster with None there gets a number that no other cluster has and, if possible, no class. Numbers repeat only if
    there are more clusters than colours.

    >>> cluster_hues([1, None, 0], n_classes=3)
    [1, 3, 0]
    >>> cluster_hues([14, None], n_classes=15)
    [14, 0]
    """
    # A class beyond the last colour shares its colour with another class: no cluster should have it.
    wanted = [hue if hue is not None and hue < len(CLUSTERS) else None for hue in alike]
    ordered = [*range(n_classes, len(CLUSTERS)), *range(min(n_classes, len(CLUSTERS)))]
    free = [hue for hue in ordered if hue not in wanted]
    more = iter([*free, *range(len(CLUSTERS), len(CLUSTERS) + len(alike))])
    return [next(more) if hue is None else hue for hue in wanted]


def own_colours(groups: Mapping[str, str]) -> bool:
    """Whether there are enough colours for each peer; otherwise a peer has the colour of its device class."""
    return len(groups) <= len(PEERS)


def share_classes(groups: Mapping[str, str]) -> bool:
    """Whether there are several device classes, and one with several devices: in a fleet from a file each is its own class.

    >>> share_classes({"a": "meter", "b": "meter", "c": "gateway"}), share_classes({"a": "a", "b": "b"})
    (True, False)
    """
    return 1 < len({*groups.values()}) < len(groups)


def device_colours(groups: Mapping[str, str]) -> dict[str, str]:
    """Return a colour for each device class, in order of appearance; `groups` has each peer's class.

    >>> list(device_colours({"m-1": "m", "g": "g", "m-2": "m"}))
    ['m', 'g']
    """
    return {group: PEERS[number % len(PEERS)] for number, group in enumerate(dict.fromkeys(groups.values()))}


def peer_colours(groups: Mapping[str, str]) -> dict[str, str]:
    """Return the colour of each peer in all pictures of a report.

    It depends only on the names and device classes of the fleet, so two runs of one scenario have the same colours.

    >>> colours = peer_colours({"m-2": "m", "m-1": "m", "g": "g"})
    >>> [PEERS.index(colours[name]) for name in ("m-1", "m-2", "g")]
    [0, 1, 2]
    """
    classes = device_colours(groups)
    if not own_colours(groups):
        return {name: classes[group] for name, group in groups.items()}
    place = {group: number for number, group in enumerate(classes)}
    ordered = sorted(groups, key=lambda name: (place[groups[name]], name))
    return dict(zip(ordered, PEERS, strict=False))


def ink_on(colour: str) -> str:
    """Return the colour of text that is readable on a colour: nearly black or nearly white.

    >>> ink_on(CLASSES[0]), ink_on(PEERS[0])
    ('#111111', '#fdfdfd')
    """
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#111111" if light > 0.18 else "#fdfdfd"
