"""The playground in a real browser: streaming, thinking, stopping, tools, schemas, code."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator

import pytest
from browserkit import findings, sign_in, window
from consolekit import Place
from edgekit import HELLO, ScriptedPipeline
from pageskit import LONG, Shop, Team, entry, with_history
from playwright.async_api import Page, expect

from causerie.errors import RateLimited
from causerie.protocol.events import (
    Event,
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)
from causerie.protocol.request import ImagePart

DOT = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c636060606000000005000157cfa2e50000000049454e44ae426082"
)
CALL: tuple[Event, ...] = (
    ToolCallStarted(0, "call_1", "weather"),
    ToolCallDelta(0, '{"city":'),
    ToolCallDelta(0, '"Oslo"}'),
    Finished("tool_calls"),
    Usage(prompt=30, completion=9),
)
TOOLS = json.dumps([{"type": "function", "function": {"name": "weather"}}])


def said(text: str) -> tuple[Event, ...]:
    return (TextDelta(text), Finished("stop"), Usage(prompt=7, completion=12))


def pipeline(shop: Place) -> ScriptedPipeline:
    return shop.service_view.pipeline


@pytest.fixture
async def page(shop: Place, team: Team) -> AsyncIterator[Page]:
    """The playground, open."""
    async with window() as opened:
        root = f"http://127.0.0.1:{shop.port}/console"
        await sign_in(opened, root, team.owner)
        await opened.goto(f"{root}{team.path}/playground")
        yield opened


async def ask(page: Page, text: str) -> None:
    await page.fill("#draft", text)
    await page.keyboard.press("Enter")


async def test_an_answer_streams_in_with_its_thinking(page: Page, shop: Place) -> None:
    thinks, writes = asyncio.Event(), asyncio.Event()
    pipeline(shop).script = (
        ReasoningDelta("Let me *see*"),
        thinks,
        TextDelta("**Hel"),
        writes,
        TextDelta("lo**"),
        Finished("stop"),
        Usage(prompt=1234, completion=56, reasoning=7),
    )
    await ask(page, "Hi there")
    turn = page.locator(".turn-assistant")
    await expect(turn.locator("[data-is=state]")).to_have_text("Thinking")
    await expect(turn.locator(".thought")).to_have_attribute("open", "")
    await expect(turn.locator(".thought em")).to_have_text("see")
    thinks.set()
    await expect(turn.locator("[data-is=state]")).to_have_text("Writing")
    await expect(turn.locator(".thought")).not_to_have_attribute("open", "")
    await expect(page.locator("#stop")).to_be_visible()
    writes.set()
    await expect(turn.locator("> .prose strong")).to_have_text("Hello")
    facts = turn.locator(".turn-facts")
    await expect(facts).to_contain_text("1,234 in")
    await expect(facts).to_contain_text("56 output (7 thinking)")
    await expect(page.locator("#send")).to_be_visible()
    [request] = pipeline(shop).requests
    assert request.stream
    assert request.include_usage
    pipeline(shop).script = said("Again")
    await ask(page, "More")
    await expect(page.locator(".turn-assistant").nth(1)).to_contain_text("Again")
    roles = [message.role for message in pipeline(shop).requests[1].messages]
    assert roles == ["user", "assistant", "user"]


@pytest.mark.full
async def test_stop_ends_the_generation(page: Page, shop: Place) -> None:
    pipeline(shop).script = (TextDelta("One, two, "), asyncio.Event(), TextDelta("three"))
    await ask(page, "Count")
    await expect(page.locator(".turn-assistant > .prose")).to_have_text("One, two,")
    assert not pipeline(shop).released.is_set()
    await page.click("#stop")
    async with asyncio.timeout(60):
        await pipeline(shop).released.wait()
    await expect(page.locator(".turn-assistant [data-is=state]")).to_have_text("Stopped")
    await expect(page.locator("#send")).to_be_visible()


@pytest.mark.full
async def test_leaving_the_page_ends_it_too(page: Page, shop: Place) -> None:
    pipeline(shop).script = (TextDelta("One"), asyncio.Event())
    await ask(page, "Count")
    await expect(page.locator(".turn-assistant > .prose")).to_have_text("One")
    await page.goto("about:blank")
    async with asyncio.timeout(60):
        await pipeline(shop).released.wait()


async def test_what_a_model_says_never_runs(page: Page, shop: Place) -> None:
    nasty = (
        "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script> "
        "[click](javascript:document.title='owned') ![p](https://evil.example/p.png) "
        "<style>*{display:none}</style>\n\n| <b>a</b> |\n|---|\n| <i>b</i> |\n\n"
        "```html\n<b>c</b>\n```"
    )
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    pipeline(shop).script = (ReasoningDelta(nasty), *said(nasty))
    await ask(page, nasty)
    prose = page.locator(".turn-assistant > .prose")
    await expect(prose).to_contain_text("<img src=x")
    await expect(prose.locator("pre code")).to_have_text("<b>c</b>")
    assert await page.locator(".turn").locator("img, script, style, b, i").count() == 0
    links = await page.locator(".turn a").evaluate_all("all => all.map((a) => a.protocol)")
    assert set(links) <= {"https:", "http:"}
    assert not any("evil" in url for url in asked)
    assert await page.title() == "Playground · Causerie"


@pytest.mark.full
async def test_tool_calls_are_answered_by_hand(page: Page, shop: Place) -> None:
    pipeline(shop).script = CALL
    await page.get_by_text("Tools", exact=True).click()
    await page.fill("[name=tools]", TOOLS)
    await page.select_option("[name=tool_choice]", label="weather")
    await ask(page, "Weather in Oslo?")
    call = page.locator(".call")
    await expect(call.locator("code")).to_have_text("weather")
    await expect(call.locator("pre")).to_contain_text('"city": "Oslo"')
    await expect(page.locator("#draft")).to_be_disabled()
    pipeline(shop).script = said("Rain.")
    await call.locator("textarea").fill("12 degrees, rain")
    await page.click("[data-do=answer] >> visible=true")
    await expect(page.locator(".turn-assistant").nth(1)).to_contain_text("Rain.")
    messages = pipeline(shop).requests[1].messages
    assert [message.role for message in messages] == ["user", "assistant", "tool"]
    assert pipeline(shop).requests[0].params >= {"tools", "tool_choice"}
    await expect(page.locator("#draft")).to_be_enabled()


@pytest.mark.full
async def test_a_schema_is_checked_and_told(page: Page, shop: Place) -> None:
    await page.get_by_text("Response format").click()
    await page.check("[name=format][value=json_schema]")
    await page.fill("[name=schema]", "{ not json")
    await expect(page.locator("#schema-wrong")).to_contain_text("not JSON")
    await ask(page, "Answer")
    assert pipeline(shop).requests == []
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    await page.fill("[name=schema]", json.dumps(schema))
    await expect(page.locator("#schema-wrong")).to_be_hidden()
    pipeline(shop).script = said('{"n": 1}')
    await page.locator("#send").click()
    await expect(page.locator("[data-is=verdict]")).to_contain_text("fits the schema")
    pipeline(shop).script = said('{"n": "one"}')
    await ask(page, "Again")
    wrong = page.locator("[data-is=verdict]").nth(1)
    await expect(wrong).to_contain_text("does not fit")
    await expect(wrong.locator("li")).to_have_text("/n is string, not integer")


@pytest.mark.full
async def test_a_refusal_is_shown_and_can_be_tried_again(page: Page, shop: Place) -> None:
    pipeline(shop).prefill = [
        RateLimited("The project may make 60 requests per minute. `n` counts.")
    ]
    await ask(page, "Hi")
    alert = page.locator(".turn-assistant [role=alert]")
    await expect(alert.locator("[data-is=message] code")).to_have_text("n")
    await expect(alert).not_to_contain_text("`")
    await expect(alert).to_contain_text("The project may make 60 requests per minute.")
    await expect(alert).to_contain_text("requests · status 429")
    await expect(page.locator(".turn-assistant [data-do=copy]")).to_be_hidden()  # of nothing
    pipeline(shop).prefill = ()
    pipeline(shop).script = HELLO
    await page.locator("[data-do=again]").click()
    await expect(page.locator(".turn-assistant > .prose")).to_have_text("Hello")
    assert await page.locator(".turn").count() == 2


@pytest.mark.full
async def test_settings_that_cannot_be_sent_take_nothing_away(page: Page, shop: Place) -> None:
    pipeline(shop).script = said("First.")
    await ask(page, "One")
    turn, again = page.locator(".turn-assistant").last, page.locator("[data-do=again]").last
    await expect(again).to_be_visible()
    await page.fill("[name=temperature]", "9")
    await again.click()
    await expect(turn).to_contain_text("First.")
    await page.fill("[name=temperature]", "")
    pipeline(shop).script = CALL
    await again.click()
    await page.fill(".call textarea", "rain")
    await page.fill("[name=temperature]", "9")
    await page.click("[data-do=answer]")
    await page.fill("[name=temperature]", "")
    pipeline(shop).script = said("It rains.")
    await page.click("[data-do=answer]")
    await expect(page.locator(".turn-assistant").last).to_contain_text("It rains.")


@pytest.mark.full
async def test_an_answer_that_breaks_off_says_so(page: Page, shop: Place) -> None:
    pipeline(shop).script = (TextDelta("Half"), RateLimited("It broke."))
    await ask(page, "Hi")
    await expect(page.locator(".turn-assistant > .prose")).to_have_text("Half")
    await expect(page.locator(".turn-assistant [role=alert]")).to_contain_text("It broke.")


@pytest.mark.full
async def test_settings_follow_the_model(page: Page, shop: Place) -> None:
    await page.fill("[name=temperature]", "0.3")
    await page.fill("[name=seed]", "7")
    await page.select_option("[name=model]", LONG)
    await expect(page.locator("[data-part=thinking]")).to_be_hidden()  # it does not think
    await page.select_option("[name=model]", "small")
    await page.check("[name=thinking][value=on]")
    await page.select_option("[name=effort]", "low")
    await page.fill("[name=system]", "Be brief.")
    pipeline(shop).script = HELLO
    await ask(page, "Hi")
    await expect(page.locator(".turn-assistant > .prose")).to_have_text("Hello")
    [first] = pipeline(shop).requests
    assert (first.sampling.temperature, first.sampling.seed) == (0.3, 7)
    assert first.thinking.effort == "low"
    assert [message.role for message in first.messages] == ["system", "user"]
    await page.select_option("[name=model]", "thinker")
    await expect(page.locator("[name=thinking][value=off]")).to_be_disabled()
    await page.select_option("[name=model]", LONG)
    await expect(page.locator("[name=seed]")).to_be_disabled()
    await expect(page.locator("[name=temperature]")).to_be_enabled()
    await ask(page, "Again")
    await expect(page.locator(".turn-assistant").nth(1)).to_contain_text("Hello")
    second = pipeline(shop).requests[1]
    assert second.model == LONG
    assert second.params.isdisjoint({"seed", "chat_template_kwargs", "reasoning_effort"})


@pytest.mark.full
async def test_code_says_what_is_asked(page: Page, shop: Place) -> None:
    await page.fill("[name=temperature]", "0.5")
    await page.fill("#draft", "What's up?")
    await page.click("#show-code")
    code = page.locator("#code-chat-curl")
    await expect(code).to_contain_text(f"http://127.0.0.1:{shop.port}/hosted/v1/chat/completions")
    await expect(code).to_contain_text('"temperature": 0.5')
    await page.get_by_role("tab", name="Python").click()
    await expect(page.locator("#code-chat-python")).to_contain_text("What's up?")
    await expect(code).to_be_hidden()
    await page.get_by_role("tab", name="Responses").click()
    await expect(page.locator("#code-responses-python")).to_contain_text("responses.create")
    await page.click("#close-code")
    await expect(page.locator("#code")).to_be_hidden()


@pytest.mark.full
async def test_arrow_keys_go_from_one_language_to_the_next(page: Page) -> None:
    await page.click("#show-code")
    tabs = page.get_by_role("tablist", name="Language").get_by_role("tab")
    await tabs.first.focus()
    for key, name in (
        *(("ArrowRight", "Python"), ("End", "JavaScript"), ("ArrowRight", "curl")),
        *(("ArrowLeft", "JavaScript"), ("Home", "curl"), ("ArrowRight", "Python")),
    ):
        await page.keyboard.press(key)
        tab = page.get_by_role("tab", name=name)
        await expect(tab).to_be_focused()
        await expect(tab).to_have_attribute("aria-selected", "true")
        await expect(page.get_by_role("tabpanel", name=name)).to_be_visible()
        await expect(page.get_by_role("tabpanel")).to_have_count(2)  # one is in the API's
    await page.keyboard.press("Tab")  # the others are passed by
    await expect(page.locator("#code-chat-python")).to_be_focused()


@pytest.mark.full
async def test_a_conversation_is_still_there_after_another_page(page: Page, shop: Place) -> None:
    pipeline(shop).script = HELLO
    await ask(page, "Hi")
    await expect(page.locator(".turn-assistant > .prose")).to_have_text("Hello")
    link = page.locator(".turn-assistant [data-is=request]")
    await expect(link).to_have_attribute("href", re.compile(r"activity\?request_id="))
    await expect(page.locator("#send")).to_be_visible()  # the reply has ended, and is kept
    await page.reload()
    await expect(page.locator(".turn-user")).to_have_text("Hi")
    await expect(page.locator(".turn-assistant > .prose")).to_have_text("Hello")
    await page.click("#clear")
    await page.reload()
    await expect(page.locator("#empty")).to_be_visible()


@pytest.mark.full
async def test_other_pages_work_in_a_browser(shop: Place, team: Team) -> None:
    await with_history(shop.world, team)
    root = f"http://127.0.0.1:{shop.port}/console"
    async with window(viewport={"width": 390, "height": 844}) as page:
        await sign_in(page, root, team.owner)
        for name in ("usage", "activity", "models", "playground"):
            await page.goto(f"{root}{team.path}/{name}")
            wide = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, f"{name} is wider than the window"
        await page.goto(f"{root}{team.path}/activity?failures=yes")
        request = page.locator("details.request").first
        await request.locator("summary").click()
        await expect(request.get_by_text("Providers tried")).to_be_visible()
        await page.goto(f"{root}{team.path}/models")
        async with page.expect_response(lambda each: "/models/states" in each.url):
            shop.service_view.values = []
        await expect(page.locator(".standings").get_by_text("not known").first).to_be_visible()
        await page.click("a[href$='playground?model=thinker']")
        await expect(page.locator("[name=model]")).to_have_value("thinker")


@pytest.mark.full
async def test_empty_fields_show_the_defaults_of_the_model(page: Page) -> None:
    names = ("temperature", "top_k", "min_p")
    temperature, top_k, min_p = (page.locator(f"#setting-{name}") for name in names)
    await page.select_option("#model", "small")
    for field in (temperature, top_k, min_p):
        await expect(field).to_have_attribute("placeholder", "default")
    await page.select_option("#model", "thinker")
    await expect(temperature).to_have_attribute("placeholder", "0.6")
    await expect(top_k).to_have_attribute("placeholder", "20")
    await expect(min_p).to_have_attribute("placeholder", "0")
    await expect(page.locator("#setting-presence_penalty")).to_have_attribute("placeholder", "0")


@pytest.mark.full
async def test_a_reply_has_its_cost_and_a_link_carries_settings(page: Page, shop: Place) -> None:
    pipeline(shop).script = said("Brief.")
    await page.select_option("#model", "thinker")
    await ask(page, "Hi")
    turn = page.locator(".turn-assistant")
    await expect(turn.locator("footer")).to_contain_text("$0.00000825")
    await page.fill("[name=system]", "Be brief & kind.")
    await page.fill("[name=temperature]", "0.5")
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.click("#share")
    await expect(page.locator("#share")).to_contain_text("Link copied")
    link = await page.evaluate("navigator.clipboard.readText()")
    assert "Hi" not in link.partition("#")[2]
    other = await page.context.new_page()
    await other.goto(link)
    await expect(other.locator("[name=system]")).to_have_value("Be brief & kind.")
    await expect(other.locator("[name=temperature]")).to_have_value("0.5")
    await expect(other.locator("#model")).to_have_value("thinker")
    assert "#" not in other.url
    again = await page.context.new_page()  # knows nothing but which model was asked last
    await again.goto(other.url)
    await expect(again.locator("#model")).to_have_value("thinker")
    await expect(again.locator("[name=system]")).to_have_value("")


@pytest.mark.full
async def test_settings_are_kept_as_presets(page: Page) -> None:
    await page.select_option("#model", "thinker")
    await page.fill("[name=system]", "Be brief.")
    await page.fill("[name=temperature]", "0.5")
    presets = page.locator("#presets")
    await presets.locator("summary").click()
    await page.get_by_label("Save these settings as").fill("Brief")
    await presets.get_by_role("button", name="Save").click()
    await page.select_option("#model", "small")
    await page.fill("[name=system]", "Tell all.")
    await page.fill("[name=temperature]", "")
    await page.fill("[name=seed]", "7")
    await page.reload()
    await expect(page.locator("[name=system]")).to_have_value("Tell all.")

    await presets.locator("summary").click()
    await presets.get_by_role("button", name="Brief", exact=True).click()
    await expect(page.locator("#model")).to_have_value("thinker")
    await expect(page.locator("[name=system]")).to_have_value("Be brief.")
    await expect(page.locator("[name=temperature]")).to_have_value("0.5")
    await expect(page.locator("[name=seed]")).to_have_value("")
    assert await findings(page) == []

    await presets.locator("summary").click()
    await presets.get_by_role("button", name="Delete Brief").click()
    await expect(page.locator(".toast")).to_contain_text("The preset Brief was deleted.")
    await page.get_by_role("button", name="Undo").click()
    await presets.locator("summary").click()
    await expect(presets.get_by_role("button", name="Brief", exact=True)).to_be_visible()
    await presets.get_by_role("button", name="Delete Brief").click()
    await page.reload()
    await presets.locator("summary").click()
    await expect(presets.locator("li")).to_have_count(0)


@pytest.mark.full
async def test_two_models_reply_beside_each_other(page: Page, shop: Place) -> None:
    pipeline(shop).script = said("The same.")
    await page.select_option("#model", "small")
    await page.select_option("#beside", "thinker")
    await ask(page, "Hi")
    pair = page.locator(".duo > .turn-assistant")
    await expect(pair).to_have_count(2)
    await expect(pair.nth(0).locator("[data-is=model]")).to_have_text("small")
    await expect(pair.nth(1).locator("[data-is=model]")).to_have_text("thinker")
    await expect(pair.nth(1).locator("footer")).to_contain_text("$0.00000825")
    await page.select_option("#beside", "")
    await ask(page, "And again?")
    third = page.locator(".turn-assistant").nth(2)
    await expect(third.locator("[data-is=text]")).to_have_text("The same.")
    sent = [len(request.messages) for request in pipeline(shop).requests]
    assert sent == [1, 1, 3]  # the second model's reply is no part of the conversation
    asked = [request.model for request in pipeline(shop).requests]
    assert (sorted(asked[:2]), asked[2]) == (["small", "thinker"], "small")  # at the same time


@pytest.mark.full
async def test_four_models_reply_beside_each_other_to_an_image(page: Page, shop: Place) -> None:
    seen = {"input_modalities": ["text", "image"], "output_modalities": ["text"]}
    assert isinstance(shop.service_view, Shop)
    shop.service_view.entries += [entry("eyes", architecture=seen)]
    await page.reload()
    pipeline(shop).script = said("A dot.")
    dot = {"name": "dot.png", "mimeType": "image/png", "buffer": DOT}
    await page.select_option("#model", "small")
    await page.set_input_files("#file", [dot])
    await expect(page.locator(".toast")).to_contain_text("takes no pictures")
    await page.select_option("#model", "eyes")
    await page.set_input_files("#file", [dot])
    await expect(page.locator("#attachments img")).to_have_js_property("naturalWidth", 1)
    await ask(page, "What is this?")
    await expect(page.locator(".turn-assistant > .prose")).to_have_text("A dot.")
    [message] = pipeline(shop).requests[0].messages
    assert isinstance(message.content, tuple)
    assert isinstance(message.content[1], ImagePart)
    await expect(page.locator(".turn-user img")).to_be_visible()
    await page.click("#clear")
    others = ("small", "thinker", LONG)
    await expect(page.locator("#third")).to_be_hidden()
    for field, model in zip(("#beside", "#third", "#fourth"), others, strict=True):
        await page.select_option(field, model)
    pipeline(shop).requests.clear()
    await ask(page, "And this?")
    await expect(page.locator(".duo > .turn-assistant > .prose")).to_have_text(["A dot."] * 4)
    assert {each.model for each in pipeline(shop).requests} == {"eyes", *others}
    assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert await findings(page) == []


@pytest.mark.full
async def test_an_edited_message_keeps_its_former_version(page: Page, shop: Place) -> None:
    pipeline(shop).script = said("First.")
    await ask(page, "One")
    mine, prose = page.locator(".turn-user"), page.locator(".turn-assistant > .prose")
    await expect(prose).to_have_text("First.")
    await expect(page.locator("#send")).to_be_visible()
    await mine.hover()
    await mine.locator("[data-do=edit]").click()
    pipeline(shop).script = said("Second.")
    await page.keyboard.type(" more")
    await page.keyboard.press("Enter")
    await expect(prose).to_have_text("Second.")
    await expect(page.locator("#send")).to_be_visible()
    await page.reload()
    await mine.get_by_role("button", name="Previous version").click()
    await expect(prose).to_have_text("First.")


@pytest.mark.full
async def test_the_palette_opens_on_a_page_that_fetches_its_library_late(page: Page) -> None:
    await page.keyboard.press("Control+k")
    await expect(page.locator("dialog #palette-find")).to_be_focused()
