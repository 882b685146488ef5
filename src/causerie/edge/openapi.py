"""``GET /openapi.json`` and ``GET /docs``: the interface for machines and for people.

The page is built from the document, here, so that nothing is loaded from
elsewhere and no script runs.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

import causerie
from causerie.edge.exchange import Exchange
from causerie.edge.page import page
from causerie.edge.request_schemas import request_schemas
from causerie.edge.response_schemas import response_schemas
from causerie.edge.schema import Schema, ref

_ERRORS = {
    "400": "The request is wrong; `param` names the field.",
    "401": "No key, or one that is not valid here.",
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
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


@dataclass(frozen=True, slots=True)
class Documents:
    """Both documents, encoded once."""

    openapi_body: bytes
    page_body: bytes

    @staticmethod
    def of(max_messages: int) -> Documents:
        """The documents of a service with these limits."""
        described = document(max_messages)
        return Documents(msgspec.json.encode(described), page(described).encode())

    async def openapi(self, exchange: Exchange) -> None:
        """``GET /openapi.json``."""
        exchange.respond(200, self.openapi_body)

    async def page(self, exchange: Exchange) -> None:
        """``GET /docs``."""
        exchange.respond(
            200,
            self.page_body,
            content_type="text/html; charset=utf-8",
            headers={"content-security-policy": _POLICY, "x-content-type-options": "nosniff"},
        )


def document(max_messages: int) -> Schema:
    """The OpenAPI document."""
    return {
        "openapi": "3.2.0",
        "info": {
            "title": "Causerie",
            "version": causerie.__version__,
            "description": "Chat completions: list models, create a completion, plain or streamed. "
            "Paths below `/v1` are found below the base address of every door.",
        },
        "paths": {
            "/v1/models": _operation("get", _list_models()),
            "/v1/models/{id}": _operation("get", _show_model()),
            "/v1/chat/completions": _operation("post", _complete()),
            "/health": _operation("get", _health("Whether it lives, serves, and how busy it is")),
            "/health/live": _operation("get", _health("Whether the process lives")),
            "/health/ready": _operation("get", _health("Whether a request would be served")),
            "/metrics": _operation("get", _metrics()),
        },
        "components": {
            "schemas": request_schemas(max_messages) | response_schemas(),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(method: str, operation: Schema) -> Schema:
    return {method: operation}


def _json(description: str, name: str) -> Schema:
    return {"description": description, "content": {"application/json": {"schema": ref(name)}}}


def _errors(*statuses: str) -> Schema:
    return {status: _json(_ERRORS[status], "Error") for status in statuses}


def _list_models() -> Schema:
    return {
        "operationId": "listModels",
        "summary": "List models",
        "security": [{}, {"key": []}],
        "responses": {"200": _json("The models.", "ModelList"), **_errors("400", "401", "404")},
    }


def _show_model() -> Schema:
    return {
        "operationId": "showModel",
        "summary": "Show one model",
        "security": [{}, {"key": []}],
        "parameters": [
            {
                "name": "id",
                "in": "path",
                "required": True,
                "description": "May hold slashes.",
                "schema": {"type": "string", "minLength": 1},
            }
        ],
        "responses": {"200": _json("The model.", "Model"), **_errors("400", "401", "404")},
    }


def _complete() -> Schema:
    answer = _json("The completion, or a stream of chunks where `stream` is true.", "Completion")
    content = answer["content"]
    assert isinstance(content, dict)
    content["text/event-stream"] = {"itemSchema": ref("ChunkEvent")}
    return {
        "operationId": "createChatCompletion",
        "summary": "Create a chat completion",
        "security": [{}, {"key": []}],
        "parameters": [
            _header("x-request-id", "Names the request in logs, up to 128 safe characters."),
            _header("x-session-id", "Names the conversation, where `session_id` does not."),
            _header("x-unknown-params", "`reject` refuses parameters that nobody knows."),
        ],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": ref("ChatRequest")}},
        },
        "responses": {"200": answer, **_errors(*_ERRORS)},
    }


def _header(name: str, description: str) -> Schema:
    return {
        "name": name,
        "in": "header",
        "required": False,
        "description": description,
        "schema": {"type": "string"},
    }


def _health(summary: str) -> Schema:
    return {
        "summary": summary,
        "responses": {"200": _json("Yes.", "Health"), "503": _json("Not now.", "Health")},
    }


def _metrics() -> Schema:
    text: Schema = {"text/plain": {"schema": {"type": "string"}}}
    return {
        "summary": "Metrics for Prometheus",
        "responses": {"200": {"description": "All metrics.", "content": text}},
    }
