"""A server's cache that publishes what it stores and removes, encoded as vLLM does.

``ENCODINGS`` are those of its versions: arrays at first, with integers for hashes; later with bytes
and more fields; then maps in arrays, and in answers the topic; then maps only.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import zmq
from zmq.asyncio import Context

ENCODINGS = ("0.9", "0.11", "0.32", "maps")
_MAPS = ("0.32", "maps")  # for events
_END = (-1).to_bytes(8, "big", signed=True)


class EngineCache:
    """Blocks of ``size`` tokens by the hash of their path; some may be there several times."""

    def __init__(self, encoding: str = "maps", size: int = 16) -> None:
        self.encoding = encoding
        self.size = size
        self.blocks: Counter[tuple[int, ...]] = Counter()

    def hash(self, path: Sequence[int]) -> int | bytes:
        digest = hashlib.sha256(repr(tuple(path)).encode()).digest()
        return int.from_bytes(digest[:8], "big") if self.encoding == "0.9" else digest

    def read(self, tokens: Sequence[int]) -> list[Any]:
        """Store what a prompt lacks: all behind its first block that is not there."""
        paths = [tuple(tokens[:end]) for end in range(self.size, len(tokens) + 1, self.size)]
        lacks = next((at for at, one in enumerate(paths) if not self.blocks[one]), len(paths))
        new = paths[lacks:]
        if not new:
            return []
        self.blocks.update(new)
        parent = self.hash(paths[lacks - 1]) if lacks else None
        content = list(tokens[lacks * self.size : len(paths) * self.size])
        return [self.stored([self.hash(one) for one in new], parent, content)]

    def evict(self, path: Sequence[int]) -> list[Any]:
        """Remove one copy of a block."""
        if not self.blocks[tuple(path)]:
            return []
        self.blocks[tuple(path)] -= 1
        return [self._event("BlockRemoved", block_hashes=[self.hash(path)], medium="GPU")]

    def clear(self) -> list[Any]:
        self.blocks.clear()
        return [self._event("AllBlocksCleared")]

    def stored(self, hashes: list[Any], parent: Any, tokens: list[int], **more: Any) -> Any:
        fields: dict[str, Any] = {
            "block_hashes": hashes, "parent_block_hash": parent, "token_ids": tokens,
            "block_size": self.size, "lora_id": None, "medium": "GPU", "lora_name": None,
        }  # fmt: skip
        if self.encoding in _MAPS:
            fields |= {"group_idx": 0, "kv_cache_spec_kind": "full_attention"}
        return self._event("BlockStored", **(fields | more))

    def _event(self, tag: str, **fields: Any) -> Any:
        if self.encoding in _MAPS:
            return {"type": tag, **({"group_idx": 0} if tag == "BlockRemoved" else {}), **fields}
        if self.encoding == "0.9":
            fields = {
                name: one for name, one in fields.items() if not name.startswith(("med", "lora_n"))
            }
        return [tag, *fields.values()]

    def batch(self, events: Sequence[Any], ts: float | None = None) -> bytes:
        at = time.time() if ts is None else ts
        if self.encoding == "maps":
            return msgspec.msgpack.encode({"ts": at, "events": events, "data_parallel_rank": 0})
        rank = [] if self.encoding == "0.9" else [0]
        return msgspec.msgpack.encode([at, events, *rank])


class Publisher:
    """Publishes batches of a cache at ``events``, and sends those kept again at ``replay``."""

    def __init__(self, cache: EngineCache, kept: int = 100) -> None:
        self.cache = cache
        self.number = 0
        self.kept: deque[tuple[int, bytes]] = deque(maxlen=kept)
        self.asked: list[int] = []

    async def publish(self, events: Sequence[Any], *, lost: bool = False) -> None:
        """Send a batch, which is ``lost`` on its way."""
        await self.send(self.cache.batch(events), lost=lost)

    async def send(self, payload: bytes, *, lost: bool = False) -> None:
        if not lost:
            await self.pub.send_multipart([b"", self.number.to_bytes(8, "big"), payload])
        self.kept.append((self.number, payload))
        self.number += 1

    @asynccontextmanager
    async def listening(self, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[None]:
        """Bind both sockets; with a ``port`` to it and the one behind it."""
        places = [f"tcp://{host}:{each or '*'}" for each in (port, port and port + 1)]
        async with self.bound(*places):
            yield

    @asynccontextmanager
    async def bound(self, events: str, replay: str) -> AsyncIterator[None]:
        """Bind the sockets to these addresses."""
        context = Context()
        with context, context.socket(zmq.PUB) as self.pub, context.socket(zmq.ROUTER) as router:
            self.pub.linger = router.linger = 0
            self.pub.bind(events)
            router.bind(replay)
            self.events, self.replay = (
                one.getsockopt_string(zmq.LAST_ENDPOINT) for one in (self.pub, router)
            )
            answering = asyncio.create_task(self._answer(router))
            try:
                yield
            finally:
                answering.cancel()
                await asyncio.gather(answering, return_exceptions=True)

    async def _answer(self, router: Any) -> None:
        topic = [b""] if self.cache.encoding in _MAPS else []
        while True:
            client, _, start = await router.recv_multipart()
            self.asked.append(int.from_bytes(start, "big"))
            for number, payload in list(self.kept):
                if number >= self.asked[-1]:
                    frames = [client, b"", *topic, number.to_bytes(8, "big"), payload]
                    await router.send_multipart(frames)
            await router.send_multipart([client, b"", *topic, _END, b""])


def two_ports() -> int:
    """Return a port that is free, as is the next one."""
    for _ in range(100):
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port: int = one.getsockname()[1]
            with suppress(OSError, OverflowError):
                other.bind(("127.0.0.1", port + 1))
                return port
    raise AssertionError("no two ports in a row are free")


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what comes over a socket."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.005)
