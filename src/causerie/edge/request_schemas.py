"""Accepted requests as JSON Schema: the same rules as those of ``protocol.parsing``.

A test gives every place of a request every odd value and holds the answers to it.
"""

from __future__ import annotations

from causerie.edge.schema import (
    BOOLEAN,
    FUNCTION_NAME,
    OBJECT,
    SPEAKER,
    Schema,
    array,
    described,
    integer,
    number,
    ref,
    structure,
    taken,
    text,
)
from causerie.protocol.effort import EFFORTS
from causerie.protocol.parsing import HINTS

_MAX_INT32 = 2**31 - 1


def request_schemas(max_messages: int) -> dict[str, Schema]:
    """Schemas of what is taken."""
    return {
        "ChatRequest": _chat_request(max_messages),
        **_message_schemas(),
        **_tool_schemas(),
        "ResponseFormat": _response_format(),
        "StructuredOutputs": _structured_outputs(),
    }


def _message_schemas() -> dict[str, Schema]:
    return {
        "Message": {
            "oneOf": [
                ref("PlainMessage"),
                ref("UserMessage"),
                ref("AssistantMessage"),
                ref("ToolMessage"),
            ],
        },
        "PlainMessage": taken(
            "role content",
            role=text(enum=["system", "developer"]),
            content={"oneOf": [text(), array(ref("TextPart"))]},
            name=SPEAKER,
        ),
        "UserMessage": taken(
            "role content",
            role=text(enum=["user"]),
            content={"oneOf": [text(), array({"oneOf": [ref("TextPart"), ref("ImagePart")]})]},
            name=SPEAKER,
        ),
        "AssistantMessage": _assistant_message(),
        "ToolMessage": taken(
            "role content tool_call_id",
            role=text(enum=["tool"]),
            content={"oneOf": [text(), array(ref("TextPart"))]},
            tool_call_id=described(text(), "The `id` of the call that the message answers."),
            name=SPEAKER,
        ),
        "TextPart": taken("type text", type=text(enum=["text"]), text=text()),
        "RefusalPart": taken("type refusal", type=text(enum=["refusal"]), refusal=text()),
        "ImagePart": taken(
            "type image_url",
            type=text(enum=["image_url"]),
            image_url=taken(
                "url",
                url=text(
                    pattern="^(data:image/[a-zA-Z0-9.+-]+;base64,[A-Za-z0-9+/_-]+={0,2}"
                    "|https://[!-~]+)$"
                ),
                detail=text(enum=["auto", "low", "high", "original"]),
            ),
        ),
    }


def _assistant_message() -> Schema:
    """Return the schema of an assistant message; content is optional with calls or reasoning."""
    message = taken(
        "role",
        role=text(enum=["assistant"]),
        name=SPEAKER,
        content={
            "oneOf": [text(), array({"oneOf": [ref("TextPart"), ref("RefusalPart")]})],
            "description": "May be null or left out where there are `tool_calls`.",
        },
        refusal=described(text(), "What it said instead, where there is no `content`."),
        reasoning_content=described(
            text(), "The reasoning that came with the message; send it back unchanged."
        ),
        reasoning_details=described(
            array(OBJECT), "Blocks of reasoning as they came; their provider needs them back."
        ),
        tool_calls=array(ref("PastCall"), maxItems=1024),
    )
    said = ("content", {"not": {"type": "null"}})
    refused = ("refusal", {"type": "string"})
    called = ("tool_calls", {"type": "array", "minItems": 1})
    thought = ("reasoning_content", {"type": "string"})
    thought_in_blocks = ("reasoning_details", {"type": "array"})
    return {
        **message,
        "anyOf": [
            {"required": [name], "properties": {name: schema}}
            for name, schema in (said, refused, called, thought, thought_in_blocks)
        ],
    }


def _tool_schemas() -> dict[str, Schema]:
    extra = described(OBJECT, "What its provider put alongside it and needs back.")
    arguments = described(text(), "The arguments as a JSON string.")
    called = text(minLength=1, maxLength=256)
    return {
        "ToolCall": structure(
            "id type function",
            id=called,
            type=text(enum=["function"]),
            function=structure(
                "name arguments", name=called, arguments=arguments, extra_content=extra
            ),
        ),
        "PastCall": taken(
            "id function",
            id=called,
            type=text(enum=["function"]),
            function=taken("name", name=called, arguments=arguments, extra_content=extra),
        ),
        "Tool": taken(
            "type function",
            type=text(enum=["function"]),
            function=taken(
                "name",
                name=FUNCTION_NAME,
                description=text(),
                parameters=described(OBJECT, "A JSON Schema of type object."),
                strict=BOOLEAN,
            ),
        ),
        "NamedFunction": taken(
            "type function",
            type=text(enum=["function"]),
            function=taken("name", name=FUNCTION_NAME),
        ),
        "ToolChoice": _tool_choice(),
    }


