"""Types of the body of a Messages request, for the OpenAPI document.

Blocks and tools of other types, and fields that are not here, are dropped in the past and refused
or dropped in what is new; only a provider of this API gets them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, defstruct

from causerie.protocol.body_types import MAX_TOOLS, FunctionName, NotEmpty, Object
from causerie.protocol.parameters import HINTS, MAX_STOPS, PARAMETERS, Count, Stop

_Hint = Annotated[Any, Meta(description="Taken; dropped where nobody who answers knows it.")]
_HINTS = ("context_management", "mcp_servers", "service_tier", "cache_control")
_COUNTED = ("messages", "system", "tools", "tool_choice", "thinking", "output_config")


class Base64Source(Struct, tag_field="type", tag="base64"):
    media_type: Annotated[str, Meta(pattern="^image/[a-zA-Z0-9.+-]+$")]
    data: Annotated[str, Meta(pattern="^[A-Za-z0-9+/_-]+={0,2}$")]


class UrlSource(Struct, tag_field="type", tag="url"):
    url: Annotated[str, Meta(pattern="^https://[!-~]+$")]


class TextSource(Struct, tag_field="type", tag="text"):
    data: str


class _Cached(Struct, kw_only=True):
    cache_control: Any = None


class InputText(_Cached, tag_field="type", tag="text"):
    text: str


class InputImage(_Cached, tag_field="type", tag="image"):
    source: Base64Source | UrlSource


class InputDocument(_Cached, tag_field="type", tag="document"):
    """A document of text; it is shown to the model as text."""

    source: TextSource
    title: str | None = None
    context: str | None = None


class PastThinking(Struct, tag_field="type", tag="thinking"):
    """Thinking of an earlier reply, sent back; it is dropped if its text was changed."""

    thinking: str
    signature: str


class PastRedactedThinking(Struct, tag_field="type", tag="redacted_thinking"):
    data: str


class PastToolUse(_Cached, tag_field="type", tag="tool_use"):
    id: NotEmpty
    name: NotEmpty
    input: Object


class ToolResult(_Cached, tag_field="type", tag="tool_result"):
    tool_use_id: NotEmpty
    content: str | tuple[InputText | InputImage, ...] = ""
    is_error: bool | UnsetType = UNSET


class UserTurn(Struct, tag_field="role", tag="user"):
    content: str | tuple[InputText | InputImage | InputDocument | ToolResult, ...]


class AssistantTurn(Struct, tag_field="role", tag="assistant"):
    content: str | tuple[InputText | PastThinking | PastRedactedThinking | PastToolUse, ...]


class SystemTurn(Struct, tag_field="role", tag="system"):
    content: str | tuple[InputText, ...]


class ToolParam(_Cached):
    """A function that the model may call; its type is ``custom`` or left out."""

    name: FunctionName
    input_schema: Annotated[Object, Meta(description="A JSON Schema of type object.")]
    type: Literal["custom"] | None = None
    description: str | None = None
    strict: bool | None = None
    defer_loading: Annotated[
        bool | None, Meta(description="true: left out until a `tool_reference` names it.")
    ] = None


class AutoChoice(Struct, tag_field="type", tag="auto"):
    disable_parallel_tool_use: bool | None = None


class AnyChoice(AutoChoice, tag_field="type", tag="any"):
    pass


class NoChoice(Struct, tag_field="type", tag="none"):
    pass


class ToolNamed(Struct, tag_field="type", tag="tool"):
    name: FunctionName
    disable_parallel_tool_use: bool | None = None


class ThinkingEnabled(Struct, tag_field="type", tag="enabled"):
    budget_tokens: Count
    display: str | None = None


class ThinkingAdaptive(Struct, tag_field="type", tag="adaptive"):
    display: Annotated[
        str | None, Meta(description="omitted: the thinking is in its signature alone.")
    ] = None


class ThinkingDisabled(Struct, tag_field="type", tag="disabled"):
    pass


class OutputSchema(Struct, tag_field="type", tag="json_schema"):
    schema: Object


class OutputConfig(Struct):
    effort: Annotated[Any, Meta(description="A hint: low, medium, high, xhigh or max.")] = None
    format: OutputSchema | None = None


class ThreadCreate(Struct, tag_field="type", tag="create"):
    pass


Turns = Annotated[tuple[UserTurn | AssistantTurn | SystemTurn, ...], Meta(min_length=1)]
Tools = Annotated[tuple[ToolParam, ...], Meta(max_length=MAX_TOOLS)]
_Metadata = Annotated[
    Any, Meta(description="A hint: a text `user_id` names the end user, all else is dropped.")
]
_OWN: list[tuple[str, Any, Any]] = [
    ("system", str | tuple[InputText, ...] | None, None),
    ("tools", Tools | None, None),
    ("tool_choice", AutoChoice | AnyChoice | NoChoice | ToolNamed | None, None),
    ("thinking", ThinkingEnabled | ThinkingAdaptive | ThinkingDisabled | None, None),
    ("output_config", OutputConfig | None, None),
    ("stop_sequences", Annotated[tuple[Stop, ...], Meta(max_length=MAX_STOPS)] | None, None),
    ("metadata", _Metadata, None),
    ("thread", ThreadCreate | None, None),
]


def request_types() -> tuple[type[Struct], type[Struct]]:
    """Return the types of the request bodies for creating a message and for counting tokens."""
    model = PARAMETERS["model"].annotation
    required: list[Any] = [("model", model), ("messages", Turns)]
    same = [
        (name, each.optional, None)
        for name, each in PARAMETERS.items()
        if each.facts.messages == "" and not each.required and name not in _COUNTED
        and name not in ("max_tokens", *HINTS)
    ]  # fmt: skip
    hints = [(name, _Hint, None) for name in _HINTS]
    whole: list[Any] = [
        *required,
        ("max_tokens", PARAMETERS["max_tokens"].annotation),
        *_OWN,
        *same,
        *hints,
    ]
    counted: list[Any] = [each for each in _OWN if each[0] in _COUNTED]
    return (
        defstruct("MessagesRequest", whole, kw_only=True),
        defstruct("MessagesCountRequest", [*required, *counted], kw_only=True),
    )
