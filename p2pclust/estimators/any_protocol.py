"""An estimator for every protocol that ends with centers, those of plug-ins included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from numpy.typing import ArrayLike

from p2pclust.errors import UsageError
from p2pclust.estimators.base import FederatedEstimator
from p2pclust.protocols.engine.base import ByColumns, Clustering
from p2pclust.protocols.engine.compose import clustering_class


@dataclass(eq=False, repr=False)
class _WithProtocol:
    """The first parameter, before those of every estimator."""

    protocol: str = "llf-cm"


@dataclass(eq=False, repr=False)
class FederatedClustering(FederatedEstimator, _WithProtocol):
    """A clustering by any protocol over peers that hold different rows: one of p2pclust's, or of an installed plug-in.

    All other parameters but `secure`, and all attributes, as for :class:`LosslessCMeans`.

    Parameters
    ----------
    protocol : str, default "llf-cm"
        Its id; see ``p2pclust protocols``. It has to end with centers.
    parameters : mapping of str to value, optional
        The protocol's own parameters, by name.
    init, tol, max_rounds
        By default the protocol's own.

    Examples
    --------
    >>> model = FederatedClustering("llf-cm", 2, init=[[0.0], [9.0]], parameters={"suppress_singletons": False})
    >>> model.fit([[[0.0], [1.0]], [[8.0], [9.0]]]).cluster_centers_.tolist()
    [[0.5], [8.5]]
    """

    _: KW_ONLY
    parameters: Mapping[str, Any] | None = None
    init: str | ArrayLike | None = None
    tol: float | None = None
    max_rounds: int | None = None
    participation: float = 1.0
    bounds: tuple[Sequence[float], Sequence[float]] | None = None

    def _options(self) -> dict[str, Any]:
        kind = clustering_class(self.protocol)
        if not issubclass(kind, Clustering) or issubclass(kind, ByColumns):
            raise UsageError(
                f"protocol = {self.protocol!r}: it does not end with the centers of rows: use its own class"
            )
        options = super()._options()
        return options | (options.pop("parameters") or {})
