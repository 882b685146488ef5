"""The wire to the child: what is asked of it, and how its stream is read."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
from aiohttp import web
from casekit import each_of

from causerie.engines.base import (
    EngineFailed,
    Output,
    PromptTooLong,
    Started,
    Stopped,
    TextRequest,
    Token,
    TokenAlternative,
)
from causerie.engines.llamacpp.client import (
    ChunkedPrefill,
    LlamaCppClient,
    PartialTokens,
    completion_body,
)
from causerie.engines.llamacpp.slots import PromptStore, Slots
from causerie.engines.prefill import PrefillSpeed
from causerie.engines.process import IpcSocket, Pulse
from causerie.engines.weights.vocabulary import TokenTable
from causerie.protocol.parameters import SamplingParams

REQUEST = TextRequest(prompt=(1, 2, 3), max_tokens=8)
TOKENS = (b"a", b"\xf0\x9f", b"\x99\x82", b" \xe6", b"\x97", b"\xa5", b"\xf0", b"\x9f", b"\x97\xa5")
PARTIAL = PartialTokens(
    TokenTable(tokens=TOKENS, types=(1,) * len(TOKENS), bos=None, eos=None, end=())
)


def slots() -> Slots:
    """Four slots, and no memory for what leaves them."""
    return Slots(4, 100_000, PromptStore(0, 1))


def prefill() -> ChunkedPrefill:
    """Fast enough that every prompt is read whole."""
    return ChunkedPrefill(batch=64, context=100_000, token_seconds=1e-6)


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def at_a_socket(handler: Handler, path: str) -> AsyncIterator[LlamaCppClient]:
    """The same at a Unix socket."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.UnixSite(runner, path).start()
    client = LlamaCppClient(path, "secret", slots(), prefill(), PARTIAL, Pulse())
    try:
        yield client
    finally:
        await client.close()
        await runner.cleanup()


