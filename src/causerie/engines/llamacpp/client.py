"""HTTP client of the llama.cpp child: completions as streams of tokens, and tokenisation.

Always streams: a completion that is not streamed goes on when its client leaves. Reads bytes
and splits on line feeds only; decodes just the fields it needs.

*Chunked prefill.* The size of the engine's batch is fixed when it loads, and every step beside a
long prompt would take as long as a whole batch. Long prompts are therefore given in *chunks*, of
which each extends what the slot holds (`docs/internals/design/engines.md`).

*Withheld tokens.* While its text ends in the middle of a character the engine sends nothing, and
then only the last token with the whole character. Their bytes show which tokens came before: they
spell the part of the text that is not the last token's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import InitVar, dataclass, field
from time import monotonic
from typing import Any, Literal

import msgspec

from causerie.engines.base import (
    EngineFailed,
    EngineRefused,
    Output,
    PromptTooLong,
    Started,
    Stopped,
    TextRequest,
    Token,
    TokenAlternative,
)
from causerie.engines.llamacpp.pictures import ImagePrompts
from causerie.engines.llamacpp.slots import LEAST_TOKENS, Slot, Slots
from causerie.engines.prefill import LEAST_OBSERVED, STREAMING_SECONDS, PrefillSpeed
from causerie.engines.process import EngineTransport, Pulse, child_address, read_answer
from causerie.engines.sampling import engine_fields, neutral_values
from causerie.engines.weights.vocabulary import TokenTable
from causerie.http.client_connection import HttpResponse, TransportFailed
from causerie.protocol.sse import EventDecoder


class PartialTokens:
    """The tokens of a vocabulary that hold parts of characters."""

    def __init__(self, vocabulary: TokenTable) -> None:
        self._token_bytes_by_id = vocabulary.tokens
        self._partial_ids_by_bytes: dict[bytes, int] = {}
        for id, token in enumerate(vocabulary.tokens):
            try:
                token.decode()
            except UnicodeDecodeError:
                self._partial_ids_by_bytes[token] = id

    def before(self, text: str, last: int, count: int) -> tuple[int, ...]:
        """Return the ids of tokens that the engine left out before ``last``, the end of ``text``.

        ``count`` is how many there were. If so many cannot be found it is as few as spell the
        missing bytes; where none do (the model wrote invalid UTF-8), nothing.
        """
        if text.isascii() or not 0 <= last < len(self._token_bytes_by_id):
            return ()
        end = self._token_bytes_by_id[last]
        written = text.encode()
        if len(end) >= len(written) or not written.endswith(end):
            return ()
        head = written[: -len(end)] if end else written
        for number in (count, *range(1, len(head) + 1)):
            found = self._find_ids_spelling(head, number)
            if found:
                return found
        return ()

    def _find_ids_spelling(self, head: bytes, exact_count: int) -> tuple[int, ...]:
        if exact_count == 1:
            return (self._partial_ids_by_bytes[head],) if head in self._partial_ids_by_bytes else ()
        for cut in range(len(head) - exact_count + 1, 0, -1):
            first = self._partial_ids_by_bytes.get(head[:cut])
            rest = self._find_ids_spelling(head[cut:], exact_count - 1) if first is not None else ()
            if first is not None and rest:
                return (first, *rest)
        return ()


FULL_SPEED = 64  # tokens of a chunk; each costs a CPU at most 5 % more than in a whole batch

_LONG_SECONDS = 3.0
_ALONE_SECONDS = 4.0  # on a busy machine a round trip takes a tenth of a second
_WAITING_SECONDS = 2 * STREAMING_SECONDS  # what a stream may wait
_ROWS = LEAST_OBSERVED  # of a matrix that kernels take together


@dataclass(eq=False)
class ChunkedPrefill:
    """Sizes the chunks in which an engine reads long prompts, by its speed; one at a time."""

    batch: int  # of the engine, in tokens
    context: int  # of the engine, in tokens
    token_seconds: InitVar[float]  # the speed expected of it, until a step was seen
    full_speed: int = FULL_SPEED  # tokens of a chunk that costs hardly more than in whole batches
    enabled: bool = field(default=True, kw_only=True)  # without, every prompt is read whole
    # Held while a chunk is read: two of them would make one step longer.
    turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    def __post_init__(self, token_seconds: float) -> None:
        self.speed = PrefillSpeed(token_seconds)

    def least_chunk(self, read: int, total: int, *, streaming: bool) -> int | None:
        """Return the fewest tokens of a prompt's next chunk; ``None`` to read the prompt whole."""
        if not self.enabled or total >= self.context:  # the engine refuses what does not fit
            return None
        rest, seconds = total - read, self.speed.token_seconds
        if rest * seconds > _LONG_SECONDS:
            return _ROWS
        waits = streaming and min(rest, self.batch) * seconds > _WAITING_SECONDS
        return self.full_speed if waits and self.full_speed < self.batch else None

    def chunk(self, least: int, *, streaming: bool) -> int:
        """Return the number of tokens of the next chunk: whole batches, or fewer beside streams."""
        batch, fitting = self.batch, self.speed.fitting(STREAMING_SECONDS)
        if streaming and fitting < batch:
            return min(max(fitting // _ROWS * _ROWS, least), batch)
        return max(self.speed.fitting(_ALONE_SECONDS) // batch, 1) * batch


_ENGINE = "llamacpp"
# In the order of other engines: the temperature is applied before the candidates are cut.
_NEUTRAL = {"temperature": 1.0, **neutral_values(_ENGINE, "narrows")}
_NO_PENALTY = neutral_values(_ENGINE, "penalises")
# So much more than two logits differ by that nothing else is drawn, at any temperature that a
# request may have; and so little that their differences stay exact to a ten-thousandth.
_RAISED = 1000.0
# The last item would repeat the whole prompt and all settings.
_LAST_FIELDS = (
    "content", "tokens", "stop", "stop_type", "tokens_predicted", "tokens_evaluated", "timings"
)  # fmt: skip


class _Candidate(msgspec.Struct):
    id: int
    token: str
    bytes: list[int]
    logprob: float


class _Probability(msgspec.Struct):
    bytes: list[int]
    logprob: float
    top_logprobs: tuple[_Candidate, ...] = ()


class _Timings(msgspec.Struct):
    cache_n: int = 0


class _Progress(msgspec.Struct):
    total: int = 0
    cache: int = 0
    processed: int = 0
    time_ms: float = 0.0


class _Item(msgspec.Struct, gc=False):
    content: str = ""
    tokens: tuple[int, ...] = ()
    stop: bool = False
    stop_type: str = ""
    tokens_predicted: int = 0
    tokens_evaluated: int = 0
    timings: _Timings | None = None
    prompt_progress: _Progress | None = None
    completion_probabilities: tuple[_Probability, ...] = ()
    error: dict[str, Any] | None = None


_decode = msgspec.json.Decoder(_Item).decode


def biases(
    allowed: Sequence[int], size: int, body: Mapping[str, Any]
) -> Iterator[tuple[int, float | Literal[False]]]:
    """Yield ids of tokens with what is added to their logits; ``False`` bans the token.

    All but those ``allowed`` are banned. A few are raised instead, unless a penalty applies: it
    would divide what they were raised by.
    """
    if len(allowed) < size // 2 and not _has_penalty(body):
        yield from ((id, _RAISED) for id in allowed)
    else:
        yield from ((id, False) for id in sorted(set(range(size)).difference(allowed)))


class LlamaCppClient(EngineTransport):
    """Speaks to one child; ``close`` ends all connections."""

    def __init__(
        self,
        place: int | str,  # its port on the loopback address, or the path of its Unix socket
        key: str,
        slots: Slots,
        prefill: ChunkedPrefill,
        partial: PartialTokens,  # of its vocabulary
        pulse: Pulse,  # beats while a completion comes
    ) -> None:
        self.images: ImagePrompts | None = None  # made for the first prompt with images
        self._partial_token_finder = partial
        self._pulse = pulse
        self._slots = slots
        self._prefill = prefill
        # A new connection each time: an idle one would occupy a thread of the engine's server.
        super().__init__(*child_address(place), key, idle_seconds=0)

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        response = await self.send(method, path, body)
        content = await read_answer(response)
        if response.status != 200:
            raise EngineFailed(f"the engine answered {response.status}")
        return msgspec.json.decode(content)

    @asynccontextmanager
    async def complete(
        self, request: TextRequest, prompt: object = None
    ) -> AsyncIterator[AsyncGenerator[Output, None]]:
        """Yield one completion once the engine has started it; free its slot on leaving.

        ``prompt`` is the engine's form of one with images, which is read whole.

        What the prompt shares with other conversations is read first where the slot lacks it: the
        engine keeps the state at which it ends, and can go back to it. Some prompts are read in
        chunks. Raises :class:`PromptTooLong` on entering.
        """
        held = self._slots.hold(self, request.prompt, request.max_tokens, request.scope)
        async with held as slot:
            if prompt is not None:
                async with self._run_completion(request, slot, prompt) as outputs:
                    yield outputs
                return
            if request.shared >= slot.read + LEAST_TOKENS:
                await self._read_ahead_and_count_cached(request.prompt[: request.shared], slot)
            least = self._prefill.least_chunk(
                slot.read, len(request.prompt), streaming=self._slots.streaming
            )
            run = (
                self._run_completion(request, slot)
                if least is None
                else aclosing(self._complete_in_chunks(request, slot, least))
            )
            async with run as outputs:
                yield outputs

    async def _complete_in_chunks(
        self, request: TextRequest, slot: Slot, least_chunk: int
    ) -> AsyncGenerator[Output, None]:
        begun = False
        while True:
            async with self._prefill.turn:
                end = slot.read + self._prefill.chunk(least_chunk, streaming=self._slots.streaming)
                if end >= len(request.prompt):
                    break
                found = await self._read_ahead_and_count_cached(request.prompt[:end], slot)
            if not begun:
                begun = True
                yield Started(found)
        async with self._run_completion(request, slot) as outputs:
            async for output in outputs:
                if not (begun and isinstance(output, Started)):
                    yield output

    async def _read_ahead_and_count_cached(self, beginning: Sequence[int], slot: Slot) -> int:
        found = 0
        request = TextRequest(beginning, max_tokens=0)
        async with self._run_completion(request, slot) as outputs:
            async for output in outputs:
                if isinstance(output, Stopped):
                    found = output.cached_tokens
        slot.read_ahead(len(beginning), found)
        return found

    @asynccontextmanager
    async def _run_completion(
        self, request: TextRequest, slot: Slot, prompt: object = None
    ) -> AsyncIterator[AsyncGenerator[Output, None]]:
        body = completion_body(request, slot.id, prompt)
        response = await self.send("POST", "/completion", body)
        try:
            if response.status != 200:
                raise _error_of_answer(response.status, await read_answer(response))
            made = slot.made if request.max_tokens else []  # where none is asked for one comes
            # What reading an image takes says nothing of texts.
            speed = None if prompt is not None else self._prefill.speed
            stream = _Stream(response, self._pulse, slot, speed, made)
            async with aclosing(
                _stream_outputs(stream, self._partial_token_finder, request.logprobs)
            ) as outputs:
                yield outputs
        finally:
            response.close()  # the engine sees its client gone, also in the middle

    async def sample(
        self,
        request: TextRequest,
        prompt: object,
        allowed: Sequence[int] | None = None,
        size: int = 0,
    ) -> Token:
        """Return one token, even if it ends inside a character (a stream holds that back).

        It is one of those ``allowed`` of a vocabulary of ``size``, by the probabilities that the
        model gives them. ``prompt`` is the engine's form of one with images, or ``None``.
        """
        async with self._slots.hold(self, request.prompt, 1, request.scope) as slot:
            usual = completion_body(request, slot.id, prompt)
            body = {**usual, "n_predict": 1, "stream": False}
            body["response_fields"] = (*_LAST_FIELDS, "completion_probabilities")
            if allowed is not None:
                body["logit_bias"] = [*body.get("logit_bias", ()), *biases(allowed, size, body)]
            item = msgspec.convert(await self.ask("POST", "/completion", body), _Item)
            if len(item.tokens) != 1:
                raise EngineFailed("the engine drew no token")
            id = item.tokens[0]
            slot.made.append(id)
            slot.finished = True
        for probability in item.completion_probabilities:
            return _token_with_logprobs(id, item.content, probability, request.logprobs or 0)
        return Token(id, item.content)


@dataclass(slots=True)
class _Stream:
    response: HttpResponse
    pulse: Pulse
    slot: Slot
    speed: PrefillSpeed | None  # to be told how long steps took
    ids: list[int]  # tokens that the engine has generated
    read_ms: float = 0.0  # time after which the engine had read `slot.read` tokens of the prompt

    def read(self, progress: _Progress) -> None:
        tokens, spent = progress.processed - self.slot.read, progress.time_ms - self.read_ms
        if self.speed is not None:
            self.speed.observe(tokens, spent / 1000)
        self.slot.read, self.read_ms = progress.processed, progress.time_ms


async def _stream_outputs(
    stream: _Stream, partial: PartialTokens, logprobs: int | None
) -> AsyncGenerator[Output, None]:
    cached: int | None = None
    made, ids = 0, stream.ids
    plain = logprobs is None
    decoder = EventDecoder()
    try:
        while piece := await stream.response.piece():
            stream.pulse.beat = monotonic()
            for data in decoder.feed(piece):
                item = _decode(data)
                if plain and item.tokens_predicted == made + 1 and item.tokens and not item.stop:
                    made += 1  # one token and no more, as most are
                    ids.append(item.tokens[0])
                    yield Token(item.tokens[0], item.content)
                    continue
                if item.error is not None:
                    raise EngineFailed("the engine failed in the middle of an answer")
                if item.prompt_progress is not None:
                    stream.read(item.prompt_progress)
                    if cached is None:
                        cached = max(item.prompt_progress.cache - stream.slot.ahead, 0)
                        yield Started(cached)
                    continue
                for token in _item_tokens(item, made, partial, logprobs or 0):
                    made += 1
                    ids.append(token.id)
                    yield token
                made = max(made, item.tokens_predicted)
                if item.stop:
                    stream.slot.finished = True
                    timings = item.timings or _Timings()
                    yield Stopped(
                        reason="length" if item.stop_type == "limit" else "stop",
                        prompt_tokens=item.tokens_evaluated,
                        completion_tokens=item.tokens_predicted,
                        cached_tokens=timings.cache_n if cached is None else cached,
                    )
                    return
    except TransportFailed as failure:
        raise EngineFailed(f"the connection to the engine broke: {failure}") from failure
    raise EngineFailed("the engine ended an answer before it was complete")


def completion_body(request: TextRequest, slot: int, prompt: object = None) -> dict[str, Any]:
    """Return the body of a completion request for a slot; unset parameters are neutral in it."""
    wanted = request.sampling
    body: dict[str, Any] = {
        "prompt": request.prompt if prompt is None else prompt,
        "n_predict": request.max_tokens,
        "stream": True,
        "return_tokens": True,
        "cache_prompt": True,
        "id_slot": slot,
        "repeat_last_n": len(request.prompt) + request.max_tokens,
        **engine_fields(_ENGINE, wanted),
        "ignore_eos": request.ignore_eos,
        "return_progress": True,
        "response_fields": _LAST_FIELDS,
    }
    # Each sampler walks over the whole vocabulary, so those without an effect are left out.
    first = ["penalties"] if _has_penalty(body) else []
    if body["temperature"] == 0:  # greedy: the best candidate and no draw over all of them
        body |= {"samplers": [*first, "top_k"], "top_k": 1}
    else:
        active = [name for name, value in _NEUTRAL.items() if body[name] != value]
        body["samplers"] = [*first, *active] or ["temperature"]
    if wanted.seed is not None:
        body["seed"] = wanted.seed % 2**32
    if wanted.logit_bias:
        body["logit_bias"] = [[token, bias] for token, bias in wanted.logit_bias.items()]
    if request.grammar is not None:
        body["grammar"] = request.grammar
    if request.logprobs is not None:
        body["n_probs"] = max(request.logprobs, 1)
    if request.visible:
        body["preserved_tokens"] = request.visible
    return body


def _has_penalty(body: Mapping[str, Any]) -> bool:
    return any(body[name] != value for name, value in _NO_PENALTY.items())


def _item_tokens(item: _Item, made: int, partial: PartialTokens, top_count: int) -> Iterator[Token]:
    if not item.tokens:
        return
    text = item.content
    if not text.isascii():
        missing = item.tokens_predicted - made - len(item.tokens)
        for id in partial.before(text, item.tokens[0], missing):
            yield Token(id, "")
    for index, id in enumerate(item.tokens):
        added = text if index == len(item.tokens) - 1 else ""
        if index < len(item.completion_probabilities):
            yield _token_with_logprobs(id, added, item.completion_probabilities[index], top_count)
        else:
            yield Token(id, added)


def _token_with_logprobs(id: int, text: str, probability: _Probability, top_count: int) -> Token:
    return Token(
        id,
        text,
        bytes(probability.bytes),
        probability.logprob,
        tuple(
            TokenAlternative(other.id, other.token, bytes(other.bytes), other.logprob)
            for other in probability.top_logprobs[:top_count]
        ),
    )


def _error_of_answer(status: int, content: bytes) -> Exception:
    try:
        error = msgspec.json.decode(content)["error"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return EngineFailed(f"the engine answered {status}")
    if error.get("type") == "exceed_context_size_error":
        return PromptTooLong(int(error["n_prompt_tokens"]), int(error["n_ctx"]))
    words = f"the engine answered {status}: {error.get('message')}"
    return EngineRefused(words) if status == 400 else EngineFailed(words, loading=status == 503)
