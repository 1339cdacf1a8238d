from __future__ import annotations

import json

from tests.cli.conftest import Cli

from p2pclust.cli.fleet.protocols import PROTOCOLS
from p2pclust.protocols.engine.registry import CLUSTERING


def test_lists_every_clustering_protocol(cli: Cli) -> None:
    assert list(PROTOCOLS) == list(CLUSTERING)
    ended = cli("protocols")
    assert (ended.code, ended.err) == (0, "")
    for name in CLUSTERING:
        assert f"\n{name} " in ended.out


def test_json(cli: Cli) -> None:
    ended = cli("protocols", "--json")
    assert (ended.code, ended.err) == (0, "")
    listed = {item["id"]: item for item in json.loads(ended.out)["protocols"]}
    assert listed["llf-fcm"]["paper_name"] == "LLF-FCM, Federated FCM"
    assert listed["llf-fcm"]["parameters"] == {
        "n_clusters": None,
        "tol": 5e-3,
        "max_rounds": 30,
        "accelerate": False,
        "max_weight": 0.0,
        "robust": "",
        "n_init": 1,
        "fuzzifier": 2.0,
        "privacy_gate": True,
    }
