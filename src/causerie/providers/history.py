"""The conversation as a server reads it; messages that need no change are passed on uncopied.

References inside the schemas of its tools are none that a server would have to fetch: a library
that validates by a schema may ask the host that its ``$ref`` or ``$schema`` names, from inside the
server's network. So a reference leads to a place of the same schema, or to what has its ``$id``,
and a dialect is one that every library knows."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import msgspec

from causerie.errors import InvalidRequest
from causerie.protocol.events import Partial
from causerie.protocol.numbers import whole_number
from causerie.protocol.reasoning import are_plain, blocks_of, text_of, unsealed, with_foreign
from causerie.protocol.request import Message
from causerie.providers.request_body import RequestDraft, check_addresses

_REASONING = ("reasoning_content", "reasoning")
_DETAILS = "reasoning_details"
_EXTRA = "extra_content"
_ASSISTANTS = frozenset({"tool_calls", "refusal", _DETAILS, *_REASONING})
_BLANK = " "  # of an answer that may not be empty

Entry = Mapping[str, Any]


def write_messages(draft: RequestDraft, partial: Partial | None) -> None:
    """Write the messages, and the partial reply to be continued, into the draft."""
    if draft.request.characters is None:
        check_addresses(draft.request, {}, draft.dialect)
    history = draft.dialect.history
    messages: Sequence[Entry] = draft.document.get("messages") or ()
    if not all(map(_may_pass_unchanged, messages)):
        messages = [_adapt_message(draft, index, each) for index, each in enumerate(messages)]
        draft.changes[:] = dict.fromkeys(draft.changes)
    if not history.lenient:
        messages = _drop_empty_and_add_fillers(draft, messages)
    if partial is not None and (partial.text or partial.reasoning):
        messages = _append_partial_reply(draft, list(messages), partial)
    elif draft.request.continue_final_message:
        messages = [*messages[:-1], _mark_for_continuation(draft, dict(messages[-1]))]
    draft.fields["messages"] = messages


def _may_pass_unchanged(message: Entry) -> bool:
    role = message.get("role")
    if role == "assistant":
        return (
            _DETAILS not in message
            and "tool_calls" not in message
            and not any(message.get(name) for name in _REASONING)
        )
    return role != "developer" and role != "tool" and _ASSISTANTS.isdisjoint(message)


def _adapt_message(draft: RequestDraft, message_index: int, message: Entry) -> Entry:
    history = draft.dialect.history
    role = message.get("role")
    if role == "assistant":
        message = _adapt_assistant_message(draft, message_index, message)
    elif not _ASSISTANTS.isdisjoint(message):
        for name in sorted(_ASSISTANTS & message.keys()):
            if message[name]:
                draft.dropped(f"messages.{name}")
        message = _omit_fields(message, _ASSISTANTS)
    if role == "developer" and not history.developer:
        message = {**message, "role": "system"}
        draft.moved("messages.role.developer", "system")
    elif role == "tool":
        message = _adapt_tool_result(draft, message_index, message)
    if not history.names and role != "tool" and message.get("name") is not None:
        message = _omit_fields(message, {"name"})
        draft.dropped("messages.name")
    return message


def _adapt_tool_result(draft: RequestDraft, message_index: int, message: Entry) -> Entry:
    dialect, content = draft.dialect, message["content"]
    if isinstance(content, list) and dialect.api.bodies == "chat" and not dialect.extends:
        kept = [part for part in content if part["type"] != "image_url"]
        for at, part in enumerate(content):
            if part["type"] == "image_url":
                draft.dropped(f"messages[{message_index}].content[{at}]")
        message = {**message, "content": kept or ""}
    if (ids := dialect.history.call_ids) is not None:
        message = {**message, "tool_call_id": ids.fitting(message["tool_call_id"])}
    return message


def _omit_fields(fields: Entry, omitted_names: Collection[str]) -> Entry:
    return {name: value for name, value in fields.items() if name not in omitted_names}


def _adapt_assistant_message(draft: RequestDraft, message_index: int, message: Entry) -> Entry:
    extras: Mapping[str, Entry] = {}
    if _DETAILS in message:
        blocks, extras = unsealed(message[_DETAILS])
        message = {**message, _DETAILS: blocks} if extras else message
    message = _adapt_reasoning(draft, message)
    calls: Sequence[Entry] = message.get("tool_calls") or ()
    if calls:
        places = [f"messages[{message_index}].tool_calls[{at}]" for at in range(len(calls))]
        adapted = [
            _adapt_tool_call(draft, place, call, extras)
            for place, call in zip(places, calls, strict=True)
        ]
        return {**message, "tool_calls": adapted}
    if "tool_calls" in message:  # none, which some servers want said by silence alone
        message = _omit_fields(message, {"tool_calls"})
    return message


def _adapt_reasoning(draft: RequestDraft, message: Entry) -> Entry:
    history = draft.dialect.history
    if _DETAILS in message:
        message = _adapt_reasoning_details(draft, message)
    given = [name for name in _REASONING if message.get(name) is not None]
    reasoning = message[given[0]] if given else None
    may_think = draft.request.thinking.enabled is not False
    if not reasoning and history.placeholder and message.get("tool_calls") and may_think:
        draft.changes.append("messages.reasoning_content added")
        return {**message, "reasoning_content": history.placeholder}
    if reasoning is None or (len(given) == 1 and given == list(history.reasoning)):
        return message
    bare = _omit_fields(message, _REASONING)
    if history.parts and reasoning:
        draft.moved(f"messages.{given[0]}", "messages.content")
        thought = {"type": "thinking", "thinking": [{"type": "text", "text": reasoning}]}
        return {**bare, "content": [thought, *_convert_content_to_parts(message.get("content"))]}
    if not history.reasoning:
        draft.dropped(f"messages.{given[0]}")
    elif given[0] not in history.reasoning:
        draft.moved(f"messages.{given[0]}", f"messages.{history.reasoning[0]}")
    else:
        draft.changes += [f"messages.{one} added" for one in history.reasoning if one not in given]
        draft.changes += [
            f"messages.{one} dropped" for one in given if one not in history.reasoning
        ]
    return {**bare, **dict.fromkeys(history.reasoning, reasoning)}


def _adapt_reasoning_details(draft: RequestDraft, message: Entry) -> Entry:
    # Blocks that are only text were made here, for clients that read blocks.
    blocks = blocks_of(message[_DETAILS])
    plain = are_plain(blocks)
    bare = {key: value for key, value in message.items() if key != _DETAILS}
    if draft.dialect.history.details and not plain:
        return {**message, _DETAILS: with_foreign(blocks)}
    if not any(message.get(name) for name in _REASONING) and (text := text_of(message[_DETAILS])):
        bare["reasoning"] = text
    if not plain:
        draft.dropped(f"messages.{_DETAILS}")
    return bare


def _convert_content_to_parts(content: Any) -> Sequence[Any]:
    if isinstance(content, str) and content:
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else ()


def _adapt_tool_call(
    draft: RequestDraft, field_path: str, call: Entry, extras_by_id: Mapping[str, Entry]
) -> Entry:
    extra = call.get(_EXTRA) or extras_by_id.get(str(call.get("id")))
    if extra and draft.dialect.history.extras:
        call = {**call, _EXTRA: extra}
    elif extra or _EXTRA in call:
        call = _omit_fields(call, {_EXTRA})
        draft.dropped(f"messages.tool_calls.{_EXTRA}")
    ids = draft.dialect.history.call_ids
    if ids is not None and (fitting := ids.fitting(call["id"])) != call["id"]:
        call = {**call, "id": fitting}
        draft.changes.append(f"{field_path}.id rewritten")
    return call


def in_strict_order(messages: Sequence[Message]) -> bool:
    """Return whether no assistant message is empty and the last message is not the assistant's."""
    said = all(message.content for message in messages if message.role == "assistant")
    return said and messages[-1].role != "assistant"


