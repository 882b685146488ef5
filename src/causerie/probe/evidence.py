"""Evidence of requests and replies, shortened for people."""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

from causerie.probe.ask import ProbeRequest
from causerie.probe.reading import joined, message_of, streamed
from causerie.probe.reply import ProbeReply, dig
from causerie.probe.verdict import Settled

_LONGEST = 240
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]+")
_SECRETS = re.compile(r"(?i)(bearer\s+|\b(?:sk|ck|pk|hf|key)[-_])[A-Za-z0-9._\-]{6,}")


@dataclass(frozen=True, slots=True)
class EvidenceExchange:
    """One request and its reply, in words."""

    asked: str
    came: str
    seconds: float


def exchange(ask: ProbeRequest, reply: ProbeReply) -> EvidenceExchange:
    """Return the words for both sides; neither holds a key or a control character."""
    return EvidenceExchange(shown(_asked(ask)), shown(_came(reply)), round(reply.seconds, 3))


def shown(text: str, longest: int = _LONGEST) -> str:
    """Return one line without control characters and without what looks like a key."""
    clean = _CONTROL.sub(" ", _SECRETS.sub(r"\1***", text)).strip()
    return clean if len(clean) <= longest else clean[: longest - 1] + "…"


def _asked(ask: ProbeRequest) -> str:
    if not ask.body:
        return f"{ask.method} {ask.path}" + _unusual(ask)
    body = ProbeReply(body=ask.body).document()
    if not isinstance(body, dict):
        return f"{ask.path} {ask.body[:80].decode('utf-8', 'replace')}"
    said = dig(body, "messages", -1, "content")
    rest = {name: value for name, value in body.items() if name not in ("model", "messages")}
    if isinstance(tools := rest.get("tools"), list):
        rest["tools"] = [dig(tool, "function", "name") for tool in tools]
    words = f"{said[:60]!r} " if isinstance(said, str) else ""
    return words + msgspec.json.encode(rest).decode() + _unusual(ask)


def _unusual(ask: ProbeRequest) -> str:
    words = {"ours": "", "none": " without a key", "wrong": " with a wrong key"}[ask.credential]
    if ask.leave_at_data:
        words += ", left at the first data"
    if ask.leave_after is not None:
        words += f", left after {ask.leave_after:g} s"
    return words


def _came(reply: ProbeReply) -> str:
    if not reply.status:
        return reply.trouble
    words = f"{reply.status} "
    document = reply.document()
    if reply.content_type == "text/event-stream":
        words += _stream(reply)
    elif reply.status != 200:
        words += message_of(reply)
    elif isinstance(choices := dig(document, "choices"), list):
        words += " | ".join(_choice(one) for one in choices[:2]) + _usage(document)
    else:
        words += reply.body[:_LONGEST].decode("utf-8", "replace")
    return f"{words} ({reply.trouble})" if reply.trouble else words


def _stream(reply: ProbeReply) -> str:
    try:
        stream = streamed(reply)
    except Settled as settled:
        return settled.verdict.how
    answer = joined(stream)
    last = reply.body[-40:].decode("utf-8", "replace")
    names = ", ".join(str(call.name) for call in answer.calls)
    return (
        f"{len(stream.chunks)} chunks {answer.text!r}"
        + (f" calls {names}" if names else "")
        + f" finish {answer.finish}, ending {last!r}"
    )


def _choice(choice: object) -> str:
    message = dig(choice, "message")
    parts = []
    if reasoning := dig(message, "reasoning_content") or dig(message, "reasoning"):
        parts.append(f"reasoning {str(reasoning)[:60]!r}")
    if (content := dig(message, "content")) is not None:
        parts.append(repr(content)[:120])
    if calls := dig(message, "tool_calls"):
        parts.append("calls " + msgspec.json.encode(calls).decode()[:120])
    return ", ".join(parts) + f", finish {dig(choice, 'finish_reason')}"


def _usage(document: object) -> str:
    prompt = dig(document, "usage", "prompt_tokens")
    completion = dig(document, "usage", "completion_tokens")
    return f", tokens {prompt}+{completion}" if prompt is not None else ""
