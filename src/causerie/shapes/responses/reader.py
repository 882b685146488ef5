"""Parse the body of a Responses request: translate it into fields of chat completions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal
from urllib.parse import quote

import msgspec
from msgspec import Meta, Struct, field, structs

from causerie.errors import InvalidRequest
from causerie.http.event_loop import LARGE
from causerie.protocol import parameters
from causerie.protocol.body import (
    ObjectReader,
    as_object,
    check_work,
    missing,
    unsupported,
    wrong_type,
)
from causerie.protocol.body_types import NotEmpty
from causerie.protocol.bounded_json import SMALL
from causerie.protocol.declaration import declared
from causerie.protocol.known_fields import KNOWN
from causerie.protocol.reasoning import text_of
from causerie.protocol.request import (
    ChatRequest,
    FastFields,
    FastMessage,
    NativeRequest,
    Unread,
)
from causerie.shapes.chat_completions.past import Changes
from causerie.shapes.chat_completions.reader import plain_request, without_router_fields
from causerie.shapes.responses.encoder import InputTokens, ResponseEncoder, ResponseReply
from causerie.shapes.responses.tools import INPUT, SEARCH, ToolReader, flat_name, read_choice
from causerie.shapes.sealed_reasoning import SealedReasoning, unseal
from causerie.shapes.shape import ParsedRequest, PassingReply, Places, Shape
from causerie.shapes.translation import Translation, decoded, is_image, without

_TEXTS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output", "tool_search_output"})
_ITEM = frozenset({"type", "id", "status", "created_by", "caller", "phase"})
_ADVICE = {
    "input_image": "No images are kept here; send it as a `data:` address, in `image_url`.",
    "input_file": "Files are not read here; send their text in a part of type `input_text`.",
}
_PART_ADVICE = "Parts are of type `input_text` and `input_image`."

Entry = dict[str, Any]


class ItemReader(Translation, eq=False):
    """Translates input items to messages, and keeps the place of each in the client's body."""

    tools: ToolReader = field(default_factory=ToolReader)
    _assistant_turn: Entry | None = None  # the message of the model that further items add to
    _turn_path: str = ""
    _last_item_type: str = ""  # type of the item before
    _tool_images: list[Entry] = field(
        default_factory=list
    )  # results that messages of tools cannot hold

    def __post_init__(self) -> None:
        self.tools.changes = self.changes

    def read_input(self, value: object) -> None:
        """Translate a text or a list of items to messages; raise if newest items are unusable."""
        if isinstance(value, str):
            self.add({"role": "user", "content": value}, "input")
        elif isinstance(value, list):
            newest = max((at for at, item in enumerate(value) if _is_client_input(item)), default=0)
            for at, item in enumerate(value):
                self._read_item(
                    as_object(item, f"input[{at}]", "an object with a `type`"), at < newest
                )
            self._end_assistant_turn()
            self._add_tool_images()
        elif value is not None:
            raise wrong_type("input", "a string or an array of items", value)

    def add(self, message: Entry, place: str) -> None:
        self.messages.append(message)
        self.places.append(place)

    def _read_item(self, item: ObjectReader, is_past: bool) -> None:
        sort = item.get("type") or ("message" if item.has("role") else None)
        if not isinstance(sort, str):
            item.required_string("type", expected="the type of an item, like message")
        sort = str(sort)
        if sort == "item_reference":
            raise unsupported(
                item.param("type"),
                "Nothing is stored here; send the item itself in place of its reference, as "
                "many clients do with `store: false`.",
            )
        if sort not in _OUTPUTS and self._last_item_type in _OUTPUTS:
            self._add_tool_images()
        if sort not in _READERS:
            self.unread.add(item.values, item.path)
            self._note_change(item.path, sort, "dropped")
            return
        reader, fields = _READERS[sort]
        if fields:
            self.changes.note_others(item, _ITEM | fields)
        reader(self, item, is_past)
        self._last_item_type = sort

    def _note_change(self, path: str, type_name: str, change: str) -> None:
        shown = f" {quote(type_name[:64], safe='')}" if type_name else ""
        self.changes.note(f"{path}{shown} {change}")

    def _read_message(self, item: ObjectReader, is_past: bool) -> None:
        role = item.get("role")
        if role == "assistant":
            self._read_assistant_message(item)
            return
        self._end_assistant_turn()
        content = item.get("content")
        if isinstance(content, list):
            place = item.param("content")
            parts = [
                self._read_part(part, f"{place}[{at}]", is_past) for at, part in enumerate(content)
            ]
            content = [part for part in parts if part is not None]
            if content == [] and parts:
                content = ""
        self.add({"role": role, "content": content}, item.path)

    def _read_part(self, part: object, path: str, is_past: bool) -> object:
        if not isinstance(part, dict):
            return part
        sort = part.get("type")
        if (field := _find_text_field(sort)) is not None:
            for name in part.keys() - {"type", "text", "refusal", "annotations", "logprobs"}:
                if part[name]:
                    self._note_change(f"{path}.{quote(name[:64], safe='')}", "", "dropped")
            return {"type": field, field: part.get(field)}
        if sort == "input_image" and isinstance(part.get("image_url"), str):
            self.unread.note_addresses(part, path)
            at = f"messages[{len(self.messages)}]" + path[path.index(".content[") :]
            self.names[f"{at}.image_url.url"] = f"{path}.image_url"
            return _translate_unchecked_image(part)
        if not is_past and (not isinstance(sort, str) or sort == "image_url"):
            return part  # which the reader of chat completions judges
        self.unread.add(part, path)
        if is_past:
            self._note_change(path, str(sort), "dropped")
        else:
            name = "file_id" if sort == "input_image" and part.get("file_id") else "type"
            self.refuse(unsupported(f"{path}.{name}", _ADVICE.get(str(sort), _PART_ADVICE)))
        return None

    def _read_assistant_message(self, item: ObjectReader) -> None:
        if self._assistant_turn is not None and self._last_item_type == "message":
            self._end_assistant_turn()
        turn, content = self._ensure_assistant_turn(item), item.get("content")
        if isinstance(content, list):
            texts = [_read_part_text(part) for part in content]
            for at, text in enumerate(texts):
                if text is None:
                    self._note_change(f"{item.param('content')}[{at}]", "", "dropped")
            content = "".join(text for text in texts if text is not None)
        if isinstance(content, str):
            content = (turn["content"] or "") + content
        turn["content"] = content

    def _read_reasoning(self, item: ObjectReader, _: bool) -> None:
        found = unseal(item.get("encrypted_content"))
        if found is None:
            if item.has("encrypted_content"):
                self._note_change(item.param("encrypted_content"), "", "dropped")
            found = SealedReasoning(text_of(item.get("content")) or text_of(item.get("summary")))
        if not found.text and not found.blocks:
            return
        turn = self._ensure_assistant_turn(item)
        if found.text:
            turn["reasoning_content"] = turn.get("reasoning_content", "") + found.text
        if found.blocks:
            turn["reasoning_details"] = [*turn.get("reasoning_details", ()), *found.blocks]

    def _read_tool_call(self, item: ObjectReader, _: bool) -> None:
        turn = self._ensure_assistant_turn(item)
        name, arguments = item.get("name"), item.get("arguments")
        match item.get("type"):
            case "custom_tool_call":
                arguments = msgspec.json.encode({INPUT: item.get("input")}).decode()
            case "tool_search_call":
                name = SEARCH
                if not isinstance(arguments, str):
                    arguments = msgspec.json.encode(arguments or {}).decode()
        if isinstance(name, str):
            name = flat_name(name, item.get("namespace"))
        function = {"name": name, "arguments": arguments}
        calls = turn.setdefault("tool_calls", [])
        place = f"messages[{len(self.messages)}].tool_calls[{len(calls)}]"
        self.names[place] = self.names[f"{place}.function"] = item.path
        self.names[f"{place}.id"] = item.param("call_id")
        calls.append({"id": item.get("call_id"), "type": "function", "function": function})

    def _read_tool_output(self, item: ObjectReader, _: bool) -> None:
        output = item.get("output")
        if isinstance(output, list):
            output = self._read_output_parts(output, item.param("output"))
        self._add_tool_result(item, output)

    def _add_tool_result(self, item: ObjectReader, content: object) -> None:
        self._end_assistant_turn()
        self.names[f"messages[{len(self.messages)}].tool_call_id"] = item.param("call_id")
        self.names[f"messages[{len(self.messages)}].content"] = item.param("output")
        message = {"role": "tool", "tool_call_id": item.get("call_id"), "content": content}
        self.add(message, item.path)

    def _read_output_parts(self, parts: Sequence[object], path: str) -> object:
        texts = []
        for at, part in enumerate(parts):
            text = _read_part_text(part)
            if text is not None:
                texts.append({"type": "text", "text": text})
            elif (image := _translate_image_or_none_if_invalid(part)) is not None:
                self._tool_images.append(image)
                self.returned_images.add(image["image_url"]["url"])
                self._note_change(f"{path}[{at}]", "", "moved to a message of the user")
            else:
                self.unread.add(part if isinstance(part, dict) else {}, f"{path}[{at}]")
                self._note_change(f"{path}[{at}]", "", "dropped")
        return texts[0]["text"] if len(texts) == 1 else texts or ""

    def _add_tool_images(self) -> None:
        # A message of a tool is text; a model sees an image in a message of the user.
        if self._tool_images:
            text = {"type": "text", "text": "Images that the tools returned:"}
            self.add({"role": "user", "content": [text, *self._tool_images]}, self.places[-1])
            self._tool_images = []

    def _read_tools_item(self, item: ObjectReader, _: bool) -> None:
        self.tools.read(item.get("tools"), item.param("tools"), repeated=True)
        if item.get("type") == "tool_search_output":
            found: Any = item.get("tools") or ()
            names = [tool.get("name") for tool in found if isinstance(tool, dict)]
            self._add_tool_result(item, msgspec.json.encode({"tools": names}).decode())

    def _ensure_assistant_turn(self, item: ObjectReader) -> Entry:
        if self._assistant_turn is None:
            self._assistant_turn = {"role": "assistant", "content": None}
            self._turn_path = item.path
        return self._assistant_turn

    def _end_assistant_turn(self) -> None:
        if self._assistant_turn is None:
            return
        if self._assistant_turn["content"] is None and not self._assistant_turn.get("tool_calls"):
            self._assistant_turn["content"] = ""
        self.add(self._assistant_turn, self._turn_path)
        self._assistant_turn = None


