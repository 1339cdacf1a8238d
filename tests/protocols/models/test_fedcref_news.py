from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from p2pclust.protocols.engine.job import Job, Stage
from p2pclust.protocols.engine.workspace import Run
from p2pclust.protocols.models.association import Association
from p2pclust.protocols.models.fedcref_agreed import HISTORY, Agreed, news

# Peers 0, 1 and 3 entered 2, 1 and 2 clusters; peer 2 was away.
BEFORE = Agreed("verdicts", iteration=1, counts=np.array([2, 1, 0, 2]), rows=np.full(5, 20))


def run(roster: tuple[int, ...], rounds: int) -> Run:
    parameters = {"n_features": 2, "clusters": [[0]] * len(roster), "rounds": rounds}
    return Run("1.0.0", Job((Stage("fedavg", parameters),), 0), roster, roster[0])


def model_bytes(before: Agreed, after: Agreed, runs: Sequence[Run], size: int) -> int:
    return int(news(before, after, runs, size)["model_bytes"])


def test_models_are_fetched_by_who_told_verdicts() -> None:
    everybody = replace(BEFORE, phase="graph", told=np.array([True, True, False, True]))
    assert model_bytes(BEFORE, everybody, (), 100) == 100 * (3 + 4 + 3)
    silent = replace(BEFORE, phase="graph", told=np.array([True, False, False, False]))
    assert model_bytes(BEFORE, silent, (), 100) == 300


def test_weights_go_there_and_back_in_every_round_but_not_to_the_aggregator() -> None:
    before = replace(BEFORE, phase="train")
    assert model_bytes(before, before, [run((0, 1, 3), 5), run((1,), 7), run((0, 3), 2)], 10) == 10 * (
        2 * 5 * 2 + 0 + 2 * 2
    )


def test_a_communitys_model_goes_to_those_who_did_not_train_it() -> None:
    models = np.zeros((3, 32), np.uint8)
    models[[0, 2]] = 1
    holders = np.array([[True, False, False], [True, False, False], [False, False, False], [False, False, True]])
    done = np.zeros((1, len(HISTORY)))
    before = replace(BEFORE, phase="refine", group_models=models, holders=holders, history=done)
    # The first one to peer 3, the third to peers 0 and 1; the second is none, and peer 2 is away.
    assert model_bytes(before, before, (), 10) == 30


def test_a_phase_that_moves_none() -> None:
    for phase in ("models", "graph"):
        before = replace(BEFORE, phase=phase)
        assert model_bytes(before, before, (), 10) == 0


def test_news_of_the_graph_and_of_a_refinement_are_plain() -> None:
    found = Association(BEFORE.clusters, [(0, 2), (2, 3)])
    after = replace(BEFORE, phase="train", links=found.links)
    told = news(replace(BEFORE, phase="graph"), after, (), 10)
    assert told == {
        "phase": "graph", "iteration": 1, "model_bytes": 0, "clusters": [2, 1, 0, 2], "links": [[0, 2], [2, 3]],
        "groups": [[0, 2, 3]], "isolated": [1, 4],
    }  # fmt: skip
    before = replace(BEFORE, phase="refine")
    row = [1.0, 0.0, 1.0, 2.0, 2.0, 7.0, 100.0, 3.0]
    told = news(before, replace(before, history=np.array([row])), (), 10)
    assert {name: told[name] for name in HISTORY} == dict(zip(HISTORY, map(int, row), strict=True))
    assert type(told["changed"]) is int
