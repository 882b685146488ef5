"""``GET /openapi.json``: the operations of the interface. The page at `/docs` is made from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, get_args

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
from causerie.protocol.request import Operation
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
    _with_data("RouterKey", key_statements.KeyStatement),
    _with_data("RouterCredits", key_statements.CreditsStatement),
    _with_data("RouterGeneration", key_statements.GenerationStatement),
)


def request_schemas(max_messages: int) -> dict[str, Schema]:
    """Return the schemas of requests at all doors, and at those of routers."""
    common = [each for each in PARAMETERS.values() if not each.facts.router]
    router = [*PARAMETERS.values(), *declared(RouterParameters)]
    schemas = received_schemas(
        _body_type("ChatRequest", common), _body_type("RouterRequest", router), *BODIES.values()
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


_ERRORS = {
    "400": "The request is wrong; `param` names the field.",
    "401": "No key, or one that is not valid here.",
    "402": "A budget or the credits are spent.",
    "403": "The key may not do this.",
    "404": "No such model or path.",
    "408": "The body did not arrive in time.",
    "413": "The body is too large, as it came or decompressed.",
    "415": "The body is not declared as JSON, or compressed in an unknown way.",
    "429": "A limit of the caller's own; see `Retry-After`.",
    "500": "Our fault.",
    "502": "All attempts to answer failed.",
    "503": "Loading, stopping, or the queue is full; see `Retry-After`.",
    "504": "No answer in time.",
}
_OPEN: Sequence[Schema] = ({},)
_WITH_KEY: Sequence[Schema] = ({"key": []},)
_WITH_OR_WITHOUT_KEY: Sequence[Schema] = ({}, {"key": []})
ROUTER_BASE = "/router/v1"


def _parameter(place: str, name: str, description: str, schema: Schema | None = None) -> Schema:
    return {
        "name": name,
        "in": place,
        "required": place == "path",
        "description": description,
        "schema": schema or text_schema(),
    }


def _json_answer(description: str, name: str) -> Schema:
    return {"description": description, "content": {"application/json": {"schema": ref(name)}}}


def _success(description: str, name: str) -> Schema:
    return {"200": _json_answer(description, name)}


class _Operation(Struct, frozen=True):
    path: str
    name: str
    summary: str
    answers: Schema
    errors: Iterable[str] = tuple(_ERRORS)
    security: Sequence[Schema] = _WITH_OR_WITHOUT_KEY
    parameters: Sequence[Schema] | None = None
    sent: tuple[str, Schema] | None = None
    """The type of the body of a ``POST``, and an example."""

    def described(self) -> Schema:
        made: Schema = {"operationId": self.name, "summary": self.summary}
        if self.security:
            made["security"] = list(self.security)
        if self.parameters is not None:
            made["parameters"] = list(self.parameters)
        failures = {status: _json_answer(_ERRORS[status], "Error") for status in self.errors}
        made["responses"] = {**self.answers, **failures}
        if self.sent is not None:
            content = {"application/json": {"schema": ref(self.sent[0]), "example": self.sent[1]}}
            made["requestBody"] = {"required": True, "content": content}
        return made


_CHAT: Schema = {
    "model": "MODEL",
    "messages": [{"role": "user", "content": "Name three rivers."}],
}
_RESPONSE: Schema = {"model": "MODEL", "input": "Name three rivers."}
_PASSED: Mapping[Operation, tuple[str, str, Schema]] = {
    "embeddings": ("createEmbeddings", "Create embeddings", {"input": ["A text."]}),
    "rerank": (
        *("createRerank", "Order documents by relevance"),
        {"query": "Which is the longest?", "documents": ["The Elbe.", "The Nile."]},
    ),
    "completions": (
        *("createCompletion", "Create a plain completion"),
        {"prompt": "def add(a, b):", "suffix": "# end", "max_tokens": 20},
    ),
}
_HEADERS = (
    _parameter("header", "x-request-id", "Names the request in logs, up to 128 safe characters."),
    _parameter("header", "x-session-id", "Names the conversation, where `session_id` does not."),
    _parameter("header", "x-unknown-params", "`reject` refuses fields that would be dropped."),
    _parameter("header", "HTTP-Referer", "The address of the program that asks; a label."),
    _parameter("header", "X-Title", "The name of the program that asks; a label."),
)
_ROUTER_TITLE = _parameter("header", "X-OpenRouter-Title", "The same as `X-Title`, and before it.")
_MESSAGE_FAILURES = {
    "529" if status == "503" else status: _json_answer(words, "ErrorBody")
    for status, words in _ERRORS.items()
}


def _streamed(whole: str, parts: str, schema: str, event: str) -> Schema:
    answer = _json_answer(f"The {whole}, or a stream of {parts} where `stream` is true.", schema)
    events = {"text/event-stream": {"itemSchema": ref(event)}}
    return {"200": {**answer, "content": {"application/json": {"schema": ref(schema)}, **events}}}


def _generations(base: str) -> Iterator[_Operation]:
    # What doors of all kinds have.
    router, example = base == ROUTER_BASE, {**_CHAT, "max_tokens": 100, "stream": False}

    def named(name: str) -> str:
        return f"router{name[0].upper()}{name[1:]}" if router else name

    yield _Operation(
        *(f"{base}/chat/completions", named("createChatCompletion")),
        "Create a routed chat completion" if router else "Create a chat completion",
        _streamed("completion", "chunks", "Completion", "ChunkEvent"),
        parameters=(*_HEADERS, _ROUTER_TITLE) if router else _HEADERS,
        sent=("RouterRequest" if router else "ChatRequest", example),
    )
    yield _Operation(
        *(f"{base}/responses", named("createResponse"), "Create a response"),
        _streamed("response", "events", "ResponseBody", "ResponseStreamEvent"),
        parameters=_HEADERS,
        sent=("ResponsesRequest", {**_RESPONSE, "max_output_tokens": 100}),
    )
    yield _Operation(
        *(f"{base}/responses/input_tokens", named("countResponseTokens")),
        "Count the tokens of a response",
        _success("The tokens of the prompt.", "InputTokens"),
        sent=("ResponsesRequest", _RESPONSE),
    )
    yield _Operation(
        *(f"{base}/messages", named("createMessage"), "Create a message"),
        {**_streamed("message", "events", "MessageObject", "MessageEvent"), **_MESSAGE_FAILURES},
        errors=(),
        parameters=_HEADERS,
        sent=("MessagesRequest", example),
    )
    yield _Operation(
        *(f"{base}/messages/count_tokens", named("countMessageTokens")),
        "Count the tokens of a message",
        {**_success("The tokens of the prompt.", "TokenCount"), **_MESSAGE_FAILURES},
        errors=(),
        sent=("MessagesCountRequest", _CHAT),
    )
    for operation, body in BODIES.items():
        name, summary, passed = _PASSED[operation]
        content: Schema = {"application/json": {"schema": {"type": "object"}}}
        if operation == "completions":
            content["text/event-stream"] = {"itemSchema": {"type": "object"}}
        yield _Operation(
            *(f"{base}/{operation}", named(name), summary),
            {"200": {"description": "The provider's reply.", "content": content}},
            sent=(body.__name__, {"model": "MODEL", **passed}),
        )


def _routed(
    path: str, name: str, summary: str, answers: Schema, *parameters: Schema, key: bool = False
) -> _Operation:
    security, errors = _OPEN, ["400", "404", "429"]
    if key:
        security, errors = _WITH_KEY, ["400", "401", "403", "404", "429", "503"]
    return _Operation(f"{ROUTER_BASE}{path}", name, summary, answers, errors, security, parameters)


def _catalog_filters() -> Iterator[Schema]:
    commas, whole = "With commas between.", 2**31
    money = "For a usual million tokens, three in four of the prompt."
    modalities = f"One of these, `all` is each; not sent: `text`. {commas}"
    yield _parameter("query", "supported_parameters", f"All of these. {commas}")
    yield _parameter("query", "output_modalities", modalities)
    yield _parameter("query", "model_authors", f"One of these. {commas}")
    yield _parameter("query", "providers", f"One of these endpoints. {commas}")
    yield _parameter("query", "q", "In the id.")
    yield _parameter("query", "context", "Tokens, at least.", integer_schema(0, whole))
    yield _parameter("query", "min_price", money)
    yield _parameter("query", "max_price", money)
    yield _parameter("query", "sort", "The order.", text_schema(enum=list(SORTS)))
    yield _parameter("query", "offset", "Entries to leave out.", integer_schema(0, whole))
    most = integer_schema(1, MOST_ENTRIES)
    yield _parameter("query", "limit", "Entries, at most. Without it, all.", most)
    yield _parameter("header", "If-None-Match", "The `ETag` of an earlier answer.")


def _router_reads() -> Iterator[_Operation]:
    filters = [*_catalog_filters()]
    unchanged = {"description": "The answer of that `ETag` is still the answer."}
    listed = {**_success("The entries.", "RouterModelList"), "304": unchanged}
    yield _routed("/models", "routerListModels", "List the catalog", listed, *filters)
    mine = "List what the key may use"
    yield _routed("/models/user", "routerListOwnModels", mine, listed, *filters, key=True)
    number = _success("The number of models.", "RouterCount")
    yield _routed("/models/count", "routerCountModels", "Count the catalog", number)
    name, summary = "routerListEmbeddingModels", "List models for embeddings"
    yield _routed("/embeddings/models", name, summary, listed, *filters)
    model = (
        _parameter("path", "author", "Whose model it is.", text_schema(minLength=1)),
        _parameter("path", "slug", "May end in a suffix like `:free`.", text_schema(minLength=1)),
    )
    path, entry = "/models/{author}/{slug}", _success("The entry.", "RouterModel")
    yield _routed(path, "routerShowModel", "Show an entry", entry, *model)
    wrapped = _success("The entry, in `data`.", "RouterModelData")
    name, summary = "routerShowModelData", "Show an entry in `data`"
    yield _routed("/model/{author}/{slug}", name, summary, wrapped, *model)
    endpoints = _success("The entry and its endpoints.", "RouterEndpoints")
    name, summary = "routerListEndpoints", "Show the endpoints of an entry"
    yield _routed(f"{path}/endpoints", name, summary, endpoints, *model)
    key = _success("Limits and usage of the key.", "RouterKey")
    yield _routed("/key", "routerShowKey", "Show the key", key, key=True)
    credits = _success("Credits that were bought and used.", "RouterCredits")
    yield _routed("/credits", "routerShowCredits", "Show credits", credits, key=True)
    past = _success("Tokens, cost and provider of the request.", "RouterGeneration")
    id = {**_parameter("query", "id", "The `id` of its completion."), "required": True}
    name, summary = "routerShowGeneration", "Show a past request"
    yield _routed("/generation", name, summary, past, id, key=True)


def _model_reads() -> Iterator[_Operation]:
    errors = ("400", "401", "404")
    models = _success("The models.", "ModelList")
    yield _Operation("/v1/models", "listModels", "List models", models, errors)
    id = _parameter("path", "id", "May hold slashes.", text_schema(minLength=1))
    model = _success("The model.", "Model")
    path, summary = "/v1/models/{id}", "Show one model"
    yield _Operation(path, "showModel", summary, model, errors, parameters=[id])


def _service_reads() -> Iterator[_Operation]:
    for path, name, shown, good in (
        ("/health", "showHealth", "health", "It serves; the body says how busy."),
        ("/health/live", "showLiveness", "liveness", "The process lives."),
        ("/health/ready", "showReadiness", "readiness", "A request would be served."),
    ):
        answers = {**_success(good, "Health"), "503": _json_answer("Not now.", "Health")}
        yield _Operation(path, name, f"Show {shown}", answers, (), security=())
    text = {"text/plain": {"schema": text_schema()}}
    metrics: Schema = {
        "200": {"description": "All metrics, as Prometheus reads them.", "content": text}
    }
    yield _Operation("/metrics", "showMetrics", "Show metrics", metrics, ["401"])


def _paths(operations: Iterable[_Operation]) -> dict[str, Schema]:
    return {each.path: {"post" if each.sent else "get": each.described()} for each in operations}


def market_paths() -> dict[str, Schema]:
    return _paths([*_router_reads(), *_generations(ROUTER_BASE)])


@dataclass(slots=True)
class Documents:
    """The document of a service with these limits, written when it is first requested.

    The schemas take megabytes of memory to make, which few services need.
    """

    max_messages: int
    _written: bytes | None = None

    async def openapi(self, exchange: Exchange) -> None:
        if self._written is None:
            written = await offload(lambda: msgspec.json.encode(document(self.max_messages)))
            self._written = written
        exchange.respond(200, self._written)


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
        "paths": {
            **_paths([*_model_reads(), *_generations("/v1")]),
            **market_paths(),
            **_paths(_service_reads()),
        },
        "components": {
            "schemas": request_schemas(max_messages) | response_schemas(),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }
