"""Parse the body of a Responses request: translate it into fields of chat completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import quote

import msgspec
from msgspec import Meta, Struct, structs

from causerie.http.event_loop import LARGE
from causerie.protocol import parameters
from causerie.protocol.body import ObjectReader, check_work, missing, unsupported
from causerie.protocol.bounded_json import SMALL
from causerie.protocol.declaration import declared
from causerie.protocol.known_fields import KNOWN
from causerie.protocol.request import ChatRequest, FastFields, FastMessage, NativeRequest
from causerie.shapes.chat_completions.past import Changes
from causerie.shapes.chat_completions.reader import plain_request
from causerie.shapes.responses.encoder import InputTokens, ResponseReply
from causerie.shapes.responses.items import ItemReader
from causerie.shapes.responses.tools import read_choice
from causerie.shapes.sealed_reasoning import unseal
from causerie.shapes.shape import ParsedRequest, PassingReply, Places, Shape
from causerie.shapes.translation import decoded, without


def echo_of(body: ObjectReader, request: ChatRequest) -> Mapping[str, Any]:
    """Return what a response says again of a body whose fields are valid."""
    reasoning, tools = body.get("reasoning"), body.get("tools")
    texts = ("prompt_cache_key", "safety_identifier", "user")
    sampling = ("temperature", "top_p", "presence_penalty", "frequency_penalty")
    numbers = {name: getattr(request.sampling, name) for name in sampling}
    plain = {"description": None, "parameters": None, "strict": None}
    return {
        "instructions": body.string("instructions"),
        "max_output_tokens": request.max_tokens,
        "max_tool_calls": body.integer("max_tool_calls", 1, 2**31 - 1),
        "metadata": _object(body.get("metadata")),
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "reasoning": {name: reasoning.get(name) for name in ("effort", "summary")}
        if isinstance(reasoning, dict)
        else None,
        "text": _text_settings(_object(body.get("text"))),
        "tool_choice": _choice(body.get("tool_choice")),
        "tools": [{**plain, **tool} if tool.get("type") == "function" else tool for tool in tools]
        if isinstance(tools, list)
        else (),
        "top_logprobs": request.top_logprobs or 0,
        **{name: value for name, value in numbers.items() if value is not None},
        **{name: text for name in texts if isinstance(text := body.get(name), str)},
    }


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text_settings(text: Mapping[str, Any]) -> Mapping[str, Any]:
    # The specification has no schema in what is said again.
    form = _object(text.get("format")) or {"type": "text"}
    if form.get("type") == "json_schema":
        name, strict = form.get("name") or "response", form.get("strict")
        form = {
            **{"type": "json_schema", "name": name, "description": form.get("description")},
            **{"schema": None, "strict": strict is not False},
        }
    verbosity = text.get("verbosity")
    return {"format": form, **({"verbosity": verbosity} if verbosity else {})}


def _choice(value: Any) -> Any:
    if isinstance(value, dict) and value.get("type") == "allowed_tools":
        return {"mode": "auto", **value}
    return "auto" if value is None else value


ENCRYPTED = "reasoning.encrypted_content"
_LOGPROBS = "message.output_text.logprobs"

_DECLARED = {
    **parameters.PARAMETERS,
    **parameters.HINTS,
    **{each.name: each for each in declared(parameters.RouterParameters)},
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
"""Parameters that agents set by the name of a model; one that lacks them does without."""
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


class _PlainItem(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    role: Literal["system", "user"]
    content: str
    type: Literal["message"] | None = None


class _PlainBody(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    model: parameters.ModelId
    input: str | Annotated[tuple[_PlainItem, ...], Meta(min_length=1)]
    instructions: str | None = None
    max_output_tokens: parameters.Count | None = None
    stream: bool | None = None
    temperature: parameters.Temperature | None = None
    top_p: parameters.TopP | None = None
    store: bool | None = None


_decode_plain = msgspec.json.Decoder(_PlainBody).decode


def _parse_plain(body: bytes, rules: parameters.ParsingRules) -> ParsedRequest | None:
    # Plain text, in one native pass; whatever is wrong is reported by the other reader.
    try:
        plain = _decode_plain(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if plain.store or not plain.input:
        return None
    places = ["instructions"] if plain.instructions else []
    messages = [FastMessage("system", plain.instructions)] if plain.instructions else []
    if isinstance(plain.input, str):
        messages.append(FastMessage("user", plain.input))
        places.append("input")
    else:
        messages += [FastMessage(item.role, item.content) for item in plain.input]
        places += [f"input[{index}]" for index in range(len(plain.input))]
    chat = FastFields(
        plain.model,
        tuple(messages),
        plain.stream,
        max_completion_tokens=plain.max_output_tokens,
        temperature=plain.temperature,
        top_p=plain.top_p,
    )
    request = plain_request(chat, rules)
    if request is None:
        return None
    document: dict[str, Any] = msgspec.json.decode(body)
    reply = ResponseReply(echo_of(ObjectReader(document), request))
    request = structs.replace(
        request, native=NativeRequest("responses", document), hints=_HINTS, lenient_tools=True
    )
    return ParsedRequest(request, PassingReply(reply), Places(tuple(places), _NAMES))


def _parse(body: bytes, rules: parameters.ParsingRules, _: Mapping[str, str]) -> ParsedRequest:
    if len(body) > SMALL:  # else reading all of it does no harm
        check_work(body, rules)
    if len(body) <= LARGE and (plain := _parse_plain(body, rules)) is not None:
        return plain
    document, mark = decoded(body, rules)
    return _Translation(document).parsed(rules, mark, len(body))


class _Translation(ItemReader, eq=False):
    def parsed(self, rules: parameters.ParsingRules, mark: str, size: int) -> ParsedRequest:
        body, fields = self.body, self.values
        self._refuse_state()
        self._copy_plain(strict=rules.reject_unknown)
        self.tools.read(body.get("tools"), "tools")
        if not body.has("input"):
            raise missing("input", "a string or an array of items")
        instructions = body.string("instructions")
        if instructions:
            self.add({"role": "system", "content": instructions}, "instructions")
        self.read_input(body.get("input"))
        if self.tools.functions:
            fields["tools"] = self.tools.functions
        self._translate_text()
        self._translate_reasoning(rules)
        encrypted = self._translate_include()
        most_calls = body.integer("max_tool_calls", 1, 2**31 - 1)
        if most_calls == 1:
            fields["parallel_tool_calls"] = False
        elif fields.get("parallel_tool_calls") is False:
            most_calls = 1
        choice = read_choice(body.get("tool_choice"), self.tools)
        if choice is not None:
            fields["tool_choice"] = choice
        if body.boolean("store"):
            self.changes.note("store true->false")
        if body.word("truncation", ("auto", "disabled")) == "auto":
            self.changes.note("truncation auto->disabled")
        request, places = self.read(rules, {**_NAMES, **self.tools.places}, mark, size)
        request = self._with_own(request, halved=bool(mark))
        reply = ResponseReply(
            echo_of(body, request), self.tools.forms, encrypted, self._summarizes(), most_calls
        )
        return ParsedRequest(request, PassingReply(reply), places)

    def _refuse_state(self) -> None:
        for name, advice in _REFUSED.items():
            if self.body.has(name):
                raise unsupported(name, advice)
        if self.body.boolean("background"):
            raise unsupported("background", "Replies are sent while they are made; send false.")

    def _copy_plain(self, *, strict: bool) -> None:
        for name, value in self.body.values.items():
            if name in _TRANSLATED:
                continue
            if name in _SAME:
                self.values[name] = value
            elif name in _RENAMED:
                self.values[_RENAMED[name]] = value
            elif name not in KNOWN.fields and not (strict and name in _NEVER_REFUSED):
                self.values[name] = value
            elif value is not None:  # of chat completions, and of no meaning here
                if strict and name not in _NEVER_REFUSED:
                    raise unsupported(name, "It is no field of this API; leave it out.")
                self.changes.note(f"{quote(name[:64], safe='.')} dropped")

    def _translate_text(self) -> None:
        text = self.body.child("text")
        if text is None:
            return
        self.changes.note_others(text, ("format", "verbosity"))
        if text.has("verbosity"):
            self.values["verbosity"] = text.get("verbosity")
        form = text.child("format", 'an object like {"type": "json_schema", "name": NAME}')
        if form is None:
            return
        made: dict[str, Any] = {"type": form.get("type")}
        if form.get("type") == "json_schema":
            names = ("name", "schema", "description", "strict")
            made["json_schema"] = {name: form.get(name) for name in names if form.has(name)}
        self.values["response_format"] = made

    def _translate_reasoning(self, rules: parameters.ParsingRules) -> None:
        reasoning = self.body.child("reasoning")
        if reasoning is None:
            return
        if reasoning.has("effort"):
            self.values["reasoning_effort"] = reasoning.get("effort")
        own = ("max_tokens", "exclude", "enabled") if rules.reasoning_object else ()
        more = {name: reasoning.get(name) for name in own if reasoning.has(name)}
        if more:
            self.values["reasoning"] = more
        self.changes.note_others(reasoning, ("effort", "summary", "generate_summary", *own))

    def _summarizes(self) -> bool:
        reasoning = self.body.child("reasoning") or ObjectReader({})
        wanted = reasoning.string("summary") or reasoning.string("generate_summary")
        return wanted is not None and wanted != "none"

    def _translate_include(self) -> bool:
        body, fields = self.body, self.values
        included = body.strings("include", most=64)
        for at, name in enumerate(included):
            if name not in (ENCRYPTED, _LOGPROBS):
                self.changes.note(f"include[{at}] dropped")
        top = body.integer("top_logprobs", 0, 20)
        if top or _LOGPROBS in included:
            fields["logprobs"], fields["top_logprobs"] = True, top
        return ENCRYPTED in included

    def _with_own(self, request: ChatRequest, *, halved: bool) -> ChatRequest:
        grammars, names = self.tools.grammars, request.function_names
        tools = tuple(
            structs.replace(tool, grammar=grammar)
            if (grammar := grammars.get(names.get(tool.name, tool.name)))
            else tool
            for tool in request.tools
        )
        native = None if halved else _native(self.body.values)
        return structs.replace(request, tools=tools, native=native, hints=_HINTS)


def _native(body: Mapping[str, Any]) -> NativeRequest:
    # No server of others reads reasoning that was sealed here.
    items = body.get("input")
    if not isinstance(items, list) or not any(map(_is_sealed_here, items)):
        return NativeRequest("responses", body)
    changes = Changes()
    unsealed = {**body, "input": without(items, _is_sealed_here, "input", changes)}
    return NativeRequest("responses", body, unsealed=unsealed, left_out=changes.reported())


def _is_sealed_here(item: object) -> bool:
    return isinstance(item, dict) and unseal(item.get("encrypted_content")) is not None


RESPONSES = Shape(
    "responses",
    "/responses",
    "resp_",
    _parse,
    counting="/responses/input_tokens",
    count_body=InputTokens,
)
