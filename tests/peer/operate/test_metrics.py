"""The figures for Prometheus: what its own parser reads out of them, and that they are called as it wants."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from told import TOLD, a_status

pytest.importorskip("prometheus_client", reason="needs prometheus_client: pip install 'p2pclust[metrics]'")

from prometheus_client.parser import text_string_to_metric_families

from p2pclust.peer.operate.metrics import SUSPICIOUS, Metrics


def read(told: Any, kind: str = "meter", events: tuple[str, ...] = ()) -> dict[str, Any]:
    metrics = Metrics(lambda: a_status(told), kind)
    for verb in events:
        metrics.count(verb, {})
    return {family.name: family for family in text_string_to_metric_families(metrics.text().decode())}


def samples(family: Any) -> dict[tuple[str, ...], float]:
    return {tuple(sample.labels.values()): sample.value for sample in family.samples}


def test_every_figure_is_there_with_its_help() -> None:
    families = read(TOLD, events=("elected", "member", "member"))
    for name, family in families.items():
        assert family.documentation
        assert family.samples, name
        assert family.type == ("counter" if all(s.name == f"{name}_total" for s in family.samples) else "gauge")
    assert families["p2pclust_info"].samples[0].labels == {
        "peer": "a", "fleet": "b7d1", "class": "meter", "version": "0.1.0",
    }  # fmt: skip
    assert samples(families["p2pclust_member_up"]) == {("b",): 1.0, ("c",): 0.0}
    assert samples(families["p2pclust_member_heard_seconds"]) == {("b",): 0.25}
    assert samples(families["p2pclust_jobs"]) == {("done",): 1.0, ("gathering",): 1.0}
    assert samples(families["p2pclust_job_round"])["job-12f2b11ada9abdc6", "llf-fcm"] == 7.0
    assert samples(families["p2pclust_job_peers_absent"]) == {
        ("job-12f2b11ada9abdc6", "llf-fcm"): 1.0
    }  # job-2 has ended
    none_yet = {(event,): 0.0 for event in SUSPICIOUS}
    assert samples(families["p2pclust_events"]) == none_yet | {("elected",): 1.0, ("member",): 2.0}
    assert samples(families["p2pclust_received_bytes"]) == {(): 4e6}
    assert samples(families["p2pclust_resident_memory_bytes"]) == {(): 50.0 * 2**20}


def test_names_follow_prometheus_s_conventions() -> None:
    units = ("_seconds", "_bytes")
    for name in read(TOLD, events=("elected",)):
        assert re.fullmatch(r"p2pclust_[a-z_]+", name), name
        assert not name.endswith(("_total", "_count", "_sum", "_mb", "_ms", "_kb")), name
        assert name.endswith(units) or not any(unit in name for unit in units), f"{name}: the unit stands last"


def test_the_page_tells_every_figure_as_it_comes() -> None:
    page = Path(__file__).parents[3] / "docs" / "metrics.md"
    rows = re.findall(
        r"^- `(p2pclust_\w+?)(_total)?`(?: \((.+?)\))?: (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE
    )
    families = read(TOLD, events=("elected",))
    told = {
        family.samples[0].name: (family.type, sorted(family.samples[0].labels), family.documentation)
        for family in families.values()
    }
    shown = {
        name + total: ("counter" if total else "gauge", sorted(re.findall(r"`(\w+)`", labels)), what)
        for name, total, labels, what in rows
    }
    assert shown == told


def test_a_peer_of_which_nothing_is_known_yet() -> None:
    told = TOLD | {"members": [], "jobs": [], "counters": TOLD["counters"] | {"dropped": {}}}
    assert samples(read(told)["p2pclust_peers_enrolled"]) == {(): 3.0}


def test_names_with_odd_signs_stay_one_label() -> None:
    member = TOLD["members"][0] | {"name": 'a"b\\c\nd'}
    assert samples(read(TOLD | {"members": [member]})["p2pclust_member_up"]) == {('a"b\\c\nd',): 1.0}


@pytest.mark.parametrize(("status", "up"), [("suspect", {("b",): 1.0}), ("dead", {("b",): 0.0}), ("left", {})])
def test_a_member_that_left_on_purpose_is_not_counted_as_absent(status: str, up: dict[tuple[str, ...], float]) -> None:
    member = TOLD["members"][0] | {"status": status}
    assert samples(read(TOLD | {"members": [member]})["p2pclust_member_up"]) == up
