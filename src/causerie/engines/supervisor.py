"""Keeps one child process running: starts it, notices its end, starts it again.

Knows states, back-off and an orderly stop; what the child is and how it is
spoken to is its spawner's.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

import structlog

from causerie.engines.base import EngineFailed, EngineState

log = structlog.get_logger(__name__)

_FIRST_DELAY = 0.2
_LAST_DELAY = 30.0
_STABLE_SECONDS = 60.0


class Child(Protocol):
    """A child process that is ready to serve."""

    async def ended(self) -> str:
        """Wait for its end, or until it is unusable; return why, in a few words."""
        ...

    async def stop(self) -> None:
        """End it, and wait until it has ended. May be called again."""
        ...


C = TypeVar("C", bound=Child)


class GivenUp(EngineFailed):
    """No child can be started any more: what it is made of is gone."""


class Supervisor(Generic[C]):
    """One child at a time. ``child`` is there only while it is ready.

    The delay before a restart doubles from 0.2 to 30 seconds, with jitter, and starts anew once a
    child has run for a minute or has finished a piece of work: it is for those that cannot serve,
    and each second of it is one without service. If a restart raises :class:`GivenUp` it is absent
    from then on.
    """

    def __init__(
        self,
        name: str,
        spawn: Callable[[], Awaitable[C]],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._name = name
        self._spawn = spawn
        self._sleep = sleep
        self._task: asyncio.Task[None] | None = None
        self.child: C | None = None
        self.state = EngineState.ABSENT
        self.restarts = 0
        self.detail = ""
        self.retry_at = 0.0
        self._proved = False

    def proved(self) -> None:
        """Record that the child has finished a piece of work."""
        self._proved = True

    async def start(self) -> None:
        """Start the child; raise :class:`EngineFailed` if the first start fails."""
        self.state = EngineState.LOADING
        try:
            self.child = await self._spawn()
        except EngineFailed as failure:
            self.state, self.detail = EngineState.FAILED, str(failure)
            raise
        except asyncio.CancelledError:
            self.state = EngineState.ABSENT
            raise
        self.state, self.detail = EngineState.READY, ""
        # Owned here: `stop` cancels and awaits it.
        self._task = asyncio.get_running_loop().create_task(self._watch(self.child))

    async def stop(self) -> None:
        """End the child for good."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        child, self.child = self.child, None
        if child is not None:
            await child.stop()
        self.state = EngineState.ABSENT

    @property
    def restarting(self) -> bool:
        """Return whether the child has ended and will be restarted."""
        return self._task is not None and not self._task.done() and self.child is None

    def retry_after(self) -> float:
        """Return the seconds until the next start is tried."""
        return max(self.retry_at - time.monotonic(), 0.0) + 1.0

    async def _watch(self, child: C) -> None:
        delay = _FIRST_DELAY
        started = time.monotonic()
        while True:
            why = await child.ended()
            self.child, self.state = None, EngineState.FAILED
            await child.stop()
            if self._proved or time.monotonic() - started > _STABLE_SECONDS:
                delay = _FIRST_DELAY
            self._proved = False
            log.warning("engine ended", model=self._name, why=why)
            self.detail = why
            try:
                child, delay = await self._again(delay)
            except GivenUp:
                self.state = EngineState.ABSENT
                return
            started = time.monotonic()

    async def _again(self, delay: float) -> tuple[C, float]:
        """Try until a child is ready; return it and the delay for the next time."""
        while True:
            self.state = EngineState.FAILED
            wait = delay * random.uniform(0.8, 1.2)
            self.retry_at = time.monotonic() + wait
            await self._sleep(wait)
            self.state = EngineState.LOADING
            self.restarts += 1
            delay = min(delay * 2, _LAST_DELAY)
            try:
                self.child = await self._spawn()
            except EngineFailed as failure:
                self.detail = str(failure)
                log.warning("engine did not start", model=self._name, why=str(failure))
                if isinstance(failure, GivenUp):
                    raise
                continue
            except Exception as failure:  # whatever it was: nobody else starts it again
                self.detail = f"the start failed: {type(failure).__name__}"
                log.exception("engine did not start", model=self._name)
                continue
            self.state, self.detail = EngineState.READY, ""
            return self.child, delay
