"""A picture of fuzzy memberships."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from p2pclust.lab.plots.inline import Drawing
from p2pclust.lab.plots.palette import INK, PAPER, cluster_colour
from p2pclust.lab.plots.scatter import evenly

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]


def memberships_drawing(
    memberships: Floats, names: Sequence[str], hues: Sequence[int], *, on: Axes | None = None
) -> Drawing:
    """Draw the memberships of rows as stacked bars: by the cluster of the greatest membership, the surest row first.

    `memberships` has shape (n, C); `hues` are the numbers of the clusters' colours. Of many rows some are drawn, evenly.
    """
    n_rows, n_clusters = memberships.shape
    best, sure = memberships.argmax(axis=1), memberships.max(axis=1)
    order = np.lexsort((-sure, best))[evenly(n_rows)]
    shown, best = memberships[order], best[order]
    few = "" if len(order) == n_rows else f", {len(order)} of {n_rows} rows"
    drawing = Drawing.new(
        7.0, 3.2, f"the rows' memberships in {n_clusters} clusters{few}", "row, sorted", "membership", on=on
    )
    axes = drawing.axes
    # The same ends twice make each row a bar with straight sides.
    edges = np.repeat(np.arange(len(shown) + 1), 2)[1:-1]
    heights = np.repeat(shown, 2, axis=0).T
    bands = axes.stackplot(
        edges, heights, colors=[cluster_colour(hue) for hue in hues], labels=names, linewidth=0
    )  # fmt: skip
    for number, band in enumerate(bands):
        drawing.mark(band, tip=f"membership in cluster {names[number]}")
    ends = np.flatnonzero(np.diff(best)) + 1
    for end in ends.tolist():
        axes.axvline(end, color=PAPER, linewidth=2)
    for start, end in zip([0, *ends.tolist()], [*ends.tolist(), len(shown)], strict=True):
        if end - start > 0.02 * len(shown):
            name = names[int(best[start])]
            axes.text((start + end) / 2, 1.02, name, ha="center", va="bottom", fontsize=8, color=INK, clip_on=False)
    axes.set(xlim=(0, len(shown)), ylim=(0, 1))
    axes.set_title(axes.get_title(loc="left"), fontsize=10, color=INK, loc="left", pad=18)
    axes.legend(
        loc="center left", bbox_to_anchor=(1.0, 0.5), title="cluster", fontsize=8, title_fontsize=8, frameon=False
    )
    return drawing
