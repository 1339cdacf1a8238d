"""The files of `peers/monitoring/`: what they name exists, and alerts fire when the page on metrics says so."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("prometheus_client", reason="needs prometheus_client: pip install 'p2pclust[metrics]'")

from p2pclust.peer.operate.metrics import SUSPICIOUS

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "peers" / "monitoring"
PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
DASHBOARD = json.loads((FOLDER / "grafana" / "fleet.json").read_text(encoding="utf-8"))
RULES = yaml.safe_load((FOLDER / "alerts.yml").read_text(encoding="utf-8"))["groups"][0]["rules"]
#: Of all series that Prometheus asks for itself.
OF_SCRAPES = {"instance", "job"}
ROWS = re.findall(r"^- `(p2pclust_\w+)`(?: \((.+?)\))?: .+$", PAGE, re.MULTILINE)
LABELS = {name: {*re.findall(r"`(\w+)`", labels)} for name, labels in ROWS}


def expressions() -> Iterator[str]:
    """Yield the expressions of alerts and panels, with the dashboard's variables filled in."""
    yield from (rule["expr"] for rule in RULES)
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield re.sub(r"\$(\w+)", "x", target["expr"])


def promtool(*arguments: str | Path) -> None:
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("needs promtool; on Debian: apt-get install prometheus")
    done = subprocess.run([tool, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_metrics_and_labels_of_an_expression_exist(expression: str) -> None:
    named = re.findall(r"p2pclust_\w+", expression)
    assert set(named) <= LABELS.keys()
    lists = re.findall(r"\b(?:by|on|group_left) \(([\w, ]+)\)", expression)
    labels = {label for found in lists for label in found.split(", ")} | set(
        re.findall(r"(\w+)(?:=~|!~|=)\"", expression)
    )
    assert labels <= OF_SCRAPES.union(*(LABELS[name] for name in named))
    assert named or expression.startswith("up") or "count(up" in expression


def test_the_page_has_the_alerts_of_the_file() -> None:
    rows = re.findall(r"^- `([A-Z]\w+)`(?: after (\w+))?: (.+)$", PAGE, re.MULTILINE)
    assert rows == [(rule["alert"], rule.get("for", ""), rule["annotations"]["description"]) for rule in RULES]


def test_suspicious_events_are_those_that_are_counted_from_0() -> None:
    patterns = [re.findall(r'event=~"([^"]+)"', expression) for expression in expressions()]
    found = [tuple(pattern.split("|")) for named in patterns for pattern in named]
    assert found
    assert set(found) == {SUSPICIOUS}


def test_every_alert_is_seen_to_fire_and_not_to_fire() -> None:
    cases = yaml.safe_load((FOLDER / "alerts-test.yml").read_text(encoding="utf-8"))["tests"]
    seen = {(case["alertname"], bool(case["exp_alerts"])) for test in cases for case in test["alert_rule_test"]}
    assert seen == {(rule["alert"], fires) for rule in RULES for fires in (True, False)}
    promtool("test", "rules", FOLDER / "alerts-test.yml")


def test_prometheus_reads_its_files(tmp_path: Path) -> None:
    promtool("check", "config", FOLDER / "prometheus.yml")
    rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(expressions())]
    (tmp_path / "panels.yml").write_text(
        yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}), encoding="utf-8"
    )
    promtool("check", "rules", tmp_path / "panels.yml")


@pytest.mark.parametrize("panel", DASHBOARD["panels"], ids=lambda panel: panel["title"])
def test_a_panel_shows_only_the_chosen_fleet_class_and_peers(panel: dict[str, Any]) -> None:
    chosen = 'p2pclust_info{fleet="$fleet", class=~"$class", peer=~"$peer"}'
    assert [target["expr"] for target in panel["targets"] if chosen not in target["expr"]] == []


def test_panels_have_what_grafana_wants_and_do_not_overlap() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in DASHBOARD["panels"]:
        assert panel["targets"], panel["title"]
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for cell in (
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        ):
            assert taken.setdefault(cell, panel["title"]) == panel["title"], f"{panel['title']} lies on {taken[cell]}"
    names = [variable["name"] for variable in DASHBOARD["templating"]["list"]]
    assert names == ["datasource", "fleet", "class", "peer"]


def test_compose_mounts_files_that_are_there() -> None:
    compose: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))
    mounts = [mount.split(":")[0] for service in compose["services"].values() for mount in service["volumes"]]
    files = [mount for mount in mounts if mount.startswith("./")]
    assert len(files) == 5
    assert all((FOLDER / file).is_file() for file in files)
    provider = yaml.safe_load((FOLDER / "grafana" / "dashboards.yml").read_text(encoding="utf-8"))["providers"][0]
    assert any(
        mount.split(":")[1].startswith(provider["options"]["path"])
        for mount in compose["services"]["grafana"]["volumes"]
    )


def test_the_guide_walks_through_every_file() -> None:
    guide = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert [file.name for file in FOLDER.iterdir() if f"({file.name})" not in guide and file.name != "README.md"] == []
