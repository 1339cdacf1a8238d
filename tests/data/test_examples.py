"""The examples in the docstrings run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import p2pclust.data

MODULES = sorted(module.name for module in pkgutil.iter_modules(p2pclust.data.__path__))


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(f"p2pclust.data.{name}"))
    assert failed == 0


def test_modules_are_found() -> None:
    assert {"generate", "partition", "readers"} <= set(MODULES)
