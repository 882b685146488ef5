"""Work that was done is charged, whenever its client leaves.

The bound: for whoever leaves, the provider never counts more than the ledger has, but for

- a prompt or a completion whose tokens are shorter than four characters each, which are
  estimated (here they have four, so that the estimate is exact or more),
- pieces of a stream that were on their way when the client left (here at most one),
- pieces of several tokens each of at most eight characters together, counted as one each
  (here they are longer, or one token),
- what a provider makes of a reply that is not streamed and has no limit beyond 1,024 tokens,
- the prompt of a second target, asked because the first was slow.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, Coroutine
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from casekit import examples
from chargekit import PRICE, TOKENS_A_MINUTE, Charging, CountingProvider, Heard, charging, providing
from chatkit import Unchecked
from gatewaykit import settled
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    rule,
)

from causerie.chat.chat import TextChat
from causerie.composition.providers import connected
from causerie.engines.base import EngineFailed, Output, TextRequest, Token
from causerie.engines.registry import FakeEngine
from causerie.errors import EngineLost, UpstreamFailed
from causerie.http.api import RequestLimits
from causerie.metering.ledger import UsageRecord
from causerie.protocol.events import Usage
from causerie.protocol.request import ChatRequest, Message
from causerie.settings.credentials import Credentials
from causerie.settings.load import load

ON_ITS_WAY = 3  # tokens: a piece of the longest
LONG = "word " * 14_400  # 18,000 tokens


async def left(asking: asyncio.Task[Any]) -> None:
    asking.cancel()
    await asyncio.wait([asking])


def cost_of(record: UsageRecord) -> bool:
    """Return true if a record's cost is that of its tokens."""
    return record.cost == PRICE.charge(Usage(record.prompt, record.completion))


def nothing(record: UsageRecord) -> bool:
    return not (record.prompt or record.completion or record.cost)


@pytest.mark.parametrize("model", ["streamed", "plain"])
@pytest.mark.parametrize("stream", [True, False])
async def test_who_leaves_before_the_first_content_pays_for_the_prompt(
    model: str, stream: bool
) -> None:
    async with providing() as provider, charging(provider.base_url) as there:
        for number in range(3):
            name = f"r{number}"
            text = f"{name}/100 {LONG}"
            asking = there.send(name, model, text, stream=stream, max_tokens=100)
            await provider.arrived.acquire()
            await left(asking)
            record = await there.record(name)
            assert (record.status, record.code, record.served_by) == (
                499,
                "client_gone",
                f"{model}0",
            )
            assert record.prompt == provider.bills[name].prompt >= 18_000
            assert record.completion == (0 if model == "streamed" or stream else 100)
            assert record.cost > 0
            assert cost_of(record)
            assert record.estimated
            assert record.attempts == 1


async def test_a_plain_request_that_is_streamed_ends_with_its_client() -> None:
    """Tokens made until then are charged, and no more are made."""
    async with providing() as provider, charging(provider.base_url) as there:
        asking = there.send("a", "streamed", "a/100 Hi", max_tokens=100)
        await provider.arrived.acquire()
        bill = provider.bills["a"]
        for _ in range(8):
            bill.go.release()
        [reply] = there.targets["streamed0"].replies
        await settled(lambda: reply.usage().completion == 7)
        await left(asking)
        record = await there.record("a")
        await settled(lambda: bill.over)
        assert (bill.streamed, bill.made) == (True, 7)
        assert (record.prompt, record.completion) == provider.billed("a")


