"""The dialect of llama.cpp's own server, asked of that server."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from providerkit import in_order, joined, request
from service import free_port

from causerie.chat.parser import Separation
from causerie.errors import ContextLengthExceeded, InvalidRequest, ServiceError
from causerie.http.client import HttpClient
from causerie.protocol.events import Event, Finished, Partial, TextDelta, Usage
from causerie.protocol.request import ChatRequest
from causerie.providers.dialects import DIALECTS
from causerie.providers.provider import Provider
from causerie.providers.target import ProviderTarget

SERVER = """
import sys, time, xllamacpp
p = xllamacpp.CommonParams()
p.model.path, p.n_ctx, p.n_parallel = sys.argv[1], 1024, 2
p.hostnames, p.port = ["127.0.0.1"], int(sys.argv[2])
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = 1
s = xllamacpp.Server(p)
print("ready", flush=True)
time.sleep(600)
"""
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 24}
COUNT = [{"role": "user", "content": "Write the numbers from one to ten as words."}]


@pytest.fixture(scope="module")
def address(tiny_gguf: Path) -> Iterator[str]:
    with served(tiny_gguf) as root:
        yield root


@contextmanager
def served(weights: Path) -> Iterator[str]:
    """Its address; whoever asks waits until it answers."""
    port = free_port()
    command = [sys.executable, "-c", SERVER, str(weights), str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
async def chat(address: str) -> AsyncIterator[ProviderTarget]:
    async with target_of(address) as target:
        yield target


@asynccontextmanager
async def target_of(address: str) -> AsyncIterator[ProviderTarget]:
    provider = Provider("llama", HttpClient(address), DIALECTS["llama-server"])
    for _ in range(100):
        try:
            await provider.check("/health")
            break
        except ServiceError:
            await asyncio.sleep(0.1)
    yield ProviderTarget(provider, "m", separators=Separation())
    await provider.close()


async def said(
    chat: ProviderTarget, asked: ChatRequest, partial: Partial | None = None
) -> list[Event]:
    async with chat.generate(asked, partial) as reply:
        events = [event async for batch in reply.events for event in batch]
    in_order(events)
    return joined(events)


def text(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


@pytest.mark.full
async def test_a_stream_and_a_plain_request_say_the_same(chat: ProviderTarget) -> None:
    streamed = await said(chat, request(messages=COUNT, stream=True, **GREEDY))
    plain = await said(chat, request(messages=COUNT, **GREEDY))
    assert text(plain) == text(streamed) != ""
    first, second = streamed[-1], plain[-1]
    assert isinstance(first, Usage)
    assert isinstance(second, Usage)
    assert (first.prompt, first.completion) == (second.prompt, second.completion)
    assert 0 < first.completion <= 24


@pytest.mark.parametrize("cut", [1, 4, 9])
async def test_a_reply_continued_is_the_reply(chat: ProviderTarget, cut: int) -> None:
    asked = request(messages=COUNT, stream=True, **GREEDY)
    async with chat.generate(asked) as reply:
        events = [event async for batch in reply.events for event in batch]
    pieces = [event.text for event in events if isinstance(event, TextDelta)]
    partial = Partial(text="".join(pieces[:cut]), completion=cut)
    rest = await said(chat, asked, partial)
    assert partial.text + text(rest) == "".join(pieces)
    assert [event for event in rest if isinstance(event, Finished)] == [
        event for event in events if isinstance(event, Finished)
    ]


async def test_a_client_continues_its_own_message(chat: ProviderTarget) -> None:
    begun = [*COUNT, {"role": "assistant", "content": "One, two, three,"}]
    events = await said(chat, request(messages=begun, continue_final_message=True, **GREEDY))
    assert "One, two, three," not in text(events)
    assert text(events)


async def test_one_of_some_options(chat: ProviderTarget) -> None:
    options = ['a "quoted" one', "the\nsecond"]
    events = await said(chat, request(structured_outputs={"choice": options}, max_tokens=20))
    assert text(events) in options


async def test_a_schema(chat: ProviderTarget) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [7]}}, "required": ["a"]}
    shape = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    events = await said(chat, request(response_format=shape, temperature=0, max_tokens=100))
    assert json.loads(text(events)) == {"a": 7}  # that server allows white space, tabs too


@pytest.mark.parametrize("top", [None, 0, 2])
async def test_log_probabilities(chat: ProviderTarget, top: int | None) -> None:
    more = {} if top is None else {"top_logprobs": top}
    events = await said(chat, request(logprobs=True, temperature=0, max_tokens=3, **more))
    tokens = [token for event in events if isinstance(event, TextDelta) for token in event.logprobs]
    assert len(tokens) == 3
    assert {len(token.top) for token in tokens} == {top or 0}
    assert "".join(token.text for token in tokens) == text(events)


async def test_a_prompt_that_does_not_fit(chat: ProviderTarget) -> None:
    long = [{"role": "user", "content": "word " * 3000}]
    with pytest.raises(ContextLengthExceeded) as refused:
        await said(chat, request(messages=long))
    assert refused.value.metadata["context_length"] == 512
    tokens = refused.value.metadata["prompt_tokens"]
    assert isinstance(tokens, int)
    assert tokens > 3000


async def test_words_of_a_refusal(chat: ProviderTarget) -> None:
    with pytest.raises(InvalidRequest, match=r"refused the request: .*grammar"):
        await said(chat, request(structured_outputs={"grammar": "root ::= ("}))


async def test_log_biases_and_several_replies(chat: ProviderTarget) -> None:
    events = await said(chat, request(logit_bias={"2020": 100}, max_tokens=2, n=2))
    assert len([event for event in events if isinstance(event, Finished)]) == 2
    said_by = [
        "".join(
            event.text for event in events if isinstance(event, TextDelta) and event.choice == n
        )
        for n in range(2)
    ]
    assert said_by == ["HowHow", "HowHow"]


@pytest.mark.full
async def test_leaving_frees_its_slots(gguf: Path) -> None:
    """There are two; four replies without end that are left give them back."""
    endless = request(messages=COUNT, ignore_eos=True, temperature=0)
    with served(gguf) as address:
        async with target_of(address) as chat:
            for _ in range(4):
                async with chat.generate(endless) as reply:
                    await anext(reply.events)
            events = await said(chat, request(messages=COUNT, stream=True, **GREEDY))
            assert text(events)
