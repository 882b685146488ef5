"""An embedding model as a target: texts or tokens in, one reply with their vectors out.

Texts are plain text: no control token is read in them. Inputs go to the engine in groups of as many
as it has slots. So other requests come between, and a client that leaves frees it soon.
"""

from __future__ import annotations

import math
import struct
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from causerie.chat.chat import ChatReply, dropped_parameters
from causerie.chat.generation import engine_failures
from causerie.engines.base import EmbeddingEngine, ModelFacts, PromptTooLong
from causerie.errors import InvalidRequest
from causerie.protocol.events import Batch, Finished, Partial, PassedBytes, Usage
from causerie.protocol.operations import FIELDS
from causerie.protocol.request import ChatRequest

MAX_INPUTS = 2048
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class EmbeddingTarget:
    """Answers requests for embeddings by the engine of the model ``model``."""

    model: str
    engine: EmbeddingEngine
    retries: int = 0

    @asynccontextmanager
    async def generate(
        self, request: ChatRequest, partial: Partial | None = None
    ) -> AsyncIterator[ChatReply]:
        """Answer a request by one batch of events; usage counts the inputs that are finished."""
        del partial
        dropped = dropped_parameters(request, FIELDS["embeddings"])
        given: Any = request.document["input"]
        if not isinstance(given, str) and not isinstance(given[0], int) and len(given) > MAX_INPUTS:
            raise InvalidRequest(
                f"`input` holds {len(given)} texts; send at most {MAX_INPUTS} at a time.",
                param="input",
            )
        used = Usage(0, 0)

        async def events() -> AsyncGenerator[Batch, None]:
            nonlocal used
            with engine_failures(started=False):
                try:
                    inputs = await self._tokenize_inputs(request.document["input"], facts)
                except PromptTooLong as long:
                    raise _build_too_long_error(long) from None
                vectors: list[bytes] = []
                step = max(self.engine.slots, 1)
                for start in range(0, len(inputs), step):
                    group = inputs[start : start + step]
                    for vector in await self.engine.embed(group):
                        vectors.append(_encode_vector_entry(request.document, len(vectors), vector))
                    used = Usage(used.prompt + sum(map(len, group)), 0)
            used = Usage(used.prompt, 0, units=1)
            usage = {"prompt_tokens": used.prompt, "total_tokens": used.prompt}
            raw = b'{"object":"list","data":[%b],"model":%b,"usage":%b}' % (
                b",".join(vectors),
                _encode(self.model),
                _encode(usage),
            )
            yield [PassedBytes(raw), Finished("stop"), used]

        with engine_failures(started=False):
            facts = await self.engine.facts()
        async with aclosing(events()) as batches:
            yield ChatReply(batches, facts.fingerprint, lambda: used, lambda: None, dropped)

    def continues(self, request: ChatRequest, partial: Partial) -> bool:
        """Return false: a reply comes whole."""
        return False

    async def count_tokens(self, request: ChatRequest) -> None:
        """Return ``None``: no operation asks for it."""

    async def _tokenize_inputs(self, inputs: Any, facts: ModelFacts) -> Sequence[Sequence[int]]:
        several = [inputs] if isinstance(inputs, str) or isinstance(inputs[0], int) else inputs
        if isinstance(several[0], str):
            found = await self.engine.input_tokens(several)
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


def _encode_vector_entry(request_fields: Mapping[str, Any], index: int, vector: bytes) -> bytes:
    asked, there = request_fields.get("dimensions"), len(vector) // 4
    if asked is not None and asked > there:
        raise InvalidRequest(
            f"`dimensions` is {asked}, and the model's vectors have {there}; ask for as many "
            "or fewer.",
            param="dimensions",
        )
    if asked is not None and asked < there:
        values = struct.unpack_from(f"<{asked}f", vector)
        length = math.sqrt(math.fsum(value * value for value in values)) or 1.0
        vector = struct.pack(f"<{asked}f", *(value / length for value in values))
    if request_fields.get("encoding_format") == "base64":
        found = b'"%b"' % b64encode(vector)
    else:
        found = _encode(struct.unpack(f"<{len(vector) // 4}f", vector))
    return b'{"object":"embedding","index":%d,"embedding":%b}' % (index, found)


def _build_too_long_error(failure: PromptTooLong) -> InvalidRequest:
    most = failure.context_length
    return InvalidRequest(
        f"This model's maximum context length is {most} tokens; a text of `input` has at least "
        f"{failure.tokens}. Split it.",
        code="context_length_exceeded",
        param="input",
        metadata={"prompt_tokens": failure.tokens, "context_length": most},
    )
