"""Contents of the prefix caches of members, as vLLM publishes them over ZeroMQ, and their index.

A prompt is a chain of blocks: the hash of a block covers all tokens up to its end. A table leads
from a block to the set of members that hold it, as far as is known, a bit for each. Blocks that
were not used for long are forgotten: each shard has two generations, and what is used moves to the
younger one.

Hashes of vLLM are only names here, for parents and removals. Batches are numbered. One that is
missing leaves nothing certain, so the view begins anew and is not ``complete``.

Batches come to a SUB socket: topic, number, payload. A ROUTER at the server's replay port
answers a number with all batches from there that it still keeps, and then with the number -1.
Before number and payload an answer has an empty frame, and since some version the topic too.
"""

from __future__ import annotations

import asyncio
import struct
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from operator import or_
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec
import structlog
from msgspec import Raw, Struct

from causerie.engines.supervised import end_task

if TYPE_CHECKING:
    from zmq.asyncio import Context, Socket


BLOCK = 16  # tokens; what vLLM caches by, or a divisor of it
_each_block = struct.Struct(f"{BLOCK * 4}s").iter_unpack
_HASH_BITS = 60  # two digits of Python's integers, which take less memory than three
_MASK = (1 << _HASH_BITS) - 1
_SHARDS = 64
_SHARD = _HASH_BITS - 6
_MOST_SETS = 65_536  # of members that are shared
_MOST_BITS = 256  # beyond the members that there are


def chain(tokens: Sequence[int], scope: str = "") -> list[int]:
    """Return the hashes of a prompt's full blocks in a scope; they hold in this process only."""
    return extended(root(scope), tokens)


def root(scope: str) -> int:
    """Return the parent hash of the first block of a prompt in a scope."""
    return hash(scope) & _MASK if scope else 0


