"""A reply as the body of a response: events of a stream with all their oddities, or one JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from faultkit.fault import Fault
from faultkit.other_shapes import Told, written
from faultkit.received import Received
from faultkit.reply import Reply


def encoded(document: object) -> bytes:
    """Compact JSON; characters stay what they are."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class Frames:
    """The events of a stream: before the content, one for each piece of it, and after it."""

    opening: list[bytes]
    content: list[bytes]
    closing: list[bytes]


def framed(reply: Reply, request: Received, odd: Fault | None, size: int) -> Frames:
    """The stream of a reply; ``size`` is that of a huge event."""
    told = Told(reply, request.body.get("model"), odd is not Fault.USAGE_MISSING)
    if (others := told.events(request.path)) is not None:
        return Frames(*([written(event) for event in part] for part in others))
    end = b"\r\n" if odd is Fault.CRLF else b"\n"
    shell = _shell(request, odd, "chat.completion.chunk")

    def frame(document: dict[str, Any]) -> bytes:
        return b"data: " + encoded({**shell, **document}) + end + end

    deltas = reply.deltas()
    content = [frame(_choice(delta)) for delta in deltas]
    if odd is Fault.COMMENTS:
        content = [b": keep-alive" + end + end + one for one in content]
    if odd is Fault.HUGE_CHUNK and deltas:
        content[0] = frame({"padding": "x" * size, **_choice(deltas[0])})
    opening = [frame(_choice({"role": "assistant", "content": ""}))]
    return Frames(opening, content, _closing(reply, request, odd, frame, end))


def whole(reply: Reply, request: Received, odd: Fault | None, size: int) -> bytes:
    """The plain response's body."""
    told = Told(reply, request.body.get("model"), odd is not Fault.USAGE_MISSING)
    if (other := told.whole(request.path)) is not None:
        return encoded(other)
    choice = {"index": 0, "message": reply.message(), "finish_reason": reply.finish_reason}
    if odd is Fault.NO_FINISH:
        choice["finish_reason"] = None
    document = {**_shell(request, odd, "chat.completion"), "choices": [choice]}
    if odd is not Fault.USAGE_MISSING:
        document["usage"] = reply.usage()
    if odd is Fault.HUGE_CHUNK:
        document["padding"] = "x" * size
    return encoded(document)


def _shell(request: Received, odd: Fault | None, kind: str) -> dict[str, Any]:
    model = "somebody-else" if odd is Fault.WRONG_MODEL else request.body.get("model")
    return {"id": "chatcmpl-upstream", "object": kind, "created": 1_700_000_000, "model": model}


def _choice(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def _closing(
    reply: Reply, request: Received, odd: Fault | None, frame: Any, end: bytes
) -> list[bytes]:
    frames: list[bytes] = []
    wanted = bool((request.body.get("stream_options") or {}).get("include_usage"))
    usage = {"usage": reply.usage()} if wanted and odd is not Fault.USAGE_MISSING else {}
    if odd is not Fault.NO_FINISH:
        last = _choice({}, reply.finish_reason)
        frames.append(frame({**last, **usage} if odd is Fault.USAGE_WITH_CHOICES else last))
    if usage and odd is not Fault.USAGE_WITH_CHOICES:
        frames.append(frame({"choices": [], **usage}))
    done = b"data: [DONE]" + end + end
    if odd is not Fault.NO_DONE:
        frames += [done, done] if odd is Fault.TWO_DONE else [done]
    return frames
