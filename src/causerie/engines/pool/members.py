"""The members of a pool: who there is, what each carries and holds, and who gets a request.

The choice goes by what a member has to read, in tokens; the rule, and why it is so, is in
`docs/internals/design/routing-and-pools.md`.

What a member holds of a prompt is known by the best source that there is. KV events say what
each cache of the member holds. Where they do not come, what was sent to the member counts
instead; where they do not go back to an empty cache, both.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, replace
from time import monotonic
from typing import Any, TypeVar

import structlog

from causerie.engines.base import EngineFailed, EngineState, EngineStatus
from causerie.engines.pool import kv_events
from causerie.engines.supervised import SupervisedEngine, end_task
from causerie.routing.circuit_breaker import FIRST_WAIT_SECONDS, CircuitBreaker

_READING = 2  # how often a token that this prompt has to read counts
_RUNNING = 64  # tokens that a running request counts for
_SHARE = 1.25  # of the mean of running requests
_MOST_SHARES = 2
_FREE_SHARE = 8  # requests that nobody needs to share


class MemberLoad:
    """Work of a member: requests under way, and tokens that it has to read for them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.running = 0
        self.unread = 0
        self.chosen = 0  # when it was chosen last: a number that grows


M = TypeVar("M", bound=MemberLoad)


def least_cost(members: Iterable[M], tokens: int, runs: Mapping[str, int]) -> M:
    """Return the cheapest member for a prompt of ``tokens``; ``runs`` are the blocks each holds."""
    able = list(members)
    total = sum([member.running for member in able]) + 1
    share = max(_FREE_SHARE, math.ceil(_SHARE * total / len(able)))
    most = _MOST_SHARES * share
    held_twice = sorted(runs.values())[-2] if len(runs) > 1 else 0

    def cost(member: M) -> tuple[int, int]:
        running = member.running
        held = runs.get(member.name, 0)
        if running >= share:
            held = held if held > held_twice and running < most else 0
        unread = tokens - held * kv_events.BLOCK if held * kv_events.BLOCK < tokens else 0
        return _READING * unread + member.unread + _RUNNING * running, member.chosen

    return min(able, key=cost)


SENT = "sent"
KV_EVENTS = "kv_events"
BOTH = "kv_events+sent"
_SILENCE_SECONDS = 5.0  # until events count as lost that must have come
_UNREAD = 2048  # tokens that fill a block of any cache