async def test_who_leaves_before_anybody_has_the_request_pays_nothing() -> None:
    """While it connects: the other side accepts, and does not speak TLS with us."""

    async def listened(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while await reader.read(65536):
                pass
        writer.close()

    silent = await asyncio.start_server(listened, "127.0.0.1", 0)
    async with silent:
        port = silent.sockets[0].getsockname()[1]
        async with charging(f"https://127.0.0.1:{port}/v1") as there:
            asking = there.send("a", "streamed", "a/1 Hi", stream=True)
            await settled(lambda: bool(there.targets["streamed0"].replies))
            await left(asking)
            record = await there.record("a")
    assert nothing(record)
    assert record.attempts == 0


async def test_who_leaves_while_the_body_is_sent_pays_nothing() -> None:
    """More of it than the sockets in between hold has not left yet."""
    async with providing() as provider, charging(provider.base_url) as there:
        provider.reads.clear()
        text = "a/1 " + "x" * 15_000_000
        asking = there.send("a", "streamed", text, stream=True)
        await settled(lambda: provider.waiting == 1)
        await left(asking)
        record = await there.record("a")
        assert provider.billed("a") == (0, 0)
    assert nothing(record)


@pytest.mark.parametrize("status", [400, 429, 500, 503])
async def test_what_a_provider_refuses_costs_nothing(status: int) -> None:
    async with providing() as provider, charging(provider.base_url) as there:
        provider.refuses = status
        _, _, _ = await there.send("a", "streamed", "a/1 Hi", stream=True)
        record = await there.record("a")
    assert record.status >= 400
    assert nothing(record)


async def test_who_leaves_at_a_second_target_pays_for_that_one_only() -> None:
    """A target that failed before costs nothing."""
    async with (
        providing() as first,
        providing() as second,
        charging(first.base_url, second.base_url) as there,
    ):
        first.refuses = 500
        asking = there.send("a", "fallback", "a/5 Hello", stream=True)
        await second.arrived.acquire()
        await left(asking)
        record = await there.record("a")
        assert (record.prompt, record.completion) == second.billed("a")
        assert (record.served_by, record.attempts) == ("streamed1", 2)
        assert cost_of(record)


async def test_both_ways_give_the_same_answer_and_the_same_usage() -> None:
    """A stream put together is the plain answer."""
    answers = []
    async with providing() as provider, charging(provider.base_url) as there:
        for model in ("plain", "streamed"):
            asking = there.send(model, model, f"{model[:1]}/9 Hi", max_tokens=7)
            await provider.arrived.acquire()
            provider.bills[model[:1]].go.release()
            for _ in range(20):
                provider.bills[model[:1]].go.release()
            status, content, _ = await asking
            answer = json.loads(content)
            assert status == 200
            answers.append((answer["choices"], answer["usage"]))
            record = await there.record(model)
            assert (record.prompt, record.completion) == provider.billed(model[:1])
            assert cost_of(record)
    assert answers[0] == answers[1]


@pytest.mark.parametrize("door", ["", '[[doors]]\nname = "hosted"\nkind = "hosted"\n'])
@pytest.mark.parametrize("dialect", ["vllm", "lmstudio"])
@pytest.mark.parametrize("says", [None, True, False])
async def test_providers_always_stream_where_there_are_accounts(
    tmp_path: Path, door: str, dialect: str, says: bool | None
) -> None:
    """Or where the dialect does; the settings have the last word."""
    text = f'{door}[[providers]]\nname = "a"\nbase_url = "http://a.example/v1"\n'
    text += f'dialect = "{dialect}"\n'
    if says is not None:
        text += f"always_stream = {str(says).lower()}\n"
    (tmp_path / "causerie.toml").write_text(text)
    given = load(file=tmp_path / "causerie.toml", environ={}).settings
    before = connected(given, Credentials(), {})
    unset = bool(door) or dialect == "lmstudio"
    assert before["a"].provider.dialect.streams == (unset if says is None else says)
    assert connected(given, Credentials(), before)["a"] is before["a"]
    await before["a"].client.close()


class Dying(FakeEngine):
    """Ends before it has said anything, or after some tokens."""

    left = 0

    async def _generated_outputs(self, request: TextRequest) -> AsyncGenerator[Output, None]:
        async with aclosing(super()._generated_outputs(request)) as outputs:
            async for output in outputs:
                if not self.left:
                    raise EngineFailed("gone")
                self.left -= isinstance(output, Token)
                yield output


@pytest.mark.parametrize("made", [0, 2])
async def test_an_engine_that_ends_beneath_a_request_says_when_to_come_again(made: int) -> None:
    """For breakers it is a failure of the target, as before."""
    engine = Dying("m")
    engine.left = made
    chat = TextChat(engine, Unchecked())
    request = ChatRequest(model="m", messages=(Message("user", "Hi there"),))
    async with chat.generate(request) as answer:
        assert answer.usage() == Usage(0, 0)
        with pytest.raises(EngineLost) as lost:
            async for _ in answer.events:
                pass
        assert answer.usage().prompt > 0
        assert answer.usage().completion == made
    failure = lost.value
    assert isinstance(failure, UpstreamFailed)
    assert (failure.status, failure.code) == (503, "no_endpoint")
    assert failure.headers["Retry-After"] == "1"


@dataclass(eq=False)
class Asked:
    """A request of a client, and where it is; ``steps`` that its provider was let go."""

    name: str
    asking: asyncio.Task[Any]
    provider: CountingProvider
    target: Heard | None
    reply: int
    choices: int
    steps: int = 0
    gone: bool = False


@dataclass
class World:
    """Two providers and a gateway, on one loop."""

    runner: asyncio.Runner = field(default_factory=asyncio.Runner)
    held: AsyncExitStack = field(default_factory=AsyncExitStack)
    providers: list[CountingProvider] = field(default_factory=list)
    there: Charging = field(init=False)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    async def open(self, first_byte_seconds: float) -> None:
        self.providers = [await self.held.enter_async_context(providing()) for _ in range(2)]
        urls = [provider.base_url for provider in self.providers]
        limits = RequestLimits(first_byte_seconds=first_byte_seconds)
        self.there = await self.held.enter_async_context(charging(*urls, limits=limits))


def idle(provider: CountingProvider) -> bool:
    """Return true if it works on nothing."""
    return not provider.waiting and all(bill.over for bill in provider.bills.values())


class Leaving(RuleBasedStateMachine):
    """Requests come, their providers go on step by step, their clients leave at any of them."""

    requests = Bundle("requests")

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.numbers = itertools.count()
        self.all: list[Asked] = []

    @initialize(first_byte_seconds=st.sampled_from((0.0, 0.001)))
    def begin(self, first_byte_seconds: float) -> None:
        """Serve; streams wait for their first content, or start before it."""
        self.world.run(self.world.open(first_byte_seconds))

    @rule(
        target=requests,
        model=st.sampled_from(["plain", "streamed"]),
        stream=st.booleans(),
        size=st.integers(0, 3000),
        whole=st.integers(0, 12),
        limit=st.none() | st.integers(1, 12),
        choices=st.sampled_from([1, 1, 1, 2]),
        piece=st.sampled_from([1, 3]),
        telling=st.sampled_from(["last", "first", "each"]),
    )
    def ask(
        self,
        model: str,
        stream: bool,
        size: int,
        whole: int,
        limit: int | None,
        choices: int,
        piece: int,
        telling: Any,
    ) -> Asked:
        async def ask() -> Asked:
            name = f"r{next(self.numbers)}"
            there, provider = self.world.there, self.world.providers[0]
            for each in self.world.providers:
                each.tokens_a_piece, each.telling = piece, telling
            more: dict[str, Any] = {} if limit is None else {"max_tokens": limit}
            many = choices if model == "streamed" or stream else 1
            text = f"{name}/{whole} " + "x" * size
            heard = there.targets[f"{model}0"]
            reply = len(heard.replies)
            asking = there.send(name, model, text, stream=stream, n=many, **more)
            made = Asked(name, asking, provider, heard, reply, many)
            await settled(
                lambda: (
                    len(heard.replies) > reply
                    and (name in provider.bills or not provider.reads.is_set())
                )
            )
            self.all.append(made)
            return made

        return self.world.run(ask())

    @rule(asked=requests, steps=st.integers(1, 4), heard=st.booleans())
    def go_on(self, asked: Asked, steps: int, heard: bool) -> None:
        """Its provider takes some steps; mostly until what it sent has arrived."""

        async def go_on() -> None:
            bill = asked.provider.bills.get(asked.name)
            if bill is None or asked.gone:
                return
            for _ in range(steps):
                bill.go.release()
                asked.steps += 1
                await settled(lambda: bill.go.locked() or bill.over)
            if heard and bill.streamed and asked.target is not None:
                reply = asked.target.replies[asked.reply]
                await settled(lambda: reply.usage().completion >= bill.out)

        self.world.run(go_on())

    @rule(asked=consumes(requests))
    def leave(self, asked: Asked) -> None:
        self.world.run(self._leave(asked))

    @rule()
    def read_or_not(self) -> None:
        """The first provider reads what arrives no more, or again."""

        async def turn() -> None:
            reads = self.world.providers[0].reads
            if reads.is_set():
                reads.clear()
                return
            reads.set()
            await settled(lambda: not self.world.providers[0].waiting)

        self.world.run(turn())

    async def _leave(self, asked: Asked) -> None:
        asked.gone = True
        await left(asked.asking)

    def teardown(self) -> None:
        world = self.world
        try:
            world.run(self._end())
        finally:
            world.run(world.held.aclose())
            world.runner.close()

    async def _end(self) -> None:
        there = self.world.there
        for asked in self.all:
            await self._leave(asked)
        records = {asked.name: await there.record(asked.name) for asked in self.all}
        for provider in self.world.providers:
            provider.reads.set()
            await settled(partial(idle, provider))
        for asked in self.all:
            self._judge(asked, records[asked.name])
        used = sum(record.prompt + record.completion for record in records.values())
        assert await self._used() == used

    def _judge(self, asked: Asked, record: UsageRecord) -> None:
        counts = [provider.billed(asked.name) for provider in self.world.providers]
        prompt, made = max(counts)
        assert record.status in (200, 499)
        if record.status == 200 and asked.target is not None:
            assert prompt == record.prompt
            assert made == record.completion
        else:
            assert prompt <= record.prompt
            assert made <= record.completion + ON_ITS_WAY * asked.choices
        assert cost_of(record) or record.completion == 0 == record.cost

    async def _used(self) -> int:
        """Return the tokens that count against the limit now."""
        asking = self.world.there.send("last", "streamed", "last/1 Hi", max_tokens=1)
        provider = self.world.providers[0]
        await settled(lambda: "last" in provider.bills)
        for _ in range(8):
            provider.bills["last"].go.release()
        _, _, headers = await asking
        reserved = 4 + -(-len("last/1 Hi") // 4) + 1
        return TOKENS_A_MINUTE - int(headers["x-ratelimit-remaining-tokens"]) - reserved


Leaving.TestCase.settings = settings(
    max_examples=examples(60),
    phases=[Phase.reuse, Phase.generate],  # to shrink what opens sockets takes minutes
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestLeaving = Leaving.TestCase
