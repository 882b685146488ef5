"""Alerts and the dashboard: read by Prometheus' own checker, on metrics that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from metrickit import exposed

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yaml"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "causerie.json").read_text())
FETCHED = ROOT / "build" / "prometheus" / "usr" / "bin" / "promtool"


def _promtool(*arguments: str) -> None:
    program = shutil.which("promtool") or (str(FETCHED) if FETCHED.exists() else None)
    if program is None:
        pytest.skip("no promtool here; `make promtool` fetches it")
    told = subprocess.run([program, *arguments], capture_output=True, text=True)
    assert told.returncode == 0, told.stdout + told.stderr


def _queries() -> list[str]:
    """Return the queries of the dashboard, with its variables replaced as Grafana does it."""
    queries = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    values = {"$__rate_interval": "1m", "$door": ".*", "$model": ".*"}
    for name, value in values.items():
        queries = [query.replace(name, value) for query in queries]
    assert not any("$" in query for query in queries)
    return queries


def test_prometheus_takes_the_alerts() -> None:
    _promtool("check", "rules", str(ALERTS))


def test_prometheus_takes_the_queries_of_the_dashboard(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{n}", "expr": query} for n, query in enumerate(_queries())]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    _promtool("check", "rules", str(file))


def test_prometheus_takes_the_configuration(tmp_path: Path) -> None:
    """Its paths are those of the container."""
    text = (DEPLOY / "compose" / "prometheus.yaml").read_text()
    file = tmp_path / "prometheus.yaml"
    file.write_text(text.replace("/etc/prometheus/alerts.yaml", str(ALERTS)))
    _promtool("check", "config", str(file))


def test_queries_ask_for_metrics_that_exist() -> None:
    rules = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
    scaling = DEPLOY / "kubernetes" / "components" / "scaling" / "scaled-object.yaml"
    [trigger] = yaml.safe_load(scaling.read_text())["spec"]["triggers"]
    asked = [*_queries(), *(rule["expr"] for rule in rules), trigger["metadata"]["query"]]
    suffix = re.compile(r"_(bucket|sum|count)$")
    names = {suffix.sub("", name) for query in asked for name in re.findall(r"causerie_\w+", query)}
    assert len(names) > 10
    assert names <= exposed().keys()


def test_legends_name_labels_of_their_queries() -> None:
    targets = [target for panel in DASHBOARD["panels"] for target in panel["targets"]]
    legends = [(each["expr"], re.findall(r"{{(\w+)}}", each["legendFormat"])) for each in targets]
    assert any(names for _, names in legends)
    for query, names in legends:
        if not names:
            continue
        grouped = re.findall(r"by \(([^)]*)\)", query)
        metrics = re.findall(r"causerie_\w+", query)
        labels = set(re.findall(r"\w+", ",".join(grouped)))
        if not grouped and metrics:
            labels = exposed()[metrics[0]][1]
        assert set(names) <= labels | {"instance", "job"}, query


def test_panels_stand_beside_each_other() -> None:
    """No two overlap, none is wider than the page, and each says what it shows."""
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not cells & taken
        assert panel["title"]
        taken |= cells
