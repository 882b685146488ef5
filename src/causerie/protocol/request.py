"""A parsed chat completion request, as all stages read it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Annotated, Any, Literal
from urllib.parse import quote

import msgspec
from msgspec import Meta, Struct, structs

from causerie.errors import InvalidRequest
from causerie.protocol.parameters import Count, ModelId, SamplingParams, Temperature, TopP
from causerie.protocol.targets import NO_PREFERENCES, UNBOUNDED_TOKENS, Preferences, TokenBounds


class Labels(Struct, frozen=True):
    """What a client says of itself and its request: program, trace, usage tag; all optional."""

    app: str = ""  # name of the program
    referer: str = ""  # address of the program
    traceparent: str = ""  # its place in a trace of its own, as sent; so is `tracestate`
    tracestate: str = ""
    tag: str = ""  # what the request is for; usage is summed by it


UNLABELLED = Labels()

Operation = Literal["chat", "embeddings", "rerank", "completions"]
"""What a request asks of a model; all but ``chat`` pass through."""


class PassedBody(Struct, frozen=True, gc=False):
    """Operation and estimated input of a body that passes through: embeddings, rerank, text."""

    operation: Operation
    tokens: int  # estimated tokens of its input
    units: int = 0  # estimated search units of a rerank


# Objects made for every request are in no reference cycle, so the garbage collector skips them.

Role = Literal["system", "user", "assistant", "tool"]  # "developer" is read as "system"
ROLES: Mapping[str, Role] = {
    **{"system": "system", "developer": "system"},
    **{"user": "user", "assistant": "assistant", "tool": "tool"},
}


class TextPart(Struct, frozen=True, tag="text"):
    text: str


class ImagePart(Struct, frozen=True, tag="image"):
    """An image by its ``data:`` or ``https:`` address; the latter is never fetched here."""

    url: str
    optional: bool = False  # a tool returned it: a model of our own without images goes without it

    @property
    def enclosed(self) -> bool:
        return self.url.startswith("data:")


Part = TextPart | ImagePart


class ToolCall(Struct, frozen=True):
    """A call in the history. ``arguments`` is the text as it came, valid JSON or not."""

    id: str
    name: str
    arguments: str


class Message(Struct, frozen=True, gc=False):
    role: Role
    content: str | tuple[Part, ...] | None = None
    reasoning_content: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None

    @property
    def text(self) -> str:
        """Return the content as one string; parts are joined, images left out."""
        if self.content is None or isinstance(self.content, str):
            return self.content or ""
        return "".join(part.text for part in self.content if isinstance(part, TextPart))


class Tool(Struct, frozen=True):
    """A function the model may call; ``parameters`` is a JSON Schema object."""

    name: str
    parameters: Mapping[str, object]
    description: str | None = None
    strict: bool | None = None
    grammar: str | None = None  # Lark grammar of its only argument, a text


class ToolChoice(Struct, frozen=True):
    """Constraint on the calls of a reply."""

    mode: Literal["none", "auto", "required"] = "auto"
    allowed: tuple[str, ...] | None = None
    """Names of the allowed tools, ``None`` for all; a named function is one with ``required``."""


class JsonObject(Struct, frozen=True):
    """``response_format: json_object``: any JSON object."""


class JsonSchema(Struct, frozen=True):
    """An answer by schema; ``param`` is where the schema stood in the body, for errors."""

    schema: Mapping[str, object] | bool
    name: str = "response"
    param: str = "response_format.json_schema.schema"


class Regex(Struct, frozen=True):
    pattern: str


class TextChoice(Struct, frozen=True):
    options: tuple[str, ...]


class Grammar(Struct, frozen=True):
    """A grammar in Lark syntax (llguidance dialect) or GBNF."""

    text: str


OutputFormat = JsonObject | JsonSchema | Regex | TextChoice | Grammar


class Thinking(Struct, frozen=True, gc=False):
    """Reasoning that a request asks for: whether, how much and how visibly."""

    enabled: bool | None = None  # `None` leaves it to the model
    effort: str | None = None
    budget: int | None = None  # in tokens
    visible: bool = True  # `False` keeps the reasoning out of the reply
    usual_effort: str | None = None  # the effort that `reasoning: {"enabled": true}` stands for
    adaptive: bool = False  # the model decides, and a provider that has a word for that is told


class Unread(Struct, frozen=True, gc=False):
    """The fields of a request as they were sent; converted to a mapping only on demand."""

    def document(self) -> Mapping[str, object]:
        return msgspec.json.decode(msgspec.json.encode(self), type=dict[str, object])


class Unlisted(Struct, frozen=True, gc=False):
    """Fields of a body that are not known to any reader, at any depth."""

    body: Mapping[str, object]  # all of the body as sent, with these fields
    names: tuple[str, ...] = ()  # names of the first ones that are not `null`
    more: int = 0  # number of the others

    @property
    def changes(self) -> Sequence[str]:
        told = [f"{quote(name[:64], safe='[]$@:')} dropped" for name in self.names]
        return [*told, f"{self.more} more unknown fields dropped"] if self.more else told


class NativeRequest(Struct, frozen=True, gc=False):
    """A request as it was sent, for a provider that speaks the same API as the client."""

    shape: str  # name of the API
    sent: Mapping[str, object] | Unread
    headers: Mapping[str, str] = {}  # headers that belong to the API
    unsealed: Mapping[str, object] | None = None  # for servers that cannot read what is sealed here
    left_out: Sequence[str] = ()  # the report of what it lacks

    @property
    def body(self) -> Mapping[str, object]:
        """Return all of the body; keep the result: a second call may decode again."""
        return self.sent.document() if isinstance(self.sent, Unread) else self.sent


class UnreadParts(Struct):
    """Parts of a request that only a provider of the client's own API can read."""

    refused: InvalidRequest | None = None  # what all other targets answer to the new ones of them
    tokens: int = 0
    addresses: dict[str, str] = {}  # that such a provider would fetch, by their fields

    def add(self, part: Mapping[str, Any], place: str) -> None:
        addresses, source = self.note_addresses(part, place), part.get("source")
        if addresses or "file_id" in part or (isinstance(source, dict) and "file_id" in source):
            is_image = "image" in str(part.get("type"))
            self.tokens += _IMAGE_TOKENS if is_image else _MOST_OF_A_PART  # of an unknown size
        else:
            self.tokens += min(_estimate_json_tokens(part), _MOST_OF_A_PART)

    def note_addresses(self, part: Mapping[str, Any], place: str) -> Mapping[str, str]:
        found = dict(_find_addresses_to_fetch(part, place))
        self.addresses.update(found)
        return found


