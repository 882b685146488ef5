"""Schemas of bodies: of requests from the declared parameters, of responses from their types.

A test gives every place of a request every odd value and holds the answers to the schemas.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from causerie.edge.components import received, sent
from causerie.edge.health import Health
from causerie.edge.schema import Schema, ref, structure, text
from causerie.errors import Error
from causerie.protocol.completion import Chunk, Completion
from causerie.protocol.declaration import Parameter, declared
from causerie.protocol.key_statements import RouterCredits, RouterGeneration, RouterKey
from causerie.protocol.model_entries import (
    ModelList,
    RouterCount,
    RouterEndpoints,
    RouterModel,
    RouterModelData,
    RouterModelList,
    ServedModelEntry,
)
from causerie.protocol.parameters import HINTS, PARAMETERS, RouterParameters

_Hint = Annotated[Any, Meta(description="A hint: taken and dropped.")]
_MODEL_OR_MODELS = [
    {"required": ["model"], "properties": {"model": {"type": "string"}}},
    {"required": ["models"], "properties": {"models": {"type": "array", "minItems": 1}}},
]
_ROUTER = (
    *(RouterModelData, RouterModelList, RouterCount, RouterEndpoints),
    *(RouterKey, RouterCredits, RouterGeneration),
)


def request_schemas(max_messages: int) -> dict[str, Schema]:
    """Return the schemas of requests at all doors, and at those of routers."""
    common = [each for each in PARAMETERS.values() if not each.facts.router]
    router = [*PARAMETERS.values(), *declared(RouterParameters)]
    schemas = received(_body("ChatRequest", common), _body("RouterRequest", router))
    for name in ("ChatRequest", "RouterRequest"):
        properties = schemas[name]["properties"]
        assert isinstance(properties, dict)
        properties["messages"]["maxItems"] = max_messages
    schemas["RouterRequest"] |= {"required": ["messages"], "anyOf": _MODEL_OR_MODELS}
    return schemas


def _body(name: str, parameters: Iterable[Parameter]) -> type[Struct]:
    """Return the type of a body with these parameters, and with all hints."""
    required = [(each.name, each.annotation) for each in parameters if each.required]
    optional = [(each.name, each.optional, None) for each in parameters if not each.required]
    hints = [(hint, _Hint, None) for hint in HINTS]
    return msgspec.defstruct(name, [*required, *optional, *hints], kw_only=True)


def response_schemas() -> dict[str, Schema]:
    entries = [ref(kind.__name__) for kind in (ServedModelEntry, RouterModel)]
    return {
        **sent(Completion, Chunk, Error, Health, ModelList, ServedModelEntry, *_ROUTER),
        "Model": {"anyOf": entries},  # msgspec makes no union of types without tags
        "ChunkEvent": structure("data", data=_chunk_data()),
    }


def _chunk_data() -> Schema:
    """Return the schema of the text after ``data:``: a chunk, or the mark of the end."""
    chunk: Schema = {
        "type": "string",
        "contentMediaType": "application/json",
        "contentSchema": ref("Chunk"),
    }
    return {"anyOf": [text(enum=["[DONE]"]), chunk]}
