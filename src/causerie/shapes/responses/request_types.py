"""Types of the body of a Responses request, for the OpenAPI document.

Items and tools of other types are dropped, and a message may leave its type out.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, defstruct, field

from causerie.protocol.body_types import MAX_TOOLS, FunctionName, Object, SchemaName
from causerie.protocol.declaration import declared
from causerie.protocol.parameters import HINTS, PARAMETERS, Count, Effort, OutputLimit

_Hint = Annotated[Any, Meta(description="A hint: taken and dropped.")]


class InputTextPart(Struct, tag_field="type", tag="input_text"):
    text: str


class InputImagePart(Struct, tag_field="type", tag="input_image"):
    image_url: Annotated[str, Meta(description="A `data:` address, or one of a public host.")]
    detail: Literal["auto", "low", "high", "original"] | None = None


class PastText(Struct, tag_field="type", tag="output_text"):
    text: str
    annotations: Any = None
    logprobs: Any = None


class PastRefusal(Struct, tag_field="type", tag="refusal"):
    refusal: str


InputPart = InputTextPart | InputImagePart | PastText | PastRefusal


class _Item(Struct, kw_only=True):
    id: str | None = None
    status: str | None = None


class InputMessage(_Item, tag_field="type", tag="message"):
    role: Literal["user", "assistant", "system", "developer"]
    content: str | tuple[InputPart, ...]


class InputReasoning(_Item, tag_field="type", tag="reasoning"):
    """Reasoning of an earlier reply, sent back; ``encrypted_content`` overrides other fields."""

    summary: tuple[Object, ...] | None = None
    content: tuple[Object, ...] | None = None
    encrypted_content: str | None = None


class PastFunctionCall(_Item, tag_field="type", tag="function_call"):
    call_id: str
    name: FunctionName
    arguments: Annotated[str, Meta(description="The arguments as a JSON string.")]
    namespace: str | None = None


class FunctionOutput(_Item, tag_field="type", tag="function_call_output"):
    call_id: str
    output: str | tuple[InputPart, ...]


class PastCustomCall(_Item, tag_field="type", tag="custom_tool_call"):
    call_id: str
    name: FunctionName
    input: str
    namespace: str | None = None


class CustomOutput(FunctionOutput, tag_field="type", tag="custom_tool_call_output"):
    pass


class FunctionTool(Struct, tag_field="type", tag="function"):
    name: FunctionName
    parameters: Annotated[Object | None, Meta(description="A JSON Schema of type object.")] = None
    description: str | None = None
    strict: bool | None = None


class ToolGrammar(Struct, tag_field="type", tag="grammar"):
    syntax: Literal["lark", "regex"]
    definition: str


class PlainInput(Struct, tag_field="type", tag="text"):
    pass


class CustomTool(Struct, tag_field="type", tag="custom"):
    """A tool that is called with plain text."""

    name: FunctionName
    description: str | None = None
    format: PlainInput | ToolGrammar | None = None


class NamespaceTool(Struct, tag_field="type", tag="namespace"):
    name: str
    tools: tuple[FunctionTool | CustomTool, ...]
    description: str | None = None


class SearchTool(Struct, tag_field="type", tag="tool_search"):
    """A search for tools; the client runs the search when the model calls it."""

    execution: Literal["client"]
    description: str | None = None
    parameters: Object | None = None


ResponseTool = FunctionTool | CustomTool | NamespaceTool | SearchTool


class MoreTools(Struct, tag_field="type", tag="additional_tools"):
    tools: tuple[ResponseTool, ...]
    role: Literal["developer"] | None = None


class SearchCall(Struct, tag_field="type", tag="tool_search_call"):
    call_id: str
    arguments: Any = None
    execution: Literal["client"] | None = None


class SearchOutput(Struct, tag_field="type", tag="tool_search_output"):
    call_id: str
    tools: tuple[ResponseTool, ...]
    execution: Literal["client"] | None = None


InputItem = (
    InputMessage
    | InputReasoning
    | PastFunctionCall
    | FunctionOutput
    | PastCustomCall
    | CustomOutput
    | MoreTools
    | SearchCall
    | SearchOutput
)


class PlainFormat(Struct, tag_field="type", tag="text"):
    pass


class ObjectFormat(Struct, tag_field="type", tag="json_object"):
    pass


class SchemaFormat(Struct, tag_field="type", tag="json_schema"):
    schema_: Object = field(name="schema")
    name: SchemaName | None = None
    description: str | None = None
    strict: bool | None = None


class TextSettings(Struct):
    format: PlainFormat | ObjectFormat | SchemaFormat | None = None
    verbosity: _Hint = None


class ReasoningSettings(Struct):
    effort: Effort | None = None
    summary: Annotated[
        str | None,
        Meta(description="`auto`, `concise` or `detailed`: reasoning is streamed, as a summary."),
    ] = None


class OwnFields(Struct, kw_only=True):
    """Fields of a Responses request that chat completions have in another form, or not at all."""

    input: Annotated[
        str | tuple[InputItem, ...], Meta(description="The conversation, the oldest item first.")
    ]
    instructions: Annotated[
        str | None, Meta(description="A message of the system before all others.")
    ] = None
    tools: Annotated[tuple[ResponseTool, ...], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: Annotated[
        Literal["none", "auto", "required"] | Object | None,
        Meta(description="Also a tool by `type` and `name`, or `allowed_tools`."),
    ] = None
    max_output_tokens: Annotated[
        OutputLimit | None, Meta(description="Reasoning and answer together.")
    ] = None
    max_tool_calls: Annotated[Count | None, Meta(description="Calls beyond it are left out.")] = (
        None
    )
    text: TextSettings | None = None
    reasoning: ReasoningSettings | None = None
    include: Annotated[
        tuple[str, ...] | None,
        Meta(description="`reasoning.encrypted_content`, `message.output_text.logprobs`."),
    ] = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    store: Annotated[bool | None, Meta(description="Nothing is stored: answered false.")] = None


def request_type() -> type[Struct]:
    own = {each.name for each in declared(OwnFields)}
    same = [
        each
        for each in PARAMETERS.values()
        if each.facts.responses == "" and not each.facts.router and each.name not in own
    ]
    required = [(each.name, each.annotation) for each in same if each.required]
    optional = [(each.name, each.optional, None) for each in same if not each.required]
    hints = [(name, _Hint, None) for name, each in HINTS.items() if each.facts.responses == ""]
    more: list[Any] = [one for one in (*required, *optional, *hints) if one[0] not in own]
    return defstruct("ResponsesRequest", more, bases=(OwnFields,), kw_only=True)
