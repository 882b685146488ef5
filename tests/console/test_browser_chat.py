"""The chat page in a real browser: conversations that stay, two models, files, keys, keyboard."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from browserkit import findings, window
from edgekit import KEY, LOCKED, ScriptedPipeline
from frontkit import ENTRIES, THINKER, Front, entry, front
from playwright.async_api import Page, expect

from causerie.protocol.events import (
    Event,
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)
from causerie.protocol.request import ImagePart, TextPart

DOT = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c636060606000000005000157cfa2e50000000049454e44ae426082"
)
CALL: tuple[Event, ...] = (
    ToolCallStarted(0, "call_1", "weather"),
    ToolCallDelta(0, '{"city": "Oslo"}'),
    Finished("tool_calls"),
)


def said(text: str) -> tuple[Event, ...]:
    return (TextDelta(text), Finished("stop"), Usage(prompt=7, completion=12))


@pytest.fixture
async def service() -> AsyncIterator[Front]:
    async with front() as found:
        yield found


@pytest.fixture
async def page(service: Front) -> AsyncIterator[Page]:
    async with window(viewport={"width": 1440, "height": 900}) as opened:
        await opened.goto(service.root)
        await expect(opened.locator("#send")).to_be_enabled()
        yield opened


async def ask(page: Page, text: str, pipeline: ScriptedPipeline, answer: str) -> None:
    pipeline.script = said(answer)
    await page.fill("#draft", text)
    await page.keyboard.press("Enter")
    await expect(page.locator(".turn-assistant").last).to_contain_text(answer)
    await expect(page.locator("#send")).to_be_visible()


async def test_chats_stay_and_are_found_renamed_and_deleted(page: Page, service: Front) -> None:
    pipeline = service.pipeline
    await ask(page, "What is a fjord?", pipeline, "A drowned valley.")
    await page.click("#new")
    await ask(page, "Name a river.", pipeline, "The Glomma.")
    chats = page.locator("#chats a")
    await expect(chats).to_have_text(["Name a river.", "What is a fjord?"])
    await page.reload()
    await expect(page.locator(".turn")).to_have_count(2)
    await page.keyboard.press("Control+k")
    await page.keyboard.type("drowned")  # what the model said is searched, too
    await expect(chats).to_have_text(["What is a fjord?"])
    await chats.click()
    await expect(page.locator(".turn-assistant > .prose")).to_have_text("A drowned valley.")
    await page.click("#chat-menu summary")
    await page.click("#rename")
    await page.keyboard.type("Fjords")
    await page.keyboard.press("Enter")
    await expect(page.locator("#title")).to_have_text("Fjords")
    await page.click("#chat-menu summary")
    await page.click("#delete")
    await expect(chats).to_have_count(0)
    await page.click(".toast button")
    await page.fill("#search", "")
    await expect(chats).to_have_text(["Name a river.", "Fjords"])


async def test_a_message_is_edited_and_what_followed_it_goes(page: Page, service: Front) -> None:
    await ask(page, "One", service.pipeline, "First.")
    await ask(page, "Two", service.pipeline, "Second.")
    await page.locator(".turn-user").first.hover()
    await page.locator(".turn-edit").first.click()
    service.pipeline.script = said("Anew.")
    await page.keyboard.press("End")
    await page.keyboard.type(" more")
    await page.keyboard.press("Enter")
    await expect(page.locator(".turn-assistant > .prose")).to_have_text("Anew.")
    await expect(page.locator(".turn-user .said")).to_have_text(["One more"])
    [message] = service.pipeline.requests[-1].messages
    assert message.content == "One more"
    await page.click("[data-do=again] >> visible=true")
    await expect(page.locator(".turn-assistant > .prose")).to_have_text("Anew.")
    assert await page.locator(".turn").count() == 2


@pytest.mark.full
async def test_two_models_answer_beside_each_other(page: Page, service: Front) -> None:
    thinking = page.locator("[data-part=thinking]")
    await expect(thinking).to_be_hidden()
    service.pipeline.entries = [entry("small", "max_tokens", 8192, thinks=None), *ENTRIES[1:]]
    await page.reload()
    await expect(thinking).to_be_enabled()  # nobody knows before the model has been loaded
    service.pipeline.script = (asyncio.Event(),)
    await page.fill("#draft", "Hi")
    await page.keyboard.press("Enter")
    state = page.locator(".turn-assistant [data-is=state]")
    await expect(state).to_contain_text("Loading the model")
    await page.keyboard.press("Escape")
    await expect(state).to_have_text("Stopped")
    await page.click("#new")
    service.pipeline.entries = ENTRIES
    await ask(page, "Hi", service.pipeline, "Hello.")
    await expect(thinking).to_be_hidden()
    await page.click("#compare")
    panes = page.locator(".pane")
    await expect(panes.nth(1).locator(".turn")).to_have_count(2)
    await expect(panes.nth(1).locator("[data-is=abilities] li")).to_have_text(
        ["tools", "thinking", "images", "40,960 tokens of context"]
    )
    service.pipeline.script = said("Both.")
    await page.fill("#draft", "And you?")
    await page.keyboard.press("Enter")
    await expect(page.locator(".turn-assistant > .prose")).to_have_text(
        ["Hello.", "Both.", "Hello.", "Both."]
    )
    asked = service.pipeline.requests[-2:]
    assert {each.model for each in asked} == {"small", THINKER}
    assert [len(each.messages) for each in asked] == [3, 3]
    assert await findings(page) == []
    await expect(page.locator("#send")).to_be_visible()  # both replies are kept
    await page.reload()
    await expect(page.locator(".pane .turn")).to_have_count(8)


@pytest.mark.full
async def test_a_page_that_closes_keeps_what_has_come_of_a_reply(
    page: Page, service: Front
) -> None:
    service.pipeline.script = (TextDelta("One, two"), asyncio.Event())
    await page.fill("#draft", "Count")
    await page.keyboard.press("Enter")
    await expect(page.locator(".turn-assistant > .prose")).to_have_text("One, two")
    await page.reload()
    await expect(page.locator(".turn-assistant > .prose")).to_have_text("One, two")
    await expect(page.locator(".turn-assistant [data-is=state]")).to_have_text("Stopped")


@pytest.mark.full
async def test_typing_goes_on_while_a_reply_streams_and_escape_stops_it(
    page: Page, service: Front
) -> None:
    thought = (ReasoningDelta("Let me **see**."), TextDelta("One, "), asyncio.Event())
    service.pipeline.script = thought
    await page.select_option("#model", THINKER)
    await page.fill("#draft", "Count")
    await page.keyboard.press("Enter")
    await expect(page.locator(".turn-assistant > .prose")).to_have_text("One,")
    await expect(page.locator(".thought strong")).to_be_hidden()  # folded
    await page.keyboard.type("next thing")
    await page.keyboard.press("Enter")  # sends nothing while a reply runs
    await expect(page.locator("#draft")).to_have_value("next thing")
    await page.keyboard.press("Escape")
    async with asyncio.timeout(10):
        await service.pipeline.released.wait()
    await expect(page.locator(".turn-assistant [data-is=state]")).to_have_text("Stopped")


@pytest.mark.full
async def test_files_go_with_a_message_where_the_model_takes_them(
    page: Page, service: Front
) -> None:
    picture = {"name": "dot.png", "mimeType": "image/png", "buffer": DOT}
    text = {"name": "a.py", "mimeType": "text/x-python", "buffer": b"print(1)\n"}
    await page.set_input_files("#file", [picture])
    await expect(page.locator(".toast")).to_contain_text("takes no pictures")
    await page.select_option("#model", THINKER)
    await page.set_input_files("#file", [picture, text])
    await expect(page.locator("#attachments li")).to_have_count(2)
    await ask(page, "What is this?", service.pipeline, "A dot.")
    [message] = service.pipeline.requests[-1].messages
    assert isinstance(message.content, tuple)
    words, image = message.content
    assert isinstance(words, TextPart)
    assert isinstance(image, ImagePart)
    assert words.text == "a.py:\n```\nprint(1)\n```\n\nWhat is this?"
    assert image.url.startswith("data:image/png;base64,")
    await page.reload()
    await expect(page.locator(".turn-images img")).to_have_js_property("naturalWidth", 1)


@pytest.mark.full
async def test_a_chat_goes_to_a_file_and_comes_back(page: Page, service: Front) -> None:
    service.pipeline.script = CALL
    suggested = page.locator(".suggestions button:visible")
    await expect(suggested).to_have_count(4)
    await expect(page.get_by_role("button", name="Read a picture")).to_be_hidden()  # not this model
    await suggested.filter(has_text="Call a function").press("Enter")
    await page.fill(".call textarea", "rain")
    [tool] = service.pipeline.requests[-1].tools
    assert tool.name == "weather"
    service.pipeline.script = said("It rains.")
    await page.click("[data-do=answer]")
    await expect(page.locator(".turn-assistant").last).to_contain_text("It rains.")
    await page.click("#chat-menu summary")
    async with page.expect_download() as saved:
        await page.click("#save")
    path = await (await saved.value).path()
    await page.click("#chat-menu summary")
    await page.click("#delete")
    await page.set_input_files("#import-file", path)
    await page.click("#chats a")
    await expect(page.locator(".call pre")).to_contain_text("Oslo")
    await expect(page.locator(".turn-assistant").last).to_contain_text("It rains.")
    kind = json.loads(path.read_text())["kind"]
    broken = {"kind": kind, "version": 1, "conversations": [{"panes": [[{"said": 5}]]}]}
    await page.set_input_files(
        "#import-file",
        {"name": "b.json", "mimeType": "application/json", "buffer": json.dumps(broken).encode()},
    )
    await expect(page.locator(".toast").last).to_contain_text("b.json: The file is damaged")


@pytest.mark.full
async def test_a_door_that_wants_a_key_gets_it_from_the_visitor() -> None:
    async with front(LOCKED) as locked, window(viewport={"width": 390, "height": 844}) as page:
        await page.goto(locked.root)
        await expect(page.locator("#key")).to_be_visible()
        await expect(page.locator("#send")).to_be_disabled()
        await page.fill("#key-text", "ck_wrong")
        await page.keyboard.press("Enter")
        await expect(page.locator("#key-wrong")).to_be_visible()
        await page.fill("#key-text", KEY)
        await page.keyboard.press("Enter")
        await expect(page.locator("#key")).to_be_hidden()
        await ask(page, "Hi", locked.pipeline, "Hello.")
        wide = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0
        assert await findings(page) == []
        await page.click("#show-code")
        await expect(page.locator("#code-chat-curl")).to_contain_text(f"{locked.root}/v1/chat")
        await expect(page.locator("#code-chat-curl")).not_to_contain_text(KEY)