def _is_client_input(item: object) -> bool:
    if not isinstance(item, dict):
        return False
    sort = item.get("type") or "message"
    if isinstance(sort, str) and sort in _OUTPUTS:
        return True
    return sort == "message" and item.get("role") == "user"


def _read_part_text(part: object) -> str | None:
    text = part.get(_find_text_field(part.get("type"))) if isinstance(part, dict) else part
    return text if isinstance(text, str) else None


def _find_text_field(part_type: object) -> str | None:
    return _TEXTS.get(part_type) if isinstance(part_type, str) else None


def _translate_unchecked_image(part: Mapping[str, Any]) -> Entry:
    image = {"url": part["image_url"]}
    if isinstance(part.get("detail"), str):
        image["detail"] = part["detail"]
    return {"type": "image_url", "image_url": image}


def _translate_image_or_none_if_invalid(part: object) -> Entry | None:
    if not isinstance(part, dict) or part.get("type") != "input_image":
        return None
    if not isinstance(part.get("image_url"), str):
        return None
    image = _translate_unchecked_image(part)
    return image if is_image(image) else None


_Read = Callable[[ItemReader, ObjectReader, bool], None]
_READERS: Mapping[str, tuple[_Read, frozenset[str]]] = {
    name: (read, frozenset(fields.split()))
    for name, read, fields in (
        ("message", ItemReader._read_message, "role content name"),
        ("reasoning", ItemReader._read_reasoning, "summary content encrypted_content"),
        ("function_call", ItemReader._read_tool_call, "call_id name arguments namespace"),
        ("custom_tool_call", ItemReader._read_tool_call, "call_id name input namespace"),
        ("tool_search_call", ItemReader._read_tool_call, "call_id arguments execution"),
        ("function_call_output", ItemReader._read_tool_output, "call_id output"),
        ("custom_tool_call_output", ItemReader._read_tool_output, "call_id output"),
        ("tool_search_output", ItemReader._read_tools_item, "call_id tools execution"),
        ("additional_tools", ItemReader._read_tools_item, ""),
    )
}
"""How items are read by their types, and the fields of theirs that are known."""


