"""Writes vLLM's command line and speaks its HTTP: token ids of a prompt in, a stream out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Literal

import msgspec

from causerie.engines import base
from causerie.engines.grammar_matcher import Spelling
from causerie.engines.options import VllmOptions
from causerie.engines.process import EngineTransport, Pulse, read_answer
from causerie.engines.sampling import engine_fields
from causerie.http.client import Reach
from causerie.http.client_connection import HttpResponse, TransportFailed
from causerie.protocol.sse import EventDecoder

HEALTH = "/health"  # answered with what nobody reads
SERVED_NAME = "model"  # as one of ours calls its model; nobody else hears that name
SLOTS = 256  # vLLM's own default for servers
MOST_ALTERNATIVES = 20


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Address and limits of a vLLM server that others run."""

    address: str  # its base address, without `/v1`
    key: str | None = field(default=None, repr=False)  # the key that it requires
    name: str | None = None  # its name of the model; `None` if it has only one
    context: int | None = None  # bound on a request in tokens, if less than the server's own
    parallel: int | None = None  # requests at the same time
    reach: Reach = field(default_factory=Reach, repr=False)


def vllm_arguments(model: Path, options: VllmOptions, place: int | str) -> Sequence[str]:
    """Return the command that serves the model folder at a loopback port, or at a socket.

    Defaults of the model's own for sampling are switched off: a request says
    how tokens are drawn, or the configuration does.
    """
    where = ["--uds", place] if isinstance(place, str) else ["--host", "127.0.0.1", "--port", place]
    chosen = {
        "--max-model-len": options.context,
        "--max-num-seqs": options.parallel or SLOTS,
        "--tensor-parallel-size": options.tensor_parallel,
        "--pipeline-parallel-size": options.pipeline_parallel,
        "--data-parallel-size": options.data_parallel,
        "--gpu-memory-utilization": options.gpu_memory,
        "--dtype": options.dtype,
        "--quantization": options.quantization,
    }
    given = [part for name, value in chosen.items() if value is not None for part in (name, value)]
    every = [
        *(options.command, "serve", model),
        *where,
        *("--served-model-name", SERVED_NAME),
        *("--structured-outputs-config", '{"backend": "guidance"}'),
        *("--generation-config", "vllm"),
        *("--max-logprobs", MOST_ALTERNATIVES),
        "--enable-prompt-tokens-details",
        "--disable-uvicorn-access-log",
        *given,
        *options.args,
    ]
    return [str(part) for part in every]


_DONE = b"[DONE]"
_PASSING = frozenset((502, 503, 504))  # it, or who stands before it, is about to be there
_TOO_MANY = 429
_ID = "token_id:"  # before the number, where a token is named by its id


class _Logprobs(msgspec.Struct):
    token_logprobs: tuple[float | None, ...] = ()
    top_logprobs: tuple[dict[str, float] | None, ...] | None = None


class _Choice(msgspec.Struct):
    token_ids: tuple[int, ...] | None = None
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Item(msgspec.Struct):
    choices: tuple[_Choice, ...] = ()
    usage: _Usage | None = None
    error: dict[str, Any] | None = None


_decode = msgspec.json.Decoder(_Item).decode


