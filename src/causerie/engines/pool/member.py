"""One server of a pool: its engine, what it carries, and whether it is to be asked now."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from time import monotonic
from typing import Any

import structlog

from causerie.engines.base import EngineFailed, EngineState, EngineStatus
from causerie.engines.pool.choice import MemberLoad
from causerie.engines.pool.member_cache import MemberCache
from causerie.engines.supervised import SupervisedEngine
from causerie.runtime.circuit_breaker import FIRST_WAIT_SECONDS, CircuitBreaker

log = structlog.get_logger(__name__)

_LONGEST_WAIT_SECONDS = 30.0


class Member(MemberLoad):
    """The server at the address that is its name.

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
        self._start: asyncio.Task[None] | None = None

    @property
    def rests(self) -> bool:
        """Return whether it has failed lately and is left alone for a while."""
        return not self._breaker.admits()

    def failed(self, why: str) -> None:
        """Leave it alone for a while."""
        self._breaker.failed(why, proven=False)
        self.failure = why

    def answered(self) -> None:
        """Hold nothing against it: it has started to answer."""
        self._breaker.succeeded()
        self.failure = ""

    def begin(self, news: asyncio.Event) -> None:
        """Load it in a task that ``stop`` ends; ``news`` is set at each outcome."""
        self.cache.start()
        if self._start is None:
            self._start = asyncio.get_running_loop().create_task(self._started(news))

    async def stop(self) -> None:
        """Have no more to do with it."""
        if self._start is not None:
            self._start.cancel()
            await asyncio.gather(self._start, return_exceptions=True)
            self._start = None
        await self.cache.stop()
        await self.engine.stop()

    def status(self) -> EngineStatus:
        """Return the status of its engine, by the member's name."""
        status = self.engine.status()
        source = self.cache.source
        state, detail = status.state, self.failure or status.detail or self.cache.failure
        if self._start is not None and not self._start.done() and state is EngineState.ABSENT:
            state = EngineState.FAILED if self.failure else EngineState.LOADING
        return replace(status, model=self.name, state=state, detail=detail, prefix_source=source)

    async def _started(self, news: asyncio.Event) -> None:
        """Try until it is loaded; it is supervised from then on."""
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
                news.set()
            await self.engine.stop()  # it may have got half way
            await asyncio.sleep(delay * random.uniform(0.8, 1.2))
            delay = min(delay * 2, _LONGEST_WAIT_SECONDS)