def _drop_empty_and_add_fillers(draft: RequestDraft, messages: Sequence[Entry]) -> list[Entry]:
    placed: list[Entry] = []
    for message in messages:
        role = message.get("role")
        if role == "assistant" and not (message.get("content") or message.get("tool_calls")):
            draft.dropped("messages without content")
            continue
        if role == "user" and placed and placed[-1].get("role") == "tool":
            placed.append({"role": "assistant", "content": _BLANK})
            draft.changes.append("messages.role.assistant added")
        placed.append(message)
    ends = bool(placed) and placed[-1].get("role") == "assistant"
    if ends and not draft.request.continue_final_message:
        placed.append({"role": "user", "content": ""})
        draft.changes.append("messages.role.user added")
    return placed


def _append_partial_reply(draft: RequestDraft, messages: list[Any], partial: Partial) -> list[Any]:
    last: dict[str, Any] = {"role": "assistant", "content": ""}
    if draft.request.continue_final_message:
        last = dict(messages.pop())
    content = last.get("content") or ""
    if isinstance(content, list):
        content = "".join(part.get("text", "") for part in content)
    last["content"] = content + partial.text
    if partial.reasoning:
        last.update(dict.fromkeys(draft.dialect.history.reasoning, partial.reasoning))
    return [*messages, _mark_for_continuation(draft, last)]


