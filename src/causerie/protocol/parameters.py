"""Every parameter of a request, declared once, and the rules by which doors read them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from causerie.protocol import body_types, bounded_json
from causerie.protocol.declaration import Control, Facts, Parameter, declared

EFFORT_SHARES: Mapping[str, float] = {
    "max": 0.95, "xhigh": 0.95, "high": 0.8, "medium": 0.5, "low": 0.2, "minimal": 0.1, "none": 0.0,
}  # fmt: skip
"""Efforts, and the share of the output limit that each stands for."""
EFFORTS = tuple(EFFORT_SHARES)
USUAL_EFFORT = "medium"  # the effort of `reasoning: {"enabled": true}`
ASSUMED_OUTPUT_LIMIT = 16_384  # the limit in tokens that shares are of if none is known


def effort_within(budget: int, limit: int | None) -> str:
    """Return the greatest effort whose share of ``limit`` fits ``budget``; ``minimal`` at least."""
    most = limit or ASSUMED_OUTPUT_LIMIT
    for effort in ("xhigh", "high", "medium", "low"):
        if EFFORT_SHARES[effort] * most <= budget:
            return effort
    return "minimal"


# Readers and their messages, the fast path, known fields, the OpenAPI document, dialects, requests
# to engines, supported parameters, the probe, model defaults, the playground and the reference page
# are derived from here; see `docs/internals/design/events-and-shapes.md` and
# `docs/internals/change-one-thing.md`.

MAX_STOPS = 16
MAX_STOP_LENGTH = 1024
MAX_STOP_IDS = 128
MAX_DOCUMENTS = 4096
MAX_ID = 256
MAX_MODELS = 16

Count = Annotated[int, Meta(ge=1, le=body_types.MAX_INT32)]
OutputLimit = Annotated[
    int, Meta(ge=-1, le=body_types.MAX_INT32, extra_json_schema={"not": {"const": 0}})
]
"""Tokens; -1 is read as no limit, and 0 is refused."""
Natural = Annotated[int, Meta(ge=0, le=body_types.MAX_INT32)]
Temperature = Annotated[float, Meta(ge=0, le=2)]
TopP = Annotated[float, Meta(gt=0, le=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
ModelId = Annotated[str, Meta(min_length=1, max_length=MAX_ID)]
SessionId = Annotated[str, Meta(max_length=MAX_ID)]
Stop = Annotated[str, Meta(min_length=1, max_length=MAX_STOP_LENGTH)]
Stops = Annotated[tuple[Stop, ...], Meta(max_length=MAX_STOPS)]
Effort = Annotated[str, Meta(extra_json_schema={"enum": list(EFFORTS)})]
Empty = Annotated[tuple[Any, ...], Meta(max_length=0)]
TextOnly = Annotated[tuple[Literal["text"], ...], Meta(min_length=1, max_length=1)]

_UNSET = "default"


class SamplingDefaults(Struct, frozen=True, gc=False):
    """Sampling parameters of a model where a request does not set them.

    They stand in the order in which engines apply them.
    """

    temperature: Annotated[
        Temperature | None,
        Meta(description="0 is greedy; 1 is neutral."),
        Facts(
            origin="common", neutral=(1.0,), gguf="temp", control=Control(first=True, unset=_UNSET)
        ),
    ] = None
    top_k: Annotated[
        Annotated[int, Meta(ge=-1, le=body_types.MAX_INT32)] | None,
        Meta(description="0 and -1 are off."),
        Facts(
            origin="engines", neutral=(0, -1), effect="narrows", visible_at=1,
            control=Control(unset=_UNSET),
        ),
    ] = None  # fmt: skip
    top_p: Annotated[
        TopP | None,
        Meta(description="1 is off."),
        Facts(
            origin="common", neutral=(1.0,), effect="narrows", visible_at=0.01,
            control=Control(first=True, unset=_UNSET),
        ),
    ] = None  # fmt: skip
    min_p: Annotated[
        Annotated[float, Meta(ge=0, le=1)] | None,
        Meta(description="0 is off."),
        Facts(
            origin="engines", neutral=(0.0,), effect="narrows", visible_at=1.0,
            control=Control(unset=_UNSET),
        ),
    ] = None  # fmt: skip
    repetition_penalty: Annotated[
        Annotated[float, Meta(gt=0, le=10)] | None,
        Meta(description="1 is off."),
        Facts(
            origin="engines", neutral=(1.0,), effect="penalises", visible_at=2.0,
            engines={"llamacpp": "repeat_penalty"}, gguf="penalty_repeat",
            control=Control(unset=_UNSET),
        ),
    ] = None  # fmt: skip


class SamplingParams(SamplingDefaults, frozen=True, gc=False):
    """Sampling parameters of a request, as engines get them; ``None`` is the model's default."""

    frequency_penalty: Annotated[
        Penalty | None,
        Meta(description="Tokens are less likely the more often they occurred; 0 is off."),
        Facts(origin="common", neutral=(0.0,), effect="penalises", visible_at=2.0),
    ] = None
    presence_penalty: Annotated[
        Penalty | None,
        Meta(description="Tokens that occurred are less likely; 0 is off."),
        Facts(origin="common", neutral=(0.0,), effect="penalises", visible_at=2.0),
    ] = None
    seed: Annotated[
        Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None,
        Meta(description="Starts the random numbers of sampling. Not sent: random."),
        Facts(
            origin="openai", takes="a 64-bit integer", control=Control(first=True, unset="random")
        ),
    ] = None
    logit_bias: Annotated[
        Mapping[int, Annotated[float, Meta(ge=-100, le=100)]],
        Meta(
            description="Token ids, and what is added to their logits.",
            extra_json_schema={"propertyNames": {"pattern": "^[0-9]{1,9}$"}},
        ),
        Facts(
            origin="openai",
            neutral=({},),
            engines={"openvino": None},
            takes="token ids to numbers from -100 to 100",
        ),
    ] = {}


