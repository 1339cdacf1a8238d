"""From a protocol's id to its class, imported when it is needed."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from p2pclust.errors import UsageError
from p2pclust.protocols.engine.base import Protocol
from p2pclust.tools.spelling import did_you_mean

__all__ = ["CLUSTERING", "EVALUATING", "build", "known", "main_stage", "nearest_protocol", "protocol_class"]

_CLASSES = {
    "llf-cm": ("p2pclust.protocols.centers.llf_cm", "LosslessCMeansProtocol"),
    "llf-fcm": ("p2pclust.protocols.centers.llf_fcm", "LosslessFuzzyCMeansProtocol"),
    "ffcm": ("p2pclust.protocols.centers.ffcm", "FFCMProtocol"),
    "c2f-fcm": ("p2pclust.protocols.centers.c2f_fcm", "ClusteredFuzzyCMeansProtocol"),
    "gdf-fcm": ("p2pclust.protocols.centers.gdf_fcm", "GradientFuzzyCMeansProtocol"),
    "fkm": ("p2pclust.protocols.centers.fkm", "FederatedKMeansProtocol"),
    "k-fed": ("p2pclust.protocols.centers.k_fed", "KFedProtocol"),
    "stream-fcm": ("p2pclust.protocols.centers.stream", "StreamFuzzyCMeansProtocol"),
    "warm": ("p2pclust.protocols.centers.stream", "Warm"),
    "fedavg": ("p2pclust.protocols.models.fedavg", "FedAvgProtocol"),
    "model-average": ("p2pclust.protocols.gossip.model_average", "ModelAverageProtocol"),
    "fedcref": ("p2pclust.protocols.models.fedcref", "FedCRefProtocol"),
    "uifca": ("p2pclust.protocols.models.uifca", "UIFCAProtocol"),
    "fedcref-perfect": ("p2pclust.protocols.models.perfect", "PerfectAssociations"),
    "range": ("p2pclust.protocols.before.scaling", "Range"),
    "none": ("p2pclust.protocols.before.scaling", "NoScaling"),
    "minmax": ("p2pclust.protocols.before.scaling", "MinMaxScaling"),
    "zscore": ("p2pclust.protocols.before.scaling", "ZScoreScaling"),
    "careful": ("p2pclust.protocols.before.careful", "CarefulSeeding"),
    "seeding": ("p2pclust.protocols.before.seeding", "Seeding"),
    "shared-k-means++": ("p2pclust.protocols.before.shared_seeding", "SharedSeeding"),
    "split-merge": ("p2pclust.protocols.before.split_merge", "SplitMerge"),
    "objective": ("p2pclust.protocols.measuring.objective", "Objective"),
    "measure": ("p2pclust.protocols.measuring.measure", "Measure"),
    "align": ("p2pclust.protocols.columns.vertical_stages", "Align"),
    "vertical-seeding": ("p2pclust.protocols.columns.vertical_stages", "VerticalSeeding"),
    "vertical-cm": ("p2pclust.protocols.columns.vertical", "VerticalCMeansProtocol"),
    "vertical-fcm": ("p2pclust.protocols.columns.vertical", "VerticalFuzzyCMeansProtocol"),
}

CLUSTERING: Mapping[str, str] = {
    "llf-cm": "lossless c-means (k-means) over peers with different rows",
    "llf-fcm": "lossless fuzzy c-means over peers with different rows",
    "ffcm": "fuzzy c-means by averaging or clustering the centers that each peer finds",
    "c2f-fcm": "fuzzy c-means at each peer, k-means of the centers found, from careful seeding",
    "gdf-fcm": "fuzzy c-means by gradient descent: one step on all peers' gradients per round",
    "fkm": "k-means of the means that each peer finds, for peers with different clusters",
    "k-fed": "k-means of the means that each peer finds, in one round",
    "fedcref": "an autoencoder per cluster; peers find out which of their clusters are the same, and train together",
    "uifca": "one normalizing flow per cluster, trained over all peers; each row belongs to the likeliest",
    "stream-fcm": "fuzzy c-means of rows that keep coming, batch after batch, with forgetting and a report of drift",
    "vertical-cm": "lossless c-means (k-means) over peers with different columns of the same rows",
    "vertical-fcm": "lossless fuzzy c-means over peers with different columns of the same rows",
}
"""The protocols that a person asks for, and one line about each; the others are stages around them."""


EVALUATING = ("measure", "objective")
"""The stages that only evaluate what the stages before them made."""


def main_stage(protocols: Sequence[str]) -> int:
    """Return the number of the stage that a person asked for: the last one but for those that only evaluate it.

    Parameters
    ----------
    protocols : sequence of str
        The ids of a job's stages, at least one.

    Examples
    --------
    >>> main_stage(["range", "none", "split-merge", "llf-cm", "objective"])
    3
    """
    return max(number for number, name in enumerate(protocols) if number == 0 or name not in EVALUATING)


def known() -> tuple[str, ...]:
    """Return the ids of all stages."""
    return tuple(_CLASSES)


#: What an algorithm is called elsewhere, of which a protocol here finds the same centers.
_ELSEWHERE = {
    **dict.fromkeys(("kmeans", "k-means", "k-means++", "kmeans++", "lloyd", "cmeans", "c-means", "hcm"), "llf-cm"),
    **dict.fromkeys(("fcm", "fuzzy", "fuzzy-c-means", "fuzzy-cmeans", "fuzzy-k-means", "fuzzy-kmeans"), "llf-fcm"),
}


def nearest_protocol(name: str, ids: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the id that was meant by an unknown one, or an empty string; ids of algorithms elsewhere are known too.

    Examples
    --------
    >>> nearest_protocol("kmeans", CLUSTERING), nearest_protocol("fcm", CLUSTERING), nearest_protocol("dbscan", CLUSTERING)
    ('llf-cm', 'llf-fcm', '')
    """
    known = list(ids)
    elsewhere = _ELSEWHERE.get(name.lower().replace("_", "-").replace(" ", "-"), "")
    if elsewhere in known:
        return elsewhere
    near = difflib.get_close_matches(name, known, n=1, cutoff=cutoff)
    return near[0] if near else ""


