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
    _with_data("RouterKey", KeyStatement),
    _with_data("RouterCredits", CreditsStatement),
    _with_data("RouterGeneration", GenerationStatement),
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
_OPEN: list[Schema] = [{}]
_WITH_KEY: list[Schema] = [{"key": []}]
_WITH_OR_WITHOUT_KEY: list[Schema] = [{}, {"key": []}]
ROUTER_BASE = "/router/v1"
_OPEN_ERRORS = ("400", "404", "429")
_KEY_ERRORS = ("400", "401", "403", "404", "429", "503")
_EXAMPLE_REQUEST: Schema = {
    "model": "MODEL",
    "messages": [{"role": "user", "content": "Name three rivers."}],
    "max_tokens": 100,
    "stream": False,
}


_PASSED: Mapping[Operation, tuple[str, Schema, str]] = {
    "embeddings": ("Create embeddings", {"input": ["A text."]}, "createEmbeddings"),
    "rerank": (
        "Order documents by relevance",
        {"query": "Which is the longest?", "documents": ["The Elbe.", "The Nile."]},
        "createRerank",
    ),
    "completions": (
        "Create a plain completion",
        {"prompt": "def add(a, b):", "suffix": "# end", "max_tokens": 20},
        "createCompletion",
    ),
}


def _parameter(place: str, name: str, description: str, schema: Schema | None = None) -> Schema:
    return {
        "name": name,
        "in": place,
        "required": place == "path",
        "description": description,
        "schema": schema or {"type": "string"},
    }


def _json_answer(description: str, name: str) -> Schema:
    return {"description": description, "content": {"application/json": {"schema": ref(name)}}}


def _operation(
    name: str,
    summary: str,
    security: list[Schema],
    answers: Schema,
    errors: Sequence[str],
    parameters: Sequence[Schema] | None = None,
) -> Schema:
    operation: Schema = {"operationId": name, "summary": summary, "security": security}
    if parameters is not None:
        operation["parameters"] = list(parameters)
    failures = {status: _json_answer(_ERRORS[status], "Error") for status in errors}
    return {**operation, "responses": {**answers, **failures}}


_COMPLETION = ("The completion, or a stream of chunks where `stream` is true.", "Completion")
_RESPONSE = ("The response, or a stream of events where `stream` is true.", "ResponseBody")
_MESSAGE = ("The message, or a stream of events where `stream` is true.", "MessageObject")


def _completion(request: str, name: str, summary: str, *more: Schema) -> Schema:
    return _generation(request, name, summary, _COMPLETION, "ChunkEvent", _EXAMPLE_REQUEST, *more)


def _messages(name: str) -> Schema:
    request, summary = "MessagesRequest", "Create a message"
    made = _generation(request, name, summary, _MESSAGE, "MessageEvent", _EXAMPLE_REQUEST)
    return _in_words_of_messages(made)


def _message_tokens(name: str) -> Schema:
    counted: Schema = {"200": _json_answer("The tokens of the prompt.", "TokenCount")}
    made = _operation(name, "Count the tokens of a message", _WITH_OR_WITHOUT_KEY, counted, [])
    example = {name: _EXAMPLE_REQUEST[name] for name in ("model", "messages")}
    return _in_words_of_messages(_sending(made, "MessagesCountRequest", example))


def _in_words_of_messages(operation: Schema) -> Schema:
    responses = operation["responses"]
    assert isinstance(responses, dict)
    failures = {
        "529" if status == "503" else status: _json_answer(words, "ErrorBody")
        for status, words in _ERRORS.items()
    }
    return {**operation, "responses": {"200": responses["200"], **failures}}


def _generation(
    request: str,
    name: str,
    summary: str,
    reply: tuple[str, str],
    event: str,
    example: Schema,
    *more: Schema,
) -> Schema:
    answer = _json_answer(*reply)
    content = answer["content"]
    assert isinstance(content, dict)
    content["text/event-stream"] = {"itemSchema": ref(event)}
    headers = {
        "x-request-id": "Names the request in logs, up to 128 safe characters.",
        "x-session-id": "Names the conversation, where `session_id` does not.",
        "x-unknown-params": "`reject` refuses fields that would be dropped.",
        "HTTP-Referer": "The address of the program that asks; a label.",
        "X-Title": "The name of the program that asks; a label.",
    }
    parameters = [*(_parameter("header", *each) for each in headers.items()), *more]
    operation = _operation(
        name, summary, _WITH_OR_WITHOUT_KEY, {"200": answer}, [*_ERRORS], parameters
    )
    return _sending(operation, request, example)


