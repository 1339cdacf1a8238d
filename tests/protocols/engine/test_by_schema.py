"""A job that carries a schema: each peer's rows are found by name, and a peer whose rows do not fit says which column."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from p2pclust.data.schema import Column, Schema
from p2pclust.errors import UsageError
from p2pclust.protocols.engine.compose import cluster_job, continued
from p2pclust.protocols.engine.job import Job, Stage
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.reasons import UNUSABLE
from p2pclust.protocols.engine.runner import conclude, run_in_process

WATT, MODE = Column("watt", "number"), Column("mode", "category", ("eco", "boost", "off"), weight=2.0)
SCHEMA = Schema((WATT, MODE))
RNG = np.random.default_rng(0)
ROWS = [np.column_stack([RNG.normal(0, 1, 40), RNG.integers(0, 3, 40)]) for _ in range(3)]


def job(schema: Schema | None = SCHEMA, protocol: str = "llf-cm", **options: Any) -> Job:
    return cluster_job(protocol, n_clusters=2, seed=7, schema=schema, **options)


def held(X: Any, schema: Schema | None = None, names: tuple[str, ...] = ()) -> Local:
    local = Local(X)
    local.schema, local.feature_names = schema, names
    return local


def test_the_document_carries_it_and_stays_the_same() -> None:
    made = job()
    assert Job.from_dict(made.to_dict()) == made
    assert made.to_dict()["schema"] == SCHEMA.to_dict()
    assert "schema" not in job(None).to_dict()
    assert made.stages[made.main].parameters["levels"] == [0, 3]
    assert made.stages[made.main].parameters["weights"] == [0.0, 2.0]
    assert continued(made, run_in_process(made, [held(X) for X in ROWS])).schema == SCHEMA


def test_numbers_alone_are_for_every_protocol() -> None:
    schema = Schema((WATT, Column("volt", "number")))
    for protocol in ("llf-cm", "fkm", "stream-fcm"):
        made = cluster_job(protocol, n_clusters=2, schema=schema)
        assert "levels" not in made.stages[made.main].parameters


@pytest.mark.parametrize(
    ("protocol", "options", "problem"),
    [
        ("ffcm", {}, r"^schema: ffcm clusters numbers, and mode are not: leave these columns out of the schema$"),
        ("vertical-cm", {}, r"^schema: is for peers that hold the same columns, and here each holds others: leave schema"),
        ("llf-cm", {"levels": [0, 2]}, r"^schema: the levels of a stage are not those of the schema: leave levels out$"),
        ("llf-cm", {"privacy": {"epsilon": 1, "delta": 1e-6}, "secure": True, "bounds": ([0, 0], [1, 1])}, "levels"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_by_a_schema_is_refused(protocol: str, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        job(protocol=protocol, **options)


def test_a_document_with_a_wrong_schema_is_refused() -> None:
    document = job().to_dict()
    document["schema"] = {"column": [{"name": "watt", "kind": "wat"}]}
    with pytest.raises(UsageError, match=r"^job: schema: column 1 \(watt\): kind = 'wat': expected one of"):
        Job.from_dict(document)


def test_columns_and_values_in_another_order_give_the_same_bits() -> None:
    turned = Schema((Column("mode", "category", ("off", "eco", "boost"), weight=2.0), WATT))
    other = np.column_stack([(ROWS[1][:, 1] + 1) % 3, ROWS[1][:, 0]])
    one = run_in_process(job(), [held(X) for X in ROWS])
    two = run_in_process(job(), [held(ROWS[0], SCHEMA), held(other, turned), held(ROWS[2])])
    assert one.encode() == two.encode()
    labels = [kept["labels"].tolist() for kept in conclude(job(), one, [held(ROWS[1]), held(other, turned)])]
    assert labels[0] == labels[1]


@pytest.mark.parametrize(
    ("local", "reason"),
    [
        (held(ROWS[0], replace(SCHEMA, version=2)), "version 2 of the schema, and the job has version 1"),
        (held(ROWS[0], None, ("watt", "volt")), "column 'mode' is absent: the schema names it"),
        (held(ROWS[0], None, ("watt", "mode")), "column 'mode' holds numbers: the schema says category"),
        (held([[0.0], [1.0]], Schema((Column("mode", "category", ("eco", "dry")),))),
         "column 'watt' is absent: the schema names it"),
        (held([[7.0, 0.0], [8.0, 1.0]], Schema((WATT, Column("mode", "category", ("eco", "dry"))))),
         "column 'mode' has a value that the schema does not declare"),
        (held([[7.0, 3.0]]), "column 'mode' has codes that the schema does not declare"),
        (held([[7.0]]), "rows of shape (1, 1), and the schema has 2 columns"),
    ],
    ids=lambda value: "" if isinstance(value, Local) else value,
)  # fmt: skip
def test_a_peer_that_does_not_fit_names_the_column(local: Local, reason: str) -> None:
    state = run_in_process(job(), [held(ROWS[0]), local, held(ROWS[1])])
    assert state.status == "done"
    assert state.log[-1].abstained == {1: f"{UNUSABLE}: {reason}"}


def test_categories_do_not_take_part_in_a_job_of_numbers() -> None:
    state = run_in_process(job(None), [held(ROWS[0]), held(ROWS[1], SCHEMA), held(ROWS[2])])
    assert state.log[-1].abstained == {1: "its data have categories or flags (mode), and the job has no schema"}
    only_numbers = held(ROWS[1], Schema((WATT, Column("volt", "number"))))
    assert not run_in_process(job(None), [held(ROWS[0]), only_numbers]).log[-1].abstained


def test_a_private_job_says_no_more_than_that_it_cannot_be_used() -> None:
    schema = Schema((WATT, Column("volt", "number")))
    box = {"lo": [-9.0, -9.0], "hi": [9.0, 9.0]}
    private = {"n_clusters": 2, "epsilon": 4.0, "delta": 1e-6, **box, "rounds": 2}
    stages = (Stage("range", box), Stage("none"), Stage("private-cm", private))
    rows = [held(RNG.normal(0, 1, (40, 2)), schema) for _ in range(6)]
    rows[2] = held(RNG.normal(0, 1, (40, 2)), None, ("watt", "ampere"))
    state = run_in_process(Job(stages, 7, schema=schema), rows, entropy=np.random.default_rng(1).bytes)
    assert {why for record in state.log for why in record.abstained.values()} == {UNUSABLE}