def protocol_class(protocol: object, *, among: Mapping[str, object] | None = None) -> type[Protocol]:
    """Return the class of a protocol.

    Parameters
    ----------
    protocol : str
    among : mapping, optional
        The ids that are acceptable here, for example :data:`CLUSTERING`; default all.

    Raises
    ------
    UsageError
        For an unknown id; the nearest known one is named.

    Examples
    --------
    >>> protocol_class("llf-fcn")
    Traceback (most recent call last):
    p2pclust.errors.UsageError: unknown protocol 'llf-fcn' (did you mean 'llf-fcm'?)
    """
    ids = _CLASSES if among is None else among
    if not isinstance(protocol, str) or protocol not in ids:
        shown = str(protocol)[:60]
        near = nearest_protocol(shown, ids)
        hint = f"did you mean {near!r}?" if near else f"known: {', '.join(ids)}"
        raise UsageError(f"unknown protocol {shown!r} ({hint})")
    module, name = _CLASSES[protocol]
    found: type[Protocol] = getattr(importlib.import_module(module), name)
    return found


def build(protocol: object, parameters: Mapping[str, Any]) -> Protocol:
    """Return a protocol with these parameters, checked.

    Raises
    ------
    UsageError
        For an unknown or missing parameter, or a value out of range.

    Examples
    --------
    >>> build("llf-fcm", {"n_clusters": 3, "fuzzifer": 2.0})
    Traceback (most recent call last):
    p2pclust.errors.UsageError: llf-fcm: unknown parameter 'fuzzifer' (did you mean 'fuzzifier'?)
    """
    kind = protocol_class(protocol)
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    names = [field.name for field in fields]
    for name in parameters:
        if name not in names:
            shown = str(name)[:60]
            hint = did_you_mean(shown, names, f" (it has {', '.join(names) or 'none'})")
            raise UsageError(f"{kind.id}: unknown parameter {shown!r}{hint}")
    for field in fields:
        if field.name not in parameters and field.default is dataclasses.MISSING:
            raise UsageError(f"{kind.id}: parameter {field.name!r} is missing")
    return kind(**parameters)
