"""The messages of a request as the dictionaries that a chat template reads.

Fixed words (roles, types) are this program's; everything else stays the user's. For a model whose
template shows no tools or thinking, tools are described in the system message, calls and results
are written into plain content in the declared form, and thinking is asked for in words, all
briefly: the models are small.
"""

from __future__ import annotations

import hashlib
import re
import string
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from causerie.chat.call_syntax.relaxed import loose_text
from causerie.chat.formats import format as forms
from causerie.chat.schema.values import json_type_name
from causerie.chat.taint import (
    FINAL,
    Traced,
    authored,
    joined,
    origin_of,
    read_arguments,
    write_json,
)
from causerie.chat.template_capabilities import Entry, TemplateCapabilities
from causerie.errors import InvalidRequest
from causerie.protocol import bounded_json
from causerie.protocol.request import Message, TextPart, Tool, ToolCall

PLACEHOLDER = "…"  # stands for the words of a message that is to be continued and has none
_GAP = authored("\n\n")
_NINE = 9
_LETTERS = string.ascii_letters + string.digits
_RESULT_OPEN, _RESULT_CLOSE = authored("<tool_response>\n"), authored("\n</tool_response>")


def entries(
    messages: Sequence[Message], capabilities: TemplateCapabilities, reasoning_keys: Sequence[str]
) -> list[Entry]:
    """Return one dictionary a message, in order; results of tools carry the function's name.

    Raises :class:`InvalidRequest` for arguments of calls that take too long to read.
    """
    calls = [call for message in messages for call in message.tool_calls]
    _refuse_arguments_costly_to_parse(calls)
    names = {call.id: call.name for call in calls}
    items: list[Entry] = []
    for message in messages:
        content = message.content
        # An image is a mark in the text: engines write what the model has around images.
        parts = content if isinstance(content, tuple) else (TextPart(content or ""),)
        texts = (Traced(part.text if isinstance(part, TextPart) else part.url) for part in parts)
        entry: Entry = {"role": authored(message.role), "content": joined(texts)}
        if message.reasoning_content:
            entry |= {key: Traced(message.reasoning_content) for key in reasoning_keys}
        if message.tool_calls:
            entry["tool_calls"] = [_convert_call(call, capabilities) for call in message.tool_calls]
            entry["content"] = entry["content"] or capabilities.no_content
        if message.tool_call_id is not None:
            entry["tool_call_id"] = _hash_unaccepted_call_id(message.tool_call_id, capabilities)
        name = message.name or names.get(message.tool_call_id or "")
        if name:
            entry["name"] = Traced(name)
        items.append(entry)
    return items


def _refuse_arguments_costly_to_parse(calls: Sequence[ToolCall]) -> None:
    texts = [call.arguments.encode("utf-8", "replace") for call in calls]
    if sum(map(len, texts)) <= bounded_json.SMALL:
        return
    try:
        bounded_json.check_together(texts, bounded_json.ARGUMENTS)
    except bounded_json.TooMuchWork as error:
        raise InvalidRequest(
            "The arguments of the `tool_calls` in `messages` take too long to read: together they "
            f"have {str(error).removeprefix('it has ')}. Send fewer of the earlier calls.",
            param="messages",
        ) from error


def with_final(entry: Entry, reasoning_keys: Iterable[str]) -> Entry:
    """Return an answer with the origin FINAL on its content, or on its reasoning without content.

    The prompt ends behind the last character of this origin, where the model continues.
    """
    content, keys = entry["content"], tuple(key for key in reasoning_keys if entry.get(key))
    if not content and keys:
        return {**entry, **{key: _trace_as_text_to_continue(entry[key]) for key in keys}}
    return {**entry, "content": _trace_as_text_to_continue(content)}


