"""From a protocol's id to its class, imported when it is needed: one of p2pclust's own, or of a plug-in.

Another package brings a protocol by an entry point in the group ``p2pclust.protocols``: the protocol's id, and its class
as ``module:Class``. Job documents name that package with its version.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import math
import sys
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, Literal, Union, get_args, get_origin

from p2pclust.errors import UsageError
from p2pclust.protocols.engine.base import Labelling, Protocol
from p2pclust.tools.spelling import did_you_mean

if TYPE_CHECKING:
    import importlib.metadata

_CLASSES = {
    "llf-cm": ("p2pclust.protocols.centers.llf_cm", "LosslessCMeansProtocol"),
    "llf-fcm": ("p2pclust.protocols.centers.llf_fcm", "LosslessFuzzyCMeansProtocol"),
    "k-prototypes": ("p2pclust.protocols.centers.k_prototypes", "KPrototypesProtocol"),
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
    "category-weights": ("p2pclust.protocols.before.weights", "CategoryWeights"),
    "careful": ("p2pclust.protocols.before.seeding", "CarefulSeeding"),
    "seeding": ("p2pclust.protocols.before.seeding", "Seeding"),
    "shared-k-means++": ("p2pclust.protocols.before.seeding", "SharedSeeding"),
    "split-merge": ("p2pclust.protocols.before.split_merge", "SplitMerge"),
    "mixture": ("p2pclust.protocols.centers.mixture", "MixtureProtocol"),
    "objective": ("p2pclust.protocols.measuring.objective", "Objective"),
    "likelihood": ("p2pclust.protocols.measuring.likelihood", "Likelihood"),
    "measure": ("p2pclust.protocols.measuring.measure", "Measure"),
    "columns": ("p2pclust.protocols.before.columns", "AgreedColumns"),
    "quantile": ("p2pclust.protocols.measuring.quantile", "Quantile"),
    "describe": ("p2pclust.protocols.measuring.describe", "Describe"),
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
    "llf-cm", "llf-fcm", "k-prototypes", "mixture", "ffcm", "c2f-fcm", "gdf-fcm", "fkm", "k-fed", "fedcref", "uifca",
    "stream-fcm", "vertical-cm", "vertical-fcm", "describe",
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
    return (*CLUSTERING, *(name for name in sorted(plugins()) if name not in _CLASSES))


def package_of(protocol: object) -> str:
    """Return the name and version of the package that brings a protocol; empty for p2pclust's own, and if unknown."""
    if protocol in _CLASSES:
        return ""
    plugin = plugins().get(str(protocol))
    return "" if plugin is None else plugin.package


EVALUATING = ("likelihood", "measure", "objective")  # the stages that only evaluate what the stages before them made


def main_stage(protocols: Sequence[str]) -> int:
    """Return the number of the stage that a person asked for: the last one but for those that only evaluate it.

    >>> main_stage(["range", "none", "split-merge", "llf-cm", "objective"])
    3
    """
    return max(number for number, name in enumerate(protocols) if number == 0 or name not in EVALUATING)


def known() -> tuple[str, ...]:
    return tuple(_CLASSES)


