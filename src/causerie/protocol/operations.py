"""Requests of the operations that pass through: their fields, each declared once.

Readers, known fields, the OpenAPI document and the reference page are derived from here. What a
request holds besides is denied unless the provider's dialect or the operator lists it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from causerie.protocol.body_types import MAX_INT32, NotEmpty, StreamOptions
from causerie.protocol.bounded_json import REPLY, SMALL, check
from causerie.protocol.known_fields import Known, known_of
from causerie.protocol.parameters import MAX_ID, Count, ModelId, SamplingParams, Stop, Stops
from causerie.protocol.request import Operation

_Token = Annotated[int, Meta(ge=0, le=MAX_INT32)]
_Tokens = Annotated[tuple[_Token, ...], Meta(min_length=1)]
Input = str | Annotated[tuple[str | _Token | _Tokens, ...], Meta(min_length=1)]
"""A text, its tokens, or several of either kind."""
_User = Annotated[
    Annotated[str, Meta(max_length=MAX_ID)] | None, Meta(description="Who asks, for the provider.")
]


class EmbeddingsRequest(Struct, kw_only=True):
    """Body of a request for the embedding vectors of texts."""

    model: ModelId
    input: Annotated[
        Input, Meta(description="A text or its tokens, or an array of texts or of such tokens.")
    ]
    encoding_format: Annotated[
        Literal["float", "base64"] | None,
        Meta(description="`base64`: the bytes of 32-bit floats, little-endian. Not sent: `float`."),
    ] = None
    dimensions: Annotated[
        Count | None, Meta(description="Length of the vectors, where the model can shorten them.")
    ] = None
    user: _User = None
    input_type: Annotated[
        NotEmpty | None, Meta(description="What the texts are, like `query` or `document`.")
    ] = None


class RerankDocument(Struct):
    text: str


class RerankRequest(Struct, kw_only=True):
    """Body of a request to order documents by how well they answer a query."""

    model: ModelId
    query: NotEmpty
    documents: Annotated[tuple[str | RerankDocument, ...], Meta(min_length=1)]
    top_n: Annotated[Count | None, Meta(description="How many results to return.")] = None
    return_documents: Annotated[
        bool | None, Meta(description="Whether results hold their documents.")
    ] = None
    max_tokens_per_doc: Annotated[
        Count | None, Meta(description="Longer documents are cut by the provider.")
    ] = None


class CompletionsRequest(SamplingParams, frozen=True, kw_only=True):
    """Body of a request for the continuation of a text, up to a ``suffix`` if one is given."""

    model: ModelId
    prompt: Annotated[
        Input, Meta(description="A text or its tokens, or an array of texts or of such tokens.")
    ]
    suffix: Annotated[
        str | None, Meta(description="What stands behind the completion (fill in the middle).")
    ] = None
    max_tokens: Annotated[Count | None, Meta(description="Most tokens of a completion.")] = None
    n: Annotated[
        Annotated[int, Meta(ge=1, le=16)] | None, Meta(description="Completions of each prompt.")
    ] = None
    stop: Annotated[Stop | Stops | None, Meta(description="Texts at which it ends.")] = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    echo: Annotated[bool | None, Meta(description="Whether the prompt is repeated first.")] = None
    logprobs: Annotated[
        Annotated[int, Meta(ge=0, le=20)] | None,
        Meta(description="How many likely tokens are shown with each."),
    ] = None
    user: _User = None


BODIES: Mapping[Operation, type[Struct]] = {
    "embeddings": EmbeddingsRequest,
    "rerank": RerankRequest,
    "completions": CompletionsRequest,
}
"""Types of bodies by operation."""
FIELDS: Mapping[Operation, Known] = {name: known_of(body) for name, body in BODIES.items()}
"""Known fields of bodies by operation; provider preferences of routers are none of them."""
PRICES = frozenset({"cost", "cost_details", "is_byok"})
"""Fields of a provider's usage that say what it charges us; no client gets them."""


_LARGE = 128 * 1024  # bytes of a reply whose arrays are not read
_ARRAY = re.compile(rb'(?<!\\)"\s*:\s*(?=\[)')  # the name of a member that is one
_LEFT_OUT = b"[\t]"  # stands for them; no server writes an empty array so
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode


def members(reply: bytes) -> dict[str, Raw]:
    """Return the members of a reply that is a JSON object.

    The arrays of a large one (vectors, above all) are not read: the first one is the bytes from its
    beginning to the last bracket of the reply. Raises :class:`ValueError` for anything else, and
    for too much work.
    """
    begun = _ARRAY.search(reply) if len(reply) > _LARGE else None
    if begun is None:
        return _check_bounds_and_decode_members(reply)
    start, end = begun.end(), reply.rfind(b"]") + 1
    try:
        found = _check_bounds_and_decode_members(reply[:start] + _LEFT_OUT + reply[end:])
        name = next(name for name, value in found.items() if bytes(value) == _LEFT_OUT)
    except (ValueError, StopIteration):  # a bracket in a text, or an array deeper inside
        return _check_bounds_and_decode_members(reply)
    found[name] = Raw(memoryview(reply)[start:end])
    return found


def _check_bounds_and_decode_members(reply: bytes) -> dict[str, Raw]:
    if len(reply) > SMALL:
        check(reply, REPLY)
    return _decode_members(reply)
