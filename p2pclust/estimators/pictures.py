"""The pictures that every estimator can draw of what it found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from p2pclust.tools.distribution import laboratory

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Pictures:
    """Pictures of a fitted estimator, in the given Axes or a new figure; they need matplotlib, from the extra ``plots``.

    Rows have the columns of the fit.
    """

    def plot_centers(self, X: ArrayLike | None = None, *, ax: Axes | None = None) -> Axes:
        """Draw the centers, and rows X (n, F) in the colours of their clusters, of more than 2400 rows so many, evenly.

        More than two columns are projected on their two principal axes: of the rows, or without rows of the centers. If the
        estimator scaled the data, each column is divided by its range first.

        Examples
        --------
        >>> import numpy as np
        >>> from p2pclust import LosslessCMeans
        >>> peers = [np.array([[0.0, 1.0], [1.0, 0.0], [8.0, 9.0]]), np.array([[9.0, 8.0], [0.0, 0.0], [9.0, 9.0]])]
        >>> model = LosslessCMeans(n_clusters=2, random_state=0).fit(peers)
        >>> ax = model.plot_centers(np.concatenate(peers))
        >>> ax.get_xlabel(), [text.get_text() for text in ax.texts]
        ('column 0', ['0', '1'])
        """
        return cast("Axes", _pictures(self).centers(self, X, ax))

    def plot_memberships(self, X: ArrayLike, *, ax: Axes | None = None) -> Axes:
        """Draw the fuzzy memberships of rows as stacked bars, sorted by cluster and within one from sure to unsure.

        `X` has the shape (n, F); of more than 2400 rows so many are drawn, evenly.

        Examples
        --------
        >>> from p2pclust import LosslessFuzzyCMeans
        >>> peers = [[[0.0], [0.2], [9.0], [9.2], [0.1]], [[0.1], [0.3], [9.1], [9.3], [9.2]]]
        >>> model = LosslessFuzzyCMeans(n_clusters=2, init=[[0.0], [9.0]]).fit(peers)
        >>> ax = model.plot_memberships([[0.1], [9.0], [4.0]])
        >>> [text.get_text() for text in ax.texts], len(ax.collections)
        (['0', '1'], 2)
        """
        return cast("Axes", _pictures(self).memberships(self, X, ax))

    def plot_convergence(self, X: ArrayLike | None = None, *, ax: Axes | None = None) -> Axes:
        """Draw how far the centers moved in each round, and the objective.

        Where a fleet ran the job, lines show the rounds in which another peer became the aggregator. The axis counts all
        rounds of the job, those for scaling and for first centers among them.

        With rows X (n, F) the objective over these is drawn too, for the centers at the start of each round, with its scale
        at the right; it takes a fit in this process.

        Examples
        --------
        >>> from p2pclust import LosslessCMeans
        >>> model = LosslessCMeans(n_clusters=2, init=[[0.0], [9.0]]).fit([[[0.0], [1.0], [8.0], [9.0]]])
        >>> ax = model.plot_convergence()
        >>> ax.lines[0].get_ydata().round(2).tolist()
        [0.71]
        """
        return cast("Axes", _pictures(self).convergence(self, X, ax))

    def plot_overlay(self, *, ax: Axes | None = None) -> Axes:
        """Draw the fleet that ran the last fit: its links, the peers that aggregated, and those that failed.

        Examples
        --------
        >>> from p2pclust import LosslessCMeans
        >>> peers = [[[0.0], [1.0], [0.5]], [[8.0], [9.0], [8.5]], [[0.5], [8.5], [9.0]]]
        >>> model = LosslessCMeans(n_clusters=2, init=[[0.0], [9.0]], fleet="simulated").fit(peers)
        >>> ax = model.plot_overlay()
        >>> sorted(text.get_text() for text in ax.texts)
        ['peer-0', 'peer-1', 'peer-2\\nterm 1']
        """
        return cast("Axes", _pictures(self).overlay(self, ax))


def _pictures(estimator: Pictures) -> Any:
    check_is_fitted(estimator)
    return laboratory("pictures.estimators", "a picture of an estimator")
