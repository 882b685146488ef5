"""Counting of limits and budgets: here, or in a server that replicas share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from causerie.access.limits import RateLimiter
from causerie.access.windows import MemoryCounters
from causerie.accounts.shared_budgets import SharedBudgetStore
from causerie.composition.startup import CannotStart
from causerie.settings import SharedSettings
from causerie.workers.state import SharedState

if TYPE_CHECKING:  # imported only where replicas share a server, or workers have accounts
    from causerie.accounts.rpc_client import AccountsClient
    from causerie.distributed.broadcast import Broadcast

_FIRST_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Distribution:
    """Counters of limits and budgets.

    ``budgets`` is ``None`` if each process counts them for itself. ``here`` reports whether the
    shared server answers; ``None``: nothing is shared. ``state`` is that of several processes.
    ``broadcast`` reaches the other replicas; ``None``: there are none. ``accounts`` asks the
    process that has the accounts; ``None``: it is this one, or there are none.
    """

    counters: RateLimiter
    budgets: SharedBudgetStore | None = None
    here: Callable[[], bool | None] = lambda: None
    state: SharedState | None = None
    broadcast: Broadcast | None = None
    accounts: AccountsClient | None = None


@asynccontextmanager
async def sharing(
    shared: SharedSettings, state: SharedState | None = None, accounts: AccountsClient | None = None
) -> AsyncIterator[Distribution]:
    """Yield the counters, for as long as the service runs.

    Processes of one service count in their ``state``, unless replicas share a server. With a client
    of ``accounts`` their limits are counted where it asks.

    If the server is away when the service starts, the start waits for a moment, and then
    reconnection goes on in the background for ever. Raises :class:`CannotStart` for a malformed
    address.
    """
    if shared.url is None:
        own = MemoryCounters() if state is None else state.counters
        yield Distribution(_limiter(own, accounts), state=state, accounts=accounts)
        return
    # Imported here: the server's client takes memory, which a single replica does not need.
    from causerie.distributed import broadcast, budgets, counters, line, replica  # noqa: PLC0415 - see above

    reach = line.ConnectionOptions(shared.reply_seconds, ca_file=shared.ca_file)
    options = replica.DistributedOptions(away=shared.away, prefix=shared.prefix, line=reach)
    try:
        here = replica.Replica(shared.url, options)
    except ValueError as error:
        raise CannotStart("shared.url: the address cannot be read") from error
    async with here.running():
        try:
            async with asyncio.timeout(_FIRST_SECONDS):
                await here.wait()
        except TimeoutError:
            pass  # said in the log; requests are counted as `away` says
        yield Distribution(
            _limiter(counters.DistributedCounters(here), accounts),
            budgets.DistributedBudgets(here),
            lambda: here.here,
            state,
            broadcast.Broadcast(here, shared.url, reach),
            accounts,
        )


def _limiter(counters: RateLimiter, accounts: AccountsClient | None) -> RateLimiter:
    return counters if accounts is None else accounts.limiter(counters)