ModelSampling = SamplingDefaults | Literal["neutral"]
"""The setting of a model: values that go before its own recommendation, or neutral ones."""


class SamplingParameters(SamplingParams, frozen=True, gc=False):
    """Sampling parameters, log-probabilities and the number of choices."""

    logprobs: Annotated[
        bool | None,
        Meta(description="Returns the log-probability of each token of the answer."),
        Facts(origin="openai", neutral=(False,), responses="include", messages=None),
    ] = None
    top_logprobs: Annotated[
        Annotated[int, Meta(ge=0, le=20)] | None,
        Meta(description="Needs `logprobs: true`."),
        Facts(origin="openai", engines={"openvino": None}, messages=None),
    ] = None
    n: Annotated[
        Annotated[int, Meta(ge=1, le=16)] | None,
        Meta(description="How many choices the answer has."),
        Facts(origin="openai", neutral=(1,), responses=None, messages=None),
    ] = None


class ToolParameters(Struct):
    tools: Annotated[
        Annotated[tuple[body_types.ToolDefinition, ...], Meta(max_length=body_types.MAX_TOOLS)]
        | None,
        Meta(description="Functions that the model may call."),
        Facts(takes="up to 128 functions with unique names"),
    ] = None
    tool_choice: Annotated[
        body_types.AnyToolChoice | None,
        Meta(description="Whether the model calls functions, and which."),
        Facts(takes="`none`, `auto`, `required`, a named function, or `allowed_tools`"),
    ] = None
    parallel_tool_calls: Annotated[
        bool | None,
        Meta(
            description="false: one call at most; true: up to 32 in one message. Not sent: several "
            "where the model's own template shows messages with several calls, else one. With "
            "`tool_choice: required` also one where no marker of the family's ends its calls (as "
            "in Qwen's and Hermes' form): a model made to call does not stop by itself there. A "
            "call that repeats an earlier one of the same message (name and arguments) ends the "
            "message and is not delivered."
        ),
        Facts(origin="openai", messages="tool_choice.disable_parallel_tool_use"),
    ] = None


class FormatParameters(Struct):
    response_format: Annotated[
        body_types.AnyResponseFormat | None,
        Meta(description="A `schema` alongside `json_object` is followed."),
        Facts(
            takes="`text`, `json_object` or `json_schema`",
            responses="text.format",
            messages="output_config.format",
        ),
    ] = None
    structured_outputs: Annotated[
        body_types.StructuredOutputs | None,
        Meta(description="Constrains the text of the answer."),
        Facts(takes="one of `json`, `regex`, `choice`, `grammar`"),
    ] = None
    modalities: Annotated[
        TextOnly | None,
        Meta(description="Kinds of output: text alone."),
        Facts(neutral=(["text"],), router=True, responses=None, messages=None, takes='`["text"]`'),
    ] = None


