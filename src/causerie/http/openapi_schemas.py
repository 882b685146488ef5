"""Schemas of the OpenAPI document, made from the declared parameters and the types of responses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, get_args

import msgspec
from msgspec import UNSET, Meta, Struct
from msgspec.structs import fields

from causerie.errors import Error
from causerie.http.health import Health
from causerie.protocol.declaration import Parameter, declared
from causerie.protocol.key_statements import (
    CreditsStatement,
    GenerationStatement,
    KeyStatement,
)
from causerie.protocol.model_entries import (
    Count,
    ModelEndpoints,
    ModelList,
    RouterModel,
    RouterModelList,
    ServedModelEntry,
)
from causerie.protocol.parameters import HINTS, PARAMETERS, RouterParameters
from causerie.shapes.chat_completions.encoder import Chunk, Completion
from causerie.shapes.messages.encoder import EVENTS as MESSAGE_EVENTS
from causerie.shapes.messages.encoder import MessageObject
from causerie.shapes.messages.reader import TokenCount
from causerie.shapes.messages.request_types import request_types
from causerie.shapes.responses.encoder import InputTokens, ResponseBody, ResponseEvent
from causerie.shapes.responses.request_types import request_type

Schema = dict[str, object]


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def text_schema(**more: object) -> Schema:
    return {"type": "string", **more}


def integer_schema(least: int, most: int, **more: object) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most, **more}


def received_schemas(*types: type[Struct]) -> dict[str, Schema]:
    """Return the schemas of these types and of all that they hold, by the names of the types.

    A struct may have an ``extra_schema`` for rules between its fields. Where a struct forbids
    fields, ``null`` is still the same as leaving one out.
    """
    schemas, structs = _schemas(types)
    for name, schema in schemas.items():
        if schema.get("additionalProperties") is False:
            schema["additionalProperties"] = {"type": "null"}
        schema |= getattr(structs[name], "extra_schema", {})
    return schemas


def sent_schemas(*types: type[Struct]) -> dict[str, Schema]:
    """Return the schemas of types that the service encodes; fields with defaults are there too."""
    schemas, structs = _schemas(types)
    for name, schema in schemas.items():
        schema["required"] = [
            each.encode_name
            for each in fields(structs[name])
            if each.default is not UNSET
            and (each.required or not structs[name].__struct_config__.omit_defaults)
        ]
    return schemas


def _schemas(types: tuple[type[Struct], ...]) -> tuple[dict[str, Schema], dict[str, type[Struct]]]:
    _, schemas = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    for schema in schemas.values():
        if "description" in schema:
            schema["description"] = schema["description"].replace("``", "`")
        for each in schema.get("properties", {}).values():
            if each.get("default", ...) is None:
                del each["default"]
    return schemas, {each.__name__: each for one in types for each in _structs(one)}


def _structs(kind: Any) -> Iterator[type[Struct]]:
    if isinstance(kind, type) and issubclass(kind, Struct):
        yield kind
        for each in declared(kind):
            yield from _structs(each.type)
    for argument in get_args(kind):
        yield from _structs(argument)


_Hint = Annotated[Any, Meta(description="A hint: taken and dropped.")]
_MODEL_OR_MODELS = [
    {"required": ["model"], "properties": {"model": {"type": "string"}}},
    {"required": ["models"], "properties": {"models": {"type": "array", "minItems": 1}}},
]


def _with_data(name: str, kind: type[Struct]) -> type[Struct]:
    return msgspec.defstruct(name, [("data", kind)])


_ROUTER_TYPES = (
    _with_data("RouterModelData", RouterModel),
    RouterModelList,
    _with_data("RouterCount", Count),
    _with_data("RouterEndpoints", ModelEndpoints),
    _with_data("RouterKey", KeyStatement),
    _with_data("RouterCredits", CreditsStatement),
    _with_data("RouterGeneration", GenerationStatement),
)


def request_schemas(max_messages: int) -> dict[str, Schema]:
    """Return the schemas of requests at all doors, and at those of routers."""
    common = [each for each in PARAMETERS.values() if not each.facts.router]
    router = [*PARAMETERS.values(), *declared(RouterParameters)]
    schemas = received_schemas(
        _body_type("ChatRequest", common), _body_type("RouterRequest", router)
    )
    for name in ("ChatRequest", "RouterRequest"):
        properties = schemas[name]["properties"]
        assert isinstance(properties, dict)
        properties["messages"]["maxItems"] = max_messages
    schemas |= received_schemas(request_type(), *request_types())
    schemas["RouterRequest"] |= {"required": ["messages"], "anyOf": _MODEL_OR_MODELS}
    return schemas


def _body_type(name: str, parameters: Iterable[Parameter]) -> type[Struct]:
    required = [(each.name, each.annotation) for each in parameters if each.required]
    optional = [(each.name, each.optional, None) for each in parameters if not each.required]
    hints = [(hint, _Hint, None) for hint in HINTS]
    return msgspec.defstruct(name, [*required, *optional, *hints], kw_only=True)


def response_schemas() -> dict[str, Schema]:
    entries = [ref(kind.__name__) for kind in (ServedModelEntry, RouterModel)]
    return {
        **sent_schemas(
            *(Completion, Chunk, ResponseBody, ResponseEvent, InputTokens, Error, Health),
            *MESSAGE_EVENTS,
            *(MessageObject, TokenCount, ModelList, ServedModelEntry, *_ROUTER_TYPES),
        ),
        "Model": {"anyOf": entries},  # msgspec makes no union of types without tags
        "ChunkEvent": _server_sent("Chunk"),
        "ResponseStreamEvent": _server_sent("ResponseEvent"),
        "MessageEvent": _server_sent(*(each.__name__ for each in MESSAGE_EVENTS), done=False),
    }


def _server_sent(*names: str, done: bool = True) -> Schema:
    kinds = [
        text_schema(contentMediaType="application/json", contentSchema=ref(name)) for name in names
    ]
    data: list[object] = [text_schema(enum=["[DONE]"]), *kinds] if done else [*kinds]
    return {"type": "object", "properties": {"data": {"anyOf": data}}, "required": ["data"]}
