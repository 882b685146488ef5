"""A service with worker processes, and an own model on servers: who answers, and what holds."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from hostedkit import Office, office
from test_vllm_engine import asked, behave
from test_vllm_pool import Place
from waiting import eventually
from workerkit import Setup, body, two_workers

from causerie.accounts.bounds import Budget, LimitsAndBudgets
from causerie.accounts.issuing import NewKey
from causerie.metering.ledger import UsageRecord

pytestmark = pytest.mark.asyncio(loop_scope="module")

OWN = "/endpoints/own/v1/chat/completions"
HOSTED = "/hosted/v1/chat/completions"
TEMPLATE = "{% for one in messages %}{{ one.content }}{% endfor %}{# <tool_call> <think> #}"
CONFIG = """
[server]
workers = 2

[store]
folder = "data"

[[doors]]
name = "own"

[[doors]]
name = "hosted"
kind = "hosted"

[[models]]
id = "m"
engine = "vllm"
ref = "{folder}"
preload = true
price = {{{{ prompt = "1000", completion = "2000" }}}}
queue = {{{{ max_waiting = 3 }}}}
[models.vllm]
addresses = [{addresses}]
parallel = 2
"""


@dataclass
class Pool:
    """A service whose model is a pool of two servers, with two slots each, and its database."""

    made: Setup
    folder: Path
    every: list[Place]
    books: Office

    @asynccontextmanager
    async def caller(self, key: NewKey) -> AsyncIterator[Setup]:
        """The service as it is for who comes with a key, on connections of its own."""
        headers = {"Authorization": f"Bearer {key.credential}"}
        root = self.made.service.root
        async with aiohttp.ClientSession(root, headers=headers) as session:
            yield replace(self.made, session=session, path=HOSTED)

    async def records(self, key: NewKey, number: int) -> list[UsageRecord]:
        """Those of a key, once there are so many."""
        await eventually(lambda: self._recorded(key, number))
        return await self._records(key)

    async def _recorded(self, key: NewKey, number: int) -> bool:
        return len(await self._records(key)) >= number

    async def _records(self, key: NewKey) -> list[UsageRecord]:
        return [one for one in await self.books.records() if one.key == key.key.id]

    def behave(self, how: str) -> None:
        """Have all servers do this."""
        for place in self.every:
            behave(place.folder, how)

    async def metric(self, name: str) -> float:
        """One gauge of the model."""
        async with self.made.session.get("/metrics") as answer:
            text = await answer.text()
        found = re.search(rf'^causerie_{name}{{model="m"}} (\S+)$', text, re.MULTILINE)
        assert found is not None
        return float(found[1])

    async def reads(self, name: str, value: float) -> bool:
        """The gauge has this value."""
        return await self.metric(name) == value

    async def fewer_busy(self, number: int) -> bool:
        """Fewer slots are in use."""
        return await self.metric("engine_busy_slots") < number

    async def generating(self, number: int) -> bool:
        """So many requests are at the servers."""
        return sum(place.server.running for place in self.every) == number

    async def stream(self, caller: Setup | None = None) -> AsyncGenerator[str, None]:
        """The content of a stream, piece by piece; it must end as it should."""
        asked_for = body("m", stream=True, max_tokens=4000)
        asks = caller or self.made
        async with asks.session.post(asks.path, json=asked_for) as answer:
            assert answer.status == 200, await answer.text()
            async for line in answer.content:
                if line.startswith(b"data: {"):
                    chunk = json.loads(line[6:])
                    assert "error" not in chunk, chunk
                    for choice in chunk["choices"]:
                        if text := choice["delta"].get("content"):
                            yield text
                elif line.startswith(b"data: [DONE]"):
                    return
        raise AssertionError("the stream broke off")


def configuration(folder: Path, every: list[Place]) -> str:
    """Of a pool of these servers."""
    addresses = ", ".join(f'"{place.address}"' for place in every)
    return CONFIG.format(folder=folder, addresses=addresses)


@asynccontextmanager
async def serving_pool(folder: Path) -> AsyncIterator[Pool]:
    async with office(folder / "data") as books, AsyncExitStack() as stack:
        every = [Place(folder / str(number), context=4096) for number in range(2)]
        for place in every:
            (place.folder / "chat_template.jinja").write_text(TEMPLATE)
            await place.come()
            stack.push_async_callback(place.go)
        text = configuration(every[0].folder, every)
        made = await stack.enter_async_context(two_workers(folder, text))
        made.path = OWN
        pool = Pool(made, folder, every, books)
        await eventually(lambda: pool.reads("engine_slots", 4))
        yield pool


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool(tmp_path_factory: Any) -> AsyncIterator[Pool]:
    async with serving_pool(tmp_path_factory.mktemp("service")) as made:
        yield made


async def test_tokens_pass_while_the_parent_does_nothing(pool: Pool) -> None:
    pool.behave("endless")
    process = pool.made.service.process
    stream = pool.stream()
    assert await anext(stream)
    process.send_signal(signal.SIGSTOP)
    try:
        for _ in range(50):
            await anext(stream)
    finally:
        process.send_signal(signal.SIGCONT)
    await stream.aclose()
    await eventually(lambda: pool.reads("engine_busy_slots", 0))
    pool.behave("")


async def test_slots_and_queue_are_those_of_the_service(pool: Pool) -> None:
    pool.behave("hold")
    waiting = [asyncio.create_task(pool.made.ask("m")) for _ in range(12)]
    await eventually(lambda: ended(waiting, 5))
    await eventually(lambda: pool.reads("engine_busy_slots", 4))
    assert await pool.metric("queue_length") == 3
    pool.behave("")
    statuses = Counter(status for status, _ in await asyncio.gather(*waiting))
    assert statuses == {200: 7, 503: 5}
    await eventually(lambda: pool.reads("engine_busy_slots", 0))


async def ended(tasks: list[asyncio.Task[Any]], number: int) -> bool:
    """So many have ended."""
    return sum(task.done() for task in tasks) >= number


async def test_a_budget_is_that_of_the_service(pool: Pool) -> None:
    bounds = LimitsAndBudgets((), (Budget(Decimal("0.000001")),))
    key = await pool.books.key(bounds=bounds, models=frozenset({"m"}))
    pool.behave("hold")
    async with pool.caller(key) as caller:
        waiting = [asyncio.create_task(caller.ask("m")) for _ in range(8)]
        await eventually(lambda: ended(waiting, 7))
        pool.behave("")
        answers = await asyncio.gather(*waiting)
        # The one that crosses the line is let in, and no other while it runs or after it.
        assert Counter(status for status, _ in answers) == {200: 1, 402: 7}
        assert {(await caller.ask("m"))[0] for _ in range(2)} == {402}
    (usage,) = [answer["usage"] for status, answer in answers if status == 200]
    found = await pool.records(key, 10)
    assert Counter(one.status for one in found) == {200: 1, 402: 9}
    (paid,) = [one for one in found if one.status == 200]
    assert (paid.prompt, paid.completion) == (usage["prompt_tokens"], usage["completion_tokens"])
    assert paid.cost == (1000 * paid.prompt + 2000 * paid.completion) / Decimal(1_000_000)
    elsewhere = await pool.books.key(doors=frozenset({"own"}))
    async with pool.caller(elsewhere) as caller:
        assert {(await caller.ask("m"))[0] for _ in range(2)} == {403}


async def test_a_killed_worker_frees_its_slots(pool: Pool) -> None:
    pool.behave("hold")
    key = await pool.books.key()
    async with pool.caller(key) as caller:  # whose connections are dealt in turn

        async def ask() -> int:
            try:
                return (await caller.ask("m"))[0]
            except aiohttp.ClientError:
                return 0

        waiting = [asyncio.create_task(ask()) for _ in range(4)]
        await eventually(lambda: pool.reads("engine_busy_slots", 4))
        os.kill((await pool.made.workers())[0], signal.SIGKILL)
        await eventually(lambda: pool.fewer_busy(4))
        left = int(await pool.metric("engine_busy_slots"))
        await eventually(lambda: pool.generating(left))
        pool.behave("")
        assert Counter(await asyncio.gather(*waiting)) == {200: left, 0: 4 - left}
    found = await pool.records(key, 4)
    assert Counter(one.code for one in found) == {None: left, "interrupted": 4 - left}
    assert {one.cost > 0 for one in found if one.code is None} == {True}
    assert {one.cost for one in found if one.code} == {Decimal(0)}
    await eventually(lambda: replaced(pool.made))


async def replaced(made: Setup) -> bool:
    """There are two workers again."""
    return len(await made.workers()) == 2


async def test_another_server_goes_on_with_a_stream(pool: Pool) -> None:
    pool.behave("endless")
    key = await pool.books.key()
    async with pool.caller(key) as caller:
        began, again = await goes_on(pool, pool.stream(caller))
    (record,) = await pool.records(key, 1)
    assert (record.status, record.prompt) == (200, len(began))
    assert record.completion > len(again) - len(began)


async def goes_on(pool: Pool, stream: AsyncGenerator[str, None]) -> tuple[list[int], list[int]]:
    """A stream whose server goes away; what the first and the second server were asked."""
    text = await anext(stream)
    (lost,) = [place for place in pool.every if place.server.running]
    (other,) = [place for place in pool.every if place is not lost]
    behave(other.folder, "say and so it ends")
    await lost.go()
    text += "".join([piece async for piece in stream])
    assert text.endswith("and so it ends")
    began, again = last_prompt(lost), last_prompt(other)
    assert again[: len(began)] == began
    assert len(again) > len(began)
    await lost.come()
    pool.behave("")
    return began, again


def last_prompt(place: Place) -> list[int]:
    """The tokens that it was asked to go on from."""
    return [one["prompt"] for one in asked(place.folder) if one != "left"][-1]


async def test_tools_schemas_and_thinking_are_as_in_one_process(pool: Pool) -> None:
    pool.behave('say <think>So.</think>{"a": 1}')
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema, "strict": True}}
    status, answer = await pool.made.ask("m", response_format=form)
    assert status == 200, answer
    message = answer["choices"][0]["message"]
    assert (json.loads(message["content"]), message["reasoning_content"]) == ({"a": 1}, "So.")
    pool.behave('say <tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>')
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    status, answer = await pool.made.ask("m", tools=[tool], tool_choice="required")
    assert status == 200, answer
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("f", {"a": 1})
    requests = [one for place in pool.every for one in asked(place.folder) if one != "left"]
    assert sum("structured_outputs" in one for one in requests) >= 2
    status, answer = await pool.made.ask("m", response_format=form, max_tokens=1)
    assert (status, answer["choices"][0]["finish_reason"]) == (200, "length")
    pool.behave("")


async def test_a_reload_is_in_force_in_all_workers(pool: Pool) -> None:
    file = pool.folder / "causerie.toml"
    text = await asyncio.to_thread(file.read_text)
    await asyncio.to_thread(file.write_text, text.replace('id = "m"', 'id = "m"\naliases = ["n"]'))
    await eventually(lambda: both_ready(pool.made))
    workers = await pool.made.workers()
    for pid in (*workers, pool.made.service.process.pid):  # as `pkill -HUP` reaches all
        os.kill(pid, signal.SIGHUP)
    await eventually(lambda: answers(pool.made, "n"))
    for _ in range(4):
        assert (await pool.made.ask("n"))[0] == 200
    await asyncio.to_thread(file.write_text, text)
    pool.made.service.process.send_signal(signal.SIGHUP)
    await eventually(lambda: refuses(pool.made, "n"))
    assert {(await pool.made.ask("m"))[0] for _ in range(4)} == {200}
    assert await pool.made.workers() == workers


async def both_ready(made: Setup) -> bool:
    """Both workers answer."""
    async with made.session.get("/metrics") as answer:
        return "\ncauserie_workers 2.0\n" in await answer.text()


async def answers(made: Setup, model: str) -> bool:
    """It is there."""
    return (await made.ask(model))[0] == 200


async def refuses(made: Setup, model: str) -> bool:
    """It is not there any more."""
    return (await made.ask(model))[0] == 404
