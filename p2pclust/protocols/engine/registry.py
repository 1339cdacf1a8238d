"""From a protocol's id to its class, imported when it is needed: one of p2pclust's own, or of a plug-in."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from p2pclust.errors import UsageError
from p2pclust.protocols.engine.base import Protocol
from p2pclust.tools.spelling import did_you_mean

_CLASSES = {
    "llf-cm": ("p2pclust.protocols.centers.llf_cm", "LosslessCMeansProtocol"),
    "llf-fcm": ("p2pclust.protocols.centers.llf_fcm", "LosslessFuzzyCMeansProtocol"),
    "ffcm": ("p2pclust.protocols.centers.ffcm", "FFCMProtocol"),
    "c2f-fcm": ("p2pclust.protocols.centers.ffcm", "ClusteredFuzzyCMeansProtocol"),
    "gdf-fcm": ("p2pclust.protocols.centers.gdf_fcm", "GradientFuzzyCMeansProtocol"),
    "fkm": ("p2pclust.protocols.centers.fkm", "FederatedKMeansProtocol"),
    "k-fed": ("p2pclust.protocols.centers.k_fed", "KFedProtocol"),
    "stream-fcm": ("p2pclust.protocols.centers.stream", "StreamFuzzyCMeansProtocol"),
    "warm": ("p2pclust.protocols.centers.stream", "Warm"),
    "fedavg": ("p2pclust.protocols.models.fedavg", "FedAvgProtocol"),
    "model-average": ("p2pclust.protocols.models.fedavg", "ModelAverageProtocol"),
    "fedcref": ("p2pclust.protocols.models.fedcref", "FedCRefProtocol"),
    "uifca": ("p2pclust.protocols.models.uifca", "UIFCAProtocol"),
    "fedcref-perfect": ("p2pclust.protocols.models.perfect", "PerfectAssociations"),
    "range": ("p2pclust.protocols.before.scaling", "Range"),
    "enough-rows": ("p2pclust.protocols.before.by_sums", "EnoughRows"),
    "range-by-sums": ("p2pclust.protocols.before.by_sums", "RangeBySums"),
    "none": ("p2pclust.protocols.before.scaling", "NoScaling"),
    "minmax": ("p2pclust.protocols.before.scaling", "MinMaxScaling"),
    "zscore": ("p2pclust.protocols.before.scaling", "ZScoreScaling"),
    "careful": ("p2pclust.protocols.before.seeding", "CarefulSeeding"),
    "seeding": ("p2pclust.protocols.before.seeding", "Seeding"),
    "shared-k-means++": ("p2pclust.protocols.before.seeding", "SharedSeeding"),
    "split-merge": ("p2pclust.protocols.before.split_merge", "SplitMerge"),
    "objective": ("p2pclust.protocols.measuring.objective", "Objective"),
    "measure": ("p2pclust.protocols.measuring.measure", "Measure"),
    "align": ("p2pclust.protocols.columns.vertical_stages", "Align"),
    "vertical-seeding": ("p2pclust.protocols.columns.vertical_stages", "VerticalSeeding"),
    "private-cm": ("p2pclust.protocols.private.private_cm", "PrivateCMeansProtocol"),
    "vertical-cm": ("p2pclust.protocols.columns.vertical", "VerticalCMeansProtocol"),
    "vertical-fcm": ("p2pclust.protocols.columns.vertical", "VerticalFuzzyCMeansProtocol"),
    "align-by-sums": ("p2pclust.protocols.columns.vertical_sums", "AlignBySums"),
    "vertical-seeding-by-sums": ("p2pclust.protocols.columns.vertical_sums", "VerticalSeedingBySums"),
    "vertical-cm-by-sums": ("p2pclust.protocols.columns.vertical_sums", "VerticalCMeansBySums"),
    "vertical-fcm-by-sums": ("p2pclust.protocols.columns.vertical_sums", "VerticalFuzzyCMeansBySums"),
}

#: The protocols of p2pclust that a person asks for; the others are stages around them.
CLUSTERING = (
    "llf-cm", "llf-fcm", "ffcm", "c2f-fcm", "gdf-fcm", "fkm", "k-fed", "fedcref", "uifca", "stream-fcm", "vertical-cm",
    "vertical-fcm",
)  # fmt: skip


_ASKED_AS = {
    "private-cm": "llf-cm", "vertical-cm-by-sums": "vertical-cm", "vertical-fcm-by-sums": "vertical-fcm",
    "fedavg": "fedcref",
}  # fmt: skip


def asked_as(protocol: str) -> str:
    """Return the id by which a person asked for a protocol: a job with secure sums may have another one in its place.

    >>> asked_as("vertical-cm-by-sums"), asked_as("llf-cm")
    ('vertical-cm', 'llf-cm')
    """
    return _ASKED_AS.get(protocol, protocol)


def clusterings() -> tuple[str, ...]:
    """Return the ids of the protocols that a person can ask for here, plug-ins included."""
    from p2pclust.protocols.engine.plugins import plugins  # noqa: PLC0415 - reads the metadata of all packages

    return (*CLUSTERING, *(name for name in sorted(plugins()) if name not in _CLASSES))


def package_of(protocol: object) -> str:
    """Return the name and version of the package that brings a protocol; empty for p2pclust's own, and if unknown."""
    if protocol in _CLASSES:
        return ""
    from p2pclust.protocols.engine.plugins import plugins  # noqa: PLC0415

    plugin = plugins().get(str(protocol))
    return "" if plugin is None else plugin.package