def arranged(conversation: Sequence[Entry], capabilities: TemplateCapabilities) -> list[Entry]:
    """Return the messages, moved, merged and with empty ones added as the template requires.

    If several, or later ones, are not shown, all are put together in front; where none is shown, or
    one alone is refused, their text goes in front of the first message of the user, or of the last
    where the template itself writes it there as long as nothing follows. If the roles have to take
    turns, neighbours of a role become one message, and an empty answer stands between a call or its
    result and a user; where an answer may not come first, or not without a question, an empty one
    is before it.
    """
    items: list[Entry] = []
    placed = in_turns(_move_system_messages(conversation, capabilities), capabilities)
    asked = capabilities.unasked or any(entry["role"] == "user" for entry in placed)
    for entry in placed:
        before = items[-1] if items else _build_text_entry("system", "")
        called = before["role"] == "tool" or before.get("tool_calls")
        if entry["role"] == "user" and called and not capabilities.interrupts:
            items.append(_build_text_entry("assistant", capabilities.blank))
        opens = entry["role"] == "assistant" and before["role"] == "system"
        if opens and not (capabilities.opens and asked):
            items.append(_build_text_entry("user", authored("")))
        if entry["role"] == "assistant" and not (entry["content"] or entry.get("tool_calls")):
            entry = {**entry, "content": capabilities.blank}
        items.append(entry)
    return items


def in_turns(conversation: Sequence[Entry], capabilities: TemplateCapabilities) -> list[Entry]:
    """Return the messages, with neighbours of a role merged where the roles have to take turns.

    An answer also with the calls that follow it.
    """
    items: list[Entry] = []
    for entry in conversation:
        before = items[-1] if items and not capabilities.repeats else None
        alike = before is not None and entry["role"] == before["role"] in ("user", "assistant")
        if before is None or not alike or before.get("tool_calls"):
            items.append(entry)
        else:
            items[-1] = {**before, **entry, "content": _join_contents(before, entry)}
    return items


def apart(entry: Entry, capabilities: TemplateCapabilities, keys: Sequence[str]) -> list[Entry]:
    """Return the message, or one of its text and one of its calls if the template needs that.

    Reasoning stands before both, or alongside the calls alone where it may not stand alongside
    text.
    """
    thought = {key: entry[key] for key in keys if entry.get(key)}
    whole = capabilities.text_before_calls and (capabilities.together or not thought)
    if whole or not (entry["content"] and entry.get("tool_calls")):
        return [entry]
    said = {"role": entry["role"], "content": entry["content"]}
    calls = {key: value for key, value in entry.items() if key not in thought}
    calls["content"] = capabilities.no_content
    return [said | thought, calls] if capabilities.together else [said, calls | thought]


def one_call_each(conversation: Sequence[Entry], capabilities: TemplateCapabilities) -> list[Entry]:
    """Return the messages, with one call in each before its result if a template needs that."""
    if capabilities.several:
        return list(conversation)
    items: list[Entry] = []
    rest = deque(conversation)
    while rest:
        entry = rest.popleft()
        calls = entry.get("tool_calls")
        if not isinstance(calls, list) or len(calls) == 1:
            items.append(entry)
            continue
        results: list[Entry] = []
        while rest and rest[0]["role"] == "tool":
            results.append(rest.popleft())
        for call in calls:
            own = next((each for each in results if each.get("tool_call_id") == call["id"]), None)
            items.append({**entry, "tool_calls": [call]})
            if own is not None:
                results.remove(own)
                items.append(own)
            entry = {"role": entry["role"], "content": capabilities.no_content}
        items += results
    return items


def content_text(content: object) -> Traced:
    return joined((content or "",))


def with_system(conversation: Sequence[Entry], text: str) -> list[Entry]:
    """Return the messages with a text added to the leading system message, or to a new one."""
    if conversation and conversation[0]["role"] == "system":
        first = conversation[0]
        content = joined((first["content"], _GAP, text)) if first["content"] else text
        return [{**first, "content": content}, *conversation[1:]]
    return [_build_text_entry("system", text), *conversation]


def _convert_call(call: ToolCall, capabilities: TemplateCapabilities) -> Entry:
    arguments: object = Traced(call.arguments or "{}")
    if capabilities.arguments == "object":
        arguments = read_arguments(call.arguments)
    return {
        "id": _hash_unaccepted_call_id(call.id, capabilities),
        "type": authored("function"),
        "function": {"name": Traced(call.name), "arguments": arguments},
    }


def _hash_unaccepted_call_id(call_id: str, capabilities: TemplateCapabilities) -> Traced:
    is_short = len(call_id) == _NINE and call_id.isascii() and call_id.isalnum()
    if is_short or not capabilities.short_ids:
        return Traced(call_id)
    return Traced(derived_id(call_id, _LETTERS, _NINE))


