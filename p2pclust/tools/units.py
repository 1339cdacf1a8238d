"""Show numbers of bytes and durations to people."""

from __future__ import annotations

from typing import Final

_BYTES: Final = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_STEPS: Final = {"B": _BYTES, "bytes": _BYTES, "J": ((1e3, "kJ"), (1.0, "J"), (1e-3, "mJ"))}


def scaled(value: float, unit: str) -> tuple[float, str]:
    """Return the unit that suits a value, and how many of the given unit it is; not all units have larger ones.

    >>> scaled(2_500_000, "B"), scaled(0.25, "J"), scaled(7.0, "s")
    ((1000000.0, 'MB'), (0.001, 'mJ'), (1.0, 's'))
    """
    return next((step for step in _STEPS.get(unit, ()) if value >= step[0]), (1.0, unit))


def size(n_bytes: float | None) -> str:
    """Return a number of bytes for people; None is unknown.

    >>> size(999), size(12_345), size(999_999), size(6_789_000), size(None)
    ('999 B', '12.3 kB', '1.0 MB', '6.8 MB', '-')
    """
    if n_bytes is None:
        return "-"
    # 999,950 is 1000.0 kB when rounded, hence 1.0 MB.
    factor, unit = next(((f, u) for f, u in _BYTES if n_bytes >= (0.99995 * f if f > 1e3 else f)), (1.0, "B"))
    return f"{n_bytes:.0f} B" if unit == "B" else f"{n_bytes / factor:.1f} {unit}"


def duration(seconds: float) -> str:
    """Return a duration for people, in at most two units.

    >>> duration(0.4), duration(75), duration(7300), duration(200_000)
    ('0.4 s', '1 min 15 s', '2 h 1 min', '2 d 7 h')
    """
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, hours = int(seconds // 60), int(seconds // 3600)
    if minutes < 60:
        return f"{minutes} min {int(seconds % 60)} s"
    return f"{hours} h {minutes % 60} min" if hours < 24 else f"{hours // 24} d {hours % 24} h"
