"""Schemas of what the service sends: completions and chunks from their types, and the rest."""

from __future__ import annotations

from causerie.edge.components import sent
from causerie.edge.schema import OBJECT, Schema, array, ref, structure, text
from causerie.protocol.completion import Chunk, Completion


def response_schemas() -> dict[str, Schema]:
    """Return the schemas of responses."""
    return {
        **sent(Completion, Chunk),
        "ChunkEvent": structure("data", data=_chunk_data()),
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


def _chunk_data() -> Schema:
    """Return the schema of the text after ``data:``: a chunk, or the mark of the end."""
    chunk: Schema = {
        "type": "string",
        "contentMediaType": "application/json",
        "contentSchema": ref("Chunk"),
    }
    return {"anyOf": [text(enum=["[DONE]"]), chunk]}
