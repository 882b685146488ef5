"""Types of parameters as clients send them: messages, tools, response formats, and others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct, field

from causerie.protocol.targets import SortBy

MAX_PAST_CALLS = 1024
MAX_NAME = 256
MAX_FUNCTION_NAME = 1024
MAX_TOOLS = 128
MAX_OPTIONS = 4096
MAX_PROVIDER_NAMES = 64
MAX_INT32 = 2**31 - 1

Speaker = Annotated[str, Meta(max_length=MAX_NAME)]
SchemaName = Annotated[str, Meta(pattern="^[a-zA-Z0-9_-]{1,64}$")]
FunctionName = Annotated[str, Meta(min_length=1, max_length=MAX_FUNCTION_NAME)]
CalledName = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
NotEmpty = Annotated[str, Meta(min_length=1)]
Object = Mapping[str, Any]
ProviderNames = Annotated[tuple[NotEmpty, ...], Meta(max_length=MAX_PROVIDER_NAMES)]
Amount = Annotated[float, Meta(ge=0)] | str


def _list_schemas_requiring_non_null(*names: str) -> list[Mapping[str, object]]:
    return [{"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in names]


class ImageUrl(Struct):
    url: Annotated[
        str,
        Meta(pattern="^(data:image/[a-zA-Z0-9.+-]+;base64,[A-Za-z0-9+/_-]+={0,2}|https://[!-~]+)$"),
    ]
    detail: Literal["auto", "low", "high", "original"] | None = None


class TextContent(Struct, tag_field="type", tag="text"):
    text: str


class ImageContent(Struct, tag_field="type", tag="image_url"):
    image_url: ImageUrl


class RefusalContent(Struct, tag_field="type", tag="refusal"):
    refusal: str


TextParts = tuple[TextContent, ...]


class SystemMessage(Struct, tag_field="role", tag="system"):
    content: str | TextParts
    name: Speaker | None = None


class DeveloperMessage(Struct, tag_field="role", tag="developer"):
    content: str | TextParts
    name: Speaker | None = None


class UserMessage(Struct, tag_field="role", tag="user"):
    content: str | tuple[TextContent | ImageContent, ...]
    name: Speaker | None = None


class PastFunction(Struct):
    name: CalledName
    arguments: Annotated[str | None, Meta(description="The arguments as a JSON string.")] = None


class PastCall(Struct):
    id: CalledName
    function: PastFunction
    type: Literal["function"] | None = None
    index: Any = None
    extra_content: Annotated[
        Object | None, Meta(description="What its provider put alongside it and needs back.")
    ] = None


class AssistantMessage(Struct, tag_field="role", tag="assistant"):
    """A message of the model, sent back as it came."""

    extra_schema: ClassVar[Object] = {
        "anyOf": [
            *_list_schemas_requiring_non_null(
                "content", "refusal", "reasoning_content", "reasoning", "reasoning_details"
            ),
            {
                "required": ["tool_calls"],
                "properties": {"tool_calls": {"type": "array", "minItems": 1}},
            },
        ]
    }
    content: Annotated[
        str | tuple[TextContent | RefusalContent, ...] | None,
        Meta(description="May be null or left out where there are `tool_calls`."),
    ] = None
    name: Speaker | None = None
    refusal: Annotated[
        str | None, Meta(description="What it said instead, where there is no `content`.")
    ] = None
    reasoning_content: Annotated[
        str | None,
        Meta(description="The reasoning that came with the message; send it back unchanged."),
    ] = None
    reasoning: Annotated[str | None, Meta(description="Another name of `reasoning_content`.")] = (
        None
    )
    reasoning_details: Annotated[
        tuple[Object, ...] | None,
        Meta(description="Blocks of reasoning as they came; their provider needs them back."),
    ] = None
    tool_calls: Annotated[tuple[PastCall, ...], Meta(max_length=MAX_PAST_CALLS)] | None = None


class ToolMessage(Struct, tag_field="role", tag="tool"):
    content: str | tuple[TextContent | ImageContent, ...]
    tool_call_id: Annotated[str, Meta(description="The `id` of the call that the message answers.")]
    name: Speaker | None = None


AnyMessage = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage


class StreamOptions(Struct):
    include_usage: Annotated[bool | None, Meta(description="A last chunk tells the usage.")] = None
    include_obfuscation: Any = None


class FunctionDefinition(Struct):
    name: FunctionName
    description: str | None = None
    parameters: Annotated[Object | None, Meta(description="A JSON Schema of type object.")] = None
    strict: bool | None = None


class ToolDefinition(Struct, tag_field="type", tag="function"):
    function: FunctionDefinition


class FunctionReference(Struct):
    name: FunctionName


class NamedFunction(Struct, tag_field="type", tag="function"):
    function: FunctionReference


class AllowedFunctions(Struct):
    mode: Literal["auto", "required"]
    tools: Annotated[tuple[NamedFunction, ...], Meta(min_length=1, max_length=MAX_TOOLS)]


class AllowedTools(Struct, tag_field="type", tag="allowed_tools"):
    allowed_tools: AllowedFunctions


AnyToolChoice = Literal["none", "auto", "required"] | NamedFunction | AllowedTools


class TextFormat(Struct, tag_field="type", tag="text"):
    pass


class JsonObjectFormat(Struct, tag_field="type", tag="json_object"):
    schema_: Annotated[Object | None, Meta(description="A schema that the object follows.")] = (
        field(name="schema", default=None)
    )


class NamedSchema(Struct):
    schema_: Object = field(name="schema")
    name: SchemaName | None = None
    description: str | None = None
    strict: bool | None = None


class JsonSchemaFormat(Struct, tag_field="type", tag="json_schema"):
    json_schema: NamedSchema


AnyResponseFormat = TextFormat | JsonObjectFormat | JsonSchemaFormat


class StructuredOutputs(Struct):
    """Constraint of the output: a JSON Schema, a regex, a list of choices or a grammar."""

    extra_schema: ClassVar[Object] = {
        "oneOf": _list_schemas_requiring_non_null("json", "regex", "choice", "grammar")
    }
    json: Annotated[Object | bool | None, Meta(description="A JSON Schema.")] = None
    regex: NotEmpty | None = None
    choice: Annotated[tuple[NotEmpty, ...], Meta(min_length=1, max_length=MAX_OPTIONS)] | None = (
        None
    )
    grammar: NotEmpty | None = None


class PredictedText(Struct):
    type: Any = None
    text: Any = None


class Prediction(Struct):
    type: Any = None
    content: str | tuple[PredictedText, ...] | None = None


class SortOrder(Struct):
    by: SortBy | None = None


class PriceCeiling(Struct):
    """The most that a million tokens, and one request, may cost."""

    prompt: Amount | None = None
    completion: Amount | None = None
    request: Amount | None = None


class ProviderPreferences(Struct):
    """The providers that may answer, and their order."""

    order: Annotated[ProviderNames | None, Meta(description="These first, in this order.")] = None
    only: Annotated[ProviderNames | None, Meta(description="Nobody else.")] = None
    ignore: Annotated[ProviderNames | None, Meta(description="Not these.")] = None
    quantizations: ProviderNames | None = None
    allow_fallbacks: bool | None = None
    require_parameters: bool | None = None
    data_collection: Literal["allow", "deny"] | None = None
    zdr: bool | None = None
    sort: Annotated[SortBy | SortOrder | None, Meta(description="Strictly in this order.")] = None
    max_price: Annotated[
        PriceCeiling | None, Meta(description="For a million tokens, and for one request.")
    ] = None


class UsageInclusion(Struct):
    include: bool | None = None
