"""Responses in tests: the schemas of the specification and of the official client, and streams."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import openresponses_types.types as spec
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from causerie.protocol.events import Event
from causerie.protocol.response import CompletionIdentity, ResponseContext
from causerie.shapes.responses.encoder import ResponseReply

CONTEXT = ResponseContext(CompletionIdentity("resp_1", 1000, "r"), "m", "f")
_OFFICIAL: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def _by_type() -> Mapping[str, Any]:
    """The events of the specification by their types."""
    found = {}
    for name in dir(spec):
        if name.endswith("StreamingEvent"):
            event = getattr(spec, name)
            kind = event.model_fields["type"].annotation
            found[next(iter(kind)).value] = event
    return found


SPECIFIED = _by_type()
NOT_SPECIFIED = frozenset({"custom_tool_call", "tool_search_call"})
"""Items of the official client that the specification has not."""


def check_event(event: Mapping[str, Any]) -> None:
    """Check an event against the specification, and against the official client's types.

    They differ in two things: the specification says the schema of a response format again as
    null, and has an object in its event ``error``.
    """
    kind = event["type"]
    of_others = any(item["type"] in NOT_SPECIFIED for item in _items(event))
    if not of_others and not kind.startswith("response.custom_tool_call_input."):
        SPECIFIED[kind].model_validate(event)
    if kind != "error" and not _says_schema(event):
        _OFFICIAL.validate_python(event)


def check_response(body: Mapping[str, Any]) -> None:
    """Check a whole response likewise."""
    if not any(item["type"] in NOT_SPECIFIED for item in body["output"]):
        spec.ResponseResource.model_validate(body)
    if body["text"]["format"]["type"] != "json_schema":
        Response.model_validate(body)


def _items(event: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    if "item" in event:
        return [event["item"]]
    tools = event.get("response", {}).get("tools", ())
    others = [{"type": "custom_tool_call"} for tool in tools if tool["type"] != "function"]
    return [*event.get("response", {}).get("output", ()), *others]


def _says_schema(event: Mapping[str, Any]) -> bool:
    form = event.get("response", {}).get("text", {}).get("format", {})
    return bool(form.get("type") == "json_schema")


def events_of(stream: bytes) -> list[dict[str, Any]]:
    """The events of a stream, which must be named as they are typed, numbered, and end well."""
    *blocks, last, nothing = stream.decode().split("\n\n")
    assert (last, nothing) == ("data: [DONE]", "")
    events = []
    for block in blocks:
        if block.startswith(":"):
            continue
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def streamed(reply: ResponseReply, batches: Iterable[Sequence[Event]]) -> list[dict[str, Any]]:
    """The events of the stream of a reply."""
    encoder = reply.encoder(CONTEXT)
    return events_of(b"".join([*map(encoder.feed, batches), encoder.end()]))


_TEXTS = {
    "response.output_text": ("content", "text"),
    "response.reasoning_summary_text": ("summary", "text"),
    "response.function_call_arguments": ("", "arguments"),
    "response.custom_tool_call_input": ("", "input"),
}
"""Where the pieces of texts go: the list of parts of an item, or itself, and the field."""
_PARTS = {"response.content_part": "content", "response.reasoning_summary_part": "summary"}
_LATE = ("content", "encrypted_content", "arguments")
"""What is known with the finished item only: of reasoning, and of a search for tools."""


def put_together(events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Put the items of a stream together from pieces alone, and check what is said again."""
    items: dict[int, dict[str, Any]] = {}
    open_items: set[int] = set()
    for event in events:
        place, _, step = event["type"].rpartition(".")
        at = event.get("output_index", -1)
        if place == "response.output_item" and step == "added":
            assert at == len(items)
            items[at] = dict(event["item"])
            open_items.add(at)
        elif place == "response.output_item":
            open_items.remove(at)
            _finish(items[at], event["item"])
        elif "item_id" in event:
            assert event["item_id"] == items[at]["id"]
            assert at in open_items
            _take(items[at], place, step, event)
    assert not open_items
    return [items[at] for at in sorted(items)]


def _finish(item: dict[str, Any], said: Mapping[str, Any]) -> None:
    item["status"] = said["status"]
    if item["type"] in ("reasoning", "tool_search_call"):
        item |= {name: said[name] for name in _LATE if name in said}
    assert item == said


def _take(item: dict[str, Any], place: str, step: str, event: Mapping[str, Any]) -> None:
    if place in _PARTS:
        if step == "added":
            item[_PARTS[place]] = [dict(event["part"])]
        assert item[_PARTS[place]] == [event["part"]]
        return
    parts, field = _TEXTS[place]
    holder = item[parts][0] if parts else item
    if step == "done":
        assert event[field] == holder[field]
        return
    holder[field] += event["delta"]
    if event.get("logprobs"):
        holder["logprobs"] = holder["logprobs"] + event["logprobs"]
