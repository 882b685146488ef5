"""Parse the body of a chat completion request, in one native pass or field by field."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any, Literal, get_args
from urllib.parse import quote

import msgspec
from msgspec import Struct

from causerie.errors import InvalidRequest
from causerie.http.event_loop import LARGE
from causerie.protocol import body_types, parameters
from causerie.protocol.body import (
    ObjectReader,
    check_work,
    decode_marked,
    invalid_json,
    missing,
    read_parameter,
    shown,
    unsupported,
    wrong_type,
    wrong_value,
)
from causerie.protocol.bounded_json import SMALL
from causerie.protocol.declaration import declared
from causerie.protocol.known_fields import KNOWN, Known, known_of, refusal, sift
from causerie.protocol.numbers import money
from causerie.protocol.request import (
    ChatRequest,
    FastFields,
    Message,
    NativeRequest,
    Tool,
    ToolChoice,
)
from causerie.protocol.response import ResponseContext
from causerie.protocol.targets import ANY_PRICE, NO_PREFERENCES, MostPrice, Preferences, SortBy
from causerie.shapes.chat_completions import generation
from causerie.shapes.chat_completions.encoder import ChunkEncoder, completion
from causerie.shapes.chat_completions.messages import message_values, plain_length, read_messages
from causerie.shapes.chat_completions.past import mend, needs_mending
from causerie.shapes.shape import AT_ONCE, ParsedRequest, Shape

_TOOL_FORM = 'an object like {"type": "function", "function": {"name": NAME, "parameters": SCHEMA}}'
_NAMED_CHOICE = '{"type": "function", "function": {"name": NAME}}'
_Mode = Literal["none", "auto", "required"]
_CHOICE_MODES: dict[str, _Mode] = {mode: mode for mode in get_args(_Mode)}
ROUTER_FIELDS = frozenset(each.name for each in declared(parameters.RouterParameters))
_KNOWN = Known({each.name: known_of(each.type) for each in declared(parameters.RouterParameters)})
_SORTS: Mapping[str, SortBy] = {word: word for word in get_args(SortBy)}


def read_tools(body: ObjectReader) -> tuple[Tool, ...]:
    tools: dict[str, Tool] = {}
    for fields in body.objects("tools", most=body_types.MAX_TOOLS, expected=_TOOL_FORM):
        sort = fields.required_string("type", expected='"function"')
        if sort != "function":
            raise unsupported(fields.param("type"), f'It must be "function", not {shown(sort)}.')
        function = fields.required_object("function", "an object with `name` and `parameters`")
        name = function.required_string("name", most=body_types.MAX_FUNCTION_NAME)
        schema = function.child("parameters")
        tool = Tool(
            name=name,
            parameters=schema.values if schema else {},
            description=function.string("description"),
            strict=function.boolean("strict"),
        )
        if name in tools:
            raise wrong_value(
                function.param("name"),
                f"is {shown(name)}, which an earlier tool has; names must be unique.",
            )
        tools[name] = tool
    return tuple(tools.values())


def read_tool_choice(body: ObjectReader, tools: tuple[Tool, ...]) -> ToolChoice:
    value = body.get("tool_choice")
    if value is None:
        return ToolChoice()
    if isinstance(value, str):
        mode = _CHOICE_MODES.get(value)
        if mode is None:
            raise wrong_value(
                "tool_choice",
                f"must be none, auto, required or {_NAMED_CHOICE}, not {shown(value)}.",
            )
        choice = ToolChoice(mode)
    elif isinstance(value, dict):
        choice = _read_choice(ObjectReader(value, "tool_choice"), {tool.name for tool in tools})
    else:
        raise wrong_type("tool_choice", f"a string or {_NAMED_CHOICE}", value)
    if choice.mode == "required" and not tools:
        raise wrong_value("tool_choice", "asks for a call, but `tools` defines no function.")
    return choice


def _read_choice(fields: ObjectReader, defined_names: set[str]) -> ToolChoice:
    sort = fields.required_string("type", expected='"function"')
    if sort == "function":
        return ToolChoice("required", (_read_function_name(fields, defined_names),))
    if sort != "allowed_tools":
        raise wrong_value(
            "tool_choice.type",
            f"must be function or allowed_tools, not {shown(sort)}; none, auto and required are "
            "strings in place of the object.",
        )
    allowed = fields.required_object("allowed_tools")
    mode = allowed.word("mode", ("auto", "required"))
    if mode is None:
        raise missing(allowed.param("mode"), "auto or required")
    names = []
    for one in allowed.objects("tools", most=body_types.MAX_TOOLS):
        if one.get("type") != "function":
            raise wrong_value(one.param("type"), 'must be "function".')
        names.append(_read_function_name(one, defined_names))
    if not names:
        raise missing(allowed.param("tools"), "an array of at least one function")
    return ToolChoice(_CHOICE_MODES[mode], tuple(dict.fromkeys(names)))


def _read_function_name(fields: ObjectReader, defined_names: set[str]) -> str:
    function = fields.required_object("function", "an object with a `name`")
    name = function.required_string("name")
    if name not in defined_names:
        raise wrong_value(
            function.param("name"), f"is {shown(name)}, which `tools` does not define."
        )
    return name


_TAKEN_BY_ALL = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)
_MAX_NAME_LENGTH = 64  # characters
_DIGITS = 8
_MAX_REPORTED = 16
_NAMING = ("messages", "tools", "tool_choice", "tool_calls", "allowed_tools")
"""Fields with functions, by which they are offered, chosen or called."""

FunctionNames = Mapping[str, str]


def names_for_all(tools: Iterable[Tool], messages: Iterable[Message]) -> FunctionNames:
    """Return distinct replacements for the function names that some targets do not accept."""
    names = {tool.name for tool in tools}
    for message in messages:
        names.update(call.name for call in message.tool_calls)
        if message.name is not None and message.role == "tool":
            names.add(message.name)
    others = sorted(name for name in names if not _TAKEN_BY_ALL.fullmatch(name))
    if not others:
        return {}
    taken = names.difference(others)
    shared = Counter(map(_sanitize_name, others))
    made: dict[str, str] = {}
    for name in others:
        plain = _sanitize_name(name)
        if len(name) > _MAX_NAME_LENGTH or shared[plain] > 1 or plain in taken:
            digest = hashlib.sha256(name.encode()).hexdigest()
            digits = (digest[at : at + _DIGITS] for at in range(len(digest) - _DIGITS))
            distinct = (f"{plain[: _MAX_NAME_LENGTH - _DIGITS - 1]}_{each}" for each in digits)
            plain = next(each for each in distinct if each not in taken)
        taken.add(plain)
        made[name] = plain
    return made


def _sanitize_name(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:_MAX_NAME_LENGTH]


def with_names(value: Any, names: FunctionNames) -> Any:
    """Return a request body, or a part of it, with its functions renamed by ``names``."""
    if isinstance(value, list):
        return [with_names(each, names) for each in value]
    if not isinstance(value, dict):
        return value
    made = {**value, **{key: with_names(value[key], names) for key in _NAMING if key in value}}
    if isinstance(value.get("function"), dict):
        made["function"] = _rename_function(value["function"], names)
    return _rename_function(made, names) if value.get("role") == "tool" else made


def _rename_function(entry: dict[str, Any], names: FunctionNames) -> dict[str, Any]:
    name = entry.get("name")
    return {**entry, "name": names[name]} if isinstance(name, str) and name in names else entry


def name_changes(tools: Sequence[Tool], names: FunctionNames) -> Sequence[str]:
    """Return the report of renamed functions; those that are only called come last."""
    places = {tool.name: f"tools[{at}].function.name" for at, tool in enumerate(tools)}
    called = [name for name in names if name not in places]
    places |= {name: f"function {quote(name[:_MAX_NAME_LENGTH], safe='')}" for name in called}
    changes = [f"{place}->{names[name]}" for name, place in places.items() if name in names]
    more = len(changes) - _MAX_REPORTED
    return [*changes[:_MAX_REPORTED], f"{more} more names of functions"] if more > 0 else changes


def read_models(
    fields: ObjectReader, rules: parameters.ParsingRules
) -> tuple[str, tuple[str, ...]]:
    if not rules.router or not fields.has("models"):
        return fields.required_string("model", most=parameters.MAX_ID), ()
    asked = fields.string("model", most=parameters.MAX_ID)
    named = fields.strings("models", most=parameters.MAX_MODELS, longest=parameters.MAX_ID)
    if asked == "":
        raise wrong_value("model", "must not be empty.")
    every = [*([asked] if asked is not None else []), *named]
    if not every:
        raise missing("model", "a string")
    first, *others = dict.fromkeys(every)
    return first, tuple(others)


def unknown_preferences(fields: ObjectReader, rules: parameters.ParsingRules) -> Sequence[str]:
    """Return the report of unknown fields within a router's own fields; raise if refused."""
    own = {name: fields.values[name] for name in ROUTER_FIELDS if name in fields.values}
    _, unlisted = sift(own, _KNOWN)
    if unlisted is None:
        return ()
    if unlisted.names and rules.reject_unknown and (refused := refusal(own, _KNOWN)) is not None:
        raise refused
    return unlisted.changes


