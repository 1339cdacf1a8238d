from __future__ import annotations

import importlib.util
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

import p2pclust
from p2pclust.tools import distribution
from p2pclust.tools.distribution import (
    COMPLETE,
    DEVICE,
    extras,
    install_line,
    installed,
    missing_module,
)

ROOT = Path(__file__).parents[2]
Here = Callable[..., None]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Here:
    """Let these distributions be installed, and these modules be missing."""
    find = importlib.util.find_spec

    def set_up(*names: str, missing: tuple[str, ...] = ()) -> None:
        monkeypatch.setattr(distribution, "installed", lambda: names)
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in missing else find(name))

    return set_up


def test_the_complete_one_is_here() -> None:
    assert installed() == (COMPLETE,)


@pytest.mark.parametrize(
    ("names", "extra", "line"),
    [
        ((COMPLETE,), "", "pip install p2pclust"),
        ((COMPLETE,), "plots", "pip install 'p2pclust[plots]'"),
        ((DEVICE,), "metrics", "pip install 'p2pclust-device[metrics]'"),
        ((DEVICE,), "plots", "install p2pclust[plots] in another environment, from a checkout or a wheel of it"),
        ((DEVICE,), "", "install p2pclust in another environment, from a checkout or a wheel of it"),
        ((COMPLETE, DEVICE), "metrics", "pip install 'p2pclust[metrics]'"),
        ((), "metrics", "pip install 'p2pclust[metrics]'"),
    ],
)
def test_the_command_keeps_the_distribution_that_is_here(
    here: Here, names: tuple[str, ...], extra: str, line: str
) -> None:
    here(*names)
    assert install_line(extra) == line


def test_a_late_import_is_refused_alike(here: Here) -> None:
    here(DEVICE)
    refused = missing_module(ModuleNotFoundError("", name="scipy.sparse"))
    assert str(refused) == (
        "this needs SciPy, which p2pclust-device leaves out: "
        "install p2pclust in another environment, from a checkout or a wheel of it"
    )


def test_generated_overlays_are_an_extra_of_the_distribution_for_devices(here: Here) -> None:
    here(DEVICE)
    refused = missing_module(ModuleNotFoundError("", name="networkx"))
    assert str(refused) == (
        "this needs NetworkX, which p2pclust-device leaves out: pip install 'p2pclust-device[overlay]'"
    )


def test_a_public_name_says_what_to_install(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    here(DEVICE)

    def get(name: str) -> None:
        raise ModuleNotFoundError("No module named 'sklearn'", name="sklearn")

    monkeypatch.setattr(p2pclust, "_get", get)
    with pytest.raises(
        ImportError, match=r"^p2pclust\.FFCM: this needs scikit-learn, which p2pclust-device leaves out: "
    ):
        p2pclust.__getattr__("FFCM")


def test_every_extra_for_users_is_known(here: Here) -> None:
    """All extras but those for who works on p2pclust itself, each with the module of its first requirement."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    device = tomllib.loads((ROOT / "device" / "pyproject.toml").read_text(encoding="utf-8"))
    of_device = device["project"]["optional-dependencies"]
    here(COMPLETE, missing=("torch",))
    assert {*extras()} == {*declared} - {"benchmarks", "dev", "docs", "mutants"}
    assert {name for name, found in extras().items() if not found} == {"models"}
    for name in extras():
        assert declared[name][0].startswith(distribution.EXTRAS[name].replace("_", "-"))
    here(DEVICE)
    assert {*extras()} == {*of_device}