def _mark_for_continuation(draft: RequestDraft, last_message: dict[str, Any]) -> dict[str, Any]:
    match draft.dialect.continuing.way:
        case "flag" | "as_sent":
            draft.fields["continue_final_message"] = True
            draft.fields["add_generation_prompt"] = False
        case "prefix":
            last_message["prefix"] = True
            if draft.request.continue_final_message:
                draft.moved("continue_final_message", "messages.prefix")
        case "none":
            raise draft.unsupported("continue_final_message")
    return last_message


# References inside schemas.

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
# Keywords with data, and keywords with schemas by names that are no keywords.
_DATA = frozenset({"const", "default", "enum", "example", "examples"})
_BY_NAME = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)
_DIALECT = re.compile(
    r"https?://json-schema\.org/(schema|draft(-0[3-9]|/[0-9]{4}-[0-9]{2}|/next)/schema)#?"
    r"|https://spec\.openapis\.org/oas/3\.1/dialect/[a-z0-9-]{1,20}"
)
_USUAL_DIALECTS = tuple(
    f'"$schema":"{address}"'.encode()
    for address in (
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2020-12/schema",
    )
)
_MOST_NODES = 20_000
_MOST_ADDRESSES = 1000

_encode = msgspec.json.Encoder().encode


def check_references(fields: Mapping[str, Any]) -> None:
    """Raise :class:`InvalidRequest` if a request's schema has a reference that leads out of it."""
    walk = _SchemaWalk()
    for param, schema in _list_request_schemas(fields):
        if isinstance(schema, dict) and _may_reference_outside(_encode(schema)):
            try:
                walk.check(schema)
            except ValueError as failure:
                raise InvalidRequest(
                    f"`{param}` {failure}", code="unsupported_schema", param=param
                ) from failure


