"""The tables of a scenario, the types of their values, and the errors of wrong ones."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WrapValidator
from pydantic_core import PydanticCustomError

T = TypeVar("T")


def described(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Put the comment ``#:`` above each key of a table into the table's JSON Schema, as the description of the key."""
    for ancestor in reversed(model.__mro__):
        if issubclass(ancestor, TomlTable):
            comment: list[str] = []
            for line in map(str.strip, inspect.getsource(ancestor).splitlines()):
                if line.startswith("#: "):
                    comment.append(line.removeprefix("#: "))
                elif comment:
                    field = model.model_fields[line.partition(":")[0]]
                    schema["properties"][field.alias or line.partition(":")[0]]["description"] = " ".join(comment)
                    comment = []


class TomlTable(BaseModel):
    """A table of the file: unknown keys are refused, values are not converted, and it is immutable."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, json_schema_extra=described
    )


def wrong_value(expected: str) -> PydanticCustomError:
    """Return the error of one key's value; `expected` follows "key = value: "."""
    return PydanticCustomError("wrong_value", "{expected}", {"expected": expected})


def wrong_table(problems: Sequence[str]) -> PydanticCustomError:
    """Return the error of a table whose keys contradict each other, with one line for each problem."""
    return PydanticCustomError("wrong_table", "{problems}", {"problems": "\n".join(problems)})


def refuse(problems: Sequence[str]) -> None:
    """Refuse a table for these problems; accept it if there are none."""
    if problems:
        raise wrong_table(problems)


def not_empty(value: tuple[T, ...]) -> tuple[T, ...]:
    """Accept a list that is not empty (pydantic's own check would also fail if an item is wrong)."""
    if not value:
        raise wrong_value("expected at least one")
    return value


def device_name(value: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,39}", value) or value in ("aggregator", "all"):
        raise wrong_value('expected at most 40 lower-case letters, digits, "-" or "_", not "aggregator" or "all"')
    return value


def known_protocol(value: str) -> str:
    # Imported here, so that importing the schema stays fast.
    from p2pclust.protocols.engine.registry import CLUSTERING, clusterings, nearest_protocol  # noqa: PLC0415

    if value not in CLUSTERING and value not in (known := clusterings()):
        near = nearest_protocol(value, known, cutoff=0.5)
        meant = f"did you mean {near!r}? " if near else ""
        raise wrong_value(f"unknown protocol; {meant}known are {', '.join(known)}")
    return value


# -- types of values ----------------------------------------------------------------------------------------------------


def _expected(words: str) -> WrapValidator:
    """Give a type one message for all errors; pydantic has one for each alternative and for each item."""

    def check(value: Any, handler: Callable[[Any], Any]) -> Any:
        try:
            return handler(value)
        except ValidationError:
            raise wrong_value(f"expected {words}") from None

    return WrapValidator(check)


def _equally_long(rows: tuple[tuple[float, ...], ...]) -> tuple[tuple[float, ...], ...]:
    if len({len(row) for row in rows}) > 1:
        raise wrong_value("expected rows that are equally long")
    return rows


def _one_pair_as_list(value: object) -> object:
    flat = isinstance(value, list | tuple) and not any(isinstance(one, list | tuple) for one in value)
    return [value] if flat else value


def _rising(pair: tuple[float, float]) -> tuple[float, float]:
    if pair[0] >= pair[1]:
        raise wrong_value("expected low < high")
    return pair


def _init(value: object, handler: Callable[[Any], Any]) -> Any:
    # Imported here, so that importing the schema stays fast.
    from p2pclust.protocols.engine.compose import INIT_NAMES  # noqa: PLC0415

    if isinstance(value, str) and value in INIT_NAMES:
        return value
    try:
        return handler([] if isinstance(value, str) else value)
    except ValidationError:
        names = ", ".join(f'"{name}"' for name in INIT_NAMES)
        raise wrong_value(f"expected {names}, or a list of first centers, all equally long") from None


class RandomVictims(TomlTable):
    """Victims drawn from the scenario's seed, written as ``{ random = k }``."""

    random: Annotated[int, Field(ge=1)]


# TOML has lists, which are taken as tuples.
_SOME: Any = Field(strict=False, min_length=1)

# An integer of TOML may be too large for a float.
_Number = Annotated[float, Field(gt=-1e300, lt=1e300)]
_Row = Annotated[tuple[_Number, ...], _SOME]
_Pair = Annotated[tuple[_Number, _Number], Field(strict=False), AfterValidator(_rising)]
#: Text that is not empty.
Text = Annotated[str, Field(min_length=1)]
_NAMES = "a device, a group of devices, or a list of these"
_VICTIMS = 'a device, a group of devices, a list of these, "all", "aggregator", or { random = k } with k at least 1'

#: Equally long rows of numbers.
Centers = Annotated[tuple[_Row, ...], _SOME, AfterValidator(_equally_long)]
Locations = Annotated[
    Centers, _expected("a list with one point for each peer, all with the same number of coordinates")
]
#: The name of a seeding, or explicit first centers.
Init = Annotated[str | Centers, WrapValidator(_init)]
#: Declared bounds: one pair, or one for each feature.
Bounds = Annotated[
    tuple[_Pair, ...],
    _SOME,
    BeforeValidator(_one_pair_as_list, json_schema_input_type=_Pair | tuple[_Pair, ...]),
    _expected("[low, high] with low < high, or one such pair for each feature"),
]
#: Each device's number of clusters, or how to find it.
LocalClusters = Annotated[
    Literal["search", "classes"] | Annotated[int, Field(ge=1)],
    _expected(
        'a whole number from 1 on, "classes" (of fedcref: as many as the device has labels), or "search" (of k-fed)'
    ),
]
#: How many peers keep pads.
Keepers = Annotated[
    Annotated[int, Field(ge=2, le=4096)] | Literal["all"], _expected('a whole number from 2 to 4096, or "all"')
]
#: A column of a file, and the columns of its features.
Column = Annotated[str | Annotated[int, Field(ge=1)], _expected("a column's name, or its number counted from 1")]
Columns = Annotated[
    tuple[Column, ...], _SOME, _expected("a list of columns, each by its name or by its number counted from 1")
]
#: Options of the generator of the data, which checks them.
Options = Annotated[dict[str, Any], _expected("a table of options, such as { noise = 1.5 }")]
_OneAsList = BeforeValidator(
    lambda value: [value] if isinstance(value, str) else value, json_schema_input_type=Text | tuple[Text, ...]
)
#: Names of devices or groups; `SomeNames` may be empty.
Names = Annotated[tuple[Text, ...], _SOME, _OneAsList, _expected(_NAMES)]
SomeNames = Annotated[tuple[Text, ...], Field(strict=False), _OneAsList, _expected(_NAMES)]
Scalar = Annotated[bool | _Number | str, _expected("a number, true, false, or text")]
#: The victims of a fault; whether such devices exist is checked later.
Who = Annotated[Text | Names | RandomVictims, _expected(_VICTIMS)]
