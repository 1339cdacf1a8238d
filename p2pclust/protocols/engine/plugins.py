"""Protocols that other packages bring: found by their entry points, named with their version in job documents.

A package declares an entry point in the group ``p2pclust.protocols``: the protocol's id, and its class as
``module:Class``. Its metadata are read only for an id that p2pclust does not have itself.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import math
import sys
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

from p2pclust.errors import UsageError
from p2pclust.protocols.engine.base import Labelling, Protocol

GROUP: Final = "p2pclust.protocols"


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
    found: dict[str, Plugin] = {}
    for entry in importlib.metadata.entry_points(group=GROUP):
        if entry.dist is not None:
            found.setdefault(entry.name, Plugin(entry.name, entry, f"{entry.dist.name} {entry.dist.version}"))
    return found


def not_here(protocol: str, package: str) -> str:
    """Say what to install where a job asks for a package that is not here, or for another version of it."""
    here = plugins().get(protocol)
    if here is not None and here.package == package:
        return ""
    name, _, version = package.rpartition(" ")
    missing = "is not installed here" if here is None else f"is not what is installed here ({here.package})"
    return f"{protocol} needs {package}, which {missing}: pip install '{name}=={version}'"


def built(kind: type[Protocol], parameters: Mapping[str, Any]) -> Protocol:
    """Return a protocol whose author may have checked nothing."""
    assert issubclass(kind, Labelling)
    types = parameter_types(kind)
    for name, value in parameters.items():
        if flaw := type_flaw(types[name], value):
            raise UsageError(f"{kind.id}: {name} = {value!r}: {flaw}")
    try:
        return kind(**parameters)
    except (ValueError, TypeError) as error:
        raise UsageError(f"{kind.id}: {error}") from error


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


def type_flaw(wanted: Any, value: object) -> str:
    """Say what a parameter of this type has to be, or return an empty string if the value is that.

    >>> type_flaw(float, 2), type_flaw(float, "2"), type_flaw(Literal["a", "b"], "c"), type_flaw(tuple[int, ...], [1, 2.5])
    ('', 'expected a number', "expected 'a' or 'b'", 'expected a list, each item a whole number')
    """
    return "" if _is(wanted, value) else f"expected {_words(wanted)}"


def _is(wanted: Any, value: object) -> bool:
    origin, arguments = get_origin(wanted), get_args(wanted)
    if wanted in _PLAIN:
        return type(value) in _PLAIN[wanted][0] and not (isinstance(value, float) and not math.isfinite(value))
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in arguments)
    if origin in (Union, UnionType):
        return any(_is(one, value) for one in arguments)
    if origin in (list, tuple):
        return isinstance(value, list | tuple) and all(_is(arguments[0], item) for item in value)
    return True


def _words(wanted: Any) -> str:
    arguments = [one for one in get_args(wanted) if one not in (type(None), Ellipsis)]
    if wanted in _PLAIN:
        return _PLAIN[wanted][1]
    if get_origin(wanted) is Literal:
        return " or ".join(repr(one) for one in arguments)
    if get_origin(wanted) in (list, tuple):
        return f"a list, each item {_words(arguments[0])}"
    return " or ".join(_words(one) for one in arguments)
