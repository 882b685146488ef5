"""Types of the body of a reply: the response, its items and their parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from causerie.protocol.events import Usage
from causerie.shapes.chat_completions.encoder import TokenLogprobBody

# Field order is the order on the wire. `UNSET` fields are left out, `None` ones are `null`.

Status = Literal["in_progress", "completed", "incomplete", "failed"]
ItemStatus = Literal["in_progress", "completed", "incomplete"]


class OutputText(Struct, tag_field="type", tag="output_text", kw_only=True):
    text: str = ""
    annotations: tuple[()] = ()
    logprobs: Sequence[TokenLogprobBody] = ()


class SummaryText(Struct, tag_field="type", tag="summary_text"):
    text: str


class ReasoningText(Struct, tag_field="type", tag="reasoning_text"):
    text: str


class MessageItem(Struct, tag_field="type", tag="message", kw_only=True):
    id: str
    status: ItemStatus = "in_progress"
    role: Literal["assistant"] = "assistant"
    content: Sequence[OutputText] = ()


class ReasoningItem(Struct, tag_field="type", tag="reasoning", kw_only=True):
    id: str
    status: ItemStatus = "in_progress"
    summary: Sequence[SummaryText] = ()
    content: Sequence[ReasoningText] | UnsetType = UNSET
    encrypted_content: str | UnsetType = UNSET


class FunctionCallItem(Struct, tag_field="type", tag="function_call", kw_only=True):
    id: str
    status: ItemStatus = "in_progress"
    call_id: str
    name: str
    arguments: str = ""
    namespace: str | UnsetType = UNSET


class CustomCallItem(Struct, tag_field="type", tag="custom_tool_call", kw_only=True):
    id: str
    status: ItemStatus = "in_progress"
    call_id: str
    name: str
    input: str = ""
    namespace: str | UnsetType = UNSET


class SearchCallItem(Struct, tag_field="type", tag="tool_search_call", kw_only=True):
    id: str
    status: ItemStatus = "in_progress"
    call_id: str
    execution: Literal["client"] = "client"
    arguments: Any = {}


CallItem = FunctionCallItem | CustomCallItem | SearchCallItem
Item = MessageItem | ReasoningItem | CallItem


class InputTokenDetails(Struct, frozen=True, gc=False):
    cached_tokens: int
    cache_write_tokens: int = 0


class OutputTokenDetails(Struct, frozen=True, gc=False):
    reasoning_tokens: int


class ResponseUsage(Struct, frozen=True, gc=False, omit_defaults=True):
    """``cost`` is there at the doors of routers, in money of the service."""

    input_tokens: int
    input_tokens_details: InputTokenDetails
    output_tokens: int
    output_tokens_details: OutputTokenDetails
    total_tokens: int
    cost: float | None = None


class IncompleteDetails(Struct, frozen=True):
    reason: Literal["max_output_tokens", "content_filter"]


class Failure(Struct, frozen=True):
    code: str
    message: str


class Echo(Struct, frozen=True, kw_only=True):
    """The fields of a response that say again what the request set."""

    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    metadata: Mapping[str, Any] = {}
    parallel_tool_calls: bool = True
    prompt_cache_key: str | None = None
    reasoning: Mapping[str, Any] | None = None
    safety_identifier: str | None = None
    temperature: float = 1.0
    text: Mapping[str, Any] = {}
    tool_choice: Any = "auto"
    tools: Sequence[Any] = ()
    top_logprobs: int = 0
    top_p: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    user: str | UnsetType = UNSET


class ResponseBody(Echo, frozen=True, kw_only=True):
    """A response, while it is made and when it is complete."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    completed_at: int | None = None
    status: Status = "in_progress"
    background: Literal[False] = False
    error: Failure | None = None
    incomplete_details: IncompleteDetails | None = None
    model: str
    output: Sequence[Item] = ()
    previous_response_id: None = None
    service_tier: str = "default"
    store: Literal[False] = False
    truncation: Literal["disabled"] = "disabled"
    usage: ResponseUsage | None = None
    verified: bool | UnsetType = UNSET
    """False if checking the reply against its format took too much work."""


class InputTokens(Struct, frozen=True):
    """Tokens of a prompt."""

    input_tokens: int
    object: Literal["response.input_tokens"] = "response.input_tokens"


class ResponseEvent(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An event of a stream, with the fields that its type has."""

    type: str
    sequence_number: int
    response: ResponseBody | None = None
    item: Item | None = None
    part: OutputText | SummaryText | None = None
    item_id: str | None = None
    output_index: int | None = None
    content_index: int | None = None
    summary_index: int | None = None
    delta: str | None = None
    text: str | None = None
    logprobs: Sequence[TokenLogprobBody] | None = None
    name: str | None = None
    arguments: str | None = None
    input: str | None = None
    error: Any = None


def usage_of(usage: Usage, cost: Callable[[Usage], float] | None) -> ResponseUsage:
    return ResponseUsage(
        usage.prompt,
        InputTokenDetails(usage.cached, usage.written),
        usage.completion,
        OutputTokenDetails(usage.reasoning),
        usage.prompt + usage.completion,
        None if cost is None else cost(usage),
    )