class ReasoningBody(Struct):
    """The object ``reasoning`` of a request, which only doors of routers accept."""

    effort: Effort | None = None
    max_tokens: Annotated[Natural | None, Meta(description="Not alongside `effort`.")] = None
    exclude: Annotated[bool | None, Meta(description="Think, and do not show it.")] = None
    enabled: bool | None = None
    summary: Annotated[Annotated[str, Meta(max_length=64)] | None, Meta(description="A hint.")] = (
        None
    )


class ThinkingParameters(Struct):
    reasoning: Annotated[
        ReasoningBody | None,
        Meta(description="Belongs to router doors; others refuse it and say what to use."),
        Facts(router=True, takes="an object", messages="thinking"),
    ] = None
    reasoning_effort: Annotated[
        Effort | None,
        Meta(description="How much the model thinks; `none` turns thinking off."),
        Facts(
            takes=", ".join(f"`{word}`" for word in EFFORTS),
            responses="reasoning.effort",
            messages="output_config.effort",
        ),
    ] = None
    thinking_token_budget: Annotated[
        Natural | None,
        Meta(description="0 turns thinking off."),
        Facts(takes="tokens", messages="thinking.budget_tokens"),
    ] = None
    include_reasoning: Annotated[
        bool | None,
        Meta(description="false keeps the reasoning out of the answer."),
        Facts(messages="thinking.display"),
    ] = None
    chat_template_kwargs: Annotated[
        Annotated[
            body_types.Object,
            Meta(
                extra_json_schema={"properties": {"enable_thinking": {"type": ["boolean", "null"]}}}
            ),
        ]
        | None,
        Meta(description="Settings of the model's own template, `enable_thinking` among them."),
        Facts(takes="an object"),
    ] = None


class LengthParameters(Struct):
    max_tokens: Annotated[
        OutputLimit | None,
        Meta(description="The older name of `max_completion_tokens`; both must agree."),
        Facts(
            control=Control("Output limit", first=True, unset="none"),
            responses=None,
            takes="1 or more, or -1 for no limit",
        ),
    ] = None
    max_completion_tokens: Annotated[
        OutputLimit | None,
        Meta(description="Reasoning and answer together."),
        Facts(takes="1 or more, or -1 for no limit", responses="max_output_tokens", messages=None),
    ] = None
    min_tokens: Annotated[
        Natural | None,
        Meta(description="Nothing ends or cuts the answer before, not `stop` either."),
        Facts(origin="engines", neutral=(0,)),
    ] = None
    stop: Annotated[
        Stop | Stops | None,
        Meta(description="Texts that end the answer; they are not part of it."),
        Facts(
            origin="common", neutral=([],), takes="a string, or up to 16",
            messages="stop_sequences",
        ),
    ] = None  # fmt: skip
    stop_token_ids: Annotated[
        Annotated[tuple[Natural, ...], Meta(max_length=MAX_STOP_IDS)] | None,
        Meta(description="Tokens that end the answer."),
        Facts(origin="engines", neutral=([],), takes="up to 128 token ids"),
    ] = None
    ignore_eos: Annotated[
        bool | None,
        Meta(description="true: the model's own end token does not end the answer."),
        Facts(origin="engines", neutral=(False,)),
    ] = None


class ConversationParameters(Struct, kw_only=True):
    model: Annotated[
        ModelId,
        Meta(description="The id of a model that `GET /models` lists."),
        Facts(takes="Required"),
    ]
    messages: Annotated[
        Annotated[tuple[body_types.AnyMessage, ...], Meta(min_length=1)],
        Meta(description="The conversation so far, the oldest message first."),
        Facts(takes="Required: at least one, see below", responses="input"),
    ]
    stream: Annotated[
        bool | None, Meta(description="true: the answer comes in chunks, as server-sent events.")
    ] = None
    stream_options: Annotated[
        body_types.StreamOptions | None,
        Meta(description="What a stream has besides the answer."),
        Facts(takes="an object with `include_usage`: true or false", responses=None, messages=None),
    ] = None
    documents: Annotated[
        Annotated[tuple[body_types.Object, ...], Meta(max_length=MAX_DOCUMENTS)] | None,
        Meta(description="Refused where the model's template shows none."),
        Facts(neutral=([],), takes="objects"),
    ] = None
    continue_final_message: Annotated[
        bool | None,
        Meta(description="true: the answer continues the last message."),
        Facts(responses=None),
    ] = None
    add_generation_prompt: Annotated[
        bool | None,
        Meta(description="false: the prompt ends with the last message. Not sent: true."),
        Facts(responses=None),
    ] = None
    session_id: Annotated[
        SessionId | None, Meta(description="The header `x-session-id` says the same.")
    ] = None


