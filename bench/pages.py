"""Weight and load time of the pages: of the public catalog, of the chat, of accounts.

Three services are started: a public catalog of models that are made up, one with a team and a
month of its requests, and one without accounts. Their pages are opened in Chromium: once with
nothing kept (a first visit), once more with what the first left. Printed are bytes over the wire
with headers (the bar is 80 KB a page), requests, the server's time, first paint, first contentful
paint, processor time of the page and layout shift (0 is none); medians of the rounds, the worst of
shifts. Nothing is asked of a model.

    make bench BENCH=bench/pages.py
    make bench BENCH=bench/pages.py ARGS="--models 5000 --rounds 5 --only catalog"
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from accountkit import PASSWORD, World
from browserkit import chromium
from pageskit import a_team, with_history
from playwright.async_api import Browser, CDPSession, Page, StorageState, async_playwright
from service import serving
from starter import PROGRAM

from causerie.hosted.store.database import Database, upgrade

_HEAD = """\
[store]
folder = "data"
[console]
public_rankings = true
public_status = true
[[doors]]
name = "router"
kind = "router"
"""
_TEAM = """\
[store]
folder = "{folder}"
[[doors]]
name = "gateway"
kind = "gateway"
keys = "accounts"
"""
_ALIAS = """\
[[aliases]]
id = "north/model-{n}"
targets = [{{ provider = "north", model = "model-{n}" }}]
price = {{ prompt = "0.2", completion = "0.6" }}
"""
_PROVIDER = """\
[[providers]]
name = "{name}"
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
_ALIASES = 40
_OPEN = {
    "front door": "/",
    "sign in": "/sign-in",
    "list": "/catalog",
    "list, searched and sorted": "/catalog?q=amber&parameter=tools&sort=price",
    "model": "/catalog/author-7/model-7",
    "four side by side": "/catalog/compare?"
    + "&".join(f"model=author-{n}/model-{n}" for n in range(4)),
    "providers": "/providers",
    "provider": "/providers/provider-7",
    "rankings": "/rankings",
    "status": "/status",
}
_FRONT = {"chat": "/", "docs": "/docs"}
_OF_PROJECT = ("overview", "keys", "usage", "activity", "credits", "models", "playground", "limits")
_OF_OPERATORS = (
    *("operator", "operator/business", "operator/providers", "operator/aliases", "operator/users"),
    *("operator/projects", "operator/usage", "operator/activity", "operator/audit"),
    "operator/alerts",
)
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
    parts = [_HEAD, *(_PROVIDER.format(name=f"provider-{n}") for n in range(_PROVIDERS))]
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
    await session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def finished(event: dict[str, Any]) -> None:
        if event["encodedDataLength"]:
            load.requests += 1
            load.wire += event["encodedDataLength"]

    session.on("Network.loadingFinished", finished)
    answer = await page.goto(address, wait_until="load")  # some pages ask again and again
    if answer is None or not answer.ok or page.url != address:
        sys.exit(f"{address} led to {page.url}, status {answer and answer.status}")
    load.paints = await page.evaluate(_PAINTS)
    found = {each["name"]: each["value"] for each in await _metrics(session)}
    load.paints["cpu"] = 1000 * found["TaskDuration"]
    await session.detach()
    return load


async def _metrics(session: CDPSession) -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = (await session.send("Performance.getMetrics"))["metrics"]
    return found


async def _attempts(
    browser: Browser, address: str, rounds: int, signed_in: StorageState | None
) -> tuple[list[Load], list[Load]]:
    """First visits, each by a browser that knows nothing but a session; and second ones."""
    first, second = [], []
    for _ in range(rounds):
        context = await browser.new_context(
            viewport={"width": 1280, "height": 900}, storage_state=signed_in
        )
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
        f"| {middle('first'):.0f} | {middle('contentful'):.0f} | {middle('cpu'):.0f} "
        f"| {max(load.paints['shift'] for load in loads):.3f} |\n"
    )


async def _measure(
    root: str, pages: Mapping[str, str], rounds: int, *, member: bool = False
) -> None:
    """Print a line for the first and for the second visit of each page."""
    sys.stdout.write("| page | KB | requests | server | first paint | contentful | CPU | shift |\n")
    sys.stdout.write("|---|---|---|---|---|---|---|---|\n")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"]
        )
        session = await _signed_in(browser, root) if member else None
        for path in pages.values():  # what was never done before is slow
            await _attempts(browser, root + path, 1, session)
        for title, path in pages.items():
            first, second = await _attempts(browser, root + path, rounds, session)
            sys.stdout.write(_line(title, first) + _line(f"{title}, again", second))
            sys.stdout.flush()
        await browser.close()


async def _signed_in(browser: Browser, root: str) -> StorageState:
    """Sign in as the operator of the team, and return the cookies."""
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(f"{root}/console/sign-in")
    await page.fill("[name=email]", "operator@example.org")
    await page.fill("[name=password]", PASSWORD)
    await page.click("form .button-main")
    await page.wait_for_url(lambda url: "/sign-in" not in url)
    state = await context.storage_state()
    await context.close()
    return state


async def _team(folder: Path) -> str:
    """Fill a database with people and a month of requests; return the project's id."""

    database = Database(f"sqlite:///{folder / 'causerie.db'}")
    await upgrade(database)
    world = World(database, now=datetime.now(UTC))
    team = await a_team(world)
    await with_history(world, team)
    for number in range(100):
        person = await world.person(f"colleague{number}")
        await world.key(team.project, team.owner, name=f"key of {person.name}")
    await database.close()
    return team.project.id


def _catalog(folder: Path, models: int, rounds: int) -> None:
    with serving(folder, configuration(models), program=PROGRAM) as service:
        asyncio.run(_measure(f"{service.root}/console", _OPEN, rounds))


def _aliases() -> str:
    provider = _PROVIDER.format(name="north")
    return provider + "".join(_ALIAS.format(n=n) for n in range(_ALIASES))


def _front(folder: Path, rounds: int) -> None:
    with serving(folder, _aliases(), program=PROGRAM) as service:
        asyncio.run(_measure(service.root, _FRONT, rounds))


def _members(folder: Path, rounds: int) -> None:
    (folder / "data").mkdir()
    project = asyncio.run(_team(folder / "data"))
    pages = {f"{each} (project)": f"/console/projects/{project}/{each}" for each in _OF_PROJECT}
    pages |= {each: f"/console/{each}" for each in _OF_OPERATORS}
    config = _TEAM.format(folder=folder / "data") + _aliases()
    with serving(folder, config, program=PROGRAM) as service:
        asyncio.run(_measure(service.root, pages, rounds, member=True))


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", choices=("catalog", "front", "members"))
    wanted = parser.parse_args()
    parts: dict[str, Callable[[Path], None]] = {
        "catalog": lambda folder: _catalog(folder, wanted.models, wanted.rounds),
        "front": lambda folder: _front(folder, wanted.rounds),
        "members": lambda folder: _members(folder, wanted.rounds),
    }
    for name, part in parts.items():
        if wanted.only in (None, name):
            with tempfile.TemporaryDirectory() as folder:
                part(Path(folder))


if __name__ == "__main__":
    main()
