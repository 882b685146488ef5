"""The conversation as a server reads it; messages that need no change are passed on uncopied."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from causerie.protocol.events import Partial
from causerie.protocol.reasoning import are_plain, blocks_of, text_of, unsealed, with_foreign
from causerie.protocol.request import Message
from causerie.providers.request_body import RequestDraft, check_images

_REASONING = ("reasoning_content", "reasoning")
_DETAILS = "reasoning_details"
_EXTRA = "extra_content"
_ASSISTANTS = frozenset({"tool_calls", "refusal", _DETAILS, *_REASONING})
_BLANK = " "  # of an answer that may not be empty

Entry = Mapping[str, Any]


def write_messages(draft: RequestDraft, partial: Partial | None) -> None:
    """Write the messages, and with ``partial`` the reply so far, to be continued."""
    if draft.request.characters is None:
        check_images(draft.request, draft.dialect)
    sent: Any = draft.document.get("messages") or ()
    history = draft.dialect.history
    messages: Any = sent
    if not all(map(_needs_no_change, sent)):
        messages = [_adapted_message(draft, index, message) for index, message in enumerate(sent)]
        draft.changes[:] = dict.fromkeys(draft.changes)
    if not history.lenient:
        messages = _in_strict_order(draft, messages)
    if partial is not None and (partial.text or partial.reasoning):
        messages = _with_partial(draft, list(messages), partial)
    elif draft.request.continue_final_message:
        messages = [*messages[:-1], _to_be_continued(draft, dict(messages[-1]))]
    draft.fields["messages"] = messages


def _needs_no_change(message: Entry) -> bool:
    role = message.get("role")
    if role == "assistant":
        return (
            _DETAILS not in message
            and "tool_calls" not in message
            and not any(message.get(name) for name in _REASONING)
        )
    return role != "developer" and role != "tool" and _ASSISTANTS.isdisjoint(message)


def _adapted_message(draft: RequestDraft, index: int, message: Entry) -> Entry:
    history = draft.dialect.history
    role = message.get("role")
    if role == "assistant":
        message = _adapted_assistant(draft, index, message)
    elif not _ASSISTANTS.isdisjoint(message):
        for name in sorted(_ASSISTANTS & message.keys()):
            if message[name]:
                draft.dropped(f"messages.{name}")
        message = _without(message, _ASSISTANTS)
    if role == "developer" and not history.developer:
        message = {**message, "role": "system"}
        draft.moved("messages.role.developer", "system")
    elif role == "tool" and history.call_ids is not None:
        message = {**message, "tool_call_id": history.call_ids.fitting(message["tool_call_id"])}
    if not history.names and role != "tool" and message.get("name") is not None:
        message = _without(message, {"name"})
        draft.dropped("messages.name")
    return message


def _without(entry: Entry, names: Collection[str]) -> Entry:
    return {name: value for name, value in entry.items() if name not in names}


def _adapted_assistant(draft: RequestDraft, index: int, message: Entry) -> Entry:
    extras: Mapping[str, Entry] = {}
    if _DETAILS in message:
        blocks, extras = unsealed(message[_DETAILS])
        message = {**message, _DETAILS: blocks} if extras else message
    message = _with_reasoning(draft, message)
    calls: Sequence[Entry] = message.get("tool_calls") or ()
    if calls:
        calls = [_adapted_call(draft, call, extras) for call in calls]
        return {**message, "tool_calls": _with_ids(draft, index, calls)}
    if "tool_calls" in message:  # none, which some servers want said by silence alone
        message = _without(message, {"tool_calls"})
    return message


def _with_reasoning(draft: RequestDraft, message: Entry) -> Entry:
    history = draft.dialect.history
    if _DETAILS in message:
        message = _with_details(draft, message)
    given = [name for name in _REASONING if message.get(name) is not None]
    reasoning = message[given[0]] if given else None
    may_think = draft.request.thinking.enabled is not False
    if not reasoning and history.placeholder and message.get("tool_calls") and may_think:
        draft.changes.append("messages.reasoning_content added")
        return {**message, "reasoning_content": history.placeholder}
    if reasoning is None or (len(given) == 1 and given == list(history.reasoning)):
        return message
    bare = _without(message, _REASONING)
    if history.parts and reasoning:
        draft.moved(f"messages.{given[0]}", "messages.content")
        return {**bare, "content": _as_parts(reasoning, message.get("content"))}
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


def _with_details(draft: RequestDraft, message: Entry) -> Entry:
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


def _as_parts(reasoning: str, content: object) -> list[Any]:
    said: list[Any] = list(content) if isinstance(content, list) else []
    if isinstance(content, str) and content:
        said = [{"type": "text", "text": content}]
    return [{"type": "thinking", "thinking": [{"type": "text", "text": reasoning}]}, *said]


def _adapted_call(draft: RequestDraft, call: Entry, extras: Mapping[str, Entry]) -> Entry:
    extra = call.get(_EXTRA) or extras.get(str(call.get("id")))
    if extra and draft.dialect.history.extras:
        call = {**call, _EXTRA: extra}
    elif extra or _EXTRA in call:
        call = _without(call, {_EXTRA})
        draft.dropped(f"messages.tool_calls.{_EXTRA}")
    return call


def _with_ids(draft: RequestDraft, index: int, calls: Sequence[Entry]) -> Sequence[Entry]:
    ids = draft.dialect.history.call_ids
    if ids is None:
        return calls
    made = [{**call, "id": ids.fitting(call["id"])} for call in calls]
    for at, (call, old) in enumerate(zip(made, calls, strict=True)):
        if call["id"] != old["id"]:
            draft.changes.append(f"messages[{index}].tool_calls[{at}].id rewritten")
    return made


def in_strict_order(messages: Sequence[Message]) -> bool:
    """Return true if servers that are not lenient take these messages, which have no calls."""
    said = all(message.content for message in messages if message.role == "assistant")
    return said and messages[-1].role != "assistant"


def _in_strict_order(draft: RequestDraft, messages: Sequence[Entry]) -> list[Entry]:
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


def _with_partial(draft: RequestDraft, messages: list[Any], partial: Partial) -> list[Any]:
    last: dict[str, Any] = {"role": "assistant", "content": ""}
    if draft.request.continue_final_message:
        last = dict(messages.pop())
    content = last.get("content") or ""
    if isinstance(content, list):
        content = "".join(part.get("text", "") for part in content)
    last["content"] = content + partial.text
    if partial.reasoning:
        last.update(dict.fromkeys(draft.dialect.history.reasoning, partial.reasoning))
    return [*messages, _to_be_continued(draft, last)]


def _to_be_continued(draft: RequestDraft, last: dict[str, Any]) -> dict[str, Any]:
    match draft.dialect.continuing.way:
        case "flag" | "as_sent":
            draft.fields["continue_final_message"] = True
            draft.fields["add_generation_prompt"] = False
        case "prefix":
            last["prefix"] = True
            if draft.request.continue_final_message:
                draft.moved("continue_final_message", "messages.prefix")
        case "none":
            raise draft.unsupported("continue_final_message")
    return last
