"""Engines for worker processes: the process that keeps them answers what a worker asks.

One :class:`EngineSession` for each worker. Places, servers and their health are those of requests
that this process answers itself. What a worker holds is given back when it ends.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from causerie.chat.failures import engine_failures
from causerie.composition import engine_messages as messages
from causerie.composition.targets import OwnModel
from causerie.engines.base import EngineFailed, ModelFacts
from causerie.engines.fleet import FleetEngine, ManagedEngine
from causerie.engines.packed_tokens import unpacked
from causerie.errors import Failed, InternalError, NotFound, ServiceError, forget_frames
from causerie.routing.target import AdmissionQueue, QueuePlace

if TYPE_CHECKING:  # imported only where a worker uses an engine: the tokenizer's library is large
    from causerie.engines.vllm.lending import Loan

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Lease:
    """Places of a request, and its engine, which stays loaded, until ``held`` is left."""

    engine: FleetEngine
    held: AsyncExitStack


class EngineSession:
    """Answers one worker process; ``own`` finds a model of ours that is in force."""

    def __init__(self, own: Callable[[str], OwnModel | None]) -> None:
        self._own = own
        self._leases: dict[int, _Lease] = {}
        self._engines: dict[int, FleetEngine] = {}  # of the leases
        self._uses: Counter[int] = Counter()  # leases of each of those
        self._loans: dict[int, Loan] = {}
        self._asking: dict[int, asyncio.Task[object]] = {}
        self._ends: set[asyncio.Task[None]] = set()

    async def answer(self, data: bytes) -> bytes:
        """Answer one question."""
        found: messages.Answer
        try:
            found = await self._answer(messages.question(data))
        except EngineFailed as failure:
            found = messages.EngineAway.of(failure)
            forget_frames(failure)
        except ServiceError as failure:
            found = Failed.of(failure)
            forget_frames(failure)
        except Exception:  # the worker waits for an answer, whatever it is
            log.exception("a question about engines failed")
            found = Failed.of(InternalError("The service failed at this request."))
        return messages.encoded(found)

    def tell(self, data: bytes) -> None:
        """Take a notice.

        In the next turn of the loop: what was asked just before is being done by then.
        """
        asyncio.get_running_loop().call_soon(self._told, messages.notice(data))

    async def close(self) -> None:
        """The worker has ended: free what it held."""
        for number in list(self._loans):
            self._loans.pop(number).end()
        for number in list(self._leases):
            self._leave(number)
        if self._ends:
            await asyncio.wait(self._ends)

    async def _answer(self, question: messages.Question) -> messages.Answer:
        with self._asked(question.number):
            match question:
                case messages.Enter():
                    return await self._enter(question)
                case messages.Choose():
                    return await self._choose(question)
                case messages.Follow():
                    _, engine = self._found(question.model)
                    return _lent(engine, *await engine.changed(question.has))

    async def _enter(self, question: messages.Enter) -> messages.Answer:
        queue, engine = self._found(question.model)
        entry: AbstractAsyncContextManager[QueuePlace] = queue.enter(question.places)
        async with AsyncExitStack() as stack:
            waited = (await stack.enter_async_context(entry)).waited
            with engine_failures(started=False):
                loaded, facts = await stack.enter_async_context(engine.held())
                known = engine.edition == question.has
                told = None if known else _lent(engine, loaded, facts)
            self._leases[question.number] = _Lease(engine, stack.pop_all())
        number = engine.edition.engine
        self._engines[number] = engine
        self._uses[number] += 1
        return messages.Entered(waited, told)

    async def _choose(self, question: messages.Choose) -> messages.Answer:
        from causerie.engines.vllm.lending import Loan  # noqa: PLC0415 - see above

        if question.engine not in self._engines:
            raise EngineFailed("the model has been replaced", loading=True)
        async with self._engines[question.engine].held() as (engine, _):
            loan = Loan(engine, unpacked(question.prompt), question.scope, question.tried)
            self._loans[question.number] = loan
        return messages.Chosen(loan.server)

    def _told(self, notice: messages.Notice) -> None:
        match notice:
            case messages.Beats():
                for number in notice.numbers:
                    if number in self._loans:
                        self._loans[number].beat()
            case messages.Answered():
                if notice.number in self._loans:
                    self._loans[notice.number].answered()
            case _ if notice.number in self._asking:
                self._asking[notice.number].cancel()  # so it gets nothing
            case messages.LeaveModel():
                self._leave(notice.number)
            case messages.EndGeneration():
                self._end(notice)

    def _end(self, notice: messages.EndGeneration) -> None:
        loan = self._loans.pop(notice.number, None)
        if loan is not None:  # else there was no server
            loan.end(None if notice.made is None else unpacked(notice.made), notice.failure)

    def _leave(self, number: int) -> None:
        """Free whatever was given; nothing, if the question was refused."""
        if number in self._loans:
            self._loans.pop(number).end()
        lease = self._leases.pop(number, None)
        if lease is None:
            return
        engine = lease.engine.edition.engine
        self._uses[engine] -= 1
        if not self._uses[engine]:
            del self._uses[engine], self._engines[engine]
        task = asyncio.get_running_loop().create_task(lease.held.aclose())
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    @contextmanager
    def _asked(self, number: int) -> Iterator[None]:
        """Let a notice end the block."""
        task = asyncio.current_task()
        assert task is not None
        self._asking[number] = task
        try:
            yield
        finally:
            del self._asking[number]

    def _found(self, model: str) -> tuple[AdmissionQueue, FleetEngine]:
        own = self._own(model)
        if own is None or not isinstance(own.engine, FleetEngine):
            words = f"There is no model {model} here any more."
            raise NotFound(words, code="model_not_found", param="model")
        return own.admission_queue, own.engine


def _lent(
    fleet_engine: FleetEngine, engine: ManagedEngine, facts: ModelFacts
) -> messages.EngineTold:
    from causerie.engines.vllm.lending import lent_engine  # noqa: PLC0415 - see above

    return messages.EngineTold(fleet_engine.edition, lent_engine(engine, facts))
