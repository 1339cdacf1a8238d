"""The distributions that p2pclust is installed from, and the command that installs what one of them leaves out.

``p2pclust`` is complete. ``p2pclust-device`` is without the laboratory, and requires only what a running peer and the
commands of a fleet import.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from typing import Any, Final

from p2pclust.errors import UsageError

COMPLETE: Final = "p2pclust"
DEVICE: Final = "p2pclust-device"

#: What an extra installs for its users, by the module that is imported.
EXTRAS: Final = {
    "plots": "matplotlib", "models": "torch", "fetch": "pooch", "parquet": "pyarrow", "metrics": "prometheus_client",
    "live": "aiohttp", "mdns": "zeroconf", "sweep": "distributed", "overlay": "networkx",
}  # fmt: skip
_DEVICE_EXTRAS: Final = ("mdns", "metrics", "models", "overlay", "parquet")
#: What `COMPLETE` requires and `DEVICE` does not: by module, the name that people know it by.
_LABORATORY: Final = {
    "jinja2": "Jinja2", "networkx": "NetworkX", "platformdirs": "platformdirs", "scipy": "SciPy", "sklearn": "scikit-learn",
}  # fmt: skip


def installed() -> tuple[str, ...]:
    """Return which of the two distributions are installed here; none in a checkout that was only put on the path."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 (it imports an e-mail parser)

    found = []
    for name in (COMPLETE, DEVICE):
        with contextlib.suppress(PackageNotFoundError):
            version(name)
            found.append(name)
    return tuple(found)


def extras() -> dict[str, bool]:
    """Return whether each extra of the distribution that is installed here is installed, too."""
    on_device = installed() == (DEVICE,)
    known = _DEVICE_EXTRAS if on_device else tuple(name for name in EXTRAS if name != "overlay")
    return {name: importlib.util.find_spec(EXTRAS[name]) is not None for name in known}


def install_line(extra: str = "") -> str:
    """Return the command that installs an extra, or without one all that p2pclust requires.

    Where only the distribution for devices is installed, and it does not have that extra, this is a sentence instead: both
    distributions have the same files, and neither is on a package index.

    >>> install_line("metrics")
    "pip install 'p2pclust[metrics]'"
    """
    on_device = installed() == (DEVICE,)
    if on_device and extra in _DEVICE_EXTRAS:
        return f"pip install '{DEVICE}[{extra}]'"
    wanted = f"{COMPLETE}[{extra}]" if extra else COMPLETE
    if on_device:
        return f"install {wanted} in another environment, from a checkout or a wheel of it"
    return f"pip install '{wanted}'" if extra else f"pip install {wanted}"


def missing_module(error: ModuleNotFoundError) -> UsageError | None:
    """Return the refusal for an import that failed because a requirement of p2pclust is not installed; None for others.

    >>> print(missing_module(ModuleNotFoundError("No module named 'scipy'", name="scipy.optimize")))
    this needs SciPy, not installed here: pip install p2pclust
    >>> missing_module(ModuleNotFoundError("No module named 'turtles'", name="turtles"))
    """
    module = (error.name or "").partition(".")[0]
    if module not in _LABORATORY:
        return None
    on_device = installed() == (DEVICE,)
    why = f"which {DEVICE} leaves out" if on_device else "not installed here"
    # Inventories make overlays with NetworkX: for that a device has an extra.
    line = install_line("overlay" if module == "networkx" and on_device else "")
    return UsageError(f"this needs {_LABORATORY[module]}, {why}: {line}")


def has_laboratory() -> bool:
    return importlib.util.find_spec("p2pclust.lab") is not None


def laboratory(module: str, what: str) -> Any:
    """Return a module of the laboratory by its name within ``p2pclust.lab``; `what` needs it.

    This is the only way from the product to the laboratory, which a device does without.

    >>> laboratory("testbed", "fleet = 'simulated'").backend("simulated").name
    'simulated'
    """
    if not has_laboratory():
        raise UsageError(f"{what} is part of {COMPLETE}, and not installed here: {install_line()}")
    return importlib.import_module(f"p2pclust.lab.{module}")
