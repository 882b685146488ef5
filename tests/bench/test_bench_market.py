"""The simulated market of the router's benchmark: scripted, and its best choice is the best."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"
SECONDS = 20.0


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.syspath_prepend(str(BENCH))
    return {name: import_module(f"market.{name}") for name in ("seller", "buyer", "curves")}


def test_the_same_market_opens_again(parts: dict[str, Any]) -> None:
    seller, buyer = parts["seller"], parts["buyer"]
    market = seller.sellers(20, SECONDS, 1)
    assert market == seller.sellers(20, SECONDS, 1) != seller.sellers(20, SECONDS, 2)
    made = buyer.orders(SECONDS, 10, 1)
    assert made == buyer.orders(SECONDS, 10, 1)
    assert [one.number for one in made] == list(range(len(made)))
    for one in market:
        fates = [one.fate(order.at, order.number) for order in made]
        assert fates == [one.fate(order.at, order.number) for order in made]


def test_bad_times_come_when_the_script_says(parts: dict[str, Any]) -> None:
    cheapest = parts["seller"].sellers(20, SECONDS, 1)[0]
    [spell] = cheapest.spells
    inside = (spell.begin + spell.end) / 2
    assert cheapest.fate(inside, 5).ill == "refuses"
    assert not cheapest.fate(inside, 5).answers
    assert cheapest.fate(spell.end, 5).ill != "refuses" or cheapest.faulty


def test_nobody_does_better_than_the_best(parts: dict[str, Any]) -> None:
    seller, buyer = parts["seller"], parts["buyer"]
    market = seller.sellers(20, SECONDS, 1)
    for order in buyer.orders(SECONDS, 10, 1):
        cost, first = buyer.best(order, market)
        for one in market:
            bought = buyer.alone(order, one, market)
            if one.can(order.wanted) and not bought.failed:
                assert bought.cost >= cost
                assert bought.first_seconds >= first
    nobody = buyer.best(buyer.Order(0, 0.0, frozenset({"flight"})), [])
    assert nobody == (None, None)


def test_curves_are_a_picture(parts: dict[str, Any]) -> None:
    curves = parts["curves"]
    panel = curves.Panel("Cost & time", {"a < b": [(0.0, 1.0), (2.0, 4.0)], "c": []})
    picture = ElementTree.fromstring(curves.curves_svg("T", [panel, panel]))
    lines = picture.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 4
    assert lines[0].get("points", "").split()[0].startswith("64,")
