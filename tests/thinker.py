"""A provider on loopback that thinks, calls functions and fills in schemas, and needs its
reasoning back: what it says depends on what it is asked."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

THOUGHT = "Six times seven."
ANSWER = "It is 42."
BLOCKS: Sequence[dict[str, Any]] = (
    {"type": "reasoning.text", "text": THOUGHT, "signature": "c2ln", "index": 0,
     "format": "anthropic-claude-v1"},
    {"type": "reasoning.encrypted", "data": "b3BhcXVl", "index": 1,
     "format": "anthropic-claude-v1"},
)  # fmt: skip
ARGUMENTS = '{"a": 6, "b": 7}'
USAGE = {
    "prompt_tokens": 11,
    "completion_tokens": 9,
    "completion_tokens_details": {"reasoning_tokens": 4},
}


@dataclass
class Thinker:
    """``requests`` are the bodies it got; after a call it insists on its blocks of reasoning."""

    base_url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)

    async def complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        problem = _problem(body["messages"])
        if problem:
            return web.json_response({"error": {"message": problem, "code": 400}}, status=400)
        deltas, finish = _said(body)
        if not body.get("stream"):
            return web.json_response(_whole(deltas, finish))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for delta in deltas:
            await response.write(_event(_choice(None, delta)))
        if body["messages"][-1]["content"] == "Break.":
            return response
        await response.write(_event(_choice(finish, {})))
        await response.write(_event({"choices": [], "usage": USAGE}))
        await response.write(b"data: [DONE]\n\n")
        return response


@asynccontextmanager
async def thinking() -> AsyncIterator[Thinker]:
    """The provider behind a free port."""
    thinker = Thinker()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", thinker.complete)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    thinker.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield thinker
    finally:
        await runner.cleanup()


def _problem(messages: Sequence[dict[str, Any]]) -> str:
    for message in messages:
        if message.get("tool_calls") and message.get("reasoning_details") != list(BLOCKS):
            return f"The reasoning of a call is missing or changed: {json.dumps(message)}"
    return ""


def _said(body: dict[str, Any]) -> tuple[list[dict[str, Any]], str]:
    thought = [
        {
            "role": "assistant",
            "content": "",
            "reasoning": THOUGHT,
            "reasoning_details": [BLOCKS[0]],
        },
        {"reasoning_details": [BLOCKS[1]]},
    ]
    if body.get("tools") and body["messages"][-1]["role"] == "user":
        function = {"name": "multiply", "arguments": ARGUMENTS}
        call = {"index": 0, "id": "call_1", "type": "function", "function": function}
        return [*thought, {"tool_calls": [call]}], "tool_calls"
    if body.get("response_format"):
        return [*thought, {"content": '{"answer": 42}'}], "stop"
    return [*thought, {"content": ANSWER[:4]}, {"content": ANSWER[4:]}], "stop"


def _choice(finish: str | None, delta: dict[str, Any]) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def _whole(deltas: Sequence[dict[str, Any]], finish: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "reasoning": THOUGHT}
    message["reasoning_details"] = list(BLOCKS)
    message["content"] = "".join(delta.get("content", "") for delta in deltas) or None
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return {"choices": [choice], "usage": USAGE}


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"
