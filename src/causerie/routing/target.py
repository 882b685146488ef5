"""Interface of a target: answer, and continue the partial reply of another target."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from causerie.protocol.events import ArrivalSink, Batch, CacheReporter, Partial, Trail, Usage
from causerie.protocol.request import ChatRequest

NOTHING = Usage(0, 0)


class TargetReply(Protocol):
    """An answer under way.

    Of its ``events`` the usage comes last, and nobody asks for more then; once the first
    has come, what gives the next is to be looked up anew. ``usage`` and
    ``trail`` tell the tokens so far, also when the answer is cut off; ``changes`` names
    what was dropped or rewritten for this target. ``cache_report`` gives what its prefix cache
    had of the prompt, where the target tells that before its first content. ``on_arrival`` takes
    a sink for batches that arrive while the next one is awaited, until it returns false: whoever
    awaits is woken by others only. It is ``None`` where every batch is awaited.
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


class Silence:
    """The empty reply of a target that has not answered."""

    fingerprint = ""
    changes: Sequence[str] = ()
    cache_report: CacheReporter | None = None
    on_arrival: Callable[[ArrivalSink], None] | None = None

    @property
    def events(self) -> AsyncIterator[Batch]:
        """Nothing, at once."""
        return self

    def usage(self) -> Usage:
        """No tokens."""
        return NOTHING

    def trail(self) -> None:
        """None, either."""

    def __aiter__(self) -> AsyncIterator[Batch]:
        return self

    async def __anext__(self) -> Batch:
        raise StopAsyncIteration


SILENCE = Silence()


class Target(Protocol):
    """A server or model that can answer a chat request."""

    def generate(
        self, request: ChatRequest, partial: Partial | None = None
    ) -> AbstractAsyncContextManager[TargetReply]:
        """Entering raises ``ServiceError`` where the target cannot answer.

        The target has the request when the first of its events is asked for, or later; from
        then on the answer's ``usage`` has the prompt, whether it is waited for or not.
        With ``partial`` the reply goes on after it: events and counts are of
        what is new only, and the output limit is lower by what there is.
        """

    def continues(self, request: ChatRequest, partial: Partial) -> bool:
        """Return true if this target can continue ``partial``."""


class QueuePlace(Protocol):
    """A place; ``waited`` is how long it was queued for, in seconds."""

    @property
    def waited(self) -> float: ...


class AdmissionQueue(Protocol):
    """Admission of requests: start, wait, or be refused."""

    def enter(self, places: int) -> AbstractAsyncContextManager[QueuePlace]:
        """Hold places while the block runs; raises ``Overloaded`` where there are none."""
