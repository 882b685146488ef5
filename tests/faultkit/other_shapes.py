"""A reply of text as Responses and the Messages API have it, for requests on their paths."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from faultkit.reply import Reply

_STOPS = {"stop": "end_turn", "length": "max_tokens", "content_filter": "refusal"}
_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}

Events = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Told:
    """A reply without usage if ``counted`` is false."""

    reply: Reply
    model: object
    counted: bool

    def events(self, path: str) -> tuple[Events, Events, Events] | None:
        """Return what is before the pieces, the pieces, and what is after; ``None`` elsewhere."""
        texts = [delta["content"] for delta in self.reply.deltas() if "content" in delta]
        if path.endswith("/messages"):
            return self._messages(texts)
        return self._responses(texts) if path.endswith("/responses") else None

    def whole(self, path: str) -> Mapping[str, Any] | None:
        """Return the plain reply."""
        if path.endswith("/messages"):
            return self._message([{"type": "text", "text": self.reply.text}])
        return self._response() if path.endswith("/responses") else None

    def _usage(self) -> dict[str, Any]:
        if not self.counted:
            return {}
        usage = self.reply.usage()
        return {
            "usage": {
                "input_tokens": usage["prompt_tokens"], "output_tokens": usage["completion_tokens"]
            }
        }  # fmt: skip

    def _message(self, content: Events) -> dict[str, Any]:
        return {
            "id": "msg_1", "type": "message", "role": "assistant", "model": self.model,
            "content": content, "stop_reason": _STOPS[self.reply.finish_reason], **self._usage(),
        }  # fmt: skip

    def _messages(self, texts: list[str]) -> tuple[Events, Events, Events]:
        begun = {**self._message([]), "stop_reason": None, "usage": {}}
        delta = {"stop_reason": _STOPS[self.reply.finish_reason]}
        block = {"type": "text", "text": ""}
        return (
            [
                {"type": "message_start", "message": begun},
                {"type": "content_block_start", "index": 0, "content_block": block},
            ],
            [
                {
                    "type": "content_block_delta", "index": 0,
                    "delta": {"type": "text_delta", "text": text},
                }
                for text in texts
            ],
            [
                {"type": "content_block_stop", "index": 0},
                {"type": "message_delta", "delta": delta, **self._usage()},
                {"type": "message_stop"},
            ],
        )  # fmt: skip

    def _response(self) -> dict[str, Any]:
        reason = _REASONS.get(self.reply.finish_reason)
        content = [{"type": "output_text", "text": self.reply.text}]
        return {
            "id": "resp_1", "object": "response", "model": self.model,
            "status": "incomplete" if reason else "completed",
            "incomplete_details": {"reason": reason} if reason else None,
            "output": [{"type": "message", "id": "msg_1", "content": content}], **self._usage(),
        }  # fmt: skip

    def _responses(self, texts: list[str]) -> tuple[Events, Events, Events]:
        response = self._response()
        begun = {"id": "resp_1", "model": self.model, "status": "in_progress", "output": []}
        return (
            [{"type": "response.created", "response": begun}],
            [{"type": "response.output_text.delta", "delta": text} for text in texts],
            [{"type": f"response.{response['status']}", "response": response}],
        )


def written(event: Mapping[str, Any]) -> bytes:
    """Return an event of a stream as its bytes."""
    data = json.dumps(event, ensure_ascii=False)
    return f"event: {event['type']}\ndata: {data}\n\n".encode()
