"""Record of what a member holds of a prompt, by the best source that there is.

KV events say what each cache of the member holds. Where they do not come, what was sent to the
member counts instead; where they do not go back to an empty cache, both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic

from causerie.engines.pool.kv_subscriber import KvEndpoint, KvSubscriber
from causerie.engines.pool.kv_view import KvView
from causerie.engines.pool.prefix_index import PrefixIndex

SENT = "sent"
KV_EVENTS = "kv_events"
BOTH = "kv_events+sent"
_SILENCE_SECONDS = 5.0  # until events count as lost that must have come
_UNREAD = 2048  # tokens that fill a block of any cache


class MemberCache:
    """Of the member ``name``, which publishes at ``endpoints``, one for each data-parallel rank."""

    def __init__(self, index: PrefixIndex, name: str, endpoints: Sequence[KvEndpoint]) -> None:
        self._index = index
        self._name = name
        self._running = f"{name} running"
        self._caches = [
            KvSubscriber(endpoint, KvView(index, f"{name} rank {rank}", name), self._changed)
            for rank, endpoint in enumerate(endpoints)
        ]
        self._source = SENT
        self._expected: tuple[float, float] | None = None  # since when, and noted when

    def __len__(self) -> int:
        """Return the number of blocks that events say are there."""
        return sum(len(cache.view) for cache in self._caches)

    @property
    def source(self) -> str:
        """Return what is used: ``kv_events``, ``sent`` or both."""
        if self._expected is not None:
            self._notice_silence(*self._expected)
        return self._source

    @property
    def failure(self) -> str:
        """Return why events are not used, if so."""
        return next((cache.failure for cache in self._caches if cache.failure), "")

    def start(self) -> None:
        """Listen to what the member publishes."""
        for cache in self._caches:
            cache.start()

    async def stop(self) -> None:
        """Listen no more, and hold nothing."""
        for cache in self._caches:
            await cache.stop()
        self.forget()
        self._index.forget(self._running)

    def forget(self) -> None:
        """Take the member as one that holds nothing: it has started again."""
        self._index.forget(self._name)
        for cache in self._caches:
            cache.view.forget()
        self._changed()

    def run(self, runs: Mapping[str, int], scope: str = "") -> int:
        """Return how many of the first blocks of a prompt in a scope the member holds.

        With several ranks it is their mean, since vLLM chooses the rank. What was sent counts for a
        scope too, as long as no event has named one: older servers keep theirs to themselves.
        """
        sent = runs.get(self._name, 0)
        source = self.source
        if source == SENT:
            return sent
        each = [runs.get(cache.view.name, 0) for cache in self._caches]
        known = max(sum(each) // len(each), runs.get(self._running, 0))
        told = not scope or any(cache.view.salted for cache in self._caches)
        return known if source == KV_EVENTS and told else max(known, sent)

    def enter(self, blocks: Sequence[int]) -> None:
        """Record a prompt that is sent to the member; no event tells of it yet."""
        self._index.add(self._name, blocks)
        if self._caches:
            self._index.add(self._running, blocks)

    def holds(self, blocks: Sequence[int]) -> None:
        """Record what the member has made, where no event tells of it."""
        self._index.add(self._name, blocks)

    def leave(self, blocks: Sequence[int]) -> None:
        """Record that such a prompt is not being answered any more: from here on events tell."""
        if self._caches:
            self._index.remove(self._running, blocks)

    def expect(self, unread: int, since: float) -> None:
        """Note that so many tokens were read, so that events must have come since then."""
        sizes = [cache.view.block_size for cache in self._caches]
        if self._caches and unread >= 2 * max(*sizes, 0) and (any(sizes) or unread >= _UNREAD):
            self._expected = self._expected or (since, monotonic())

    def _changed(self) -> None:
        if not self._caches or any(cache.failure for cache in self._caches):
            self._source = SENT
        else:
            complete = all(cache.view.complete for cache in self._caches)
            self._source = KV_EVENTS if complete else BOTH

    def _notice_silence(self, since: float, noted: float) -> None:
        if any(cache.heard >= since for cache in self._caches):
            self._expected = None
        elif monotonic() - noted > _SILENCE_SECONDS:
            self._expected = None
            for cache in self._caches:
                cache.fail(f"no KV events for {_SILENCE_SECONDS:g} s, although a prompt was read")
