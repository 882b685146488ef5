"""A client of its own process: streams that are asked at once, one request after the other in each.

Prints one JSON object: the tokens of all replies, the seconds from the agreed start to the last
token, and the seconds to each first token.

    python -m vllm_pool.asker URL KEY MODEL STREAMS REQUESTS TOKENS START
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time

import aiohttp
import uvloop

WORDS = ("the", "fox", "went", "over", "a", "river", "and", "then", "home", "near", "trees")


def prompt() -> str:
    """Return some 220 tokens that no other prompt begins with."""
    return " ".join(random.choices(WORDS, k=200))


async def ask(
    session: aiohttp.ClientSession, url: str, model: str, most: int
) -> tuple[int, float | None]:
    """Return the tokens of a reply, and the seconds to its first one."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": prompt()}],
        "max_tokens": most,
        "ignore_eos": True,
        "temperature": 0.8,
        "top_k": 40,
        "top_p": 0.95,
        "min_p": 0.05,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    began, first, tokens = time.perf_counter(), None, 0
    async with session.post(f"{url}/chat/completions", json=body) as response:
        if response.status != 200:
            raise SystemExit(f"{response.status}: {(await response.text())[:500]}")
        async for line in response.content:
            if line.startswith(b"data: {"):
                first = first or time.perf_counter() - began
                if b'"usage":{' in line or b'"usage": {' in line:
                    tokens = json.loads(line[6:])["usage"]["completion_tokens"]
    return tokens, first


async def main() -> None:
    """Wait for the start, ask, print."""
    url, key, model, streams, requests, most, start = sys.argv[1:]
    waits: list[float] = []
    total = 0
    connector = aiohttp.TCPConnector(limit=0)
    headers = {"Authorization": f"Bearer {key}"}
    timeout = aiohttp.ClientTimeout(300)
    async with aiohttp.ClientSession(
        connector=connector, headers=headers, timeout=timeout, read_bufsize=1 << 20
    ) as session:
        await asyncio.sleep(float(start) - time.time())

        async def stream() -> None:
            nonlocal total
            for _ in range(int(requests)):
                tokens, first = await ask(session, url, model, int(most))
                total += tokens
                waits.append(first or 0.0)

        began = time.perf_counter()
        await asyncio.gather(*(stream() for _ in range(int(streams))))
        seconds = time.perf_counter() - began
    print(json.dumps({"tokens": total, "seconds": seconds, "waits": waits}))


if __name__ == "__main__":
    uvloop.run(main())
