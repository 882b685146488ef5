"""The order in which targets are tried, and falling back before anything was sent.

A target that fails before its first event is passed over for the next; once an
event has come, the answer is that target's.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from msgspec import Struct

from causerie.errors import Overloaded, ServiceError, UpstreamFailed
from causerie.protocol.events import Batch, Usage
from causerie.protocol.request import ChatRequest
from causerie.routing.target import Target


class Routed(Struct, frozen=True):
    """An answer whose first event is there.

    ``usage`` tells the tokens used so far, also when the answer is cut off;
    ``upstream_seconds`` passed inside the target until the first event;
    ``attempts`` counts the targets that were tried.
    """

    events: AsyncIterator[Batch]
    fingerprint: str
    usage: Callable[[], Usage]
    served_by: str
    attempts: int
    upstream_seconds: float
    changes: Sequence[str] = ()


class Router:
    """Targets by name."""

    def __init__(self, targets: Mapping[str, Target]) -> None:
        self._targets = targets

    @asynccontextmanager
    async def generate(self, names: Sequence[str], request: ChatRequest) -> AsyncIterator[Routed]:
        """Answer from the first of ``names`` that can; entered with the first event at hand.

        Raises the failure of the last target, or at once one that no other
        target could do better at.
        """
        async with AsyncExitStack() as held:
            failure: ServiceError | None = None
            for attempt, name in enumerate(names, start=1):
                started = time.monotonic()
                async with AsyncExitStack() as trying:
                    try:
                        answer = await trying.enter_async_context(
                            self._targets[name].generate(request)
                        )
                        first = await anext(answer.events)
                    except ServiceError as failed:
                        if not _elsewhere(failed):
                            raise
                        failure = failed
                        continue
                    held.push_async_exit(trying.pop_all())
                waited = time.monotonic() - started
                yield Routed(
                    events=_resumed(first, answer.events),
                    fingerprint=answer.fingerprint,
                    usage=answer.usage,
                    served_by=name,
                    attempts=attempt,
                    upstream_seconds=waited,
                    changes=answer.changes,
                )
                return
            raise failure or Overloaded("No endpoint serves this model now.", code="no_endpoint")


def _elsewhere(failure: ServiceError) -> bool:
    """Whether another target may do better: not where the request itself is wrong."""
    return isinstance(failure, (Overloaded, UpstreamFailed))


async def _resumed(first: Batch, rest: AsyncIterator[Batch]) -> AsyncIterator[Batch]:
    yield first
    async for batch in rest:
        yield batch
