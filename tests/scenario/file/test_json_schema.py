"""The JSON Schema of scenario files, by which editors complete and check keys."""

from __future__ import annotations

import copy
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from p2pclust.cli.app import app
from p2pclust.lab.scenario.file.schema import Scenario

SHIPPED = sorted((Path(__file__).parents[3] / "scenarios").glob("*.toml"))
QUICKSTART = tomllib.loads(next(path for path in SHIPPED if path.stem == "quickstart").read_text("utf-8"))


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    Draft202012Validator.check_schema(schema := Scenario.model_json_schema())
    return Draft202012Validator(schema)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_scenario_fits_the_schema(validator: Draft202012Validator, path: Path) -> None:
    assert not list(validator.iter_errors(tomllib.loads(path.read_text("utf-8"))))


@pytest.mark.parametrize(
    ("table", "wrong"),
    [
        ("fleet", {"peer": 8}),
        ("jobs", {"clusters": 0}),
        ("jobs", {"fuzzifier": "large"}),
        ("jobs", {"secure": {"keeper": 3}}),
        ("faults", {"do": "explode"}),
    ],
)
def test_a_wrong_key_or_value_does_not_fit_the_schema(
    validator: Draft202012Validator, table: str, wrong: dict[str, Any]
) -> None:
    scenario = copy.deepcopy(QUICKSTART)
    there = scenario[table]
    (there[0] if isinstance(there, list) else there).update(wrong)
    assert list(validator.iter_errors(scenario))


def test_keys_and_parameters_of_protocols_have_their_words() -> None:
    printed = CliRunner().invoke(app, ["run", "--schema"])
    job = json.loads(printed.stdout)["$defs"]["ScenarioJob"]["properties"]
    assert printed.exit_code == 0
    assert job["max_rounds"]["description"] == "The most rounds of clustering."
    assert job["robust"] == {"description": "A parameter of llf-cm, llf-fcm, k-prototypes.", "type": "string"}