def _chat_request(max_messages: int) -> Schema:
    return taken(
        "model messages",
        model=text(minLength=1, maxLength=256),
        messages=array(ref("Message"), minItems=1, maxItems=max_messages),
        stream=BOOLEAN,
        stream_options=taken(include_usage=BOOLEAN),
        **_length_and_sampling(),
        **_thinking(),
        logprobs=BOOLEAN,
        top_logprobs=integer(0, 20, description="Needs `logprobs: true`."),
        tools=array(ref("Tool"), maxItems=128),
        tool_choice=ref("ToolChoice"),
        parallel_tool_calls=BOOLEAN,
        response_format=ref("ResponseFormat"),
        structured_outputs=ref("StructuredOutputs"),
        documents=array(OBJECT, maxItems=4096),
        continue_final_message=BOOLEAN,
        add_generation_prompt=BOOLEAN,
        session_id=text(maxLength=256),
        **{name: described({}, "A hint: taken and dropped.") for name in sorted(HINTS)},
    )


def _length_and_sampling() -> dict[str, Schema]:
    return {
        "max_completion_tokens": integer(1, _MAX_INT32),
        "max_tokens": integer(
            1, _MAX_INT32, description="The older name of `max_completion_tokens`."
        ),
        "min_tokens": integer(0, _MAX_INT32),
        "n": integer(1, 16),
        "temperature": number(0, 2),
        "top_p": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        "top_k": integer(-1, _MAX_INT32),
        "min_p": number(0, 1),
        "repetition_penalty": {"type": "number", "exclusiveMinimum": 0, "maximum": 10},
        "frequency_penalty": number(-2, 2),
        "presence_penalty": number(-2, 2),
        "seed": integer(-(2**63), 2**63 - 1),
        "logit_bias": {
            "type": "object",
            "propertyNames": {"pattern": "^[0-9]{1,9}$"},
            "additionalProperties": number(-100, 100),
        },
        "stop": {
            "oneOf": [
                text(minLength=1, maxLength=1024),
                array(text(minLength=1, maxLength=1024), maxItems=16),
            ]
        },
        "stop_token_ids": array(integer(0, _MAX_INT32), maxItems=128),
        "ignore_eos": BOOLEAN,
    }


def _thinking() -> dict[str, Schema]:
    return {
        "reasoning_effort": text(enum=list(EFFORTS)),
        "thinking_token_budget": integer(0, _MAX_INT32),
        "include_reasoning": BOOLEAN,
        "chat_template_kwargs": {
            **taken(enable_thinking=BOOLEAN),
            "description": "Settings of the model's own template.",
        },
    }


def _tool_choice() -> Schema:
    allowed = taken(
        "mode tools",
        mode=text(enum=["auto", "required"]),
        tools=array(ref("NamedFunction"), minItems=1, maxItems=128),
    )
    return {
        "oneOf": [
            text(enum=["none", "auto", "required"]),
            ref("NamedFunction"),
            taken("type allowed_tools", type=text(enum=["allowed_tools"]), allowed_tools=allowed),
        ]
    }


def _response_format() -> Schema:
    schema = taken("schema", name=FUNCTION_NAME, description=text(), strict=BOOLEAN, schema=OBJECT)
    return {
        "oneOf": [
            taken("type", type=text(enum=["text", "json_object"])),
            taken("type json_schema", type=text(enum=["json_schema"]), json_schema=schema),
        ]
    }


def _structured_outputs() -> Schema:
    shapes: dict[str, Schema] = {
        "json": OBJECT,
        "regex": text(minLength=1),
        "choice": array(text(minLength=1), minItems=1, maxItems=4096),
        "grammar": text(minLength=1),
    }
    return {
        "oneOf": [
            {**taken(name, **{name: shape}), "additionalProperties": False}
            for name, shape in shapes.items()
        ]
    }