EVALUATING = ("measure", "objective")  # the stages that only evaluate what the stages before them made


def main_stage(protocols: Sequence[str]) -> int:
    """Return the number of the stage that a person asked for: the last one but for those that only evaluate it.

    >>> main_stage(["range", "none", "split-merge", "llf-cm", "objective"])
    3
    """
    return max(number for number, name in enumerate(protocols) if number == 0 or name not in EVALUATING)


def known() -> tuple[str, ...]:
    """Return the ids of p2pclust's own stages."""
    return tuple(_CLASSES)


#: What an algorithm is called elsewhere, of which a protocol here finds the same centers.
_ELSEWHERE = {
    **dict.fromkeys(("kmeans", "k-means", "k-means++", "kmeans++", "lloyd", "cmeans", "c-means", "hcm"), "llf-cm"),
    **dict.fromkeys(("fcm", "fuzzy", "fuzzy-c-means", "fuzzy-cmeans", "fuzzy-k-means", "fuzzy-kmeans"), "llf-fcm"),
}


def nearest_protocol(name: str, ids: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the id that was meant by an unknown one, or an empty string; ids of algorithms elsewhere are known too.

    >>> nearest_protocol("kmeans", CLUSTERING), nearest_protocol("fcm", CLUSTERING), nearest_protocol("dbscan", CLUSTERING)
    ('llf-cm', 'llf-fcm', '')
    """
    known = list(ids)
    elsewhere = _ELSEWHERE.get(name.lower().replace("_", "-").replace(" ", "-"), "")
    if elsewhere in known:
        return elsewhere
    near = difflib.get_close_matches(name, known, n=1, cutoff=cutoff)
    return near[0] if near else ""


def protocol_class(protocol: object, *, among: Sequence[str] | None = None) -> type[Protocol]:
    """Return the class of a protocol: a plug-in, or one of p2pclust's own ids `among` those; by default any.

    Raise UsageError for an unknown id, with the nearest known one, and for a plug-in that cannot be used.

    >>> protocol_class("llf-fcn")
    Traceback (most recent call last):
    p2pclust.errors.UsageError: unknown protocol 'llf-fcn' (did you mean 'llf-fcm'?)
    """
    ids: Iterable[str] = _CLASSES if among is None else among
    if not isinstance(protocol, str) or protocol not in ids:
        from p2pclust.protocols.engine.plugins import plugins  # noqa: PLC0415

        if protocol not in _CLASSES and str(protocol) in plugins():
            return plugins()[str(protocol)].load()
        shown, ids = str(protocol)[:60], [*ids, *plugins()]
        near = nearest_protocol(shown, ids)
        hint = f"did you mean {near!r}?" if near else f"known: {', '.join(ids)}"
        raise UsageError(f"unknown protocol {shown!r} ({hint})")
    module, name = _CLASSES[protocol]
    found: type[Protocol] = getattr(importlib.import_module(module), name)
    return found


def parameters_of(kind: type[Protocol]) -> dict[str, Any]:
    """Return the parameters of a protocol with their defaults; ``dataclasses.MISSING`` for one that must be given."""
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    made = dataclasses.MISSING
    return {one.name: one.default if one.default_factory is made else one.default_factory() for one in fields}


def build(protocol: object, parameters: Mapping[str, Any], package: str = "") -> Protocol:
    """Return a protocol with the parameters of a job document, checked.

    Of a plug-in, `package` is the name and version of the package that brings it, which must be installed here. Raise
    UsageError for an unknown or missing parameter, a value of another type or out of range, and a package that is not
    here.

    >>> build("llf-fcm", {"n_clusters": 3, "fuzzifer": 2.0})
    Traceback (most recent call last):
    p2pclust.errors.UsageError: llf-fcm: unknown parameter 'fuzzifer' (did you mean 'fuzzifier'?)
    """
    if package:
        from p2pclust.protocols.engine.plugins import built, not_here  # noqa: PLC0415

        if protocol in _CLASSES:
            raise UsageError(f"{protocol} is a protocol of p2pclust's own, not of {package}")
        if flaw := not_here(str(protocol), package):
            raise UsageError(flaw)
    kind = protocol_class(protocol)
    defaults = parameters_of(kind)
    for name in parameters:
        if name not in defaults:
            shown = str(name)[:60]
            hint = did_you_mean(shown, list(defaults), f" (it has {', '.join(defaults) or 'none'})")
            raise UsageError(f"{kind.id}: unknown parameter {shown!r}{hint}")
    for name, default in defaults.items():
        if name not in parameters and default is dataclasses.MISSING:
            raise UsageError(f"{kind.id}: parameter {name!r} is missing")
    return built(kind, parameters) if package else kind(**parameters)
