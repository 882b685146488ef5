"""Clients with plain and streamed requests, who note what each of them got."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp

PATH = "/hosted/v1/chat/completions"
MODEL = "counted"
_FULL = (402, 429)  # over a budget, or a limit
_PAUSE = 0.2  # after such an answer, or without one


@dataclass(frozen=True, slots=True)
class Seen:
    """The outcome of one request for its client; ``status`` is 0 without an answer."""

    name: str
    status: int
    words: int = 0
    whole: bool = False
    said: str = ""

    @property
    def full(self) -> bool:
        return self.status in _FULL


@dataclass(frozen=True, slots=True)
class Kind:
    """Clients of one key; ``lengths`` are the numbers of words that they ask for, in turns."""

    name: str
    clients: int
    credential: str
    lengths: Sequence[int]


@dataclass
class Load:
    """Clients at work. ``fault`` begins the names of their requests."""

    root: str
    fault: str
    seen: list[Seen] = field(default_factory=list)
    stopping: bool = False
    _whole: int = 0
    _ended: asyncio.Condition = field(default_factory=asyncio.Condition)

    @asynccontextmanager
    async def running(self, kinds: Sequence[Kind]) -> AsyncIterator[Load]:
        """Ask while the block runs; leaving it waits for the end of every request."""
        async with (
            aiohttp.ClientSession(
                self.root,
                connector=aiohttp.TCPConnector(limit=0, force_close=True),
                timeout=aiohttp.ClientTimeout(total=None, sock_read=20),
            ) as session,
            asyncio.TaskGroup() as group,
        ):
            for kind in kinds:
                numbers = itertools.count()
                for _ in range(kind.clients):
                    group.create_task(self._client(session, kind, numbers))
            try:
                yield self
            finally:
                self.stopping = True

    async def have_ended(self, more: int) -> None:
        """Return when so many more replies have ended whole."""
        last = self._whole + more
        async with asyncio.timeout(60), self._ended:
            await self._ended.wait_for(lambda: self._whole >= last)

    async def _client(
        self, session: aiohttp.ClientSession, kind: Kind, numbers: itertools.count[int]
    ) -> None:
        while not self.stopping:
            number = next(numbers)
            name = f"{self.fault}-{kind.name}-{number}"
            length = kind.lengths[number % len(kind.lengths)]
            one = await ask(session, kind.credential, name, length, stream=number % 3 > 0)
            self.seen.append(one)
            self._whole += one.whole
            async with self._ended:
                self._ended.notify_all()
            if one.status != 200:
                await asyncio.sleep(_PAUSE)


async def ask(
    session: aiohttp.ClientSession, credential: str, name: str, count: int, *, stream: bool
) -> Seen:
    """Ask for so many words."""
    message = {"role": "user", "content": name}
    body = {"model": MODEL, "messages": [message], "max_completion_tokens": count}
    headers = {"Authorization": f"Bearer {credential}", "x-request-id": name}
    words = status = 0
    try:
        async with session.post(PATH, json=body | {"stream": stream}, headers=headers) as reply:
            status = reply.status
            if status != 200:
                return Seen(name, status, said=await reply.text())
            if not stream:
                content = (await reply.json())["choices"][0]["message"]["content"]
                return Seen(name, status, len(content.split()), whole=True)
            async for line in reply.content:
                if line == b"data: [DONE]\n":
                    return Seen(name, status, words, whole=True)
                if not line.startswith(b"data: "):
                    continue
                event = json.loads(line.removeprefix(b"data: "))
                if "error" in event:
                    return Seen(name, status, words, said=str(event["error"]))
                for choice in event.get("choices", ()):
                    words += len((choice["delta"].get("content") or "").split())
            return Seen(name, status, words, said="the stream broke off")
    except (aiohttp.ClientError, OSError, TimeoutError) as failure:
        return Seen(name, status, words, said=repr(failure))
