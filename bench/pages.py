"""Weight and load time of the public catalog's pages, with 1,000 models.

A service of its own is started with a catalog that is made up, and its pages are opened in
Chromium: once with nothing kept (a first visit), once more with what the first left. Printed
are bytes over the wire with headers, requests, first paint, first contentful paint, layout
shift (0 is none) and how long the server took; medians of the rounds. Nothing is asked of a model.

    make bench BENCH=bench/pages.py
    make bench BENCH=bench/pages.py ARGS="--models 5000 --rounds 5"
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from browserkit import chromium
from playwright.async_api import Browser, BrowserContext, Page, async_playwright
from service import serving
from starter import PROGRAM

_HEAD = """\
[store]
folder = "data"
[[doors]]
name = "router"
kind = "router"
"""
_PROVIDER = """\
[[providers]]
name = "provider-{n}"
base_url = "http://127.0.0.1:9/v1"
health = {{ path = "" }}
"""
_ENTRY = """\
[[catalog]]
id = "author-{author}/model-{n}"
name = "{first} {second} {n}"
description = "{first} {second} {n} answers questions about the {n}th thing, in a sentence or two."
created = 2025-{month:02}-{day:02}
"""
_OFFER = """\
[[catalog.endpoints]]
provider = "provider-{n}"
model = "model-{model}"
price = {{ prompt = "{prompt}", completion = "{completion}" }}
context_length = {context}
supported_parameters = [{parameters}]
"""
_WORDS = ("Swift", "Amber", "Lumen", "Cobalt", "Fern", "Vesper", "Quartz", "Harbor", "Reed", "Dell")
_PLAIN = ("max_tokens", "temperature", "top_p", "seed", "stop")
_TOOLS = (*_PLAIN, "tools", "tool_choice", "response_format")
_PROVIDERS = 20
_PAINTS = """() => new Promise((done) => {
  let shift = 0;
  new PerformanceObserver((list) => {
    for (const each of list.getEntries()) if (!each.hadRecentInput) shift += each.value;
  }).observe({type: "layout-shift", buffered: true});
  setTimeout(() => {
    const paints = Object.fromEntries(
      performance.getEntriesByType("paint").map((each) => [each.name, each.startTime]));
    const [page] = performance.getEntriesByType("navigation");
    done({first: paints["first-paint"], contentful: paints["first-contentful-paint"], shift,
          server: page.responseStart - page.requestStart});
  }, 400);
})"""


@dataclass
class Load:
    """Measurements of one opening of a page; times in milliseconds."""

    requests: int = 0
    wire: float = 0.0
    sizes: list[float] = field(default_factory=list)
    paints: dict[str, float] = field(default_factory=dict)


def configuration(models: int) -> str:
    """A service with so many models, two offers each."""
    parts = [_HEAD, *(_PROVIDER.format(n=n) for n in range(_PROVIDERS))]
    for n in range(models):
        first, second = _WORDS[n % 10], _WORDS[n // 10 % 10]
        day = {"month": 1 + n % 12, "day": 1 + n % 28}
        parts.append(_ENTRY.format(author=n % 40, n=n, first=first, second=second, **day))
        for k in (0, 1):
            names = _TOOLS if n % 2 else _PLAIN
            parts.append(
                _OFFER.format(
                    n=(n + 7 * k) % _PROVIDERS,
                    model=n,
                    prompt=f"{(n * 7 + k) % 90 / 20 + 0.01:.2f}",
                    completion=f"{(n * 11 + k) % 200 / 10 + 0.02:.2f}",
                    context=4096 << n % 9,
                    parameters=", ".join(f'"{name}"' for name in names),
                )
            )
    return "".join(parts)


async def _open(page: Page, address: str) -> Load:
    """Go there; bytes as the browser's network counts them, headers included."""
    load = Load()
    session = await page.context.new_cdp_session(page)
    await session.send("Network.enable")

    def finished(event: dict[str, Any]) -> None:
        if event["encodedDataLength"]:
            load.requests += 1
            load.wire += event["encodedDataLength"]

    session.on("Network.loadingFinished", finished)
    await page.goto(address, wait_until="networkidle")
    load.paints = await page.evaluate(_PAINTS)
    await session.detach()
    return load


async def _attempts(browser: Browser, address: str, rounds: int) -> tuple[list[Load], list[Load]]:
    """First visits, each by a browser that knows nothing; and second ones."""
    first, second = [], []
    for _ in range(rounds):
        context: BrowserContext = await browser.new_context(viewport={"width": 1280, "height": 900})
        page = await context.new_page()
        first.append(await _open(page, address))
        await page.goto("about:blank")
        second.append(await _open(page, address))
        await context.close()
    return first, second


def _line(title: str, loads: Sequence[Load]) -> str:
    def middle(name: str) -> float:
        return median(load.paints[name] or 0.0 for load in loads)

    return (
        f"| {title} | {median(load.wire for load in loads) / 1024:.1f} "
        f"| {median(load.requests for load in loads):.0f} | {middle('server'):.0f} "
        f"| {middle('first'):.0f} | {middle('contentful'):.0f} "
        f"| {max(load.paints['shift'] for load in loads):.3f} |\n"
    )


async def _measure(root: str, rounds: int) -> None:
    pages = {
        "list": "/catalog",
        "list, searched and sorted": "/catalog?q=amber&parameter=tools&sort=price",
        "model": "/catalog/author-7/model-7",
        "four side by side": "/catalog/compare?"
        + "&".join(f"model=author-{n}/model-{n}" for n in range(4)),
    }
    sys.stdout.write("| page | KB | requests | server ms | first paint | contentful | shift |\n")
    sys.stdout.write("|---|---|---|---|---|---|---|\n")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"]
        )
        await _attempts(browser, root + pages["list"], 1)  # what was never done before is slow
        for title, path in pages.items():
            first, second = await _attempts(browser, root + path, rounds)
            sys.stdout.write(_line(title, first) + _line(f"{title}, again", second))
        await browser.close()


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=7)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with serving(folder, configuration(wanted.models), program=PROGRAM) as service:
            asyncio.run(_measure(f"{service.root}/console", wanted.rounds))


if __name__ == "__main__":
    main()
