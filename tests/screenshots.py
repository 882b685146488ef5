"""Pictures of every page of the console, wide and narrow, light and dark: to be looked at.

    python tests/screenshots.py FOLDER

The service behind them is made up; nothing is asked of a model.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from contextlib import AsyncExitStack
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

from accountkit import PASSWORD, World
from browserkit import chromium
from consolekit import Place, console_of
from marketkit import Fair, small_market
from pageskit import LONG, Team, a_team, with_history
from playwright.async_api import Browser, BrowserContext, async_playwright

from causerie.accounts.bounds import Bounds, Budget, Limit, Period, Unit
from causerie.accounts.people import SYSTEM, Role, actor_of
from causerie.console.visit import PREFIX
from causerie.store.database import Database
from causerie.store.schema import upgrade

_OPEN = {
    "sign-in": "/sign-in",
    "link": "/link",
    "catalog": "/catalog",
    "catalog-nothing": "/catalog?q=nothing-is-called-so",
    "catalog-model": "/catalog/qwen/qwen3-8b",
    "catalog-quiet": "/catalog/zeta/mystery",
    "catalog-compare": "/catalog/compare?model=qwen/qwen3-8b&model=acme/iris-large",
}
SIZES = {"wide": (1280, 860), "narrow": (390, 844)}


async def _world(file: Path) -> World:
    database = Database(f"sqlite:///{file}")
    await upgrade(database)
    return World(database)


async def _furnish(world: World, team: Team) -> str:
    """Keys, bounds and invitations of every look; gives the id of a key."""
    project, owner = team.project, team.owner
    await world.projects.set_bounds(
        SYSTEM,
        project.id,
        Bounds(
            (Limit("", 600, 200_000, concurrent=20), Limit(LONG, 30)),
            (Budget(Decimal(50)), Budget(Decimal(2_000_000), Period.WEEK, Unit.TOKENS, "small")),
        ),
    )
    await world.projects.invite(actor_of(owner), project.id, Role.MEMBER, email="new@example.org")
    await world.users.invite(SYSTEM, email="someone@example.org")
    small = Bounds((), (Budget(Decimal(1)),))
    made = await world.key(
        project, owner, name="Nightly report of the quarter, by region and by product line",
        bounds=Bounds((Limit("", 60),), (Budget(Decimal(25)),)),
        expires_at=world.now + timedelta(days=9),
    )  # fmt: skip
    stopped = await world.key(project, owner, name="Old laptop", bounds=small)
    await world.keys.disable(actor_of(owner), stopped.key.id)
    ended = await world.key(
        project, owner, name="Trial", expires_at=world.now + timedelta(seconds=1)
    )
    del ended
    world.later(minutes=1)
    return made.key.id


def _pages(team: Team, key: str, people: str) -> dict[str, str]:
    base = f"/projects/{team.project.id}"
    return {
        "profile": "/profile",
        "keys": f"{base}/keys",
        "keys-new": f"{base}/keys/new",
        "keys-edit": f"{base}/keys/{key}",
        "keys-rotate": f"{base}/keys/{key}/rotate",
        "project": base,
        "project-bounds": f"{base}/bounds",
        "project-invite": f"{base}/invite",
        "project-audit": f"{base}/audit",
        "playground": f"{base}/playground",
        "models": f"{base}/models",
        "catalog-inside": "/catalog",
        "usage": f"{base}/usage?range=30d",
        "activity": f"{base}/activity?range=30d",
        "operator": "/operator",
        "operator-users": "/operator/users",
        "operator-disable": f"/operator/users/{people}/disable",
        "operator-projects": "/operator/projects",
        "operator-audit": "/operator/audit",
        "missing": "/no-such-page",
    }


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


async def _shoot(context: BrowserContext, root: str, path: str, file: Path) -> None:
    page = await context.new_page()
    await page.goto(root + path, wait_until="load")
    await page.wait_for_timeout(150)
    over = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
    if over > 0:
        sys.stdout.write(f"{file.name}: {over} px wider than the window\n")
    await page.screenshot(path=file, full_page=True)
    await page.close()


async def _dialogs(context: BrowserContext, root: str, team: Team, to: Path, kind: str) -> None:
    """What only scripts show: the dialog of a new key, its secret, a menu."""
    page = await context.new_page()
    await page.goto(f"{root}/projects/{team.project.id}/keys")
    await page.locator("table summary").first.click()
    await page.screenshot(path=to / f"keys-menu-{kind}.png")
    await page.keyboard.press("Escape")
    await page.click("text=New key")
    await page.wait_for_selector("dialog[open] [name=name]")
    await page.click("dialog summary:has-text('Budget')")
    await page.click("text=Add a budget")
    await page.screenshot(path=to / f"dialog-new-{kind}.png")
    await page.fill("dialog [name=name]", "From a picture")
    await page.fill("dialog [name=budget_amount]", "12.50")
    await page.click("dialog .button-main")
    await page.wait_for_selector("#credential")
    await page.screenshot(path=to / f"dialog-made-{kind}.png")
    await page.close()


async def _all(browser: Browser, place: Place, team: Team, to: Path) -> None:
    root = f"http://127.0.0.1:{place.port}{PREFIX}"
    operator = await place.world.person("ada.operator", operator=True, password=PASSWORD)
    await place.world.join(team.project, operator, Role.OWNER)
    key = await _furnish(place.world, team)
    async with AsyncExitStack() as stack:
        for kind, context in (await _contexts(browser, stack)).items():
            for name, path in _OPEN.items():
                await _shoot(context, root, path, to / f"{name}-{kind}.png")
            visitor = await place.visitor_of(operator)
            token = visitor.cookies["causerie"]
            await context.add_cookies([{"name": "causerie", "value": token, "url": root}])
            for name, path in _pages(team, key, team.owner.id).items():
                await _shoot(context, root, path, to / f"{name}-{kind}.png")
            await _dialogs(context, root, team, to, kind)


async def main(to: Path) -> None:
    """Write all pictures into a folder."""
    to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        world = await _world(Path(folder) / "causerie.db")
        team = await a_team(world)
        await with_history(world, team)
        try:
            house = Fair(small_market(world.now))
            async with console_of(world, house=house) as place, async_playwright() as playwright:
                browser = await playwright.chromium.launch(
                    executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"]
                )
                await _all(browser, place, team, to)
                await browser.close()
        finally:
            await world.database.close()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("Name the folder: python tests/screenshots.py FOLDER")
    asyncio.run(main(Path(sys.argv[1])))
