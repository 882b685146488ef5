"""Responses as JSON Schema: the same as the types of ``protocol.completion``."""

from __future__ import annotations

from causerie.edge.schema import OBJECT, Schema, array, described, ref, structure, text

_ON_ROUTERS = "Only at doors that know the object `reasoning`."
_WHO = "The provider that answered; at doors of routers."


def response_schemas() -> dict[str, Schema]:
    """Schemas of what is sent."""
    return {
        **_completion_schemas(),
        **_chunk_schemas(),
        "Usage": structure(
            "prompt_tokens completion_tokens total_tokens",
            prompt_tokens={"type": "integer"},
            completion_tokens={"type": "integer"},
            total_tokens={"type": "integer"},
            prompt_tokens_details=structure(cached_tokens={"type": "integer"}),
            completion_tokens_details=structure(reasoning_tokens={"type": "integer"}),
            cost=described({"type": "number"}, "What it costs; at doors of routers."),
        ),
        "Model": {**structure("id", id=text()), "additionalProperties": True},
        "ModelList": structure("data", object=text(), data=array(ref("Model"))),
        "Error": structure(
            "error",
            error=structure(
                "message type param code",
                message=text(),
                type=text(),
                param={"type": ["string", "null"]},
                code=text(),
                metadata=OBJECT,
            ),
        ),
        "Health": {**structure("status", status=text()), "additionalProperties": True},
    }


def _completion_schemas() -> dict[str, Schema]:
    finish = text(enum=["stop", "length", "tool_calls", "content_filter"])
    return {
        "Completion": structure(
            "id object created model system_fingerprint choices usage",
            id=text(),
            object=text(enum=["chat.completion"]),
            created={"type": "integer"},
            model=text(),
            system_fingerprint=text(),
            provider=described(text(), _WHO),
            choices=array(
                structure(
                    "index message finish_reason",
                    index={"type": "integer"},
                    message=ref("AnswerMessage"),
                    logprobs={"oneOf": [{"type": "null"}, OBJECT]},
                    finish_reason=finish,
                )
            ),
            usage=ref("Usage"),
        ),
        "AnswerMessage": structure(
            "role",
            role=text(enum=["assistant"]),
            content={"type": ["string", "null"]},
            reasoning_content=text(),
            tool_calls=array(ref("ToolCall")),
            reasoning=described(text(), _ON_ROUTERS),
            reasoning_details=described(array(OBJECT), _ON_ROUTERS),
        ),
    }


def _chunk_schemas() -> dict[str, Schema]:
    return {
        "ChunkEvent": structure("data", data=_chunk_data()),
        "Chunk": structure(
            "id object created model system_fingerprint choices",
            id=text(),
            object=text(enum=["chat.completion.chunk"]),
            created={"type": "integer"},
            model=text(),
            system_fingerprint=text(),
            provider=described(text(), _WHO),
            choices=array(
                structure(
                    "index delta finish_reason",
                    index={"type": "integer"},
                    delta=ref("Delta"),
                    logprobs=OBJECT,
                    finish_reason={
                        "type": ["string", "null"],
                        "enum": ["stop", "length", "tool_calls", "content_filter", "error", None],
                    },
                )
            ),
            usage=ref("Usage"),
            error=described(OBJECT, "Only where the stream broke."),
        ),
        "Delta": structure(
            role=text(enum=["assistant"]),
            content=text(),
            reasoning_content=text(),
            tool_calls=array(
                structure(
                    "index function",
                    index={"type": "integer"},
                    id=text(),
                    type=text(enum=["function"]),
                    function=structure("arguments", name=text(), arguments=text()),
                )
            ),
            reasoning=described(text(), _ON_ROUTERS),
            reasoning_details=described(array(OBJECT), _ON_ROUTERS),
        ),
    }


def _chunk_data() -> Schema:
    """Return the schema of the text after ``data:``: a chunk, or the mark of the end."""
    chunk: Schema = {
        "type": "string",
        "contentMediaType": "application/json",
        "contentSchema": ref("Chunk"),
    }
    return {"anyOf": [text(enum=["[DONE]"]), chunk]}