def echo_of(sent: Mapping[str, Any] | Unread, request: ChatRequest) -> Mapping[str, Any]:
    """Return the fields of a response that repeat what the request set."""
    body = ObjectReader(sent.document() if isinstance(sent, Unread) else sent)
    reasoning, tools, choice = body.get("reasoning"), body.get("tools"), body.get("tool_choice")
    choice = "auto" if choice is None else choice
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        choice = {"mode": "auto", **choice}
    texts = ("prompt_cache_key", "safety_identifier", "user")
    sampling = ("temperature", "top_p", "presence_penalty", "frequency_penalty")
    numbers = {name: getattr(request.sampling, name) for name in sampling}
    plain = {"description": None, "parameters": None, "strict": None}
    return {
        "instructions": body.string("instructions"),
        "max_output_tokens": request.max_tokens,
        "max_tool_calls": body.integer("max_tool_calls", 1, 2**31 - 1),
        "metadata": _object_or_empty(body.get("metadata")),
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "reasoning": {name: reasoning.get(name) for name in ("effort", "summary")}
        if isinstance(reasoning, dict)
        else None,
        "text": _build_text_echo(_object_or_empty(body.get("text"))),
        "tool_choice": choice,
        "tools": [{**plain, **tool} if tool.get("type") == "function" else tool for tool in tools]
        if isinstance(tools, list)
        else (),
        "top_logprobs": request.top_logprobs or 0,
        **{name: value for name, value in numbers.items() if value is not None},
        **{name: text for name in texts if isinstance(text := body.get(name), str)},
    }