@asynccontextmanager
async def engine(handler: Handler) -> AsyncIterator[LlamaCppClient]:
    """A client of a server on loopback that answers everything with ``handler``."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    client = LlamaCppClient(runner.addresses[0][1], "secret", slots(), prefill(), PARTIAL, Pulse())
    try:
        yield client
    finally:
        await client.close()
        await runner.cleanup()


def saying(*chunks: bytes, cut: bool = False) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if cut:
            assert request.transport is not None
            request.transport.abort()
        return response

    return handler


def item(**fields: object) -> bytes:
    return b"data: " + msgspec.json.encode(fields) + b"\n\n"


LAST = item(
    stop=True, stop_type="eos", tokens_predicted=2, tokens_evaluated=3, timings={"cache_n": 2}
)


async def outputs(client: LlamaCppClient, request: TextRequest = REQUEST) -> list[Output]:
    async with client.complete(request) as stream:
        return [output async for output in stream]


def test_what_nobody_set_is_neutral() -> None:
    body = completion_body(REQUEST, 0)
    assert body["prompt"] == (1, 2, 3)
    assert (body["n_predict"], body["stream"]) == (8, True)
    assert (body["temperature"], body["top_p"], body["top_k"], body["min_p"]) == (1.0, 1.0, 0, 0.0)
    assert body["repeat_penalty"] == 1.0
    assert (body["frequency_penalty"], body["presence_penalty"]) == (0.0, 0.0)
    assert body["ignore_eos"] is False
    assert not {"seed", "logit_bias", "grammar", "n_probs", "preserved_tokens"} & set(body)


def test_greedy_is_the_best_candidate_behind_penalties() -> None:
    sampling = SamplingParams(temperature=0.0, top_p=0.9, top_k=20, repetition_penalty=1.05)
    body = completion_body(TextRequest((1,), 1, sampling), 0)
    assert (body["temperature"], body["top_p"], body["top_k"]) == (0.0, 0.9, 1)
    assert body["repeat_penalty"] == 1.05
    assert body["samplers"] == ["penalties", "top_k"]


def test_a_value_that_is_off_is_sent_as_off() -> None:
    sampling = SamplingParams(temperature=1.0, top_k=-1, top_p=1.0, min_p=0.0)
    body = completion_body(TextRequest((1,), 1, sampling), 0)
    assert (body["temperature"], body["top_p"], body["top_k"], body["min_p"]) == (1.0, 1.0, 0, 0.0)
    assert body["samplers"] == ["temperature"]


def test_everything_asked_for_is_in_the_body() -> None:
    sampling = SamplingParams(seed=-1, logit_bias={5: -100.0}, frequency_penalty=0.5)
    request = TextRequest(
        (1,), 1, sampling, grammar="g", logprobs=0, visible=("<x>",), ignore_eos=True
    )
    body = completion_body(request, 0)
    assert body["seed"] == 2**32 - 1
    assert body["logit_bias"] == [[5, -100.0]]
    assert (body["grammar"], body["n_probs"], body["ignore_eos"]) == ("g", 1, True)
    assert body["preserved_tokens"] == ("<x>",)
    assert body["frequency_penalty"] == 0.5


async def test_a_stream_however_it_is_cut() -> None:
    text = "\u2028 é"
    stream = (
        item(tokens=[0], prompt_progress={"total": 3, "cache": 2, "processed": 2})
        + item(tokens=[0], prompt_progress={"total": 3, "cache": 2, "processed": 3})
        + b": ping\n\n"
        + item(content=text, tokens=[7], tokens_predicted=1)
        + item(content="", tokens=[2], tokens_predicted=2)
        + LAST
    )
    expected = [Started(2), Token(7, text), Token(2, ""), Stopped("stop", 3, 2, 2)]
    for size in (1, 7, len(stream)):
        chunks = [stream[n : n + size] for n in range(0, len(stream), size)]
        async with engine(saying(*chunks)) as client:
            assert await outputs(client) == expected


async def test_the_key_goes_along() -> None:
    seen: list[str | None] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers.get("Authorization"))
        return web.json_response({"tokens": [1]})

    async with engine(handler) as client:
        assert await client.ask("POST", "/tokenize", {"content": "a"}) == {"tokens": [1]}
    assert seen == ["Bearer secret"]


@each_of(
    ("text", "last", "predicted", "expected"),
    [
        ("a", 0, 1, []),
        ("🙂", 2, 2, [1]),
        ("🙂", 2, 3, [6, 7]),  # as many as there were
        ("🙂", 2, 9, [1]),  # a wrong count: as few as do
        (" 日", 5, 3, [3, 4]),
        (" 日", 8, 2, [3]),
        ("�", 4, 2, []),  # invalid: nothing spells it
    ],
)
async def test_tokens_inside_a_character_are_found_again(
    text: str, last: int, predicted: int, expected: list[int]
) -> None:
    stream = item(content=text, tokens=[last], tokens_predicted=predicted) + LAST
    async with engine(saying(stream)) as client:
        *tokens, _ = await outputs(client)
    assert tokens == [*(Token(id, "") for id in expected), Token(last, text)]


async def test_log_probabilities() -> None:
    other = {"id": 9, "token": "b", "bytes": [98], "logprob": -2.0}
    entry = {"id": 0, "token": "a", "bytes": [97], "logprob": -0.5, "top_logprobs": [other]}
    stream = (
        item(content="a", tokens=[0], tokens_predicted=1, completion_probabilities=[entry]) + LAST
    )
    async with engine(saying(stream)) as client:
        for asked, top in ((1, (TokenAlternative(9, "b", b"b", -2.0),)), (0, ())):
            token, _ = await outputs(client, TextRequest((1,), 1, logprobs=asked))
            assert token == Token(0, "a", b"a", -0.5, top)


@pytest.mark.parametrize(
    ("chunks", "cut", "reason"),
    [
        ([item(content="a", tokens=[0])], True, "broke"),
        ([item(content="a", tokens=[0])], False, "before it was complete"),
        ([item(error={"code": 500, "message": "no"})], False, "in the middle"),
    ],
)
async def test_an_answer_that_breaks_off_is_a_failure(
    chunks: list[bytes], cut: bool, reason: str
) -> None:
    async with engine(saying(*chunks, cut=cut)) as client:
        with pytest.raises(EngineFailed, match=reason) as failure:
            await outputs(client)
    assert not failure.value.loading


async def test_a_prompt_too_long_is_refused_on_entering() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        error = {"type": "exceed_context_size_error", "n_prompt_tokens": 900, "n_ctx": 512}
        return web.json_response({"error": error}, status=400)

    async with engine(handler) as client:
        with pytest.raises(PromptTooLong) as failure:
            await client.complete(REQUEST).__aenter__()
    assert (failure.value.tokens, failure.value.context_length) == (900, 512)


@pytest.mark.parametrize(
    ("status", "body", "loading"),
    [
        (503, b'{"error": {"message": "Loading model"}}', True),
        (500, b'{"error": {"message": "broken"}}', False),
        (500, b"<html>", False),
    ],
)
async def test_other_refusals_are_failures(status: int, body: bytes, loading: bool) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, body=body)

    async with engine(handler) as client:
        with pytest.raises(EngineFailed, match=str(status)) as failure:
            await outputs(client)
        assert failure.value.loading is loading
        with pytest.raises(EngineFailed, match=str(status)):
            await client.ask("GET", "/slots")


@pytest.mark.skipif(sys.platform == "win32", reason="there are no Unix sockets")
async def test_a_unix_socket_does_as_well() -> None:
    ipc_socket = IpcSocket()
    assert ipc_socket.path is not None
    said = saying(item(content="a", tokens=[0]), LAST)
    try:
        async with at_a_socket(said, ipc_socket.path) as client:
            assert [type(output) for output in await outputs(client)] == [Token, Stopped]
        with pytest.raises(EngineFailed, match="gone") as failure:
            await outputs(client)
        assert failure.value.loading
    finally:
        ipc_socket.close()


async def test_nobody_there_means_that_it_is_coming_back() -> None:
    async with engine(saying()) as client:
        pass
    gone = LlamaCppClient(
        1, "secret", slots(), prefill(), PARTIAL, Pulse()
    )  # nothing listens on port 1
    try:
        with pytest.raises(EngineFailed) as failure:
            await outputs(gone)
        assert failure.value.loading
    finally:
        await gone.close()
        await client.close()


async def test_what_the_reader_raises_stays_what_it_is() -> None:
    async with engine(saying(item(content="a", tokens=[0]), LAST)) as client:
        with pytest.raises(ConnectionError, match="mine"):
            async with client.complete(REQUEST) as stream:
                async for _ in stream:
                    raise ConnectionError("mine")


class Fixed(PrefillSpeed):
    """A speed that no step changes."""

    def observe(self, tokens: int, seconds: float) -> None:
        """Note nothing."""


def reading(asked: list[list[int]]) -> Handler:
    """An engine that notes the prompts, and has those in its cache that a prompt begins with."""

    async def handler(request: web.Request) -> web.StreamResponse:
        prompt = (await request.json())["prompt"]
        cached = max((len(had) for had in asked if prompt[: len(had)] == had), default=0)
        asked.append(prompt)
        total = len(prompt)
        progress = [
            item(tokens=[0], prompt_progress={"total": total, "cache": cached, "processed": read})
            for read in (cached, total)
        ]
        made = item(content="a", tokens=[0], tokens_predicted=1)
        last = item(stop=True, stop_type="limit", tokens_predicted=1, tokens_evaluated=total)
        return await saying(*progress, made, last)(request)

    return handler


async def test_a_long_prompt_is_read_in_chunks_and_small_ones_while_another_streams() -> None:
    asked: list[list[int]] = []
    long = TextRequest(prompt=tuple(range(200)), max_tokens=1)
    async with engine(reading(asked)) as client:
        client._prefill = ChunkedPrefill(64, 1000, 1)
        client._prefill.speed = Fixed(0.05)
        alone = await outputs(client, long)
        assert [len(prompt) for prompt in asked] == [64, 128, 192, 200]
        del asked[:]
        async with client.complete(REQUEST) as stream:
            async for output in stream:
                if isinstance(output, Token):
                    other = TextRequest(prompt=tuple(range(1000, 1200)), max_tokens=1)
                    streaming = await outputs(client, other)
        assert [len(prompt) for prompt in asked[1:]] == [*range(8, 200, 8), 200]
    assert alone == streaming == [Started(0), Token(0, "a"), Stopped("length", 200, 1, 0)]
