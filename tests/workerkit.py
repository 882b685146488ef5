"""A service of two workers, a provider whose replies wait, and a client."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from service import Service, serving
from waiting import eventually

PATH = "/gateway/v1/chat/completions"
REPLY = {
    "object": "chat.completion",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
}


@dataclass
class Provider:
    """Answers when it may, with ``status``; ``most`` were there at once."""

    base_url: str = ""
    status: int = 200
    here: int = 0
    most: int = 0
    asked: int = 0
    open: asyncio.Event = field(default_factory=asyncio.Event)

    async def complete(self, request: web.Request) -> web.StreamResponse:
        wanted = await request.json()
        self.asked += 1
        self.here += 1
        self.most = max(self.most, self.here)
        try:
            if not wanted.get("stream"):
                await self.open.wait()
                return web.json_response(REPLY, status=self.status)
            return await self._streamed(request)
        finally:
            self.here -= 1

    async def _streamed(self, request: web.Request) -> web.StreamResponse:
        """One piece, and the rest once it may."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(chunk("One"))
        await self.open.wait()
        await response.write(chunk(" two.", finish="stop") + b"data: [DONE]\n\n")
        return response


async def spare(request: web.Request) -> web.Response:
    """Answer always."""
    await request.read()
    return web.json_response(REPLY)


def chunk(text: str, finish: str | None = None) -> bytes:
    """One event of a stream."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


@dataclass
class Setup:
    """A service, its provider, and a client whose connections are kept."""

    service: Service
    provider: Provider
    session: aiohttp.ClientSession

    path: str = PATH
    metrics: str = "/metrics"

    async def ask(self, model: str, **more: object) -> tuple[int, dict[str, Any]]:
        """One request; its status and body."""
        async with self.session.post(self.path, json=body(model, **more)) as answer:
            return answer.status, await answer.json()

    async def workers(self) -> list[int]:
        """The ids of the worker processes."""
        pid = self.service.process.pid
        children = await asyncio.to_thread(
            Path(f"/proc/{pid}/task/{pid}/children").read_text, encoding="ascii"
        )
        found = []
        for child in map(int, children.split()):
            command = Path(f"/proc/{child}/cmdline")
            with suppress(FileNotFoundError):  # it has ended since
                if b"causerie" in await asyncio.to_thread(command.read_bytes):
                    found.append(child)
        return found

    async def requests_counted(self) -> int:
        """All completed requests of the metrics."""
        async with self.session.get(self.metrics) as answer:
            text = await answer.text()
        return sum(
            int(float(number))
            for number in re.findall(r"^causerie_requests_total\{.*\} (\S+)$", text, re.MULTILINE)
        )


def body(model: str, **more: object) -> dict[str, object]:
    """A request."""
    return {"model": model, "messages": [{"role": "user", "content": "Hi"}], **more}


@asynccontextmanager
async def two_workers(
    folder: Path,
    configured: str,
    *,
    concurrent: int = 500,
    key: str = "",
    metrics: str = "/metrics",
) -> AsyncIterator[Setup]:
    """A service with two workers and this configuration, and its provider.

    ``configured`` has the fields ``base_url`` and ``concurrent``; the client comes with ``key``.
    ``metrics`` is where they are.
    """
    provider = Provider()
    provider.open.set()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", provider.complete)
    app.router.add_post("/v1/spare/chat/completions", spare)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    provider.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    config = configured.format(base_url=provider.base_url, concurrent=concurrent)
    try:
        # In a thread: the provider answers in this one.
        service = serving(folder, config)
        running = await asyncio.to_thread(service.__enter__)
        try:
            async with aiohttp.ClientSession(
                running.root,
                connector=aiohttp.TCPConnector(limit=0),
                headers={"Authorization": f"Bearer {key}"} if key else {},
            ) as session:
                made = Setup(running, provider, session, metrics=metrics)
                await eventually(lambda: both_ready(made))
                yield made
        finally:
            provider.open.set()
            await asyncio.to_thread(service.__exit__, None, None, None)
    finally:
        await runner.cleanup()


async def both_ready(made: Setup) -> bool:
    """Both workers answer."""
    async with made.session.get(made.metrics) as answer:
        return "causerie_workers 2.0" in await answer.text()


async def asked(made: Setup, number: int) -> bool:
    """So many requests are at the provider."""
    return made.provider.here >= number


async def stream_of(made: Setup, model: str, **more: object) -> str:
    """The text of a stream, or that it has broken off."""
    try:
        async with made.session.post(made.path, json=body(model, stream=True, **more)) as answer:
            text = await answer.text()
    except aiohttp.ClientError:
        return "broken"
    if "[DONE]" not in text:
        return "broken"
    return "".join(re.findall(r'"content":"([^"]*)"', text))


async def replaced(made: Setup, victim: int) -> bool:
    """Two workers run, and this is none of them."""
    found = await made.workers()
    return len(found) == 2 and victim not in found


async def logged(made: Setup, words: str) -> bool:
    """The service has logged these words."""
    return words in await asyncio.to_thread(made.service.log.read_text)
