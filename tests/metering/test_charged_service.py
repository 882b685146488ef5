"""Charges by a whole service: a real engine of ours, and providers, with accounts."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from casekit import first_of
from chargekit import CountingProvider, providing
from hostedkit import Office, office
from service import Service, serving

from causerie.hosted.accounts.bounds import Budget, Limit, LimitsAndBudgets, Unit
from causerie.metering.ledger import UsageRecord

LONG = "The quick brown fox jumps over the lazy dog. " * 60
SERVICE_VIEW = """
[store]
folder = "data"
[[doors]]
name = "hosted"
kind = "hosted"
[[models]]
id = "real"
ref = "{gguf}"
price = {{ prompt = "1000", completion = "2000" }}
[models.llamacpp]
context = 4096
parallel = 1
"""
GATEWAY = """
[store]
folder = "data"
[[doors]]
name = "hosted"
kind = "hosted"
keys = {keys}
[[providers]]
name = "up"
base_url = "{url}"
{more}
[[aliases]]
id = "theirs"
price = {{ prompt = "1000", completion = "2000" }}
[[aliases.targets]]
provider = "up"
model = "m"
"""


@dataclass
class There:
    """A running service, its database from outside, and a client with a key."""

    service: Service
    office: Office
    session: aiohttp.ClientSession

    async def key(self, **draft: Any) -> tuple[str, dict[str, str]]:
        """Its id, and the header that it stands in."""
        made = await self.office.key(**draft)
        return made.key.id, {"authorization": f"Bearer {made.credential}"}

    def send(
        self, headers: dict[str, str], model: str, text: str, **more: Any
    ) -> asyncio.Task[tuple[int, Any, Any]]:
        return asyncio.ensure_future(self._answer(headers, model, text, more))

    async def _answer(
        self, headers: dict[str, str], model: str, text: str, more: dict[str, Any]
    ) -> tuple[int, Any, Any]:
        body = {"model": model, "messages": [{"role": "user", "content": text}], **more}
        where = f"{self.service.root}/hosted/v1/chat/completions"
        async with self.session.post(where, json=body, headers=headers) as response:
            content = await response.read()
            answer = None if more.get("stream") else json.loads(content)
            return response.status, answer, response.headers

    async def recorded(self, key: str, count: int = 1) -> list[UsageRecord]:
        """Newest first, once there are so many."""
        async with asyncio.timeout(60):
            while True:
                found = [one for one in await self.office.records() if one.key == key]
                if len(found) >= count:
                    return found
                await asyncio.sleep(0.02)  # another process writes them

    async def computing(self) -> None:
        """Return when the engine has a request."""
        async with asyncio.timeout(60):
            while True:
                async with self.session.get(f"{self.service.root}/health") as response:
                    health = await response.json()
                if health["engines"][0]["busy"]:
                    return
                await asyncio.sleep(0.005)  # another process


async def left(asking: asyncio.Task[Any]) -> None:
    asking.cancel()
    await asyncio.wait([asking])


@asynccontextmanager
async def at(service: Service) -> AsyncIterator[There]:
    async with (
        office(service.log.parent / "data") as opened,
        aiohttp.ClientSession() as session,
    ):
        yield There(service, opened, session)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory, gguf: Path) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("own"), SERVICE_VIEW.format(gguf=gguf)) as service:
        yield service


@pytest.mark.parametrize("stream", first_of([True, False]))
async def test_our_engine_charges_the_prompt_to_who_leaves(own: Service, stream: bool) -> None:
    """Exactly: as many tokens as the same request has that is answered."""
    async with at(own) as there:
        budget = Budget(Decimal(400), unit=Unit.TOKENS)
        limit = Limit(tokens_per_minute=100_000)
        key, headers = await there.key(bounds=LimitsAndBudgets(limits=(limit,), budgets=(budget,)))
        text = f"{stream} {LONG}"
        asking = there.send(headers, "real", text, stream=stream, max_tokens=50)
        await there.computing()
        await left(asking)
        [record] = await there.recorded(key)
        _, answer, _ = await there.send((await there.key())[1], "real", text, max_tokens=1)
        prompt = answer["usage"]["prompt_tokens"]
        assert (record.status, record.code, record.served_by) == (499, "client_gone", "real")
        assert (record.prompt, record.completion, record.estimated) == (prompt, 0, False)
        assert record.amount == Decimal(prompt) / 1000
        assert record.attempts == 1
        # Its budget and its limit of tokens have it, too.
        status, refused, told = await there.send(headers, "real", "Hi", max_tokens=1)
        assert (status, refused["error"]["code"]) == (402, "insufficient_budget")
        assert int(told.get("x-ratelimit-remaining-tokens", 0)) <= 100_000 - prompt


async def test_who_leaves_the_queue_pays_nothing(own: Service) -> None:
    async with at(own) as there:
        (key, headers), (_, others) = await there.key(), await there.key()
        first = there.send(others, "real", f"first {LONG}", max_tokens=400, ignore_eos=True)
        await there.computing()
        second = there.send(headers, "real", "Hi", max_tokens=1)
        await waiting(there)
        await left(second)
        [record] = await there.recorded(key)
        await left(first)
    assert (record.status, record.prompt, record.attempts) == (499, 0, 0)
    assert not record.cost


async def waiting(there: There) -> None:
    """Return when a request is queued."""
    async with asyncio.timeout(60):
        while True:
            async with there.session.get(f"{there.service.root}/metrics") as response:
                lines = (await response.text()).splitlines()
            queued = [line for line in lines if line.startswith("causerie_queue_length")]
            if any(float(line.split()[-1]) for line in queued):
                return
            await asyncio.sleep(0.005)  # another process


@pytest.mark.parametrize("stream", first_of([True, False]))
async def test_a_request_whose_engine_dies_is_told_when_to_come_again(
    own: Service, stream: bool
) -> None:
    """Before its first token; the failure counts with the breaker, and costs nothing."""
    async with at(own) as there:
        key, headers = await there.key()
        _, _, _ = await there.send(headers, "real", "Hi", max_tokens=1)
        asking = there.send(headers, "real", f"dies {stream} {LONG}", stream=stream)
        await there.computing()
        for child in children(own.process.pid):
            os.kill(child, signal.SIGKILL)
        status, answer, told = await asking
        assert status == 503
        assert int(told["Retry-After"]) >= 1
        if answer is not None:
            assert (answer["error"]["type"], answer["error"]["code"]) == (
                "overloaded_error",
                "no_endpoint",
            )
        record, _ = await there.recorded(key, 2)
        assert record.status == 503
        assert not record.cost
        async with asyncio.timeout(60):
            while (await there.send(headers, "real", "Hi", max_tokens=1))[0] != 200:  # noqa: ASYNC110 - no event comes
                await asyncio.sleep(0.1)  # another process starts it again


def children(parent: int) -> list[int]:
    """The engines of a service."""
    found = []
    for entry in Path("/proc").iterdir():
        ours = entry.name.isdigit() and f"\nPPid:\t{parent}\n" in _read(entry / "status")
        if ours and "llama" in _read(entry / "cmdline"):
            found.append(int(entry.name))
    assert found
    return found


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""


@asynccontextmanager
async def gateway(
    folder: Path, provider: CountingProvider, *, keys: str = '"accounts"', more: str = ""
) -> AsyncIterator[There]:
    text = GATEWAY.format(url=provider.base_url, keys=keys, more=more)
    manager = serving(folder, text)
    service = await asyncio.to_thread(manager.__enter__)
    try:
        async with at(service) as there:
            yield there
    finally:
        await asyncio.to_thread(manager.__exit__, None, None, None)


@pytest.mark.parametrize("more", first_of(["", "always_stream = false"]))
async def test_a_provider_streams_where_somebody_pays(tmp_path: Path, more: str) -> None:
    """Generated tokens are charged; if streaming is not allowed, the possible ones are."""
    async with providing() as provider, gateway(tmp_path, provider, more=more) as there:
        key, headers = await there.key()
        asking = there.send(headers, "theirs", f"a/100 {LONG}", max_tokens=100)
        arrival = asyncio.ensure_future(provider.arrived.acquire())
        await asyncio.wait([asking, arrival], return_when=asyncio.FIRST_COMPLETED)
        assert arrival.done(), asking.result()
        bill = provider.bills["a"]
        assert bill.streamed is not bool(more)
        await left(asking)
        [record] = await there.recorded(key)
        assert record.prompt == bill.prompt
        assert record.completion == (100 if more else 0)
        assert record.amount == Decimal(record.prompt + 2 * record.completion) / 1000