class RouterParameters(Struct):
    """Parameters that a router reads itself; they go to no provider."""

    models: Annotated[
        Annotated[tuple[ModelId, ...], Meta(max_length=MAX_MODELS)] | None,
        Meta(description="Models to ask one after the other, `model` before them."),
    ] = None
    provider: Annotated[
        body_types.ProviderPreferences | None,
        Meta(description="The providers that may answer, and the order in which they are tried."),
    ] = None
    route: Annotated[
        Literal["fallback"] | None, Meta(description="Other models are tried in any case.")
    ] = None
    transforms: Annotated[Empty | None, Meta(description="Messages are never altered: empty.")] = (
        None
    )
    plugins: Annotated[Empty | None, Meta(description="Replies are never altered: empty.")] = None
    usage: Annotated[
        body_types.UsageInclusion | None,
        Meta(description="`include`: the usage at the end of a stream."),
        Facts(responses=None),
    ] = None


class HintParameters(Struct):
    """Parameters accepted with any value, since no answer depends on them.

    A provider that knows one gets it if its value has the type here.
    """

    user: str | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    service_tier: str | None = None
    prompt_cache_key: str | None = None
    prediction: Annotated[body_types.Prediction | None, Facts(responses=None)] = None
    verbosity: Annotated[str | None, Facts(responses="text.verbosity")] = None
    safety_identifier: str | None = None


GROUPS: tuple[tuple[str, type[Struct]], ...] = (
    ("Tools", ToolParameters),
    ("Response format", FormatParameters),
    ("Thinking", ThinkingParameters),
    ("Sampling", SamplingParameters),
    ("Length", LengthParameters),
    ("Other", ConversationParameters),
)
"""Groups of the parameters that are read and kept, the most telling first."""


PARAMETERS: Mapping[str, Parameter] = {
    each.name: each for _, group in GROUPS for each in declared(group)
}
"""Parameters that are read, checked and kept, by name."""

HINTS: Mapping[str, Parameter] = {each.name: each for each in declared(HintParameters)}
"""Parameters that are taken and dropped, by name."""

SAMPLING: tuple[Parameter, ...] = tuple(declared(SamplingParams))
"""Parameters that engines get, in the order in which they apply them."""

MODEL_SAMPLING: tuple[Parameter, ...] = tuple(declared(SamplingDefaults))
"""Parameters that a model can have a default for."""

NEUTRAL_SAMPLING = SamplingDefaults(**{each.name: each.facts.neutral[0] for each in MODEL_SAMPLING})
"""The model's own probabilities: nothing is cut off, nothing is penalised."""

USUAL_SAMPLING = SamplingDefaults(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05)
"""Defaults for a model without a recommendation: those of llama.cpp's server."""

LISTED_FIELDS: Mapping[str, Mapping[str, Any]] = tomllib.loads(
    Path(__file__).with_name("fields.toml").read_text("utf-8")
)
"""Fields of other APIs and servers: those that are refused, and privileged ones."""

REFUSED: Mapping[str, str] = LISTED_FIELDS["refused"]
"""Parameters of other servers that change the answer and are not offered: what to use instead."""


EXTENDED_SAMPLING = frozenset(each.name for each in SAMPLING if each.facts.origin == "engines")
"""Sampling parameters that OpenAI's reference does not have."""


def of_origin(*origins: str) -> frozenset[str]:
    return frozenset(name for name, each in PARAMETERS.items() if each.facts.origin in origins)


def asks_for_nothing(name: str, value: object) -> bool:
    parameter = PARAMETERS.get(name)
    return parameter is not None and value in parameter.facts.neutral


def refused_by(engine: str) -> frozenset[str]:
    return frozenset(
        name for name, each in PARAMETERS.items() if each.facts.engines.get(engine, name) is None
    )


class ParsingRules(Struct, frozen=True):
    """Rules by which a body is read: known fields, strictness, and bounds of work."""

    reasoning_object: bool = False  # the router's `reasoning` object is known
    router: bool = False  # `models`, `provider` and the like are known
    reject_unknown: bool = False  # refuses fields that are not known to who answers
    reject_long_output: bool = False  # refuses an output limit that does not fit beside the prompt
    max_messages: int = 4096
    work: bounded_json.Bounds = bounded_json.DEFAULT  # of decoding a body
    counting: bool = False  # only the tokens of the prompt are asked for


HINT_NAMES = frozenset(HINTS)  # taken and dropped: nothing in the answer depends on them

HONOURED = frozenset(PARAMETERS)  # read, checked, and kept
