"""Providers for the probe, made up in the test: what they answer, without a wire."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from causerie.probe.interview import Found, Interview, Patience
from causerie.probe.question import (
    ProbeQuestion,
    ProbeReply,
    ProbeRequest,
    ProbeVerdict,
    Subject,
    step,
)
from causerie.probe.questions import QUESTIONS

MODEL = "m"
SUBJECT = Subject("http://127.0.0.1:1/v1", MODEL)
LOUD = Subject(
    "http://127.0.0.1:1/v1",
    MODEL,
    keyed=True,
    quiet={"chat_template_kwargs": {"enable_thinking": False}},
    loud={"chat_template_kwargs": {"enable_thinking": True}},
    thinking="switch",
    context_length=1000,
)
BY_ID = {question.id: question for question in QUESTIONS}


def answer(text: str = "Hello.", *, finish: str = "stop", **more: Any) -> ProbeReply:
    """A plain completion. ``prompt``, ``completion``, ``reasoning``, ``calls`` go to their
    places, other names into the choice."""
    prompt, completion = more.pop("prompt", 10), more.pop("completion", max(1, len(text) // 4))
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if reasoning := more.pop("reasoning", None):
        message["reasoning_content"] = reasoning
    if calls := more.pop("calls", None):
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "finish_reason": finish, **more}
    return document(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1_800_000_000,
            "model": MODEL,
            "system_fingerprint": "x",
            "choices": [choice],
            "usage": usage(prompt, completion),
        }
    )


def usage(prompt: int, completion: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def document(value: object, status: int = 200) -> ProbeReply:
    headers = {"content-type": "application/json", "x-request-id": "r"}
    return ProbeReply(status, headers, json.dumps(value).encode())


def call(name: str = "now", arguments: object = '{"zone": "utc"}', id: str = "c1") -> Any:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def refused(message: str = "not supported", status: int = 400, **error: Any) -> ProbeReply:
    body = {"message": message, "type": "invalid_request_error", "param": None, "code": "x"}
    return document({"error": body | error}, status)


def stream(*chunks: object, done: bool = True) -> ProbeReply:
    body = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)
    ending = b"data: [DONE]\n\n" if done else b""
    return ProbeReply(200, {"content-type": "text/event-stream; charset=utf-8"}, body + ending)


def chunk(finish: str | None = None, id: str = "chatcmpl-1", **delta: object) -> dict[str, Any]:
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {"id": id, "object": "chat.completion.chunk", "choices": choices}


def usage_chunk(prompt: int = 10, completion: int = 2) -> dict[str, Any]:
    return {**chunk(), "choices": [], "usage": usage(prompt, completion)}


def body(ask: ProbeRequest) -> dict[str, Any]:
    value = json.loads(ask.body)
    assert isinstance(value, dict)
    return value


def judged(id: str, *replies: ProbeReply, subject: Subject = SUBJECT) -> ProbeVerdict:
    """The verdict over these replies in turn; all must be asked for, and no more."""
    verdict, asked = driven(BY_ID[id], replies, subject)
    assert len(asked) == len(replies), f"asked {len(asked)} times"
    return verdict


def learned(id: str, *replies: ProbeReply, subject: Subject = SUBJECT) -> Subject:
    """Return the facts that later questions know after these replies."""
    verdict, _ = driven(BY_ID[id], replies, subject)
    assert verdict.learned is not None
    return verdict.learned


def driven(
    question: ProbeQuestion, replies: Iterable[ProbeReply], subject: Subject
) -> tuple[ProbeVerdict, list[ProbeRequest]]:
    script, left, asked = question.script(subject), list(replies), []
    found = step(script, None)
    while isinstance(found, ProbeRequest):
        asked.append(found)
        assert left, f"asked once more: {found}"
        found = step(script, left.pop(0))
    return found, asked


def says_yes(ask: ProbeRequest) -> ProbeReply:
    """Takes everything and does nothing with it."""
    if ask.method == "GET":
        return document({"data": [{"id": MODEL}]})
    fields = json.loads(ask.body) if ask.body.endswith(b"}") else {}
    if not fields.get("stream"):
        return answer("Certainly! I am happy to help.", completion=8)
    pieces = [chunk(role="assistant", content=""), chunk(content="Certainly!"), chunk("stop")]
    if fields.get("stream_options"):
        pieces.append(usage_chunk())
    return stream(*pieces)


class Made:
    """A provider that is a function."""

    def __init__(self, reply: Callable[[ProbeRequest], ProbeReply]) -> None:
        self._reply = reply
        self.asked: list[ProbeRequest] = []

    async def put(self, ask: ProbeRequest, seconds: float | None = None) -> ProbeReply:
        self.asked.append(ask)
        return self._reply(ask)


async def interviewed(
    made: Made,
    questions: Sequence[ProbeQuestion] = QUESTIONS,
    subject: Subject = SUBJECT,
    patience: Patience | None = None,
) -> tuple[Interview, dict[str, Found]]:
    """The whole interview, by question."""
    interview = Interview(subject, made, patience or Patience())
    found = {one.id: one async for one in interview.findings(questions)}
    return interview, found
