"""Checks of parameters: one line that says what is wrong, where, and what was expected."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from p2pclust.errors import UsageError
from p2pclust.protocols.engine.local import LARGEST

if TYPE_CHECKING:
    from p2pclust.protocols.engine.base import Protocol

#: Takes the place of a value, for messages, and the value; returns the value, or raises UsageError.
Check = Callable[[str, Any], Any]

_MAX_LENGTH = 2**20


def whole(where: str, value: Any, *, least: int, most: int) -> int:
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or not least <= number <= most:
        raise UsageError(f"{where} = {_shown(value)}: expected a whole number from {least} to {most}")
    return number


def real(where: str, value: Any, *, above: float | None = None, least: float | None = None) -> float:
    """Return a finite number above (or not below) a bound, or raise UsageError."""
    number = _number(value)
    if number is None or (above is not None and not number > above) or (least is not None and not number >= least):
        bound = "" if above is None else f" above {above:g}"
        bound += "" if least is None else f" of at least {least:g}"
        raise UsageError(f"{where} = {_shown(value)}: expected a finite number{bound}")
    return number


def flag(where: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{where} = {_shown(value)}: expected true or false")
    return value


def gate(where: str, value: Any) -> bool | str:
    """Return what a privacy gate may be: true or false, or ``"job"`` to count the equations of all rounds."""
    if isinstance(value, bool):
        return value
    if not isinstance(value, str) or value != "job":
        raise UsageError(f"{where} = {_shown(value)}: expected true, false or 'job'")
    return "job"


def one_of(where: str, value: Any, known: Sequence[str]) -> str:
    """Return one of the known words, or raise UsageError that lists them."""
    if not isinstance(value, str) or value not in known:
        raise UsageError(f"{where} = {_shown(value)}: expected one of {', '.join(filter(None, known))}")
    return value


def vector(where: str, value: Any) -> tuple[float, ...]:
    """Return a non-empty sequence of finite numbers as a tuple, or raise UsageError."""
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= _MAX_LENGTH:
        raise UsageError(f"{where}: expected a list of numbers")
    numbers = tuple(_number(item) for item in value)
    for position, number in enumerate(numbers):
        if number is None:
            raise UsageError(f"{where}[{position}] = {_shown(value[position])}: expected a finite number")
    return tuple(number for number in numbers if number is not None)


def table(where: str, value: Any) -> tuple[tuple[float, ...], ...]:
    """Return a non-empty list of equally long rows of finite numbers, or raise UsageError."""
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= _MAX_LENGTH:
        raise UsageError(f"{where}: expected a list of rows")
    rows = tuple(vector(f"{where}[{number}]", row) for number, row in enumerate(value))
    for number, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise UsageError(f"{where}[{number}] has {len(row)} columns where row 0 has {len(rows[0])}")
    return rows


def bounds(where: str, lo: Sequence[float], hi: Sequence[float]) -> None:
    """Raise UsageError unless these are the two ends of a range for each feature."""
    if len(lo) != len(hi):
        raise UsageError(f"{where}: lo has {len(lo)} numbers and hi has {len(hi)}: one per feature")
    for column, (low, high) in enumerate(zip(lo, hi, strict=True)):
        if not -LARGEST <= low <= high <= LARGEST:
            raise UsageError(f"{where}: column {column}: [{low:g}, {high:g}] is not a range")


def levels(where: str, value: Any) -> tuple[int, ...]:
    """Return the number of values of each column, 0 for a number, or raise UsageError."""
    if not isinstance(value, list | tuple) or len(value) > _MAX_LENGTH:
        raise UsageError(f"{where}: expected a list of one whole number for each column")
    found = tuple(whole(f"{where}[{column}]", one, least=0, most=_MAX_LENGTH) for column, one in enumerate(value))
    if sum(found) > _MAX_LENGTH:
        raise UsageError(f"{where}: {sum(found)} values in all: expected at most {_MAX_LENGTH}")
    return found


def weights(where: str, value: Any) -> tuple[float, ...]:
    """Return the weight of each column, 0 for the default, or raise UsageError; it may be empty."""
    if isinstance(value, list | tuple) and not value:
        return ()
    return tuple(real(f"{where}[{column}]", one, least=0.0) for column, one in enumerate(vector(where, value)))


def weights_fit(where: str, levels: Sequence[int], weights: Sequence[float]) -> None:
    """Raise UsageError unless there is one weight for each column, or none."""
    if weights and len(weights) != len(levels):
        raise UsageError(
            f"{where}: {len(weights)} weights for {len(levels)} columns of levels: give one for each column"
        )


def too_few_rows(n_clusters: int, rows: int) -> str:
    """Say that there are fewer rows than clusters, or return an empty string."""
    if rows >= n_clusters:
        return ""
    return f"{n_clusters} clusters were asked for, but the peers hold {rows} rows: ask for at most {rows}"


def by_name(**checks: Check) -> Mapping[str, Check]:
    """Return the checks of some parameters, for ``Protocol.allowed``."""
    return checks


def check(protocol: Protocol, **checks: Check) -> None:
    """Check parameters of a protocol, a frozen dataclass, and store them as the checks return them."""
    for name, checked in checks.items():
        object.__setattr__(protocol, name, checked(f"{protocol.id}: {name}", getattr(protocol, name)))


def between(least: int, most: int) -> Check:
    return partial(whole, least=least, most=most)


def above(bound: float) -> Check:
    return partial(real, above=bound)


def at_least(bound: float) -> Check:
    return partial(real, least=bound)


def among(*known: str) -> Check:
    return partial(one_of, known=known)


def optional(checked: Check) -> Check:
    return lambda where, value: None if value is None else checked(where, value)


CLUSTERS: Final = between(1, 2**20)
STARTS: Final = between(1, 100)  # of one job, side by side
FUZZIFIER: Final = above(1.0)
SCALINGS: Final = ("none", "minmax", "zscore")
SCALING: Final = among(*SCALINGS)

_LEAST_WEIGHT_BITS: Final = 120 - 34  # three limbs make a grid of 2**-120, and 34 bits of a weight are kept


def fuzzifier_for(where: str, fuzzifier: float, n_clusters: int) -> None:
    """Raise UsageError if the power of a row's memberships is too small to be added where it belongs to all alike.

    That is C**-m. Sums of smaller numbers lose their digits, until no center moves any longer.

    >>> fuzzifier_for("llf-fcm", 50.0, 3)
    >>> fuzzifier_for("llf-fcm", 100.0, 3)
    Traceback (most recent call last):
    ...
    p2pclust.errors.UsageError: llf-fcm: fuzzifier = 100 with 3 clusters: expected at most 54.2 for so many; 2 is usual
    """
    if n_clusters > 1 and fuzzifier * math.log2(n_clusters) > _LEAST_WEIGHT_BITS:
        most = math.floor(10 * _LEAST_WEIGHT_BITS / math.log2(n_clusters)) / 10
        told = (
            f"fuzzifier = {fuzzifier:g} with {n_clusters} clusters: expected at most {most:g} for so many; 2 is usual"
        )
        raise UsageError(f"{where}: {told}")


def _number(value: Any) -> float | None:
    if isinstance(value, bool | str | bytes):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
