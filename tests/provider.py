"""A provider on loopback that says what a test tells it to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web


def piece(finish: str | None = None, **delta: object) -> dict[str, object]:
    """One chunk of a stream."""
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


@dataclass
class ScriptedProvider:
    """Each request takes the next script: a list of chunks, or a status with a body.

    ``gate`` lets it answer. ``hold`` keeps the streams open after their last chunk
    until ``gone`` is set by the client leaving.
    """

    scripts: list[list[dict[str, object]] | tuple[int, str]]
    models: list[str] = field(default_factory=lambda: ["m-1", "m-2"])
    hold: bool = False
    base_url: str = ""
    requests: list[dict[str, object]] = field(default_factory=list)
    authorizations: list[str | None] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    gate: asyncio.Event | None = None
    streaming: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def list_models(self, request: web.Request) -> web.Response:
        self.authorizations.append(request.headers.get("Authorization"))
        return web.json_response({"object": "list", "data": [{"id": id_} for id_ in self.models]})

    async def complete(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(await request.json())
        self.authorizations.append(request.headers.get("Authorization"))
        script = self.scripts.pop(0)
        self.asked.set()
        if self.gate is not None:
            await self.gate.wait()
        if isinstance(script, tuple):
            return web.Response(status=script[0], text=script[1], content_type="application/json")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for chunk in script:
            await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        self.streaming.set()
        try:
            if self.hold:
                await asyncio.Event().wait()
            await response.write(b"data: [DONE]\n\n")
        finally:
            self.gone.set()
        return response


@asynccontextmanager
async def running(provider: ScriptedProvider) -> AsyncIterator[ScriptedProvider]:
    """The provider behind a free port; ``base_url`` is set."""
    app = web.Application()
    app.router.add_get("/v1/models", provider.list_models)
    app.router.add_post("/v1/chat/completions", provider.complete)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    address = runner.addresses[0]
    provider.base_url = f"http://127.0.0.1:{address[1]}/v1"
    try:
        yield provider
    finally:
        await runner.cleanup()