def _sending(operation: Schema, request: str, example: Schema) -> Schema:
    content = {"application/json": {"schema": ref(request), "example": example}}
    return {**operation, "requestBody": {"required": True, "content": content}}


def _passed_paths(prefix: str = "") -> dict[str, Schema]:
    return {f"/{name}": {"post": _passed(name, prefix)} for name in BODIES}


def _passed(operation: Operation, prefix: str) -> Schema:
    summary, example, name = _PASSED[operation]
    answer: Schema = {"description": "The provider's reply.", "content": {}}
    kinds: Schema = {"application/json": {"schema": {"type": "object"}}}
    if operation == "completions":
        kinds["text/event-stream"] = {"itemSchema": {"type": "object"}}
    name = f"{prefix}{name[0].upper()}{name[1:]}" if prefix else name
    made = _operation(
        name, summary, _WITH_OR_WITHOUT_KEY, {"200": answer | {"content": kinds}}, [*_ERRORS]
    )
    schema = ref(BODIES[operation].__name__)
    content: Schema = {
        "application/json": {"schema": schema, "example": {"model": "MODEL", **example}}
    }
    return {**made, "requestBody": {"required": True, "content": content}}


def _catalog(name: str, summary: str, security: list[Schema]) -> Schema:
    commas, whole = "With commas between.", 2**31
    money = "For a usual million tokens, three in four of the prompt."
    filters = (
        ("supported_parameters", f"All of these. {commas}", text_schema()),
        (
            "output_modalities",
            f"One of these, `all` is each; not sent: `text`. {commas}",
            text_schema(),
        ),
        ("model_authors", f"One of these. {commas}", text_schema()),
        ("providers", f"One of these endpoints. {commas}", text_schema()),
        ("q", "In the id.", text_schema()),
        ("context", "Tokens, at least.", integer_schema(0, whole)),
        ("min_price", money, text_schema()),
        ("max_price", money, text_schema()),
        ("sort", "The order.", text_schema(enum=list(SORTS))),
        ("offset", "Entries to leave out.", integer_schema(0, whole)),
        ("limit", "Entries, at most. Without it, all.", integer_schema(1, MOST_ENTRIES)),
    )
    parameters = [
        *(_parameter("query", *each) for each in filters),
        _parameter("header", "If-None-Match", "The `ETag` of an earlier answer."),
    ]
    answers = {
        "200": _json_answer("The entries.", "RouterModelList"),
        "304": {"description": "The answer of that `ETag` is still the answer."},
    }
    errors = _OPEN_ERRORS if security is _OPEN else _KEY_ERRORS
    return _operation(name, summary, security, answers, errors, parameters)


def _get(
    name: str, summary: str, answer: tuple[str, str], *parameters: Schema, key: bool = False
) -> Schema:
    security, errors = (_WITH_KEY, _KEY_ERRORS) if key else (_OPEN, _OPEN_ERRORS)
    answers: Schema = {"200": _json_answer(*answer)}
    return {"get": _operation(name, summary, security, answers, errors, parameters)}


def _response(name: str) -> Schema:
    example: Schema = {"model": "MODEL", "input": "Name three rivers.", "max_output_tokens": 100}
    request, summary = "ResponsesRequest", "Create a response"
    return _generation(request, name, summary, _RESPONSE, "ResponseStreamEvent", example)


def _response_tokens(name: str) -> Schema:
    counted: Schema = {"200": _json_answer("The tokens of the prompt.", "InputTokens")}
    made = _operation(
        name, "Count the tokens of a response", _WITH_OR_WITHOUT_KEY, counted, [*_ERRORS]
    )
    return _sending(made, "ResponsesRequest", {"model": "MODEL", "input": "Name three rivers."})


def market_paths() -> dict[str, Schema]:
    title = _parameter("header", "X-OpenRouter-Title", "The same as `X-Title`, and before it.")
    name, summary = "routerCreateChatCompletion", "Create a routed chat completion"
    completion = _completion("RouterRequest", name, summary, title)
    paths = (
        _catalog_paths()
        | _key_paths()
        | {
            "/chat/completions": {"post": completion},
            "/responses": {"post": _response("routerCreateResponse")},
            "/responses/input_tokens": {"post": _response_tokens("routerCountResponseTokens")},
            "/messages": {"post": _messages("routerCreateMessage")},
            "/messages/count_tokens": {"post": _message_tokens("routerCountMessageTokens")},
        }
        | _passed_paths("router")
    )
    return {f"{ROUTER_BASE}{path}": each for path, each in paths.items()}


