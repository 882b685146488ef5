"""The chat page in a real browser: conversations that stay, two models, files, keys, keyboard."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from browserkit import findings, window
from edgekit import KEY, LOCKED, ScriptedPipeline
from frontkit import ENTRIES, THINKER, Front, entry, front
from msgspec import structs
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


@pytest.mark.full
async def test_a_message_is_edited_and_what_followed_it_goes(page: Page, service: Front) -> None:
    await ask(page, "One", service.pipeline, "First.")
    await ask(page, "Two", service.pipeline, "Second.")
    await page.locator(".turn-user").first.hover()
    await page.locator("[data-do=edit]").first.click()
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
    await expect(page.locator(".turn-files img")).to_have_js_property("naturalWidth", 1)
    unread = structs.replace(ENTRIES[0].architecture, evidence="unknown")
    service.pipeline.entries = [structs.replace(ENTRIES[0], architecture=unread), *ENTRIES[1:]]
    await page.reload()
    await page.click("#new")
    await page.select_option("#model", "small")  # the service says whether it does, once loaded
    await page.set_input_files("#file", [picture])
    await expect(page.locator("#attachments img")).to_have_count(1)


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
        await expect(page.locator("#key-text")).to_be_focused()
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


WRITTEN = r"""# One

Costs $5 and $6, and \(a^2\) is so[^1].

$$
\frac{1}{2}
$$

### Three

| Fruit | Price | Origin | Remarks |
|---|---|---|---|
| Banana | $0.0631125 | Netherlands | Unverzüglichkeitsbescheinigung |

- [x] done
- [ ] open

```py
def double(n: int) -> int:
    return 2 * n  # twice
```

