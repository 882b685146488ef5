"""Parse the body of a Responses request: translate it into fields of chat completions.

The reader of chat completions judges what it holds, so that repairs, limits, names of functions,
thinking and output formats are the same. Errors and reports name the fields of this API.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from msgspec import structs

from causerie.protocol.body import (
    ObjectReader,
    check_work,
    decode_marked,
    missing,
    unsupported,
)
from causerie.protocol.declaration import declared
from causerie.protocol.known_fields import KNOWN
from causerie.protocol.parameters import HINTS, PARAMETERS, ParsingRules, RouterParameters
from causerie.protocol.request import ChatRequest, NativeRequest, with_optional_images
from causerie.shapes.chat_completions.past import Changes
from causerie.shapes.chat_completions.reader import AT_ONCE, read_fields
from causerie.shapes.passing import PassingReply
from causerie.shapes.responses.body import InputTokens
from causerie.shapes.responses.echo import echo_of
from causerie.shapes.responses.encoder import ResponseReply
from causerie.shapes.responses.items import ItemReader, read_input
from causerie.shapes.responses.tools import ToolReader, read_choice
from causerie.shapes.sealed_reasoning import unseal
from causerie.shapes.shape import ParsedRequest, Places, Shape, renaming

ENCRYPTED = "reasoning.encrypted_content"
_LOGPROBS = "message.output_text.logprobs"
_MAX_TOOL_CALLS = 2**31 - 1
_MAX_INCLUDE = 64
_MOST_LOGPROBS = 20

_DECLARED = {
    **PARAMETERS,
    **HINTS,
    **{each.name: each for each in declared(RouterParameters)},
}
_TRANSLATED = frozenset({
    "input", "instructions", "tools", "tool_choice", "text", "reasoning", "include", "top_logprobs",
    "max_tool_calls", "store", "truncation", "background", "previous_response_id", "conversation",
    "prompt", "stream_options",
})  # fmt: skip
"""Fields that take another form in chat completions, or have none there."""
_RENAMED = {
    theirs: name
    for name, each in _DECLARED.items()
    if (theirs := each.facts.responses) and "." not in theirs and theirs not in _TRANSLATED
}
_SAME = frozenset(name for name, each in _DECLARED.items() if each.facts.responses == "")
_HINTS = frozenset({"reasoning_effort", "parallel_tool_calls"})
"""Parameters that agents set by the name of a model; one that lacks them does without.

