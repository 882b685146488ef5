"""Schemas of what the service sends, from the types that it encodes."""

from __future__ import annotations

from causerie.edge.components import sent
from causerie.edge.health import Health
from causerie.edge.schema import Schema, ref, structure, text
from causerie.errors import Error
from causerie.protocol.completion import Chunk, Completion
from causerie.protocol.key_statements import RouterCredits, RouterGeneration, RouterKey
from causerie.protocol.model_entries import (
    ModelList,
    RouterCount,
    RouterEndpoints,
    RouterModel,
    RouterModelData,
    RouterModelList,
    ServedModelEntry,
)

_ROUTER = (
    *(RouterModelData, RouterModelList, RouterCount, RouterEndpoints),
    *(RouterKey, RouterCredits, RouterGeneration),
)


def response_schemas() -> dict[str, Schema]:
    entries = [ref(kind.__name__) for kind in (ServedModelEntry, RouterModel)]
    return {
        **sent(Completion, Chunk, Error, Health, ModelList, ServedModelEntry, *_ROUTER),
        "Model": {"anyOf": entries},  # msgspec makes no union of types without tags
        "ChunkEvent": structure("data", data=_chunk_data()),
    }


def _chunk_data() -> Schema:
    """Return the schema of the text after ``data:``: a chunk, or the mark of the end."""
    chunk: Schema = {
        "type": "string",
        "contentMediaType": "application/json",
        "contentSchema": ref("Chunk"),
    }
    return {"anyOf": [text(enum=["[DONE]"]), chunk]}
