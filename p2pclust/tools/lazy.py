"""Import the public names of a package when they are first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


def lazy_names(package: str, **homes: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for the ``__init__`` of a package, whose ``__name__`` is `package`.

    `homes` has for each of its modules the names that it defines, separated by spaces. In the name of a module of a
    sub-package, two underscores mean the dot.

    >>> get, names = lazy_names("p2pclust.metrics", labels="accuracy adjusted_rand_index", centers="knowledge_gap")
    >>> names()
    ['accuracy', 'adjusted_rand_index', 'knowledge_gap']
    >>> get("accuracy").__module__
    'p2pclust.metrics.labels'
    """
    home = {name: module.replace("__", ".") for module, names in homes.items() for name in names.split()}

    def get(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{home[name]}"), name)

    return get, lambda: sorted(home)