def derived_id(value: str, letters: str, size: int) -> str:
    """Return an id of ``size`` of these letters, chosen by a hash of the value."""
    digest = hashlib.sha256(value.encode("utf-8", "surrogatepass")).digest()
    return "".join(letters[byte % len(letters)] for byte in digest[:size])


def tool_entry(tool: Tool, capabilities: TemplateCapabilities) -> Entry:
    function: Entry = {"name": tool.name}
    if tool.description is not None or not capabilities.undescribed:
        function["description"] = tool.description or ""
    function["parameters"], declared = tool.parameters, tool.parameters.get("properties")
    if not capabilities.undescribed and isinstance(declared, Mapping):
        others = {name: of for name, of in declared.items() if isinstance(of, Mapping)}
        described = {name: {"description": "", **of} for name, of in others.items()}
        function["parameters"] = {**tool.parameters, "properties": {**declared, **described}}
    return {"type": authored("function"), "function": function}


def _move_system_messages(
    conversation: Sequence[Entry], capabilities: TemplateCapabilities
) -> list[Entry]:
    at = [index for index, entry in enumerate(conversation) if entry["role"] == "system"]
    leading = at == list(range(len(at)))
    refused = len(at) == len(conversation) and not capabilities.system_alone
    placed = capabilities.system_kept and not refused
    shown = placed and (
        (capabilities.system and at == [0])
        or (capabilities.systems and leading)
        or (capabilities.system_later and (capabilities.systems or len(at) == 1))
    )
    if shown or not at:
        return list(conversation)
    texts = [content_text(conversation[index]["content"]) for index in at]
    text = _GAP.join([text for text in texts if text])
    others = [entry for entry in conversation if entry["role"] != "system"]
    if capabilities.system and placed:
        return [_build_text_entry("system", text), *others]
    if others and not text:
        return others
    users = [index for index, entry in enumerate(others) if entry["role"] == "user"]
    first = users[-1] if capabilities.system and users else 0
    if first in users:
        content = joined((text, _GAP, others[first]["content"] or ""))
        return [*others[:first], {**others[first], "content": content}, *others[first + 1 :]]
    return [_build_text_entry("user", text), *others]


def _join_contents(first_entry: Entry, second_entry: Entry) -> object:
    before, behind = first_entry["content"], second_entry["content"]
    return joined((before, _GAP, behind)) if before and behind else behind or before


def _build_text_entry(role: str, text: str) -> Entry:
    return {"role": authored(role), "content": text}


def _trace_as_text_to_continue(text: object) -> Traced:
    words = str(text)
    return Traced(words if words.strip() else words + PLACEHOLDER, FINAL)


def tools_text(tools: Sequence[Entry], calls: forms.CallSection) -> Traced:
    lines = [write_json(tool["function"]) for tool in tools]
    example = call_text(calls, (authored("NAME"), authored('{"PARAMETER": "VALUE"}')))
    before = authored("You can call these functions:\n")
    form = authored("\n\nTo call one, answer in exactly this form:\n")
    then = "The result comes in the next message. If no function is needed, just answer."
    return joined((before, authored("\n").join(lines), form, example, authored(f"\n{then}")))


def with_reasoning(
    entry: Entry, reasoning: forms.Reasoning, keys: Sequence[str], gap: str = ""
) -> Entry:
    """Return the message with its reasoning in its content, between the model's own markers.

    ``gap`` is what the template writes by itself between a content and its calls.
    """
    thought = next((entry[key] for key in keys if entry.get(key)), None)
    if thought is None:
        return entry
    begin = authored(reasoning.open + reasoning.after_open)
    end, said = reasoning.before_close + reasoning.close + reasoning.after_close, entry["content"]
    if entry.get("tool_calls") and not said:
        end = end.removesuffix(gap)
    text = joined((begin, thought, authored(end), content_text(said)))
    return {key: value for key, value in entry.items() if key not in keys} | {"content": text}


def thought_once(prompt: Traced, reasoning: forms.Reasoning) -> Traced:
    """Return the prompt without the template's empty reasoning blocks before other such blocks."""
    opened, closed = re.escape(reasoning.open), re.escape(reasoning.close)
    origin = origin_of(prompt)
    parts: list[str] = []
    done = 0
    for empty in re.finditer(rf"{opened}\s*{closed}\s*(?=({opened}))", prompt):
        if not any(origin[empty.start() : empty.end(1)]):
            parts.append(prompt[done : empty.start()])
            done = empty.end()
    return joined((*parts, prompt[done:]))


