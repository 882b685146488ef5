"""Schemas of what is sent to the service, made from the declared parameters.

A test gives every place of a request every odd value and holds the answers to the schemas.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from causerie.edge.components import received
from causerie.edge.schema import Schema
from causerie.protocol.declaration import Parameter, declared
from causerie.protocol.parameters import HINTS, PARAMETERS, RouterParameters

_Hint = Annotated[Any, Meta(description="A hint: taken and dropped.")]
_MODEL_OR_MODELS = [
    {"required": ["model"], "properties": {"model": {"type": "string"}}},
    {"required": ["models"], "properties": {"models": {"type": "array", "minItems": 1}}},
]


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