def read_preferences(fields: ObjectReader) -> Preferences:
    """Return the routing preferences in ``provider``; check a router's other fields too."""
    fields.word("route", ("fallback",))
    for name in ("transforms", "plugins"):
        if fields.array(name, most=body_types.MAX_PROVIDER_NAMES):
            raise unsupported(name, "Messages and replies are never altered here; leave it out.")
    provider = fields.child("provider")
    if provider is None:
        return NO_PREFERENCES
    allow, require = provider.boolean("allow_fallbacks"), provider.boolean("require_parameters")
    collection = provider.word("data_collection", ("allow", "deny"))
    by_object = isinstance(provider.get("sort"), dict)
    sorting, name = (provider.required_object("sort"), "by") if by_object else (provider, "sort")
    return Preferences(
        order=tuple(provider.strings("order", most=body_types.MAX_PROVIDER_NAMES)),
        only=_read_name_set(provider, "only"),
        ignore=_read_name_set(provider, "ignore") or frozenset(),
        quantizations=_read_name_set(provider, "quantizations"),
        allow_fallbacks=allow is not False,
        require_parameters=require or False,
        private=collection == "deny" or provider.boolean("zdr") or False,
        sort=_SORTS.get(sorting.word(name, _SORTS) or ""),
        max_price=MostPrice(
            *(_read_price_limit(prices, name) for name in body_types.PriceCeiling.__struct_fields__)
        )
        if (prices := provider.child("max_price"))
        else ANY_PRICE,
    )


