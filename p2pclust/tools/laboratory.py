"""The only way from the product to the laboratory, which a device does without.

Where the product offers something that only the laboratory has, it asks for the module here, when it is used.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from p2pclust.errors import UsageError
from p2pclust.tools.distribution import COMPLETE, install_line


def has_laboratory() -> bool:
    return importlib.util.find_spec("p2pclust.lab") is not None


def laboratory(module: str, what: str) -> Any:
    """Return a module of the laboratory by its name within ``p2pclust.lab``; `what` needs it.

    >>> laboratory("testbed", "fleet = 'simulated'").backend("simulated").name
    'simulated'
    """
    if not has_laboratory():
        raise UsageError(f"{what} is part of {COMPLETE}, and not installed here: {install_line()}")
    return importlib.import_module(f"p2pclust.lab.{module}")
