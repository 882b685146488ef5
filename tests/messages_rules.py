"""What the Messages API rejects, by its published reference; nothing here knows the service."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

FIELDS = {
    "model", "messages", "max_tokens", "cache_control", "container", "inference_geo", "metadata",
    "output_config", "service_tier", "stop_sequences", "stream", "system", "temperature",
    "thinking", "tool_choice", "tools", "top_k", "top_p",
}  # fmt: skip
BLOCKS: Mapping[str, set[str]] = {
    "text": {"text"},
    "image": {"source"},
    "thinking": {"thinking", "signature"},
    "redacted_thinking": {"data"},
    "tool_use": {"id", "name", "input"},
    "tool_result": {"tool_use_id"},
}
MAY: Mapping[str, set[str]] = {"tool_result": {"content", "is_error"}, "text": {"citations"}}
CACHEABLE = {"text", "image", "tool_use", "tool_result"}
ID = re.compile(r"[a-zA-Z0-9_-]+")
NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
MEDIA = {"image/jpeg", "image/png", "image/gif", "image/webp"}
EFFORTS = {"low", "medium", "high", "xhigh", "max"}


class RejectedError(Exception):
    """A 400 with these words."""


def signature(text: str) -> str:
    """The signature of a text of thinking, which nobody else can make."""
    return "sig-" + hashlib.sha256(f"secret {text}".encode()).hexdigest()[:24]


def insist(holds: object, words: str) -> None:
    if not holds:
        raise RejectedError(words)


def check(body: dict[str, Any]) -> None:
    """Raise :class:`RejectedError` for a body that the API would reject."""
    for name in body.keys() - FIELDS:
        raise RejectedError(f"{name}: Extra inputs are not permitted")
    limit = body.get("max_tokens")
    insist(isinstance(limit, int) and limit > 0, "max_tokens: Field required")
    insist(body.get("messages"), "messages: at least one message is required")
    temperature = body.get("temperature", 1)
    insist(0 <= temperature <= 1, "temperature: range: 0..1")
    _thinking(body, body.get("thinking"))
    _system(body.get("system"))
    _tools(body)
    _output(body.get("output_config"))
    stops = body.get("stop_sequences", [])
    insist(all(stop.strip() for stop in stops), "stop_sequences: must contain non-whitespace")
    insist(body.get("metadata", {}).keys() <= {"user_id"}, "metadata: Extra inputs")
    _messages(body["messages"])
    marks = list(_marks(body))
    insist(len(marks) <= 4, "A maximum of 4 blocks with cache_control may be provided.")
    for mark in marks:
        sound = mark.get("type") == "ephemeral" and mark.keys() <= {"type", "ttl"}
        insist(sound and mark.get("ttl", "5m") in ("5m", "1h"), "cache_control: Input should be")


def _thinking(body: dict[str, Any], thinking: dict[str, Any] | None) -> None:
    if thinking is None or thinking == {"type": "disabled"}:
        return
    insist(thinking["type"] in ("enabled", "adaptive"), "thinking: Input tag")
    insist(thinking.get("display", "omitted") in ("summarized", "omitted"), "thinking.display")
    if thinking["type"] == "enabled":
        budget = thinking["budget_tokens"]
        insist(budget >= 1024, "thinking.enabled.budget_tokens: should be at least 1024")
        insist(budget < body["max_tokens"], "`max_tokens` must be greater than `budget_tokens`")
    insist(body.get("temperature", 1) == 1, "`temperature` may only be set to 1 with thinking")
    forced = body.get("tool_choice", {}).get("type") in ("any", "tool")
    insist(not forced, "Thinking may not be enabled when tool_choice forces tool use.")
    last = next((one for one in reversed(body["messages"]) if one["role"] == "assistant"), None)
    if last is not None and any(one["type"] == "tool_use" for one in last["content"]):
        first = last["content"][0]["type"]
        insist(
            first in ("thinking", "redacted_thinking") or thinking["type"] == "adaptive",
            f"Expected `thinking` or `redacted_thinking`, but found `{first}`",
        )


def _system(system: object) -> None:
    blocks = system if isinstance(system, list) else []
    insist(system is None or isinstance(system, str | list), "system: Input should be a list")
    for block in blocks:
        insist(block["type"] == "text", "system: text blocks only")
        _block(block)


def _tools(body: dict[str, Any]) -> None:
    tools = body.get("tools", [])
    for tool in tools:
        known = {"name", "description", "input_schema", "strict", "cache_control"}
        insist(tool.keys() <= known, f"tools: Extra inputs are not permitted: {tool.keys()}")
        insist(NAME.fullmatch(tool["name"]), "tools.name: String should match pattern")
        insist(tool["input_schema"].get("type") == "object", "input_schema.type: Field required")
    choice = body.get("tool_choice")
    if choice is None:
        return
    insist(tools, "tool_choice may only be specified while providing tools")
    may = {"type"} | ({"name"} if choice["type"] == "tool" else set())
    may |= set() if choice["type"] == "none" else {"disable_parallel_tool_use"}
    insist(choice["type"] in ("auto", "any", "tool", "none"), "tool_choice: Input tag")
    insist(choice.keys() <= may, "tool_choice: Extra inputs are not permitted")
    if choice["type"] == "tool":
        insist(choice["name"] in [tool["name"] for tool in tools], "tool_choice: no such tool")


def _output(output: dict[str, Any] | None) -> None:
    if output is None:
        return
    insist(output.keys() <= {"effort", "format"}, "output_config: Extra inputs")
    insist(output.get("effort", "low") in EFFORTS, "output_config.effort: Input should be")
    if "format" in output:
        insist(output["format"].keys() == {"type", "schema"}, "output_config.format: Extra inputs")
        schema = output["format"]["schema"]
        if schema.get("type") == "object":
            insist(
                schema.get("additionalProperties") is False,
                "For 'object' type, 'additionalProperties' must be explicitly set to false",
            )


def _messages(messages: list[dict[str, Any]]) -> None:
    insist(messages[0]["role"] == "user", 'first message must use the "user" role')
    waiting: set[str] = set()  # calls of the turn before
    for message in messages:
        insist(message.keys() == {"role", "content"}, "messages: Extra inputs are not permitted")
        insist(message["role"] in ("user", "assistant"), "messages.role: Input should be")
        content = message["content"]
        insist(content, "messages: content must be non-empty")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks:
            _block(block)
        answered = [one["tool_use_id"] for one in blocks if one["type"] == "tool_result"]
        insist(set(answered) <= waiting, "unexpected `tool_use_id` found in `tool_result` blocks")
        insist(waiting <= set(answered), "`tool_use` ids were found without `tool_result` blocks")
        kinds = [one["type"] == "tool_result" for one in blocks]
        insist(kinds == sorted(kinds, reverse=True), "`tool_result` blocks must come first")
        insist(message["role"] == "user" or not answered, "tool_result: user messages only")
        waiting = {one["id"] for one in blocks if one["type"] == "tool_use"}
    last = messages[-1]
    if last["role"] == "assistant":
        text = str(last["content"][-1].get("text", ""))
        insist(text == text.rstrip(), "final assistant content cannot end with whitespace")


def _block(block: dict[str, Any]) -> None:
    kind = block.get("type", "")
    insist(kind in BLOCKS, f"content: Input tag {kind!r}")
    may = BLOCKS[kind] | MAY.get(kind, set()) | {"type"}
    may |= {"cache_control"} if kind in CACHEABLE else set()
    insist(block.keys() <= may, f"{kind}: Extra inputs are not permitted: {block.keys() - may}")
    insist(block.keys() >= BLOCKS[kind], f"{kind}: Field required: {BLOCKS[kind] - block.keys()}")
    match kind:
        case "text":
            insist(block["text"].strip(), "text content blocks must contain non-whitespace text")
        case "image":
            _image(block["source"])
        case "tool_use":
            insist(ID.fullmatch(block["id"]), "tool_use.id: String should match pattern")
            insist(isinstance(block["input"], dict), "tool_use.input: should be a dictionary")
        case "tool_result":
            parts = block.get("content", [])
            for part in [] if isinstance(parts, str) else parts:
                insist(part["type"] in ("text", "image"), "tool_result.content: Input tag")
                _block(part)
        case "thinking":
            signed = signature(block["thinking"]) == block["signature"]
            insist(signed, "Invalid `signature` in `thinking` block")
        case "redacted_thinking":
            insist(block["data"].startswith("sealed-"), "Invalid `data` in `redacted_thinking`")


def _image(source: dict[str, Any]) -> None:
    if source["type"] == "url":
        insist(source.keys() == {"type", "url"}, "image.source: Extra inputs")
        return
    insist(source.keys() == {"type", "media_type", "data"}, "image.source: Extra inputs")
    insist(source["media_type"] in MEDIA, "image.source.media_type: Input should be")


def _marks(value: object) -> Iterable[dict[str, Any]]:
    if isinstance(value, list):
        for each in value:
            yield from _marks(each)
    elif isinstance(value, dict):
        if "cache_control" in value:
            yield value["cache_control"]
        for name, each in value.items():
            if name not in ("input", "input_schema", "cache_control", "schema"):
                yield from _marks(each)