#: What an algorithm is called elsewhere, of which a protocol here finds the same centers.
_ELSEWHERE = {
    **dict.fromkeys(("kmeans", "k-means", "k-means++", "kmeans++", "lloyd", "cmeans", "c-means", "hcm"), "llf-cm"),
    **dict.fromkeys(("kmodes", "k-modes", "kprototypes"), "k-prototypes"),
    **dict.fromkeys(("gmm", "gaussian-mixture", "em", "gaussianmixture", "mixtures"), "mixture"),
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
    """
    ids: Iterable[str] = _CLASSES if among is None else among
    if not isinstance(protocol, str) or protocol not in ids:
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
    """
    if package:
        if protocol in _CLASSES:
            raise UsageError(f"{protocol} is a protocol of p2pclust's own, not of {package}")
        here = plugins().get(str(protocol))
        if here is None or here.package != package:
            name, _, version = package.rpartition(" ")
            missing = "is not installed here" if here is None else f"is not what is installed here ({here.package})"
            raise UsageError(f"{protocol} needs {package}, which {missing}: pip install '{name}=={version}'")
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
    if not package:
        return kind(**parameters)
    # The author of a plug-in may have checked nothing.
    assert issubclass(kind, Labelling)
    types = parameter_types(kind)
    for name, value in parameters.items():
        if problem := problem_with_value(types[name], value):
            raise UsageError(f"{kind.id}: {name} = {value!r}: {problem}")
    try:
        return kind(**parameters)
    except (ValueError, TypeError) as error:
        raise UsageError(f"{kind.id}: {error}") from error


@dataclass(frozen=True)
class Plugin:
    """An entry point: the protocol's id, its class, and the package that brings it."""

    id: str
    entry: importlib.metadata.EntryPoint
    package: str  # name and version, as "p2pclust-noisy 1.0"

    def load(self) -> type[Labelling]:
        """Import the class; raise UsageError if it cannot be imported, or is not a protocol of this id."""
        said = f"{self.id}: {self.package} declares {self.entry.value}"
        try:
            kind: Any = self.entry.load()
        except Exception as error:  # a package that is not ours may raise anything
            raise UsageError(f"{said}, which cannot be imported: {type(error).__name__}: {error}") from error
        suits = isinstance(kind, type) and issubclass(kind, Labelling) and dataclasses.is_dataclass(kind)
        if not suits:
            raise UsageError(
                f"{said}, which is not a dataclass that extends p2pclust.protocols.Labelling or Clustering"
            )
        if getattr(kind, "id", "") != self.id:
            raise UsageError(f"{said}, whose id is {getattr(kind, 'id', '')!r}: name the entry point like it")
        found: type[Labelling] = kind
        return found


def plugins() -> Mapping[str, Plugin]:
    """Return the protocols that installed packages bring, by id.

    Of two packages that bring the same id, the first on Python's path counts.
    """
    return _installed(tuple(sys.path))


@lru_cache(maxsize=8)
def _installed(path: tuple[str, ...]) -> Mapping[str, Plugin]:
    """Return the plug-ins on this path: reading all metadata takes milliseconds."""
    import importlib.metadata  # noqa: PLC0415 - only for an id that p2pclust does not have itself

    found: dict[str, Plugin] = {}
    for entry in importlib.metadata.entry_points(group="p2pclust.protocols"):
        if entry.dist is not None:
            found.setdefault(entry.name, Plugin(entry.name, entry, f"{entry.dist.name} {entry.dist.version}"))
    return found


@lru_cache(maxsize=64)
def parameter_types(kind: type[Labelling]) -> Mapping[str, Any]:
    """Return the type of each parameter of a protocol; of one whose annotation cannot be resolved, Any."""
    fields = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    try:
        hints = typing.get_type_hints(kind)
    except (NameError, TypeError, AttributeError):
        hints = {}
    return {name: hints.get(name, Any) for name in fields}


_PLAIN: Final[Mapping[Any, tuple[tuple[type, ...], str]]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    str: ((str,), "text"),
    type(None): ((type(None),), "nothing"),
}


def problem_with_value(wanted: Any, value: object) -> str:
    """Say what a parameter of this type has to be, or return an empty string if the value is that.

    >>> problem_with_value(float, 2), problem_with_value(float, "2")
    ('', 'expected a number')
    >>> problem_with_value(Literal["a", "b"], "c"), problem_with_value(tuple[int, ...], [1, 2.5])
    ("expected 'a' or 'b'", 'expected a list, each item a whole number')
    """
    words, suits = _kind(wanted)
    return "" if suits(value) else f"expected {words}"


def _kind(wanted: Any) -> tuple[str, Callable[[object], bool]]:
    """Return what a value of this type is, in words, and the test for that; any value is of a type not known here."""
    origin, arguments = get_origin(wanted), get_args(wanted)
    if wanted in _PLAIN:
        types, words = _PLAIN[wanted]
        return words, lambda value: type(value) in types and not (isinstance(value, float) and not math.isfinite(value))
    if origin is Literal:
        words = " or ".join(map(repr, arguments))
        return words, lambda value: any(type(value) is type(one) and value == one for one in arguments)
    if origin in (list, tuple):
        words, is_item = _kind(arguments[0])
        return f"a list, each item {words}", lambda value: isinstance(value, list | tuple) and all(map(is_item, value))
    if origin in (Union, UnionType):
        words = " or ".join(_kind(one)[0] for one in arguments if one is not type(None))
        tests = [_kind(one)[1] for one in arguments]
        return words, lambda value: any(suits(value) for suits in tests)
    return "", lambda value: True
