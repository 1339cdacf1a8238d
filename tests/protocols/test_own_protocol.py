"""The page on protocols of one's own tells the truth: its listing runs, with the same bits everywhere."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import numpy as np
import pytest

from p2pclust.fleet import backend
from p2pclust.protocols import Local, cluster_job, run_in_process
from p2pclust.protocols.engine import registry

PAGE = (Path(__file__).parents[2] / "docs" / "own-protocol.md").read_text(encoding="utf-8")
PEERS = [
    np.random.default_rng(peer).normal(size=(30, 2)) + 4.0 * (np.arange(30) % 3)[:, np.newaxis] for peer in range(3)
]


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    listing = re.search(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    lines = dict(re.findall(r'^(_CLASSES|CLUSTERING): +"noisy-cm": (.*),$', PAGE, re.MULTILINE))
    assert listing is not None
    (tmp_path / "noisy_cm.py").write_text(listing[1], encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    module, name = re.findall(r'"([^"]*)"', lines["_CLASSES"])
    assert module == "p2pclust.protocols.noisy_cm"
    monkeypatch.setitem(registry._CLASSES, "noisy-cm", ("noisy_cm", name))
    monkeypatch.setitem(registry.CLUSTERING, "noisy-cm", lines["CLUSTERING"])
    importlib.invalidate_caches()


@pytest.mark.usefixtures("listed")
def test_the_listing_runs_on_arrays() -> None:
    job = cluster_job("noisy-cm", n_clusters=3, noise=0.2, seed=1)
    state = run_in_process(job, [Local(rows) for rows in PEERS])
    simulated = backend("simulated").run(job, PEERS)
    assert state.arrays["centers"].tobytes() == simulated.arrays["centers"].tobytes()
    quiet = run_in_process(cluster_job("noisy-cm", n_clusters=3, noise=0.0, seed=1), [Local(rows) for rows in PEERS])
    plain = run_in_process(cluster_job("llf-cm", n_clusters=3, seed=1), [Local(rows) for rows in PEERS])
    assert quiet.arrays["centers"].tobytes() == plain.arrays["centers"].tobytes()
    assert state.arrays["centers"].tobytes() != plain.arrays["centers"].tobytes()


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([a-z_]+)\((?:state|previous|points)", PAGE))))
def test_what_it_names_is_there(name: str) -> None:
    from p2pclust.protocols.engine.base import Clustering

    assert callable(getattr(Clustering, name))
