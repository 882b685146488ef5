"""A provider on loopback that speaks the Messages API and rejects what the real one rejects."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from messages_rules import RejectedError, check, signature

KEY = "sk-ant-api03-test"
VERSION = "2023-06-01"
COUNTED = {
    "model", "messages", "system", "tools", "tool_choice", "thinking", "output_config",
    "cache_control", "context_management",
}  # fmt: skip
USAGE = {
    "input_tokens": 20, "cache_creation_input_tokens": 300, "cache_read_input_tokens": 100,
    "output_tokens": 40, "output_tokens_details": {"thinking_tokens": 15},
}  # fmt: skip


@dataclass
class Said:
    """One reply. ``error`` is the type and message of an error, amid the stream if ``late``."""

    content: list[dict[str, Any]] = field(default_factory=list)
    stop_reason: str = "end_turn"
    usage: dict[str, Any] = field(default_factory=lambda: dict(USAGE))
    status: int = 200
    error: tuple[str, str] | None = None
    late: bool = False


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def thinking(words: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": words, "signature": signature(words)}


def sealed(data: str) -> dict[str, Any]:
    return {"type": "redacted_thinking", "data": f"sealed-{data}"}


def call(identifier: str, name: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": identifier, "name": name, "input": given}


@dataclass
class MessagesServer:
    """Each request takes the next of ``replies``; ``bodies`` are those that were accepted."""

    replies: list[Said]
    base_url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    rejected: list[str] = field(default_factory=list)
    counted: list[dict[str, Any]] = field(default_factory=list)
    checks: bool = True
    """Rejects what the real one rejects."""

    async def models(self, request: web.Request) -> web.Response:
        if (problem := _refused(request)) is not None:
            return problem
        names = ["claude-opus-4-6", "claude-haiku-4-5"]
        data = [{"type": "model", "id": name, "display_name": name} for name in names]
        return web.json_response({"data": data, "has_more": False, "first_id": names[0]})

    async def count(self, request: web.Request) -> web.Response:
        """How many tokens a prompt has: a thousand and one for each message."""
        if (problem := _refused(request)) is not None:
            return problem
        body = await request.json()
        for name in body.keys() - COUNTED:
            return _error(400, "invalid_request_error", f"{name}: Extra inputs are not permitted")
        self.counted.append(body)
        return web.json_response({"input_tokens": 1000 + len(body["messages"])})

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if (problem := _refused(request)) is not None:
            return problem
        body = await request.json()
        try:
            if self.checks:
                check(body)
        except RejectedError as rejected:
            self.rejected.append(str(rejected))
            return _error(400, "invalid_request_error", str(rejected))
        self.bodies.append(body)
        reply = self.replies.pop(0)
        if reply.error is not None and not reply.late:
            return _error(reply.status, *reply.error)
        if not body.get("stream"):
            return web.json_response(
                {
                    "id": "msg_1", "type": "message", "role": "assistant", "model": body["model"],
                    "content": reply.content, "stop_reason": reply.stop_reason,
                    "stop_sequence": None, "usage": reply.usage,
                }
            )  # fmt: skip
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in events(reply, body["model"]):
            data = json.dumps(event)
            await response.write(f"event: {event['type']}\ndata: {data}\n\n".encode())
        return response


def _refused(request: web.Request) -> web.Response | None:
    if request.headers.get("x-api-key") != KEY or "authorization" in request.headers:
        return _error(401, "authentication_error", "invalid x-api-key")
    if request.headers.get("anthropic-version") != VERSION:
        return _error(400, "invalid_request_error", "anthropic-version: header is required")
    return None


def _error(status: int, kind: str, words: str) -> web.Response:
    error = {"type": "error", "error": {"type": kind, "message": words}, "request_id": "req_1"}
    headers = {"retry-after": "7"} if status == 429 else {}
    return web.json_response(error, status=status, headers=headers)


def events(reply: Said, model: str = "m") -> Iterable[dict[str, Any]]:
    """The events of a streamed reply."""
    first = {name: value for name, value in reply.usage.items() if name != "output_tokens_details"}
    message: dict[str, Any] = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": first | {"output_tokens": 1},
    }  # fmt: skip
    yield {"type": "message_start", "message": message}
    yield {"type": "ping"}
    for index, block in enumerate(reply.content):
        start, deltas = _pieces(block)
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    if reply.error is not None:
        kind, words = reply.error
        yield {"type": "error", "error": {"type": kind, "message": words}}
        return
    delta = {"stop_reason": reply.stop_reason, "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": reply.usage}
    yield {"type": "message_stop"}


def _pieces(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """How a block begins, and what comes after it."""
    match block["type"]:
        case "text":
            pieces = [{"type": "text_delta", "text": one} for one in _cut(block["text"])]
            return {"type": "text", "text": ""}, pieces
        case "thinking":
            words = _cut(block["thinking"])
            pieces = [{"type": "thinking_delta", "thinking": one} for one in words]
            pieces.append({"type": "signature_delta", "signature": block["signature"]})
            return {"type": "thinking", "thinking": "", "signature": ""}, pieces
        case "tool_use":
            given = json.dumps(block["input"]) if block["input"] else ""
            pieces = [
                {"type": "input_json_delta", "partial_json": one} for one in ("", *_cut(given))
            ]
            return block | {"input": {}}, pieces
    return block, []


def _cut(words: str) -> list[str]:
    return [words[at : at + 5] for at in range(0, len(words), 5)]


@asynccontextmanager
async def messages_server(*replies: Said) -> AsyncIterator[MessagesServer]:
    """The server behind a free port; ``base_url`` is set."""
    server = MessagesServer(list(replies))
    app = web.Application()
    app.router.add_get("/v1/models", server.models)
    app.router.add_post("/v1/messages", server.answer)
    app.router.add_post("/v1/messages/count_tokens", server.count)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield server
    finally:
        await runner.cleanup()
