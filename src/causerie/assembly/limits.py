"""Where limits are counted, as the settings say: in memory, or in a server that replicas share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from causerie.access.limits import Counters
from causerie.access.windows import MemoryCounters
from causerie.settings import Shared
from causerie.startup import CannotStart

_FIRST_SECONDS = 2.0


@asynccontextmanager
async def counters(shared: Shared) -> AsyncIterator[Counters]:
    """The counters, for as long as the service runs.

    A server that is away when the service starts is waited for a moment, and
    then for ever in the background. Raises :class:`CannotStart` for an address
    that is none.
    """
    if shared.url is None:
        yield MemoryCounters()
        return
    from causerie.shared.counters import (  # noqa: PLC0415 - memory for those who share limits
        SharedCounters,
        SharedOptions,
    )

    options = SharedOptions(away=shared.away, prefix=shared.prefix)
    try:
        made = SharedCounters(shared.url, options)
    except ValueError as error:
        raise CannotStart("shared.url: the address cannot be read") from error
    async with made.running():
        try:
            async with asyncio.timeout(_FIRST_SECONDS):
                await made.wait()
        except TimeoutError:
            pass  # said in the log; requests are counted as `away` says
        yield made
