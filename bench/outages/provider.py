"""A provider that streams numbered words, and counts what it was asked and what it sent."""

from __future__ import annotations

import asyncio
import json
import time
from bisect import bisect
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from aiohttp import web

PROMPT_TOKENS = 7


class CountingProvider:
    """Streams as many words as a request's output limit, one every ``pause`` seconds.

    ``asked`` and ``sent`` count requests and words by the name of the request, ``running`` and
    ``most`` the streams at once by the kind of its client, and by ``""`` all together. ``times``
    has those of a kind's requests.
    """

    def __init__(self, pause: float, keys: set[str]) -> None:
        self.keys = keys
        self.pause = pause
        self.asked: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.used: Counter[str] = Counter()
        self.times: dict[str, list[float]] = {}
        self.base_url = ""

    def clear(self) -> None:
        """Begin to count anew."""
        for counts in (self.asked, self.sent, self.most, self.times):
            counts.clear()

    def in_a_minute(self, kind: str) -> int:
        """Return the highest number of requests within sixty seconds, less half a second."""
        times = self.times.get(kind, [])
        return max((bisect(times, at + 59.5) - n for n, at in enumerate(times)), default=0)

    @asynccontextmanager
    async def answering(self) -> AsyncIterator[CountingProvider]:
        """Answer while the block runs; ``base_url`` is set."""
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._complete)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        key = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if key not in self.keys:
            return web.json_response({"error": {"message": "no such key"}}, status=401)
        self.used[key] += 1
        name, count = body["messages"][0]["content"], body["max_completion_tokens"]
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        self.asked[name] += 1
        places = name.split("-")[1], ""
        self.times.setdefault(places[0], []).append(time.monotonic())
        for place in places:
            self.running[place] += 1
            self.most[place] = max(self.most[place], self.running[place])
        try:
            await response.prepare(request)
            for number in range(count):
                await asyncio.sleep(self.pause)
                await response.write(_event(choices=[_choice(f"{number} ")]))
                self.sent[name] += 1
        except ConnectionError:  # the process that asked is gone
            return response
        finally:
            for place in places:
                self.running[place] -= 1
        usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": count}
        end = _event(choices=[_choice("", "stop")])
        end += _event(choices=[], usage=usage | {"total_tokens": PROMPT_TOKENS + count})
        with suppress(ConnectionError):
            await response.write(end + b"data: [DONE]\n\n")
        return response


def _choice(text: str, finish: str | None = None) -> dict[str, object]:
    return {"index": 0, "delta": {"content": text} if text else {}, "finish_reason": finish}


def _event(**fields: object) -> bytes:
    document = {"id": "counted", "object": "chat.completion.chunk", "created": 1, **fields}
    return b"data: " + json.dumps(document).encode() + b"\n\n"
