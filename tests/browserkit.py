"""A browser for tests: the Chromium of the system, driven as people use it."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from importlib.resources import files

import openai
import pytest
from accountkit import PASSWORD
from openai import AsyncOpenAI
from playwright.async_api import (
    Browser,
    BrowserContext,
    Locator,
    Page,
    async_playwright,
    expect,
)
from service import Service
from taskkit import LASTING_TASKS

from causerie.hosted.accounts.people import User

expect.set_options(timeout=90_000)  # a busy machine
NEW_PASSWORD = "nine purple ladders hum"
_LINK = re.compile(r"http://[^\s\"]+/console/link#[\w-]+")
# The first draws pages only, no windows around them: a fourth of the processor time.
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")

# Of what is refused or cut off on purpose, and of a search that the next letter has replaced.
_NO_COMPLAINTS = (
    "Failed to load resource",
    "has been blocked by CORS policy",
    "Cross-Origin-Opener-Policy header has been ignored",  # at an address of a home network
    "htmx:sendAbort",
    "htmx:sendError",
    "htmx:afterRequest",
)


UNSEEN = 0.005
"""Movement of a page, as :func:`moved` returns it, that nobody sees."""
_MOVED = (
    "new Promise((done) => { let sum = 0; new PerformanceObserver((list) => {"
    "for (const each of list.getEntries()) sum += each.value; })"
    ".observe({type: 'layout-shift', buffered: true}); setTimeout(() => done(sum), 20); })"
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
    async with windows(1, **context) as pages:
        yield pages[0]


@asynccontextmanager
async def windows(people: int, **context: object) -> AsyncIterator[Sequence[Page]]:
    """A page for each of several people, who share a browser and no cookies."""
    complaints: list[str] = []
    async with _browser() as browser, AsyncExitStack() as stack:
        pages = []
        for _ in range(people):
            made = await browser.new_context(**context)  # type: ignore[arg-type]  # options by name
            stack.push_async_callback(made.close)
            pages.append(await _page(made, complaints))
        yield pages
    assert complaints == [], complaints


@dataclass
class _Kept:
    """A browser that outlives the window it was opened for, and what it needs for that."""

    loop: asyncio.AbstractEventLoop
    stack: AsyncExitStack
    browser: Browser | None = None


_kept: list[_Kept] = []


@contextmanager
def kept_browser(runner: asyncio.Runner) -> Iterator[None]:
    """All windows of this loop are of one browser: to start it takes longer than most tests."""
    kept = _Kept(runner.get_loop(), AsyncExitStack())
    _kept.append(kept)
    try:
        yield
    finally:
        _kept.remove(kept)
        runner.run(kept.stack.aclose())


@asynccontextmanager
async def _browser() -> AsyncIterator[Browser]:
    loop = asyncio.get_running_loop()
    kept = next((each for each in _kept if each.loop is loop), None)
    if kept is None:
        async with AsyncExitStack() as stack:
            yield await _opened(stack)
        return
    if kept.browser is None or not kept.browser.is_connected():
        before = asyncio.all_tasks()
        kept.browser = await _opened(kept.stack)
        LASTING_TASKS.update(asyncio.all_tasks() - before)
    yield kept.browser


async def _opened(stack: AsyncExitStack) -> Browser:
    """Open a browser that is closed with the stack."""
    playwright = await stack.enter_async_context(async_playwright())
    browser = await playwright.chromium.launch(
        executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"]
    )
    stack.push_async_callback(browser.close)
    return browser


async def _page(made: BrowserContext, complaints: list[str]) -> Page:
    made.set_default_timeout(90_000)  # a busy machine
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
    return page


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


async def moved(page: Page) -> float:
    """Return how much the page has moved by itself: the share of the window, times the distance.

    0.1 is called good. A slow browser shows a part of a list while it still reads the rest, and the
    columns find their widths then: 0.001 at an eighth of the speed.
    """
    return float(await page.evaluate(_MOVED))


_CLIPBOARD_ONCE_FILLED = """async () => {
  for (const end = Date.now() + 30_000; Date.now() < end; ) {
    const text = await navigator.clipboard.readText();
    if (text) return text;
    await new Promise(requestAnimationFrame);
  }
  throw new Error("nothing was copied");
}"""


async def copied(page: Page, button: str) -> str:
    """Press a button that copies, and return what it has put into the clipboard.

    It says so for a moment only, which a slow browser may pass over. ``wait_for_function`` takes
    the promise of a text for an answer, however empty the text will be.
    """
    await page.evaluate("navigator.clipboard.writeText('')")
    await page.click(button)
    return str(await page.evaluate(_CLIPBOARD_ONCE_FILLED))


async def sign_in(page: Page, root: str, user: User) -> None:
    """Through the form, as people do."""
    await page.goto(f"{root}/sign-in")
    await page.fill("[name=email]", user.email)
    await page.fill("[name=password]", PASSWORD)
    await page.click("form .button-main")
    await page.wait_for_url(lambda url: "/sign-in" not in url)


@dataclass(frozen=True, slots=True)
class Execution:
    """Somebody at their browser, and the service that they have started."""

    page: Page
    service: Service
    door: str = "hosted"
    model: str = "small"

    async def first_link(self) -> str:
        """Return the link that the service prints for the first person once it is ready."""
        async with asyncio.timeout(60):
            while True:
                if found := _LINK.search(self.service.log.read_text()):
                    return found[0]
                await asyncio.sleep(0.02)  # another process writes it

    async def arrive(self) -> None:
        """Make the owner's account by the link, which brings a project with it."""
        page = self.page
        await page.goto(await self.first_link())
        await page.fill("[name=email]", "ada@example.org")
        await page.fill("[name=name]", "Ada")
        await page.fill("[name=password]", NEW_PASSWORD)
        await page.click("text=Create account")
        await self.open("API Keys")

    async def open(self, title: str) -> None:
        """Go to a page by the navigation."""
        link = self.page.locator("nav a").get_by_text(title, exact=True)
        inside = self.page.locator("a").get_by_text(title, exact=True)
        await link.wait_for(state="attached")  # what was clicked before may lead to it
        folded = self.page.locator("nav details:not([open])").filter(has=inside)
        if await folded.count():
            await folded.locator("summary").click()
        await link.click()
        await expect(self.page.locator("#main h1")).to_have_text(title)

    async def until(self, there: Locator) -> None:
        """Load the page anew until it shows this: another task writes what it reads."""
        async with asyncio.timeout(60):
            while not await there.count():
                await self.page.reload()

    async def begin(self, name: str) -> None:
        """Open the form of a new key."""
        await self.page.locator(".page-head").get_by_text("Create key").click()
        await self.page.fill("dialog [name=name]", name)

    async def new_key(self, name: str, budget: str = "") -> str:
        """Make a key, and take its secret from the clipboard."""
        page = self.page
        await self.begin(name)
        if budget:
            await page.click("dialog summary:has-text('Budget')")
            await page.click("text=Add a budget")
            await page.fill("dialog [name=budget_amount]", budget)
        await page.click("dialog .button-main")
        return await self.copied()

    async def copied(self) -> str:
        """The secret that the dialog shows once, by its copy button; the dialog is closed."""
        secret = await copied(self.page, "dialog [data-copy=credential]")
        assert re.fullmatch(r"ck_[A-Za-z0-9]+_\w+", secret)
        await self.done()
        assert secret not in await self.page.content()
        return secret

    async def done(self) -> None:
        """Close the dialog of a key that was made."""
        async with self.page.expect_event("load"):  # the page behind is loaded anew
            await self.page.click("dialog >> text=Done")

    async def code(self, id: str) -> str:
        """Return the text that a tab of the dialog offers to copy."""
        return await self.page.text_content(f"dialog #code-{id}") or ""

    async def act(self, name: str) -> None:
        """Choose from the menu of the one key that there is."""
        await self.page.click("tbody summary")
        await self.page.locator("tbody .menu-list").get_by_text(name, exact=True).click()

    async def rotate(self, grace: str) -> str:
        """Another secret for the key."""
        await self.act("Rotate secret")
        await self.page.select_option("dialog [name=grace]", label=grace)
        await self.page.click("dialog .button-main")
        return await self.copied()

    def client(self, key: str) -> AsyncOpenAI:
        """Return a client as a program of theirs uses it."""
        return AsyncOpenAI(
            api_key=key, base_url=f"{self.service.root}/{self.door}/v1", max_retries=0, timeout=60
        )

    async def ask(self, key: str, words: str = "Say hello.") -> str:
        async with self.client(key) as client:
            reply = await client.chat.completions.create(
                model=self.model, messages=[{"role": "user", "content": words}], max_tokens=8
            )
        assert reply.usage is not None
        assert reply.usage.completion_tokens
        return reply.choices[0].message.content or ""

    async def stream(self, key: str) -> str:
        async with self.client(key) as client:
            chunks = await client.chat.completions.create(
                model=self.model,
                messages=[{"role": "user", "content": "Say hello."}],
                max_tokens=8,
                stream=True,
            )
            return "".join(
                [each.choices[0].delta.content or "" async for each in chunks if each.choices]
            )

    async def let_in_again(self, key: str) -> None:
        """Wait until a raised budget admits the key: the doors hear of it within a second."""
        async with asyncio.timeout(60):
            while True:
                try:
                    assert await self.ask(key)
                    return
                except openai.APIStatusError as refusal:
                    if refusal.status_code != 402:
                        raise

    async def refused(self, key: str) -> None:
        """This key opens nothing any more, from a moment on that services hear of."""
        async with self.client(key) as client, asyncio.timeout(60):
            with pytest.raises(openai.AuthenticationError):
                while True:
                    await client.models.list()
        with pytest.raises(openai.AuthenticationError):
            await self.ask(key)
