"""``GET /openapi.json``: the interface for machines. The page at `/docs` is made from it."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

import causerie
from causerie.edge.body_schemas import request_schemas, response_schemas
from causerie.edge.exchange import Exchange
from causerie.edge.market_paths import market_paths
from causerie.edge.operation import WITH_OR_WITHOUT_KEY, completion, errors, in_path, json_answer
from causerie.edge.schema import Schema
from causerie.runtime.offload import offload


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
                "post": completion(
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
            **errors("400", "401", "404"),
        },
    }


def _show_model() -> Schema:
    return {
        "operationId": "showModel",
        "summary": "Show one model",
        "security": WITH_OR_WITHOUT_KEY,
        "parameters": [in_path("id", "May hold slashes.", {"type": "string", "minLength": 1})],
        "responses": {"200": json_answer("The model.", "Model"), **errors("400", "401", "404")},
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
            **errors("401"),
        },
    }
