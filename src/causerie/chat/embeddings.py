"""An embedding model as a target: texts or tokens in, one reply with their vectors out.

Texts are plain text: no control token is read in them. Inputs go to the engine in groups of as many
as it has slots. So other requests come between, and a client that leaves frees it soon.
"""

from __future__ import annotations

import math
import struct
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Self

import msgspec

from causerie.chat.generation import engine_failures
from causerie.engines.base import EmbeddingEngine, ModelFacts, PromptTooLong
from causerie.errors import InvalidRequest
from causerie.protocol.events import (
    ArrivalSink,
    Batch,
    CacheReporter,
    Finished,
    Partial,
    PassedBytes,
    Usage,
)
from causerie.protocol.known_fields import refusal
from causerie.protocol.operations import FIELDS
from causerie.protocol.request import ChatRequest

MAX_INPUTS = 2048
_encode = msgspec.json.Encoder().encode


class EmbeddingTarget:
    """Answers ``embeddings`` by the engine of the model ``model``."""

    retries = 0

    def __init__(self, model: str, engine: EmbeddingEngine) -> None:
        self._model = model
        self._engine = engine

    def generate(self, request: ChatRequest, partial: Partial | None = None) -> EmbeddingReply:
        """Return the reply; entering it raises :class:`InvalidRequest` for a wrong request."""
        del partial
        return EmbeddingReply(self._model, self._engine, request)

    def continues(self, request: ChatRequest, partial: Partial) -> bool:
        """Return false: a reply comes whole."""
        return False

    async def count_tokens(self, request: ChatRequest) -> None:
        """Return ``None``: no operation asks for it."""


class EmbeddingReply:
    """Use as an async context manager; ``events`` has one batch. Usage counts finished inputs."""

    cache_report: CacheReporter | None = None
    verbatim = False
    on_arrival: Callable[[ArrivalSink], None] | None = None
    fingerprint = ""

    def __init__(self, model: str, engine: EmbeddingEngine, request: ChatRequest) -> None:
        self._model = model
        self._engine = engine
        self._request = request
        self._usage = Usage(0, 0)
        self._begun = False
        unlisted = request.unlisted
        self.changes: Sequence[str] = () if unlisted is None else tuple(unlisted.changes)

    async def __aenter__(self) -> Self:
        request = self._request
        if request.unlisted is not None and request.strict:
            refused = refusal(request.unlisted.body, FIELDS["embeddings"])
            if refused is not None:
                raise refused
        given: Any = request.document["input"]
        if not isinstance(given, str) and not isinstance(given[0], int) and len(given) > MAX_INPUTS:
            raise InvalidRequest(
                f"`input` holds {len(given)} texts; send at most {MAX_INPUTS} at a time.",
                param="input",
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        """Do nothing: what runs in the engine ends with the request to it."""

    @property
    def events(self) -> AsyncIterator[Batch]:
        return self

    def usage(self) -> Usage:
        return self._usage

    def trail(self) -> None:
        return None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        if self._begun:
            raise StopAsyncIteration
        self._begun = True
        with engine_failures(started=False):
            facts = await self._engine.facts()
            self.fingerprint = facts.fingerprint
            try:
                inputs = await self._inputs(facts)
            except PromptTooLong as long:
                raise _too_long(long) from None
            vectors = await self._vectors(inputs)
        self._usage = used = Usage(sum(map(len, inputs)), 0, units=1)
        usage = {"prompt_tokens": used.prompt, "total_tokens": used.prompt}
        raw = b'{"object":"list","data":[%b],"model":%b,"usage":%b}' % (
            b",".join(vectors),
            _encode(self._model),
            _encode(usage),
        )
        return [PassedBytes(raw), Finished("stop"), used]

    async def _inputs(self, facts: ModelFacts) -> Sequence[Sequence[int]]:
        given: Any = self._request.document["input"]
        several = [given] if isinstance(given, str) or isinstance(given[0], int) else given
        if isinstance(several[0], str):
            found = await self._engine.input_tokens(several)
        else:
            found = several
            most = facts.size or 0
            if any(token >= most for one in found for token in one):
                raise InvalidRequest(
                    f"`input` has a token that the model does not know; it has {most}.",
                    param="input",
                )
        for at, one in enumerate(found):
            if not one:
                raise InvalidRequest(f"`input[{at}]` must not be empty.", param=f"input[{at}]")
            if len(one) > facts.context_length:
                raise PromptTooLong(len(one), facts.context_length)
        return found

    async def _vectors(self, inputs: Sequence[Sequence[int]]) -> list[bytes]:
        written: list[bytes] = []
        step = max(self._engine.slots, 1)
        for start in range(0, len(inputs), step):
            group = inputs[start : start + step]
            for vector in await self._engine.embed(group):
                written.append(self._written(len(written), vector))
            self._usage = Usage(self._usage.prompt + sum(map(len, group)), 0)
        return written

    def _written(self, index: int, vector: bytes) -> bytes:
        document: Any = self._request.document
        asked, base64 = document.get("dimensions"), document.get("encoding_format") == "base64"
        there = len(vector) // 4
        if asked is not None and asked > there:
            raise InvalidRequest(
                f"`dimensions` is {asked}, and the model's vectors have {there}; ask for as many "
                "or fewer.",
                param="dimensions",
            )
        if asked is not None and asked < there:
            vector = _shortened(vector, asked)
        if base64:
            found = b'"%b"' % b64encode(vector)
        else:
            found = _encode(struct.unpack(f"<{len(vector) // 4}f", vector))
        return b'{"object":"embedding","index":%d,"embedding":%b}' % (index, found)


def _shortened(vector: bytes, size: int) -> bytes:
    values = struct.unpack_from(f"<{size}f", vector)
    length = math.sqrt(math.fsum(value * value for value in values)) or 1.0
    return struct.pack(f"<{size}f", *(value / length for value in values))


def _too_long(text: PromptTooLong) -> InvalidRequest:
    most = text.context_length
    return InvalidRequest(
        f"This model's maximum context length is {most} tokens; a text of `input` has at least "
        f"{text.tokens}. Split it.",
        code="context_length_exceeded",
        param="input",
        metadata={"prompt_tokens": text.tokens, "context_length": most},
    )
