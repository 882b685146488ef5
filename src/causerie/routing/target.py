"""Interface of a target: answer, and continue the partial reply of another target."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from causerie.protocol.events import ArrivalSink, Batch, CacheReporter, Partial, Trail, Usage
from causerie.protocol.request import ChatRequest

NOTHING = Usage(0, 0)


class TargetReply(Protocol):
    """A running reply.

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
    """An engine or provider that answers; a request is repeated ``retries`` times if it fails."""

    @property
    def retries(self) -> int: ...

    def generate(
        self, request: ChatRequest, partial: Partial | None = None
    ) -> AbstractAsyncContextManager[TargetReply]:
        """Return the reply; entering it raises ``ServiceError`` if the target cannot answer.

        The target gets the request when the first event is awaited, or later; from then on
        ``usage`` has the prompt. With ``partial`` the reply continues it: events and counts are of
        new content only, and the output limit is lower by ``partial``.
        """

    def continues(self, request: ChatRequest, partial: Partial) -> bool:
        """Return true if this target can continue ``partial``."""

    async def count_tokens(self, request: ChatRequest) -> int | None:
        """Return the tokens of the prompt as a reply would report them; ``None`` if unknown."""


class AdmissionQueue(Protocol):
    """Admission of requests: start, wait, or be refused."""

    def enter(self, places: int) -> AbstractAsyncContextManager[float]:
        """Hold places during the block, which gets the seconds in the queue; raise ``Overloaded``
        if there are none."""
