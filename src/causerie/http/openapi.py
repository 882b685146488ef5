"""``GET /openapi.json``: the operations of the interface. The page at `/docs` is made from it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import UNSET, Meta, Struct
from msgspec.structs import fields

import causerie
from causerie.catalog.page_cache import MOST_ENTRIES, SORTS
from causerie.errors import Error
from causerie.http.event_loop import offload
from causerie.http.exchange import Exchange
from causerie.http.health import Health
from causerie.protocol import key_statements
from causerie.protocol.declaration import Parameter, declared
from causerie.protocol.model_entries import (
    Count,
    ModelEndpoints,
    ModelList,
    RouterModel,
    RouterModelList,
    ServedModelEntry,
)
from causerie.protocol.operations import BODIES
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
    """Return the JSON schemas of request types and of the types that they hold, by type name.

    A struct may have an ``extra_schema`` for rules between its fields. Where a struct forbids
    fields, ``null`` is still the same as leaving one out.
    """
    schemas, structs = _build_schemas_and_structs_by_name(types)
    for name, schema in schemas.items():
        if schema.get("additionalProperties") is False:
            schema["additionalProperties"] = {"type": "null"}
        schema |= getattr(structs[name], "extra_schema", {})
    return schemas


def sent_schemas(*types: type[Struct]) -> dict[str, Schema]:
    """Return the JSON schemas of response types; fields that are always sent are required."""
    schemas, structs = _build_schemas_and_structs_by_name(types)
    for name, schema in schemas.items():
        schema["required"] = [
            each.encode_name
            for each in fields(structs[name])
            if each.default is not UNSET
            and (each.required or not structs[name].__struct_config__.omit_defaults)
        ]
    return schemas


def _build_schemas_and_structs_by_name(
    types: tuple[type[Struct], ...],
) -> tuple[dict[str, Schema], dict[str, type[Struct]]]:
    _, schemas = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    for schema in schemas.values():
        if "description" in schema:
            schema["description"] = schema["description"].replace("``", "`")
        for each in schema.get("properties", {}).values():
            if each.get("default", ...) is None:
                del each["default"]
    return schemas, {each.__name__: each for one in types for each in _find_nested_structs(one)}


def _find_nested_structs(annotation: Any) -> Iterator[type[Struct]]:
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        yield annotation
        for each in declared(annotation):
            yield from _find_nested_structs(each.type)
    for argument in get_args(annotation):
        yield from _find_nested_structs(argument)


_Hint = Annotated[Any, Meta(description="A hint: taken and dropped.")]
_MODEL_OR_MODELS = [
    {"required": ["model"], "properties": {"model": {"type": "string"}}},
    {"required": ["models"], "properties": {"models": {"type": "array", "minItems": 1}}},
]


def _build_data_envelope(type_name: str, data_type: type[Struct]) -> type[Struct]:
    return msgspec.defstruct(type_name, [("data", data_type)])


_ROUTER_TYPES = (
    _build_data_envelope("RouterModelData", RouterModel),
    RouterModelList,
    _build_data_envelope("RouterCount", Count),
    _build_data_envelope("RouterEndpoints", ModelEndpoints),
    _build_data_envelope("RouterKey", key_statements.KeyStatement),
    _build_data_envelope("RouterCredits", key_statements.CreditsStatement),
    _build_data_envelope("RouterGeneration", key_statements.GenerationStatement),
)


def request_schemas(max_messages: int) -> dict[str, Schema]:
    """Return the JSON schemas of all request bodies, at doors and at routers, by type name."""
    common = [each for each in PARAMETERS.values() if not each.facts.router]
    router = [*PARAMETERS.values(), *declared(RouterParameters)]
    schemas = received_schemas(
        _body_type("ChatRequest", common), _body_type("RouterRequest", router), *BODIES.values()
    )
    for name in ("ChatRequest", "RouterRequest"):
        properties = schemas[name]["properties"]
        assert isinstance(properties, dict)
        properties["messages"]["maxItems"] = max_messages
    chat: Any = schemas["ChatRequest"]["properties"]
    completions: Any = schemas["CompletionsRequest"]["properties"]
    completions["logit_bias"] = chat["logit_bias"]  # its default is not None, but it may be null
    schemas |= received_schemas(request_type(), *request_types())
    schemas["RouterRequest"] |= {"required": ["messages"], "anyOf": _MODEL_OR_MODELS}
    return schemas


def _body_type(type_name: str, parameters: Iterable[Parameter]) -> type[Struct]:
    required = [(each.name, each.annotation) for each in parameters if each.required]
    optional = [(each.name, each.optional, None) for each in parameters if not each.required]
    hints = [(hint, _Hint, None) for hint in HINTS]
    return msgspec.defstruct(type_name, [*required, *optional, *hints], kw_only=True)


def response_schemas() -> dict[str, Schema]:
    entries = [ref(kind.__name__) for kind in (ServedModelEntry, RouterModel)]
    return {
        **sent_schemas(
            *(Completion, Chunk, ResponseBody, ResponseEvent, InputTokens, Error, Health),
            *MESSAGE_EVENTS,
            *(MessageObject, TokenCount, ModelList, ServedModelEntry, *_ROUTER_TYPES),
        ),
        "Model": {"anyOf": entries},  # msgspec makes no union of types without tags
        "ChunkEvent": _sse_event_schema("Chunk"),
        "ResponseStreamEvent": _sse_event_schema("ResponseEvent"),
        "MessageEvent": _sse_event_schema(*(each.__name__ for each in MESSAGE_EVENTS), done=False),
    }


def _sse_event_schema(*names: str, done: bool = True) -> Schema:
    kinds = [
        text_schema(contentMediaType="application/json", contentSchema=ref(name)) for name in names
    ]
    data: list[object] = [text_schema(enum=["[DONE]"]), *kinds] if done else [*kinds]
    return {"type": "object", "properties": {"data": {"anyOf": data}}, "required": ["data"]}


_PASSED_BODIES = {f"/{operation}": body for operation, body in BODIES.items()}
ROUTER_BASE = "/router/v1"
_TABLES = tomllib.loads(Path(__file__).with_name("operations.toml").read_text("utf-8"))
_ERRORS: Mapping[str, str] = _TABLES["errors"]
_GROUPS: Mapping[str, Sequence[str]] = _TABLES["groups"]
_SECURITY: Mapping[str, Sequence[Schema]] = {
    "none": ({},),
    "required": ({"key": []},),
    "optional": ({}, {"key": []}),
    "": (),
}
_QUERY_SCHEMAS: Mapping[str, Schema] = {
    "context": integer_schema(0, 2**31),
    "sort": text_schema(enum=list(SORTS)),
    "offset": integer_schema(0, 2**31),
    "limit": integer_schema(1, MOST_ENTRIES),
}


class _Operation(Struct, frozen=True):
    # A row of operations.toml, which says what its fields are.
    path: str
    id: str
    summary: str
    answer: str
    base: str | None = None
    schema: str = ""
    stream: tuple[str, str] | None = None
    unchanged: bool = False
    sends: str = ""
    example: Schema | None = None
    key: Literal["none", "required", "optional", ""] = "optional"
    errors: tuple[str, ...] | str = tuple(_ERRORS)
    parameters: tuple[str, ...] | None = None

    def described(self, base: str) -> Schema:
        renamed = self.base is None and base == ROUTER_BASE
        name = f"router{self.id[0].upper()}{self.id[1:]}" if renamed else self.id
        made: Schema = {"operationId": name, "summary": self.summary}
        if self.key:
            made["security"] = list(_SECURITY[self.key])
        if self.parameters is not None:
            names = (name for each in self.parameters for name in _GROUPS.get(each, (each,)))
            made["parameters"] = [self._build_parameter_object(name) for name in names]
        made["responses"] = {**self._build_success_responses(), **self._build_error_responses()}
        if self.example is not None:
            sent = ref(self.sends or _PASSED_BODIES[self.path].__name__)
            content = {"application/json": {"schema": sent, "example": self.example}}
            made["requestBody"] = {"required": True, "content": content}
        return made

    def _build_parameter_object(self, parameter_name: str) -> Schema:
        if f"{{{parameter_name}}}" in self.path:
            place, words, schema = "path", _TABLES["path"][parameter_name], text_schema(minLength=1)
        elif parameter_name in _TABLES["headers"]:
            place, words, schema = "header", _TABLES["headers"][parameter_name], text_schema()
        else:
            place, words = "query", _TABLES["query"][parameter_name]
            schema = _QUERY_SCHEMAS.get(parameter_name) or text_schema()
        required = place == "path" or parameter_name == "id"
        return {
            **{"name": parameter_name, "in": place, "required": required},
            **{"description": words, "schema": schema},
        }

    def _build_success_responses(self) -> Schema:
        words = self.answer
        whole = ref(self.schema) if self.schema else {"type": "object"}
        content: dict[str, Schema] = {"application/json": {"schema": whole}}
        if self.path == "/metrics":
            content = {"text/plain": {"schema": text_schema()}}
        if self.stream is not None:
            words = f"{words}, or a stream of {self.stream[0]} where `stream` is true."
            content["text/event-stream"] = {"itemSchema": ref(self.stream[1])}
        elif self.path == "/completions":
            content["text/event-stream"] = {"itemSchema": {"type": "object"}}
        answers: Schema = {"200": {"description": words, "content": content}}
        if self.unchanged:
            answers["304"] = {"description": "The answer of that `ETag` is still the answer."}
        if self.schema == "Health":
            answers["503"] = json_answer("Not now.", "Health")
        return answers

    def _build_error_responses(self) -> Schema:
        errors = _GROUPS[self.errors] if isinstance(self.errors, str) else self.errors
        kind, busy = ("ErrorBody", "529") if self.path.startswith("/messages") else ("Error", "503")
        return {
            busy if status == "503" else status: json_answer(_ERRORS[status], kind)
            for status in errors
        }


def json_answer(description: str, name: str) -> Schema:
    return {"description": description, "content": {"application/json": {"schema": ref(name)}}}


_OPERATIONS = msgspec.convert(_TABLES["operations"], tuple[_Operation, ...])


def _build_paths(base: str) -> dict[str, Schema]:
    bases = (base, None) if base else (base,)
    return {
        base + each.path: {"get" if each.example is None else "post": each.described(base)}
        for each in _OPERATIONS
        if each.base in bases
    }


def market_paths() -> dict[str, Schema]:
    return _build_paths(ROUTER_BASE)


@dataclass(slots=True)
class Documents:
    """Serves the OpenAPI document, which takes megabytes and is built on the first request."""

    max_messages: int
    _encoded_document: bytes | None = None

    async def openapi(self, exchange: Exchange) -> None:
        if self._encoded_document is None:
            written = await offload(lambda: msgspec.json.encode(document(self.max_messages)))
            self._encoded_document = written
        exchange.respond(200, self._encoded_document)


def document(max_messages: int) -> Schema:
    return {
        "openapi": "3.2.0",
        "info": {
            "title": "Causerie",
            "version": causerie.__version__,
            "description": "Chat completions: list models, create a completion, plain or streamed. "
            "A sampling parameter that a request leaves out has the value that `GET /models` "
            "shows in `default_parameters`. "
            "Paths below `/v1` are found below the base URL of every door, those below "
            "`/router/v1` below that of doors of the kind `router`.",
        },
        "paths": _build_paths("/v1") | market_paths() | _build_paths(""),
        "components": {
            "schemas": request_schemas(max_messages) | response_schemas(),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }
