"""Numbers in units that suit their size."""

from __future__ import annotations

from typing import Final

__all__ = ["scaled", "size"]

_BYTES: Final = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_LARGER: Final = {"B": _BYTES, "bytes": _BYTES, "J": ((1e3, "kJ"), (1.0, "J"), (1e-3, "mJ"))}


def scaled(value: float, unit: str) -> tuple[float, str]:
    """Return the unit that suits a value, and how many of the given one it is.

    Parameters
    ----------
    value : float
    unit : str
        ``B``, ``bytes`` and ``J`` have larger and smaller ones; any other unit stays.

    Examples
    --------
    >>> scaled(2_500_000, "B"), scaled(0.25, "J"), scaled(7.0, "s")
    ((1000000.0, 'MB'), (0.001, 'mJ'), (1.0, 's'))
    """
    return next((step for step in _LARGER.get(unit, ()) if value >= step[0]), (1.0, unit))


def size(n_bytes: float) -> str:
    """Return a number of bytes for people.

    Examples
    --------
    >>> size(126022080), size(12)
    ('126 MB', '12 bytes')
    """
    scale, unit = scaled(n_bytes, "bytes")
    return f"{n_bytes / scale:.3g} {unit}"
