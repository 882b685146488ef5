"""A provider of embeddings, rerank and plain completions that answers as a test says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

VECTORS = {
    "object": "list",
    "data": [{"object": "embedding", "index": 0, "embedding": [0.25, -0.5]}],
    "model": "their-embed",
    "usage": {"prompt_tokens": 7, "total_tokens": 7, "cost": 0.5},
}
RANKED = {
    "id": "r-1",
    "results": [{"index": 1, "relevance_score": 0.9}],
    "meta": {"billed_units": {"search_units": 2}},
}


def text_chunk(text: str, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "text": text, "finish_reason": finish, "logprobs": None}
    return {
        **{"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "their-code"},
        **{"choices": [choice], **more},
    }


@dataclass
class Upstream:
    """A provider of which ``replies`` are the next ones: a status and a body, or chunks."""

    replies: list[Any] = field(default_factory=list)
    got: list[tuple[str, Any, str | None]] = field(default_factory=list)
    hold: bool = False
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    base_url: str = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        sent = await request.json()
        self.got.append((request.path, sent, request.headers.get("authorization")))
        reply = self.replies.pop(0)
        if isinstance(reply, tuple):
            status, body = reply
            return web.json_response(body, status=status)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        try:
            for chunk in reply:
                data = chunk if isinstance(chunk, str) else json.dumps(chunk)
                await response.write(f"data: {data}\n\n".encode())
            if self.hold:
                await asyncio.Event().wait()
        finally:
            self.gone.set()
        return response


@asynccontextmanager
async def upstream(*replies: Any) -> AsyncIterator[Upstream]:
    there = Upstream(list(replies))
    app = web.Application()
    app.router.add_post("/v1/{path:.*}", there.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    there.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield there
    finally:
        await runner.cleanup()
