"""The console in a real browser: from the first link to a key, as people go."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import product

import pytest
from accountkit import PASSWORD, World
from browserkit import copied, sign_in, window
from consolekit import Place
from ledgerkit import record
from msgspec import structs
from playwright.async_api import Page, Route, expect

from causerie.hosted.accounts.bounds import Budget, BudgetPeriod, LimitsAndBudgets
from causerie.hosted.accounts.people import User, actor_of
from causerie.hosted.store.usage import SqlUsage

NEW = "nine purple ladders hum"


@pytest.fixture
async def page(place: Place) -> AsyncIterator[Page]:
    """A window that may use the clipboard."""
    async with window(permissions=["clipboard-read", "clipboard-write"]) as opened:
        yield opened


def root(place: Place) -> str:
    return f"http://127.0.0.1:{place.port}/console"


async def at_keys(page: Page, place: Place, user: User) -> None:
    """Sign in, and go on from the overview to the keys."""
    await sign_in(page, root(place), user)
    await page.goto(page.url.replace("/overview", "/keys"))
    await expect(page.locator("#main h1")).to_have_text("API Keys")


async def test_from_the_first_link_to_a_key(place: Place, page: Page) -> None:
    made = await place.world.users.first_link()
    assert made is not None
    await page.goto(f"{root(place)}/link#{made.token}")
    await page.fill("[name=email]", "ada@example.org")
    assert made.token not in page.url
    await page.fill("[name=name]", "Ada")
    await page.fill("[name=password]", NEW)
    await page.click("text=Create account")

    await page.click("nav summary >> text=People")
    await page.click("nav >> text=Projects")
    await page.locator(".page-head").get_by_text("Create project").click()
    await page.fill("dialog [name=name]", "Atlas")
    await page.click("dialog .button-main")
    await expect(page.locator("#main h1")).to_have_text("Atlas")
    await expect(page.locator(".toast")).to_contain_text("The project was created")
    await expect(page).not_to_have_url(re.compile("done="))

    await page.click("nav >> text=API Keys")
    await page.locator(".page-head").get_by_text("Create key").click()
    await page.fill("dialog [name=name]", "   ")
    await page.click("dialog .button-main")
    await expect(page.locator("dialog .wrong")).to_contain_text("A name has 1 to 100")
    await page.fill("dialog [name=name]", "Batch")
    await page.check('dialog [name=end][value="7"]')
    await page.click("dialog summary:has-text('Budget')")
    await page.click("text=Add a budget")
    await page.fill("dialog [name=budget_amount]", "12.50")
    await page.click("dialog .button-main")
    credential = await page.text_content("#credential")
    assert credential is not None
    assert await copied(page, "dialog [data-copy=credential]") == credential
    await page.click("#tab-chat-python")
    await expect(page.locator("#code-chat-python")).to_be_visible()
    await expect(page.locator("#code-chat-curl")).to_be_hidden()
    await page.click("dialog >> text=Messages")
    await expect(page.locator("#code-messages-python")).to_be_visible()
    await expect(page.locator("#code-chat-python")).to_be_hidden()

    await page.click("dialog >> text=Done")
    row = page.locator("tbody tr")
    await expect(row).to_have_count(1)
    await expect(row).to_contain_text("of $12.50")
    assert credential not in await page.content()


@pytest.mark.full
async def test_a_key_is_stopped_and_deleted(place: Place, page: Page) -> None:
    owner = await place.world.person(password=PASSWORD)
    project = await place.world.project(owner=owner)
    await place.world.key(project, owner, name="Old")
    await at_keys(page, place, owner)
    await page.click("table summary")
    await page.click("table >> text=Disable")
    await expect(page.locator("tbody")).to_contain_text("disabled")
    await page.click("table summary")
    await page.click("table >> text=Delete")
    await expect(page.locator("#dialog h1")).to_have_text("Delete Old?")
    await page.keyboard.press("Escape")
    await expect(page.locator("dialog")).to_be_hidden()
    await page.click("table summary")
    await page.click("table >> text=Delete")
    await page.click("dialog .button-bad")
    await expect(page.locator(".empty")).to_contain_text("No keys yet")


@pytest.mark.full
async def test_the_keyboard_is_where_it_was_before_a_dialog(place: Place, page: Page) -> None:
    owner = await place.world.person(password=PASSWORD)
    project = await place.world.project(owner=owner)
    await place.world.key(project, owner, name="Old")
    await at_keys(page, place, owner)
    dialog, menu = page.locator("dialog"), page.locator("table summary")
    await menu.focus()
    for key in ("Enter", "Tab", "Enter"):
        await page.keyboard.press(key)
    await expect(dialog).to_have_accessible_name("Old")
    await page.keyboard.press("Escape")
    await expect(menu).to_be_focused()

    await page.locator(".page-head").get_by_text("Create key").click()
    await page.fill("dialog [name=name]", "New")
    await page.keyboard.press("Enter")
    await expect(page.locator("dialog #panel")).to_be_focused()  # what was made is read out
    await expect(dialog).to_have_accessible_name("New")


@pytest.mark.full
async def test_what_is_copied_twice_says_so_and_no_longer_then(place: Place, page: Page) -> None:
    owner = await place.world.person(password=PASSWORD)
    await place.world.project(owner=owner)
    await at_keys(page, place, owner)
    await page.locator(".page-head").get_by_text("Create key").click()
    await page.fill("dialog [name=name]", "New")
    await page.keyboard.press("Enter")
    copy = page.locator("dialog [data-copy=credential]")
    await expect(copy).to_be_visible()
    await page.clock.install()
    await page.clock.pause_at(datetime.now(UTC) + timedelta(hours=1))
    await copy.click(click_count=2)
    await expect(copy).to_have_accessible_name("Copied the key")
    await page.clock.run_for(2000)
    await expect(copy).to_have_accessible_name("Copy the key")
    heard = await page.locator("dialog [data-copy]:visible").all_inner_texts()
    assert len(set(heard)) == len(heard) > 2


@pytest.mark.full
async def test_a_dialog_says_itself_what_is_wrong(place: Place, page: Page) -> None:
    owner = await place.world.person(password=PASSWORD)
    project = await place.world.project(owner=owner)
    await at_keys(page, place, owner)
    await page.locator(".page-head").get_by_text("Create key").click()
    await page.fill("dialog [name=name]", "Typed")
    await page.route("**/keys/new", lambda route: route.abort())
    await page.click("dialog .button-main")
    await expect(page.locator("dialog [role=alert]")).to_contain_text("does not answer")
    await page.unroute("**/keys/new")
    await page.click("dialog summary:has-text('Budget')")
    await page.click("dialog >> text=Add a budget")
    amount = page.locator("dialog [name=budget_amount]")
    await amount.fill("few")
    await amount.press("Enter")
    await expect(page.locator("dialog .wrong")).to_contain_text("one looks like 25")
    await expect(amount).to_be_focused()  # what is wrong, not the first field
    await amount.fill("25")
    await page.click("dialog .button-main")
    await expect(page.locator("#credential")).to_be_visible()
    assert [key.name for key in await place.world.keys.of(actor_of(owner), project.id)] == ["Typed"]


@pytest.mark.full
async def test_times_are_in_the_visitors_zone(lite: World, place: Place) -> None:
    owner = await lite.person(password=PASSWORD)
    project = await lite.project(owner=owner)
    async with window(timezone_id="Asia/Tokyo", locale="en-GB") as page:
        await sign_in(page, root(place), owner)
        await page.goto(f"{root(place)}/projects/{project.id}/audit")
        when = page.locator("tbody time").first
        await when.hover()
        await expect(when).to_have_attribute("title", re.compile(r"21 November 2026.* 21:00:00"))


@pytest.mark.full
async def test_an_hour_of_a_chart_is_the_visitors_wherever_it_stands(
    lite: World, place: Place
) -> None:
    user = await lite.person("amy", password=PASSWORD)
    project = await lite.project(owner=user)
    at = int(lite.now.replace(hour=15).timestamp()) * 1_000_000
    await SqlUsage(lite.database).append([record(project=project.id, user=user.id, at=at)])
    async with window(timezone_id="Asia/Kolkata", locale="en-GB") as page:
        await sign_in(page, root(place), user)
        day = lite.now.date()
        await page.goto(f"{root(place)}/projects/{project.id}/usage?from={day}&to={day}")
        await expect(page.locator(".chart-starts time").first).to_have_text("07:30")
        await page.locator(".chart-column:has(.series-1)").first.hover()
        told = page.locator("#tip")
        await expect(told).to_contain_text("20:30")
        assert "UTC" not in (await told.text_content() or "")
        await expect(page.locator("#main .hint").last).to_contain_text("in UTC")


@pytest.mark.full
async def test_words_about_times_are_in_the_language_of_the_page(place: Place) -> None:
    """However the visitor writes a date: half of a sentence is not said in another language."""
    owner = await place.world.person(password=PASSWORD)
    async with window(locale="de-DE") as page:
        await sign_in(page, root(place), owner)
        await page.goto(f"{root(place)}/profile")
        words = re.compile(r"\b(minutes?|hours?|(yester)?days?|tomorrow|months?|years?)\b")
        await expect(page.locator("time[data-look=ago]").first).to_have_text(words)


@pytest.mark.full
async def test_the_theme_stays_chosen(place: Place, page: Page) -> None:
    await page.goto(f"{root(place)}/sign-in")
    await page.click("[data-theme-switch]")
    await page.goto(f"{root(place)}/link")
    assert await page.evaluate("document.documentElement.dataset.theme") == "dark"


@pytest.mark.full
async def test_the_profile_chooses_theme_and_time_zone(place: Place) -> None:
    person = await place.world.person(password=PASSWORD)
    await place.world.project(owner=person)
    async with window(timezone_id="Europe/Paris", locale="de-DE") as page:
        await sign_in(page, root(place), person)
        await page.goto(f"{root(place)}/profile")
        theme = "document.documentElement.dataset.theme"
        await page.get_by_role("radio", name="Dark").click()
        assert await page.evaluate(theme) == "dark"
        await page.reload()
        assert await page.evaluate(theme) == "dark"
        await expect(page.get_by_role("radio", name="Dark")).to_be_checked()
        await page.get_by_role("radio", name="System").click()
        assert await page.evaluate(f"{theme} ?? null") is None

        since = page.locator("[data-label=Since] time").first
        await expect(since).to_have_text("21 Nov 2026")
        async with page.expect_navigation():
            await page.get_by_label("Time zone", exact=True).click()
            await page.get_by_label("Find a time zone").fill("auckland")
            await page.keyboard.press("Enter")
        zone = page.get_by_label("Time zone", exact=True)
        await expect(zone).to_have_value("Pacific/Auckland")
        await expect(since).to_have_text("22 Nov 2026")


@pytest.mark.full
async def test_activity_follows_its_filters_and_the_requests_that_come(place: Place) -> None:
    person = await place.world.person(password=PASSWORD)
    project = await place.world.project(owner=person)
    usage, now = SqlUsage(place.world.database), int(place.world.now.timestamp()) * 1_000_000

    async def comes(model: str, **more: object) -> None:
        await usage.append([record(project=project.id, model=model, at=now, **more)])

    await comes("small", served_by="north/small-1", app="Robot")
    await comes("thinker", status=429, finish=None)
    async with window(viewport={"width": 1440, "height": 900}) as page:
        await sign_in(page, root(place), person)
        await page.goto(f"{root(place)}/projects/{project.id}/activity")
        rows, models = page.locator("[data-row]"), page.locator("summary .request-model")
        first = page.locator("[data-row]:has(.request-model[title=small])")
        for column in ("Provider", "App", "Tok/s"):
            await expect(page.locator(f"[data-titles] [data-label='{column}']")).to_be_visible()
        await expect(first.locator("[data-label=Provider]")).to_have_text("north")
        await expect(first.locator("[data-label=App]")).to_have_text("Robot")
        await expect(first.locator("[data-label='Tok/s']")).to_have_text("103")

        await page.fill("#filter-model", "think")  # of nobody: nothing matches
        await expect(page.get_by_text("No matching requests")).to_be_visible()
        await page.fill("#filter-model", "thinker")
        await expect(models).to_have_text(["thinker"])
        await expect(page).to_have_url(re.compile(r"\?range=7d&model=thinker$"))
        await expect(page.locator("#actions a[download]")).to_have_attribute(
            "href", re.compile("model=thinker")
        )
        await page.reload()
        await expect(models).to_have_text(["thinker"])
        await page.get_by_role("link", name="Clear", exact=True).click()
        await expect(models).to_have_count(2)
        await page.fill("#filter-status", "42")  # not yet a status
        await page.get_by_label("Failures only").check()
        await expect(models).to_have_count(2)
        await page.fill("#filter-status", "429")
        await expect(models).to_have_text(["thinker"])
        await page.get_by_role("link", name="Clear", exact=True).click()

        await page.get_by_role("link", name="Live").click()
        await expect(page.get_by_role("link", name="Pause")).to_be_visible()
        await comes("newest")
        await expect(models.filter(has_text="newest")).to_be_visible()
        await rows.filter(has_text="newest").locator("summary").click()
        await comes("unseen")  # who reads a request is not disturbed
        await page.wait_for_timeout(4000)
        await expect(models).to_have_count(3)
        await rows.filter(has_text="newest").locator("summary").click()
        await page.locator("#main h1").click()
        await expect(models.filter(has_text="unseen")).to_be_visible()


@pytest.mark.full
async def test_the_navigation_folds_on_a_narrow_screen(place: Place) -> None:
    owner = await place.world.person(password=PASSWORD)
    await place.world.project(owner=owner)
    async with window(viewport={"width": 390, "height": 800}) as page:
        await sign_in(page, root(place), owner)
        await expect(page.locator("nav").first).to_be_hidden()
        await page.click("[data-nav-switch]")
        await page.click("nav >> text=Project")
        await expect(page.locator("#main h1")).to_have_text("Project")
        wider = "document.documentElement.scrollWidth - innerWidth"
        assert await page.evaluate(wider) <= 0


@pytest.mark.full
async def test_long_names_and_large_numbers_stay_in_their_places(place: Place) -> None:
    world, long = place.world, "ANameWithoutAnyBreak" * 4
    owner = await world.person(password=PASSWORD)
    project = await world.project(owner=owner)
    await world.projects.rename(actor_of(owner), project.id, long)
    bounds = LimitsAndBudgets(
        (), tuple(Budget(Decimal(9_000_000), each, model=long) for each in BudgetPeriod)
    )
    key = await world.key(project, owner, name=long, bounds=bounds, models=frozenset({long}))
    at = int(world.now.timestamp()) * 1_000_000
    asked = record(project=project.id, key=key.key.id, at=at, prompt=1_048_576, completion=131_072)
    slow = {"model": long, "duration_us": 754_000_000, "referer": f"https://x.example/{long * 3}"}
    await SqlUsage(world.database).append([structs.replace(asked, **slow)])
    paths = (
        *("keys", "activity", "usage?by=key", f"usage?model={long}", "playground"),
        *("bounds", f"keys/{key.key.id}/delete", f"keys/{key.key.id}"),
    )
    async with window() as page:
        await sign_in(page, root(place), owner)
        for width, path in product((1280, 1030, 390), paths):
            await page.set_viewport_size({"width": width, "height": 800})
            await page.goto(f"{root(place)}/projects/{project.id}/{path}")
            wider = "document.documentElement.scrollWidth - innerWidth"
            assert await page.evaluate(wider) <= 0, (path, width)
            cells = page.locator(".request-line > :is(.number, .request-time), .empty, .checks")
            room = "Math.min(each.clientWidth, each.parentElement.clientWidth)"
            beyond = f"all => all.filter(each => each.scrollWidth > {room})"
            found = await cells.evaluate_all(f"{beyond}.map(each => each.textContent)")
            assert found == [], (path, width)
            if path == "activity" and width == 1280:  # with room to tell who asked
                caller = page.locator(".request-line .request-caller.cut")
                assert await caller.evaluate("each => each.clientWidth") >= 112


@pytest.mark.full
async def test_who_removes_rows_by_the_keyboard_stays_where_they_are(place: Place) -> None:
    owner = await place.world.person(password=PASSWORD, operator=True)
    project = await place.world.project(owner=owner)
    async with window() as page:
        await sign_in(page, root(place), owner)
        await page.goto(f"{root(place)}/projects/{project.id}/bounds")
        add = page.get_by_text("Add a budget")
        for _ in range(2):
            await add.press("Enter")
        rows = page.get_by_role("group", name="Budget", exact=True)
        await rows.first.get_by_text("Remove").press("Enter")
        await expect(rows).to_have_count(1)
        await expect(rows.get_by_text("Remove")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(add).to_be_focused()


@pytest.mark.full
async def test_a_dialog_keeps_what_was_typed_when_the_session_ends(
    place: Place, page: Page
) -> None:
    owner = await place.world.person(password=PASSWORD)
    project = await place.world.project(owner=owner)
    await sign_in(page, root(place), owner)
    await page.goto(f"{root(place)}/projects/{project.id}/keys")
    await page.locator(".page-head").get_by_text("Create key").click()
    await page.fill("dialog [name=name]", "Batch")
    async with place.world.store.writing() as repositories:
        await repositories.sessions.end_all(owner.id)
    await page.click("dialog .button-main")
    await expect(page.locator("dialog h1")).to_have_text("Your session has ended")
    assert "Batch" not in page.url
    async with page.expect_popup() as opened:
        await page.get_by_role("link", name="Sign in").click()
    await sign_in(await opened.value, root(place), owner)
    await page.get_by_role("button", name="Continue").click()
    await expect(page.locator("dialog .note")).to_contain_text("nothing was changed yet")
    await expect(page.locator("dialog [name=name]")).to_have_value("Batch")
    await page.click("dialog .button-main")
    await expect(page.locator("#credential")).to_be_visible()


@pytest.mark.full
async def test_forms_work_without_scripts(place: Place) -> None:
    owner = await place.world.person(password=PASSWORD)
    project = await place.world.project(owner=owner)
    async with window(java_script_enabled=False) as page:
        await at_keys(page, place, owner)
        await page.click("text=Create key")
        await page.fill("[name=name]", "Plain")
        await page.click("summary:has-text('Budget')")
        await page.fill("[name=budget_amount] >> nth=0", "3")
        await page.click("#panel .button-main")
        assert (await page.text_content("#credential") or "").startswith("ck_")
        await page.click("text=Done")
        await expect(page.locator("tbody")).to_contain_text("of $3.00")
        await page.click("nav >> text=Playground")  # which cannot, and says so
        await expect(page.get_by_text("needs JavaScript")).to_be_visible()
        await expect(page.locator("#draft")).to_be_hidden()
    assert len(await place.world.keys.of(actor_of(owner), project.id)) == 1


@pytest.mark.full
async def test_a_form_on_its_way_says_so_and_is_not_sent_twice(place: Place, page: Page) -> None:
    owner = await place.world.person(password=PASSWORD)
    await place.world.project(owner=owner)
    await sign_in(page, root(place), owner)
    await page.goto(f"{root(place)}/profile")
    sent = []
    stopped = asyncio.Event()

    async def stop(route: Route) -> None:
        sent.append(route.request.url)
        stopped.set()
        await route.abort("aborted")  # so the page stays as it is while a form is on its way

    await page.route("**/profile/name", stop)
    await page.fill("[name=name]", "Ada")
    save = page.get_by_role("button", name="Save")
    await save.click()
    await expect(page.locator("form[aria-busy=true]")).to_have_count(1)
    await stopped.wait()
    await save.click()
    await page.unroute("**/profile/name")
    await page.reload()
    await page.fill("[name=name]", "Ada")
    await save.click()
    await expect(page.locator(".toast")).to_be_visible()
    await expect(page.locator("form[aria-busy=true]")).to_have_count(0)
    assert len(sent) == 1


@pytest.mark.full
async def test_keys_are_enough(place: Place, page: Page) -> None:
    owner = await place.world.person(password=PASSWORD)
    project = await place.world.project(owner=owner)
    await place.world.key(project, owner, name="Old")
    await at_keys(page, place, owner)
    press = page.keyboard.press
    await press("Tab")
    await expect(page.locator(".skip")).to_be_focused()
    await page.locator("table summary").focus()
    await press("Enter")
    await press("Tab")
    await expect(page.locator(".menu-list a").filter(has_text="Edit")).to_be_focused()
    await press("Escape")
    await expect(page.locator("table summary")).to_be_focused()
    await press("Enter")
    await press("Tab")
    await press("Enter")
    await expect(page.locator("dialog [name=name]")).to_have_value("Old")
    await press("Escape")
    await expect(page.locator("dialog")).to_be_hidden()