def _object_or_empty(json_value: object) -> Mapping[str, Any]:
    return json_value if isinstance(json_value, dict) else {}


def _build_text_echo(text_settings: Mapping[str, Any]) -> Mapping[str, Any]:
    # The specification has no schema in what is said again.
    form = _object_or_empty(text_settings.get("format")) or {"type": "text"}
    if form.get("type") == "json_schema":
        name, strict = form.get("name") or "response", form.get("strict")
        form = {
            **{"type": "json_schema", "name": name, "description": form.get("description")},
            **{"schema": None, "strict": strict is not False},
        }
    verbosity = text_settings.get("verbosity")
    return {"format": form, **({"verbosity": verbosity} if verbosity else {})}


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


class _PlainItem(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    role: Literal["system", "user"]
    content: str
    type: Literal["message"] | None = None


class _PlainBody(Unread, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    model: parameters.ModelId
    input: NotEmpty | Annotated[tuple[_PlainItem, ...], Meta(min_length=1)]
    instructions: str | None = None
    max_output_tokens: parameters.Count | None = None
    stream: bool | None = None
    temperature: parameters.Temperature | None = None
    top_p: parameters.TopP | None = None
    store: Literal[False] | None = None


_decode_plain = msgspec.json.Decoder(_PlainBody).decode


_TEXT_PLACES = Places(("input",), _NAMES)


def _parse_fast_path(body: bytes, rules: parameters.ParsingRules) -> ParsedRequest | None:
    # Plain text, in one native pass; whatever is wrong is reported by the other reader.
    try:
        plain = _decode_plain(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    said, places = plain.input, _TEXT_PLACES
    messages: tuple[FastMessage, ...]
    if isinstance(said, str):
        messages = (FastMessage("user", said),)
    else:
        messages = tuple([FastMessage(item.role, item.content) for item in said])
        places = Places(tuple([f"input[{at}]" for at in range(len(messages))]), _NAMES)
    if plain.instructions:
        messages = (FastMessage("system", plain.instructions), *messages)
        places = Places(("instructions", *places.messages), _NAMES)
    request = plain_request(
        FastFields(
            plain.model,
            messages,
            plain.stream,
            max_completion_tokens=plain.max_output_tokens,
            temperature=plain.temperature,
            top_p=plain.top_p,
        ),
        rules,
        native=NativeRequest("responses", plain),
        lenient_tools=True,
    )
    if request is None:
        return None
    reply = PassingReply(ResponseReply(partial(echo_of, plain, request)), ResponseEncoder.resume)
    return ParsedRequest(request, reply, places)


def _parse_request(
    body: bytes, rules: parameters.ParsingRules, _: Mapping[str, str]
) -> ParsedRequest:
    if (size := len(body)) > SMALL:  # else reading all of it does no harm
        check_work(body, rules)
    if size <= LARGE and (plain := _parse_fast_path(body, rules)) is not None:
        return plain
    document, mark = decoded(body, rules)
    return _Translation(document).parsed(rules, mark, size)


class _Translation(ItemReader, eq=False):
    def parsed(self, rules: parameters.ParsingRules, mark: str, size: int) -> ParsedRequest:
        body, fields = self.body, self.values
        self._refuse_stored_state()
        self._copy_or_rename_untranslated_fields(strict=rules.reject_unknown)
        self.tools.read(body.get("tools"), "tools")
        if not body.has("input"):
            raise missing("input", "a string or an array of items")
        instructions = body.string("instructions")
        if instructions:
            self.add({"role": "system", "content": instructions}, "instructions")
        self.read_input(body.get("input"))
        if self.tools.functions:
            fields["tools"] = self.tools.functions
        self._translate_text_settings()
        self._translate_reasoning(rules)
        encrypted = self._translate_include_and_tell_if_encrypted()
        most_calls = body.integer("max_tool_calls", 1, 2**31 - 1)
        if most_calls == 1:
            fields["parallel_tool_calls"] = False
        elif fields.get("parallel_tool_calls") is False:
            most_calls = 1
        self._translate_tool_choice()
        if body.boolean("store"):
            self.changes.note("store true->false")
        if body.word("truncation", ("auto", "disabled")) == "auto":
            self.changes.note("truncation auto->disabled")
        request, places = self.read(rules, {**_NAMES, **self.tools.places}, mark, size)
        native = None
        if not mark and "reasoning" not in fields:  # words of routers, which that API has not
            native = _build_native_request(without_router_fields(body.values, rules))
        request = self._add_native_and_grammars(request, native)
        reply = ResponseReply(
            partial(echo_of, body.values, request),
            self.tools.forms,
            encrypted,
            self._wants_reasoning_summary(),
            most_calls,
        )
        return ParsedRequest(request, PassingReply(reply, ResponseEncoder.resume), places)

    def _refuse_stored_state(self) -> None:
        for name, advice in _REFUSED.items():
            if self.body.has(name):
                raise unsupported(name, advice)
        if self.body.boolean("background"):
            raise unsupported("background", "Replies are sent while they are made; send false.")

    def _copy_or_rename_untranslated_fields(self, *, strict: bool) -> None:
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

    def _translate_tool_choice(self) -> None:
        try:
            choice = read_choice(self.body.get("tool_choice"), self.tools)
        except InvalidRequest as failure:
            if failure.code != "unsupported_parameter":
                raise
            self.refuse(failure)  # it demands a tool that a provider may run
            return
        if choice is not None:
            self.values["tool_choice"] = choice

    def _translate_text_settings(self) -> None:
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

    def _wants_reasoning_summary(self) -> bool:
        reasoning = self.body.child("reasoning") or ObjectReader({})
        wanted = reasoning.string("summary") or reasoning.string("generate_summary")
        return wanted is not None and wanted != "none"

    def _translate_include_and_tell_if_encrypted(self) -> bool:
        body, fields = self.body, self.values
        included = body.strings("include", most=64)
        for at, name in enumerate(included):
            if name not in (ENCRYPTED, _LOGPROBS):
                self.changes.note(f"include[{at}] dropped")
        top = body.integer("top_logprobs", 0, 20)
        if top or _LOGPROBS in included:
            fields["logprobs"], fields["top_logprobs"] = True, top
        return ENCRYPTED in included

    def _add_native_and_grammars(
        self, request: ChatRequest, native: NativeRequest | None
    ) -> ChatRequest:
        grammars, names = self.tools.grammars, request.function_names
        tools = tuple(
            structs.replace(tool, grammar=grammar)
            if (grammar := grammars.get(names.get(tool.name, tool.name)))
            else tool
            for tool in request.tools
        )
        return structs.replace(request, tools=tools, native=native, hints=_HINTS & request.params)


def _build_native_request(body: Mapping[str, Any]) -> NativeRequest:
    items = body.get("input")
    if not isinstance(items, list) or not any(map(_is_reasoning_no_provider_reads, items)):
        return NativeRequest("responses", body)
    changes = Changes()
    unsealed = {**body, "input": without(items, _is_reasoning_no_provider_reads, "input", changes)}
    return NativeRequest("responses", body, unsealed=unsealed, left_out=changes.reported())


def _is_reasoning_no_provider_reads(item: object) -> bool:
    # No server of others reads reasoning that was sealed here, nor any that is not sealed: it would
    # look for it among what it stored.
    if not isinstance(item, dict) or item.get("type") != "reasoning":
        return False
    sealed = item.get("encrypted_content")
    return not sealed or unseal(sealed) is not None


RESPONSES = Shape(
    "responses",
    "/responses",
    "resp_",
    _parse_request,
    counting="/responses/input_tokens",
    count_body=InputTokens,
)
