"""Interfaces of a routing target, its replies and its admission queue."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from causerie.protocol.events import ArrivalSink, Batch, CacheReporter, Partial, Trail, Usage
from causerie.protocol.request import ChatRequest

NOTHING = Usage(0, 0)


class TargetReply(Protocol):
    """Interface of a running reply of a target.

    The usage is the last of its ``events``; ``events`` is to be looked up anew after the first
    batch. ``usage`` and ``trail`` give the tokens so far. ``changes`` reports what was dropped or
    rewritten for this target, ``cache_report`` what its prefix cache had of the prompt, if known
    before the first content. ``on_arrival`` takes a sink for batches that arrive while the next one
    is awaited, until it returns false; it is ``None`` if every batch is awaited. ``verbatim``: the
    request and the reply pass unchanged, in the API of the client.
    """

    @property
    def events(self) -> AsyncIterator[Batch]: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def usage(self) -> Callable[[], Usage]: ...
    @property
    def trail(self) -> Callable[[], Trail | None]: ...
    @property
    def changes(self) -> Sequence[str]: ...
    @property
    def cache_report(self) -> CacheReporter | None: ...
    @property
    def on_arrival(self) -> Callable[[ArrivalSink], None] | None: ...
    @property
    def verbatim(self) -> bool: ...


class Silence:
    """The empty reply of a target that has not answered."""

    fingerprint = ""
    changes: Sequence[str] = ()
    cache_report: CacheReporter | None = None
    on_arrival: Callable[[ArrivalSink], None] | None = None
    verbatim = False

    @property
    def events(self) -> AsyncIterator[Batch]:
        return self

    def usage(self) -> Usage:
        return NOTHING

    def trail(self) -> None:
        return None

    def __aiter__(self) -> AsyncIterator[Batch]:
        return self

    async def __anext__(self) -> Batch:
        raise StopAsyncIteration


SILENCE = Silence()


class Target(Protocol):
    """Interface of an engine or provider that answers; ``retries``: retries of a failed request."""

    @property
    def retries(self) -> int: ...

    def generate(
        self, request: ChatRequest, partial: Partial | None = None
    ) -> AbstractAsyncContextManager[TargetReply]:
        """Return the reply's context manager; entering it raises ``ServiceError`` on failure.

        The target gets the request when the first event is awaited, or later; from then on
        ``usage`` has the prompt. With ``partial`` the reply continues it: events and counts are of
        new content only, and the output limit is lower by ``partial``.
        """

    def continues(self, request: ChatRequest, partial: Partial) -> bool:
        """Return true if this target can continue ``partial``."""

    async def count_tokens(self, request: ChatRequest) -> int | None:
        """Return the tokens of the prompt as a reply would report them; ``None`` if unknown."""


class AdmissionQueue(Protocol):
    """Interface of a queue that lets requests start or wait, or refuses them."""

    def enter(self, places: int) -> AbstractAsyncContextManager[float]:
        """Return a context that holds places and gives the seconds queued; raise ``Overloaded``."""
