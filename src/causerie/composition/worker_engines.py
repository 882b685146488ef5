"""Own models in a worker process, whose engines its parent keeps.

Places at a model, the choice of a server and its health are asked of the parent. Tokens go to the
server and come from it without the parent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING

import structlog

from causerie.composition.engine_client import EnginesClient, ServerInUse
from causerie.composition.engine_messages import EngineTold
from causerie.composition.engine_recipe import engine_recipe
from causerie.engines.base import EngineFailed, EngineStatus
from causerie.engines.model_slot import Edition
from causerie.errors import ServiceError
from causerie.settings import ModelSettings, Settings
from causerie.settings.credentials import Credentials

if TYPE_CHECKING:  # imported only where there is such a model: the tokenizer's library is large
    from causerie.engines.vllm.borrowed import BorrowedVllm

_AGAIN_SECONDS = 1.0

log = structlog.get_logger(__name__)


class WorkerEngines:
    """The engines of all own models that workers answer, in the place of a fleet."""

    def __init__(self, client: EnginesClient) -> None:
        self._client = client
        self._models: dict[str, _BorrowedModel] = {}
        self._tasks: asyncio.TaskGroup | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep up with the parent's engines while the block runs."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            beating = tasks.create_task(self._client.beat())
            try:
                yield
            finally:
                beating.cancel()
                for model in self._models.values():
                    await model.close()

    def replace(self, settings: Settings, credentials: Credentials) -> None:
        """Have the models of these settings from now on; ``running`` is entered."""
        assert self._tasks is not None
        before, self._models = self._models, {}
        for model in settings.models:
            recipe = engine_recipe(settings, credentials, model)
            kept = before.get(model.id)
            if kept is not None and kept.recipe == recipe:
                self._models[model.id] = before.pop(model.id)
            else:
                made = _BorrowedModel(self._client, model, recipe)
                made.following = self._tasks.create_task(made.follow())
                self._models[model.id] = made
        for gone in before.values():
            gone.retire()

    def engine(self, model: str) -> BorrowedVllm:
        """Return the engine of a model; raise :class:`KeyError` if unknown."""
        return self._models[model].engine

    def admission_queue(self, model: str) -> BorrowedQueue:
        """Return the queue of a model; raise :class:`KeyError` if unknown."""
        return self._models[model].queue

    def status(self) -> tuple[EngineStatus, ...]:
        """Return nothing: the parent has the engines."""
        return ()


class _BorrowedModel:
    """One model, whose engine stays as long as its ``recipe`` is the same."""

    def __init__(self, client: EnginesClient, settings: ModelSettings, recipe: object) -> None:
        # Imported here: the tokenizer's library takes memory, which others do not need.
        from causerie.composition.vllm_reach import borrowed_engine  # noqa: PLC0415 - see above

        self._client = client
        self._id = settings.id
        self._edition = Edition()
        self.recipe = recipe
        self.engine = borrowed_engine(settings.vllm, self._choose)
        self.queue = BorrowedQueue(self)
        self.following: asyncio.Task[None] | None = None

    async def follow(self) -> None:
        """Know the engine as it is, for ever, with its tokenizer read before it is needed."""
        while True:
            try:
                self.learn(await self._client.follow(self._id, self._edition))
            except ServiceError:  # it has left, or the parent has
                return
            except EngineFailed:  # no member of its pool is there now
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            try:
                await self.engine.facts()
            except EngineFailed as failure:
                log.warning("engine not usable in a worker", model=self._id, why=str(failure))

    def learn(self, told: EngineTold) -> None:
        """Go by this from now on."""
        self._edition = told.edition
        self.engine.learn(told.lent)

    async def enter(self, places: int) -> tuple[int, float]:
        """Take places; return the number to :meth:`leave` them by, and the seconds of waiting."""
        number, entered = await self._client.enter(self._id, places, self._edition)
        if entered.told is not None:
            self.learn(entered.told)
        return number, entered.waited

    def leave(self, number: int) -> None:
        """Give places back."""
        self._client.leave(number)

    def retire(self) -> None:
        """Follow it no more; requests that have it go on."""
        if self.following is not None:
            self.following.cancel()

    async def close(self) -> None:
        """Have no more to do with it."""
        self.retire()
        await self.engine.close()

    async def _choose(
        self, prompt: Sequence[int], scope: str, tried: Collection[str]
    ) -> ServerInUse:
        return await self._client.choose(self._edition.engine, prompt, scope, tried)


class BorrowedQueue:
    """Admission to a model, which the parent decides and counts."""

    waiting = 0
    spares = True

    def __init__(self, model: _BorrowedModel) -> None:
        self._model = model

    def enter(self, places: int = 1) -> BorrowedSlots:
        """As :meth:`causerie.access.admission.SlotQueue.enter`."""
        return BorrowedSlots(self._model, places)

    def reserve(self, choices: int, tokens: int) -> AbstractAsyncContextManager[None]:
        """Hold nothing: a vLLM sees to its cache itself."""
        return nullcontext()


class BorrowedSlots:
    """The places of one request. ``waited`` is how long it queued, in seconds."""

    __slots__ = ("_model", "_number", "_places", "waited")

    def __init__(self, model: _BorrowedModel, places: int) -> None:
        self._model = model
        self._places = places
        self._number = 0
        self.waited = 0.0

    async def __aenter__(self) -> BorrowedSlots:
        self._number, self.waited = await self._model.enter(self._places)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._model.leave(self._number)
