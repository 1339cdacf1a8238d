from __future__ import annotations

import math

import pytest

from p2pclust.lab.reproduce.frame import table_ids
from p2pclust.lab.reproduce.model import Printed, published


@pytest.mark.parametrize("table_id", table_ids())
def test_every_table_says_where_its_numbers_stand(table_id: str) -> None:
    source = published(table_id)
    assert source.where
    assert all(math.isfinite(printed.mean) for printed in source.numbers.values())
    shown = set(source.measures)
    assert {measure for _, measure in source.numbers} <= shown


@pytest.mark.parametrize(
    ("table_id", "row", "measure", "mean"),
    [
        ("000-table1", "waveform, γ 0.75", "distance", 0.02049),
        ("000-table1", "s_set1, γ 0.50", "ari", 0.90384),
        ("001-table2", "avg_1 (case 1)", "osse", 3.4078),
        ("001-table3", "avg_2 (case 2)", "gap", 1.25),
        ("001-table4", "avg_1, 1000+100+100", "wsse", 2.28),
        ("001-table5", "avg_2", "75 % quantile", 30.38),
        ("002-table3", "llf-fcm, pendigits, γ 0.50", "xie-beni", 9.95),
        ("002-table3", "gdf-fcm, s_set2, γ 0.75", "ari", 0.85),
        ("002-table4", "gdf-fcm, satellite", "ari", 0.40),
        ("002-table5", "c2f-fcm, pendigits, γ 1.00", "distance", 0.72),
        ("003-figure3", "k-fed, β 10, 50 points, noise 1.5", "ari", 0.607),
    ],
)
def test_numbers_as_printed(table_id: str, row: str, measure: str, mean: float) -> None:
    assert published(table_id).numbers[row, measure].mean == mean


def test_what_cannot_be_read_is_left_out() -> None:
    numbers = published("002-table3").numbers
    assert ("gdf-fcm, satellite, γ 0.25", "distance") in numbers
    assert ("gdf-fcm, satellite, γ 1.00", "distance") not in numbers


def test_standard_deviations_where_they_are_known() -> None:
    assert published("003-figure4").numbers["fkm", "ari"] == Printed(0.901, 0.053)
    assert math.isnan(published("001-table2").numbers["avg_2 (case 1)", "wsse"].sd)
