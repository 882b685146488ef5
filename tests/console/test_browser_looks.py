"""Looks that only a browser can tell: typeface, weight of a visit, what moves, what is on top."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from browserkit import window
from consolekit import Place
from playwright.async_api import Page

FIRST_VISIT = 80_000  # bytes on the wire, all files of the first page


@pytest.fixture
async def page(place: Place) -> AsyncIterator[Page]:
    """A window as wide as a laptop's."""
    async with window(viewport={"width": 1440, "height": 900}) as opened:
        yield opened


def root(place: Place) -> str:
    return f"http://127.0.0.1:{place.port}/console"


async def test_a_first_visit_is_small_moves_nothing_and_has_the_typeface(
    place: Place, page: Page
) -> None:
    await page.goto(f"{root(place)}/sign-in", wait_until="networkidle")
    weight = await page.evaluate(
        "['navigation', 'resource'].flatMap((each) => performance.getEntriesByType(each))"
        ".reduce((sum, each) => sum + each.encodedBodySize, 0)"
    )
    assert 25_000 < weight <= FIRST_VISIT, weight
    moved = await page.evaluate(
        "new Promise((done) => { let sum = 0; new PerformanceObserver((list) => {"
        "for (const each of list.getEntries()) sum += each.value; })"
        ".observe({type: 'layout-shift', buffered: true}); setTimeout(() => done(sum), 100); })"
    )
    assert moved == 0
    loaded = (
        "[...document.fonts].filter((each) => each.status === 'loaded').map((each) => each.family)"
    )
    assert "Inter" in " ".join(await page.evaluate(loaded))
