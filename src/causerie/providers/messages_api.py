"""Requests to Anthropic's Messages API, from those that are written as chat completions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from causerie.protocol.reasoning import MESSAGES_FORMAT, blocks_of
from causerie.providers.native import NATIVE_APIS
from causerie.providers.request_body import RequestDraft

# The conversation as the Messages API takes it: a system prompt, then turns of content blocks.
#
# Neighbours of one role become one turn, so that the results of all calls of a turn come together,
# as the API demands. Blocks of reasoning go back to the places that they had among the other
# blocks.

_FORMATS = (MESSAGES_FORMAT, "unknown", None)
_OF_A_MESSAGE = frozenset(
    {"role", "content", "name", "refusal", "reasoning_details", "tool_calls", "tool_call_id"}
)
_OF_A_RESULT = frozenset({"is_error", "cache_control"})
_MEDIA = {"image/jpg": "image/jpeg"}

Entry = Mapping[str, Any]
Block = dict[str, Any]


def turns(draft: RequestDraft) -> tuple[list[Block], list[Block]]:
    system: list[Block] = []
    made: list[Block] = []
    messages = draft.fields["messages"]
    for message in messages:
        role = message["role"]
        known = _OF_A_MESSAGE | _OF_A_RESULT if role == "tool" else _OF_A_MESSAGE
        for name in sorted(message.keys() - known):
            draft.dropped(f"messages.{name}")
        if role == "system":
            if made:
                draft.changes.append("messages.role.system moved to the front")
            system += _convert_content_to_blocks(message.get("content"))
            continue
        role, blocks = _convert_message(draft, message)
        if not blocks and role == "user" and message is messages[-1]:
            blocks = [_build_placeholder_block(draft)]
        if role == "assistant" and blocks and not made:
            made.append({"role": "user", "content": [_build_placeholder_block(draft)]})
        if made and made[-1]["role"] == role:
            made[-1]["content"] += blocks
        elif blocks:
            made.append({"role": role, "content": blocks})
    _strip_trailing_space(draft, made)
    draft.changes[:] = dict.fromkeys(draft.changes)
    return system, made


def _build_placeholder_block(draft: RequestDraft) -> Block:
    # The API rejects an empty user message.
    draft.changes.append("messages.content added")
    return {"type": "text", "text": "…"}


def _convert_message(draft: RequestDraft, message: Entry) -> tuple[str, list[Block]]:
    if message["role"] == "assistant":
        others = list(_convert_content_to_blocks(message.get("content") or message.get("refusal")))
        for call in message.get("tool_calls") or ():
            function = call["function"]
            use: Block = {"type": "tool_use", "id": call["id"], "name": function["name"]}
            use["input"] = msgspec.Raw(function["arguments"].encode())  # an object, by now
            others.append(use)
        return "assistant", list(_interleave(_convert_signed_reasoning(draft, message), others))
    if message["role"] == "tool":
        return "user", [_convert_tool_result(message)]
    return "user", list(_convert_content_to_blocks(message.get("content")))


def _convert_signed_reasoning(draft: RequestDraft, message: Entry) -> Iterator[tuple[int, Block]]:
    for block in blocks_of(message.get("reasoning_details")):
        kind, format = block["type"], block.get("format")
        if kind == "reasoning.encrypted" and format == MESSAGES_FORMAT:
            made = {"type": "redacted_thinking", "data": block.get("data")}
        elif kind == "reasoning.text" and format in _FORMATS and block.get("signature"):
            text = block.get("text") or ""
            made = {"type": "thinking", "thinking": text, "signature": block["signature"]}
        else:
            draft.dropped("messages.reasoning_details")
            continue
        index = block.get("index")
        yield (index if isinstance(index, int) else 0), made


def _interleave(thinking: Iterable[tuple[int, Block]], others: list[Block]) -> Iterator[Block]:
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


def _convert_tool_result(message: Entry) -> Block:
    # It is cached as a whole where its last part is to be.
    content = list(_convert_content_to_blocks(message.get("content")))
    result: Block = {"type": "tool_result", "tool_use_id": message["tool_call_id"]}
    if content:
        marks = [mark for part in content if (mark := part.pop("cache_control", None))]
        result["content"] = content
        if marks:
            result["cache_control"] = marks[-1]
    return result | {name: message[name] for name in _OF_A_RESULT if message.get(name)}


def _convert_content_to_blocks(content: object) -> Iterator[Block]:
    # The API refuses blank texts.
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    for part in parts if isinstance(parts, Iterable) else ():
        block: Block
        if part["type"] == "image_url":
            block = {"type": "image", "source": _build_image_source(part["image_url"]["url"])}
        else:
            block = {"type": "text", "text": part.get("text") or part.get("refusal") or ""}
        if block["type"] == "text" and not block["text"].strip():
            continue
        more = part.keys() - {"type", "text", "image_url", "refusal"}
        yield block | {name: part[name] for name in more if part[name] is not None}


def _build_image_source(image_url: str) -> Block:
    if not image_url.lower().startswith("data:"):
        return {"type": "url", "url": image_url}
    head, _, data = image_url.partition(",")
    media = head[len("data:") :].partition(";")[0].lower()
    return {"type": "base64", "media_type": _MEDIA.get(media, media), "data": data}


def _strip_trailing_space(draft: RequestDraft, chat_turns: list[Block]) -> None:
    # The API refuses a reply to be continued that ends in white space.
    if not chat_turns or chat_turns[-1]["role"] != "assistant":
        return
    last = chat_turns[-1]["content"][-1]
    if last["type"] == "text" and last["text"] != last["text"].rstrip():
        last["text"] = last["text"].rstrip()
        draft.changes.append("messages.content stripped at its end")


# Body of a request to the Messages API, from one that is written in terms of chat completions.

_LIMIT = NATIVE_APIS["messages"].demanded_limit or 0
_LEAST_BUDGET = 1024
# Fields that take another form; what else there is goes as it is.
_OTHERS = frozenset({
    "messages", "max_tokens", "stop", "user", "tools", "tool_choice", "parallel_tool_calls",
    "response_format", "output_config", "continue_final_message", "add_generation_prompt",
})  # fmt: skip
_OF_A_TOOL = frozenset({"type", "function", "name", "parameters"})
_CHOICES = {"none": "none", "auto": "auto", "required": "any"}

Fields = dict[str, Any]


def messages_fields(draft: RequestDraft) -> Fields:
    given = draft.fields
    fields: Fields = {name: value for name, value in given.items() if name not in _OTHERS}
    system, fields["messages"] = turns(draft)
    if system:
        fields["system"] = system
    # The API demands a limit, above any budget of thinking.
    thinking = fields.get("thinking") or {}
    budget = thinking.get("budget_tokens", 0)
    limit = given.get("max_tokens")
    if limit is None:
        limit = _LIMIT + budget
        draft.changes.append(f"max_tokens {limit} added")
    elif _LEAST_BUDGET < limit <= budget:
        fields["thinking"] = {**thinking, "budget_tokens": limit - 1}
        draft.changes.append(f"thinking.budget_tokens {budget}->{limit - 1}")
    fields["max_tokens"] = limit
    stop = given.get("stop")
    if stop:
        fields["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    if given.get("user"):
        fields["metadata"] = {"user_id": given["user"]}
    if given.get("tools"):
        fields["tools"] = [_convert_tool_definition(tool) for tool in given["tools"]]
        _write_tool_choice(given, fields)
    elif called := _list_called_functions(fields["messages"]):
        fields["tools"] = [{"name": name, "input_schema": {"type": "object"}} for name in called]
        fields["tool_choice"] = {"type": "none"}
        draft.changes.append("tools added, which earlier messages call")
    output: Fields = dict(given.get("output_config") or {})
    asked = given.get("response_format") or {}
    if asked.get("type") == "json_schema":
        output["format"] = {"type": "json_schema", "schema": asked["json_schema"]["schema"]}
    if output:
        fields["output_config"] = output
    return fields


def _convert_tool_definition(tool: Mapping[str, Any]) -> Fields:
    function = tool["function"]
    schema = function.get("parameters") or {}
    made: Fields = {"name": function["name"], "input_schema": {"type": "object", **schema}}
    for holder in (function, tool):  # with what the operator has allowed
        made |= {name: holder[name] for name in holder.keys() - _OF_A_TOOL if holder[name]}
    return made


def _list_called_functions(messages: list[Fields]) -> list[str]:
    # The API demands the definitions of all functions in the history.
    blocks = (block for message in messages for block in message["content"])
    return list(dict.fromkeys(block["name"] for block in blocks if block["type"] == "tool_use"))


def _write_tool_choice(chat_fields: Mapping[str, Any], api_fields: Fields) -> None:
    sent = chat_fields.get("tool_choice")
    choice: Fields = {"type": _CHOICES.get(sent, "auto") if isinstance(sent, str) else "auto"}
    if isinstance(sent, Mapping):
        choice = {"type": "tool", "name": sent["function"]["name"]}
    if chat_fields.get("parallel_tool_calls") is False and choice["type"] != "none":
        choice["disable_parallel_tool_use"] = True
    elif sent is None:
        return
    api_fields["tool_choice"] = choice
