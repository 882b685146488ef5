"""The words that the operations of the OpenAPI document are written in."""

from __future__ import annotations

from causerie.edge.schema import Schema, ref

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
_EXAMPLE: Schema = {
    "model": "MODEL",
    "messages": [{"role": "user", "content": "Name three rivers."}],
    "max_tokens": 100,
    "stream": False,
}


def json_answer(description: str, name: str) -> Schema:
    """An answer whose body is the schema of this name."""
    return {"description": description, "content": {"application/json": {"schema": ref(name)}}}


def errors(*statuses: str) -> Schema:
    return {status: json_answer(ERRORS[status], "Error") for status in statuses}


def header(name: str, description: str) -> Schema:
    return _parameter("header", name, description, {"type": "string"})


def in_query(name: str, description: str, schema: Schema, *, required: bool = False) -> Schema:
    return {**_parameter("query", name, description, schema), "required": required}


def in_path(name: str, description: str, schema: Schema) -> Schema:
    return {**_parameter("path", name, description, schema), "required": True}


def completion(request: str, *, name: str, summary: str, more: tuple[Schema, ...] = ()) -> Schema:
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
            header("x-request-id", "Names the request in logs, up to 128 safe characters."),
            header("x-session-id", "Names the conversation, where `session_id` does not."),
            header("x-unknown-params", "`reject` refuses fields that would be dropped."),
            header("HTTP-Referer", "The address of the program that asks; a label."),
            header("X-Title", "The name of the program that asks; a label."),
            *more,
        ],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": ref(request), "example": _EXAMPLE}},
        },
        "responses": {"200": answer, **errors(*ERRORS)},
    }


def _parameter(place: str, name: str, description: str, schema: Schema) -> Schema:
    return {
        "name": name,
        "in": place,
        "required": False,
        "description": description,
        "schema": schema,
    }