Of several calls where one was asked for, all but the first are left out of the reply.
"""
_NEVER_REFUSED = frozenset(
    {"client_metadata", "context_management", "moderation", "prompt_cache_options",
     "prompt_cache_retention"}
)  # fmt: skip
"""Fields that agents always send; they are dropped and named even where others are refused."""
_REFUSED: Mapping[str, str] = {
    "previous_response_id": "Nothing is stored here; send the whole conversation in `input`.",
    "conversation": "Nothing is stored here; send the whole conversation in `input`.",
    "prompt": "No prompts are stored here; send its text in `instructions` or `input`.",
}
_NAMES: Mapping[str, str] = {
    **{
        name: each.facts.responses
        for name, each in _DECLARED.items()
        if each.facts.responses and each.facts.responses != name
    },
    "response_format.json_schema": "text.format",
    "reasoning": "reasoning",
    "max_tokens": "max_output_tokens",
}


def _parse(body: bytes, rules: ParsingRules, _: Mapping[str, str]) -> ParsedRequest:
    check_work(body, rules)
    document, mark = decode_marked(body)
    return _Translation(ObjectReader(document), rules).parsed(len(body) > AT_ONCE, mark)


def _parse_at_once(
    body: bytes, rules: ParsingRules, headers: Mapping[str, str]
) -> ParsedRequest | None:
    return _parse(body, rules, headers) if len(body) <= AT_ONCE else None


class _Translation:
    def __init__(self, body: ObjectReader, rules: ParsingRules) -> None:
        self._body = body
        self._rules = rules
        self._changes = Changes()
        self._tools = ToolReader(self._changes)
        self._items = ItemReader(self._tools, self._changes)
        self._fields: dict[str, Any] = {}

    def parsed(self, large: bool, mark: str) -> ParsedRequest:
        body, fields = self._body, self._fields
        self._refuse_state()
        self._copy_plain()
        self._translate_conversation()
        self._translate_text()
        self._translate_reasoning()
        encrypted = self._translate_include()
        most_calls = self._translate_max_tool_calls()
        choice = read_choice(body.get("tool_choice"), self._tools, self._changes)
        if choice is not None:
            fields["tool_choice"] = choice
        self._note_differences()
        places = Places(
            tuple(self._items.places),
            {**_NAMES, **self._tools.places, **self._items.names},
            frozenset(self._changes.reported()),
        )
        request = renaming(
            places,
            lambda: read_fields(ObjectReader(fields), self._rules, large=large, mark=mark),
        )
        request = self._with_own(request, halved=bool(mark))
        echo = echo_of(body, request)
        reply = ResponseReply(echo, self._tools.forms, encrypted, self._summarizes(), most_calls)
        return ParsedRequest(request, PassingReply(reply), places)

    def _refuse_state(self) -> None:
        for name, advice in _REFUSED.items():
            if self._body.has(name):
                raise unsupported(name, advice)
        if self._body.boolean("background"):
            raise unsupported("background", "Replies are sent while they are made; send false.")

    def _copy_plain(self) -> None:
        for name, value in self._body.values.items():
            if name in _TRANSLATED:
                continue
            if name in _SAME:
                self._fields[name] = value
            elif name in _RENAMED:
                self._fields[_RENAMED[name]] = value
            elif name in KNOWN.fields or (
                self._rules.reject_unknown and name in _NEVER_REFUSED
            ):  # of chat completions, and of no meaning here
                self._drop(name, value)
            else:
                self._fields[name] = value

    def _drop(self, name: str, value: object) -> None:
        if value is None:
            return
        if self._rules.reject_unknown and name not in _NEVER_REFUSED:
            raise unsupported(name, "It is no field of this API; leave it out.")
        self._changes.note(f"{quote(name[:64], safe='.')} dropped")

    def _translate_conversation(self) -> None:
        body = self._body
        self._tools.read(body.get("tools"), "tools")
        if not body.has("input"):
            raise missing("input", "a string or an array of items")
        instructions = body.string("instructions")
        if instructions:
            self._items.add({"role": "system", "content": instructions}, "instructions")
        read_input(body.get("input"), self._items)
        self._fields["messages"] = self._items.messages
        if self._tools.functions:
            self._fields["tools"] = self._tools.functions

    def _translate_text(self) -> None:
        text = self._body.child("text")
        if text is None:
            return
        self._drop_others(text, ("format", "verbosity"))
        if text.has("verbosity"):
            self._fields["verbosity"] = text.get("verbosity")
        form = text.child("format", 'an object like {"type": "json_schema", "name": NAME}')
        if form is None:
            return
        made: dict[str, Any] = {"type": form.get("type")}
        if form.get("type") == "json_schema":
            names = ("name", "schema", "description", "strict")
            made["json_schema"] = {name: form.get(name) for name in names if form.has(name)}
        self._fields["response_format"] = made

    def _translate_reasoning(self) -> None:
        reasoning = self._body.child("reasoning")
        if reasoning is None:
            return
        if reasoning.has("effort"):
            self._fields["reasoning_effort"] = reasoning.get("effort")
        own = ("max_tokens", "exclude", "enabled") if self._rules.reasoning_object else ()
        more = {name: reasoning.get(name) for name in own if reasoning.has(name)}
        if more:
            self._fields["reasoning"] = more
        self._drop_others(reasoning, ("effort", "summary", "generate_summary", *own))

    def _summarizes(self) -> bool:
        reasoning = self._body.child("reasoning") or ObjectReader({})
        wanted = reasoning.string("summary") or reasoning.string("generate_summary")
        return wanted is not None and wanted != "none"

    def _drop_others(self, fields: ObjectReader, known: tuple[str, ...]) -> None:
        for name in fields.values:
            if fields.has(name) and name not in known:
                self._changes.note(f"{fields.param(quote(name[:64], safe=''))} dropped")

    def _translate_include(self) -> bool:
        body, fields = self._body, self._fields
        included = body.strings("include", most=_MAX_INCLUDE)
        for at, name in enumerate(included):
            if name not in (ENCRYPTED, _LOGPROBS):
                self._changes.note(f"include[{at}] dropped")
        top = body.integer("top_logprobs", 0, _MOST_LOGPROBS)
        if top or _LOGPROBS in included:
            fields["logprobs"], fields["top_logprobs"] = True, top
        return ENCRYPTED in included

    def _translate_max_tool_calls(self) -> int | None:
        most = self._body.integer("max_tool_calls", 1, _MAX_TOOL_CALLS)
        if most == 1:
            self._fields["parallel_tool_calls"] = False
        return 1 if self._fields.get("parallel_tool_calls") is False else most

    def _note_differences(self) -> None:
        body, note = self._body, self._changes.note
        if body.boolean("store"):
            note("store true->false")
        if body.word("truncation", ("auto", "disabled")) == "auto":
            note("truncation auto->disabled")

    def _with_own(self, request: ChatRequest, *, halved: bool) -> ChatRequest:
        grammars, names = self._tools.grammars, request.function_names
        tools = tuple(
            structs.replace(tool, grammar=grammar)
            if (grammar := grammars.get(names.get(tool.name, tool.name)))
            else tool
            for tool in request.tools
        )
        changes = (*self._changes.reported(), *request.changes)
        messages, shown = request.messages, self._items.returned_images
        if shown:
            messages = with_optional_images(messages, shown)
        native = None if halved else _native(self._body.values)
        return structs.replace(
            request,
            messages=messages,
            changes=changes,
            tools=tools,
            native=native,
            hints=_HINTS,
            lenient_tools=True,
        )


def _native(body: Mapping[str, Any]) -> NativeRequest:
    # No server of others reads reasoning that was sealed here.
    items = body.get("input")
    if not isinstance(items, list) or not any(map(_is_sealed_here, items)):
        return NativeRequest("responses", body)
    changes = Changes()
    rest = []
    for at, item in enumerate(items):
        if _is_sealed_here(item):
            changes.note(f"input[{at}] dropped")
        else:
            rest.append(item)
    told = changes.reported()
    return NativeRequest("responses", body, unsealed={**body, "input": rest}, left_out=told)


def _is_sealed_here(item: object) -> bool:
    return isinstance(item, dict) and unseal(item.get("encrypted_content")) is not None


RESPONSES = Shape(
    "responses",
    "/responses",
    "resp_",
    _parse,
    _parse_at_once,
    counting="/responses/input_tokens",
    count_body=InputTokens,
)
