from __future__ import annotations

import json

from tests.cli.conftest import Cli

from p2pclust.protocols.engine.registry import CLUSTERING


def test_lists_every_clustering_protocol(cli: Cli) -> None:
    ended = cli("protocols")
    assert (ended.code, ended.err) == (0, "")
    for name in CLUSTERING:
        assert f"\n{name} " in ended.out


def test_json(cli: Cli) -> None:
    ended = cli("protocols", "--json")
    assert (ended.code, ended.err) == (0, "")
    listed = {item["id"]: item for item in json.loads(ended.out)["protocols"]}
    assert list(listed) == list(CLUSTERING)
    assert all(item["what"] and item["reveals"] != "not declared" and item["stops"] for item in listed.values())
    assert [name for name, item in listed.items() if item["secure"]] == [
        "llf-cm", "llf-fcm", "k-prototypes", "mixture", "gdf-fcm", "stream-fcm", "vertical-cm", "vertical-fcm", "describe",
    ]  # fmt: skip
    assert listed["llf-fcm"]["what"].startswith("LLF-FCM (Federated FCM, Algorithms 1 and 2): fuzzy c-means")
    assert listed["llf-fcm"]["parameters"] == {
        "n_clusters": None,
        "missing_values": "error",
        "tol": 5e-3,
        "max_rounds": 30,
        "accelerate": False,
        "max_weight": 0.0,
        "robust": "",
        "n_init": 1,
        "levels": [],
        "weights": [],
        "fuzzifier": 2.0,
        "privacy_gate": True,
        "suppress_values": True,
    }
