"""A vLLM that others run: waiting until it answers, and noticing that it does no more.

Nothing is started or ended here.
"""

from __future__ import annotations

import asyncio
import random
from time import monotonic

import structlog

from causerie.engines.base import EngineFailed
from causerie.engines.vllm.client import VllmClient, VllmRefused
from causerie.engines.vllm.options import Elsewhere
from causerie.engines.watchdog import Pulse, silence
from causerie.transport.errors import TransportFailed

log = structlog.get_logger(__name__)

_FIRST_DELAY = 0.25
_LAST_DELAY = 5.0  # whoever waits for it wants to know soon, and the question costs nothing
_ANSWER_SECONDS = 10.0
_QUESTIONS = (("/health", 5.0),)


class VllmServer:
    """One that has answered. ``client`` speaks to it."""

    pid: int | None = None  # no process of ours

    def __init__(self, client: VllmClient, pulse: Pulse) -> None:
        self.client = client
        self._pulse = pulse

    async def ended(self) -> str:
        """Wait until it no longer answers."""
        await silence(lambda *_: self.client.healthy(), self._pulse, _QUESTIONS)
        return "the server answers no more"

    async def stop(self) -> None:
        """Close the connections; the server keeps running."""
        await self.client.close()


async def reached(where: Elsewhere, seconds: float, pulse: Pulse) -> VllmServer:
    """Return the server, for which is waited so long; raise :class:`EngineFailed` with the reason.

    ``pulse`` beats while it answers.
    """
    client = VllmClient(where.address, where.reach, where.key)
    try:
        await _answers(client, monotonic() + seconds)
    except BaseException:
        await client.close()
        raise
    return VllmServer(client, pulse)


async def _answers(client: VllmClient, until: float) -> None:
    delay = _FIRST_DELAY
    while True:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                return await client.healthy()
        except TimeoutError:
            failure = EngineFailed(f"the server did not answer within {_ANSWER_SECONDS:g} s")
        except EngineFailed as error:
            failure = error
        why = failure.__cause__ or failure
        if not _may_pass(failure) or monotonic() + delay > until:
            # Not as one that is loading: who has waited so long is to hear why it was for nothing.
            raise EngineFailed(f"there is no vLLM at the address: {why}") from failure
        if delay == _FIRST_DELAY:
            log.warning("server is waited for", why=str(why))
        await asyncio.sleep(delay * random.uniform(0.8, 1.2))
        delay = min(delay * 2, _LAST_DELAY)


def _may_pass(failure: EngineFailed) -> bool:
    """Return whether waiting may help.

    It does not help against a wrong certificate, or if another service answers at the address.
    """
    if isinstance(failure, VllmRefused):
        return failure.status >= 500
    cause = failure.__cause__
    return not (isinstance(cause, TransportFailed) and cause.kind == "tls")