def _read_name_set(fields: ObjectReader, field: str) -> frozenset[str] | None:
    # Programs send an empty list where nothing was chosen.
    return frozenset(fields.strings(field, most=body_types.MAX_PROVIDER_NAMES)) or None


def _read_price_limit(prices: ObjectReader, field: str) -> Decimal | None:
    value = prices.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise wrong_type(prices.param(field), "a number", value)
    try:
        return money(value)
    except ValueError as failure:
        raise wrong_value(
            prices.param(field), f"must be an amount of money: {failure}."
        ) from failure


_decode_fast = msgspec.json.Decoder(FastFields).decode
_DEFAULT_SAMPLING = parameters.SamplingParams()
_Given = tuple[bool, bool, bool, bool, bool, bool]
_OPTIONAL = FastFields.__struct_fields__[2:]
_params_by_given: dict[_Given, frozenset[str]] = {}


def read_fast_path(body: bytes, rules: parameters.ParsingRules) -> ChatRequest | None:
    """Parse a body of plain messages and few usual fields in one native pass, else ``None``."""
    if len(body) > SMALL:  # of a small one, reading all of it does no harm
        check_work(body, rules)
        if len(body) > LARGE:
            return None
    try:
        fields = _decode_fast(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return plain_request(fields, rules)


def plain_request(
    fields: FastFields,
    rules: parameters.ParsingRules,
    *,
    native: NativeRequest | None = None,
    hints: frozenset[str] = frozenset(),
    lenient_tools: bool = False,
) -> ChatRequest | None:
    """Return the request of a plain body's fields; ``None`` if some break a limit or disagree."""
    messages = fields.messages
    if len(messages) > rules.max_messages:
        return None
    limit, most = fields.max_tokens, fields.max_completion_tokens
    if limit is not None and most is not None and limit != most:
        return None
    stream, options = fields.stream, fields.stream_options
    temperature, top_p = fields.temperature, fields.top_p
    given = (
        stream is not None,
        options is not None,
        limit is not None,
        most is not None,
        temperature is not None,
        top_p is not None,
    )
    characters, ascii = 0, True
    for one in messages:
        content = one.content
        characters += len(content)
        ascii = ascii and content.isascii()
    return ChatRequest(
        fields.model,
        messages,
        characters if ascii else None,
        stream or False,
        options is not None and bool(options.include_usage),
        limit if most is None else most,
        sampling=_DEFAULT_SAMPLING
        if temperature is None and top_p is None
        else parameters.SamplingParams(temperature)
        if top_p is None
        else parameters.SamplingParams(temperature, top_p=top_p),
        params=_params_by_given.get(given) or _list_and_cache_given_fields(given),
        keeps_output_limit=rules.reject_long_output,
        sent=fields,
        native=native,
        hints=hints,
        lenient_tools=lenient_tools,
    )


def _list_and_cache_given_fields(given_flags: _Given) -> frozenset[str]:
    sent = [name for name, there in zip(_OPTIONAL, given_flags, strict=True) if there]
    names = _params_by_given[given_flags] = frozenset(["model", "messages", *sent])
    return names


def parse(body: bytes, rules: parameters.ParsingRules) -> ChatRequest:
    return read_fast_path(body, rules) or _parse_slow_path(body, rules)


def _parse_slow_path(body: bytes, rules: parameters.ParsingRules) -> ChatRequest:
    if len(body) <= SMALL:
        check_work(body, rules)
    document, mark = decode_marked(body)
    return read_fields(ObjectReader(document), rules, large=len(body) > AT_ONCE, mark=mark)


def read_fields(
    fields: ObjectReader, rules: parameters.ParsingRules, *, large: bool = False, mark: str = ""
) -> ChatRequest:
    """Read a request field by field; ``mark`` stands for lone surrogates in past messages."""
    _refuse_unsupported_fields(fields)
    fields, messages, tools, names, changes = _read_mended_messages_and_tools(fields, rules, mark)
    sent, unlisted = sift(without_router_fields(fields.values, rules), KNOWN)
    max_tokens, min_tokens = generation.read_length(fields)
    model, fallbacks = read_models(fields, rules)
    continues = read_parameter(fields, "continue_final_message") or False
    key = fields.get("prompt_cache_key")
    return ChatRequest(
        model=model,
        messages=messages,
        characters=plain_length(messages),
        stream=read_parameter(fields, "stream") or False,
        include_usage=_wants_usage(fields, rules),
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        n=read_parameter(fields, "n") or 1,
        sampling=generation.read_sampling(fields),
        stop=generation.read_stop(fields),
        stop_token_ids=generation.read_stop_token_ids(fields),
        ignore_eos=read_parameter(fields, "ignore_eos") or False,
        top_logprobs=generation.read_top_logprobs(fields),
        tools=tools,
        tool_choice=read_tool_choice(fields, tools),
        parallel_tool_calls=read_parameter(fields, "parallel_tool_calls"),
        output=generation.read_output(fields),
        thinking=generation.read_thinking(fields, rules),
        template_kwargs=kwargs.values if (kwargs := fields.child("chat_template_kwargs")) else {},
        documents=tuple(
            one.values for one in fields.objects("documents", most=parameters.MAX_DOCUMENTS)
        ),
        continue_final_message=continues,
        add_generation_prompt=_wants_generation_prompt(fields, continues, messages),
        session_id=read_parameter(fields, "session_id"),
        cache_key=key[: parameters.MAX_ID] or None if isinstance(key, str) else None,  # a hint
        large=large,
        fallbacks=fallbacks,
        preferences=read_preferences(fields) if rules.router else NO_PREFERENCES,
        unlisted=unlisted,
        function_names=names,
        changes=changes,
        strict=rules.reject_unknown,
        keeps_output_limit=rules.reject_long_output,
        params=_list_sent_parameters(fields),
        sent=sent,
    )


def without_router_fields(
    values: Mapping[str, Any], rules: parameters.ParsingRules
) -> Mapping[str, Any]:
    if not rules.router or ROUTER_FIELDS.isdisjoint(values):
        return values
    return {name: value for name, value in values.items() if name not in ROUTER_FIELDS}


def _list_sent_parameters(fields: ObjectReader) -> frozenset[str]:
    names = {name for name in parameters.HONOURED & fields.values.keys() if fields.has(name)}
    # Some clients always send `logprobs: false`.
    return frozenset(names - {"logprobs"} if fields.get("logprobs") is False else names)


def _read_mended_messages_and_tools(
    fields: ObjectReader, rules: parameters.ParsingRules, mark: str
) -> tuple[ObjectReader, tuple[Message, ...], tuple[Tool, ...], Mapping[str, str], Sequence[str]]:
    fields, messages, changes = _read_conversation(fields, rules, mark)
    fields, unlimited = generation.without_unlimited(fields)
    changes = (*unlimited, *changes)
    if rules.router and (unknown := unknown_preferences(fields, rules)):
        changes = (*unknown, *changes)
    tools = read_tools(fields)
    names = names_for_all(tools, messages)
    if not names:
        return fields, messages, tools, {}, changes
    fields = ObjectReader(with_names(fields.values, names), fields.path)
    return (
        fields,
        read_messages(enumerate(message_values(fields, rules))),
        read_tools(fields),
        {ours: name for name, ours in names.items()},
        (*changes, *name_changes(tools, names)),
    )


def _read_conversation(
    fields: ObjectReader, rules: parameters.ParsingRules, mark: str
) -> tuple[ObjectReader, tuple[Message, ...], Sequence[str]]:
    if mark:
        _refuse_marked_halves({**fields.values, "messages": None}, mark)
    values = message_values(fields, rules)
    if not mark:
        with suppress(InvalidRequest):
            messages = read_messages(enumerate(values))
            if not needs_mending(messages, values):
                return fields, messages, ()
    mended, changes = mend(values, mark)
    if mark:
        _refuse_marked_halves(mended, mark)
    messages = read_messages(mended)
    if changes:
        fields = ObjectReader({**fields.values, "messages": [value for _, value in mended]})
    return fields, messages, changes


def _refuse_marked_halves(content: object, mark: str) -> None:
    if mark.encode() in msgspec.json.encode(content):
        raise invalid_json(
            "The body is not valid JSON (an unpaired surrogate); send both halves of each "
            "surrogate pair in what is new: the last message of the user, and the parameters."
        )


def _refuse_unsupported_fields(fields: ObjectReader) -> None:
    if not parameters.REFUSED.keys().isdisjoint(fields.values):
        for name, advice in parameters.REFUSED.items():
            if fields.has(name):
                raise unsupported(name, advice)
    modalities = fields.array("modalities", most=8)
    if modalities is not None and modalities != ["text"]:
        raise unsupported("modalities", 'Replies are text; send ["text"] or leave it out.')


def _wants_usage(fields: ObjectReader, rules: parameters.ParsingRules) -> bool:
    # Without `stream` the usage is in the answer anyway.
    options = fields.child("stream_options")
    if options and options.boolean("include_usage"):
        return True
    usage = fields.child("usage") if rules.router else None
    return bool(usage and usage.boolean("include"))


def _wants_generation_prompt(
    fields: ObjectReader, continues: bool, messages: tuple[Message, ...]
) -> bool:
    wanted = read_parameter(fields, "add_generation_prompt")
    if not continues:
        return True if wanted is None else wanted
    if wanted:
        raise InvalidRequest(
            "`add_generation_prompt` begins a new message and `continue_final_message` goes on "
            "with the last one; send one of them.",
            param="continue_final_message",
        )
    last = messages[-1]
    if last.role != "assistant" or last.tool_calls:
        raise InvalidRequest(
            "`continue_final_message` needs an assistant message without `tool_calls` as the "
            f"last message; it has role {shown(last.role)}.",
            param="continue_final_message",
        )
    return False


class _Reply(Struct, frozen=True):
    include_usage: bool

    completion = staticmethod(completion)

    def encoder(self, context: ResponseContext) -> ChunkEncoder:
        return ChunkEncoder(context, usage=self.include_usage)


_REPLIES = (_Reply(False), _Reply(True))


def with_reply(request: ChatRequest) -> ParsedRequest:
    return ParsedRequest(request, _REPLIES[request.include_usage])


def _parse_fast_path(body: bytes, rules: parameters.ParsingRules) -> ParsedRequest | None:
    request = read_fast_path(body, rules) if len(body) <= LARGE else None
    return None if request is None else with_reply(request)


def _parse_request(
    body: bytes, rules: parameters.ParsingRules, _: Mapping[str, str]
) -> ParsedRequest:
    request = read_fast_path(body, rules) or _parse_slow_path(body, rules)
    return ParsedRequest(request, _REPLIES[request.include_usage])


CHAT_COMPLETIONS = Shape("chat", "/chat/completions", "chatcmpl-", _parse_request, _parse_fast_path)
