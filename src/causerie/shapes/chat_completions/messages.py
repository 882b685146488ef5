"""Reads the messages of a conversation: roles, contents, past calls and their results."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from causerie.errors import InvalidRequest
from causerie.protocol.body import (
    ObjectReader,
    as_object,
    missing,
    shown,
    unsupported,
    wrong_type,
    wrong_value,
)
from causerie.protocol.body_types import MAX_NAME, MAX_PAST_CALLS
from causerie.protocol.parameters import ParsingRules
from causerie.protocol.reasoning import text_of
from causerie.protocol.request import ROLES, ImagePart, Message, Part, Role, TextPart, ToolCall

_LONGEST_ADDRESS = 8192
MAX_PARTS = 4096
_WEB_ADDRESS = re.compile(rf"https://[!-~]{{1,{_LONGEST_ADDRESS - 8}}}", re.ASCII)
_DATA_IMAGE = re.compile(r"data:image/[a-zA-Z0-9.+-]+;base64,", re.ASCII)
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/_-"
PARTS = ("text", "refusal", "image_url")
_OTHER_PLACES = ("prompt", "input", "inputs", "contents", "message")  # for messages elsewhere
_SEND_IMAGE = 'Send `{"type": "image_url", "image_url": {"url": URL}}`.'
_SEND_CALLS = "Send calls in `tool_calls` of the assistant message."
_SEND_RESULT = "Send the result in a message with role `tool` and its `tool_call_id`."
_OTHER_PARTS: Mapping[str, str] = {
    **dict.fromkeys(("input_text", "output_text"), 'Send `{"type": "text", "text": TEXT}`.'),
    **dict.fromkeys(("input_image", "image"), _SEND_IMAGE),
    **dict.fromkeys(("tool_use", "tool-call"), _SEND_CALLS),
    **dict.fromkeys(("tool_result", "tool-result"), _SEND_RESULT),
}
"""Types of parts of other APIs, and what to send here."""


def message_values(body: ObjectReader, rules: ParsingRules) -> list[object]:
    values = body.get("messages")
    if values is None:
        instead = next((f" instead of `{name}`" for name in _OTHER_PLACES if body.has(name)), "")
        raise missing("messages", "an array of at least one message" + instead)
    if not isinstance(values, list):
        raise wrong_type("messages", 'an array like [{"role": "user", "content": TEXT}]', values)
    if not values:
        raise wrong_value("messages", "is empty; send at least one message.")
    if len(values) > rules.max_messages:
        raise wrong_value(
            "messages", f"holds {len(values)} messages; at most {rules.max_messages} are allowed."
        )
    return values


def read_messages(values: Iterable[tuple[int, object]]) -> tuple[Message, ...]:
    known_calls: set[str] = set()
    messages = []
    for index, value in values:
        fields = as_object(value, f"messages[{index}]", "an object with `role` and `content`")
        message = _read_message(fields, known_calls)
        if message.tool_calls:
            known_calls.update(call.id for call in message.tool_calls)
        messages.append(message)
    return tuple(messages)


def plain_length(messages: Sequence[Message]) -> int | None:
    """Return the number of characters if all messages are only ASCII text, else ``None``."""
    characters = 0
    for message in messages:
        content = message.content
        if not isinstance(content, str) or not content.isascii():
            return None
        if message.tool_calls or message.reasoning_content:
            return None
        characters += len(content)
    return characters


def _read_message(fields: ObjectReader, known_call_ids: set[str]) -> Message:
    value = fields.required_string("role", expected=f"one of {', '.join(ROLES)}")
    if value == "function":
        raise unsupported(fields.param("role"), _SEND_RESULT)
    role = ROLES.get(value)
    if role is None:
        raise wrong_value(
            fields.param("role"), f"must be one of {', '.join(ROLES)}, not {shown(value)}."
        )
    name = fields.string("name", most=MAX_NAME)
    if role == "assistant":
        return _read_assistant_message(fields, name)
    content = _read_message_content(fields, role)
    if content is None:
        raise missing(fields.param("content"), "a string or an array of parts")
    if role != "tool":
        return Message(role=role, content=content, name=name)
    param, answered = fields.param("tool_call_id"), fields.string("tool_call_id")
    if answered is None:
        raise missing(param, "the `id` of the tool call that the message answers")
    if answered not in known_call_ids:
        raise wrong_value(
            param,
            f"is {shown(answered)}, which no earlier assistant message has in its `tool_calls`; "
            "send the assistant message with that call before its result.",
        )
    return Message(role=role, content=content, name=name, tool_call_id=answered)


def _read_assistant_message(fields: ObjectReader, name: str | None) -> Message:
    if fields.has("function_call"):
        raise unsupported(fields.param("function_call"), "Send past calls in `tool_calls`.")
    content, refusal = _read_message_content(fields, "assistant"), fields.string("refusal")
    if content is None:
        content = refusal  # said instead, as clients send it back
    reasoning = _read_reasoning_text(fields)
    calls = tuple(_read_call(call) for call in fields.objects("tool_calls", most=MAX_PAST_CALLS))
    if content is None and not calls and reasoning is None:
        raise missing(fields.param("content"), "a string, unless there are `tool_calls`")
    return Message(
        role="assistant", content=content, reasoning_content=reasoning, tool_calls=calls, name=name
    )


def _read_reasoning_text(fields: ObjectReader) -> str | None:
    reasoning = fields.string("reasoning_content")
    if reasoning is None:
        reasoning = fields.string("reasoning")
    if fields.has("reasoning_details"):
        blocks = [block.values for block in fields.objects("reasoning_details", most=MAX_PARTS)]
        reasoning = reasoning or text_of(blocks)
    return reasoning


def _read_call(fields: ObjectReader) -> ToolCall:
    if fields.get("type") != "function":
        raise unsupported(fields.param("type"), 'Only calls of type "function" are known.')
    fields.child("extra_content")  # goes to its provider as it is
    function = fields.required_object("function", "an object with `name` and `arguments`")
    arguments = function.get("arguments")
    if isinstance(arguments, dict):
        raise InvalidRequest(
            f"`{function.param('arguments')}` must be a string that holds the arguments as JSON, "
            "not the object itself.",
            code="invalid_type",
            param=function.param("arguments"),
        )
    return ToolCall(
        id=fields.required_string("id", most=MAX_NAME),
        name=function.required_string("name"),
        arguments=function.string("arguments") or "",
    )


def _read_message_content(fields: ObjectReader, role: Role) -> str | tuple[Part, ...] | None:
    value = fields.get("content")
    if value is None or isinstance(value, str):
        return value
    param = fields.param("content")
    if not isinstance(value, list):
        text = "a string (JSON as text)" if role == "tool" else "a string"
        raise wrong_type(param, f"{text} or an array of parts", value)
    if len(value) > MAX_PARTS:
        raise wrong_value(param, f"holds {len(value)} parts; at most {MAX_PARTS} are allowed.")
    if not value:
        return ""
    objects = (
        as_object(part, f"{param}[{index}]", "an object with a `type`")
        for index, part in enumerate(value)
    )
    return tuple(read_part(part, role) for part in objects)


def read_part(fields: ObjectReader, role: Role) -> Part:
    sort = fields.required_string("type", expected="`text` or `image_url`")
    if sort not in PARTS or (sort == "refusal" and role != "assistant"):
        kinds = f"Parts are `text` and `image_url`, not {shown(sort)}."
        advice = _OTHER_PARTS.get(sort)
        raise unsupported(fields.param("type"), f"{kinds} {advice}" if advice else kinds)
    for name in PARTS:
        if name != sort and fields.has(name):  # which a server may read all the same
            raise wrong_value(fields.param(name), f"belongs to a part of type `{name}`.")
    if sort != "image_url":
        text = fields.string(sort)
        if text is None:
            raise missing(fields.param(sort), "a string")
        return TextPart(text)
    if role not in ("user", "tool"):
        raise unsupported(fields.param("type"), "Images are read from messages of users and tools.")
    image = fields.required_object("image_url", "an object with a `url`")
    image.word("detail", ("auto", "low", "high", "original"))
    part = ImagePart(image.required_string("url"), optional=role == "tool")
    if part.enclosed and not _is_image_data_url(part.url):
        raise wrong_value(image.param("url"), "must have the form `data:image/TYPE;base64,DATA`.")
    if not part.enclosed and (role == "tool" or not _WEB_ADDRESS.fullmatch(part.url)):
        raise wrong_value(
            image.param("url"),
            "must be a `data:` address that holds the image, or begin with `https://`, have no "
            f"spaces, and at most {_LONGEST_ADDRESS} characters.",
        )
    return part


def _is_image_data_url(url: str) -> bool:
    # At memory speed: the address may be long.
    head = _DATA_IMAGE.match(url)
    if head is None or not url.isascii():
        return False
    data = url[head.end() :].encode()
    data = data[: len(data) - data[-2:].count(b"=")]
    return bool(data) and not data.translate(None, _BASE64)
