"""The operations of a router's door, for the OpenAPI document."""

from __future__ import annotations

from causerie.catalog.filters import MOST_ENTRIES, SORTS
from causerie.edge.operation import (
    OPEN,
    WITH_KEY,
    completion,
    errors,
    header,
    in_path,
    in_query,
    json_answer,
)
from causerie.edge.schema import Schema, integer, text

BASE = "/router/v1"
_WHOLE = 2**31
_WORDS = "With commas between."
_OPEN_ERRORS = ("400", "404", "429")
_KEY_ERRORS = ("400", "401", "403", "404", "429", "503")


def market_paths() -> dict[str, Schema]:
    """By path, below the usual prefix of a router."""
    return _catalog_paths() | _key_paths() | _completion_paths()


def _catalog_paths() -> dict[str, Schema]:
    return {
        f"{BASE}/models": {"get": _models("routerListModels", "List the catalog", OPEN)},
        f"{BASE}/models/user": {
            "get": _models("routerListOwnModels", "List what the key may use", WITH_KEY)
        },
        f"{BASE}/models/count": {
            "get": _read(
                "routerCountModels", "Count the catalog", ("The number of models.", "RouterCount")
            )
        },
        f"{BASE}/models/{{author}}/{{slug}}": {
            "get": _read("routerShowModel", "Show an entry", ("The entry.", "RouterModel"), *_id())
        },
        f"{BASE}/model/{{author}}/{{slug}}": {
            "get": _read(
                "routerShowModelData",
                "Show an entry in `data`",
                ("The entry, in `data`.", "RouterModelData"),
                *_id(),
            )
        },
        f"{BASE}/models/{{author}}/{{slug}}/endpoints": {
            "get": _read(
                "routerListEndpoints",
                "Show the endpoints of an entry",
                ("The entry and its endpoints.", "RouterEndpoints"),
                *_id(),
            )
        },
    }


def _key_paths() -> dict[str, Schema]:
    return {
        f"{BASE}/key": {
            "get": _own(
                "routerShowKey", "Show the key", ("Limits and usage of the key.", "RouterKey")
            )
        },
        f"{BASE}/credits": {
            "get": _own(
                "routerShowCredits",
                "Show credits",
                ("Credits that were bought and used.", "RouterCredits"),
            )
        },
        f"{BASE}/generation": {
            "get": _own(
                "routerShowGeneration",
                "Show a past request",
                ("Tokens, cost and provider of the request.", "RouterGeneration"),
                in_query("id", "The `id` of its completion.", text(), required=True),
            )
        },
    }


def _completion_paths() -> dict[str, Schema]:
    return {
        f"{BASE}/chat/completions": {
            "post": completion(
                "RouterRequest",
                name="routerCreateChatCompletion",
                summary="Create a routed chat completion",
                more=(header("X-OpenRouter-Title", "The same as `X-Title`, and before it."),),
            )
        }
    }


def _models(name: str, summary: str, security: list[Schema]) -> Schema:
    statuses = _OPEN_ERRORS if security is OPEN else _KEY_ERRORS
    return {
        "operationId": name,
        "summary": summary,
        "security": security,
        "parameters": [*_filters(), header("If-None-Match", "The `ETag` of an earlier answer.")],
        "responses": {
            "200": json_answer("The entries.", "RouterModelList"),
            "304": {"description": "The answer of that `ETag` is still the answer."},
            **errors(*statuses),
        },
    }


def _read(name: str, summary: str, answer: tuple[str, str], *parameters: Schema) -> Schema:
    """Return the operation of a path that needs no key."""
    return {
        "operationId": name,
        "summary": summary,
        "security": OPEN,
        "parameters": list(parameters),
        "responses": {"200": json_answer(*answer), **errors(*_OPEN_ERRORS)},
    }


def _own(name: str, summary: str, answer: tuple[str, str], *parameters: Schema) -> Schema:
    """Return the operation of a path for the bearer of a key of an account."""
    return {
        "operationId": name,
        "summary": summary,
        "security": WITH_KEY,
        "parameters": list(parameters),
        "responses": {"200": json_answer(*answer), **errors(*_KEY_ERRORS)},
    }


def _id() -> tuple[Schema, Schema]:
    slug = "May end in a suffix like `:free`."
    return (
        in_path("author", "Whose model it is.", text(minLength=1)),
        in_path("slug", slug, text(minLength=1)),
    )


def _filters() -> list[Schema]:
    money = "For a usual million tokens, three in four of the prompt."
    return [
        in_query("supported_parameters", f"All of these. {_WORDS}", text()),
        in_query("output_modalities", f"One of these. {_WORDS}", text()),
        in_query("model_authors", f"One of these. {_WORDS}", text()),
        in_query("providers", f"One of these endpoints. {_WORDS}", text()),
        in_query("q", "In the id.", text()),
        in_query("context", "Tokens, at least.", integer(0, _WHOLE)),
        in_query("min_price", money, text()),
        in_query("max_price", money, text()),
        in_query("sort", "The order.", text(enum=list(SORTS))),
        in_query("offset", "Entries to leave out.", integer(0, _WHOLE)),
        in_query("limit", "Entries, at most. Without it, all.", integer(1, MOST_ENTRIES)),
    ]