def without_calls(conversation: Sequence[Entry], calls: forms.CallSection) -> list[Entry]:
    """Return the messages with calls as text in their content, and results as user messages."""
    plain: list[Entry] = []
    after_result = False
    for entry in conversation:
        if entry["role"] != "tool":
            plain.append(said_calls(entry, calls))
            after_result = False
            continue
        text = joined((_RESULT_OPEN, content_text(entry["content"]), _RESULT_CLOSE))
        if after_result:
            text = joined((content_text(plain.pop()["content"]), authored("\n"), text))
        plain.append({"role": authored("user"), "content": text})
        after_result = True
    return plain


def call_text(calls: forms.CallSection, *made: Sequence[str]) -> Traced:
    """Return calls (name, arguments and perhaps an id of each) in the form that is declared."""
    texts = []
    for call in made:
        name, arguments, call_id, *_ = (*call, "ID")
        texts.append(joined(segment_text(one, name, arguments, call_id) for one in calls.call))
    section = authored(calls.separator).join(texts)
    return joined((authored(calls.begin), section, authored(calls.end)))


def said_calls(entry: Entry, calls: forms.CallSection) -> Entry:
    made = entry.get("tool_calls")
    if not isinstance(made, list):
        return entry
    content = content_text(entry["content"])
    gap = "" if not content or content.endswith("\n") else "\n"
    text = joined((content, authored(gap), call_text(calls, *map(_extract_call_parts, made))))
    return {key: value for key, value in entry.items() if key != "tool_calls"} | {"content": text}


def _extract_call_parts(call_entry: Mapping[str, Any]) -> tuple[str, ...]:
    function, arguments = call_entry["function"], call_entry["function"]["arguments"]
    text = arguments if isinstance(arguments, str) else write_json(arguments)
    return str(function["name"]), text, str(call_entry["id"])


def segment_text(segment: forms.Segment, name: str, arguments: str, call_id: str) -> str:
    """Return one segment of a call as the model writes it; ``arguments`` are JSON."""
    match segment:
        case forms.Literal(text):
            return authored(text)
        case forms.Name():
            return name
        case forms.CallId():
            return call_id
        case forms.JsonArguments():
            return arguments
        case forms.ParameterList():
            return _write_parameters(segment, arguments)
        case forms.PythonArguments():
            items = read_arguments(arguments).items()
            return Traced(", ".join(f"{key}={_write_as_python(value)}" for key, value in items))
        case forms.ElementArguments(mark):
            return Traced(_write_xml_elements(read_arguments(arguments), mark))
        case forms.LooseArguments(quote):
            items = read_arguments(arguments).items()
            pairs = (f"{key}:{loose_text(value, quote)}" for key, value in items)
            return joined((authored("{"), Traced(",".join(pairs)), authored("}")))


def _write_parameters(segment: forms.ParameterList, arguments_json: str) -> Traced:
    parts: list[str] = []
    for key, value in read_arguments(arguments_json).items():
        between, written = segment.between, str(value)
        if not isinstance(value, str):
            between = (segment.between_json or between).replace("{type}", json_type_name(value))
            python = segment.constants == "python" and (value is None or isinstance(value, bool))
            written = Traced(written) if python else write_json(value)
        parts += (authored(segment.before), key, authored(between), written)
        parts.append(authored(segment.after))
    return joined(parts)


def _write_xml_elements(value: object, tag_prefix: str) -> str:
    if isinstance(value, Mapping):
        pairs = ((key, of) for key, of in value.items() if of is not None)
        texts = ((key, _write_xml_elements(of, tag_prefix)) for key, of in pairs)
        return "".join(f"{tag_prefix}<{key}>{text}{tag_prefix}</{key}>" for key, text in texts)
    if isinstance(value, list):
        items = (_write_xml_elements(of, tag_prefix) for of in value)
        return "".join(f"{tag_prefix}<item>{item}{tag_prefix}</item>" for item in items)
    return value if isinstance(value, str) else write_json(value)


def _write_as_python(value: object) -> str:
    if isinstance(value, Mapping):
        pairs = (f"{_write_as_python(k)}: {_write_as_python(v)}" for k, v in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_write_as_python, value)) + "]"
    return write_json(value) if isinstance(value, str) else repr(value)
