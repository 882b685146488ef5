"""A hosted service that is killed under load: what clients saw end, and what is in its ledger."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from hostedkit import config, office
from service import Service, serving

_CLIENTS = 8
_MOST_ENDED = 60


@dataclass(slots=True)
class Seen:
    """Observations of clients: the ids of completions that ended, and the number that broke off."""

    ended: list[str] = field(default_factory=list)
    broken: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of it all. ``missing`` and ``twice`` have to be empty."""

    ended: int
    broken: int
    missing: Sequence[str]
    twice: Sequence[str]


def killed(
    folder: Path,
    times: int,
    *,
    journal: str,
    seed: int,
    watch: Callable[[int], None] = lambda _: None,
) -> Outcome:
    """Kill a service that many times under load, and compare; ``watch`` is told of each."""
    chance = random.Random(seed)
    seen = Seen()
    project, credential = asyncio.run(_key(folder))
    for number in range(times):
        with serving(folder, config(journal=journal)) as service:
            asyncio.run(_load(service, credential, seen, chance.randint(1, _MOST_ENDED)))
        watch(number + 1)
    with serving(folder, config(journal=journal)):
        pass  # a last start writes what the journal still has
    kept = asyncio.run(_kept(folder, project))
    return Outcome(
        ended=len(seen.ended),
        broken=seen.broken,
        missing=[one for one in seen.ended if one not in kept],
        twice=[one for one, count in kept.items() if count > 1],
    )


async def _key(folder: Path) -> tuple[str, str]:
    async with office(folder / "data") as opened:
        return opened.project, (await opened.key()).credential


async def _load(service: Service, credential: str, seen: Seen, number: int) -> None:
    """Clients at work until the service is killed, when that many more completions have ended."""
    headers = {"Authorization": f"Bearer {credential}"}
    over = asyncio.Semaphore(0)
    session = aiohttp.ClientSession(service.root, headers=headers)
    async with session, asyncio.TaskGroup() as group:
        for client in range(_CLIENTS):
            group.create_task(_client(session, seen, over, plain=client % 2 == 0))
        for _ in range(number):
            await over.acquire()
        service.process.kill()
        await asyncio.to_thread(service.process.wait)


async def _client(
    session: aiohttp.ClientSession, seen: Seen, over: asyncio.Semaphore, *, plain: bool
) -> None:
    body = {
        "model": "small",
        "messages": [{"role": "user", "content": "a few words to be said again"}],
        "stream": not plain,
    }
    while True:
        try:
            async with session.post("/hosted/v1/chat/completions", json=body) as reply:
                whole = await reply.text()
                if reply.status != 200:
                    raise AssertionError(f"{reply.status}: {whole}")
                if plain or whole.endswith("data: [DONE]\n\n"):
                    seen.ended.append(reply.headers["x-request-id"])
                    over.release()
        except (aiohttp.ClientError, ConnectionError):
            seen.broken += 1
            return


async def _kept(folder: Path, project: str) -> Counter[str]:
    async with office(folder / "data", project) as opened:
        return Counter([one.request_id async for one in opened.every_record()])
