"""Sums that do not depend on the order of their terms: integers on a grid (docs/protocols/fixed-point.md).

A value ``x`` with unit ``u`` (a power of two) is held in ``L >= 2`` signed limbs

    x / u  =  limb[0] * 2**-24  +  limb[1] * 2**-72  +  ...  +  limb[L-1] * 2**-(24 + 48 (L - 1)).

Limbs are added independently, as int64: with ``|x / u| < 2**38 / n_peers`` the first cannot overflow, and the others hold 48
bits each with room for 2**14 terms. The only rounding is that of the last limb, ``2**-73`` of the unit for two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

MAX_PEERS = 4096  # how many terms a sum may have; the limbs would hold four times as many

_FIRST_BITS = 24
_LIMB_BITS = 48
_CAPACITY_BITS = 38
_FARTHEST = 2.0**480  # centers further away than this come from no data; beyond it squares would overflow


class GridError(ValueError):
    """A value lies outside what the grid can hold, or is not finite."""


def grid(limbs: int = 2) -> float:
    """Return the spacing of the grid in units."""
    return float(2.0 ** -(_FIRST_BITS + _LIMB_BITS * (limbs - 1)))


def quantise_all(
    values: Mapping[str, NDArray[np.float64]], units: Mapping[str, ArrayLike], *, n_peers: int, limbs: int
) -> dict[str, NDArray[np.int64]]:
    """Round several arrays to the grid and return their limbs, in one pass: a contribution's arrays are small.

    Raises GridError if a value is not finite, or not below ``2**38 / n_peers`` units.

    - `units`: for every name, the size of "one": positive powers of two, broadcastable to the array.
    - `n_peers`: how many such contributions may be added.
    - `limbs`: at least 2. The results have the shape (limbs, ...) each, and are parts of one array.
    """
    rest = in_units(values, units, n_peers=n_peers)
    out = np.empty((limbs, rest.size), dtype=np.int64)
    rest *= 2.0**_FIRST_BITS
    for k in range(limbs - 1):
        whole = np.trunc(rest)
        out[k] = whole
        # Exact: the difference has fewer bits, the factor is a power of two.
        rest -= whole
        rest *= 2.0**_LIMB_BITS
    out[limbs - 1] = np.rint(rest)
    parts, start = {}, 0
    for name, x in values.items():
        parts[name] = out[:, start : start + x.size].reshape(limbs, *x.shape)
        start += x.size
    return parts


def in_units(
    values: Mapping[str, NDArray[np.float64]], units: Mapping[str, ArrayLike], *, n_peers: int
) -> NDArray[np.float64]:
    """Return all values in their units, one array after the other; raise GridError if the grid cannot hold one.

    >>> in_units({"a": np.array(1e12)}, {"a": 1.0}, n_peers=2)
    Traceback (most recent call last):
    ...
    p2pclust.protocols.engine.fixed_point.GridError: a value is too large for the grid of 2 peers
    """
    if not 1 <= n_peers <= MAX_PEERS:
        raise GridError(f"{n_peers} peers: the grid holds 1 to {MAX_PEERS}")
    rest = np.empty(sum([x.size for x in values.values()]))
    start = 0
    with np.errstate(over="ignore", invalid="ignore"):
        for name, x in values.items():
            np.divide(x, _checked_unit(units[name]), out=rest[start : start + x.size].reshape(x.shape))
            start += x.size
        limit = 2.0**_CAPACITY_BITS / n_peers
        if not _every(np.abs(rest) < limit):  # so written, NaN is refused as well
            if not _every(np.isfinite(rest)):
                raise GridError("a value is not finite")
            # Never the value: a peer's reason goes to the whole roster.
            raise GridError(f"a value is too large for the grid of {n_peers} peers")
    return rest


def dequantise_all(
    totals: Mapping[str, NDArray[np.int64]], units: Mapping[str, ArrayLike]
) -> dict[str, NDArray[np.float64]]:
    """Return the numbers that (sums of) the limbs of several arrays stand for, the same bits for the same totals.

    Totals have the shape (limbs, ...), all with the same number of limbs; there is at least one.
    """
    limbs = np.concatenate([total.reshape(len(total), -1) for total in totals.values()], axis=1)
    half = np.int64(1) << np.int64(_LIMB_BITS - 1)
    for k in range(len(limbs) - 1, 0, -1):
        # The carry makes every lower limb lie in [-2**47, 2**47): one total has one set of normalised limbs, however
        # its terms fell.
        carry = (limbs[k] + half) >> np.int64(_LIMB_BITS)
        limbs[k] -= carry << np.int64(_LIMB_BITS)
        limbs[k - 1] += carry
    value = np.zeros(limbs.shape[1])
    for k in range(len(limbs) - 1, -1, -1):  # From the smallest: the one rounding that counts is the last.
        value += limbs[k] * 2.0 ** -(_FIRST_BITS + _LIMB_BITS * k)
    numbers, start = {}, 0
    for name, total in totals.items():
        shape = total.shape[1:]
        size = math.prod(shape)
        numbers[name] = np.asarray(value[start : start + size].reshape(shape) * _checked_unit(units[name]))
        start += size
    return numbers


def fits(limbs: NDArray[np.int64], *, n_peers: int, summed: int = 1) -> bool:
    """Return whether limbs from another peer can come from :func:`quantise_all`, or be the sum of ``summed`` such.

    Only then can the sum over all peers not overflow, whatever a hostile peer sends.
    """
    rows = limbs.reshape(len(limbs), -1)
    if not rows.size:
        return True
    first: int = summed * (2 ** (_FIRST_BITS + _CAPACITY_BITS) // n_peers)
    other: int = summed * 2**_LIMB_BITS
    # Not abs(): the smallest int64 has none.
    least: list[int] = np.minimum.reduce(rows, axis=1).tolist()
    greatest: list[int] = np.maximum.reduce(rows, axis=1).tolist()
    first_fits = -first <= least[0] and greatest[0] <= first
    return first_fits and min(least[1:], default=0) >= -other and max(greatest[1:], default=0) <= other


def power_of_two_above(values: ArrayLike) -> NDArray[np.float64]:
    """Return the smallest power of two not below each positive value, and 1 for zero."""
    x = np.asarray(values, dtype=np.float64)
    mantissa, exponent = np.frexp(np.where(x > 0, x, 1.0))
    return np.asarray(np.ldexp(1.0, np.where(mantissa == 0.5, exponent - 1, exponent)), dtype=np.float64)


def farthest(unit: NDArray[np.float64], centers: NDArray[np.float64]) -> float:
    """Return a power of two that hardly any row's distance to a center exceeds: a unit for sums of distances.

    A feature's unit bounds how far rows are from the origin, but for a few outliers under zscore, for which the grid has
    room; centers (C, F), in working coordinates, may lie anywhere.

    >>> farthest(np.array([1.0]), np.array([[-0.5], [2.5]]))
    4.0
    """
    with np.errstate(over="ignore"):
        # Not a product: near a power of two its last bit, which differs from one CPU to another, would count.
        reach = math.sqrt(np.square(unit + np.abs(centers).max(axis=0)).sum())
    return float(power_of_two_above(min(reach, _FARTHEST)))


def is_unit(values: NDArray[Any]) -> bool:
    """Return whether all values are positive powers of two."""
    return _every(np.frexp(values)[0] == 0.5)  # neither NaN nor infinity has this mantissa


def _every(mask: NDArray[np.bool_]) -> bool:
    """Whether all are true; see :func:`.arrays.all_finite`, which does not use ``.all()`` either."""
    return b"\0" not in mask.tobytes()


def _checked_unit(unit: ArrayLike | float) -> NDArray[np.float64] | float:
    if isinstance(unit, float) and math.frexp(unit)[0] == 0.5:
        return unit
    u: NDArray[Any] = np.asarray(unit, dtype=np.float64)
    if not is_unit(u):
        raise ValueError("a unit must be a positive power of two")
    return u
