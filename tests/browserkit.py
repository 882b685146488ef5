"""A browser for tests: the Chromium of the system, driven as people use it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files

import pytest
from accountkit import PASSWORD
from playwright.async_api import Page, async_playwright, expect

from causerie.accounts.people import User

expect.set_options(timeout=15_000)  # a busy machine
_NAMES = ("chromium", "chromium-browser", "google-chrome")

# Of what is refused or cut off on purpose, and of a search that the next letter has replaced.
_NO_COMPLAINTS = (
    "Failed to load resource",
    "htmx:sendAbort",
    "htmx:sendError",
    "htmx:afterRequest",
)


def chromium() -> str:
    """The program; skips the test where there is none."""
    for name in _NAMES:
        if found := shutil.which(name):
            return found
    pytest.skip("no Chromium here; `make browser` installs one")


@asynccontextmanager
async def window(**context: object) -> AsyncIterator[Page]:
    """A page of a browser of its own; any complaint of the browser fails the test."""
    complaints: list[str] = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"]
        )
        try:
            made = await browser.new_context(**context)  # type: ignore[arg-type]  # options by name
            page = await made.new_page()
            page.on("pageerror", lambda failure: complaints.append(str(failure)))
            page.on(
                "console",
                lambda said: (
                    complaints.append(said.text)
                    if said.type == "error" and not any(one in said.text for one in _NO_COMPLAINTS)
                    else None
                ),
            )
            yield page
        finally:
            await browser.close()
    assert complaints == [], complaints


async def findings(page: Page) -> list[str]:
    """Return axe's findings: parts of the page that somebody cannot see, reach or understand."""
    script = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    await page.evaluate(script)
    found = await page.evaluate("axe.run({resultTypes: ['violations']})")
    return [
        f"{each['id']}: {node['html']} ({node['failureSummary']})"
        for each in found["violations"]
        for node in each["nodes"]
    ]


async def sign_in(page: Page, root: str, user: User) -> None:
    """Through the form, as people do."""
    await page.goto(f"{root}/sign-in")
    await page.fill("[name=email]", user.email)
    await page.fill("[name=password]", PASSWORD)
    await page.click("form .button-main")
    await page.wait_for_url(lambda url: "/sign-in" not in url)
