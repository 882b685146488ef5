"""Parse requests of the Messages API: their fields and turns become those of chat completions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from msgspec import Meta, Struct, field, structs

from causerie.errors import NotFound
from causerie.http.event_loop import LARGE
from causerie.protocol import parameters
from causerie.protocol.body import (
    ObjectReader,
    check_work,
    missing,
    shown,
    unsupported,
    wrong_type,
    wrong_value,
)
from causerie.protocol.body_types import MAX_TOOLS
from causerie.protocol.bounded_json import SMALL
from causerie.protocol.known_fields import KNOWN, OPEN, Known, refusal
from causerie.protocol.request import FastFields, FastMessage, NativeRequest, Unread
from causerie.shapes.chat_completions.past import Changes
from causerie.shapes.chat_completions.reader import (
    ROUTER_FIELDS,
    plain_request,
    without_router_fields,
)
from causerie.shapes.messages.encoder import PING, MessagesReply, error_body
from causerie.shapes.sealed_reasoning import has_own_signature, reasoning_of
from causerie.shapes.shape import ParsedRequest, PassingReply, Places, Shape
from causerie.shapes.translation import Translation, decoded, is_image, without

_ROLES = ("user", "assistant", "system")
_KINDS = "text, image, document (of text), tool_use, tool_result, thinking and redacted_thinking"
_NOT_PASSED: Mapping[str, frozenset[str]] = {
    "text": frozenset({"type", "text"}),
    "image": frozenset({"type", "source"}),
    "document": frozenset({"type", "source", "title", "context"}),
    "tool_use": frozenset({"type", "id", "name", "input"}),
    "tool_result": frozenset({"type", "tool_use_id", "content"}),
}
"""Fields of a block that take another form; all others are passed on under their names."""

Entry = dict[str, Any]
_NAMES = {name: each.facts.messages for name, each in parameters.PARAMETERS.items()}
_TRANSLATED = frozenset({
    "messages", "system", "tools", "tool_choice", "thinking", "output_config",
    "output_format", "stop_sequences", "metadata", "thread",
})  # fmt: skip
_SAME = {name for name, other in _NAMES.items() if other == ""} | parameters.HINTS.keys()
_SAME -= _TRANSLATED | {"user"}
_DROPPED = frozenset({
    "billing_policy", "cache_control", "compaction", "container", "context_management",
    "diagnostics", "fallback_credit_token", "fallbacks", "inference_geo", "mcp_servers",
    "speed", "user_profile_id", "workspace_id", "betas",
})  # fmt: skip
"""Fields of that API that nobody but its makers knows: never refused, since agents send them."""
_FIELDS = Known(dict.fromkeys(_SAME | _TRANSLATED | _DROPPED, OPEN))
_FIELDS_OF_ROUTERS = Known({**_FIELDS.fields, **dict.fromkeys(ROUTER_FIELDS, OPEN)})
_PLACES: Mapping[str, str] = {
    **{name: other for name, other in _NAMES.items() if other},
    "user": "metadata.user_id",
    "reasoning.effort": "output_config.effort",
    "reasoning.enabled": "thinking.type",
    "reasoning.max_tokens": "thinking.budget_tokens",
    "response_format.json_schema": "output_config.format",
    "tool_choice.function": "tool_choice",
}
_PLAIN_PLACES = Places((), _PLACES)
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_OF_A_TOOL = frozenset({"type", "name", "description", "input_schema", "strict", "defer_loading"})
_HONOURED_BETAS = (
    *("prompt-caching-", "token-counting-", "structured-outputs-", "message-threads-"),
    *("interleaved-thinking-", "mid-conversation-system-", "extended-cache-ttl-"),
)


class MessagesTranslation(Translation, eq=False):
    """Translates turns of the Messages API to messages; ``called``: functions that turns name."""

    called: set[str] = field(default_factory=set)
    omits_thinking: bool = False
    decided: bool = True  # the request itself says whether the model thinks

    def note(self, change: str) -> None:
        self.changes.note(change)

    def add_system(self, system: object) -> None:
        if system in (None, "", []):
            return
        if not isinstance(system, str | list):
            raise wrong_type("system", "a string or an array of text blocks", system)
        content = system
        if isinstance(system, list):
            content = self._translate_parts(system, "system", new=True, only_text=True)
        self.names["messages[0].content"] = "system"
        self._add_message_with_sources({"role": "system", "content": content}, "system")

    def add_turns(self, turns: object) -> None:
        """Add all turns; drop unsupported blocks before the last user turn, refuse later ones."""
        if not isinstance(turns, list):
            if turns is None:
                raise missing("messages", "an array of at least one message")
            raise wrong_type("messages", "an array of messages", turns)
        roles = [turn.get("role") if isinstance(turn, dict) else None for turn in turns]
        last = max((at for at, role in enumerate(roles) if role == "user"), default=0)
        for index, turn in enumerate(turns):
            self._add_turn(turn, f"messages[{index}]", new=index >= last)

    def _add_turn(self, turn: object, path: str, *, new: bool) -> None:
        if not isinstance(turn, dict):
            raise wrong_type(path, "an object with `role` and `content`", turn)
        role = turn.get("role")
        if role not in _ROLES:
            if role is None:
                raise missing(f"{path}.role", f"one of {', '.join(_ROLES)}")
            raise wrong_value(
                f"{path}.role", f"must be one of {', '.join(_ROLES)}, not {shown(role)}."
            )
        content = turn.get("content")
        others = {name: value for name, value in turn.items() if name not in ("role", "content")}
        if not isinstance(content, list):
            self._add_message_with_sources({"role": role, "content": content, **others}, path)
        elif role == "assistant":
            self._add_assistant_turn(content, path, others)
        elif role == "system":
            parts = self._translate_parts(content, f"{path}.content", new=new, only_text=True)
            self._add_message_with_sources({"role": role, "content": parts, **others}, path)
        else:
            self._add_user_turn(content, path, others, new=new)

    def _add_message_with_sources(self, message: Entry, path: str) -> None:
        index = len(self.messages)
        if isinstance(message.get("content"), list):
            sources = message["content"]
            parts = message["content"] = [part for part, _ in sources]
            for at, (part, source) in enumerate(sources):
                here = f"messages[{index}].content[{at}]"
                self.names[here] = source
                if part["type"] == "image_url":
                    self.names[f"{here}.image_url"] = f"{source}.source"
                    self.names[f"{here}.image_url.url"] = f"{source}.source"
            first = parts[0] if len(parts) == 1 else {}
            if first.keys() == {"type", "text"} and isinstance(first["text"], str):
                message["content"] = first["text"]
        self.messages.append(message)
        self.places.append(path)

    def _add_user_turn(self, blocks: list[Any], path: str, others: Entry, *, new: bool) -> None:
        # Results come first, as their calls were just before; images in them follow, since a
        # message with a result is text alone.
        said: list[tuple[Entry, str]] = []
        shown_images: list[tuple[Entry, str]] = []
        results = 0
        for at, block in enumerate(blocks):
            where = f"{path}.content[{at}]"
            if isinstance(block, dict) and block.get("type") == "tool_result":
                results += 1
                shown_images += self._add_result_and_pick_images(block, where)
                if said:
                    self.note(f"{where} moved")
            else:
                said += self._translate_block_to_parts(block, where, new=new)
        parts = shown_images + said
        if parts or not results:
            self._add_message_with_sources({"role": "user", "content": parts, **others}, path)

    def _add_result_and_pick_images(self, block: Entry, path: str) -> list[tuple[Entry, str]]:
        content = block.get("content")
        images: list[tuple[Entry, str]] = []
        if isinstance(content, list):
            parts = self._translate_parts(content, f"{path}.content", new=False)
            content = [each for each in parts if each[0]["type"] != "image_url"]
            for image, source in parts:
                if image["type"] != "image_url":
                    continue
                if is_image({name: image[name] for name in ("type", "image_url")}):
                    images.append((image, source))
                    self.returned_images.add(image["image_url"]["url"])
                    self.note(f"{source} moved")
                else:
                    self.note(f"{source} dropped")
        # A result without content says that it worked.
        message = {
            "role": "tool",
            "tool_call_id": block.get("tool_use_id"),
            "content": content or "",
            **_unknown_members(block),
        }
        if message.get("is_error") is False:
            del message["is_error"]
        self.names[f"messages[{len(self.messages)}].tool_call_id"] = f"{path}.tool_use_id"
        self._add_message_with_sources(message, path)
        return images

    def _add_assistant_turn(self, blocks: list[Any], path: str, other_fields: Entry) -> None:
        index = len(self.messages)
        said: list[tuple[Entry, str]] = []
        calls: list[Entry] = []
        thoughts: list[Entry] = []
        for at, block in enumerate(blocks):
            where = f"{path}.content[{at}]"
            kind = block.get("type") if isinstance(block, dict) else None
            if kind in ("thinking", "redacted_thinking"):
                found = reasoning_of(block, len(thoughts) + len(said) + len(calls))
                if not found:
                    self.note(f"{where} dropped")
                thoughts += found
                if found and found[-1].keys() != {"text"}:
                    self.names.setdefault(f"messages[{index}].reasoning_details", where)
            elif kind == "tool_use":
                here = f"messages[{index}].tool_calls[{len(calls)}]"
                self.names[here] = self.names[f"{here}.function"] = where
                self.names[f"{here}.function.arguments"] = f"{where}.input"
                calls.append(_translate_call(block))
                self.called.add(str(block.get("name")))
            else:
                said += self._translate_block_to_parts(block, where, new=False)
        message: Entry = {"role": "assistant", "content": said or None, **other_fields}
        if said == [] and not calls:
            message["content"] = ""
        if calls:
            message["tool_calls"] = calls
        if plain := [block["text"] for block in thoughts if block.keys() == {"text"}]:
            message["reasoning_content"] = "".join(plain)
        if signed := [block for block in thoughts if block.keys() != {"text"}]:
            message["reasoning_details"] = signed
        self._add_message_with_sources(message, path)

    def _translate_parts(
        self, blocks: Sequence[Any], path: str, *, new: bool, only_text: bool = False
    ) -> list[tuple[Entry, str]]:
        parts: list[tuple[Entry, str]] = []
        for at, block in enumerate(blocks):
            where = f"{path}[{at}]"
            made = self._translate_block_to_parts(block, where, new=new)
            if only_text and any(part.get("type") == "image_url" for part, _ in made):
                raise unsupported(f"{where}.type", "The system prompt is text.")
            parts += made
        return parts

    def _translate_block_to_parts(
        self, block: object, path: str, *, new: bool
    ) -> Iterable[tuple[Entry, str]]:
        if not isinstance(block, dict):
            if new:
                raise wrong_type(path, "an object with a `type`", block)
            self.note(f"{path} dropped")
            return ()
        match block.get("type"):
            case "text":
                return (
                    ({"type": "text", "text": block.get("text"), **_unknown_members(block)}, path),
                )
            case "image" if (url := _read_image_url(block.get("source"))) is not None:
                self.unread.note_addresses(block, path)
                image = {"type": "image_url", "image_url": {"url": url}, **_unknown_members(block)}
                return ((image, path),)
            case "document":
                self.unread.note_addresses(block, path)
                parts = list(_translate_document(block, self))
                if parts:
                    return [(part, path) for part in parts]
                what = f"{path}.source"
                advice = "Documents are texts here: send a `source` of type text or content."
            case "tool_reference" if not new:
                self.called.add(str(block.get("tool_name")))
                words = f"The tool {block.get('tool_name')} can be called now."
                return (({"type": "text", "text": words}, path),)
            case "image":
                what = f"{path}.source"
                advice = "Send the image itself (base64) or its `https` address (url)."
            case _:
                what, advice = f"{path}.type", f"Blocks are {_KINDS}."
        self.unread.add(block, path)
        if new:
            self.refuse(unsupported(what, advice))
        else:
            self.note(f"{path} dropped")
        return ()


def _unknown_members(block: Entry) -> Entry:
    known = _NOT_PASSED[block["type"]]
    return {name: value for name, value in block.items() if name not in known}


def _translate_call(block: Entry) -> Entry:
    given = block.get("input")
    arguments = given if isinstance(given, str) else msgspec.json.encode(given or {}).decode()
    function = {"name": block.get("name"), "arguments": arguments}
    return {
        "id": block.get("id"),
        "type": "function",
        "function": function,
        **_unknown_members(block),
    }


def _read_image_url(source: object) -> str | None:
    if not isinstance(source, dict):
        return None
    url = source.get("url")
    if source.get("type") == "url" and isinstance(url, str):
        return url
    media, data = source.get("media_type"), source.get("data")
    if source.get("type") == "base64" and isinstance(media, str) and isinstance(data, str):
        return f"data:{media};base64,{data}"
    return None


def _translate_document(block: Entry, translation: MessagesTranslation) -> Iterable[Entry]:
    source = block.get("source")
    content: object = None
    if isinstance(source, dict):
        content = source.get("data" if source.get("type") == "text" else "content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list) or not content:
        return
    head = ""
    for name in ("title", "context"):
        words = block.get(name)
        if isinstance(words, str):
            head += f"{name}: {words}\n" if words else ""
        elif words is not None:
            translation.note(f"the {name} of a document dropped")
    yield {"type": "text", "text": f"<document>\n{head}"}
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text":
            yield {"type": "text", "text": part.get("text")}
        elif kind == "image" and (url := _read_image_url(part.get("source"))) is not None:
            yield {"type": "image_url", "image_url": {"url": url}}
        else:
            translation.note("a part of a document dropped")
    yield {"type": "text", "text": "\n</document>", **_unknown_members(block)}


class _PlainBody(Unread, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    model: parameters.ModelId
    messages: Annotated[tuple[FastMessage, ...], Meta(min_length=1)]
    max_tokens: parameters.Count
    system: str | None = None
    stream: bool | None = None
    temperature: parameters.Temperature | None = None
    top_p: parameters.TopP | None = None


_decode_plain = msgspec.json.Decoder(_PlainBody).decode
_PLAIN_REPLY = PassingReply(MessagesReply())


def _read_fast_path(
    body: bytes, rules: parameters.ParsingRules, headers: Mapping[str, str]
) -> ParsedRequest | None:
    # Turns of plain text, in one native pass; whatever is wrong is reported by the other reader.
    try:
        plain = _decode_plain(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    messages, places = plain.messages, _PLAIN_PLACES
    if messages[-1].role == "assistant" or "anthropic-beta" in headers:
        return None
    if plain.system:
        turns = (f"messages[{index}]" for index in range(len(messages)))
        messages = (FastMessage("system", plain.system), *messages)
        places = Places(("system", *turns), {**_PLACES, "messages[0].content": "system"})
    request = plain_request(
        FastFields(
            plain.model,
            messages,
            plain.stream,
            max_tokens=plain.max_tokens,
            temperature=plain.temperature,
            top_p=plain.top_p,
        ),
        rules,
        native=NativeRequest("messages", plain),
    )
    return None if request is None else ParsedRequest(request, _PLAIN_REPLY, places)


def parse(body: bytes, rules: parameters.ParsingRules, headers: Mapping[str, str]) -> ParsedRequest:
    if (size := len(body)) > SMALL:  # else reading all of it does no harm
        check_work(body, rules)
    if size <= LARGE and (plain := _read_fast_path(body, rules, headers)) is not None:
        return plain
    document, mark = decoded(body, rules)
    made = _translate_body(document, rules, headers)
    lenient = structs.replace(rules, reasoning_object=True, reject_unknown=False)
    request, places = made.read(lenient, _PLACES, mark, size)
    thinking = request.thinking
    if not made.decided:
        adaptive = thinking.enabled is True and "thinking" in document.values
        thinking = structs.replace(thinking, enabled=None, adaptive=adaptive, usual_effort=None)
    native = None if mark else _build_native(without_router_fields(document.values, rules), headers)
    request = structs.replace(
        request,
        thinking=thinking,
        hints=frozenset() if made.decided else frozenset({"reasoning"}),
        native=native,
    )
    reply = MessagesReply(made.omits_thinking, request.stop)
    return ParsedRequest(request, PassingReply(reply), places)


def _build_native(body: Mapping[str, Any], headers: Mapping[str, str]) -> NativeRequest:
    # No server of others takes thinking that was signed here, nor a turn of nothing else.
    betas = {name: value for name, value in headers.items() if name == "anthropic-beta"}
    changes, turns = Changes(), list(body["messages"])
    for at, turn in enumerate(turns):
        content = turn.get("content")
        if isinstance(content, list) and any(map(has_own_signature, content)):
            kept = without(content, has_own_signature, f"messages[{at}].content", changes)
            turns[at] = {**turn, "content": kept or [{"type": "text", "text": "…"}]}
    told = changes.reported()
    unsealed = {**body, "messages": turns} if told else None
    return NativeRequest("messages", body, betas, unsealed, told)


def _translate_body(
    body: ObjectReader, rules: parameters.ParsingRules, headers: Mapping[str, str]
) -> MessagesTranslation:
    known = _FIELDS_OF_ROUTERS if rules.router else _FIELDS
    if rules.reject_unknown and (refused := refusal(body.values, known)) is not None:
        raise refused
    made = MessagesTranslation(body)
    for name, value in body.values.items():
        if name in _SAME or (rules.router and name in ROUTER_FIELDS):
            made.values[name] = value
        elif name in KNOWN.fields and name not in _TRANSLATED:
            made.note(f"{name} dropped")  # which means something in chat completions
        elif name not in _TRANSLATED:
            made.values[name] = value
    _refuse_continued_thread(body)
    if not body.has("max_tokens") and not rules.counting:
        raise missing("max_tokens", "the most tokens of the reply")
    made.add_system(body.get("system"))
    made.add_turns(body.get("messages"))
    last: Any = made.messages[-1] if made.messages else {}
    prefill = last.get("role") == "assistant" and last.get("content")
    if prefill and not last.get("tool_calls") and not body.has("continue_final_message"):
        made.values["continue_final_message"] = True
    _write_tools(made)
    _write_thinking(made)
    _write_other_fields(made)
    betas = headers.get("anthropic-beta", "").split(",")[:16]
    for beta in filter(None, (each.strip()[:64] for each in betas)):
        if not beta.startswith(_HONOURED_BETAS):
            made.note(f"anthropic-beta {beta} dropped")
    return made


def _refuse_continued_thread(body: ObjectReader) -> None:
    thread = body.child("thread", 'an object like {"type": "create"}')
    kind = None if thread is None else thread.word("type", ("create", "continue"))
    if thread is not None and kind is None:
        raise missing("thread.type", "create or continue")
    if kind != "continue":
        return
    raise NotFound(
        "Conversations are not kept here, so `thread` cannot be continued; send the whole "
        'conversation with `thread: {"type": "create"}`.',
        code="thread_not_found",
        param="thread.previous_message_id",
    )


def _write_tools(translation: MessagesTranslation) -> None:
    body, called = translation.body, translation.called
    choice = body.child("tool_choice", 'an object like {"type": "auto"}')
    demanded = choice.string("name") if choice is not None else None
    tools: list[dict[str, object]] = []
    foreign: set[str] = set()
    for tool in body.objects("tools", most=2 * MAX_TOOLS):
        kind, name = tool.string("type"), tool.string("name")
        if kind not in (None, "custom"):
            translation.note(f"{tool.path} ({quote(kind[:64])}) dropped")
            foreign.add(name or "")
        elif not tool.boolean("defer_loading") or name in called or name == demanded:
            here = f"tools[{len(tools)}]"
            translation.names[here] = translation.names[f"{here}.function"] = tool.path
            translation.names[f"{here}.function.parameters"] = f"{tool.path}.input_schema"
            tools.append(_translate_tool(tool))
    if tools:
        translation.values["tools"] = tools
    if choice is not None:
        _write_tool_choice(translation, choice, foreign)


def _translate_tool(tool: ObjectReader) -> dict[str, object]:
    name = tool.required_string("name")
    schema = tool.required_object("input_schema", "a JSON Schema of type object")
    function: dict[str, object] = {"name": name, "parameters": schema.values}
    for one in ("description", "strict"):
        if tool.has(one):
            function[one] = tool.get(one)
    others = {name: value for name, value in tool.values.items() if name not in _OF_A_TOOL}
    return {"type": "function", "function": function, **others}


def _write_tool_choice(
    translation: MessagesTranslation, choice: ObjectReader, foreign_tools: set[str]
) -> None:
    kind = choice.word("type", (*_CHOICES, "tool"))
    if kind is None:
        raise missing("tool_choice.type", "auto, any, tool or none")
    has_tools, one_call = "tools" in translation.values, choice.boolean("disable_parallel_tool_use")
    if kind == "tool":
        name = choice.required_string("name")
        if name in foreign_tools:
            advice = f"{shown(name)} is a tool that is run elsewhere, not here."
            translation.refuse(unsupported("tool_choice.name", advice))
        else:
            translation.values["tool_choice"] = {"type": "function", "function": {"name": name}}
    elif kind == "any" and not has_tools and foreign_tools:
        advice = "None of these tools is run here; define one of your own."
        translation.refuse(unsupported("tools", advice))
    elif has_tools or kind == "any":
        translation.values["tool_choice"] = _CHOICES[kind]
    if has_tools and one_call:
        translation.values["parallel_tool_calls"] = False


def _write_thinking(translation: MessagesTranslation) -> None:
    body = translation.body
    output = body.child("output_config") or ObjectReader({})
    effort = output.get("effort")
    if effort is not None and effort not in parameters.EFFORTS:
        translation.note("output_config.effort dropped")
        effort = None
    by_effort = {} if effort is None else {"effort": effort}
    thinking = body.child("thinking", 'an object like {"type": "adaptive"}')
    if thinking is None:
        if by_effort:
            translation.values["reasoning"], translation.decided = by_effort, False
        return
    kind = thinking.word("type", ("enabled", "adaptive", "between_tools", "disabled"))
    translation.omits_thinking = thinking.string("display") == "omitted"
    if kind is None:
        raise missing("thinking.type", "enabled, adaptive or disabled")
    if kind in ("adaptive", "between_tools"):
        translation.values["reasoning"], translation.decided = by_effort or {"enabled": True}, False
        return
    translation.values["reasoning"] = {"enabled": False}
    if kind == "enabled":
        budget = thinking.integer("budget_tokens", 1, 2**31 - 1)
        if budget is None:
            raise missing("thinking.budget_tokens", "the most tokens of thinking")
        translation.values["reasoning"] = {"max_tokens": budget}
    if by_effort:
        translation.note("output_config.effort dropped")


def _write_other_fields(translation: MessagesTranslation) -> None:
    body, values = translation.body, translation.values
    if body.has("stop_sequences"):
        values["stop"] = body.array("stop_sequences", most=1024)
    output = body.child("output_config") or ObjectReader({})
    for name in output.values.keys() - {"effort", "format"}:
        translation.note(f"output_config.{quote(name[:64], safe='')} dropped")
    format = output.child("format") or body.child("output_format")
    if format is not None:
        if format.string("type") != "json_schema":
            raise wrong_value(format.param("type"), "must be json_schema.")
        schema = format.required_object("schema", "a JSON Schema")
        values["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "response", "schema": schema.values},
        }
    metadata = body.get("metadata")
    if isinstance(metadata, dict):
        for name, value in metadata.items():
            if name == "user_id" and isinstance(value, str):
                values["user"] = value
            elif value is not None:
                translation.note(f"metadata.{quote(name[:64], safe='')} dropped")
    elif metadata is not None:
        translation.note("metadata dropped")


class TokenCount(Struct, frozen=True):
    """Answer of ``count_tokens``: the number of tokens of a prompt."""

    input_tokens: int


MESSAGES = Shape(
    "messages",
    "/messages",
    "msg_",
    parse,
    error=lambda failure, request_id: error_body(failure.error(), request_id),
    error_status=lambda one: 529 if one.type == "overloaded_error" else one.status,
    ping=PING,
    counting="/messages/count_tokens",
    count_body=TokenCount,
    id_header="request-id",
)
