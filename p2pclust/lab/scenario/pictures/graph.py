"""A picture of the association graph."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from p2pclust.lab.plots.canvas import dot_key, line_key
from p2pclust.lab.plots.inline import Drawing
from p2pclust.lab.plots.palette import INK, LINK, WRONG, cluster_colour, ink_on
from p2pclust.lab.scenario.pictures.layout import Placement, lay_out

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from p2pclust.protocols.models.association import Association


def community_names(n_groups: int, gone: Sequence[int] = ()) -> list[str]:
    """Return the names of communities in pictures, A, B, ..., Z, A2, B2, ...: the dropped ones have the last names.

    Examples
    --------
    >>> community_names(28)[-3:], community_names(4, gone=[1])
    (['Z', 'A2', 'B2'], ['A', 'D', 'B', 'C'])
    """
    letters = [chr(ord("A") + n % 26) + (str(n // 26 + 1) if n >= 26 else "") for n in range(n_groups)]
    order = sorted(range(n_groups), key=lambda group: (group in gone, group))
    called = dict(zip(order, letters, strict=True))
    return [called[group] for group in range(n_groups)]


def association_drawing(
    association: Association, classes: Sequence[Any] | None = None, *, peers: Sequence[str] | None = None,
    gone: Sequence[int] = (), hues: Sequence[int] | None = None,
) -> Drawing:  # fmt: skip
    """Draw an association graph of M clusters: communities apart and in colours, isolated clusters below them.

    `classes` has the true class of most rows of each cluster, length M; None if unknown. Links between clusters of different
    classes are then red, and clusters of another class than their community have a red edge. `peers` has the text in each
    peer's clusters, at most three letters, by default its index in the job roster. `gone` are communities that were dropped
    later because no row belongs to them. `hues` has the number of each community's colour, by default its index.
    """
    layout = lay_out(association)
    left, right, bottom, top = layout.page
    drawing = Drawing.new(11, 11 * (top - bottom) / (right - left) + 1.0)
    axes = drawing.axes
    known = list(classes) if classes is not None else [None] * association.clusters.total
    main = [_mode([known[m] for m in members]) for members in association.groups]
    _draw_links(axes, association, known, layout)
    _draw_nodes(axes, association, known, main, layout, peers, hues or range(len(main)))
    names = community_names(len(main), gone)
    for number, (members, kind) in enumerate(zip(association.groups, main, strict=True)):
        text = f"{names[number]}: {len(members)} clusters"
        text += "\ndropped later" if number in gone else ""
        text += _of_class(kind, [known[m] for m in members])
        x, y = layout.captions[number]
        axes.text(x, y, text, ha="center", va="bottom", fontsize=9, color=INK, linespacing=1.1)
    axes.set(xlim=(left, right), ylim=(bottom, top), aspect="equal")
    axes.axis("off")
    axes.set_title(_headline(association, known, len(gone)), fontsize=12)
    _legend(drawing, known)
    return drawing


def _mode(kinds: Sequence[Any]) -> Any:
    """Return the most frequent known class, the first of equally frequent ones; None if no class is known."""
    counts = Counter(kind for kind in kinds if kind is not None)
    return counts.most_common(1)[0][0] if counts else None


def _of_class(kind: Any, kinds: Sequence[Any]) -> str:
    """Return the known classes of a community's clusters in words."""
    known = [other for other in kinds if other is not None]
    same = sum(other == kind for other in known)
    if not known:
        return ""
    if same < len(known):
        return f"\n{same} of class {kind}, {len(known) - same} not"
    return (
        f"\nall of class {kind}" if len(known) == len(kinds) else f"\nclass {kind}, {len(kinds) - len(known)} unknown"
    )


def _headline(association: Association, known: Sequence[Any], n_gone: int) -> str:
    groups, alone = association.groups, association.isolated
    left = f" ({len(groups) - n_gone} left in the end)" if n_gone else ""
    text = f"{len(groups)} communities{left} of {sum(map(len, groups))} clusters, {len(alone)} isolated; "
    if not groups:
        return f"no community: {len(alone)} clusters, all isolated"
    text += f"{len(association.links)} links"
    pairs = [(known[a], known[b]) for a, b in association.links.tolist()]
    pairs = [pair for pair in pairs if None not in pair]
    if pairs:
        wrong = sum(a != b for a, b in pairs)
        text += f", {wrong} of them wrong ({100 * wrong / len(pairs):.1f} %)" if wrong else ", none of them wrong"
    return text


def _draw_links(axes: Axes, association: Association, known: Sequence[Any], layout: Placement) -> None:
    from matplotlib.collections import LineCollection  # noqa: PLC0415

    right: list[Any] = []
    wrong: list[Any] = []
    for a, b in association.links.tolist():
        different = known[a] is not None and known[b] is not None and known[a] != known[b]
        (wrong if different else right).append((layout.places[a], layout.places[b]))
    # The many links of a large community must not look darker than the few of a small one.
    faint = float(np.clip(6.0 / math.sqrt(max(1, len(right))), 0.25, 0.8))
    axes.add_collection(LineCollection(right, colors=LINK, linewidths=0.8, alpha=faint, zorder=1))
    axes.add_collection(LineCollection(wrong, colors=WRONG, linewidths=1.6, alpha=max(faint, 0.7), zorder=2))


def _draw_nodes(
    axes: Axes, association: Association, known: Sequence[Any], main: Sequence[Any], layout: Placement,
    peers: Sequence[str] | None, hues: Sequence[int],
) -> None:  # fmt: skip
    from matplotlib.patches import Circle  # noqa: PLC0415

    owners = association.clusters.owners.tolist()
    # As large as fits into a node, on a page of 11 inches.
    font = float(np.clip(layout.node * 11 * 72 / (layout.page[1] - layout.page[0]), 3.0, 9.0))
    for node, (peer, group) in enumerate(zip(owners, association.group_of.tolist(), strict=True)):
        kind = main[group] if group >= 0 else None
        stranger = kind is not None and known[node] is not None and known[node] != kind
        colour = cluster_colour(-1 if group < 0 else hues[group])
        edge, width = (WRONG, 2.2) if stranger else ("white", 0.8)
        x, y = layout.places[node]
        axes.add_patch(Circle((x, y), layout.node, facecolor=colour, edgecolor=edge, linewidth=width, zorder=3))
        text = str(peer) if peers is None else peers[peer]
        axes.text(x, y, text, ha="center", va="center", fontsize=font, color=ink_on(colour), zorder=4)


def _legend(drawing: Drawing, known: Sequence[Any]) -> None:
    keys = [
        dot_key("a cluster of one peer; the number is the peer", "white", markeredgecolor="#555555"),
        line_key("associated: same colour, one community", color=LINK, linewidth=1.2),
        dot_key("isolated: associated with none", cluster_colour(-1), markeredgecolor="white"),
    ]
    if any(kind is not None for kind in known):
        keys.append(line_key("wrong: most rows are of different classes", color=WRONG, linewidth=1.2))
        keys.append(dot_key("not of the class of its community", "white", markeredgecolor=WRONG))
    drawing.legend(keys)
