"""How long FedCRef trains: few rows have small batches and many epochs, many rows what they always had."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from communities import hand

from p2pclust.errors import UsageError
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.models.fedcref_parameters import LEAST_STEPS, MANY_ROWS, PACED, FedCRefParameters, Pace

AUTO = dict.fromkeys(PACED, "auto")


def of_job(job: Any) -> dict[str, Any]:
    return {name: job.stages[-1].parameters.get(name) for name in PACED}


def test_no_model_has_fewer_steps_however_few_its_rows_are() -> None:
    for rows in range(1, 2000):
        pace = FedCRefParameters(**AUTO).pace(rows)
        assert pace.epochs * -(-rows // pace.batch) >= LEAST_STEPS, rows


def test_where_rows_are_many_nothing_changes() -> None:
    for rows in (MANY_ROWS, 400, 500, 5000):
        assert FedCRefParameters(**AUTO).pace(rows) == FedCRefParameters().pace(rows) == Pace(64, 20, 3)
    assert FedCRefParameters(**AUTO).pace(24) == Pace(16, 60, 4)


def test_what_is_given_is_taken_as_it_is() -> None:
    for rows in (10, 100, 1000):
        assert FedCRefParameters(epochs=7, batch=5, local_epochs=2).pace(rows) == Pace(5, 7, 2)
    assert FedCRefParameters(epochs=7, batch="auto", local_epochs="auto").pace(24) == Pace(16, 7, 4)


def test_a_new_job_says_so_and_a_document_of_an_older_version_means_what_it_meant() -> None:
    assert of_job(cluster_job("fedcref")) == AUTO
    assert of_job(cluster_job("fedcref", epochs=60, batch=None)) == AUTO | {"epochs": 60}
    assert of_job(cluster_job("fedcref", mode="paper")) == dict.fromkeys(PACED)
    assert FedCRefParameters().pace(24) == FedCRefParameters(mode="refined").pace(5000) == Pace(64, 20, 3)
    assert FedCRefParameters(mode="paper").pace(24) == Pace(64, 20, 1)


@pytest.mark.parametrize("name", PACED)
def test_the_paper_s_mode_trains_as_the_paper_does(name: str) -> None:
    with pytest.raises(UsageError, match=r"^fedcref: 'auto' belongs to mode = 'refined'"):
        FedCRefParameters(mode="paper", **{name: "auto"})
    with pytest.raises(UsageError, match=f"^fedcref: {name}"):
        FedCRefParameters(**{name: "many"})


def test_a_community_trains_alike_at_all_its_peers() -> None:
    """24 rows of a kind at each peer: the job of each community says what all of them do."""
    h = hand([[0, 1], [1, 0], [0, 1]], **AUTO).until("train")
    runs = h.protocol.runs(h.state.arrays, h.agreed)
    assert runs
    for group, run in runs:
        pace = FedCRefParameters(**AUTO).pace(float(np.median(h.agreed.members[list(run.roster), group])))
        assert (run.job.stages[0].parameters["batch"], run.job.stages[0].parameters["epochs"]) == (
            pace.batch, pace.local_epochs,
        )  # fmt: skip
        assert (pace.batch, pace.local_epochs) == (16, 4)