def extended(previous: int, tokens: Sequence[int]) -> list[int]:
    """Return the hashes of the full blocks of tokens behind the block ``previous``, or a root."""
    blocks: list[int] = []
    whole = tokens[: len(tokens) // BLOCK * BLOCK]
    for (content,) in _each_block(array("i", whole).tobytes()):
        previous = hash((previous, content)) & _MASK
        blocks.append(previous)
    return blocks


class PrefixIndex:
    """Maps blocks of prompts to the members that hold them, at most about ``blocks`` of them."""

    def __init__(self, blocks: int) -> None:
        self.resize(blocks)
        self._bits_by_name: dict[str, int] = {}
        self._names_by_bit: dict[int, str] = {}
        # Each set by itself, so that blocks share it: memory and time.
        self._interned_member_sets: dict[int, int] = {}
        self._next_bit_number = 0
        self._clear_shards()

    def __len__(self) -> int:
        """Return the number of entries; a block may have one in each generation."""
        return sum(map(len, self._young_shards)) + sum(map(len, self._old_shards))

    def resize(self, blocks: int) -> None:
        """Bound the index by another number of blocks from now on."""
        self._shard_half_capacity = max(blocks // _SHARDS // 2, 1)

    def forget(self, name: str) -> None:
        """Take a member out of the index: it is new, gone, or started again, and holds nothing."""
        bit = self._bits_by_name.pop(name, None)
        if bit is not None:
            del self._names_by_bit[bit]  # its bit stays in the table, and means nobody

    def runs(self, blocks: Iterable[int]) -> Mapping[str, int]:
        """Return how many first blocks each member holds without a gap, if it holds the first."""
        young, old = self._young_shards, self._old_shards
        holding = sum(self._names_by_bit)
        found: dict[str, int] = {}
        length = 0
        for block in blocks:
            shard = block >> _SHARD
            held = young[shard].get(block)
            if held is None:
                held = old[shard].get(block, 0)
            if held is not holding:  # mostly it is: equal sets are one object
                here = holding & held
                if here != holding:
                    if length:
                        self._note_run_length(found, holding & ~here, length)
                    if not here:
                        return found
                    holding = held if here == held else here
            length += 1
        if length:
            self._note_run_length(found, holding, length)
        return found

    def _note_run_length(self, found: dict[str, int], members: int, length: int) -> None:
        while members:
            bit = members & -members
            found[self._names_by_bit[bit]] = length
            members ^= bit

    def add(self, name: str, blocks: Iterable[int]) -> None:
        """Record that a member holds these blocks, and has used them now."""
        bit, sets = self._ensure_bit_of_member(name), self._interned_member_sets
        young, old, half = self._young_shards, self._old_shards, self._shard_half_capacity
        for block in blocks:
            shard = block >> _SHARD
            table = young[shard]
            held = table.get(block)
            if held is None:
                held = old[shard].get(block, 0)
                if len(table) >= half:
                    old[shard] = table
                    table = young[shard] = {}
            if held & bit:
                table[block] = held
            elif held:
                both = held | bit
                table[block] = sets.setdefault(both, both)
            else:
                table[block] = bit
        if len(sets) > _MOST_SETS:
            sets.clear()

    def remove(self, name: str, blocks: Collection[int]) -> None:
        bit = self._bits_by_name.get(name, 0)
        for block in blocks:
            for tables in (self._young_shards, self._old_shards):
                table = tables[block >> _SHARD]
                if left := table.get(block, 0) & bit:
                    table[block] ^= left

    def _ensure_bit_of_member(self, name: str) -> int:
        bit = self._bits_by_name.get(name)
        if bit is None:
            # Sets are not to grow without end.
            if self._next_bit_number >= len(self._bits_by_name) + _MOST_BITS:
                self._clear_shards()
                self._names_by_bit = {1 << at: each for at, each in enumerate(self._bits_by_name)}
                self._bits_by_name = {each: one for one, each in self._names_by_bit.items()}
                self._next_bit_number = len(self._bits_by_name)
            bit = self._bits_by_name[name] = 1 << self._next_bit_number
            self._names_by_bit[bit] = name
            self._next_bit_number += 1
        return bit

    def _clear_shards(self) -> None:
        self._young_shards: list[dict[int, int]] = [{} for _ in range(_SHARDS)]
        self._old_shards: list[dict[int, int]] = [{} for _ in range(_SHARDS)]


BlockHash = int | bytes
_GPU = "GPU"
# First bytes of msgpack's arrays, as older versions of vLLM encode batches; newer ones use maps.
_ARRAYS = frozenset(bytes([byte]) for byte in (*range(0x90, 0xA0), 0xDC, 0xDD))


class UnreadableEvents(Exception):
    """A message is no batch of events as vLLM encodes them."""


class _Batch(Struct, frozen=True):
    ts: float
    events: list[Raw]


class Stored(Struct, frozen=True, tag="BlockStored"):
    """Event: blocks of ``block_size`` tokens were stored, one after another behind their parent."""

    block_hashes: list[BlockHash]
    parent_block_hash: BlockHash | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: list[Any] | None = None
    """What else each block depends on, such as images, or the first one of a prompt on its salt."""
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None  # kind of the group's cache, of models with several

    @property
    def salt(self) -> str:
        """Return the salt of a prompt that begins with these blocks; empty if it has none."""
        match self.extra_keys:
            case [[str(salt)], *_] if self.parent_block_hash is None:
                return salt
        return ""

    @property
    def of_text(self) -> bool:
        """Return whether these blocks serve a text prompt of the same tokens and salt."""
        kind = self.kv_cache_spec_kind
        return (
            self.medium in (None, _GPU)
            and self.lora_id is None
            and self.lora_name is None
            and not any(self.extra_keys[1 if self.salt else 0 :] if self.extra_keys else ())
            and (kind is None or "full" in kind or kind.startswith("mla"))
        )


class Removed(Struct, frozen=True, tag="BlockRemoved"):
    """Event: these blocks are in the cache no more."""

    block_hashes: list[BlockHash]
    medium: str | None = None
    group_idx: int | None = None

    @property
    def of_text(self) -> bool:
        return self.medium in (None, _GPU)


class Cleared(Struct, frozen=True, tag="AllBlocksCleared"):
    """Event: the cache is empty."""


Event = Stored | Removed | Cleared


def _as_array_type(kind: Any) -> Any:
    return msgspec.defstruct(kind.__name__, (), bases=(kind,), frozen=True, array_like=True)


_map_batch = msgspec.msgpack.Decoder(_Batch)
_array_batch = msgspec.msgpack.Decoder(_as_array_type(_Batch))
_map_event = msgspec.msgpack.Decoder(Event)
_array_event = msgspec.msgpack.Decoder(reduce(or_, map(_as_array_type, (Stored, Removed, Cleared))))


class EventBatch(Struct, frozen=True):
    """Changes of one step of the engine; ``ts`` is when it was published, in seconds."""

    ts: float
    events: Sequence[Event]


def decoded_events(payload: bytes) -> EventBatch:
    """Decode a message of vLLM into a batch of events; raise :class:`UnreadableEvents`."""
    decoder = _array_batch if payload[:1] in _ARRAYS else _map_batch
    try:
        batch = decoder.decode(payload)
        events = [
            (_array_event if raw[:1] in _ARRAYS else _map_event).decode(raw)
            for raw in map(bytes, batch.events)
        ]
        return EventBatch(batch.ts, events)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UnreadableEvents(f"a batch of KV events cannot be read: {error}") from error


@dataclass(eq=False)
class KvView:
    """The content of one cache of a pool member, as KV events tell it."""

    _prefix_index: PrefixIndex
    name: str  # of the cache in the index
    _member_name: str  # what was sent to it is in the index by its name, until the blocks are gone

    def __post_init__(self) -> None:
        self.complete = False  # whether every block that is there is known
        self.block_size = 0  # in tokens; 0 while nothing was stored
        self.salted = False  # whether events name the salts of prompts, which are their scopes
        self._next_batch: int | None = None  # number of the next batch
        self._last_timestamp = 0.0  # the latest of its batches
        self._blocks_by_hash: dict[int, tuple[int, ...]] = {}  # by the hash of vLLM's hash
        self._extra_copies_by_hash: dict[int, int] = {}  # beyond the first one of a block
        self._main_group_index: int | None = None

    def __len__(self) -> int:
        """Return the number of blocks of the prefix index."""
        return len(self._blocks_by_hash) * max(self.block_size // BLOCK, 1)

    def begin(self) -> None:
        """Take the cache as empty if no batch is known, because nothing was published yet."""
        if self._next_batch is None:
            self._next_batch, self.complete = 0, True

    def forget(self) -> None:
        self._next_batch = None
        self._forget_blocks_and_set_complete(complete=False)

    def missing(self, number: int, batch: EventBatch) -> int | None:
        """Return the number of the first batch missing before this one, or ``None``."""
        if self._next_batch is None or self._is_other_publisher(number, batch):
            return 0 if number else None
        return self._next_batch if number > self._next_batch else None

    def receive(self, number: int, batch: EventBatch) -> None:
        """Apply a batch that was not applied before; raise :class:`UnreadableEvents`."""
        if self._next_batch is None or self._is_other_publisher(number, batch):
            self._forget_blocks_and_set_complete(complete=number == 0)
        elif number < self._next_batch:
            return
        elif number > self._next_batch:
            self._forget_blocks_and_set_complete(complete=False)
        self._next_batch, self._last_timestamp = number + 1, max(self._last_timestamp, batch.ts)
        for event in batch.events:
            if isinstance(event, Cleared):
                self._forget_blocks_and_set_complete(complete=True)
                self._last_timestamp = batch.ts
                self._prefix_index.forget(self._member_name)
            elif isinstance(event, Stored):
                self._store_blocks(event)
            else:
                self._remove_blocks(event)

    def _is_other_publisher(self, number: int, batch: EventBatch) -> bool:
        # Numbers that start at 0 again mean that the server was restarted.
        return (
            self._next_batch is not None
            and number < self._next_batch
            and batch.ts > self._last_timestamp
        )

    def _forget_blocks_and_set_complete(self, *, complete: bool) -> None:
        self.complete = complete
        self._last_timestamp = 0.0
        self._main_group_index = None
        self._blocks_by_hash.clear()
        self._extra_copies_by_hash.clear()
        self._prefix_index.forget(self.name)

    def _store_blocks(self, event: Stored) -> None:
        size, hashes = event.block_size, event.block_hashes
        if not event.of_text or not self._is_of_main_group(event):
            return
        if size < 1 or size % BLOCK or len(event.token_ids) != size * len(hashes):
            raise UnreadableEvents(f"blocks of {size} tokens cannot be compared with those here")
        self.block_size = size
        self.salted = self.salted or bool(event.salt)
        parent = event.parent_block_hash
        before = (
            root(event.salt)
            if parent is None
            else self._blocks_by_hash.get(hash(parent), [None])[-1]
        )
        if before is None:
            return  # behind a block that was stored before this view began
        try:
            if min(event.token_ids, default=0) < 0:  # those of images, which only we number so
                raise OverflowError("it is negative")
            blocks = extended(before, event.token_ids)
        except (OverflowError, TypeError) as error:
            raise UnreadableEvents(f"a token id is none: {error}") from error
        self._prefix_index.add(self.name, blocks)
        each = size // BLOCK
        for at, name in enumerate(hashes):
            key = hash(name)
            if key in self._blocks_by_hash:
                self._extra_copies_by_hash[key] = self._extra_copies_by_hash.get(key, 0) + 1
            else:
                self._blocks_by_hash[key] = tuple(blocks[at * each : (at + 1) * each])

    def _is_of_main_group(self, event: Stored) -> bool:
        if self._main_group_index is None:
            self._main_group_index = event.group_idx
        return event.group_idx == self._main_group_index

    def _remove_blocks(self, event: Removed) -> None:
        if not event.of_text or event.group_idx != self._main_group_index:
            return
        for name in event.block_hashes:
            key = hash(name)
            if copies := self._extra_copies_by_hash.pop(key, 0):
                if copies > 1:
                    self._extra_copies_by_hash[key] = copies - 1
            elif (blocks := self._blocks_by_hash.pop(key, None)) is not None:
                self._prefix_index.remove(self.name, blocks)
                self._prefix_index.remove(self._member_name, blocks)


log = structlog.get_logger(__name__)

_REPLAY_SECONDS = 5.0  # for each batch that is sent again
_PAUSE_SECONDS = 5.0  # after events that cannot be read
_FRAMES = (3, 4)  # of a message: what stands before number and payload says nothing
_MOST_BYTES = 1024 * 1024  # of a batch, decoded in one piece; a step of 64,000 tokens is half of it
_HEARTBEAT_MS = 5_000
_MISSING = "pyzmq is not installed; in a clone of Causerie: pip install '.[pool]'"


class KvEndpoint(Struct, frozen=True):
    """Place where a cache publishes: addresses of ZeroMQ, such as ``tcp://10.0.0.7:5557``."""

    events: str
    replay: str | None = None


@dataclass(eq=False)
class KvSubscriber:
    """Keeps the view of one cache up to date by the KV events it receives; raises nothing."""

    _endpoint: KvEndpoint
    view: KvView
    _on_change: Callable[[], None]  # of the view, also when it can be used no more
    failure: str = "no KV events yet"  # why the view says nothing; empty where it says something
    heard: float = 0.0  # when the last batch came, on the monotonic clock
    _subscribe_task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._subscribe_task is None:
            self._subscribe_task = asyncio.get_running_loop().create_task(self._keep_subscribed())

    async def stop(self) -> None:
        task, self._subscribe_task = self._subscribe_task, None
        await end_task(task)

    def fail(self, why: str) -> None:
        """Log why events cannot be used, and forget the cache's content until they come again."""
        log.warning("KV events of a member cannot be used", cache=self.view.name, why=why)
        self.failure = why
        self.view.forget()
        self._on_change()

    async def _keep_subscribed(self) -> None:
        try:
            from zmq import ZMQError  # noqa: PLC0415 - few pools have events
            from zmq.asyncio import Context  # noqa: PLC0415 - see above
        except ImportError:
            self.fail(_MISSING)
            return
        while True:
            try:
                await self._follow_events(Context.instance())
            except UnreadableEvents as error:
                self.fail(str(error))
            except ZMQError as error:
                self.fail(f"{self._endpoint.events}: {error}")
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _follow_events(self, context: Context) -> None:
        from zmq import SUB  # noqa: PLC0415 - see above

        with _open_socket(context, SUB, self._endpoint.events) as socket:
            watch = asyncio.get_running_loop().create_task(self._reconnect_on_disconnect(socket))
            try:
                socket.subscribe(b"")
                # What is published meanwhile waits at the socket.
                await self._replay_from(context, 0)
                while True:
                    number, payload = await _receive_number_and_payload(socket)
                    batch = decoded_events(payload)
                    at = int.from_bytes(number, "big")
                    first = self.view.missing(at, batch)
                    if first is not None:
                        await self._replay_from(context, first)
                    self.view.receive(at, batch)
                    self._record_batch_received()
            finally:
                await end_task(watch)

    async def _reconnect_on_disconnect(self, socket: Socket) -> None:
        # After the end of a connection another server may publish, even if the numbers go on.
        from zmq import EVENT_DISCONNECTED, ZMQError  # noqa: PLC0415 - few pools have events

        monitor: Any = socket.get_monitor_socket(EVENT_DISCONNECTED)
        try:
            while True:
                await monitor.recv_multipart()
                self.fail("the connection to its KV events has ended")
                with suppress(ZMQError):  # after too large a message ZeroMQ itself has left it
                    socket.disconnect(self._endpoint.events)
                socket.connect(self._endpoint.events)
        finally:
            socket.disable_monitor()
            monitor.close(0)

    async def _replay_from(self, context: Context, first: int) -> None:
        from zmq import DEALER  # noqa: PLC0415 - few pools have events

        if self._endpoint.replay is None:
            return
        with suppress(TimeoutError), _open_socket(context, DEALER, self._endpoint.replay) as socket:
            await socket.send_multipart([b"", first.to_bytes(8, "big")])
            while True:
                async with asyncio.timeout(_REPLAY_SECONDS):
                    number, payload = await _receive_number_and_payload(socket)
                if (at := int.from_bytes(number, "big", signed=True)) < 0:
                    break
                self.view.receive(at, decoded_events(payload))
                self._record_batch_received()
            if first == 0:
                self.view.begin()
                self.failure = ""
                self._on_change()

    def _record_batch_received(self) -> None:
        self.failure, self.heard = "", monotonic()
        self._on_change()


def _open_socket(context: Context, kind: int, address: str) -> Any:
    from zmq import HEARTBEAT_IVL, IPV6, LINGER, MAXMSGSIZE, RCVHWM  # noqa: PLC0415 - see above

    socket: Socket = context.socket(kind)
    for option, value in (
        (IPV6, 1),
        (LINGER, 0),
        (RCVHWM, 100_000),  # as many as vLLM itself keeps for a slow reader
        (MAXMSGSIZE, _MOST_BYTES),
        (HEARTBEAT_IVL, _HEARTBEAT_MS),
    ):
        socket.setsockopt(option, value)
    socket.connect(address)
    return socket


async def _receive_number_and_payload(socket: Socket) -> Sequence[bytes]:
    await asyncio.sleep(0)  # what waits at a socket is received without a turn for anybody else
    frames: list[bytes] = await socket.recv_multipart()
    if len(frames) not in _FRAMES:
        raise UnreadableEvents(f"a message of {len(frames)} frames is none of KV events")
    return frames[-2:]