def _list_request_schemas(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for index, tool in enumerate(fields.get("tools") or ()):
        yield f"tools[{index}].function.parameters", tool["function"].get("parameters")
    shape = fields.get("response_format") or {}
    yield "response_format.json_schema.schema", (shape.get("json_schema") or {}).get("schema")
    yield "response_format.schema", shape.get("schema")
    yield "structured_outputs.json", (fields.get("structured_outputs") or {}).get("json")


def _may_reference_outside(schema_json: bytes) -> bool:
    references = schema_json.count(b'ef":')  # of `$ref`, `$dynamicRef` and `$recursiveRef`
    if references != schema_json.count(b'ef":"#') or b'"$id":' in schema_json:
        return True
    if references and b'"id":"' in schema_json:
        return True
    dialects = schema_json.count(b'"$schema":')
    return dialects != 0 and dialects != sum(map(schema_json.count, _USUAL_DIALECTS))


class _SchemaWalk:
    def __init__(self) -> None:
        self._checked_node_count = self._resolved_address_count = 0  # of all schemas of a request

    def check(self, root: dict[str, Any]) -> None:
        """Raise :class:`ValueError` for a reference out of the schema, or an unknown dialect."""
        self._root_schema = root
        self._schemas_by_address: dict[str, dict[str, Any]] = {"": root}
        self._unchecked_references: list[tuple[str, str]] = []
        self._visited_object_ids: set[int] = set()
        self._collect_references(root, "")
        outside = []
        while self._unchecked_references:
            base, reference = self._unchecked_references.pop()
            address, fragment = self._resolve_address_and_fragment(base, reference)
            document = self._schemas_by_address.get(address)
            if document is None:
                outside.append(address)
            elif fragment.startswith("/"):
                # What is data elsewhere is a schema where a reference names it.
                self._collect_references(_resolve_json_pointer(document, fragment), address)
        if any(address not in self._schemas_by_address for address in outside):
            raise ValueError(
                "has a reference that leads out of the schema, which no provider may fetch; put "
                'what it names into `$defs`, and write "#/$defs/NAME".'
            )

    def _count_and_check_schema_size(self, new_nodes: int = 0, new_addresses: int = 0) -> None:
        self._checked_node_count += new_nodes
        self._resolved_address_count += new_addresses
        if self._checked_node_count > _MOST_NODES or self._resolved_address_count > _MOST_ADDRESSES:
            raise ValueError("is too large for references to names; shorten it.")

    def _collect_references(self, schema_part: object, base_address: str) -> None:
        left: list[tuple[object, str, bool]] = [(schema_part, base_address, False)]
        while left:
            each, base_address, by_name = left.pop()
            if isinstance(each, list):
                left += [(one, base_address, False) for one in each if isinstance(one, dict | list)]
            if not isinstance(each, dict) or (not by_name and id(each) in self._visited_object_ids):
                continue
            self._count_and_check_schema_size(new_nodes=1)
            if not by_name:
                self._visited_object_ids.add(id(each))
                base_address = self._register_id_and_references(each, base_address)
            left += [
                (one, base_address, not by_name and name in _BY_NAME)
                for name, one in each.items()
                if isinstance(one, dict | list) and (by_name or name not in _DATA)
            ]

    def _register_id_and_references(self, schema: dict[str, Any], base_address: str) -> str:
        name, older = schema.get("$id"), schema.get("id")
        if isinstance(name, str):
            base_address, _ = self._resolve_address_and_fragment(base_address, name)
            self._schemas_by_address.setdefault(base_address, schema)
        elif isinstance(older, str) and not older.startswith("#"):
            base_address = self._resolve_legacy_id(schema, base_address, older)
        dialect = schema.get("$schema")
        if dialect is not None and not (
            isinstance(dialect, str) and _DIALECT.fullmatch(dialect) is not None
        ):
            raise ValueError(
                "names in `$schema` a dialect that no provider may fetch; leave it out."
            )
        for keyword in _REFERENCES:
            if keyword in schema:
                reference = schema[keyword]
                if not isinstance(reference, str):
                    raise ValueError(
                        f'has a `{keyword}` that is no text; it looks like "#/$defs/NAME".'
                    )
                self._unchecked_references.append((base_address, reference))
        return base_address

    def _resolve_legacy_id(self, schema: dict[str, Any], base_address: str, legacy_id: str) -> str:
        # Other schemas may have `id` as a note, so it names nothing but the whole schema.
        address, _ = self._resolve_address_and_fragment(base_address, legacy_id)
        if schema is self._root_schema:
            self._schemas_by_address.setdefault(address, schema)
        elif not _is_absolute_address(address):
            return base_address
        return address

    def _resolve_address_and_fragment(self, base_address: str, reference: str) -> tuple[str, str]:
        if reference.startswith("#"):
            return base_address, reference[1:]
        self._count_and_check_schema_size(new_addresses=1)
        try:
            address, fragment = urldefrag(urljoin(base_address, reference))
        except ValueError:  # it is no address
            return reference, ""
        return address, fragment


def _resolve_json_pointer(document: object, pointer: str) -> object:
    found = document
    for step in pointer.split("/")[1:]:
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(found, list):
            index = whole_number(key)
            found = found[index] if index is not None and index < len(found) else None
        elif isinstance(found, dict):
            found = found.get(key)
        else:
            return None
    return found


def _is_absolute_address(address: str) -> bool:
    try:
        parts = urlsplit(address)
    except ValueError:
        return True
    return bool(parts.scheme or parts.netloc)