def _find_addresses_to_fetch(json_value: object, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(json_value, list):
        for at, each in enumerate(json_value):
            yield from _find_addresses_to_fetch(each, f"{path}[{at}]")
    elif isinstance(json_value, dict):
        is_holder = path.endswith((".source", ".image_url"))
        for name, each in json_value.items():
            if not isinstance(each, str):
                yield from _find_addresses_to_fetch(each, f"{path}.{name}")
            elif (name in _ADDRESSES or (is_holder and name == "url")) and each[:5] != "data:":
                yield f"{path}.{name}", each


class ChatRequest(Struct, frozen=True, gc=False):
    """A parsed request; if its body is ``passed`` through, it has no messages, only ``sent``."""

    model: str
    messages: tuple[Message, ...]
    characters: int | None = None  # of the messages, where these are nothing but ASCII text
    stream: bool = False
    include_usage: bool = False
    max_tokens: int | None = None
    min_tokens: int = 0
    n: int = 1
    sampling: SamplingParams = SamplingParams()
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    top_logprobs: int | None = None  # `None`: no log-probabilities are asked for
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    parallel_tool_calls: bool | None = None  # not sent: as the model is known to write them
    output: OutputFormat | None = None
    thinking: Thinking = Thinking()
    template_kwargs: Mapping[str, object] = {}
    documents: tuple[Mapping[str, object], ...] = ()
    continue_final_message: bool = False
    add_generation_prompt: bool = True
    session_id: str | None = None
    cache_key: str | None = None  # names requests whose prompts begin alike
    cache_scope: str = ""  # requests of other scopes reuse nothing of its prompt; set by doors
    large: bool = False  # work on it takes so long that it is offloaded
    fallbacks: tuple[str, ...] = ()  # models to ask where ``model`` does not answer
    preferences: Preferences = NO_PREFERENCES
    bounds: TokenBounds = UNBOUNDED_TOKENS  # of whoever is asked
    unlisted: Unlisted | None = None
    function_names: Mapping[str, str] = {}  # client's names of functions, where ours differ
    changes: Sequence[str] = ()  # made while it was parsed: repairs, names, dropped preferences
    strict: bool = False  # unlisted fields are refused, not dropped
    keeps_output_limit: bool = False  # one that does not fit is refused, not lowered
    params: frozenset[str] = frozenset()  # names of the parameters that were given, as sent
    # The fields of the body that are known, as they came, to be passed on to providers.
    sent: Mapping[str, object] | Unread = {}
    native: NativeRequest | None = None
    unread: UnreadParts | None = None
    hints: frozenset[str] = frozenset()  # parameters that are dropped where a model lacks them
    lenient_tools: bool = False  # a schema that cannot be enforced is none, unless it is demanded
    passed: PassedBody | None = None
    wildcard: str = ""  # the part of ``model`` that the `*` of a target stands for

    @property
    def operation(self) -> Operation:
        return "chat" if self.passed is None else self.passed.operation

    @property
    def document(self) -> Mapping[str, object]:
        """Return the known fields as sent; keep the result: a second call may decode again."""
        return self.sent.document() if isinstance(self.sent, Unread) else self.sent

    @property
    def whole(self) -> Mapping[str, object]:
        return self.document if self.unlisted is None else self.unlisted.body

    def check_translated(self) -> None:
        """Raise :class:`InvalidRequest` if parts of the request exist in the client's API alone."""
        if self.unread is not None and (refused := self.unread.refused) is not None:
            raise InvalidRequest(refused.message, code=refused.code, param=refused.param)

    def without_optional_images(self) -> tuple[ChatRequest, Sequence[str]]:
        """Return the request with words in place of optional images, and the list of changes."""
        places = [place for place, image in images(self.messages) if image.optional]
        if not places:
            return self, ()
        words = TextPart("(an image that cannot be shown)")
        messages = with_images(self.messages, lambda one: words if one.optional else one)
        return structs.replace(self, messages=messages), [f"{place} dropped" for place in places]

    def without_hints(self, supported: frozenset[str]) -> ChatRequest:
        lacking = (self.hints & self.params) - supported
        if not lacking:
            return self
        sent = {name: value for name, value in self.document.items() if name not in lacking}
        return structs.replace(
            self,
            params=self.params - lacking,
            sent=sent,
            changes=(*self.changes, *(f"{name} dropped" for name in sorted(lacking))),
            thinking=self.thinking
            if lacking <= {"parallel_tool_calls"}
            else Thinking(visible=self.thinking.visible),
            parallel_tool_calls=None
            if "parallel_tool_calls" in lacking
            else self.parallel_tool_calls,
        )

    def within(self, bounds: TokenBounds) -> ChatRequest:
        """Return the request for a target with these bounds; a higher output limit is lowered."""
        if bounds is UNBOUNDED_TOKENS:
            return self
        asked, least, most = self.max_tokens, self.min_tokens, bounds.max_output_tokens
        if most is None or max(asked or 0, least) <= most:
            return structs.replace(self, bounds=bounds)
        return structs.replace(
            self,
            bounds=bounds,
            max_tokens=asked and min(asked, most),
            min_tokens=min(least, most),
            sent=self.document,
        )


class FastMessage(Message, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A message of plain text; the other fields of messages are absent or ``null``."""

    role: Literal["system", "user", "assistant"]
    content: str
    reasoning_content: None = None
    tool_calls: tuple[()] = ()
    tool_call_id: None = None
    name: None = None


class FastStreamOptions(Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    include_usage: bool | None = None


class FastFields(Unread, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """Fields of a plain chat request, decoded in one step, which may be encoded again."""

    model: ModelId
    messages: Annotated[tuple[FastMessage, ...], Meta(min_length=1)]
    stream: bool | None = None
    stream_options: FastStreamOptions | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None


def images(messages: Sequence[Message]) -> Iterator[tuple[str, ImagePart]]:
    for index, message in enumerate(messages):
        if isinstance(message.content, tuple):
            for at, part in enumerate(message.content):
                if isinstance(part, ImagePart):
                    yield f"messages[{index}].content[{at}]", part


def with_images(
    messages: Iterable[Message], changed: Callable[[ImagePart], Part]
) -> tuple[Message, ...]:
    return tuple(
        structs.replace(
            message,
            content=tuple(
                changed(part) if isinstance(part, ImagePart) else part for part in message.content
            ),
        )
        if isinstance(message.content, tuple)
        else message
        for message in messages
    )


def not_fetched(param: str) -> InvalidRequest:
    return InvalidRequest(
        "What serves this model fetches no images and files; send it itself, as a `data:` address.",
        code="unsupported_parameter",
        param=param,
    )


def without_billing_line(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return the messages without the ``x-anthropic-billing-header`` line of a system message."""
    for at, message in enumerate(takewhile(lambda one: one.role == "system", messages)):
        if message.text.startswith("x-anthropic-billing-header:"):
            content: str | tuple[Part, ...] = message.content or ""
            if isinstance(content, str):
                content = _remove_first_line(content)
            else:
                first, *others = content
                left = _remove_first_line(first.text) if isinstance(first, TextPart) else ""
                content = (TextPart(left), *others) if left else tuple(others)
            kept = structs.replace(message, content=content)
            # A request has at least one message.
            rest = (kept,) if kept.text or len(messages) == 1 else ()
            return (*messages[:at], *rest, *messages[at + 1 :])
    return messages


def _remove_first_line(text: str) -> str:
    return text.partition("\n")[2].lstrip("\n")


# No tokenizer is used: the target is not chosen yet, and a provider's tokenizer is not known. The
# estimate sizes reservations, and is charged if a provider never reports tokens:
#
# - a token for each four characters of ASCII text, and for each three bytes of other UTF-8;
# - four more a message, for the template's markers, and 1,024 an image;
# - tools, schemas and documents by the size of their JSON, and so is what only a provider of the
#   same API reads: each part of it by 32,768 at most, and by just that if it is a file that stands
#   elsewhere, by its id or address;
# - the output that was allowed, for each choice; 1,024 if no limit is named.

UNNAMED_OUTPUT = 1024
_IMAGE_TOKENS = 1024
_MESSAGE_TOKENS = 4
_MOST_OF_A_PART = 32_768
_ADDRESSES = frozenset({"file_url", "image_url"})


def prompt_estimate(request: ChatRequest) -> int:
    if request.passed is not None:
        return request.passed.tokens
    tokens = _MESSAGE_TOKENS * len(request.messages)
    if request.unread is not None:
        tokens += request.unread.tokens
    if request.characters is not None:
        tokens -= -request.characters // 4
    else:
        tokens += sum(map(_estimate_message_tokens, request.messages))
    if request.tools or request.documents or request.output is not None:
        tokens += _estimate_non_message_tokens(request)
    return tokens


def output_estimate(request: ChatRequest) -> int:
    """Return the output limit of all choices together, assuming 1,024 tokens each if unset."""
    tokens = request.max_tokens
    if tokens is None:
        most = request.bounds.max_output_tokens
        tokens = UNNAMED_OUTPUT if most is None else min(UNNAMED_OUTPUT, most)
    return tokens * request.n


def _estimate_non_message_tokens(request: ChatRequest) -> int:
    tokens = sum(map(_estimate_json_tokens, request.documents))
    for tool in request.tools:
        tokens += text_tokens(tool.name) + text_tokens(tool.description)
        tokens += _estimate_json_tokens(tool.parameters)
    if isinstance(request.output, JsonSchema):
        tokens += _estimate_json_tokens(request.output.schema)
    return tokens


def _estimate_message_tokens(message: Message) -> int:
    content = message.content
    tokens = 0
    if isinstance(content, str):
        tokens = text_tokens(content)
    elif content:
        for part in content:
            tokens += _IMAGE_TOKENS if isinstance(part, ImagePart) else text_tokens(part.text)
    for call in message.tool_calls:
        tokens += text_tokens(call.name) + text_tokens(call.arguments)
    return tokens + text_tokens(message.reasoning_content)


def _estimate_json_tokens(json_value: object) -> int:
    return -(-len(msgspec.json.encode(json_value)) // 4)


def text_tokens(text: str | None) -> int:
    if not text:
        return 0
    if text.isascii():
        return -(-len(text) // 4)
    return -(-len(text.encode("utf-8", "surrogatepass")) // 3)
