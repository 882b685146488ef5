"""A seller's server: real HTTP on loopback, which follows the script."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from aiohttp import web

from market.seller import PROMPT_TOKENS, REPLY_TOKENS, Fate, Seller

_NUMBER = re.compile(r"Request (\d+)\b")
_WORD = b'data: {"choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}\n\n'
_END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
_PATIENCE_SECONDS = 30.0  # of a silent one; its clients have left long before
_BREAKS_AFTER = 5  # tokens


class Stall:
    """One seller's server. ``clock`` tells the seconds since the market has opened."""

    def __init__(self, seller: Seller, clock: Callable[[], float]) -> None:
        self._seller = seller
        self._clock = clock
        self._usage = _event(
            {
                "choices": [],
                "usage": {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": REPLY_TOKENS},
            }
        )

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """``POST /chat/completions``."""
        at = self._clock()
        body = await request.json()
        number = _NUMBER.search(body["messages"][0]["content"])
        assert number is not None
        fate = self._seller.fate(at, int(number[1]))
        match fate.ill:
            case "refuses":
                return web.json_response({"error": {"message": "Out of order."}}, status=500)
            case "full":
                headers = {"Retry-After": "1"}
                full = {"error": {"message": "Too many requests."}}
                return web.json_response(full, status=429, headers=headers)
            case "silent":
                await asyncio.sleep(_PATIENCE_SECONDS)
            case "drops":
                assert request.transport is not None
                request.transport.abort()
        return await self._reply(request, fate)

    async def _reply(self, request: web.Request, fate: Fate) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await asyncio.sleep(fate.first_seconds)
        await response.prepare(request)
        for token in range(REPLY_TOKENS):
            if token:
                await asyncio.sleep(fate.gap_seconds)
            if fate.ill == "breaks" and token == _BREAKS_AFTER:
                assert request.transport is not None
                request.transport.abort()
                return response
            await response.write(_WORD)
        for piece in (_END, self._usage, b"data: [DONE]\n\n"):
            await response.write(piece)
        return response


@asynccontextmanager
async def stalls(sellers: Sequence[Seller], clock: Callable[[], float]) -> AsyncIterator[list[str]]:
    """The base URLs of all, in their order."""
    async with AsyncExitStack() as held:
        addresses = []
        for seller in sellers:
            app = web.Application()
            app.router.add_post("/v1/chat/completions", Stall(seller, clock).complete)
            runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
            await runner.setup()
            held.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            addresses.append(f"http://127.0.0.1:{runner.addresses[0][1]}/v1")
        yield addresses


def _event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"