class MemberCache:
    """Prefix cache of the member ``name``, which publishes at ``endpoints``, one for each rank."""

    def __init__(
        self, index: kv_events.PrefixIndex, name: str, endpoints: Sequence[kv_events.KvEndpoint]
    ) -> None:
        self._prefix_index = index
        self._name = name
        self._running_entry_name = f"{name} running"
        self._subscribers = [
            kv_events.KvSubscriber(
                endpoint, kv_events.KvView(index, f"{name} rank {rank}", name), self._set_source
            )
            for rank, endpoint in enumerate(endpoints)
        ]
        self._prefix_source = SENT
        self._events_due_and_noted_at: tuple[float, float] | None = None  # since when, noted when

    def __len__(self) -> int:
        """Return the number of blocks that the member holds by its KV events."""
        return sum(len(cache.view) for cache in self._subscribers)

    @property
    def source(self) -> str:
        """Return by what the member's blocks are known: ``kv_events``, ``sent``, or both."""
        if self._events_due_and_noted_at is not None:
            since, noted = self._events_due_and_noted_at
            if any(cache.heard >= since for cache in self._subscribers):
                self._events_due_and_noted_at = None
            elif monotonic() - noted > _SILENCE_SECONDS:
                self._events_due_and_noted_at = None
                why = f"no KV events for {_SILENCE_SECONDS:g} s, although a prompt was read"
                for cache in self._subscribers:
                    cache.fail(why)
        return self._prefix_source

    @property
    def failure(self) -> str:
        return next((cache.failure for cache in self._subscribers if cache.failure), "")

    def start(self) -> None:
        for cache in self._subscribers:
            cache.start()

    async def stop(self) -> None:
        """Stop listening to the member's KV events, and take this member out of the index."""
        for cache in self._subscribers:
            await cache.stop()
        self.forget()
        self._prefix_index.forget(self._running_entry_name)

    def forget(self) -> None:
        """Forget what the member holds, because it has started again."""
        self._prefix_index.forget(self._name)
        for cache in self._subscribers:
            cache.view.forget()
        self._set_source()

    def run(self, runs: Mapping[str, int], scope: str = "") -> int:
        """Return how many of the first blocks of a prompt in a scope the member holds.

        With several ranks it is their mean, since vLLM chooses the rank. What was sent counts for a
        scope too, as long as no event has named one: older servers keep theirs to themselves.
        """
        sent = runs.get(self._name, 0)
        source = self.source
        if source == SENT:
            return sent
        each = [runs.get(cache.view.name, 0) for cache in self._subscribers]
        known = max(sum(each) // len(each), runs.get(self._running_entry_name, 0))
        told = not scope or any(cache.view.salted for cache in self._subscribers)
        return known if source == KV_EVENTS and told else max(known, sent)

    def enter(self, blocks: Sequence[int]) -> None:
        """Record the blocks of a prompt that is sent to the member, before events tell of them."""
        self._prefix_index.add(self._name, blocks)
        if self._subscribers:
            self._prefix_index.add(self._running_entry_name, blocks)

    def holds(self, blocks: Sequence[int]) -> None:
        """Record the blocks of a complete reply that the member holds, even without events."""
        self._prefix_index.add(self._name, blocks)

    def leave(self, blocks: Sequence[int]) -> None:
        """Record that the request of a prompt has ended: from here on events tell of its blocks."""
        if self._subscribers:
            self._prefix_index.remove(self._running_entry_name, blocks)

    def expect(self, unread: int, since: float) -> None:
        """Note that events must come since ``since`` if the ``unread`` tokens read fill a block."""
        sizes = [cache.view.block_size for cache in self._subscribers]
        if self._subscribers and unread >= 2 * max(*sizes, 0) and (any(sizes) or unread >= _UNREAD):
            self._events_due_and_noted_at = self._events_due_and_noted_at or (since, monotonic())

    def _set_source(self) -> None:
        if not self._subscribers or any(cache.failure for cache in self._subscribers):
            self._prefix_source = SENT
        else:
            complete = all(cache.view.complete for cache in self._subscribers)
            self._prefix_source = KV_EVENTS if complete else BOTH


log = structlog.get_logger(__name__)

_LONGEST_WAIT_SECONDS = 30.0


class Member(MemberLoad):
    """One member of a pool, named by its address: its engine, cache, load and failures.

    After a failure it gets no requests for a while, as its circuit breaker says, until it begins
    to answer again. ``cache`` knows what it holds.
    """

    def __init__(self, name: str, engine: SupervisedEngine[Any], cache: MemberCache) -> None:
        super().__init__(name)
        self.engine = engine
        self.cache = cache
        self.failure = ""  # the last one, while nothing else has come since
        self.restarts = 0  # of its engine, as of the blocks that it is taken to hold
        self._breaker = CircuitBreaker(monotonic, random.Random().random, _LONGEST_WAIT_SECONDS)
        self._start_task: asyncio.Task[None] | None = None

    @property
    def rests(self) -> bool:
        return not self._breaker.admits()

    def failed(self, why: str) -> None:
        self._breaker.failed(why, proven=False)
        self.failure = why

    def answered(self) -> None:
        self._breaker.succeeded()
        self.failure = ""

    def begin(self, news: asyncio.Event) -> None:
        """Load the engine in a task that ``stop`` ends; set ``news`` at each outcome."""
        self.cache.start()
        if self._start_task is None:
            self._start_task = asyncio.get_running_loop().create_task(self._load_until_ready(news))

    async def stop(self) -> None:
        await end_task(self._start_task)
        self._start_task = None
        await self.cache.stop()
        await self.engine.stop()

    def status(self) -> EngineStatus:
        status = self.engine.status()
        source = self.cache.source
        state, detail = status.state, self.failure or status.detail or self.cache.failure
        loaded = self._start_task is None or self._start_task.done()  # with its facts
        if not loaded and state in (EngineState.ABSENT, EngineState.READY):
            state = EngineState.FAILED if self.failure else EngineState.LOADING
        return replace(status, model=self.name, state=state, detail=detail, prefix_source=source)

    async def _load_until_ready(self, each_outcome_event: asyncio.Event) -> None:
        delay = FIRST_WAIT_SECONDS
        while True:
            try:
                await self.engine.start()
                await self.engine.facts()
                self.failure = ""
                return
            except EngineFailed as failure:
                self.failure = str(failure)
                log.warning("member of a pool not loaded", member=self.name, why=self.failure)
            except Exception as failure:  # whatever it was: nobody else tries again
                self.failure = f"the start failed: {type(failure).__name__}"
                log.exception("member of a pool not loaded", member=self.name)
            finally:
                each_outcome_event.set()
            await self.engine.stop()  # it may have got half way
            await asyncio.sleep(delay * random.uniform(0.8, 1.2))
            delay = min(delay * 2, _LONGEST_WAIT_SECONDS)


@dataclass(eq=False)
class MemberTurn:
    """A generation at a member, counted until its ``end``."""

    at: Member
    prompt: InitVar[Sequence[int]]
    _root_block: int  # of the prompt's chain of blocks
    _prompt_blocks: Sequence[int]  # of the prompt
    _unread_tokens: int  # tokens of the prompt that the member has to read
    _on_end: Callable[[Member], None]

    def __post_init__(self, prompt: Sequence[int]) -> None:
        whole = len(self._prompt_blocks) * kv_events.BLOCK
        self._partial_block = prompt[whole:]  # the tokens that fill no block
        self._initial_unread_tokens, self._turn_started_at = self._unread_tokens, monotonic()
        self.at.running += 1
        self.at.unread += self._unread_tokens
        self.at.cache.enter(self._prompt_blocks)

    def answered(self) -> None:
        self.at.unread -= self._unread_tokens
        self._unread_tokens = 0
        self.at.answered()

    def end(self, made: Sequence[int] | None = None, failure: str = "") -> None:
        """End the turn: with the tokens ``made`` if it is complete, or with the ``failure``."""
        at = self.at
        at.running -= 1
        at.unread -= self._unread_tokens
        at.cache.leave(self._prompt_blocks)
        self._unread_tokens = 0
        if made is not None:
            at.answered()
            at.cache.expect(self._initial_unread_tokens, self._turn_started_at)
            # The reply is in its cache too, for the next turn of the conversation.
            before = self._prompt_blocks[-1] if self._prompt_blocks else self._root_block
            at.cache.holds(kv_events.extended(before, [*self._partial_block, *made]))
        elif failure:
            at.failed(failure)
        self._on_end(at)
