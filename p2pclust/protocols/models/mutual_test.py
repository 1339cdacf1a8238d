"""FedCRef's test of two clusters, as published: does each one's model serve the other's rows as well as the own one?

Algorithm 1, lines 11 to 17, and Eq. 2 of the paper that :mod:`fedcref` names; docs/protocols/fedcref.md has the
departures. Both directions are needed for a link, and each is decided by the peer whose rows are concerned. So a peer sends
one bit for each of its clusters and each model of another peer: whether the cluster *passes* with the model. ``"joint"`` and
``"models"`` normalise by the models of all peers, so a peer with an absurd model can make others pass.

- Eq. 2 leaves open within what it normalises. ``"pair"``, the default, divides 0 by 0 where all differences are equal. If
  all are 0, the models do the same: the cluster passes. If they are not 0, as always with a single row, it does not.
- A model whose error on any of the rows is not finite never passes, and does not count in a normalisation over several
  models. A cluster with fewer than ``LEAST_ROWS`` rows passes with no model.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from p2pclust.clustering.points import Floats
from p2pclust.errors import UsageError, WireError
from p2pclust.protocols.engine import checks
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.privacy import LEAST_ROWS
from p2pclust.protocols.models.association import Association, Clusters

LINKS: Final = ("all", "one")
#: Within what Eq. 2 normalises a cluster's differences D = abs(own error - foreign error).
#:
#: - ``"pair"``: (D - min D) / (max D - min D), over this pair's differences
#: - ``"errors"``: D / the largest error of the two models on the cluster
#: - ``"range"``: both models' errors scaled together to [0, 1], then their difference
#: - ``"models"``: D / the largest error of all models on the cluster
#: - ``"joint"``: (D - min) / (max - min), over the differences of all foreign models
#: - ``"own"``: D / the range of the own model's errors
NORMALISATIONS: Final = ("pair", "errors", "range", "models", "joint", "own")


def percent(where: str, value: float) -> float:
    """Return a share in percent, above 0, or raise UsageError."""
    share = checks.real(where, value, above=0.0)
    if share > 100:
        raise UsageError(f"{where} = {share:g}: expected percent, at most 100")
    return share


def passes(
    errors: ArrayLike, own: int, foreign: ArrayLike, *, alpha: float = 75.0, theta: float = 0.2,
    normalisation: str = "pair",
) -> NDArray[np.bool_]:  # fmt: skip
    """Return with which models of others one cluster passes, shape (M,) (lines 12 and 13, and one half of line 14).

    `errors` (n, M) are those of the cluster's rows under each model; column `own` is the cluster's own model, M_iq, and
    `foreign` (M,) says which are other peers'. `alpha` is in percent of the rows, and `theta` the largest normalised
    difference that counts as small. Raises UsageError for a parameter out of its range.
    """
    alpha = percent("alpha", alpha)
    theta = checks.real("theta", theta, least=0.0)
    checks.one_of("normalisation", normalisation, NORMALISATIONS)
    table = np.asarray(errors, dtype=np.float64)
    n, M = table.shape
    result = np.zeros(M, dtype=np.bool_)
    sound: NDArray[np.bool_] = np.asarray(np.isfinite(table).all(axis=0))
    tested = np.flatnonzero(np.asarray(foreign, dtype=np.bool_) & sound)
    if n < LEAST_ROWS or not sound[own] or tested.size == 0:
        return result
    mine, others = table[:, own], table[:, tested]
    D = np.abs(others - mine[:, np.newaxis])
    # What becomes 0, and how far above it what becomes 1 lies, for each tested model.
    lowest: Floats = np.zeros(tested.size)
    match normalisation:
        case "pair":
            lowest = D.min(axis=0)
            span = D.max(axis=0) - lowest
        case "errors":
            span = np.maximum(others.max(axis=0), mine.max())
        case "range":
            span = np.maximum(others.max(axis=0), mine.max()) - np.minimum(others.min(axis=0), mine.min())
        case "models":
            span = np.full(tested.size, max(others.max(), mine.max()))
        case "joint":
            lowest, span = np.full(tested.size, D.min()), np.full(tested.size, D.max() - D.min())
        case _:
            span = np.full(tested.size, mine.max() - mine.min())
    # (D - lowest) / span <= theta, without dividing; where span is 0 there is nothing above lowest, or 0 / 0.
    near = (D - lowest <= theta * span).sum(axis=0)
    result[tested] = (100 * near >= alpha * n) & ((span > 0) | (D.max(axis=0) == 0))
    return result


def verdicts(
    clusters: Clusters, peer: int, errors: Iterable[ArrayLike], *, alpha: float = 75.0, theta: float = 0.2,
    normalisation: str = "pair",
) -> Arrays:  # fmt: skip
    """Return all that a peer reveals: ``passes`` (K, ceil(M / 8)), the bits of :func:`passes` of each of its clusters.

    `errors` are for each own cluster, in order, those of its rows under all models, in the order of `clusters`.
    """
    foreign = clusters.owners != peer
    bits = np.zeros((clusters.counts[peer], clusters.total), dtype=np.bool_)
    for row, own, table in zip(bits, clusters.of(peer), errors, strict=True):
        row[:] = passes(table, own, foreign, alpha=alpha, theta=theta, normalisation=normalisation)
    return Arrays(passes=np.packbits(bits, axis=1))


def read_verdicts(clusters: Clusters, peer: int, sent: Arrays) -> NDArray[np.bool_]:
    """Return the bits that a peer sent, shape (K, M); raise WireError if :func:`verdicts` cannot have made them."""
    shape = (clusters.counts[peer], -(-clusters.total // 8))
    if list(sent) != ["passes"] or sent["passes"].dtype != np.uint8 or sent["passes"].shape != shape:
        raise WireError(f"verdicts of peer {peer}: expected uint8 of shape {shape}")
    bits = np.unpackbits(sent["passes"], axis=1).astype(np.bool_)
    if bits[:, clusters.total :].any() or bits[:, list(clusters.of(peer))].any():
        raise WireError(f"verdicts of peer {peer}: a bit is set for what is not tested")
    return bits[:, : clusters.total]


def associate(
    clusters: Clusters, table: NDArray[np.uint8], answered: NDArray[np.bool_], links: str = "all"
) -> Association:
    """Link the clusters that pass in both directions (lines 14 to 18).

    Rows of the table (M, ceil(M / 8)) of peers that did not answer do not count: their clusters are set aside. With
    ``links = "one"``, as in the authors' code, a cluster has at most one link to each later peer: to its first cluster that
    passes.
    """
    present = np.repeat(answered, clusters.counts)
    bits = np.unpackbits(table, axis=1, count=clusters.total).astype(np.bool_) & present[:, np.newaxis]
    both = bits & bits.T & clusters.apart()
    for peer in range(len(clusters.counts)) if links == "one" else ():
        own = clusters.of(peer)
        of_earlier = both[: own.start, own.start : own.stop]
        of_earlier &= np.cumsum(of_earlier, axis=1) == 1
    return Association(clusters, np.argwhere(np.triu(both, 1)), np.flatnonzero(~present).tolist())
