"""Azure OpenAI by both of its interfaces, each checked by a server that takes nothing else."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web
from servicekit import service_view

from causerie.settings.load import load
from causerie.settings.problems import SettingsError

CONFIG = """
[[doors]]
name = "gateway"
kind = "gateway"
keys = "off"
[[providers]]
name = "azure"
base_url = "{base_url}"
dialect = "{dialect}"
{more}
key = {{ env = "AZURE_TEST_KEY" }}
[[aliases]]
id = "fast"
targets = [{{ provider = "azure", model = "my gpt/4" }}]
"""


@dataclass
class Azure:
    """``version`` is the api-version that requests must have; the v1 API has none."""

    version: str = ""
    root: str = ""
    asked: list[str] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.raw_path)
        if request.headers.get("api-key") != "k-1" or "authorization" in request.headers:
            error = {"code": "401", "message": "Access denied due to invalid subscription key."}
            return web.json_response({"error": error}, status=401)
        if request.query.get("api-version", "") != self.version:
            error = {"code": "404", "message": "Resource not found"}
            return web.json_response({"error": error}, status=404)
        if request.method == "GET":
            return web.json_response({"object": "list", "data": [{"id": "gpt-4o"}]})
        body = json.loads(await request.read())
        assert {"model", "messages"} <= body.keys()
        message = {"role": "assistant", "content": "Hi"}
        filters = {"hate": {"filtered": False, "severity": "safe"}}
        choice = {"index": 0, "message": message, "finish_reason": "stop",
                  "content_filter_results": filters}  # fmt: skip
        usage = {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10}
        return web.json_response({
            "id": "c", "object": "chat.completion", "choices": [choice], "usage": usage,
            "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": filters}],
        })  # fmt: skip


@asynccontextmanager
async def azure(version: str = "") -> AsyncIterator[Azure]:
    server = Azure(version)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.root = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("dialect", "base", "more", "version", "path"),
    [
        ("azure", "/openai/v1", "", "", "/openai/v1/chat/completions"),
        ("azure-deployments", "/openai", "", "2024-10-21",
         "/openai/deployments/my%20gpt%2F4/chat/completions?api-version=2024-10-21"),
        ("azure-deployments", "/openai", 'api_version = "2025-04-01-preview"', "2025-04-01-preview",
         "/openai/deployments/my%20gpt%2F4/chat/completions?api-version=2025-04-01-preview"),
    ],
)  # fmt: skip
async def test_a_request_through_a_gateway(
    dialect: str,
    base: str,
    more: str,
    version: str,
    path: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AZURE_TEST_KEY", "k-1")
    async with azure(version) as server:
        text = CONFIG.format(base_url=server.root + base, dialect=dialect, more=more)
        async with service_view(tmp_path, text) as there:
            status, _, answer = await there.ask("/gateway/v1", "fast")
            assert (status, answer["choices"][0]["message"]["content"]) == (200, "Hi")
            assert answer["usage"]["total_tokens"] == 10
    assert path in server.asked
    query = f"?api-version={version}" if version else ""
    assert set(server.asked) - {path} <= {f"{base}/models{query}"}  # the health check


def test_a_version_where_there_is_none_is_refused(tmp_path: Path) -> None:
    text = CONFIG.format(
        base_url="https://x.openai.azure.com/openai/v1", dialect="azure", more='api_version = "1"'
    )
    file = tmp_path / "causerie.toml"
    file.write_text(text)
    with pytest.raises(SettingsError, match="has no `api-version`"):
        load(file=file)
