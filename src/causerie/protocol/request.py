"""A chat completion request, parsed: what the pipeline and every stage read.

``protocol.parsing`` makes it from the body and refuses what is wrong; from
there on nothing looks at the raw dictionary again, except an upstream that
gets it passed on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Role = Literal["system", "user", "assistant", "tool"]  # "developer" is read as "system"


@dataclass(frozen=True, slots=True)
class TextPart:
    text: str


@dataclass(frozen=True, slots=True)
class ImagePart:
    """An image as the client named it: a ``data:`` address (others are refused at parsing)."""

    url: str


Part = TextPart | ImagePart


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call in the history. ``arguments`` is the text as it came, valid JSON or not."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    role: Role
    content: str | tuple[Part, ...] | None = None
    reasoning_content: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None

    @property
    def text(self) -> str:
        """The content as one string; parts are joined, images left out."""
        if self.content is None or isinstance(self.content, str):
            return self.content or ""
        return "".join(part.text for part in self.content if isinstance(part, TextPart))


@dataclass(frozen=True, slots=True)
class Tool:
    """A function the model may call; ``parameters`` is a JSON Schema object."""

    name: str
    parameters: Mapping[str, object]
    description: str | None = None
    strict: bool | None = None


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Which calls may or must come.

    ``allowed`` is ``None`` for all tools, else the names the model may choose
    from (a named function is ``required`` with one allowed name).
    """

    mode: Literal["none", "auto", "required"] = "auto"
    allowed: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class JsonObject:
    """``response_format: json_object``: any JSON object."""


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """An answer by schema; ``param`` is where the schema stood in the body, for errors."""

    schema: Mapping[str, object] | bool
    name: str = "response"
    param: str = "response_format.json_schema.schema"


@dataclass(frozen=True, slots=True)
class Regex:
    pattern: str


@dataclass(frozen=True, slots=True)
class Choice:
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Grammar:
    """A grammar in Lark syntax (llguidance dialect) or GBNF."""

    text: str


OutputFormat = JsonObject | JsonSchema | Regex | Choice | Grammar


@dataclass(frozen=True, slots=True)
class Thinking:
    """The one setting behind ``enable_thinking``, ``reasoning_effort``, ``reasoning``
    and ``thinking_token_budget``; contradictions were refused at parsing.

    ``enabled`` ``None`` leaves it to the model; ``budget`` is in tokens;
    ``visible`` ``False`` keeps the reasoning out of the reply
    (``include_reasoning: false``, ``reasoning.exclude``).
    """

    enabled: bool | None = None
    effort: str | None = None
    budget: int | None = None
    visible: bool = True


@dataclass(frozen=True, slots=True)
class Draw:
    """How tokens are drawn, by the names of the wire; ``None`` is the model's default."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    seed: int | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """``top_logprobs`` is ``None`` when no log-probabilities were asked for."""

    model: str
    messages: tuple[Message, ...]
    stream: bool = False
    include_usage: bool = False
    max_tokens: int | None = None
    min_tokens: int = 0
    n: int = 1
    draw: Draw = Draw()
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    top_logprobs: int | None = None
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    parallel_tool_calls: bool = True
    output: OutputFormat | None = None
    thinking: Thinking = Thinking()
    template_kwargs: Mapping[str, object] = field(default_factory=dict)
    documents: tuple[Mapping[str, object], ...] = ()
    continue_final_message: bool = False
    add_generation_prompt: bool = True
    session_id: str | None = None
    unknown: tuple[str, ...] = ()  # top-level fields nobody here knows
    params: frozenset[str] = frozenset()  # names of the parameters that were given, as sent