class VllmRefused(base.EngineFailed):
    """Raised if the server answers with an error; ``status`` is that of HTTP."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message, loading=status in _PASSING)
        self.status = status
        self.refused = 400 <= status < 500 and status != _TOO_MANY


class VllmClient(EngineTransport):
    """Speaks to the server at ``address`` with its ``key``; ``close`` ends all connections.

    ``model`` is what it calls the model that completes.
    """

    def __init__(self, address: str, reach: Reach, key: str | None) -> None:
        # The server closes idle connections after five seconds.
        super().__init__(address, reach, key, idle_seconds=3)
        self.model = SERVED_NAME

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        response = await self.send(method, path, body)
        content = await read_answer(response)
        if response.status != 200:
            raise _refusal_of(response.status, content)
        try:
            return msgspec.json.decode(content) if content and path != HEALTH else None
        except (msgspec.DecodeError, ValueError) as error:  # the latter for what is no UTF-8
            raise base.EngineFailed(f"the engine wrote what cannot be read: {error}") from error

    @asynccontextmanager
    async def complete(
        self, request: base.TextRequest, stops: tuple[int, ...], spelling: Spelling, pulse: Pulse
    ) -> AsyncIterator[AsyncGenerator[base.Output, None]]:
        """Yield the outputs of one completion, which ends with the block or at an id in ``stops``.

        Each piece triggers ``pulse``.
        """
        body = {"model": self.model, **completion_body(request, stops)}
        response = await self.send("POST", "/v1/completions", body)
        try:
            if response.status != 200:
                raise _refusal_of(response.status, await read_answer(response))
            async with aclosing(_stream_outputs(response, request, spelling, pulse)) as outputs:
                yield outputs
        finally:
            response.close()  # the engine sees its client gone, also in the middle


def completion_body(request: base.TextRequest, stops: tuple[int, ...]) -> dict[str, Any]:
    """Return the body of a completion request, without ``model``; unset parameters are neutral.

    As long as fewer than ``min_tokens`` are made it forbids all that would end the text.
    """
    body: dict[str, Any] = {
        "prompt": request.prompt,
        "max_tokens": request.max_tokens,
        "min_tokens": request.max_tokens if request.ignore_eos else 0,
        "stop_token_ids": stops,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        **engine_fields("vllm", request.sampling),
    }
    if request.sampling.seed is not None:
        body["seed"] = request.sampling.seed
    if biases := request.sampling.logit_bias:
        body["logit_bias"] = {str(token): bias for token, bias in biases.items()}
    if request.grammar is not None:
        body["structured_outputs"] = {"grammar": request.grammar}
    if request.scope:
        body["cache_salt"] = request.scope
    if request.logprobs is not None:
        body["logprobs"] = min(request.logprobs, MOST_ALTERNATIVES)
        body["return_tokens_as_token_ids"] = True
    return body


async def _stream_outputs(
    response: HttpResponse, request: base.TextRequest, spelling: Spelling, pulse: Pulse
) -> AsyncGenerator[base.Output, None]:
    made = 0
    reason: Literal["stop", "length"] | None = None
    usage = _Usage()
    decoder = EventDecoder()
    try:
        while piece := await response.piece():
            pulse.beat = monotonic()
            for data in decoder.feed(piece):
                if data == _DONE and reason is not None:
                    details = usage.prompt_tokens_details
                    cached = (details.cached_tokens or 0) if details else 0
                    told = usage.completion_tokens
                    completion = made if told is None else told
                    yield base.Stopped(reason, len(request.prompt), completion, cached)
                    return
                item = _decode(data)
                if item.error is not None:
                    raise VllmRefused(f"the engine failed: {item.error.get('message')}", 200)
                for choice in item.choices:
                    for token in _tokens_of_choice(choice, request.logprobs, spelling):
                        made += 1
                        yield token
                    reason = _stop_reason(choice) or reason
                usage = item.usage or usage
    except (msgspec.DecodeError, ValueError) as error:
        raise base.EngineFailed(f"the engine wrote what cannot be read: {error}") from error
    except TransportFailed as failure:
        raise base.EngineFailed(f"the connection to the engine broke: {failure}") from failure
    raise base.EngineFailed("the engine ended an answer before it was complete")


def _tokens_of_choice(
    choice: _Choice, logprobs: int | None, spelling: Spelling
) -> Iterator[base.Token]:
    ids = choice.token_ids or ()
    weights = choice.logprobs
    if logprobs is None or weights is None:
        yield from (base.Token(id, spelling(id)) for id in ids)
        return
    for index, id in enumerate(ids):
        at = slice(index, index + 1)
        own = next(iter(weights.token_logprobs[at]), None)
        top = next(iter((weights.top_logprobs or ())[at]), None) or {}
        likeliest = sorted(top.items(), key=lambda one: -one[1])[:logprobs]
        named = [(int(name.removeprefix(_ID)), weight) for name, weight in likeliest]
        others = tuple(
            base.TokenAlternative(
                other, (raw := spelling.raw(other)).decode("utf-8", "replace"), raw, weight
            )
            for other, weight in named
        )
        yield base.Token(id, spelling(id), spelling.raw(id), own, others)


def _stop_reason(choice: _Choice) -> Literal["stop", "length"] | None:
    if choice.finish_reason is None:
        return None
    if choice.finish_reason == "stop":
        return "stop"
    if choice.finish_reason == "length":
        return "length"
    raise base.EngineFailed(f"the engine gave up an answer: {choice.finish_reason}")


def _refusal_of(status: int, content: bytes) -> VllmRefused:
    try:
        said = f": {msgspec.json.decode(content)['error']['message']}"
    except (msgspec.DecodeError, ValueError, KeyError, TypeError):
        said = ""
    return VllmRefused(f"the engine answered {status}{said}", status)
