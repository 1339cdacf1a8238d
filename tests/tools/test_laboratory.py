"""The product without the laboratory: one line says what is missing, and nothing else is imported."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from p2pclust import LosslessCMeans, audit, choose_clusters
from p2pclust.errors import UsageError
from p2pclust.tools.distribution import has_laboratory, laboratory

PEERS = [np.arange(12.0).reshape(6, 2), np.arange(8.0).reshape(4, 2)]


@pytest.fixture
def on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "p2pclust.lab" else find(name))


def test_it_is_installed_here() -> None:
    assert has_laboratory()
    assert laboratory("testbed", "a fleet").BACKENDS


@pytest.mark.usefixtures("on_a_device")
def test_a_fit_in_this_process_needs_none_of_it() -> None:
    assert LosslessCMeans(n_clusters=2, random_state=0).fit(PEERS).converged_


@pytest.mark.usefixtures("on_a_device")
def test_each_door_says_what_is_missing() -> None:
    fitted = LosslessCMeans(n_clusters=2, random_state=0).fit(PEERS)
    doors = {
        "fleet = 'simulated'": lambda: LosslessCMeans(n_clusters=2, fleet="simulated").fit(PEERS),
        "a picture of an estimator": fitted.plot_centers,
        "audit": lambda: audit(LosslessCMeans(n_clusters=2), PEERS),
        "fleet = 'processes'": lambda: choose_clusters(PEERS, range(2, 4), fleet="processes"),
    }
    for what, door in doors.items():
        with pytest.raises(
            UsageError, match=f"^{what} is part of p2pclust, and not installed here: pip install p2pclust$"
        ):
            door()
