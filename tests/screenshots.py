"""Pictures of every page of the console, wide and narrow, light and dark: to be looked at.

    python tests/screenshots.py FOLDER [NAME...]

All of them, or those named. The service behind them is made up; nothing is asked of a model.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import tempfile
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import structlog
from accountkit import World
from browserkit import chromium
from configurekit import added, configure, listing
from consolekit import console_of
from frontkit import front
from marketkit import day, ugly_market
from operationskit import MARKET, Market, alerted, lived, market, provider
from pageskit import a_team, with_history
from picturebook import (
    Broken,
    Go,
    Scene,
    alone,
    at,
    furnished,
    inside,
    long_list,
    many_targets,
    outside,
    real_catalog,
)
from playwright.async_api import Browser, BrowserContext, async_playwright
from stripekit import sales

from causerie.hosted.accounts.people import SYSTEM, User
from causerie.hosted.console.public_chat import PublicChatOptions
from causerie.hosted.console.request_context import PREFIX
from causerie.hosted.operations.configuring import EntryWish
from causerie.hosted.store.database import Database, upgrade
from causerie.probe.interview import ProbeBounds
from causerie.routing.target_state import TargetStatus

_ANSWERED = 12
_PATIENT = ProbeBounds(seconds=600)
SIZES = {"wide": (1440, 900), "narrow": (390, 844)}


async def _contexts(browser: Browser, stack: AsyncExitStack) -> dict[str, BrowserContext]:
    made = {}
    for size, (width, height) in SIZES.items():
        for scheme in ("light", "dark"):
            context = await browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme=scheme,
                locale="en-GB",
                timezone_id="Europe/Paris",
            )
            stack.push_async_callback(context.close)
            made[f"{size}-{scheme}"] = context
    return made


async def _shoot(context: BrowserContext, root: str, go: Go, scene: Scene, file: Path) -> None:
    page = await context.new_page()
    await go(page, root, scene)
    over = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
    if over > 0:
        sys.stdout.write(f"{file.name}: {over} px wider than the window\n")
    whole = await page.locator("dialog[open]").count() == 0
    await page.evaluate("scrollTo(0, 0)")  # what stays in sight would stand in the middle
    await page.screenshot(path=file, full_page=whole, animations="disabled")
    await page.close()


class _Album:
    """Folder of the pictures, and those that are wanted."""

    def __init__(self, to: Path, wanted: Collection[str], scene: Scene) -> None:
        self._to = to
        self._wanted = wanted
        self._scene = scene
        self._root = f"http://127.0.0.1:{scene.place.port}{PREFIX}"

    async def fill(self, context: BrowserContext, kind: str) -> None:
        """All of one kind."""
        await self._take_front(context, kind)
        await self._take(context, kind, outside())
        await self._enter(context, self._scene.newcomer)
        await self._take(context, kind, alone())
        await self._enter(context, self._scene.operator)
        await self._take(context, kind, inside(self._scene))

    async def _take_front(self, context: BrowserContext, kind: str) -> None:
        """Pages of a service without accounts."""
        pages = {"chat": at("/"), "docs": at("/docs")}
        async with front() as service:
            for name, go in pages.items():
                if not self._wanted or name in self._wanted:
                    file = self._to / f"{name}-{kind}.png"
                    await _shoot(context, service.root, go, self._scene, file)

    async def _take(self, context: BrowserContext, kind: str, ways: Mapping[str, Go]) -> None:
        for name, go in ways.items():
            if not self._wanted or name in self._wanted:
                file = self._to / f"{name}-{kind}.png"
                await _shoot(context, self._root, go, self._scene, file)

    async def _enter(self, context: BrowserContext, user: User) -> None:
        visitor = await self._scene.place.visitor_of(user)
        token = visitor.cookies["causerie"]
        await context.add_cookies([{"name": "causerie", "value": token, "url": self._root}])


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    over = asyncio.Event()

    async def stopping(number: int) -> None:
        """Answers a few questions, and then no more: a probe stays under way."""
        if number > _ANSWERED:
            await over.wait()

    with tempfile.TemporaryDirectory() as folder:
        database = Database(f"sqlite:///{Path(folder) / 'causerie.db'}")
        await upgrade(database)
        world = World(database)
        service_view = Broken(ugly := ugly_market(world.now))
        names = [each.name for each in service_view.targets()[:2]]
        offered = {each.name for _, endpoints, _ in ugly.cards for each in endpoints}
        states = [TargetStatus(name, "up", 0, 0, 0.0, "") for name in sorted(offered)]
        service_view.target_states += [*states, *many_targets()]
        service_view.days = {
            name: day(world.now, 0.4, 50.0, range(30, 34 + n * 6)) for n, name in enumerate(names)
        }
        team = await a_team(world)
        await with_history(world, team)
        try:
            async with (
                provider(gate=stopping) as (slow, _),
                market(
                    world, Path(folder), south=slow, bounds=_PATIENT, text=MARKET + real_catalog()
                ) as seen_to,
                listing() as gallery,
            ):
                await lived(seen_to)
                await alerted(seen_to)
                await configure(seen_to)
                gallery.models = long_list()
                await _changed(seen_to)
                await added(seen_to, "provider", name="gallery", base_url=gallery.base_url)
                service_view.operations, service_view.file = seen_to.services, seen_to.file
                chat = PublicChatOptions(frozenset({"qwen/qwen3-8b:free"}))
                async with console_of(
                    world,
                    service_view=service_view,
                    open_to_all=True,
                    rankings=True,
                    chat=chat,
                    sales=sales(world),
                ) as place:
                    yield await furnished(place, service_view, team)
        finally:
            over.set()
            await database.close()


async def _changed(made: Market) -> None:
    """More of the configuration, and what was changed of it."""
    await added(made, "policy", name="people", budget="25", models=["small", "org/*"])
    await added(made, "model", id="small-here", ref="hf:Qwen/Qwen3-4B-GGUF:Q4_K_M")
    paid = {"id": "paid", "targets": [{"provider": "north", "model": "m"}]}
    entry = await added(made, "alias", **paid, price={"prompt": "0.2", "completion": "0.6"})
    wish = EntryWish(settings={**paid, "price": {"prompt": "0.25", "completion": "0.75"}})
    await made.services.configuration.change(SYSTEM, entry.id, wish)


async def main(to: Path, wanted: Collection[str]) -> None:
    """Write the pictures into a folder."""
    to.mkdir(parents=True, exist_ok=True)
    # One picture is of a bug, which says so in the log.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    async with scene() as shown, async_playwright() as playwright, AsyncExitStack() as stack:
        browser = await playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"]
        )
        stack.push_async_callback(browser.close)
        album = _Album(to, wanted, shown)
        for kind, context in (await _contexts(browser, stack)).items():
            await album.fill(context, kind)


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit("Name the folder: python tests/screenshots.py FOLDER")
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2:]))
