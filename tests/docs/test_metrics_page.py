"""The page on metrics names every metric with its labels, and no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from metrickit import exposed

from causerie.errors import ServiceError

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference/metrics.md").read_text(encoding="utf-8")
ALERTS = (ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(causerie_\w+)` \| (\w+) \| ?([^|]*) ?\|", re.MULTILINE)


def test_every_metric_is_on_the_page() -> None:
    told = {
        name: (kind, set(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels in ROW.findall(PAGE)
    }
    ours = {name: one for name, one in exposed().items() if name.startswith("causerie_")}
    assert told == ours


def test_examples_ask_for_metrics_that_there_are() -> None:
    suffix = re.compile(r"_(bucket|sum|count)$")
    asked = {suffix.sub("", name) for name in re.findall(r"\b(causerie_\w+)", PAGE)}
    assert asked <= exposed().keys()


_ALERT = re.compile(r"alert: (\w+)\n +expr: (.+)\n")
_SELECTOR = re.compile(r"(causerie_\w+)\{([^}]*)\}")
_MATCHER = re.compile(r'(\w+)(=~|!=|=)"([^"]*)"')


def _matchers(expression: str) -> list[list[tuple[str, str, str]]]:
    """The conditions on labels of each selector of an expression."""
    return [_MATCHER.findall(found) for _, found in _SELECTOR.findall(expression)]


def test_examples_name_labels_that_their_metrics_have() -> None:
    suffix = re.compile(r"_(bucket|sum|count)$")
    selectors = _SELECTOR.findall(PAGE + ALERTS)
    assert selectors
    for metric, conditions in selectors:
        labels = exposed()[suffix.sub("", metric)][1]
        assert {name for name, _, _ in _MATCHER.findall(conditions)} <= labels, metric


def _failures(kind: type[ServiceError] = ServiceError) -> Iterator[type[ServiceError]]:
    """Every error of the service that is not its client's."""
    for each in kind.__subclasses__():
        yield from _failures(each)
    if kind.status >= 500:
        yield kind


def _matches(failure: type[ServiceError], conditions: list[tuple[str, str, str]]) -> bool:
    labels = {"status": str(failure.status), "code": failure.code}
    how = {
        "=": lambda value, wanted: value == wanted,
        "!=": lambda value, wanted: value != wanted,
        "=~": lambda value, wanted: re.fullmatch(wanted, value) is not None,
    }
    return all(how[sign](labels[name], wanted) for name, sign, wanted in conditions)


def test_one_of_the_alerts_sees_every_failure() -> None:
    """Those for want of room have an alert of their own, so that full is told from broken."""
    alerts = dict(_ALERT.findall(ALERTS))
    [fails] = _matchers(alerts["CauserieFails"])
    [full] = _matchers(alerts["CauserieIsFull"])
    found = list(_failures())
    assert {failure.status for failure in found} >= {500, 502, 503}
    for failure in found:
        assert _matches(failure, fails) != _matches(failure, full), failure
