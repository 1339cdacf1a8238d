"""Show which rows and classes each peer holds, as a table and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from p2pclust.data.dataset import DataSet
from p2pclust.errors import DataError, UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")

_ANNOTATED = 400  # more cells than this have no room for a number


@dataclass(frozen=True, eq=False)
class Holdings:
    """How a data set is split by rows, or features.

    Attributes
    ----------
    columns : tuple of str
        The classes of a split by rows, the features of one by columns; empty if there are no labels.
    counts : ndarray of shape (n_peers, n_columns), int64
        The rows of each class at each peer; by columns, 1 where a peer holds a feature.
    sizes : ndarray of shape (n_peers,), int64
        The rows, or features, of each peer.
    """

    peers: tuple[str, ...]
    columns: tuple[str, ...]
    counts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    what: str = "rows"

    @property
    def held(self) -> NDArray[np.int64]:
        """How many classes each peer holds, shape (n_peers,)."""
        return np.asarray((self.counts > 0).sum(axis=1), dtype=np.int64)


def holdings(data: DataSet, peers: Sequence[str], shares: Sequence[NDArray[np.int64]], *, vertical: bool) -> Holdings:
    """Count the rows and classes of each peer; `shares` are row indices, or column indices of a `vertical` split.

    Examples
    --------
    >>> import numpy as np
    >>> data = DataSet("d", np.zeros((4, 1)), np.array([7, 7, 8, 8]))
    >>> found = holdings(data, ("a", "b"), (np.array([0]), np.array([1, 2, 3])), vertical=False)
    >>> found.columns, found.counts.tolist(), found.held.tolist()
    (('7', '8'), [[1, 0], [1, 2]], [1, 2])
    """
    sizes = np.array([len(share) for share in shares], dtype=np.int64)
    if vertical:
        counts = np.zeros((len(shares), data.n_features), dtype=np.int64)
        for peer, share in enumerate(shares):
            counts[peer, share] = 1
        return Holdings(tuple(peers), data.feature_names, counts, sizes, "features")
    if data.y is None:
        return Holdings(tuple(peers), (), np.zeros((len(shares), 0), dtype=np.int64), sizes)
    names, codes = np.unique(data.y, return_inverse=True)
    rows = [np.bincount(codes.reshape(-1)[share], minlength=len(names)) for share in shares]
    return Holdings(tuple(peers), tuple(str(name) for name in names), np.array(rows, dtype=np.int64), sizes)


def picture(
    held: Holdings, title: str, *, data: DataSet | None = None, shares: Sequence[NDArray[np.int64]] = ()
) -> Figure:
    """Draw the rows of each peer by class, and the sizes.

    If two features are split by rows, and `data` and `shares` are given, the rows are points in the colour of their peer.

    Raises
    ------
    UsageError
        If Matplotlib is not installed.
    """
    try:
        # Neither pyplot nor a window: nothing global is touched.
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UsageError("a picture needs Matplotlib: pip install 'p2pclust[plots]'") from error
    plane = data is not None and data.n_features == 2 and held.what == "rows"
    n_peers = len(held.peers)
    height = min(24.0, max(4.2 if plane else 3.2, 1.4 + 0.3 * n_peers))
    wide = min(16.0, max(3.0, 0.42 * len(held.columns))) if held.columns else 0.0
    widths = [*([wide] if wide else []), 2.4, *([height] if plane else [])]
    figure = Figure(figsize=(sum(widths) + 1.6, height), layout="constrained")
    axes = list(figure.subplots(1, len(widths), width_ratios=widths, squeeze=False)[0])
    figure.suptitle(title)
    if wide:
        _heat(axes[0], held)
    _sizes(axes[1 if wide else 0], held, labelled=not wide)
    if plane and data is not None:
        _points(axes[-1], held, data, shares)
    return figure


def save(figure: Figure, path: str | Path) -> None:
    """Write a picture; the suffix decides its format.

    Raises
    ------
    DataError
        If it cannot be written.
    """
    file = Path(path)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, dpi=130)
    except (OSError, ValueError) as error:
        raise DataError(f"{file}: cannot be written ({error})") from error


def _heat(axes: Axes, held: Holdings) -> None:
    counts = np.ma.masked_equal(held.counts, 0)  # nothing is white, however little something is
    largest = int(held.counts.max())
    axes.imshow(counts, aspect="auto", cmap="Blues", vmin=-0.35 * largest, vmax=largest)
    axes.set_yticks(range(len(held.peers)), held.peers)
    shown = [name if len(name) <= 14 else name[:13] + "…" for name in held.columns]
    step = max(1, len(shown) // 40)
    upright = max(map(len, shown)) > 3
    axes.set_xticks(range(0, len(shown), step), shown[::step], rotation=90 if upright else 0)
    axes.set_xlabel("feature" if held.what == "features" else "class")
    axes.set_xticks(np.arange(0.5, len(shown) - 1), minor=True)
    axes.set_yticks(np.arange(0.5, len(held.peers) - 1), minor=True)
    axes.grid(which="minor", color="0.85", linewidth=0.6)
    axes.tick_params(which="both", length=0)
    if held.what == "rows" and counts.size <= _ANNOTATED:
        for (peer, label), count in np.ndenumerate(held.counts):
            if count:
                color = "white" if count > 0.6 * largest else "black"
                axes.text(label, peer, str(count), ha="center", va="center", fontsize=7, color=color)


def _sizes(axes: Axes, held: Holdings, *, labelled: bool) -> None:
    places = np.arange(len(held.peers))
    axes.barh(places, held.sizes, color="#6b7f99", height=0.7)
    axes.set_ylim(len(held.peers) - 0.5, -0.5)
    axes.set_yticks(places, held.peers if labelled else [""] * len(held.peers))
    axes.set_xlim(0, 1.25 * float(held.sizes.max()))
    axes.set_xlabel(held.what)
    axes.spines[["top", "right"]].set_visible(False)
    if len(held.peers) <= 60:
        for place, size in zip(places, held.sizes, strict=True):
            axes.text(float(size), float(place), f" {size}", va="center", fontsize=7)


def _points(axes: Axes, held: Holdings, data: DataSet, shares: Sequence[NDArray[np.int64]]) -> None:
    from matplotlib import colormaps  # noqa: PLC0415 - as above

    palette = colormaps["tab10"] if len(held.peers) <= 10 else colormaps["turbo"]
    for peer, rows in enumerate(shares):
        color = palette(peer if len(held.peers) <= 10 else peer / (len(held.peers) - 1))
        axes.scatter(
            data.X[rows, 0], data.X[rows, 1], s=6, color=color, linewidths=0, alpha=0.8, label=held.peers[peer]
        )
    axes.set_xlabel(data.feature_names[0])
    axes.set_ylabel(data.feature_names[1])
    axes.set_aspect("equal", adjustable="datalim")
    if len(held.peers) <= 12:
        axes.legend(fontsize=7, markerscale=2, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
