from __future__ import annotations

import math

import numpy as np
import pytest

from p2pclust.errors import UsageError
from p2pclust.lab.reproduce.frame import EXPERIMENTS, table, table_ids
from p2pclust.lab.reproduce.model import Findings


def test_the_order_in_which_repetitions_come_does_not_show() -> None:
    forth, back = Findings(), Findings()
    values = [0.1, 0.7, 0.2]
    for number, value in enumerate(values):
        forth.add(number, {"row": {"ari": value}})
    for number, value in reversed(list(enumerate(values))):
        back.add(number, {"row": {"ari": value}})
    assert forth.samples("row", "ari").tolist() == back.samples("row", "ari").tolist() == values


def test_statistics() -> None:
    found = Findings()
    for number, value in enumerate([1.0, 2.0, 6.0]):
        found.add(number, {"row": {"x": value}})
    assert found.mean("row", "x") == 3.0
    assert found.median("row", "x") == 2.0
    assert found.sd("row", "x") == pytest.approx(math.sqrt(7.0))
    assert found.has("row", "x")
    assert not found.has("row", "x", "y")
    assert not found.has("other", "x")


def test_one_repetition_has_no_spread_and_infinity_has_none_either() -> None:
    found = Findings()
    found.add(0, {"row": {"one": 1.0, "far": 1.0}})
    found.add(1, {"row": {"far": math.inf}})
    assert math.isnan(found.sd("row", "one"))
    assert math.isnan(found.sd("row", "far"))
    assert found.mean("row", "far") == math.inf


def test_curves_that_end_early_are_filled_up() -> None:
    found = Findings()
    found.add(1, {"row": {"shifts": [3.0]}})
    found.add(0, {"row": {"shifts": [1.0, 2.0]}})
    assert found.is_curve("row", "shifts")
    np.testing.assert_array_equal(found.curves("row", "shifts"), [[1.0, 2.0], [3.0, np.nan]])


def test_tables_know_their_experiments() -> None:
    for table_id in table_ids():
        made = table(table_id)
        assert made.id == table_id
        assert made.source.shows
        assert made.source.time
        assert EXPERIMENTS[made.experiment.id] is made.experiment
        names = [setup.name for setup in made.experiment.setups()]
        assert len(set(names)) == len(names)
        for quick in (False, True):
            assert {setup.name for setup in made.setups(quick=quick)} <= set(names)
        assert 0 < len(made.setups(quick=True)) <= len(made.setups(quick=False))


def test_unknown_tables() -> None:
    with pytest.raises(UsageError, match=r"unknown table '002-table33' \(did you mean '002-table3'\?\)"):
        table("002-table33")
    with pytest.raises(UsageError, match="known: 000-table1, "):
        table("x")


def test_rows_come_in_a_natural_order() -> None:
    found = Findings()
    for row in ("d 128", "d 16", "central", "β 10", "β 0.1", "σ"):
        found.add(0, {row: {"x": 1.0}})
    assert found.rows == ("central", "d 16", "d 128", "β 0.1", "β 10", "σ")
