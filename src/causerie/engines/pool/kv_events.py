"""Events of vLLM about its prefix cache, decoded: blocks that were stored or removed.

vLLM encodes batches and events as arrays of msgpack up to some version, and as maps since. Each is
recognised by its first byte, by itself. Fields were only ever added at the end; those that say
nothing about a prompt of text are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Raw, Struct

BlockHash = int | bytes
_GPU = "GPU"
_ARRAYS = frozenset(
    bytes([byte]) for byte in (*range(0x90, 0xA0), 0xDC, 0xDD)
)  # first bytes of msgpack's arrays


class UnreadableEvents(Exception):
    """Something that is no batch of events as vLLM encodes them."""


class _Batch(Struct, frozen=True):
    ts: float
    events: list[Raw]


class Stored(Struct, frozen=True, tag="BlockStored"):
    """Blocks of ``block_size`` tokens, one behind the other, the first behind its parent."""

    block_hashes: list[BlockHash]
    parent_block_hash: BlockHash | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: list[Any] | None = None
    """For each block what else than its tokens it depends on, such as images, or for the first one
    of a prompt its salt.
    """
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    """Of models with several kinds of cache: which kind the group is of."""

    @property
    def salt(self) -> str:
        """Return the salt of a prompt that begins with these blocks; empty if it has none."""
        match self.extra_keys:
            case [[str(salt)], *_] if self.parent_block_hash is None:
                return salt
        return ""

    @property
    def of_text(self) -> bool:
        """Return whether a prompt of the same tokens and salt is read from these blocks."""
        kind = self.kv_cache_spec_kind
        return (
            self.medium in (None, _GPU)
            and self.lora_id is None
            and self.lora_name is None
            and not any(self.extra_keys[1 if self.salt else 0 :] if self.extra_keys else ())
            and (kind is None or "full" in kind or kind.startswith("mla"))
        )


class Removed(Struct, frozen=True, tag="BlockRemoved"):
    """Blocks that are in the cache no more."""

    block_hashes: list[BlockHash]
    medium: str | None = None
    group_idx: int | None = None

    @property
    def of_text(self) -> bool:
        """Return whether they were where prompts are read from."""
        return self.medium in (None, _GPU)


class Cleared(Struct, frozen=True, tag="AllBlocksCleared"):
    """The cache is empty."""


class _BatchArray(_Batch, frozen=True, array_like=True):
    pass


class _StoredArray(Stored, frozen=True, array_like=True, tag="BlockStored"):
    pass


class _RemovedArray(Removed, frozen=True, array_like=True, tag="BlockRemoved"):
    pass


class _ClearedArray(Cleared, frozen=True, array_like=True, tag="AllBlocksCleared"):
    pass


Event = Stored | Removed | Cleared

_map_batch = msgspec.msgpack.Decoder(_Batch)
_array_batch = msgspec.msgpack.Decoder(_BatchArray)
_map_event = msgspec.msgpack.Decoder(Stored | Removed | Cleared)
_array_event = msgspec.msgpack.Decoder(_StoredArray | _RemovedArray | _ClearedArray)


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Changes of one step of the engine; ``ts`` is when it was published, in seconds."""

    ts: float
    events: Sequence[Event]


def decoded(payload: bytes) -> EventBatch:
    """Return a batch of events; raise :class:`UnreadableEvents`."""
    decoder = _array_batch if payload[:1] in _ARRAYS else _map_batch
    try:
        batch = decoder.decode(payload)
        return EventBatch(batch.ts, [_event(bytes(one)) for one in batch.events])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UnreadableEvents(f"a batch of KV events cannot be read: {error}") from error


def _event(raw: bytes) -> Event:
    event: Event = (_array_event if raw[:1] in _ARRAYS else _map_event).decode(raw)
    return event