def _catalog_paths() -> dict[str, Schema]:
    slug = "May end in a suffix like `:free`."
    model = (
        _parameter("path", "author", "Whose model it is.", text_schema(minLength=1)),
        _parameter("path", "slug", slug, text_schema(minLength=1)),
    )
    mine = _catalog("routerListOwnModels", "List what the key may use", _WITH_KEY)
    count = ("The number of models.", "RouterCount")
    data = ("The entry, in `data`.", "RouterModelData")
    endpoints = ("The entry and its endpoints.", "RouterEndpoints")
    shown = "Show the endpoints of an entry"
    return {
        "/models": {"get": _catalog("routerListModels", "List the catalog", _OPEN)},
        "/models/user": {"get": mine},
        "/models/count": _get("routerCountModels", "Count the catalog", count),
        "/embeddings/models": {
            "get": _catalog("routerListEmbeddingModels", "List models for embeddings", _OPEN)
        },
        "/models/{author}/{slug}": _get(
            "routerShowModel", "Show an entry", ("The entry.", "RouterModel"), *model
        ),
        "/model/{author}/{slug}": _get(
            "routerShowModelData", "Show an entry in `data`", data, *model
        ),
        "/models/{author}/{slug}/endpoints": _get("routerListEndpoints", shown, endpoints, *model),
    }


def _key_paths() -> dict[str, Schema]:
    key = ("Limits and usage of the key.", "RouterKey")
    credits = ("Credits that were bought and used.", "RouterCredits")
    past = ("Tokens, cost and provider of the request.", "RouterGeneration")
    id = {**_parameter("query", "id", "The `id` of its completion."), "required": True}
    return {
        "/key": _get("routerShowKey", "Show the key", key, key=True),
        "/credits": _get("routerShowCredits", "Show credits", credits, key=True),
        "/generation": _get("routerShowGeneration", "Show a past request", past, id, key=True),
    }


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
            **_model_paths(),
            **market_paths(),
            "/health": _health("showHealth", "health", "It serves; the body says how busy."),
            "/health/live": _health("showLiveness", "liveness", "The process lives."),
            "/health/ready": _health("showReadiness", "readiness", "A request would be served."),
            "/metrics": {"get": _metrics()},
        },
        "components": {
            "schemas": request_schemas(max_messages) | response_schemas(),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _model_paths() -> dict[str, Schema]:
    security, errors = _WITH_OR_WITHOUT_KEY, ("400", "401", "404")
    listed: Schema = {"200": _json_answer("The models.", "ModelList")}
    shown: Schema = {"200": _json_answer("The model.", "Model")}
    model = _parameter("path", "id", "May hold slashes.", text_schema(minLength=1))
    return {
        "/v1/models": {"get": _operation("listModels", "List models", security, listed, errors)},
        "/v1/models/{id}": {
            "get": _operation("showModel", "Show one model", security, shown, errors, [model])
        },
        "/v1/chat/completions": {
            "post": _completion("ChatRequest", "createChatCompletion", "Create a chat completion")
        },
        "/v1/responses": {"post": _response("createResponse")},
        "/v1/responses/input_tokens": {"post": _response_tokens("countResponseTokens")},
        "/v1/messages": {"post": _messages("createMessage")},
        "/v1/messages/count_tokens": {"post": _message_tokens("countMessageTokens")},
        **{f"/v1{path}": each for path, each in _passed_paths().items()},
    }


def _health(name: str, shown: str, good: str) -> Schema:
    answers = {"200": _json_answer(good, "Health"), "503": _json_answer("Not now.", "Health")}
    return {"get": {"operationId": name, "summary": f"Show {shown}", "responses": answers}}


def _metrics() -> Schema:
    text: Schema = {"text/plain": {"schema": {"type": "string"}}}
    answers = {"200": {"description": "All metrics, as Prometheus reads them.", "content": text}}
    return _operation("showMetrics", "Show metrics", _WITH_OR_WITHOUT_KEY, {**answers}, ["401"])
