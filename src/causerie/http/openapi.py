"""``GET /openapi.json``: the interface for machines, by its operations. The page at `/docs` is
made from it.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

import causerie
from causerie.catalog.page_cache import MOST_ENTRIES, SORTS
from causerie.http.event_loop import offload
from causerie.http.exchange import Exchange
from causerie.http.openapi_schemas import (
    Schema,
    integer_schema,
    ref,
    request_schemas,
    response_schemas,
    text_schema,
)

# The words that the operations of the OpenAPI document are written in.

ERRORS = {
    "400": "The request is wrong; `param` names the field.",
    "401": "No key, or one that is not valid here.",
    "402": "A budget or the credits are spent.",
    "403": "The key may not do this.",
    "404": "No such model or path.",
    "408": "The body did not arrive in time.",
    "413": "The body is too large.",
    "415": "The body is not declared as JSON.",
    "429": "A limit of the caller's own; see `Retry-After`.",
    "500": "Our fault.",
    "502": "All attempts to answer failed.",
    "503": "Loading, stopping, or the queue is full; see `Retry-After`.",
    "504": "No answer in time.",
}
OPEN: list[Schema] = [{}]
WITH_KEY: list[Schema] = [{"key": []}]
WITH_OR_WITHOUT_KEY: list[Schema] = [{}, {"key": []}]
_EXAMPLE_REQUEST: Schema = {
    "model": "MODEL",
    "messages": [{"role": "user", "content": "Name three rivers."}],
    "max_tokens": 100,
    "stream": False,
}


def json_answer(description: str, name: str) -> Schema:
    """An answer whose body is the schema of this name."""
    return {"description": description, "content": {"application/json": {"schema": ref(name)}}}


def error_answers(*statuses: str) -> Schema:
    return {status: json_answer(ERRORS[status], "Error") for status in statuses}


def in_header(name: str, description: str) -> Schema:
    return _parameter("header", name, description, {"type": "string"})


def in_query(name: str, description: str, schema: Schema, *, required: bool = False) -> Schema:
    return {**_parameter("query", name, description, schema), "required": required}


def in_path(name: str, description: str, schema: Schema) -> Schema:
    return {**_parameter("path", name, description, schema), "required": True}


def completion_operation(
    request: str, *, name: str, summary: str, more: tuple[Schema, ...] = ()
) -> Schema:
    """An operation that answers a chat; ``more`` are further headers."""
    answer = json_answer(
        "The completion, or a stream of chunks where `stream` is true.", "Completion"
    )
    content = answer["content"]
    assert isinstance(content, dict)
    content["text/event-stream"] = {"itemSchema": ref("ChunkEvent")}
    return {
        "operationId": name,
        "summary": summary,
        "security": WITH_OR_WITHOUT_KEY,
        "parameters": [
            in_header("x-request-id", "Names the request in logs, up to 128 safe characters."),
            in_header("x-session-id", "Names the conversation, where `session_id` does not."),
            in_header("x-unknown-params", "`reject` refuses fields that would be dropped."),
            in_header("HTTP-Referer", "The address of the program that asks; a label."),
            in_header("X-Title", "The name of the program that asks; a label."),
            *more,
        ],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": ref(request), "example": _EXAMPLE_REQUEST}},
        },
        "responses": {"200": answer, **error_answers(*ERRORS)},
    }


def _parameter(place: str, name: str, description: str, schema: Schema) -> Schema:
    return {
        "name": name,
        "in": place,
        "required": False,
        "description": description,
        "schema": schema,
    }


# The operations of a router's door, for the OpenAPI document.

ROUTER_BASE = "/router/v1"
_WHOLE = 2**31
_WORDS = "With commas between."
_OPEN_ERRORS = ("400", "404", "429")
_KEY_ERRORS = ("400", "401", "403", "404", "429", "503")


def market_paths() -> dict[str, Schema]:
    """By path, below the usual prefix of a router."""
    return _catalog_paths() | _key_paths() | _completion_paths()


def _catalog_paths() -> dict[str, Schema]:
    return {
        f"{ROUTER_BASE}/models": {
            "get": _catalog_operation("routerListModels", "List the catalog", OPEN)
        },
        f"{ROUTER_BASE}/models/user": {
            "get": _catalog_operation("routerListOwnModels", "List what the key may use", WITH_KEY)
        },
        f"{ROUTER_BASE}/models/count": {
            "get": _open_operation(
                "routerCountModels", "Count the catalog", ("The number of models.", "RouterCount")
            )
        },
        f"{ROUTER_BASE}/models/{{author}}/{{slug}}": {
            "get": _open_operation(
                "routerShowModel", "Show an entry", ("The entry.", "RouterModel"), *_model_id()
            )
        },
        f"{ROUTER_BASE}/model/{{author}}/{{slug}}": {
            "get": _open_operation(
                "routerShowModelData",
                "Show an entry in `data`",
                ("The entry, in `data`.", "RouterModelData"),
                *_model_id(),
            )
        },
        f"{ROUTER_BASE}/models/{{author}}/{{slug}}/endpoints": {
            "get": _open_operation(
                "routerListEndpoints",
                "Show the endpoints of an entry",
                ("The entry and its endpoints.", "RouterEndpoints"),
                *_model_id(),
            )
        },
    }


def _key_paths() -> dict[str, Schema]:
    return {
        f"{ROUTER_BASE}/key": {
            "get": _key_operation(
                "routerShowKey", "Show the key", ("Limits and usage of the key.", "RouterKey")
            )
        },
        f"{ROUTER_BASE}/credits": {
            "get": _key_operation(
                "routerShowCredits",
                "Show credits",
                ("Credits that were bought and used.", "RouterCredits"),
            )
        },
        f"{ROUTER_BASE}/generation": {
            "get": _key_operation(
                "routerShowGeneration",
                "Show a past request",
                ("Tokens, cost and provider of the request.", "RouterGeneration"),
                in_query("id", "The `id` of its completion.", text_schema(), required=True),
            )
        },
    }


def _completion_paths() -> dict[str, Schema]:
    return {
        f"{ROUTER_BASE}/chat/completions": {
            "post": completion_operation(
                "RouterRequest",
                name="routerCreateChatCompletion",
                summary="Create a routed chat completion",
                more=(in_header("X-OpenRouter-Title", "The same as `X-Title`, and before it."),),
            )
        }
    }


def _catalog_operation(name: str, summary: str, security: list[Schema]) -> Schema:
    statuses = _OPEN_ERRORS if security is OPEN else _KEY_ERRORS
    return {
        "operationId": name,
        "summary": summary,
        "security": security,
        "parameters": [
            *_catalog_filters(),
            in_header("If-None-Match", "The `ETag` of an earlier answer."),
        ],
        "responses": {
            "200": json_answer("The entries.", "RouterModelList"),
            "304": {"description": "The answer of that `ETag` is still the answer."},
            **error_answers(*statuses),
        },
    }


def _open_operation(
    name: str, summary: str, answer: tuple[str, str], *parameters: Schema
) -> Schema:
    return {
        "operationId": name,
        "summary": summary,
        "security": OPEN,
        "parameters": list(parameters),
        "responses": {"200": json_answer(*answer), **error_answers(*_OPEN_ERRORS)},
    }


def _key_operation(name: str, summary: str, answer: tuple[str, str], *parameters: Schema) -> Schema:
    return {
        "operationId": name,
        "summary": summary,
        "security": WITH_KEY,
        "parameters": list(parameters),
        "responses": {"200": json_answer(*answer), **error_answers(*_KEY_ERRORS)},
    }


def _model_id() -> tuple[Schema, Schema]:
    slug = "May end in a suffix like `:free`."
    return (
        in_path("author", "Whose model it is.", text_schema(minLength=1)),
        in_path("slug", slug, text_schema(minLength=1)),
    )


def _catalog_filters() -> list[Schema]:
    money = "For a usual million tokens, three in four of the prompt."
    return [
        in_query("supported_parameters", f"All of these. {_WORDS}", text_schema()),
        in_query("output_modalities", f"One of these. {_WORDS}", text_schema()),
        in_query("model_authors", f"One of these. {_WORDS}", text_schema()),
        in_query("providers", f"One of these endpoints. {_WORDS}", text_schema()),
        in_query("q", "In the id.", text_schema()),
        in_query("context", "Tokens, at least.", integer_schema(0, _WHOLE)),
        in_query("min_price", money, text_schema()),
        in_query("max_price", money, text_schema()),
        in_query("sort", "The order.", text_schema(enum=list(SORTS))),
        in_query("offset", "Entries to leave out.", integer_schema(0, _WHOLE)),
        in_query("limit", "Entries, at most. Without it, all.", integer_schema(1, MOST_ENTRIES)),
    ]


# ``GET /openapi.json``: the interface for machines. The page at `/docs` is made from it.


@dataclass(slots=True)
class Documents:
    """The document of a service with these limits, written when it is first asked for.

    Types that are looked through for their schemas take megabytes, which few services need.
    """

    max_messages: int
    _written: bytes | None = None

    async def openapi(self, exchange: Exchange) -> None:
        if self._written is None:
            self._written = await offload(_encoded, self.max_messages)
        exchange.respond(200, self._written)


def _encoded(max_messages: int) -> bytes:
    return msgspec.json.encode(document(max_messages))


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
            "/v1/models": {"get": _list_models()},
            "/v1/models/{id}": {"get": _show_model()},
            "/v1/chat/completions": {
                "post": completion_operation(
                    "ChatRequest", name="createChatCompletion", summary="Create a chat completion"
                )
            },
            **market_paths(),
            "/health": {
                "get": _health("showHealth", "health", "It serves; the body says how busy.")
            },
            "/health/live": {"get": _health("showLiveness", "liveness", "The process lives.")},
            "/health/ready": {
                "get": _health("showReadiness", "readiness", "A request would be served.")
            },
            "/metrics": {"get": _metrics()},
        },
        "components": {
            "schemas": request_schemas(max_messages) | response_schemas(),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _list_models() -> Schema:
    return {
        "operationId": "listModels",
        "summary": "List models",
        "security": WITH_OR_WITHOUT_KEY,
        "responses": {
            "200": json_answer("The models.", "ModelList"),
            **error_answers("400", "401", "404"),
        },
    }


def _show_model() -> Schema:
    return {
        "operationId": "showModel",
        "summary": "Show one model",
        "security": WITH_OR_WITHOUT_KEY,
        "parameters": [in_path("id", "May hold slashes.", {"type": "string", "minLength": 1})],
        "responses": {
            "200": json_answer("The model.", "Model"),
            **error_answers("400", "401", "404"),
        },
    }


def _health(name: str, shown: str, good: str) -> Schema:
    return {
        "operationId": name,
        "summary": f"Show {shown}",
        "responses": {"200": json_answer(good, "Health"), "503": json_answer("Not now.", "Health")},
    }


def _metrics() -> Schema:
    text: Schema = {"text/plain": {"schema": {"type": "string"}}}
    return {
        "operationId": "showMetrics",
        "summary": "Show metrics",
        "security": WITH_OR_WITHOUT_KEY,
        "responses": {
            "200": {"description": "All metrics, as Prometheus reads them.", "content": text},
            **error_answers("401"),
        },
    }
