"""The conversation as the Messages API takes it: a system prompt, then turns of content blocks.

Neighbours of one role become one turn, so that the results of all calls of a turn come together, as
the API demands. Blocks of reasoning go back to the places that they had among the other blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from causerie.protocol.reasoning import blocks_of
from causerie.providers.draft import RequestDraft

FORMAT = "anthropic-claude-v1"
"""Marks blocks of reasoning that came from this API, as the well-known router does."""

_FORMATS = (FORMAT, "unknown", None)
_OF_A_PART = frozenset({"type", "text", "image_url", "refusal"})
_OF_A_MESSAGE = frozenset(
    {"role", "content", "name", "refusal", "reasoning_details", "tool_calls", "tool_call_id"}
)
_SILENCE = "…"
_MEDIA = {"image/jpg": "image/jpeg"}

Entry = Mapping[str, Any]
Block = dict[str, Any]


def turns(draft: RequestDraft) -> tuple[list[Block], list[Block]]:
    """Return the blocks of the system prompt, and the turns."""
    system: list[Block] = []
    made: list[Block] = []
    messages: Any = draft.fields["messages"]
    for message in messages:
        role = message["role"]
        for name in sorted(message.keys() - _OF_A_MESSAGE):
            draft.dropped(f"messages.{name}")
        if role == "system":
            if made:
                draft.changes.append("messages.role.system moved to the front")
            system += _content(message.get("content"))
            continue
        role, blocks = _turn(draft, message)
        if not blocks and role == "user" and message is messages[-1]:
            blocks = [_silence(draft)]
        if role == "assistant" and blocks and not made:
            made.append({"role": "user", "content": [_silence(draft)]})
        if made and made[-1]["role"] == role:
            made[-1]["content"] += blocks
        elif blocks:
            made.append({"role": role, "content": blocks})
    _strip_end(draft, made)
    draft.changes[:] = dict.fromkeys(draft.changes)
    return system, made


def _silence(draft: RequestDraft) -> Block:
    """Return the text block that stands for an empty user message, which the API rejects."""
    draft.changes.append("messages.content added")
    return {"type": "text", "text": _SILENCE}


def _turn(draft: RequestDraft, message: Entry) -> tuple[str, list[Block]]:
    if message["role"] == "assistant":
        return "assistant", _assistant(draft, message)
    if message["role"] == "tool":
        return "user", [_result(message)]
    return "user", list(_content(message.get("content")))


def _assistant(draft: RequestDraft, message: Entry) -> list[Block]:
    others = list(_content(message.get("content") or message.get("refusal")))
    for call in message.get("tool_calls") or ():
        function = call["function"]
        others.append(
            {
                "type": "tool_use",
                "id": call["id"],
                "name": function["name"],
                "input": msgspec.Raw(function["arguments"].encode()),  # an object, by now
            }
        )
    return list(_in_place(_thinking(draft, message), others))


def _thinking(draft: RequestDraft, message: Entry) -> Iterator[tuple[int, Block]]:
    """The blocks of reasoning that the API has made, with their places."""
    for block in blocks_of(message.get("reasoning_details")):
        made: Block | None = None
        if block.get("format") in _FORMATS:
            made = _signed(block)
        if made is None:
            draft.dropped("messages.reasoning_details")
            continue
        index = block.get("index")
        yield (index if isinstance(index, int) else 0), made


def _signed(block: Entry) -> Block | None:
    if block["type"] == "reasoning.encrypted" and block.get("format") == FORMAT:
        return {"type": "redacted_thinking", "data": block.get("data")}
    if block["type"] == "reasoning.text" and block.get("signature"):
        text = block.get("text") or ""
        return {"type": "thinking", "thinking": text, "signature": block["signature"]}
    return None


def _in_place(thinking: Iterable[tuple[int, Block]], others: list[Block]) -> Iterator[Block]:
    """Put blocks of reasoning between the others, by the places that they had."""
    rest = iter(others)
    place = 0
    for index, block in thinking:
        while place < index:
            other = next(rest, None)
            if other is None:
                break
            yield other
            place += 1
        yield block
        place += 1
    yield from rest


def _result(message: Entry) -> Block:
    """The result of a call; it is cached as a whole where its last part is to be."""
    content = list(_content(message.get("content")))
    result: Block = {"type": "tool_result", "tool_use_id": message["tool_call_id"]}
    if content:
        marks = [mark for part in content if (mark := part.pop("cache_control", None))]
        result["content"] = content
        if marks:
            result["cache_control"] = marks[-1]
    return result


def _content(content: object) -> Iterator[Block]:
    """The blocks of a content; the API refuses blank texts, which say nothing."""
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    for part in parts if isinstance(parts, Iterable) else ():
        block = _part(part)
        if block["type"] == "text" and not block["text"].strip():
            continue
        more = part.keys() - _OF_A_PART
        yield block | {name: part[name] for name in more if part[name] is not None}


def _part(part: Entry) -> Block:
    if part["type"] == "image_url":
        return {"type": "image", "source": _source(part["image_url"]["url"])}
    return {"type": "text", "text": part.get("text") or part.get("refusal") or ""}


def _source(url: str) -> Block:
    if not url.lower().startswith("data:"):
        return {"type": "url", "url": url}
    head, _, data = url.partition(",")
    media = head[len("data:") :].partition(";")[0].lower()
    return {"type": "base64", "media_type": _MEDIA.get(media, media), "data": data}


def _strip_end(draft: RequestDraft, made: list[Block]) -> None:
    """The API refuses a reply to be continued that ends in white space."""
    if not made or made[-1]["role"] != "assistant":
        return
    last = made[-1]["content"][-1]
    if last["type"] == "text" and last["text"] != last["text"].rstrip():
        last["text"] = last["text"].rstrip()
        draft.changes.append("messages.content stripped at its end")