[^1]: By Pythagoras.
"""


def pdf(words: str) -> bytes:
    """The smallest file with a page that shows these words."""
    drawn = f"BT /F1 12 Tf 20 100 Td ({words}) Tj ET"
    objects = (
        "<</Type /Catalog /Pages 2 0 R>>",
        "<</Type /Pages /Kids [3 0 R] /Count 1>>",
        "<</Type /Page /Parent 2 0 R /MediaBox [0 0 200 200] /Contents 4 0 R "
        "/Resources <</Font <</F1 <</Type /Font /Subtype /Type1 /BaseFont /Helvetica>> >> >> >>",
        f"<</Length {len(drawn)}>>\nstream\n{drawn}\nendstream",
    )
    parts = [f"{n} 0 obj\n{each}\nendobj\n" for n, each in enumerate(objects, 1)]
    return ("%PDF-1.4\n" + "".join(parts) + "trailer <</Root 1 0 R>>\n%%EOF").encode()


async def hidden(page: Page) -> float:
    """How far the page can be scrolled to the side, in pixels."""
    return float(await page.evaluate("document.documentElement.scrollWidth - innerWidth"))


@pytest.mark.full
async def test_code_formulas_tables_tasks_and_notes_of_a_reply(service: Front) -> None:
    async with window(viewport={"width": 390, "height": 844}) as page:
        fetched: list[str] = []
        page.on("request", lambda request: fetched.append(request.url))
        await page.goto(service.root)
        await ask(page, "Hi", service.pipeline, "Plain $5 and $6.")
        assert not any(name in url for url in fetched for name in ("hljs", "temml"))  # on demand
        service.pipeline.script = said(WRITTEN)
        await page.fill("#draft", "Write")
        await page.keyboard.press("Enter")
        prose = page.locator(".turn-assistant > .prose").last
        await expect(prose.locator("math")).to_have_count(2)
        await expect(prose.locator(".formula-display math mfrac")).to_have_count(1)
        await expect(prose.locator("p").first).to_contain_text("Costs $5 and $6, and")
        await expect(prose.locator(".hl-keyword").first).to_have_text("def")
        await expect(prose.locator("pre code")).to_have_text(
            "def double(n: int) -> int:\n    return 2 * n  # twice"
        )
        await expect(prose.locator("h2, h3")).to_have_text(["One", "Three"])
        await expect(prose.get_by_role("img", name="Done:")).to_have_count(1)
        await expect(prose.get_by_role("img", name="To do:")).to_have_count(1)
        await prose.get_by_role("button", name="Footnote 1").click()
        await expect(prose.locator(".footnote")).to_be_in_viewport()
        lines = await prose.locator("td").evaluate_all(
            "all => all.map((cell) => { const range = document.createRange();"
            " range.selectNodeContents(cell); return range.getClientRects().length; })"
        )
        assert lines == [1] * 4  # no word is broken: the table scrolls
        scrolls = "each => each.scrollWidth > each.clientWidth"
        assert await prose.locator(".table-scroll").evaluate(scrolls)
        assert await hidden(page) <= 0
        assert await findings(page) == []
        service.pipeline.script = said('{"a":[1,{"b":null}]}')
        await page.fill("#draft", "JSON")
        await page.keyboard.press("Enter")
        listing = page.locator(".turn-assistant").last.locator("pre code")
        await expect(listing).to_contain_text('{\n  "a": [\n    1,')
        await expect(listing.locator(".hl-attr").first).to_have_text('"a"')


async def test_versions_of_a_reply_and_of_a_message_stay(page: Page, service: Front) -> None:
    pipeline = service.pipeline
    await ask(page, "One", pipeline, "First.")
    pipeline.script = said("Second.")
    await page.click("[data-do=again] >> visible=true")
    reply = page.locator(".turn-assistant").last
    await expect(reply.locator("> .prose")).to_have_text("Second.")
    await expect(reply.locator("[data-is=nth]")).to_have_text("2/2")
    await reply.get_by_role("button", name="Previous version").click()
    await expect(reply.locator("> .prose")).to_have_text("First.")
    await ask(page, "Two", pipeline, "Third.")
    assert [message.content for message in pipeline.requests[-1].messages] == [
        *("One", "First.", "Two")
    ]
    mine = page.locator(".turn-user").first
    await mine.hover()
    await mine.locator("[data-do=edit]").click()
    pipeline.script = said("Fourth.")
    await page.keyboard.type(" more")
    await page.keyboard.press("Enter")
    prose = page.locator(".turn-assistant > .prose")
    await expect(prose).to_have_text(["Fourth."])
    await expect(page.locator("#send")).to_be_visible()
    await page.reload()
    await mine.get_by_role("button", name="Previous version").click()
    await expect(prose).to_have_text(["First.", "Third."])  # with all that had followed
    await expect(page.locator(".turn-assistant").first.locator("[data-is=nth]")).to_have_text("1/2")
    await mine.get_by_role("button", name="Next version").click()
    await expect(prose).to_have_text(["Fourth."])


@pytest.mark.full
async def test_a_failed_reply_is_no_version(page: Page, service: Front) -> None:
    await ask(page, "One", service.pipeline, "First.")
    service.pipeline.prefill = [RateLimited("Later.")]
    await page.click("[data-do=again] >> visible=true")
    await expect(page.locator(".turn-assistant [role=alert]")).to_contain_text("Later.")
    await page.reload()
    await expect(page.locator(".turn-assistant > .prose")).to_have_text("First.")
    await expect(page.locator(".turn-assistant .versions")).to_have_count(0)


@pytest.mark.full
async def test_one_message_is_deleted_and_comes_back(page: Page, service: Front) -> None:
    await ask(page, "One", service.pipeline, "First.")
    await ask(page, "Two", service.pipeline, "Second.")
    first = page.locator(".turn-assistant").first
    await first.get_by_role("button", name="Delete this reply").click()
    await expect(page.locator(".turn")).to_have_count(3)
    await ask(page, "Three", service.pipeline, "Third.")
    assert [message.content for message in service.pipeline.requests[-1].messages] == [
        *("One", "Two", "Second.", "Three")
    ]
    await page.click(".toast button")
    await expect(page.locator(".turn-assistant > .prose")).to_have_text(
        ["First.", "Second.", "Third."]
    )
    await page.reload()
    await expect(page.locator(".turn")).to_have_count(6)


@pytest.mark.full
async def test_a_reply_goes_on_while_another_chat_is_open(page: Page, service: Front) -> None:
    rest = asyncio.Event()
    slow = (TextDelta("One, "), rest, TextDelta("two."), Finished("stop"))
    service.pipeline.script = slow
    await page.fill("#draft", "Count")
    await page.keyboard.press("Enter")
    await expect(page.locator(".turn-assistant > .prose")).to_have_text("One,")
    await page.click("#new")
    await expect(page.locator(".turn")).to_have_count(0)
    await expect(page.locator("#chats a[data-answering]")).to_have_text("Count")
    await ask(page, "Other", service.pipeline, "At once.")
    rest.set()
    await expect(page.locator("#chats a[data-answering]")).to_have_count(0)
    await page.locator("#chats a", has_text="Count").click()
    await expect(page.locator(".turn-assistant > .prose")).to_have_text("One, two.")
    await expect(page.locator(".turn-assistant [data-is=state]")).to_be_hidden()
    await page.reload()
    await expect(page.locator(".turn-assistant > .prose")).to_have_text("One, two.")


@pytest.mark.full
async def test_a_chat_that_is_deleted_while_its_reply_comes_stays_deleted(
    page: Page, service: Front
) -> None:
    service.pipeline.script = (TextDelta("One, "), asyncio.Event())
    await page.fill("#draft", "Count")
    await page.keyboard.press("Enter")
    await expect(page.locator(".turn-assistant > .prose")).to_have_text("One,")
    await page.click("#chat-menu summary")
    await page.click("#delete")
    async with asyncio.timeout(10):
        await service.pipeline.released.wait()
    await expect(page.locator("#chats a")).to_have_count(0)
    await page.reload()
    await expect(page.locator("#send")).to_be_enabled()
    await expect(page.locator("#chats a")).to_have_count(0)


CONTINUES = "max_tokens continue_final_message add_generation_prompt"


async def test_a_reply_that_was_stopped_is_continued(page: Page, service: Front) -> None:
    service.pipeline.entries = [entry("small", CONTINUES, 8192), *ENTRIES[1:]]
    service.pipeline.script = (TextDelta("One, two"), asyncio.Event())
    await page.reload()
    await page.fill("#draft", "Count")
    await page.keyboard.press("Enter")
    await expect(page.locator(".turn-assistant > .prose")).to_have_text("One, two")
    await page.keyboard.press("Escape")
    reply = page.locator(".turn-assistant")
    await expect(reply.locator("[data-is=state]")).to_have_text("Stopped")
    await expect(page.locator("#send")).to_be_visible()
    await page.reload()
    await expect(reply.locator("[data-is=state]")).to_have_text("Stopped")  # and so it stays
    service.pipeline.script = said(", three.")
    await reply.get_by_role("button", name="Continue").click()
    await expect(reply.locator("> .prose")).to_have_text("One, two, three.")
    await expect(reply.get_by_role("button", name="Continue")).to_be_hidden()
    asked = service.pipeline.requests[-1]
    assert asked.continue_final_message
    assert [message.content for message in asked.messages] == ["Count", "One, two"]
    await page.reload()
    await expect(reply.locator("> .prose")).to_have_text("One, two, three.")
    assert len(service.pipeline.requests) == 2
    service.pipeline.entries = ENTRIES  # a model that cannot is not asked to
    service.pipeline.script = (TextDelta("Half"), asyncio.Event())
    await page.reload()
    await page.fill("#draft", "Again")
    await page.keyboard.press("Enter")
    await expect(reply.last.locator("> .prose")).to_have_text("Half")
    await page.keyboard.press("Escape")
    await expect(reply.last.get_by_role("button", name="Try again")).to_be_visible()
    await expect(reply.last.get_by_role("button", name="Continue")).to_be_hidden()


async def test_a_reply_goes_on_when_the_page_opens_again(page: Page, service: Front) -> None:
    pipeline = service.pipeline
    pipeline.entries = [entry("small", CONTINUES, 8192), *ENTRIES[1:]]
    pipeline.script = (asyncio.Event(),)
    await page.reload()
    await page.fill("#draft", "Count")
    await page.keyboard.press("Enter")
    await expect(page.locator("#stop")).to_be_visible()
    pipeline.script = (TextDelta("One, two"), asyncio.Event())
    await page.reload()  # nothing of the reply had come: the question is asked anew
    reply = page.locator(".turn-assistant")
    await expect(reply.locator("> .prose")).to_have_text("One, two")
    pipeline.script = (TextDelta(", three"), asyncio.Event())
    async with window_beside(page) as other:
        await other.goto(page.url)
        await expect(other.locator(".turn-assistant")).to_have_count(0)
        await other.wait_for_selector("[data-ready]")
    assert len(pipeline.requests) == 2, "another tab writes it"
    await page.reload()
    await expect(reply.locator("> .prose")).to_have_text("One, two, three")
    asked = pipeline.requests[-1]
    assert asked.continue_final_message
    assert [message.content for message in asked.messages] == ["Count", "One, two"]
    await page.click("#stop")
    await expect(reply.locator("[data-is=state]")).to_have_text("Stopped")
    await expect(page.locator("#send")).to_be_visible()
    await page.reload()
    await expect(reply.locator("[data-is=state]")).to_have_text("Stopped")
    await expect(reply.get_by_role("button", name="Continue")).to_be_visible()
    assert len(pipeline.requests) == 3


@asynccontextmanager
async def window_beside(page: Page) -> AsyncIterator[Page]:
    """Another tab of the same browser."""
    other = await page.context.new_page()
    try:
        yield other
    finally:
        await other.close()


@pytest.mark.full
async def test_settings_are_closed_at_first_and_stay_with_their_chat(
    page: Page, service: Front
) -> None:
    await expect(page.locator("#settings")).to_be_hidden()
    await page.click("#show-settings")
    await page.fill("#setting-system", "You are a pirate.")
    await page.fill("[name=temperature]", "0.3")
    await ask(page, "Hi", service.pipeline, "Arr.")
    assert service.pipeline.requests[-1].messages[0].content == "You are a pirate."
    await page.click("#new")
    await expect(page.locator("#setting-system")).to_have_value("")
    await ask(page, "Hi again", service.pipeline, "Hello.")
    asked = service.pipeline.requests[-1]
    assert [message.role for message in asked.messages] == ["user"]
    assert "temperature" not in asked.params
    await page.locator("#chats a", has_text="Hi").last.click()
    await expect(page.locator("#setting-system")).to_have_value("You are a pirate.")
    await page.set_viewport_size({"width": 900, "height": 500})  # as a laptop's zoom does
    await expect(page.locator("#settings")).to_be_hidden()
    await page.click("#show-settings")
    await page.click("#send", trial=True)  # is not covered


@pytest.mark.full
async def test_a_pdf_is_read_and_a_damaged_one_refused(page: Page, service: Front) -> None:
    kind = "application/pdf"
    good = {"name": "t.pdf", "mimeType": kind, "buffer": pdf("The secret is BANANA.")}
    damaged = {"name": "d.pdf", "mimeType": kind, "buffer": b"%PDF-1.4 nothing"}
    await page.set_input_files("#file", [damaged])
    await expect(page.locator(".toast")).to_contain_text("d.pdf cannot be read.")
    await page.click("#send", trial=True)  # no notice lies on it
    await page.set_input_files("#file", [good])
    await expect(page.locator("#attachments li")).to_contain_text("t.pdf")
    await ask(page, "Which?", service.pipeline, "Banana.")
    [message] = service.pipeline.requests[-1].messages
    assert message.content == "t.pdf:\n```\nThe secret is BANANA.\n```\n\nWhich?"
    await expect(page.locator("#title")).to_have_text("Which?")
    await expect(page.locator(".turn-user .said")).to_have_text("Which?")
    chip = page.locator(".turn-user .file-chip")
    await expect(chip.locator("pre")).to_be_hidden()
    await chip.locator("summary").click()
    await expect(chip.locator("pre")).to_have_text("The secret is BANANA.")
    assert await findings(page) == []


@pytest.mark.full
async def test_a_service_that_stopped_is_named(page: Page, service: Front) -> None:
    await page.route("**/chat/completions", lambda route: route.abort("connectionrefused"))
    await page.fill("#draft", "Hi")
    await page.keyboard.press("Enter")
    wrong = page.locator(".turn-assistant [role=alert]")
    await expect(wrong).to_contain_text(f"The service at 127.0.0.1:{service.port} does not answer")


@pytest.mark.full
async def test_a_long_reply_has_a_way_to_its_end(page: Page, service: Front) -> None:
    service.pipeline.script = said("\n\n".join(f"Line {n}" for n in range(99)))
    await page.fill("#draft", "Long")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("Line 98")).to_be_in_viewport()
    await expect(page.locator("#send")).to_be_visible()  # nothing follows any more
    end = page.get_by_role("button", name="To the end")
    await expect(end).to_be_hidden()
    await page.locator(".talk").evaluate("each => { each.scrollTop = 0; }")
    await end.click()
    await expect(end).to_be_hidden()
    await expect(page.get_by_text("Line 98")).to_be_in_viewport()


@pytest.mark.full
async def test_the_list_says_which_models_are_loaded(page: Page, service: Front) -> None:
    service.pipeline.entries = [
        structs.replace(each, loaded=each.id == "small") for each in ENTRIES
    ]
    await page.reload()
    badges = page.locator(".pane [data-is=abilities]").first
    await expect(badges).to_contain_text("loaded")
    await page.select_option("#model", THINKER)
    await expect(badges).to_contain_text("loads when asked")
    ending = asyncio.Event()
    service.pipeline.script = (TextDelta("One"), ending, Finished("stop"))
    service.pipeline.entries = [structs.replace(each, loaded=True) for each in ENTRIES]
    await page.fill("#draft", "Count")
    await page.keyboard.press("Enter")
    await expect(page.locator(".turn-assistant > .prose")).to_have_text("One")
    await expect(badges).not_to_contain_text("loads when asked")  # while it writes
    ending.set()
    await expect(page.locator("#send")).to_be_visible()


@pytest.mark.full
async def test_a_phone_does_all_of_it_with_a_key() -> None:
    phone = {"width": 390, "height": 844}
    async with front(LOCKED) as locked, window(viewport=phone, has_touch=True) as page:
        await page.goto(locked.root)
        await page.fill("#key-text", KEY)
        await page.locator("#key button").tap()
        await expect(page.locator("#send")).to_be_enabled()
        await page.select_option("#model", THINKER)
        picture = {"name": "dot.png", "mimeType": "image/png", "buffer": DOT}
        async with page.expect_file_chooser() as chosen:
            await page.locator("#attach").tap()
        await (await chosen.value).set_files([picture])
        await expect(page.locator("#attachments img")).to_have_js_property("naturalWidth", 1)
        locked.pipeline.script = said(WRITTEN)
        await page.fill("#draft", "What is this?")
        await page.locator("#send").tap()
        reply = page.locator(".turn-assistant")
        await expect(reply.locator("math")).to_have_count(2)
        [message] = locked.pipeline.requests[-1].messages
        assert isinstance(message.content, tuple)
        assert isinstance(message.content[1], ImagePart)
        locked.pipeline.script = said("Shorter.")
        await reply.get_by_role("button", name="Try again").tap()
        await expect(reply.locator("> .prose")).to_have_text("Shorter.")
        await reply.get_by_role("button", name="Previous version").tap()
        await expect(reply.locator("math")).to_have_count(2)
        await page.locator("[data-nav-switch]").tap()
        await page.locator("#new").tap()
        await expect(page.locator(".turn")).to_have_count(0)
        assert await hidden(page) <= 0
        assert await findings(page) == []
