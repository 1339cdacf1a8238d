from __future__ import annotations

import numpy as np
import pytest

from p2pclust.errors import UsageError
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.job import Job, JobState, Stage
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.registry import CLUSTERING
from p2pclust.protocols.engine.runner import Workspaces, run_in_process
from p2pclust.protocols.models.fedcref_agreed import Agreed
from p2pclust.protocols.models.perfect import KnownLocal, PerfectAssociations, majority

JOB = Job(
    (
        Stage("range", {"rows_needed": 1, "lo": [0.0] * 6, "hi": [1.0] * 6}),
        Stage("minmax"),
        Stage(
            "fedcref-perfect",
            {"initial": "given", "hidden": [4, 2, 4], "epochs": 4, "batch": 8, "rounds": 2, "max_iterations": 1},
        ),
    ),
    seed=1,
)


def world() -> list[KnownLocal]:
    """Three peers with classes {0, 1}, {1, 2}, {2, 0}; of each cluster a few rows are wrong."""
    rng = np.random.default_rng(0)
    made = []
    for a, b in ((0, 1), (1, 2), (2, 0)):
        truth = np.repeat([a, b], 20)
        labels = np.repeat([0, 1], 20)
        labels[[0, 39]] = [1, 0]
        made.append(KnownLocal(rng.random((40, 6)), truth, labels=labels))
    return made


@pytest.mark.slow
def test_clusters_of_one_class_are_linked_whatever_their_models_say() -> None:
    graphs, workspaces = [], Workspaces()

    def see(state: JobState) -> None:
        agreed = Agreed.of(state.arrays)
        if agreed.phase == "train":
            graphs.append(agreed.association)

    state = run_in_process(JOB, world(), see, workspaces)
    assert state.status == "done"
    (graph,) = graphs
    # Clusters 0 and 1 are peer 0's, of classes 0 and 1; 2 and 3 peer 1's, of 1 and 2; 4 and 5 peer 2's, of 2 and 0.
    assert graph.links.tolist() == [[0, 5], [1, 2], [3, 4]]
    assert Agreed.of(state.arrays).n_groups == 3


def test_it_needs_true_labels() -> None:
    rows = np.random.default_rng(0).random((20, 6))
    plain = [Local(rows, labels=np.arange(20) % 2) for _ in range(2)]
    state = run_in_process(JOB, plain, None, Workspaces())
    assert state.status == "failed"
    assert "fedcref-perfect needs true labels" in state.reason


def test_nobody_can_ask_for_it() -> None:
    assert "fedcref-perfect" not in CLUSTERING
    with pytest.raises(UsageError, match="mode = 'paper' is the only one"):
        PerfectAssociations(mode="refined")


def test_contributions_that_do_not_fit_are_left_out() -> None:
    agreed = Agreed("verdicts", counts=np.array([2, 1]), rows=np.array([10, 10, 10]))
    state = agreed.into(Arrays(origin=np.zeros(2), scale=np.ones(2)))
    told = [(peer, Arrays(classes=np.zeros((1, 1), np.uint8))) for peer in range(3)]
    why = "failed: not as many classes as clusters"
    assert PerfectAssociations().problems_with_parts(state, told) == {0: why, 2: why}


def test_what_most_rows_are() -> None:
    truth, labels = np.array([3, 3, 5, 5, 5]), np.array([0, 0, 0, 0, -1])
    assert majority(truth, labels, 2).tolist() == [3, -1], "the lowest of equals; nothing of an empty cluster"


@pytest.mark.parametrize("truth", [[0, 1], [0, 256, 1], [0, -1, 1]])
def test_wrong_classes(truth: list[int]) -> None:
    with pytest.raises(ValueError, match="3 rows need as many classes from 0 to 255"):
        KnownLocal(np.zeros((3, 1)), truth)
